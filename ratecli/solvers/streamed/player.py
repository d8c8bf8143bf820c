"""Rows that are in no memory, as the classifier player of `three_player` sees them.

A batch is drawn from a pool of rows in memory: short runs of rows from anywhere in the table, and of kinds
that are rare there a sample of their own. When as many rows were drawn as a pool has, other runs take its
place; every run has been in a pool once before any is again. What a step sees hangs on the table, the
batch and the seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.coded import Encoded, Rows
from ratecli.rates.kinds import Kinds
from ratecli.solvers.players.batch import Batch
from ratecli.solvers.players.kernel import hinges_of, pass_over_scores
from ratecli.solvers.players.lanes import WIDTH, Floats32, packed, unpacked
from ratecli.solvers.players.parts import Matrix
from ratecli.solvers.players.rows import Pass, Some, passed, scores_of
from ratecli.streaming.stream_protocol import RUN, Stream, Sums

POOL = 2**15
"""Rows of a pool, at least; MANY batches, if those are more."""
MANY = 2
RARE = 64
"""A kind of which a pool would have fewer rows on average is drawn from a sample of its own."""
RESERVE = 2**12
"""Rows of that sample, about."""
BLOCKS = 16
"""Blocks of lanes whose scores are held at once."""


@dataclass(frozen=True)
class Sorted:
    """Rows by kind, with their features."""

    X: Matrix
    some: Some

    @classmethod
    def of(cls, encoded: Encoded, rows: Rows, kinds: Kinds) -> Sorted:
        """Rows that no rate counts are left out."""
        cell = np.maximum(rows.cell, 0)
        used = np.flatnonzero((rows.cell >= 0) & (kinds.weight[cell] > 0))
        kind = kinds.of[cell[used]]
        order = np.argsort(kind, kind="stable")
        kept = rows.some(used[order])
        starts = np.searchsorted(kind[order], np.arange(kinds.count + 1)).astype(np.int64)
        every = np.arange(len(order), dtype=np.uint32)
        return cls(_matrix(encoded, kept), Some(every, starts, kept.weight.astype(np.float32)))


def _matrix(encoded: Encoded, rows: Rows) -> Matrix:
    columns, values = encoded.entries(rows)
    m, blocks = columns.shape
    return Matrix(
        np.arange(m, dtype=np.uint32),
        np.arange(0, m * blocks + 1, blocks, dtype=np.int64),
        columns.ravel().astype(np.uint32),
        values.ravel().astype(np.float32),
    )


@dataclass
class StreamedRows:
    """What `players.rows.LaneRows` does, of rows that are in no memory."""

    stream: Stream
    kinds: Kinds
    pool: Sorted | None = None

    @property
    def width(self) -> int:
        return self.stream.encoded.width

    def run(self, W: Floats32, sides: Floats32, some: Some | None = None) -> Pass:
        """On some rows of the pool, or on all rows."""
        if some is not None:
            return passed(self._pooled(some), some, W, sides)
        yes, slopes = self.stream.sums(StepSums(self.stream.encoded, self.kinds, W, sides))
        return Pass(yes, slopes.astype(np.float32))

    def counted(self, answers: Sequence[Floats32]) -> list[Array]:
        """Of all answers in one pass, that of lanes of zeros, which fill blocks up and decide no, left out."""
        lanes = len(answers[0]) * WIDTH
        W = np.concatenate([unpacked(each, lanes) for each in answers], axis=1)
        used = np.flatnonzero(W.any(axis=0))
        (yes,) = self.stream.sums(YesSums(self.stream.encoded, self.kinds, packed(W[:, used])))
        found = np.zeros((yes.shape[1], W.shape[1]))
        found[:, used] = unpacked(yes, len(used))
        return [_blocks(found[:, k : k + lanes]) for k in range(0, W.shape[1], lanes)]

    def hinges(self, W: Floats32, some: Some | None = None) -> tuple[Array, Array]:
        if some is None:
            above, below = self.stream.sums(HingeSums(self.stream.encoded, self.kinds, W))
            return above, below
        above, below = np.zeros((2, len(W), self.kinds.count, WIDTH))
        scores = scores_of(self._pooled(some), W)
        hinges_of(some.starts, some.weight, scores, W, above, below)
        return above, below

    def _pooled(self, some: Some) -> Matrix:
        assert self.pool is not None
        return self.pool.X._replace(rows=some.rows)


def _blocks(lanes: Array) -> Array:
    """(L, n, WIDTH) of (n, L * WIDTH)."""
    return np.ascontiguousarray(lanes.reshape(len(lanes), -1, WIDTH).swapaxes(0, 1))


@dataclass(frozen=True)
class StepSums:
    """What a pass of all lanes adds up (see `players.rows.Pass`)."""

    encoded: Encoded
    kinds: Kinds
    W: Floats32
    sides: Floats32

    def zeros(self) -> Sums:
        return np.zeros((len(self.W), self.kinds.count, WIDTH)), np.zeros(self.W.shape)

    def add(self, rows: Rows, sums: Sums) -> None:
        there = Sorted.of(self.encoded, rows, self.kinds)
        found = passed(there.X, there.some, self.W, self.sides)
        yes, slopes = sums
        yes += found.yes
        slopes += found.slopes


@dataclass(frozen=True)
class YesSums:
    """The weight of each kind that is decided yes, of many lanes."""

    encoded: Encoded
    kinds: Kinds
    W: Floats32

    def zeros(self) -> Sums:
        return (np.zeros((len(self.W), self.kinds.count, WIDTH)),)

    def add(self, rows: Rows, sums: Sums) -> None:
        there = Sorted.of(self.encoded, rows, self.kinds)
        for first in range(0, len(self.W), BLOCKS):
            W = self.W[first : first + BLOCKS]
            nothing = np.zeros((len(W), 2 * self.kinds.count, WIDTH), np.float32)
            scores, unused = scores_of(there.X, W), np.zeros(W.shape, np.float32)
            yes = sums[0][first : first + BLOCKS]
            pass_over_scores(there.some.starts, there.some.weight, scores, W, nothing, yes, unused)


@dataclass(frozen=True)
class HingeSums:
    """Sums of hinges over the rows of each kind, up and down."""

    encoded: Encoded
    kinds: Kinds
    W: Floats32

    def zeros(self) -> Sums:
        above, below = np.zeros((2, len(self.W), self.kinds.count, WIDTH))
        return above, below

    def add(self, rows: Rows, sums: Sums) -> None:
        there = Sorted.of(self.encoded, rows, self.kinds)
        scores = scores_of(there.X, self.W)
        hinges_of(there.some.starts, there.some.weight, scores, self.W, *sums)


@dataclass
class StreamedBatch:
    """Of each kind of row its share, one at least, as `players.batch.Batch` draws them, from a pool.

    Attributes
    ----------
    rows
        Whose pool is filled.
    size
        How many rows about are drawn.
    there
        (Q,) how many rows of each kind there are in all.
    rare
        (C,) the cells of kinds that are drawn from a sample of their own, `reserve`.
    """

    rows: StreamedRows
    size: int
    rng: np.random.Generator
    there: Array
    rare: NDArray[np.bool_]
    reserve: Rows | None
    runs: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    left: int = 0
    batch: Batch | None = None

    @classmethod
    def of(cls, rows: StreamedRows, size: int, rng: np.random.Generator) -> StreamedBatch:
        kinds, stream = rows.kinds, rows.stream
        counts = np.where(kinds.weight > 0, stream.count, 0.0)
        there = np.asarray(np.bincount(kinds.of, counts, kinds.count), dtype=float)
        pool = max(POOL, MANY * size)
        few = (there * min(1.0, pool / max(there.sum(), 1.0)) < RARE) & (there.sum() > pool)
        rare = few[kinds.of] & (counts > 0)
        reserve = None
        if rare.any():
            share = np.minimum(1.0, RESERVE / np.maximum(there[kinds.of], 1.0))
            reserve = stream.drawn(np.where(rare, share, 0.0), int(rng.integers(2**63)))
        return cls(rows, size, rng, there, rare, reserve)

    def draw(self) -> Some:
        if self.left <= 0:
            self._fill()
        assert self.batch is not None
        found = self.batch.draw()
        self.left -= len(found.rows)
        return found

    def _fill(self) -> None:
        """Take other runs, and all of the reserve."""
        stream, kinds = self.rows.stream, self.rows.kinds
        pool = max(POOL, MANY * self.size)
        everything = self.batch is not None and self.left <= 0 and stream.runs() * RUN <= pool
        if everything:
            self.left = int(self.there.sum())
            return
        count = min(-(-pool // RUN), stream.runs())
        if len(self.runs) < count:
            self.runs = np.append(self.runs, self.rng.permutation(stream.runs()))
        taken, self.runs = self.runs[:count], self.runs[count:]
        found = stream.taken(np.sort(taken).tolist())
        if self.reserve is not None:
            common = found.some(~self.rare[found.cell])
            found = common.followed_by(self.reserve)
        self.rows.pool = Sorted.of(stream.encoded, found, kinds)
        self.left = len(self.rows.pool.some.rows)
        self.batch = self._batch(self.rows.pool.some)

    def _batch(self, pool: Some) -> Batch:
        here = np.diff(pool.starts)
        share = min(1.0, self.size / self.there.sum())
        taken = np.minimum(np.maximum(np.rint(share * self.there), 1), here)
        ends = np.concatenate([[0], np.cumsum(taken)]).astype(np.int64)
        stands = np.repeat(self.there / np.maximum(taken, 1), here)
        weight = (pool.weight * stands).astype(np.float32)
        return Batch(pool.rows.copy(), weight, pool.starts, ends, self.rng)


def streamed_rows(
    stream: Stream, kinds: Kinds, batch: int | None, rng: np.random.Generator
) -> tuple[StreamedRows, StreamedBatch | None]:
    """The rows, and what draws batches of them if batches are drawn."""
    rows = StreamedRows(stream, kinds)
    return rows, None if batch is None else StreamedBatch.of(rows, batch, rng)
