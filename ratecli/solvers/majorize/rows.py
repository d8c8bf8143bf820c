"""Rows whose scores are linear in the weights: features, and a bias that need not be a column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Features
from ratecli.solvers.liblinear import with_ones

Intercept = Literal["regularized", "unregularized", "none"]

SMALL = 2**22
"""Entries up to which features are held again, dense and with their ones (32 MiB)."""

WORTH_MERGING = 0.9
"""Rows are merged if at most this part of them remains: it costs a copy of the features."""


@dataclass(frozen=True)
class Rows:
    """Features X (n, d) and how the score is shifted; weights w are (d,) or, with a bias, (d + 1,)."""

    X: Features
    intercept: Intercept = "regularized"

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def biased(self) -> bool:
        return self.intercept != "none"

    @property
    def width(self) -> int:
        return int(self.X.shape[1]) + self.biased

    def scores(self, w: Array) -> Array:
        """(n,) scores; the last weight is the bias, if there is one."""
        if not self.biased:
            return np.asarray(self.X @ w)
        return np.asarray(self.X @ w[:-1] + w[-1])

    def pull(self, slopes: Array) -> Array:
        """(width,) derivative in the weights of a function with `slopes` (n,) in the scores.

        Of several functions at a time, (width, k), where slopes are (n, k).
        """
        pulled = np.asarray(self.X.T @ slopes)
        if not self.biased:
            return pulled
        return np.concatenate([pulled, np.sum(slopes, axis=0, keepdims=True)])

    def penalties(self, l2: float) -> Array:
        """(width,) curvature of the regularizer in each weight."""
        found = np.full(self.width, l2)
        if self.intercept == "unregularized":
            found[-1] = 0.0
        return found

    def squares(self) -> Array:
        """(width,) sum of the squares of each feature."""
        return Rows(self.X**2, self.intercept).pull(np.ones(len(self)))

    def some(self, chosen: NDArray[np.intp]) -> Rows:
        return Rows(self.X[chosen], self.intercept)

    def dense(self, chosen: NDArray[np.intp]) -> Array:
        """(len(chosen), width) features of some rows, the bias a column of ones."""
        return self.some(chosen).filled if self._small is None else self._small[chosen]

    @cached_property
    def _small(self) -> Array | None:
        """All rows dense, where that is small: rows are picked ten times as fast."""
        return self.filled if len(self) * self.width <= SMALL else None

    @property
    def filled(self) -> Array:
        """(n, width) features, dense, the bias a column of ones."""
        X = with_ones(self.X) if self.biased else self.X
        return X if isinstance(X, np.ndarray) else np.asarray(X.toarray())


def merged(X: Features, costs: Array) -> tuple[Features, Array]:
    """Rows with equal features as one row with the sum of their costs, shape (k, n).

    Rows that cost nothing are left out. Equal rows have equal products with any vector; rows that
    share the product with a random one are compared before they are merged.
    """
    used = np.flatnonzero(costs.any(axis=0))
    keys = np.asarray(X @ np.random.default_rng(0).normal(size=X.shape[1]))[used]
    _, first, member = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > WORTH_MERGING * X.shape[0] or _differ(X, used, used[first][member]):
        return X, costs
    sums = [np.bincount(member, weights=row[used], minlength=len(first)) for row in costs]
    return X[used[first]], np.array(sums, dtype=float).reshape(len(costs), len(first))


def _differ(X: Features, rows: NDArray[np.intp], others: NDArray[np.intp]) -> bool:
    changed = rows != others
    left, right = X[rows[changed]], X[others[changed]]
    if isinstance(left, np.ndarray):
        return not np.array_equal(left, right)
    return bool((left != right).nnz)
