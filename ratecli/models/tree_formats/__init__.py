"""Conversion of trees to arrays: classifiers of scikit-learn, model files of other libraries.

The libraries are not called, and the files are only data: whatever they contain, reading them
returns trees or raises ValueError.
"""

from ratecli.models.tree_formats.arrays import FileColumn, layout_of
from ratecli.models.tree_formats.catboost import read_catboost
from ratecli.models.tree_formats.lightgbm import lightgbm_columns, read_lightgbm
from ratecli.models.tree_formats.scikit_learn import TREE_CONVERTERS, convert_sklearn_trees
from ratecli.models.tree_formats.xgboost import cut_word, read_xgboost, xgboost_columns

__all__ = [
    "TREE_CONVERTERS",
    "FileColumn",
    "convert_sklearn_trees",
    "cut_word",
    "layout_of",
    "lightgbm_columns",
    "read_catboost",
    "read_lightgbm",
    "read_xgboost",
    "xgboost_columns",
]
