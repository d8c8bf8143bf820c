"""Rows whose scores are linear in the weights, with a bias that need not be a column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Features
from ratecli.solvers.liblinear import add_ones_column

Intercept = Literal["regularized", "unregularized", "none"]

MAX_DENSE_ENTRIES = 2**22
"""Up to so many entries, a dense copy of the features with their ones is kept (32 MiB)."""

MAX_MERGED_SHARE = 0.9
"""Rows are merged if at most this part of them remains, because it copies the features."""


@dataclass(frozen=True)
class FeatureRows:
    """Features X (n, d) and the kind of bias; weights w are (d,) or, with a bias, (d + 1,)."""

    X: Features
    intercept: Intercept = "regularized"

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def biased(self) -> bool:
        """Whether there is a bias."""
        return self.intercept != "none"

    @property
    def width(self) -> int:
        """Number of weights, bias included."""
        return int(self.X.shape[1]) + self.biased

    def scores(self, w: Array) -> Array:
        """Return (n,) scores; the last weight is the bias, if there is one."""
        if not self.biased:
            return np.asarray(self.X @ w)
        return np.asarray(self.X @ w[:-1] + w[-1])

    def pull(self, slopes: Array) -> Array:
        """Return (width,) the derivative in the weights, given `slopes` (n,) in the scores.

        For several functions at a time, slopes are (n, k) and the result is (width, k).
        """
        pulled = np.asarray(self.X.T @ slopes)
        if not self.biased:
            return pulled
        return np.concatenate([pulled, np.sum(slopes, axis=0, keepdims=True)])

    def penalties(self, l2: float) -> Array:
        """Return (width,) the curvature of the regularizer in each weight."""
        found = np.full(self.width, l2)
        if self.intercept == "unregularized":
            found[-1] = 0.0
        return found

    def squares(self) -> Array:
        """Return (width,) the sum of squares of each feature."""
        return FeatureRows(self.X**2, self.intercept).pull(np.ones(len(self)))

    def some(self, chosen: NDArray[np.intp]) -> FeatureRows:
        return FeatureRows(self.X[chosen], self.intercept)

    def dense(self, chosen: NDArray[np.intp]) -> Array:
        """Return dense features (len(chosen), width) of some rows, the bias as a column of ones."""
        return self.some(chosen).filled if self._small is None else self._small[chosen]

    @cached_property
    def _small(self) -> Array | None:
        """All rows as a dense array if it is small: selecting rows is then ten times as fast."""
        return self.filled if len(self) * self.width <= MAX_DENSE_ENTRIES else None

    @property
    def filled(self) -> Array:
        """(n, width) dense features, the bias as a column of ones."""
        X = add_ones_column(self.X) if self.biased else self.X
        return X if isinstance(X, np.ndarray) else np.asarray(X.toarray())


def merge_equal_rows(X: Features, costs: Array) -> tuple[Features, Array]:
    """Merge rows with equal features into one row with the sum of their costs, shape (k, n).

    Rows without costs are dropped. Equal rows have equal products with any vector; rows that share
    the product with a random one are compared before they are merged.
    """
    used = np.flatnonzero(costs.any(axis=0))
    keys = np.asarray(X @ np.random.default_rng(0).normal(size=X.shape[1]))[used]
    _, first, member = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > MAX_MERGED_SHARE * X.shape[0] or _any_rows_differ(X, used, used[first][member]):
        return X, costs
    sums = [np.bincount(member, weights=row[used], minlength=len(first)) for row in costs]
    return X[used[first]], np.array(sums, dtype=float).reshape(len(costs), len(first))


def _any_rows_differ(X: Features, rows: NDArray[np.intp], others: NDArray[np.intp]) -> bool:
    changed = rows != others
    left, right = X[rows[changed]], X[others[changed]]
    if isinstance(left, np.ndarray):
        return not np.array_equal(left, right)
    return bool((left != right).nnz)
