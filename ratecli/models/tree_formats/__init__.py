"""Conversion of trees to arrays: classifiers of scikit-learn, model files of other libraries.

The libraries are not called, and the files are only data: whatever they contain, reading them
returns trees or raises ValueError.
"""
