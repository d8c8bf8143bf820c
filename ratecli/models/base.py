"""The interface of classifiers."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array: TypeAlias = NDArray[np.float64]
Features: TypeAlias = NDArray[np.float64] | sparse.csr_array

SPARSE_BELOW = 0.3


def append_columns(X: Features, columns: Array, dtype: type[np.floating] = np.float64) -> Features:
    """Return X (n, d) followed by other columns (n, k), dense or sparse as X is."""
    if isinstance(X, np.ndarray):
        return np.hstack([X, columns], dtype=dtype)
    parts = [X, sparse.csr_array(columns)]
    return sparse.csr_array(sparse.hstack(parts, format="csr", dtype=dtype))


def features_of_entries(columns: NDArray[np.signedinteger], values: Array, width: int) -> Features:
    """Return (n, width) features from k entries a row: their columns and values, (n, k).

    The features are sparse if k is below a share `SPARSE_BELOW` of the width.
    """
    starts = np.arange(0, columns.size + 1, columns.shape[1], dtype=columns.dtype)
    matrix = sparse.csr_array((values.ravel(), columns.ravel(), starts), (len(columns), width))
    matrix.eliminate_zeros()
    matrix.sum_duplicates()
    return matrix if columns.shape[1] < SPARSE_BELOW * width else matrix.toarray()


def width_of(part: str) -> Any:
    """Return a property `width` for models: the number of features of a part."""
    return property(lambda model: getattr(model, part).width)


@runtime_checkable
class Classifier(Protocol):
    """A rule that maps rows of features, shape (n, d), to decisions.

    `decide` returns the probability of a positive decision, in [0, 1]: 0 or 1 for deterministic
    rules, the expectation over the randomness of other rules. `score` returns values to rank rows
    by, and `estimate` the predicted label on the label's own scale (mse, mean_error).

    By default, a decision is positive where the score is, and the estimate is the decision.

    A classifier with `slices` expects X of shape (n, d + S): after the features, one 0/1 column for
    each slice, 1 if the row is in it.
    """

    @property
    def width(self) -> int:
        """d, the number of features."""
        ...

    @property
    def slices(self) -> tuple[str, ...]:
        """S conditions as text, such as `age >= 30, sex = Female`."""
        return ()

    def score(self, X: Features) -> Array: ...

    def decide(self, X: Features) -> Array:
        return (self.score(X) > 0).astype(float)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)
