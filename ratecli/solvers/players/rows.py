"""Rows of the descending player: equal rows are merged, and one pass serves all lanes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.players.kernel import (
    add_transposed_product,
    draw_batch,
    multiply_rows,
    pass_over_parts,
)
from ratecli.solvers.players.lanes import WIDTH, Floats32

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
    """Compressed sparse rows as compiled functions take them; `rows` holds the row indices."""

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


class SharedRowParts(NamedTuple):
    """`X = sum over g of table[of[:, g]]`, with `of` (m, G) and `table` (U, d)."""

    of: Uint32Array
    table: CsrArrays


def find_shared_parts(X: sparse.csc_array) -> SharedRowParts | None:
    """Group adjacent columns while a group has few distinct row parts; None if it does not pay."""
    m, d = X.shape
    groups = list[tuple[NDArray[np.intp], list[int]]]()
    most = max(1, int(MAX_PART_SHARE * X.nnz / max(m, 1)))
    for j in range(d):
        code = _column_codes(X, j)
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


def _column_codes(X: sparse.csc_array, j: int) -> NDArray[np.intp]:
    """Return the index (m,) of each row's value among the distinct values of a column."""
    column = np.zeros(X.shape[0])
    part = slice(X.indptr[j], X.indptr[j + 1])
    column[X.indices[part]] = X.data[part]
    return np.unique(column, return_inverse=True)[1]


class RowSelection(NamedTuple):
    """Rows of a pass, sorted by kind.

    Attributes
    ----------
    rows
        (m,) their indices.
    starts
        (Q + 1,) where each kind begins.
    weight
        (m,) weight of each.
    """

    rows: Uint32Array
    starts: NDArray[np.int64]
    weight: Floats32 | Array


class PassResult(NamedTuple):
    """Results of a pass over rows, for B lanes.

    Attributes
    ----------
    yes
        (L, Q, WIDTH) positively decided weight of each kind.
    slopes
        (L, d + 1, WIDTH) derivatives of the sum of all hinges with respect to weights and bias.
    """

    yes: Array
    slopes: Floats32


class LaneRows:
    """Rows sorted by kind, with equal rows merged; lanes are blocks as defined in `lanes`.

    Weights W are (L, d + 1, WIDTH), bias last.

    Attributes
    ----------
    kinds
        Kinds of the rows before merging.
    X
        (m, d) features.
    all
        The m rows.
    member
        (n,) index of the merged row of each row in `used`.
    used
        (n,) the rows that a rate counts, sorted by kind.
    """

    def __init__(self, X: Features, kinds: RowKinds) -> None:
        """Merge rows of one kind with equal features, and leave out rows that no rate counts."""
        used = np.flatnonzero(kinds.weight)
        products = np.asarray(X @ np.random.default_rng(0).normal(size=X.shape[1]))[used]
        order = np.lexsort((products, kinds.of[used]))
        kind, key, used = kinds.of[used][order], products[order], used[order]
        new = np.concatenate([[True], (np.diff(key) != 0) | (np.diff(kind) != 0)])
        weight = np.add.reduceat(kinds.weight[used], np.flatnonzero(new)).astype(np.float32)
        starts = np.searchsorted(kind[new], np.arange(kinds.count + 1)).astype(np.int64)
        self.kinds, self.X, self.used = kinds, X[used[new]], used
        self.all = RowSelection(np.arange(len(weight), dtype=np.uint32), starts, weight)
        self.member = (np.cumsum(new) - 1).astype(np.uint32)

    def run(self, W: Floats32, sides: Floats32, some: RowSelection | None = None) -> PassResult:
        """Return counts of decisions and slopes of hinges.

        `sides` (L, 2 Q, WIDTH) are coefficients of hinges, not negative.
        """
        seen = some or self.all
        if self._parts is None:
            return pass_over_rows(self._taken(seen), seen, W, sides)
        return pass_over_rows(self._parts.table, seen, W, sides, self._parts.of)

    def counted(self, answers: Sequence[Floats32]) -> list[Array]:
        """Return the positively decided weight on all rows, as `run` does, for several weights."""
        nothing = np.zeros((len(answers[0]), 2 * self.kinds.count, WIDTH), np.float32)
        return [self.run(W, nothing).yes for W in answers]

    def hinges(self, W: Floats32, some: RowSelection | None = None) -> tuple[Array, Array]:
        """Return the sums of upper and lower hinges, as `hinge_sums` does."""
        seen = some or self.all
        return hinge_sums(self._taken(seen), seen, W)

    def _taken(self, some: RowSelection) -> Floats32 | CsrArrays:
        """Return the features of the selected rows."""
        if isinstance(self._features, CsrArrays):
            return self._features._replace(rows=some.rows)
        return self._features if some is self.all else self._features[some.rows]

    @property
    def width(self) -> int:
        """Number of features d."""
        return int(self.X.shape[1])

    @cached_property
    def _features(self) -> Floats32 | CsrArrays:
        return CsrArrays.of(self.X) if sparse.issparse(self.X) else self.X.astype(np.float32)

    @cached_property
    def _parts(self) -> SharedRowParts | None:
        return find_shared_parts(sparse.csc_array(self.X))


def pass_over_rows(
    X: Floats32 | CsrArrays,
    some: RowSelection,
    W: Floats32,
    sides: Floats32,
    of: Uint32Array | None = None,
) -> PassResult:
    """Run a pass over rows; slopes are 0 if all sides are.

    X are the features of the selected rows or, with `of` (n, G), those of the parts that rows are
    sums of.
    """
    rows = some.rows
    if of is None:  # each row is a part of its own
        rows = np.arange(len(some.weight), dtype=np.uint32)
        of = rows[:, None]
    yes, slopes = np.zeros((len(W), sides.shape[1] // 2, WIDTH)), np.zeros(W.shape, np.float32)
    for first in range(0, len(W), LANE_BLOCKS_AT_ONCE):
        block = slice(first, first + LANE_BLOCKS_AT_ONCE)
        scores, added = lane_scores(X, W[block]), (yes[block], slopes[block])
        pull = np.zeros_like(scores)
        weights = W[block], sides[block]
        pass_over_parts(of, rows, some.starts, some.weight, scores, *weights, pull, *added)
        if sides[block].any():
            _add_feature_slopes(X, pull, slopes[block])
    return PassResult(yes, slopes)


def hinge_sums(X: Floats32 | CsrArrays, some: RowSelection, W: Floats32) -> tuple[Array, Array]:
    """Return the sums over rows of each kind of `max(0, 1 + score)` and of `max(0, 1 - score)`.

    Both are (L, Q, WIDTH).
    """
    scores, weight = lane_scores(X, W) + W[:, -1:], some.weight[:, None]
    kinds = [slice(*ends) for ends in pairwise(some.starts)]

    def by_kind(hinges: Floats32) -> Array:
        return np.stack([hinges[:, kind].sum(axis=1, dtype=float) for kind in kinds], axis=1)

    above, below = (by_kind(weight * np.maximum(1 + sign * scores, 0)) for sign in (1, -1))
    return above, below


def lane_scores(X: Floats32 | CsrArrays, W: Floats32) -> Floats32:
    """Return the scores (L, m, WIDTH), without the bias."""
    if not isinstance(X, CsrArrays):
        return np.asarray(X @ W[:, :-1])
    scores = np.empty((len(W), len(X.rows), WIDTH), np.float32)
    multiply_rows(*X, W, scores)
    return scores


def _add_feature_slopes(X: Floats32 | CsrArrays, given: Floats32, slopes: Floats32) -> None:
    """Add to `slopes` the gradient in feature weights, given slopes (L, m, WIDTH) in the scores."""
    if isinstance(X, CsrArrays):
        add_transposed_product(*X, given, slopes)
    else:
        slopes[:, :-1] += X.T @ given


class BatchSampler:
    """Samples batches without replacement, stratified by kind, with at least one row of each kind.

    A sampled row gets the weight of the rows of its kind that it represents, so that sums over a
    batch are unbiased estimates of sums over all rows, and exact if all are sampled.

    Attributes
    ----------
    order, weight
        (n,) the rows by kind, and their weights; after a draw, the sampled ones of each kind come
        first.
    starts, ends
        (Q + 1,) where each kind begins, among all rows and among the sampled ones.
    """

    def __init__(
        self, some: RowSelection, there: Array, size: int, rng: np.random.Generator
    ) -> None:
        """Sample about `size` of some rows, which represent `there` (Q,) rows of each kind."""
        share, here = min(1.0, size / there.sum()), np.diff(some.starts)
        taken = np.minimum(np.maximum(np.rint(share * there), 1), here)
        stands = np.repeat(there / np.maximum(taken, 1), here)
        self.order, self.starts, self.rng = some.rows.copy(), some.starts, rng
        self.weight = (some.weight * stands).astype(np.float32)
        self.ends = np.append(0, np.cumsum(taken)).astype(np.int64)

    @classmethod
    def of(cls, rows: LaneRows, size: int, rng: np.random.Generator) -> BatchSampler:
        """Return a sampler of about `size` rows in memory, at most all of them."""
        kinds = rows.kinds
        there = np.bincount(kinds.of[rows.used], minlength=kinds.count).astype(float)
        starts = np.append(0, np.cumsum(there)).astype(np.int64)
        every = RowSelection(rows.member, starts, kinds.weight[rows.used])
        return cls(every, there, size, rng)

    def draw(self) -> RowSelection:
        size = int(self.ends[-1])
        rows, weight = np.empty(size, np.uint32), np.empty(size, np.float32)
        draw_batch(
            self.order, self.weight, self.starts, self.ends, self.rng.random(size), rows, weight
        )
        return RowSelection(rows, self.ends, weight)
