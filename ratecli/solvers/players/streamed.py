"""Rows that do not fit in memory, for the descending classifier player of `three_player`.

A batch is sampled from a pool of rows in memory: short runs of rows from all over the table, and a
separate sample for kinds that are rare. Once as many rows were sampled as the pool has, the pool is
replaced by other runs; every run is in a pool once before any is again. The rows of a step depend
on the table, the batch size and the seed only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array
from ratecli.models.records import RecordBatch, RecordEncoder
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.players.blocks import WIDTH, Floats32
from ratecli.solvers.players.rows import BatchSampler, CsrArrays, KindRows, kind_starts
from ratecli.streaming.stream import RUN_LENGTH, RowStream, SumArrays

MIN_POOL_ROWS = 2**15
"""Smallest number of rows in a pool; `BATCHES_PER_POOL` batches if that is more."""
BATCHES_PER_POOL = 2
RARE_KIND_ROWS = 64
"""A kind with fewer rows in an average pool is sampled separately."""
RARE_SAMPLE_ROWS = 2**12
"""Approximate number of rows in the sample of a rare kind."""


def rows_by_kind(encoded: RecordEncoder, rows: RecordBatch, kinds: RowKinds) -> KindRows:
    """Return the features of rows, sorted by kind, without rows that no rate counts."""
    cell = np.maximum(rows.cell, 0)
    used = np.flatnonzero((rows.cell >= 0) & (kinds.weight[cell] > 0))
    kind = kinds.of[cell[used]]
    order = np.argsort(kind, kind="stable")
    kept = rows.some(used[order])
    columns, values = encoded.entries(kept)
    every = np.arange(len(order), dtype=np.uint32)
    ends = np.arange(0, columns.size + 1, columns.shape[1], dtype=np.int64)
    entries = columns.ravel().astype(np.uint32), values.ravel().astype(np.float32)
    X = CsrArrays(every, ends, *entries)
    return KindRows(X, kind_starts(kind[order], kinds), kept.weight.astype(np.float32))


@dataclass(frozen=True)
class LaneSums:
    """Sums over all rows for all lanes: the hinges, or with `sides` the result of a pass."""

    encoded: RecordEncoder
    kinds: RowKinds
    W: Floats32
    sides: Floats32 | None = None

    def zeros(self) -> SumArrays:
        counts = np.zeros((len(self.W), self.kinds.count, WIDTH))
        return counts, np.zeros_like(counts if self.sides is None else self.W, float)

    def add(self, rows: RecordBatch, sums: SumArrays) -> None:
        there = rows_by_kind(self.encoded, rows, self.kinds)
        found: Sequence[Array | Floats32] = (
            there.hinges(self.W) if self.sides is None else there.run(self.W, self.sides)
        )
        for total, each in zip(sums, found, strict=True):
            total += each  # noqa: PLW2901


@dataclass(frozen=True)
class StreamedLaneRows:
    """The counterpart of `LaneRows` for rows that do not fit in memory."""

    stream: RowStream
    kinds: RowKinds

    @property
    def width(self) -> int:
        return self.stream.encoded.width

    def run(self, W: Floats32, sides: Floats32) -> tuple[Array, Floats32]:
        yes, slopes = self.stream.sums(LaneSums(self.stream.encoded, self.kinds, W, sides))
        return yes, slopes.astype(np.float32)

    def batches(self, size: int, rng: np.random.Generator) -> StreamedBatchSampler:
        return StreamedBatchSampler(self.stream, self.kinds, size, rng)

    def hinges(self, W: Floats32) -> tuple[Array, Array]:
        above, below = self.stream.sums(LaneSums(self.stream.encoded, self.kinds, W))
        return above, below


class StreamedBatchSampler:
    """Samples batches of about `size` rows, stratified by kind as `BatchSampler` does.

    They come from a pool. Kinds that are `rare` are sampled once and separately, into `reserve`,
    which is part of every pool.
    """

    def __init__(
        self, stream: RowStream, kinds: RowKinds, size: int, rng: np.random.Generator
    ) -> None:
        self.stream, self.kinds, self.size, self.rng = stream, kinds, size, rng
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
            self.reserve = stream.sample_rows(chances, int(rng.integers(2**63)))
        self.runs = np.zeros(0, np.intp)
        self.batch = self._fill()
        self.left = len(self.batch.order)

    def draw(self) -> KindRows:
        if self.left <= 0:
            whole = self.stream.runs() * RUN_LENGTH <= self.pool_rows
            self.batch = self.batch if whole else self._fill()
            self.left = int(self.total) if whole else len(self.batch.order)
        found = self.batch.draw()
        self.left -= len(found.weight)
        return found

    def _fill(self) -> BatchSampler:
        """Fill the pool with other runs and the whole reserve, and return a sampler of it."""
        count = min(-(-self.pool_rows // RUN_LENGTH), self.stream.runs())
        if len(self.runs) < count:
            self.runs = np.append(self.runs, self.rng.permutation(self.stream.runs()))
        taken, self.runs = self.runs[:count], self.runs[count:]
        rows = self.stream.read_runs(np.sort(taken).tolist())
        if self.reserve is not None:
            rows = rows.some(~self.rare[rows.cell]).followed_by(self.reserve)
        pool = rows_by_kind(self.stream.encoded, rows, self.kinds)
        return BatchSampler(pool, self.size, self.rng, self.there)
