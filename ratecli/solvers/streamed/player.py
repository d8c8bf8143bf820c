"""Rows that do not fit in memory, for the descending classifier player of `three_player`.

A batch is sampled from a pool of rows in memory: short runs of rows from all over the table, and a
separate sample for kinds that are rare. Once as many rows were sampled as the pool has, the pool is
replaced by other runs; every run is in a pool once before any is again. The rows of a step depend
on the table, the batch size and the seed only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ratecli.models.base import Array
from ratecli.models.records import RecordBatch, RecordEncoder
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.players.lanes import WIDTH, Floats32, pack_lanes, unpack_lanes
from ratecli.solvers.players.rows import (
    BatchSampler,
    CsrArrays,
    PassResult,
    RowSelection,
    hinge_sums,
    pass_over_rows,
)
from ratecli.streaming.stream import RUN_LENGTH, RowStream, SumArrays

MIN_POOL_ROWS = 2**15
"""Smallest number of rows in a pool; `BATCHES_PER_POOL` batches if that is more."""
BATCHES_PER_POOL = 2
RARE_KIND_ROWS = 64
"""A kind with fewer rows in an average pool is sampled separately."""
RARE_SAMPLE_ROWS = 2**12
"""Approximate number of rows in the sample of a rare kind."""


class RowsByKind(NamedTuple):
    """Features of rows sorted by kind."""

    X: CsrArrays
    some: RowSelection

    @classmethod
    def of(cls, encoded: RecordEncoder, rows: RecordBatch, kinds: RowKinds) -> RowsByKind:
        """Sort rows by kind, leaving out rows that no rate counts."""
        cell = np.maximum(rows.cell, 0)
        used = np.flatnonzero((rows.cell >= 0) & (kinds.weight[cell] > 0))
        kind = kinds.of[cell[used]]
        order = np.argsort(kind, kind="stable")
        kept = rows.some(used[order])
        starts = np.searchsorted(kind[order], np.arange(kinds.count + 1)).astype(np.int64)
        columns, values = encoded.entries(kept)
        every = np.arange(len(order), dtype=np.uint32)
        ends = np.arange(0, columns.size + 1, columns.shape[1], dtype=np.int64)
        entries = columns.ravel().astype(np.uint32), values.ravel().astype(np.float32)
        some = RowSelection(every, starts, kept.weight.astype(np.float32))
        return cls(CsrArrays(every, ends, *entries), some)


@dataclass(frozen=True)
class LaneSums:
    """Sums over all rows for all lanes: those of `pass_over_rows`, or of `hinge_sums`."""

    encoded: RecordEncoder
    kinds: RowKinds
    W: Floats32
    sides: Floats32 | None = None

    def zeros(self) -> SumArrays:
        counts = np.zeros((len(self.W), self.kinds.count, WIDTH))
        return counts, np.zeros_like(counts if self.sides is None else self.W, float)

    def add(self, rows: RecordBatch, sums: SumArrays) -> None:
        there = RowsByKind.of(self.encoded, rows, self.kinds)
        found: Sequence[Array | Floats32] = (
            hinge_sums(there.X, there.some, self.W)
            if self.sides is None
            else pass_over_rows(there.X, there.some, self.W, self.sides)
        )
        for total, each in zip(sums, found, strict=True):
            total += each  # noqa: PLW2901


@dataclass
class StreamedLaneRows:
    """The counterpart of `players.rows.LaneRows` for rows that do not fit in memory."""

    stream: RowStream
    kinds: RowKinds
    pool: RowsByKind | None = None

    @property
    def width(self) -> int:
        return self.stream.encoded.width

    def run(self, W: Floats32, sides: Floats32, some: RowSelection | None = None) -> PassResult:
        """Run on the selected rows of the pool, or on all rows."""
        if some is not None:
            return pass_over_rows(self._pooled(some), some, W, sides)
        yes, slopes = self.stream.sums(LaneSums(self.stream.encoded, self.kinds, W, sides))
        return PassResult(yes, slopes.astype(np.float32))

    def counted(self, answers: Sequence[Floats32]) -> list[Array]:
        """Count decisions of all answers in one pass, skipping lanes of zeros (padding)."""
        lanes = len(answers[0]) * WIDTH
        W = np.concatenate([unpack_lanes(each, lanes) for each in answers], axis=1)
        used = np.flatnonzero(W.any(axis=0))
        packed = pack_lanes(W[:, used])
        nothing = np.zeros((len(packed), 2 * self.kinds.count, WIDTH), np.float32)
        found = np.zeros((self.kinds.count, W.shape[1]))
        found[:, used] = unpack_lanes(self.run(packed, nothing).yes, len(used))
        blocks = found.reshape(len(found), len(answers), -1, WIDTH)
        return list(np.ascontiguousarray(blocks.transpose(1, 2, 0, 3)))

    def hinges(self, W: Floats32, some: RowSelection | None = None) -> tuple[Array, Array]:
        if some is not None:
            return hinge_sums(self._pooled(some), some, W)
        above, below = self.stream.sums(LaneSums(self.stream.encoded, self.kinds, W))
        return above, below

    def _pooled(self, some: RowSelection) -> CsrArrays:
        assert self.pool is not None
        return self.pool.X._replace(rows=some.rows)


class StreamedBatchSampler:
    """Samples batches of about `size` rows, stratified by kind as `players.rows.BatchSampler` does.

    They come from a pool, which becomes that of `rows`. Kinds that are `rare` are sampled once and
    separately, into `reserve`, which is part of every pool.
    """

    def __init__(self, rows: StreamedLaneRows, size: int, rng: np.random.Generator) -> None:
        self.rows, self.size, self.rng = rows, size, rng
        kinds, stream = rows.kinds, rows.stream
        counts = np.where(kinds.weight > 0, stream.count, 0.0)
        self.there = np.asarray(np.bincount(kinds.of, counts, kinds.count), dtype=float)
        self.total = float(self.there.sum())
        self.pool_rows = max(MIN_POOL_ROWS, BATCHES_PER_POOL * size)
        few = self.there * self.pool_rows < RARE_KIND_ROWS * self.total
        self.rare = few[kinds.of] & (counts > 0) & (self.total > self.pool_rows)
        self.reserve: RecordBatch | None = None
        if self.rare.any():
            share = np.minimum(1.0, RARE_SAMPLE_ROWS / np.maximum(self.there[kinds.of], 1.0))
            chances = np.where(self.rare, share, 0.0)
            self.reserve = stream.drawn(chances, int(rng.integers(2**63)))
        self.runs = np.zeros(0, np.intp)
        self.batch = self._fill()
        self.left = len(self.batch.order)

    def draw(self) -> RowSelection:
        if self.left <= 0:
            whole = self.rows.stream.runs() * RUN_LENGTH <= self.pool_rows
            self.batch = self.batch if whole else self._fill()
            self.left = int(self.total) if whole else len(self.batch.order)
        found = self.batch.draw()
        self.left -= len(found.rows)
        return found

    def _fill(self) -> BatchSampler:
        """Fill the pool with other runs and the whole reserve, and return a sampler of it."""
        stream = self.rows.stream
        count = min(-(-self.pool_rows // RUN_LENGTH), stream.runs())
        if len(self.runs) < count:
            self.runs = np.append(self.runs, self.rng.permutation(stream.runs()))
        taken, self.runs = self.runs[:count], self.runs[count:]
        found = stream.taken(np.sort(taken).tolist())
        if self.reserve is not None:
            found = found.some(~self.rare[found.cell]).followed_by(self.reserve)
        pool = self.rows.pool = RowsByKind.of(stream.encoded, found, self.rows.kinds)
        return BatchSampler(pool.some, self.there, self.size, self.rng)
