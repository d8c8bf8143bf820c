"""Fits that a process has made: sweep points of one seed ask for the same ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ratecli.models.base import Array, Features
from ratecli.models.fitted import SklearnModel
from ratecli.models.trees import TreeEnsemble
from ratecli.solvers.fit_cache import FitCache, array_digest
from ratecli.solvers.oracles.estimators import fit_estimator

CACHED_ESTIMATORS = 8
"""How many, the latest ones."""

_estimator_cache = FitCache[TreeEnsemble | SklearnModel](CACHED_ESTIMATORS)


def fit_estimator_cached(
    model: BaseEstimator, X: Features, classes: NDArray[np.intp], weights: Array
) -> TreeEnsemble | SklearnModel:
    """What `estimators.fitted` gives: the same whether it was made before or is made now.

    A `random_state` must be a number, as `estimators.made` sees to.
    """
    said = (type(model).__qualname__, sorted(model.get_params().items(), key=str))
    key = array_digest(said, X, classes, weights)
    return _estimator_cache.get(key, lambda: fit_estimator(model, X, classes, weights))
