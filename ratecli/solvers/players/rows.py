"""Rows of the descending player: sorted by kind, and one pass serves all lanes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.players.blocks import WIDTH, Floats32

Uint32Array = NDArray[np.uint32]

MAX_DISTINCT_PARTS = 512
"""Largest number of distinct parts in a group of columns: larger groups mean fewer parts per row,
but more scores to compute.
"""
MAX_PART_SHARE = 0.5
"""Largest ratio of parts to stored entries per row for which the rows are split into parts."""


LANE_BLOCKS_AT_ONCE = 16
"""Number of blocks of lanes whose scores are in memory at once."""


class CsrArrays(NamedTuple):
    """Compressed sparse rows as compiled functions take them; `rows` are the indices of some."""

    rows: Uint32Array
    starts: NDArray[np.int64]
    columns: Uint32Array
    values: Floats32

    @classmethod
    def of(cls, A: sparse.csr_array) -> CsrArrays:
        return cls(
            np.arange(A.shape[0], dtype=np.uint32),
            A.indptr.astype(np.int64),
            A.indices.astype(np.uint32),
            A.data.astype(np.float32),
        )


LaneFeatures = Floats32 | CsrArrays


class SharedRowParts(NamedTuple):
    """`X = sum over g of table[of[:, g]]`, with `of` (m, G) and `table` (U, d)."""

    of: Uint32Array
    table: CsrArrays


def find_shared_parts(X: sparse.csc_array) -> SharedRowParts | None:
    """Group adjacent columns while a group has few distinct row parts; None if it does not pay."""
    X.sum_duplicates()
    m, d = X.shape
    groups = list[tuple[NDArray[np.intp], list[int]]]()
    most = max(1, int(MAX_PART_SHARE * X.nnz / max(m, 1)))
    for j in range(d):
        column, stored = np.zeros(m, dtype=X.dtype), slice(X.indptr[j], X.indptr[j + 1])
        column[X.indices[stored]] = X.data[stored]  # ten times as fast as X[:, [j]]
        code = np.unique(column, return_inverse=True)[1]
        if groups:
            joined = groups[-1][0] * (int(code.max()) + 1) + code
            distinct, joined = np.unique(joined, return_inverse=True)
            if len(distinct) <= MAX_DISTINCT_PARTS:
                groups[-1] = (joined, [*groups[-1][1], j])
                continue
        if len(groups) == most or code.max() >= MAX_DISTINCT_PARTS:
            return None
        groups.append((code, [j]))
    if not groups:
        return None
    tables = []
    for code, columns in groups:
        _, first = np.unique(code, return_index=True)
        only = np.isin(np.arange(d), columns).astype(float)
        tables.append(sparse.csr_array(X[first]) * only)
        tables[-1].eliminate_zeros()
    table = sparse.csr_array(sparse.vstack(tables))
    starts = np.cumsum([0, *(t.shape[0] for t in tables)])
    of = np.stack(
        [code + start for (code, _), start in zip(groups, starts[:-1], strict=True)], axis=1
    )
    return SharedRowParts(np.ascontiguousarray(of, dtype=np.uint32), CsrArrays.of(table))


@dataclass(frozen=True)
class KindRows:
    """Rows sorted by kind; lanes are blocks as defined in `lanes`.

    Weights W are (L, d + 1, WIDTH), bias last.

    Attributes
    ----------
    X
        Features of the m rows.
    starts
        (Q + 1,) where each kind begins.
    weight
        (m,) weight of each row.
    parts
        The parts that rows are sums of, if it pays to compute the scores of these.
    """

    X: LaneFeatures
    starts: NDArray[np.int64]
    weight: Floats32
    parts: SharedRowParts | None = None

    def select(
        self, rows: Uint32Array, starts: NDArray[np.int64], weight: Array | Floats32
    ) -> KindRows:
        """Return some of the rows (m',), sorted by kind, with other weights."""
        X, parts = self.X, self.parts
        X = X._replace(rows=X.rows[rows]) if isinstance(X, CsrArrays) else X[rows]
        parts = None if parts is None else parts._replace(of=parts.of[rows])
        return KindRows(X, starts, weight.astype(np.float32), parts)

    def run(self, W: Floats32, sides: Floats32) -> tuple[Array, Floats32]:
        """Return the positively decided weight of each kind, and slopes of hinges.

        `sides` (L, 2 Q, WIDTH) are coefficients of hinges, not negative. The decided weights are
        (L, Q, WIDTH); the derivatives of the sum of all hinges with respect to weights and bias are
        (L, d + 1, WIDTH), 0 if all sides are.
        """
        # imports numba, which takes a third of a second; boosted trees do not need it
        from ratecli.solvers.players.lanes import add_transposed_product, pass_over_parts

        if self.parts is None:  # each row is a part of its own
            X, of = self.X, np.arange(len(self.weight), dtype=np.uint32)[:, None]
        else:
            of, X = self.parts
        yes, slopes = np.zeros((len(W), sides.shape[1] // 2, WIDTH)), np.zeros(W.shape, np.float32)
        for first in range(0, len(W), LANE_BLOCKS_AT_ONCE):
            block = slice(first, first + LANE_BLOCKS_AT_ONCE)
            scores = _lane_scores(X, W[block])
            pull, lanes = np.zeros_like(scores), (scores, W[block], sides[block])
            pass_over_parts(of, self.starts, self.weight, *lanes, pull, yes[block], slopes[block])
            if not sides[block].any():
                continue
            if isinstance(X, CsrArrays):
                add_transposed_product(*X, pull, slopes[block])
            else:
                slopes[block, :-1] += X.T @ pull
        return yes, slopes

    def hinges(self, W: Floats32) -> tuple[Array, Array]:
        """Return, for each kind of row, the sums of `max(0, 1 + score)` and `max(0, 1 - score)`.

        Both are (L, Q, WIDTH).
        """
        scores, weight = _lane_scores(self.X, W) + W[:, -1:], self.weight[:, None]
        kinds = [slice(*ends) for ends in pairwise(self.starts)]

        def by_kind(hinges: Floats32) -> Array:
            return np.stack([hinges[:, kind].sum(axis=1, dtype=float) for kind in kinds], axis=1)

        above, below = (by_kind(weight * np.maximum(1 + sign * scores, 0)) for sign in (1, -1))
        return above, below


def _lane_scores(X: LaneFeatures, W: Floats32) -> Floats32:
    """Return the scores (L, m, WIDTH), without the bias."""
    if not isinstance(X, CsrArrays):
        return np.asarray(X @ W[:, :-1])
    from ratecli.solvers.players.lanes import multiply_rows  # imports numba

    scores = np.empty((len(W), len(X.rows), WIDTH), np.float32)
    multiply_rows(*X, W, scores)
    return scores


class LaneRows:
    """The rows in memory that a rate counts.

    Attributes
    ----------
    kinds
        Kinds of all rows.
    width
        Number of features d.
    merged
        The rows, with equal ones of a kind merged.
    """

    def __init__(self, X: Features, kinds: RowKinds) -> None:
        used = np.flatnonzero(kinds.weight)
        products = np.asarray(X @ np.random.default_rng(0).normal(size=X.shape[1]))
        products = products[kinds.row[used]]
        order = np.lexsort((products, kinds.of[used]))
        kind, key, used = kinds.of[used][order], products[order], used[order]
        new = np.concatenate([[True], (np.diff(key) != 0) | (np.diff(kind) != 0)])
        weight = np.add.reduceat(kinds.weight[used], np.flatnonzero(new)).astype(np.float32)
        some = X[kinds.row[used[new]]]
        features = CsrArrays.of(some) if sparse.issparse(some) else some.astype(np.float32)
        parts = find_shared_parts(sparse.csc_array(some))
        self.kinds, self.width = kinds, int(X.shape[1])
        self.merged = KindRows(features, kind_starts(kind[new], kinds), weight, parts)
        self.run, self.hinges = self.merged.run, self.merged.hinges
        self._kind, self._weight = kind, kinds.weight[used]
        self._member = (np.cumsum(new) - 1).astype(np.uint32)

    def batches(self, size: int, rng: np.random.Generator) -> BatchSampler:
        """Return a sampler of batches of about `size` rows, before equal ones are merged."""
        starts = kind_starts(self._kind, self.kinds)
        return BatchSampler(self.merged.select(self._member, starts, self._weight), size, rng)


def kind_starts(kind: NDArray[np.intp], kinds: RowKinds) -> NDArray[np.int64]:
    """Return (Q + 1,) where each kind begins among the sorted `kind` (m,) of rows."""
    return np.searchsorted(kind, np.arange(kinds.count + 1)).astype(np.int64)


class BatchSampler:
    """Samples batches without replacement, stratified by kind, with at least one row of each kind.

    A sampled row gets the weight of the rows of its kind that it represents, so that sums over a
    batch are unbiased estimates of sums over all rows, and exact if all are sampled.

    Attributes
    ----------
    order, weight
        (n,) the rows by kind, and their weights; after a draw, the sampled ones of each kind come
        first.
    ends
        (Q + 1,) where each kind begins among the sampled rows.
    """

    def __init__(
        self, rows: KindRows, size: int, rng: np.random.Generator, there: Array | None = None
    ) -> None:
        """Sample about `size` rows, which represent `there` (Q,) rows of each kind.

        By default they represent themselves.
        """
        here = np.diff(rows.starts)
        there = here.astype(float) if there is None else there
        share = min(1.0, size / there.sum())
        taken = np.minimum(np.maximum(np.rint(share * there), 1), here)
        stands = np.repeat(there / np.maximum(taken, 1), here)
        self.rows, self.rng = rows, rng
        self.order = np.arange(len(rows.weight), dtype=np.uint32)
        self.weight = (rows.weight * stands).astype(np.float32)
        self.ends = np.append(0, np.cumsum(taken)).astype(np.int64)

    def draw(self) -> KindRows:
        from ratecli.solvers.players.lanes import draw_batch  # imports numba

        size = int(self.ends[-1])
        rows, weight = np.empty(size, np.uint32), np.empty(size, np.float32)
        ends, chances = (self.rows.starts, self.ends), self.rng.random(size)
        draw_batch(self.order, self.weight, *ends, chances, rows, weight)
        return self.rows.select(rows, self.ends, weight)
