"""Fits that a process has made: sweep points of one seed ask for the same ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ratecli.models.base import Array, Features
from ratecli.models.fitted import Fitted
from ratecli.models.trees import Trees
from ratecli.solvers.fit_cache import Memory, digest
from ratecli.solvers.oracles.estimators import fitted

KEPT = 8
"""How many, the latest ones."""

_known = Memory[Trees | Fitted](KEPT)


def remembered(
    model: BaseEstimator, X: Features, classes: NDArray[np.intp], weights: Array
) -> Trees | Fitted:
    """What `estimators.fitted` gives: the same whether it was made before or is made now.

    A `random_state` must be a number, as `estimators.made` sees to.
    """
    said = (type(model).__qualname__, sorted(model.get_params().items(), key=str))
    key = digest(said, X, classes, weights)
    return _known.get(key, lambda: fitted(model, X, classes, weights))
