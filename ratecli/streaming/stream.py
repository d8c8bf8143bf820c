"""Rows that stay in a file: a stream takes the place of a feature matrix.

How a row counts in rates depends on its label, its split and its slices, not on its features. Rows
that agree in all of these form one *cell*: all rates of an experiment are sums over a few cells,
and what a solver or a measurement needs of a classifier is a sum over the rows of each cell. So a
stream replaces the features of C rows: `shape` is (C, d), and `stream[cells]` are the rows of some
of the cells. Sums are added in a fixed order, so the numbers are the same wherever partitions are
summed: in this process, or by idle workers of a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import all_outputs
from ratecli.rates.matrix import Predictions, log_loss
from ratecli.rates.sample import make_read_only
from ratecli.rates.table import Measurement
from ratecli.streaming.blocks import FeatureCoding, RowBlock
from ratecli.streaming.table import RecordStore, read_items, read_runs

SumArrays: TypeAlias = tuple[Array, ...]
PartSums: TypeAlias = "Callable[[Iterable[RowBlock]], SumArrays]"

MEASUREMENTS: tuple[Measurement, ...] = ("decision", "error", "squared_error", "log_loss")
"""In the order of `_prediction_sums`."""
RUN_LENGTH = 64
"""Adjacent rows that are read together when rows from anywhere are needed."""
PARTITION_ROWS = 2**19
CELL_DTYPE = np.dtype("<u2")
SCHEDULER_VARIABLE = "RATECLI_SCHEDULER"
"""Environment variable with the scheduler's address, set in the process of a trial on a cluster."""


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
        return len(self.count), self.coding.width

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, cells: NDArray[np.intp]) -> RowStream:
        """Return the rows of some cells, renumbered in the given order."""
        renumbered = np.full(len(self) + 1, -1, np.int32)  # the last is for excluded rows (-1)
        renumbered[cells] = np.arange(len(cells), dtype=np.int32)
        names = ("count", "weight", "effective")
        some = {name: getattr(self, name)[cells] for name in names}
        return replace(self, into=renumbered[self.into], **some)

    def sums(self, compute: PartSums, every: int = 1) -> SumArrays:
        """Return the sums over all rows, or over one in `every` runs.

        `compute` returns those over some blocks. It must be picklable: a cluster may compute it.
        """
        if every > 1:
            return compute(self._run_blocks(range(0, self.runs(), every)))
        return reduce(add_sums, _sums_of_partitions(self, compute))

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[RowBlock]:
        """Yield the rows from `first` to before `last`, without excluded ones."""
        for start, records in self.store.pieces(first, last):
            cells = read_items(self.cells, CELL_DTYPE, start, len(records))
            yield self._block(start, records, cells)

    def _run_blocks(self, runs: Sequence[int]) -> Iterator[RowBlock]:
        """Yield the rows of some runs, as many at a time as when reading all rows."""
        at_once = max(1, self.store.at_once // RUN_LENGTH)
        for k in range(0, len(runs), at_once):
            yield self.read_runs(runs[k : k + at_once])

    def _block(self, start: int, records: NDArray[np.void], cells: NDArray[np.uint16]) -> RowBlock:
        cell, weight = self.into[cells], row_weights(records, self.weight_at)
        rows = np.flatnonzero(cell >= 0)
        numbers, codes = records["numbers"], records["codes"]
        return RowBlock(start, numbers, codes, rows, cell[rows], weight[rows], self.coding)

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

    def decisions(self, classifier: Classifier) -> Array:
        """Return the mean probability (C,) of a classifier's positive decision in each cell."""
        return self.predictions({"": classifier}, None)[""].decisions

    def predictions(
        self, classifiers: Mapping[str, Classifier], label: Array | None
    ) -> dict[str, StreamedPredictions]:
        """Return the predictions of each classifier by name, computed in one pass.

        The errors of estimates are included only if the `label` (C,) of each cell is given.
        """
        compute = partial(_prediction_sums, tuple(classifiers.values()), len(self), label)
        (sums,) = self.sums(compute)
        found = np.divide(sums, self.weight, where=self.weight > 0, out=np.zeros_like(sums))
        unknown = np.full(len(self), np.nan)
        return {
            name: StreamedPredictions(
                means[0], unknown, unknown, means=dict(zip(MEASUREMENTS, means, strict=False))
            )
            for name, means in zip(classifiers, found, strict=True)
        }


@dataclass(frozen=True)
class StreamedPredictions(Predictions):
    """Predictions of a classifier on C cells, as means of the rows in each cell.

    Scores and estimates of single rows are unknown; `means` has what rates need, by measurement.
    """

    means: Mapping[Measurement, Array] = field(default_factory=dict)

    def measure(self, of: Measurement, label: Array) -> Array:
        del label  # included in the means
        return self.means[of]


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
