"""Streams of the records of a store, summed in a fixed order, locally or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ratecli.models.base import Array
from ratecli.models.coded import RecordBatch, RecordEncoder
from ratecli.streaming.store import RecordStore, read_exactly
from ratecli.streaming.stream_protocol import RUN_LENGTH, RowStream, RowSum, SumArrays, sum_pieces

SCHEDULER_VARIABLE = "RATECLI_SCHEDULER"
"""Environment variable with the scheduler's address, set in the process of a trial on a cluster."""
PARTITIONS_AHEAD = 4
"""Number of partitions submitted to each worker at once."""


def map_partitions(
    function: Callable[[int], SumArrays], starts: Sequence[int]
) -> Iterable[SumArrays]:
    """Apply the function to each start, and return the results in order."""
    address = os.environ.get(SCHEDULER_VARIABLE)
    if address is None or len(starts) < 2:
        return map(function, starts)
    client = cluster_client(address)
    idle = [worker for worker, tasks in client.processing().items() if not tasks]
    return _map_on_cluster(client, idle, function, starts) if idle else map(function, starts)


@lru_cache(maxsize=1)
def cluster_client(address: str) -> Any:
    """Return a client, which is reused for all passes of a trial and of later trials."""
    from distributed import Client  # noqa: PLC0415  an optional extra

    return Client(address, set_as_default=False)


def _map_on_cluster(
    client: Any, idle: list[str], function: Callable[[int], SumArrays], starts: Sequence[int]
) -> Iterator[SumArrays]:
    """Apply the function on idle workers, while this process computes its share of partitions."""
    whole = client.scatter(function, workers=idle, broadcast=True, hash=False)
    hands = len(idle) + 1
    for k in range(0, len(starts), PARTITIONS_AHEAD * hands):
        some = starts[k : k + PARTITIONS_AHEAD * hands]
        asked = {
            start: client.submit(_sum_partition, whole, start, workers=idle, pure=False)
            for at, start in enumerate(some)
            if at % hands
        }
        own = {start: function(start) for start in some if start not in asked}
        for start in some:
            yield own[start] if start in own else _fetch_sums(asked[start], function, start)


def _fetch_sums(future: Any, function: Callable[[int], SumArrays], start: int) -> SumArrays:
    try:
        found: SumArrays = future.result()
    except Exception:  # noqa: BLE001
        # the worker died or cannot read the file: compute the sums here
        return function(start)
    return found


def _sum_partition(function: Callable[[int], SumArrays], start: int) -> SumArrays:
    with threadpool_limits(limits=1):  # results must not depend on the number of threads
        return function(start)


PARTITION_ROWS = 2**19
CELL_DTYPE = np.dtype("<u2")


@dataclass(frozen=True)
class RecordWeight:
    """Index of the number in a record that is the row's weight; None if all rows have weight 1."""

    column: int | None

    def of(self, records: NDArray[np.void]) -> Array:
        if self.column is None:
            return np.ones(len(records))
        return records["numbers"][:, self.column].astype(np.float64)


@dataclass(frozen=True)
class FileStream(RowStream):
    """The rows of a store, with the cell of each row in a file beside it.

    Attributes
    ----------
    cells
        The file: two bytes per row.
    into
        Index in this stream of each cell of the file, -1 if its rows are excluded.
    partition
        Number of rows that one worker sums; the sums of partitions are added in order.
    """

    store: RecordStore
    cells: Path
    into: NDArray[np.int32]
    weighed: RecordWeight
    encoded: RecordEncoder
    count: Array
    weight: Array
    partition: int = PARTITION_ROWS

    def __getitem__(self, cells: NDArray[np.intp]) -> FileStream:
        renumbered = np.full(len(self) + 1, -1, np.int32)  # the last is for excluded rows (-1)
        renumbered[cells] = np.arange(len(cells), dtype=np.int32)
        return FileStream(
            self.store,
            self.cells,
            renumbered[self.into],
            self.weighed,
            self.encoded,
            self.count[cells],
            self.weight[cells],
            self.partition,
        )

    def sums(self, part: RowSum, every: int = 1) -> SumArrays:
        if every > 1:
            return sum_pieces(part, self._scattered(range(0, self.runs(), every)))

        sums = part.zeros()
        for found in map_partitions(
            PartitionSum(self, part), range(0, self.store.rows, self.partition)
        ):
            for total, each in zip(sums, found, strict=True):
                total += each  # noqa: PLW2901
        return sums

    def pieces(self, first: int, last: int) -> Iterator[RecordBatch]:
        with self.cells.open("rb", buffering=0) as file:
            file.seek(first * CELL_DTYPE.itemsize)
            for start, records in self.store.pieces(first, last):
                cells = np.empty(len(records), CELL_DTYPE)
                read_exactly(file, cells)
                yield self._rows(start, records, cells)

    def _scattered(self, runs: Sequence[int]) -> Iterator[RecordBatch]:
        """Yield the rows of some runs, as many at a time as when reading all rows."""
        at_once = max(1, self.store.at_once // RUN_LENGTH)
        for k in range(0, len(runs), at_once):
            yield self.taken(runs[k : k + at_once])

    def _rows(
        self, start: int, records: NDArray[np.void], cells: NDArray[np.uint16]
    ) -> RecordBatch:
        weight = self.weighed.of(records)
        return RecordBatch(start, records["numbers"], records["codes"], self.into[cells], weight)

    def runs(self) -> int:
        return -(-self.store.rows // RUN_LENGTH)

    def taken(self, runs: Sequence[int]) -> RecordBatch:
        records = np.empty((len(runs), RUN_LENGTH), self.store.record)
        cells = np.empty((len(runs), RUN_LENGTH), CELL_DTYPE)
        there = np.ones((len(runs), RUN_LENGTH), dtype=bool)
        with (
            self.store.path.open("rb", buffering=0) as file,
            self.cells.open("rb", buffering=0) as other,
        ):
            for k, run in enumerate(runs):
                count = min(RUN_LENGTH, self.store.rows - run * RUN_LENGTH)
                there[k, count:] = False
                for source, array in ((file, records), (other, cells)):
                    source.seek(run * RUN_LENGTH * array.itemsize)
                    read_exactly(source, array[k, :count])
        found = self._rows(0, records[there], cells[there])
        return found.some(found.cell >= 0)

    def drawn(self, chances: Array, seed: int) -> RecordBatch:
        random = np.random.Generator(np.random.PCG64(seed))
        bounds = np.append(chances, 0.0)  # the last is for excluded rows (-1)
        found = []
        for rows in self.pieces(0, self.store.rows):
            some = random.random(len(rows.cell)) < bounds[rows.cell]
            found.append(rows.some(some)[1:])
        return RecordBatch(0, *(np.concatenate(part) for part in zip(*found, strict=True)))


@dataclass(frozen=True)
class PartitionSum:
    """The sums of one partition, given its first row."""

    stream: FileStream
    part: RowSum

    def __call__(self, first: int) -> SumArrays:
        last = min(first + self.stream.partition, self.stream.store.rows)
        return sum_pieces(self.part, self.stream.pieces(first, last))
