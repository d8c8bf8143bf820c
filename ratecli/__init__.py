"""Train classifiers under goals written as rates, compare the ways to do it, prove what was found."""

__version__ = "0.1.0"
