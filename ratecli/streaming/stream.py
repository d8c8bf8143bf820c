"""Rows that stay in a file: a stream takes the place of a feature matrix, and yields blocks.

How a row counts in rates depends on its label, its split and its slices, not on its features. Rows
that agree in all of these form one *cell*: all rates of an experiment are sums over a few cells,
and what a solver or a measurement needs of a classifier is a sum over the rows of each cell. So a
stream replaces the features of C rows: `shape` is (C, d), and `stream[cells]` are the rows of some
of the cells. Records (numbers and coded words) become features one block at a time: the features of
20 million rows take 30 GB, their records 3 GB. Sums are added in a fixed order, so the numbers are
the same wherever partitions are summed: in this process, or by idle workers of a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial, reduce
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ratecli.models.base import Array, Classifier, Features, features_of_entries
from ratecli.models.composed import all_outputs
from ratecli.rates.matrix import Predictions, log_loss
from ratecli.rates.sample import make_read_only
from ratecli.rates.table import Measurement
from ratecli.streaming.table import RecordStore, read_items, read_runs

SumArrays: TypeAlias = tuple[Array, ...]
PartSums: TypeAlias = "Callable[[Iterable[RowBlock]], SumArrays]"
Places: TypeAlias = NDArray[np.intp]

MEASUREMENTS: tuple[Measurement, ...] = ("decision", "error", "squared_error", "log_loss")
"""In the order of `_prediction_sums`."""
RUN_LENGTH = 64
"""Adjacent rows that are read together when rows from anywhere are needed."""
PARTITION_ROWS = 2**19
CELL_DTYPE = np.dtype("<u2")
SCHEDULER_VARIABLE = "RATECLI_SCHEDULER"
"""Environment variable with the scheduler's address, set in the process of a trial on a cluster."""


class FeatureCoding(NamedTuple):
    """How a record becomes d features, E of which may be nonzero: one for each encoded column.

    Attributes
    ----------
    place
        (E,) index of the column among a record's numbers, or among its codes.
    at
        (E,) index of the column's first feature.
    mean, scale
        (E,) the feature of a number is (number - mean) / scale.
    missing
        (E,) 1 if the next feature says that the number is missing, else 0.
    first_level
        (E,) index in `level` of the first level of a column of words, -1 for numbers.
    level
        (L,) index of each level's feature among those of its column, -1 if it has none.
    shares
        (d,) share of the training rows that have each feature.
    """

    place: Places
    at: Places
    mean: Array
    scale: Array
    missing: Places
    first_level: Places
    level: Places
    shares: Array


@dataclass(frozen=True)
class RowBlock:
    """m rows of a stream.

    Attributes
    ----------
    start
        The place in the table of the first record.
    numbers, codes
        (M, ...) records, some of which are the rows.
    rows
        (m,) the places of the rows among the records.
    cell, weight
        (m,) the cell and the weight of each row.
    coding
        How records become features.
    """

    start: int
    numbers: NDArray[np.floating]
    codes: NDArray[np.unsignedinteger]
    rows: Places
    cell: NDArray[np.int32]
    weight: Array
    coding: FeatureCoding

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def X(self) -> Features:
        """(m, d) features, those of an in-memory encoder bit for bit (`datasets.encode`)."""
        from ratecli.streaming.record_loops import fill_entries  # noqa: PLC0415  numba

        shape = (len(self), len(self.coding.at))
        columns, values = np.empty(shape, np.int32), np.empty(shape)
        fill_entries(self.numbers, self.codes, self.rows, self.coding, columns, values)
        width = len(self.coding.shares)
        return values if width == shape[1] else features_of_entries(columns, values, width)

    def some(self, which: Any) -> RowBlock:
        """Return selected rows, in the order of `which`."""
        own = {name: getattr(self, name)[which] for name in ("rows", "cell", "weight")}
        return replace(self, **own)

    @classmethod
    def joined(cls, blocks: Sequence[RowBlock]) -> RowBlock:
        """Return the rows of all blocks, at least one, as a single block."""
        parts = ((b.numbers[b.rows], b.codes[b.rows], b.cell, b.weight) for b in blocks)
        numbers, codes, cell, weight = map(np.concatenate, zip(*parts, strict=True))
        return cls(0, numbers, codes, np.arange(len(cell)), cell, weight, blocks[0].coding)


@dataclass(frozen=True)
class RowStream:
    """The rows of C cells.

    Attributes
    ----------
    store
        The records of the table's rows.
    cells
        A file with two bytes per row: the row's cell.
    into
        Index in this stream of each cell of the file, -1 if its rows are excluded.
    weight_at
        Index of the number in a record that is the row's weight; None if all rows have weight 1.
    coding
        How records become features.
    count, weight, effective
        (C,) number of rows of each cell, their total weight, and the effective number of rows.
    partition
        Number of rows that one worker sums; the sums of partitions are added in order.
    """

    store: RecordStore
    cells: Path
    into: NDArray[np.int32]
    weight_at: int | None
    coding: FeatureCoding
    count: Array
    weight: Array
    effective: Array
    partition: int = PARTITION_ROWS

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.count), len(self.coding.shares)

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, cells: Places) -> RowStream:
        """Return the rows of some cells, renumbered in the given order."""
        renumbered = np.full(len(self) + 1, -1, np.int32)  # the last is for excluded rows (-1)
        renumbered[cells] = np.arange(len(cells), dtype=np.int32)
        names = ("count", "weight", "effective")
        some = {name: getattr(self, name)[cells] for name in names}
        return replace(self, into=renumbered[self.into], **some)

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[RowBlock]:
        """Yield the rows from `first` to before `last`, without excluded ones."""
        for start, records in self.store.pieces(first, last):
            cells = read_items(self.cells, CELL_DTYPE, start, len(records))
            yield self._block(start, records, cells)

    def _block(self, start: int, records: NDArray[np.void], cells: NDArray[np.uint16]) -> RowBlock:
        cell, weight = self.into[cells], row_weights(records, self.weight_at)
        rows = np.flatnonzero(cell >= 0)
        numbers, codes = records["numbers"], records["codes"]
        return RowBlock(start, numbers, codes, rows, cell[rows], weight[rows], self.coding)

    def sums(self, compute: PartSums, every: int = 1) -> SumArrays:
        """Return the sums over all rows, or over one in `every` runs.

        `compute` returns those over some blocks. It must be picklable: a cluster may compute it.
        """
        if every == 1:
            return reduce(add_sums, _sums_of_partitions(self, compute))
        runs, at_once = range(0, self.runs(), every), max(1, self.store.at_once // RUN_LENGTH)
        starts = range(0, len(runs), at_once)  # as many rows at a time as when reading all
        return compute(self.read_runs(runs[k : k + at_once]) for k in starts)

    def runs(self) -> int:
        """Return the number of runs of `RUN_LENGTH` rows; the last one may be shorter."""
        return -(-self.store.rows // RUN_LENGTH)

    def read_runs(self, runs: Sequence[int]) -> RowBlock:
        """Return the rows of some runs, in their order, without excluded rows."""
        records = read_runs(self.store.path, self.store.record, runs, RUN_LENGTH)
        cells = read_runs(self.cells, CELL_DTYPE, runs, RUN_LENGTH)
        return self._block(runs[0] * RUN_LENGTH, records, cells)

    def sample_rows(self, chances: Array, rng: np.random.Generator) -> RowBlock:
        """Sample rows, each with the probability (C,) of its cell."""
        some = (rows.some(rng.random(len(rows)) < chances[rows.cell]) for rows in self.blocks())
        return RowBlock.joined(list(some))

    def predictions(
        self, classifiers: Mapping[str, Classifier], label: Array | None = None
    ) -> dict[str, Predictions]:
        """Return each classifier's predictions of the rows of each cell by name, in one pass.

        Each result holds mean decisions and NaN scores and estimates. If `label` (C,) is given, it
        also holds the mean errors.
        """
        compute = partial(_prediction_sums, tuple(classifiers.values()), len(self), label)
        (sums,) = self.sums(compute)
        found = np.divide(sums, self.weight, where=self.weight > 0, out=np.zeros_like(sums))
        unknown = np.full(len(self), np.nan)
        return {
            name: Predictions(
                means[0], unknown, unknown, means=dict(zip(MEASUREMENTS, means, strict=False))
            )
            for name, means in zip(classifiers, found, strict=True)
        }


def row_weights(records: NDArray[np.void], weight_at: int | None) -> Array:
    """Return the weights (m,) of records; `weight_at` as in `RowStream`."""
    if weight_at is None:
        return np.ones(len(records))
    return records["numbers"][:, weight_at].astype(np.float64)


def _prediction_sums(
    classifiers: Sequence[Classifier], cells: int, label: Array | None, blocks: Iterable[RowBlock]
) -> SumArrays:
    """Return weighted sums (M, 1 or 4, C) of the decisions of M classifiers in C cells.

    With the label (C,) of each cell, also of the error, the squared error and the log loss of their
    estimates.
    """
    sums = np.zeros((len(classifiers), 1 if label is None else 4, cells))
    for rows in blocks:
        for totals, classifier in zip(sums, classifiers, strict=True):
            decided, _, estimates = all_outputs(classifier, rows.X)
            found = [decided]
            if label is not None:
                true = label[rows.cell]
                error = np.nan_to_num(estimates - true)
                found += [error, error**2, log_loss(estimates, true)]
            totals += [np.bincount(rows.cell, rows.weight * each, cells) for each in found]
    return (sums,)


def add_sums(sums: SumArrays, others: SumArrays) -> SumArrays:
    """Return the sums over the rows of both."""
    return tuple(map(np.add, sums, others))


def _sum_partition(stream: RowStream, compute: PartSums, first: int) -> SumArrays:
    """Return the sums of the partition that starts with the row `first`."""
    return compute(stream.blocks(first, min(first + stream.partition, stream.store.rows)))


def _sum_on_worker(compute: Callable[[int], SumArrays], first: int) -> SumArrays:
    with threadpool_limits(limits=1):  # results must not depend on the number of threads
        return compute(first)


@lru_cache(maxsize=1)
def cluster_client(address: str) -> Any:
    """Return a client, which is reused for all passes of a trial and of later trials."""
    from distributed import Client  # noqa: PLC0415  an optional extra

    return Client(address, set_as_default=False)


def _sums_of_partitions(stream: RowStream, compute: PartSums) -> Iterator[SumArrays]:
    """Yield the sums of each partition in order, computed here and by idle workers of a cluster."""
    part_sums = partial(_sum_partition, stream, compute)
    starts = range(0, stream.store.rows, stream.partition)
    futures: dict[int, Any] = {}
    address = os.environ.get(SCHEDULER_VARIABLE)
    if address is not None and len(starts) > 1:
        client = cluster_client(address)
        idle = [worker for worker, tasks in client.processing().items() if not tasks]
        if idle:
            shared = client.scatter(part_sums, workers=idle, broadcast=True, hash=False)
            futures = {
                start: client.submit(_sum_on_worker, shared, start, workers=idle, pure=False)
                for k, start in enumerate(starts)
                if k % (len(idle) + 1)
            }
    for start in starts:
        if start in futures:
            with suppress(Exception):  # the worker died or cannot read the file: do its work
                yield futures.pop(start).result()
                continue
        yield part_sums(start)
