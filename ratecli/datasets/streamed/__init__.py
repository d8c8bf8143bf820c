"""Tables larger than memory: read piece by piece, kept as records of fixed width, summed over."""
