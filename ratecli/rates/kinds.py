"""Rows that count alike: all that decisions do to rates goes through one sum for each kind of row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.rates.matrix import RateMatrix
from ratecli.rates.sample import Floats

_WORD = 2**62


@dataclass(frozen=True)
class RowKinds:
    """The rows of a rate matrix by what a yes adds to each rate: +, - or nothing, times a weight.

    Mostly there is one kind for each group, label and deployed decision, however many rows there are.

    Attributes
    ----------
    matrix
        The K rates of n rows.
    of
        (n,) the kind of each row, 0 to Q - 1.
    weight
        (n,) the row's weight in every rate that counts it; 0 if none does.
    patterns
        (K, Q) +1, -1 or 0.
    """

    matrix: RateMatrix
    of: NDArray[np.intp]
    weight: Floats
    patterns: Floats

    @classmethod
    def by(cls, matrix: RateMatrix) -> RowKinds:
        columns = sparse.csc_array(matrix.sums)
        signs = sparse.csc_array(
            (np.sign(columns.data).astype(np.int64), columns.indices, columns.indptr), columns.shape
        )
        words = np.random.default_rng(0).integers(-_WORD, _WORD, size=signs.shape[0])
        keys = signs.T @ words  # sums modulo 2^64: equal for equal patterns, exactly
        _, first, of = np.unique(keys, return_index=True, return_inverse=True)
        weight = np.asarray(abs(columns).max(axis=0).todense(), dtype=float).ravel()
        return cls(matrix, of, weight, signs[:, first].toarray().astype(float))

    @property
    def count(self) -> int:
        """Q."""
        return int(self.patterns.shape[1])

    @cached_property
    def totals(self) -> Floats:
        """(Q,) weight of each kind."""
        return np.asarray(np.bincount(self.of, self.weight, self.count), dtype=float)

    @cached_property
    def _divisors(self) -> Floats:
        """(K,) weight of the rows of each rate, NaN where there are none."""
        totals = self.matrix.totals
        return np.asarray(np.where(totals > 0, totals, np.nan), dtype=float)

    @cached_property
    def slopes(self) -> Floats:
        """(K, Q) what a weight of 1 decided yes adds to each rate; 0 for a rate of no rows."""
        totals = self.matrix.totals[:, None]
        return np.divide(self.patterns, totals, out=np.zeros_like(self.patterns), where=totals > 0)

    def yes(self, decisions: Floats) -> Floats:
        """(Q,) weight decided yes, of (n,) probabilities of a yes."""
        return np.asarray(np.bincount(self.of, self.weight * decisions, self.count), dtype=float)

    def rates(self, yes: Floats) -> Floats:
        """(K, ...) rates of (Q, ...) weights decided yes; sums are divided last."""
        across = (slice(None),) + (None,) * (yes.ndim - 1)
        sums = self.patterns @ yes + self.matrix.constants[across]
        return np.asarray(sums / self._divisors[across])

    def prices(self, prices: Floats) -> Floats:
        """(n,) what a yes of each row costs, where rates have the prices (K,)."""
        return self.weight * (prices @ self.slopes)[self.of]
