"""The Python interface: run experiments, read their results, and scikit-learn estimators.

`ratecli` imports the public names from here on first use, so that importing it stays fast.
"""
