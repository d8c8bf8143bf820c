"""ratecli from Python: experiments, their results, and estimators for scikit-learn.

`ratecli` itself gives the names on demand, so that importing it stays quick.
"""
