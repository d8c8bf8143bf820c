"""Algorithms of other packages as algorithms of ratecli, under their own options and defaults."""
