"""Rows as the gradient player sees them: all lanes in one pass, equal rows once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.rates.kinds import Kinds
from ratecli.solvers.players.kernel import hinges_of, pass_over, slopes_of

Floats32 = NDArray[np.float32]

MOST_PARTS = 1024
"""Distinct parts up to which columns are put together: their scores stay in the second cache."""
WORTH = 0.5
"""Parts are used if a row has at most this part of the numbers that it stores."""


@dataclass(frozen=True)
class Pass:
    """What a pass over the rows finds, for B lanes.

    Attributes
    ----------
    yes
        (Q, B) weight decided yes of each kind.
    slopes
        (d + 1, B) derivatives of the sum of all hinges in weights and bias.
    """

    yes: Array
    slopes: Floats32


@dataclass(frozen=True)
class LaneRows:
    """m rows, sorted by kind, that differ in features or kind; weights W are (d + 1, B), bias last.

    Attributes
    ----------
    X
        (m, d) features.
    starts
        (Q + 1,) where each kind begins.
    weight
        (m,) how often a row counts.
    """

    X: Features
    starts: NDArray[np.int64]
    weight: Floats32

    @classmethod
    def of(cls, X: Features, kinds: Kinds) -> LaneRows:
        """Rows of one kind with equal features are one; rows that no rate counts are left out."""
        used = np.flatnonzero(kinds.weight)
        products = np.asarray(X @ np.random.default_rng(0).normal(size=X.shape[1]))[used]
        order = np.lexsort((products, kinds.of[used]))
        kind, key = kinds.of[used][order], products[order]
        new = np.concatenate([[True], (np.diff(key) != 0) | (np.diff(kind) != 0)])
        first = used[order][new]
        weight = np.add.reduceat(kinds.weight[used][order], np.flatnonzero(new))
        starts = np.searchsorted(kind[new], np.arange(kinds.count + 1))
        return cls(X[first], starts.astype(np.int64), weight.astype(np.float32))

    def run(self, W: Floats32, down: Array, up: Array) -> Pass:
        """Decisions counted and hinges' slopes for (d + 1, B) weights; prices (Q, B), not negative."""
        yes = np.zeros(down.shape, np.float32)
        prices = (down.astype(np.float32), up.astype(np.float32))
        if self._parts is None:
            scores = self._scores(W)
            slopes_of(scores, self.starts, self.weight, *prices, yes)
            pull, shift = self._columns @ scores, scores.sum(axis=0)
        else:
            table = np.ascontiguousarray(self._parts.table @ W[:-1])
            sums = np.zeros_like(table)
            shift = np.zeros(W.shape[1], np.float32)
            parts = self._parts.of
            pass_over(parts, self.starts, self.weight, table, W[-1], *prices, yes, sums, shift)
            pull = self._parts.columns @ sums
        return Pass(yes.astype(float), np.concatenate([pull, shift[None]]))

    def hinges(self, W: Floats32) -> tuple[Array, Array]:
        """(Q, B) sums of `max(0, 1 + score)` and of `max(0, 1 - score)` over the rows of each kind."""
        shape = (len(self.starts) - 1, W.shape[1])
        above, below = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        hinges_of(self._scores(W), self.starts, self.weight, above, below)
        return above.astype(float), below.astype(float)

    def _scores(self, W: Floats32) -> Floats32:
        return np.ascontiguousarray(self._features @ W[:-1] + W[-1], dtype=np.float32)

    @cached_property
    def _features(self) -> Features:
        return self.X.astype(np.float32)

    @cached_property
    def _columns(self) -> Features:
        if isinstance(self.X, np.ndarray):
            return np.ascontiguousarray(self._features.T)
        return sparse.csr_array(self._features.T)

    @cached_property
    def _parts(self) -> _Parts | None:
        return _parts(sparse.csc_array(self.X))


@dataclass(frozen=True)
class _Parts:
    """Rows as sums of few parts: `X = sum over g of table[of[:, g]]`, table (U, d) sparse."""

    of: NDArray[np.int32]
    table: sparse.csr_array
    columns: sparse.csr_array


def _parts(X: sparse.csc_array) -> _Parts | None:
    """Columns put together, in their order, while few distinct parts of rows arise; None if it pays
    nothing.
    """
    m, d = X.shape
    groups = list[tuple[NDArray[np.intp], list[int]]]()
    most = max(1, int(WORTH * X.nnz / max(m, 1)))
    for j in range(d):
        code = _codes(X, j)
        if groups:
            joined = groups[-1][0] * (int(code.max()) + 1) + code
            distinct, joined = np.unique(joined, return_inverse=True)
            if len(distinct) <= MOST_PARTS:
                groups[-1] = (joined, [*groups[-1][1], j])
                continue
        if len(groups) == most or code.max() >= MOST_PARTS:
            return None
        groups.append((code, [j]))
    tables = []
    for code, columns in groups:
        _, first = np.unique(code, return_index=True)
        only = np.isin(np.arange(d), columns).astype(float)
        tables.append(sparse.csr_array(X[first]) * only)
        tables[-1].eliminate_zeros()
    table = sparse.csr_array(sparse.vstack(tables).astype(np.float32))
    starts = np.cumsum([0, *(t.shape[0] for t in tables)])
    of = np.stack(
        [code + start for (code, _), start in zip(groups, starts[:-1], strict=True)], axis=1
    )
    return _Parts(np.ascontiguousarray(of, dtype=np.int32), table, sparse.csr_array(table.T))


def _codes(X: sparse.csc_array, j: int) -> NDArray[np.intp]:
    """(m,) which of its distinct values a column has in each row."""
    column = np.zeros(X.shape[0])
    part = slice(X.indptr[j], X.indptr[j + 1])
    column[X.indices[part]] = X.data[part]
    return np.unique(column, return_inverse=True)[1]
