"""Rows of the descending player: sorted by kind, and one pass serves all lanes (settings)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.design_matrix import add_ones_column
from ratecli.streaming.stream import RUN_LENGTH, RowBlock, RowStream, SumArrays, add_sums

Floats32 = NDArray[np.float32]
Uint32Array = NDArray[np.uint32]

LANES_OF_PRODUCT = 16
"""Columns of a product of dense rows: always the same number, so that the numbers of a lane do not
depend on the other lanes.
"""
SPARSE_BELOW = 1 / 16
"""Share of entries that are not 0 above which dense rows are faster for many lanes."""
MAX_LANES = 256
"""Number of lanes whose scores are in memory at once."""
MAX_DISTINCT_PARTS = 512
"""Largest number of distinct parts in a group of columns: larger groups mean fewer parts per row,
but more scores to compute.
"""
MAX_PART_SHARE = 0.5
"""Largest ratio of parts to stored entries per row for which the rows are split into parts."""
MIN_POOL_ROWS = 2**15
"""Smallest number of rows in a pool; `BATCHES_PER_POOL` batches if that is more."""
BATCHES_PER_POOL = 2
RARE_KIND_ROWS = 64
"""A kind with fewer rows in an average pool is sampled separately."""
RARE_SAMPLE_ROWS = 2**12
"""Approximate number of rows in the sample of a rare kind."""


class SharedParts(NamedTuple):
    """Rows X (m, d) as sums of parts that they share.

    Attributes
    ----------
    places
        (m, G) places of the parts of each row.
    factors
        Sparse matrices; the rows of their product (U, d) are the distinct parts. The last matrix
        has the smallest parts. A row of another matrix has a 1 for each smaller part to add.
    """

    places: Uint32Array
    factors: tuple[sparse.csr_array, ...]


def shared_parts(X: sparse.csc_array) -> SharedParts | None:
    """Group adjacent columns while a group has few distinct parts; None if it does not pay.

    Then join pairs of groups while that saves additions.
    """
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
    tables = []
    for code, columns in groups:
        only = np.isin(np.arange(d), columns).astype(X.dtype)
        tables.append(sparse.csr_array(X[np.unique(code, return_index=True)[1]]) * only)
    factors = [sparse.csr_array(sparse.vstack(tables))]
    factors[0].eliminate_zeros()
    codes = [code for code, _ in groups]
    while len(codes) > 2 and len(codes) % 2 == 0:
        places = _places(codes)
        pairs = [places[:, k : k + 2] for k in range(0, len(codes), 2)]
        keys = [pair @ np.array([places.max() + 1, 1]) for pair in pairs]
        unique = [np.unique(each, return_index=True, return_inverse=True)[1:] for each in keys]
        if 4 * sum(len(first) for first, _ in unique) > m * len(codes):  # saves no additions
            break
        kept = [pair[first] for pair, (first, _) in zip(pairs, unique, strict=True)]
        factors.insert(0, _sums(np.concatenate(kept)))
        codes = [code for _, code in unique]
    return SharedParts(_places(codes).astype(np.uint32), tuple(factors))


def _places(codes: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    """Return the places (m, G) of the parts of each row, given by codes (m,) in G groups."""
    starts = np.cumsum([0, *(int(code.max()) + 1 for code in codes)])
    return np.stack([code + start for code, start in zip(codes, starts, strict=False)], axis=1)


def _sums(places: NDArray[np.intp]) -> sparse.csr_array:
    """Return the matrix (m, U) that adds the parts at some places (m, G)."""
    ones, starts = np.ones(places.size, np.float32), np.arange(len(places) + 1) * places.shape[1]
    return sparse.csr_array((ones, places.ravel(), starts))


@dataclass(frozen=True)
class KindRows:
    """Rows sorted by kind. Weights W are (d + 1, B), bias last, in single precision.

    Attributes
    ----------
    X
        (m, d) features.
    starts
        (Q + 1,) where each kind begins.
    weight
        (m,) weight of each row.
    parts
        The parts of X with a last column of ones, if it pays to compute these.
    """

    X: Features
    starts: NDArray[np.int64]
    weight: Floats32
    parts: SharedParts | None = None

    def run(self, W: Floats32, sides: Array | None = None) -> tuple[Array, Array | Floats32]:
        """Return the positively decided weight of each kind, and slopes of hinges.

        `sides` (2 Q, B) are coefficients of hinges, not negative; by default 0. The decided weights
        are (Q, B); the derivatives of the sum of all hinges with respect to W are (d + 1, B).
        """
        if W.shape[1] > MAX_LANES:
            blocks = range(0, W.shape[1], MAX_LANES)
            several = [slice(first, first + MAX_LANES) for first in blocks]
            found = [self.run(W[:, some], sides and sides[:, some]) for some in several]
            yes, slopes = map(np.hstack, zip(*found, strict=True))
            return yes, slopes
        # imports numba, which takes a third of a second; boosted trees do not need it
        from ratecli.solvers.players.lanes import count_and_slope

        X: Any = self.X
        if self.parts is not None:
            places, factors = self.parts
            table = reduce(lambda found, factor: factor @ found, reversed(factors), W)
        else:
            if sides is None and sparse.issparse(X):
                X = X.toarray() if X.nnz > SPARSE_BELOW * X.shape[0] * X.shape[1] else X
            places = np.arange(X.shape[0], dtype=np.uint32)[:, None]  # of whole rows
            table = multiply(X, W[:-1]) + W[-1]
        yes = np.zeros((len(self.starts) - 1, W.shape[1]))
        slopes = np.zeros_like(table[:0] if sides is None else table)
        given = np.zeros((2 * len(yes), W.shape[1])) if sides is None else sides
        given = given.astype(np.float32)
        count_and_slope(places, table, self.starts, self.weight, given, yes, slopes)
        if sides is None:
            return yes, np.zeros_like(W)
        if self.parts is not None:
            return yes, reduce(lambda found, factor: factor.T @ found, factors, slopes)
        bias = multiply(np.ones((1, len(slopes)), np.float32), slopes)
        return yes, np.concatenate([multiply(X.T, slopes), bias])

    def hinges(self, W: Floats32) -> tuple[Array, Array]:
        """Return, for each kind of row, the sums of `max(0, 1 + score)` and `max(0, 1 - score)`.

        Both are (Q, B).
        """
        scores, weight = multiply(self.X, W[:-1]) + W[-1], self.weight[:, None]
        kinds = [slice(*ends) for ends in pairwise(self.starts)]

        def by_kind(hinges: Floats32) -> Array:
            return np.stack([hinges[kind].sum(axis=0, dtype=float) for kind in kinds])

        above, below = (by_kind(weight * np.maximum(1 + sign * scores, 0)) for sign in (1, -1))
        return above, below


def multiply(X: Any, W: Floats32) -> Floats32:
    """Return the product (m, B) of X (m, n) and W (n, B)."""
    if sparse.issparse(X):
        return np.asarray(X @ W)
    if W.shape[1] == LANES_OF_PRODUCT:
        return np.asarray(X @ W)
    lanes = W.shape[1]
    blocks = -(-lanes // LANES_OF_PRODUCT)
    padded = np.zeros((len(W), blocks * LANES_OF_PRODUCT), np.float32)
    padded[:, :lanes] = W
    found = np.hstack([X @ some for some in np.hsplit(padded, blocks)])
    return np.ascontiguousarray(found[:, :lanes])


def kind_starts(kind: NDArray[np.intp], kinds: RowKinds) -> NDArray[np.int64]:
    """Return (Q + 1,) where each kind begins among the sorted `kind` (m,) of rows."""
    return np.searchsorted(kind, np.arange(kinds.count + 1)).astype(np.int64)


class LaneRows:
    """The rows that a rate counts: in memory, or a block at a time.

    Attributes
    ----------
    kinds
        Kinds of all rows, or of all cells of a stream.
    width
        Number of features d.
    merged
        The rows in memory, with equal ones of a kind merged.
    """

    def __init__(self, X: Features | RowStream, kinds: RowKinds) -> None:
        self.kinds, self.width = kinds, int(X.shape[1])
        self.stream = X if isinstance(X, RowStream) else None
        if isinstance(X, RowStream):
            return
        used = np.flatnonzero(kinds.weight)
        products = np.asarray(X @ np.random.default_rng(0).normal(size=self.width))
        products = products[kinds.row[used]]
        order = np.lexsort((products, kinds.of[used]))
        kind, key, used = kinds.of[used][order], products[order], used[order]
        new = np.concatenate([[True], (np.diff(key) != 0) | (np.diff(kind) != 0)])
        weight = np.add.reduceat(kinds.weight[used], np.flatnonzero(new)).astype(np.float32)
        some = X[kinds.row[used[new]]].astype(np.float32)
        parts = shared_parts(sparse.csc_array(add_ones_column(some, np.float32)))
        self.merged = KindRows(some, kind_starts(kind[new], kinds), weight, parts)
        starts, weight = kind_starts(kind, kinds), kinds.weight[used].astype(np.float32)
        self._pool = RowPool(some, np.cumsum(new) - 1, starts, weight)

    def run(self, W: Floats32, sides: Array | None = None) -> tuple[Array, Array | Floats32]:
        """Return what `KindRows.run` does, for all rows."""
        found: tuple[Array, Array] = self._sums(KindRows.run, W, sides)
        return found

    def hinges(self, W: Floats32) -> tuple[Array, Array]:
        """Return what `KindRows.hinges` does, for all rows."""
        found: tuple[Array, Array] = self._sums(KindRows.hinges, W)
        return found

    def _sums(self, method: Any, *arguments: Any) -> Any:
        if self.stream is None:
            return method(self.merged, *arguments)
        return self.stream.sums(partial(_sums_of_blocks, self.kinds, method, arguments))

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[KindRows]:
        """Yield batches of about `size` rows, before equal ones are merged, without end."""
        if self.stream is None:
            there = np.diff(self._pool.starts).astype(float)
            return _batches(itertools.repeat(self._pool), there, size, rng)
        counts = np.where(self.kinds.weight > 0, self.stream.count, 0.0)
        there = np.bincount(self.kinds.of, counts, self.kinds.count).astype(float)
        return _batches(_pools(self.stream, self.kinds, there, size, rng), there, size, rng)


def rows_by_kind(rows: RowBlock, kinds: RowKinds) -> KindRows:
    """Return streamed rows sorted by kind, without rows that no rate counts."""
    used = np.flatnonzero(kinds.weight[rows.cell] > 0)
    kind = kinds.of[rows.cell[used]]
    order = np.argsort(kind, kind="stable")
    kept = rows.some(used[order])
    weight = kept.weight.astype(np.float32)
    return KindRows(kept.X.astype(np.float32), kind_starts(kind[order], kinds), weight)


def _sums_of_blocks(
    kinds: RowKinds, method: Any, arguments: Any, blocks: Iterable[RowBlock]
) -> SumArrays:
    """Return the sums over blocks of what a method of `KindRows` returns."""
    found = (method(rows_by_kind(rows, kinds), *arguments) for rows in blocks)
    return reduce(add_sums, (tuple(each.astype(float) for each in pair) for pair in found))


class RowPool(NamedTuple):
    """m rows in memory, sorted by kind, from which batches are sampled.

    Attributes
    ----------
    X
        Features.
    row
        (m,) the row of X of each row.
    starts, weight
        As in `KindRows`.
    """

    X: Features
    row: NDArray[np.intp]
    starts: NDArray[np.int64]
    weight: Floats32


def _batches(
    pools: Iterable[RowPool], there: Array, size: int, rng: np.random.Generator
) -> Iterator[KindRows]:
    """Yield batches of about `size` rows, which represent `there` (Q,) rows of each kind.

    They are stratified by kind, with at least one row of each kind, and no row twice. A sampled row
    gets the weight of the rows of its kind that it represents, so that sums over a batch are
    unbiased estimates of sums over all rows, and exact if all are sampled. Rows of a pool take
    turns, in random order. Once as many rows were sampled as the pool has, the next pool takes its
    place.
    """
    share = min(1.0, size / there.sum())
    for pool in pools:
        here, spans = np.diff(pool.starts), pairwise(pool.starts)
        order = np.concatenate([first + rng.permutation(last - first) for first, last in spans])
        taken = np.minimum(np.maximum(np.rint(share * there), 1), here).astype(np.int64)
        kind = np.repeat(np.arange(len(taken)), taken)
        ends = np.append(0, np.cumsum(taken))
        place = np.arange(len(kind)) - ends[kind]
        stands = (there / np.maximum(taken, 1))[kind].astype(np.float32)
        for drawn in range(-(-len(order) // len(kind))):
            turn = (place + drawn * taken[kind]) % here[kind]
            rows = order[pool.starts[kind] + turn]
            yield KindRows(pool.X[pool.row[rows]], ends, pool.weight[rows] * stands)


def _pools(
    stream: RowStream, kinds: RowKinds, there: Array, size: int, rng: np.random.Generator
) -> Iterator[RowPool]:
    """Yield pools of streamed rows: short runs from all over the table, and a `reserve`.

    Kinds that are `rare` are sampled once and separately, into the reserve, which is part of every
    pool. Every run is in a pool once before any is again. The pools depend on the table, the batch
    size and the seed only.
    """
    at_once = max(MIN_POOL_ROWS, BATCHES_PER_POOL * size)
    few = there * at_once < RARE_KIND_ROWS * there.sum()
    rare = few[kinds.of] & (kinds.weight > 0) & (there.sum() > at_once)
    share = np.minimum(1.0, RARE_SAMPLE_ROWS / np.maximum(there[kinds.of], 1.0))
    reserve = [stream.sample_rows(np.where(rare, share, 0.0), rng)] if rare.any() else []
    count = min(-(-at_once // RUN_LENGTH), stream.runs())
    runs, pool = np.zeros(0, np.intp), None
    while True:
        if len(runs) < count:
            runs = np.append(runs, rng.permutation(stream.runs()))
        taken, runs = np.sort(runs[:count]), runs[count:]
        if pool is None or count < stream.runs():
            rows = stream.read_runs(taken.tolist())
            found = rows_by_kind(RowBlock.joined([rows.some(~rare[rows.cell]), *reserve]), kinds)
            pool = RowPool(found.X, np.arange(len(found.weight)), found.starts, found.weight)
        yield pool
