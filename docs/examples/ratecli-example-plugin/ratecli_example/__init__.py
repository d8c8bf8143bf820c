"""An algorithm, a data set and two metrics for ratecli."""
