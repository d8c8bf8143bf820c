"""Recent outputs of models, because members, variants and algorithms share models and rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Features
from ratecli.models.probabilities import ProbabilityModel
from ratecli.rates.sample import read_only

RECENT_OUTPUTS = 16
"""Number of most recent outputs that a process keeps."""
MOST_ROWS = 0.8
"""Share of unknown rows above which the outputs of all rows are computed."""
_recent: OrderedDict[tuple[int, bytes], tuple[ProbabilityModel, Array]] = OrderedDict()


class FixedFeatures:
    """Features X (n, d) that do not change, and the positions in X of rows taken from it."""

    def __init__(self, X: Features) -> None:
        self.X = X
        self._taken = {id(X): (ref(X), np.arange(X.shape[0]))}

    @cached_property
    def digest(self) -> bytes:
        return array_digest("", self.X)

    def positions(self, X: Features) -> NDArray[np.intp] | None:
        """Return the positions of rows that `add` got, else None."""
        taken, rows = self._taken.get(id(X), (None, None))
        return rows if taken is not None and taken() is X else None

    def add(self, X: Features, positions: NDArray[np.intp]) -> None:
        self._taken[id(X)] = ref(X), positions


_fixed: FixedFeatures | None = None


@contextmanager
def fixed_features(X: Features) -> Iterator[None]:
    """Compute outputs of rows of X once in the block, which must not change X or rows of it."""
    global _fixed  # noqa: PLW0603  like the outputs
    before = _fixed
    if before is None or before.X is not X:
        _fixed = FixedFeatures(X)
    try:
        yield
    finally:
        _fixed = before


def take_rows(X: Features, rows: NDArray[np.intp]) -> Features:
    """Return X[rows]; in a block of `fixed_features` it is known which rows they are.

    They are read-only: neighbouring rows of an array are a view of X.
    """
    n = len(rows)
    if n and rows[-1] - rows[0] == n - 1 and (np.diff(rows) == 1).all():
        return mark_rows(read_only(X[rows[0] : rows[0] + n]), X, rows)
    return mark_rows(read_only(X[rows]), X, rows)


def mark_rows(found: Features, X: Features, rows: NDArray[np.intp] | slice = np.s_[:]) -> Features:
    """Return `found`, which starts with the features of these rows of X, and remember that."""
    positions = None if _fixed is None else _fixed.positions(X)
    if _fixed is not None and positions is not None:
        _fixed.add(found, positions[rows])
    return found


def leading_features(X: Features, width: int) -> Features:
    """Return the first features (n, width) of X (n, d + S), and remember which rows they are."""
    if X.shape[1] == width:
        return X
    fixed, n = _fixed, X.shape[0]
    positions = None if fixed is None else fixed.positions(X)
    if fixed is None or positions is None or fixed.X.shape != (n, width):
        return mark_rows(X[:, :width], X)
    in_order = np.array_equal(positions, np.arange(n))
    return fixed.X if in_order else mark_rows(X[:, :width], X)


def class_probabilities(model: ProbabilityModel, X: Features) -> Array:
    """Return the model's probabilities (n, Q) of rows X (n, d), read-only.

    They are computed once for recent models and features, and for each row in a block of
    `fixed_features`.
    """
    fixed = _fixed
    positions = None if fixed is None else fixed.positions(X)
    if fixed is None or positions is None:
        fixed, positions = FixedFeatures(X), np.arange(X.shape[0])
    whole = _recent_array(model, fixed)
    found = whole if X is fixed.X else whole[positions]
    new = np.flatnonzero(np.isnan(found[:, 0]))
    if len(new) > MOST_ROWS * len(found):  # models that share their work share it for equal rows
        new = np.arange(len(found))
    if len(new):
        found[new] = model.probabilities(X if len(new) == len(found) else X[new])
        whole[positions[new]] = found[new]
    return read_only(found)


def _recent_array(model: ProbabilityModel, fixed: FixedFeatures) -> Array:
    """Return the probabilities (n, Q) of all rows, NaN where they are not known yet."""
    key = id(model), fixed.digest
    # keeping the model keeps its id from being reused
    known = _recent.pop(key, None) or (model, np.full((fixed.X.shape[0], model.classes), np.nan))
    _recent[key] = known
    while len(_recent) > RECENT_OUTPUTS:
        _recent.popitem(last=False)
    return known[1]


def array_digest(said: object, X: Features, *arrays: NDArray[Any]) -> bytes:
    """Return a cache key for features, arrays and other parameters (`said`, hashed by its repr)."""
    rows = [X] if isinstance(X, np.ndarray) else [X.data, X.indices, X.indptr]
    found = sha256(repr((said, X.shape)).encode())
    for array in (*rows, *arrays):
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()
