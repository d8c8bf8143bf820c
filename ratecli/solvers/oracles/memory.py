"""Fits that a process has made: sweep points of one seed ask for the same ones."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ratecli.models.base import Array, Features
from ratecli.models.fitted import Fitted
from ratecli.models.trees import Trees
from ratecli.solvers.oracles.estimators import fitted

KEPT = 8
"""How many, the latest ones."""

_known: OrderedDict[bytes, Trees | Fitted] = OrderedDict()


def remembered(
    model: BaseEstimator, X: Features, classes: NDArray[np.intp], weights: Array
) -> Trees | Fitted:
    """What `estimators.fitted` gives: the same whether it was made before or is made now.

    A `random_state` must be a number, as `estimators.made` sees to.
    """
    key = _key(model, X, classes, weights)
    if key not in _known:
        _known[key] = fitted(model, X, classes, weights)
    _known.move_to_end(key)
    while len(_known) > KEPT:
        _known.popitem(last=False)
    return _known[key]


def _key(model: BaseEstimator, X: Features, classes: NDArray[np.intp], weights: Array) -> bytes:
    arrays = [X] if isinstance(X, np.ndarray) else [X.data, X.indices, X.indptr]
    said = (type(model).__qualname__, sorted(model.get_params().items(), key=str), X.shape)
    found = blake2b(repr(said).encode())
    for array in (*arrays, classes, weights):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.digest()
