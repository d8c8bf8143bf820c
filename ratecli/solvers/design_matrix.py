"""Features with a bias that need not be a column: products with weights and with slopes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Features, append_columns

Intercept = Literal["regularized", "unregularized", "none"]

MAX_DENSE_ENTRIES = 2**22
"""Up to so many entries, a dense copy of the features with their ones is kept (32 MiB)."""

BLOCK_BYTES = 2**19
"""Size of a block of dense rows. It fits in the cache of a processor core."""
MAX_MERGED_SHARE = 0.9
"""Rows are merged if at most this part of them remains, because it copies the features."""


@dataclass(frozen=True)
class DesignMatrix:
    """Features X (n, d) and the kind of bias; weights w are (d,) or, with a bias last, (d + 1,)."""

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
        """Return (n,) scores."""
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

    def curvature(self, weights: Array) -> Array:
        """Return the weighted sum (width, width) of outer squares of rows, with a bias."""
        whole = np.empty((self.width, self.width))
        squares = self.X.T @ scale_rows(self.X, weights)
        whole[:-1, :-1] = squares.toarray() if sparse.issparse(squares) else squares
        whole[-1] = whole[:, -1] = self.pull(weights)
        return whole

    def squares(self, weights: Array) -> Array:
        """Return (width,) the weighted sum of squares of each feature: `curvature`'s diagonal."""
        X = self.X
        if isinstance(X, np.ndarray):
            return replace(self, X=X**2).pull(weights)
        squares = type(X)((X.data**2, X.indices, X.indptr), shape=X.shape)  # faster than X**2
        return replace(self, X=squares).pull(weights)

    def some(self, chosen: NDArray[np.intp]) -> DesignMatrix:
        """Return the matrix of some rows."""
        return replace(self, X=self.X[chosen])

    def dense(self, chosen: NDArray[np.intp]) -> Array:
        """Return dense features (len(chosen), width) of some rows, the bias as a column of ones."""
        return self.some(chosen).dense_array if self._small is None else self._small[chosen]

    @cached_property
    def compressed(self) -> tuple[NDArray[Any], NDArray[Any], Array]:
        """Starts, columns and values of the rows of a sparse X; columns ascend, none twice.

        Places are unsigned: compiled loops over signed ones test each for a negative value, which
        takes as long as the loop itself.
        """
        X: Any = self.X
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        starts, columns = (each.view(f"u{each.itemsize}") for each in (X.indptr, X.indices))
        return starts, columns, X.data

    @cached_property
    def _small(self) -> Array | None:
        """All rows as a dense array if it is small: selecting rows is then ten times as fast."""
        return self.dense_array if len(self) * self.width <= MAX_DENSE_ENTRIES else None

    @property
    def dense_array(self) -> Array:
        """(n, width) dense features, the bias as a column of ones."""
        X = add_ones_column(self.X) if self.biased else self.X
        return X if isinstance(X, np.ndarray) else np.asarray(X.toarray())


def add_ones_column(X: Features, dtype: type[np.floating] = np.float64) -> Features:
    """Return X with a column of ones, which makes the bias a regularized weight."""
    return append_columns(X, np.ones((X.shape[0], 1), dtype), dtype)


def compact(X: Features) -> Features:
    """Return X as a dense array if that takes less memory than sparse storage, else X itself."""
    entry_bytes = 12  # a number and a column
    dense_bytes = X.shape[0] * X.shape[1] * X.dtype.itemsize
    if isinstance(X, np.ndarray) or X.nnz * entry_bytes < dense_bytes:
        return X
    return np.asarray(X.toarray())


def scale_rows(X: Features, weights: Array) -> Any:
    """Return X (n, d) with each row times its weight (n,)."""
    return X * weights[:, None] if isinstance(X, np.ndarray) else sparse.diags_array(weights) @ X


def row_blocks(X: NDArray[Any], count: int | None = None) -> list[slice]:
    """Return blocks of `count` rows as wide as X (n, d), by default n; each fits in the cache."""
    size = max(BLOCK_BYTES // max(X.shape[1] * X.dtype.itemsize, 1), 1)
    return [slice(k, k + size) for k in range(0, len(X) if count is None else count, size)]


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


def equal_columns(table: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return for each column (n,) the number of its value, and for each value (K,) a column.

    Equal columns have equal sums of their entries, weighted at random; columns with equal sums are
    compared.
    """
    keys = np.zeros(table.shape[1])
    for row, weight in zip(table, np.random.default_rng(0).normal(size=len(table)), strict=True):
        keys += weight * row
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    if all(np.array_equal(row, row[first][number]) for row in table):
        return number, first
    return np.arange(len(keys)), np.arange(len(keys))


def _any_rows_differ(X: Features, rows: NDArray[np.intp], others: NDArray[np.intp]) -> bool:
    changed = rows != others
    left, right = X[rows[changed]], X[others[changed]]
    if isinstance(left, np.ndarray):
        return not np.array_equal(left, right)
    return bool((left != right).nnz)
