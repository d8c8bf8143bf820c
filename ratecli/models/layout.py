"""Columns behind one-hot features, for models that take categories and missing numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.rates.sample import make_read_only

NUMBER, NUMBER_OR_MISSING = 0, -1
MAX_FEATURES = 10**7
"""Maximum number of features of a classifier."""


@dataclass(frozen=True)
class ColumnLayout:
    """How d features are made of C columns (`datasets.encode`).

    Attributes
    ----------
    levels
        (C,) `NUMBER` for a column that is one feature, `NUMBER_OR_MISSING` for a number followed by
        a feature that is 1 where it is missing, L >= 1 for a category of L levels with a feature
        each.
    """

    levels: NDArray[np.intp]

    def __post_init__(self) -> None:
        make_read_only(self)
        levels = self.levels
        if levels.ndim != 1 or (levels < NUMBER_OR_MISSING).any() or (levels > MAX_FEATURES).any():
            raise ValueError("the columns have impossible numbers of levels")

    @classmethod
    def numbers(cls, width: int) -> ColumnLayout:
        """Return the layout of features that are numbers."""
        return cls(np.full(width, NUMBER, dtype=np.intp))

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """(C,) number of features of each column."""
        return np.where(self.levels == NUMBER_OR_MISSING, 2, np.maximum(self.levels, 1))

    @property
    def width(self) -> int:
        """d, the number of features."""
        return int(self.sizes.sum())

    @cached_property
    def categories(self) -> list[int]:
        """Indices of the columns that are categories."""
        return np.flatnonzero(self.levels > 0).tolist()

    def columns(self, X: Features) -> Array:
        """Return (n, C) columns of features (n, d), or of (n, d + S) that others follow.

        A number is as encoded, NaN where it is missing. A category is the index of its level, NaN
        where the row has none.
        """
        if isinstance(X, np.ndarray):
            if not (self.levels != NUMBER).any():
                return X[:, : self.width]
            X = sparse.csr_array(X)
        starts = np.cumsum(self.sizes) - self.sizes
        at, values, count = X.indices, X.data, len(self.levels)
        rows = np.repeat(np.arange(0, X.shape[0] * count, count), np.diff(X.indptr))
        used = (values != 0) & (at < self.width)  # memberships may follow
        if not used.all():
            at, values, rows = at[used], values[used], rows[used]
        column = np.repeat(np.arange(count), self.sizes)
        kind, place = self.levels[column], np.arange(self.width) - starts[column]
        states = np.where(kind > 0, place, np.nan)  # what a feature says of its column
        is_number = (kind <= 0) & (place == 0)
        found = np.tile(np.where(self.levels > 0, np.nan, 0.0), X.shape[0])
        found[rows + column[at]] = np.where(is_number[at], values, states[at])
        return found.reshape(-1, count)
