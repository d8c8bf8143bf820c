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
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import MajorityVote, MixtureClassifier
from ratecli.models.linear import Linear, Logistic, Ramp, RandomizedLogistic, Threshold
from ratecli.models.records import RecordBatch, RecordEncoder
from ratecli.rates.matrix import Predictions, log_loss
from ratecli.rates.sample import make_read_only
from ratecli.rates.table import Measurement
from ratecli.streaming.store import RecordStore, read_items, read_runs

SumArrays: TypeAlias = tuple[Array, ...]

MEASUREMENTS: tuple[Measurement, ...] = ("decision", "error", "squared_error", "log_loss")
"""In the order of `PredictionSums`."""
RUN_LENGTH = 64
"""Adjacent rows that are read together when rows from anywhere are needed."""
PARTITION_ROWS = 2**19
CELL_DTYPE = np.dtype("<u2")
SCHEDULER_VARIABLE = "RATECLI_SCHEDULER"
"""Environment variable with the scheduler's address, set in the process of a trial on a cluster."""


class RowSum(Protocol):
    """A sum over rows. It must be picklable, because sums may be computed on a cluster."""

    def zeros(self) -> SumArrays:
        """Return the sums over no rows."""
        ...

    def add(self, rows: RecordBatch, sums: SumArrays) -> None:
        """Add some rows to `sums`; rows of cell -1 are ignored."""
        ...


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
    encoded
        Conversion of the rows to features.
    count, weight, effective
        (C,) number of rows of each cell, their total weight, and the effective number of rows.
    partition
        Number of rows that one worker sums; the sums of partitions are added in order.
    """

    store: RecordStore
    cells: Path
    into: NDArray[np.int32]
    weight_at: int | None
    encoded: RecordEncoder
    count: Array
    weight: Array
    effective: Array
    partition: int = PARTITION_ROWS

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.count), self.encoded.width

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, cells: NDArray[np.intp]) -> RowStream:
        """Return the rows of some cells, renumbered in the given order."""
        renumbered = np.full(len(self) + 1, -1, np.int32)  # the last is for excluded rows (-1)
        renumbered[cells] = np.arange(len(cells), dtype=np.int32)
        names = ("count", "weight", "effective")
        some = {name: getattr(self, name)[cells] for name in names}
        return replace(self, into=renumbered[self.into], **some)

    def sums(self, part: RowSum, every: int = 1) -> SumArrays:
        """Return sums over all rows, or over one in `every` runs."""
        if every > 1:
            return _sum_batches(part, self._run_batches(range(0, self.runs(), every)))
        sums = part.zeros()
        for found in _sum_partitions(self, part):
            for total, each in zip(sums, found, strict=True):
                total += each  # noqa: PLW2901
        return sums

    def batches(self, first: int, last: int) -> Iterator[RecordBatch]:
        """Yield the rows from `first` to before `last`."""
        for start, records in self.store.pieces(first, last):
            cells = read_items(self.cells, CELL_DTYPE, start, len(records))
            yield self._batch(start, records, cells)

    def _run_batches(self, runs: Sequence[int]) -> Iterator[RecordBatch]:
        """Yield the rows of some runs, as many at a time as when reading all rows."""
        at_once = max(1, self.store.at_once // RUN_LENGTH)
        for k in range(0, len(runs), at_once):
            yield self.read_runs(runs[k : k + at_once])

    def _batch(
        self, start: int, records: NDArray[np.void], cells: NDArray[np.uint16]
    ) -> RecordBatch:
        weight = row_weights(records, self.weight_at)
        return RecordBatch(start, records["numbers"], records["codes"], self.into[cells], weight)

    def runs(self) -> int:
        """Return the number of runs of `RUN_LENGTH` rows; the last one may be shorter."""
        return -(-self.store.rows // RUN_LENGTH)

    def read_runs(self, runs: Sequence[int]) -> RecordBatch:
        """Return the rows of some runs, in their order, without excluded rows."""
        records = read_runs(self.store.path, self.store.record, runs, RUN_LENGTH)
        rows = self._batch(0, records, read_runs(self.cells, CELL_DTYPE, runs, RUN_LENGTH))
        return rows.some(rows.cell >= 0)

    def sample_rows(self, chances: Array, seed: int) -> RecordBatch:
        """Sample rows, each with the probability (C,) of its cell."""
        random = np.random.Generator(np.random.PCG64(seed))
        bounds = np.append(chances, 0.0)  # the last is for excluded rows (-1)
        found = []
        for rows in self.batches(0, self.store.rows):
            some = random.random(len(rows.cell)) < bounds[rows.cell]
            found.append(rows.some(some)[1:])
        return RecordBatch(0, *(np.concatenate(part) for part in zip(*found, strict=True)))

    def decisions(self, classifier: Classifier) -> Array:
        """Return the mean probability (C,) of a classifier's positive decision in each cell."""
        return self.predictions({"": classifier}, None)[""].decisions

    def predictions(
        self, classifiers: Mapping[str, Classifier], label: Array | None
    ) -> dict[str, StreamedPredictions]:
        """Return the predictions of each classifier by name, computed in one pass.

        The errors of estimates are included only if the `label` (C,) of each cell is given.
        """
        part = PredictionSums(self.encoded, tuple(classifiers.values()), len(self), label)
        (sums,) = self.sums(part)
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


@dataclass(frozen=True)
class PredictionSums:
    """Weighted sums (M, 1 or 4, C) of the decisions of M classifiers in C cells.

    With the label (C,) of each cell, also of the error, the squared error and the log loss of their
    estimates. Linear classifiers and mixtures of them take scores, which are computed for all of
    them at once; others take features.
    """

    encoded: RecordEncoder
    classifiers: tuple[Classifier, ...]
    cells: int
    label: Array | None

    @cached_property
    def weights(self) -> Array:
        """(d, M) distinct weights of the linear classifiers."""
        members = (part for each in self.classifiers for part in _linear_parts(each) or ())
        distinct = {part.weights.tobytes(): part.weights for part in members}
        found = np.array(list(distinct.values())).reshape(-1, self.encoded.width)
        return np.ascontiguousarray(found.T)

    def zeros(self) -> SumArrays:
        return (np.zeros((len(self.classifiers), 1 if self.label is None else 4, self.cells)),)

    def add(self, rows: RecordBatch, sums: SumArrays) -> None:
        inside = rows.cell >= 0
        kept = rows if inside.all() else rows.some(inside)
        scores = self.encoded.scores(kept, self.weights)
        known = {w.tobytes(): scores[:, k] for k, w in enumerate(self.weights.T)}
        scored: Any = KnownScores((len(kept.cell), self.encoded.width), known)
        X: Any = None
        for totals, classifier in zip(sums[0], self.classifiers, strict=True):
            needs_features = _linear_parts(classifier) is None
            if needs_features and X is None:
                X = self.encoded.features(kept)
            inputs = X if needs_features else scored
            found = [classifier.decide(inputs)]
            if self.label is not None:
                estimates, label = classifier.estimate(inputs), self.label[kept.cell]
                error = np.nan_to_num(estimates - label)
                found += [error, error**2, log_loss(estimates, label)]
            for total, each in zip(totals, found, strict=True):
                total += np.bincount(kept.cell, kept.weight * each, self.cells)  # noqa: PLW2901


@dataclass(frozen=True)
class KnownScores:
    """Stands in for features (m, d) that are only multiplied by weights with known products."""

    shape: tuple[int, int]
    known: Mapping[bytes, Array]

    def __matmul__(self, weights: Array) -> Array:
        return self.known[weights.tobytes()]


def _linear_parts(classifier: Classifier) -> Sequence[Linear] | None:
    """Return the linear classifiers whose scores determine the decisions.

    Return None if the classifier needs features.
    """
    own: type = type(classifier)  # the exact type, because subclasses may use features
    if own in {Threshold, Logistic, RandomizedLogistic, Ramp}:
        return [cast("Linear", classifier)]
    if own in {MixtureClassifier, MajorityVote}:
        parts = [_linear_parts(member) for member in cast("MixtureClassifier", classifier).members]
        return None if None in parts else [part for each in parts for part in each or ()]
    return None


def _sum_batches(part: RowSum, batches: Iterable[RecordBatch]) -> SumArrays:
    sums = part.zeros()
    for rows in batches:
        part.add(rows, sums)
    return sums


def _sum_partition(stream: RowStream, part: RowSum, first: int) -> SumArrays:
    """Return the sums of the partition that starts with the row `first`."""
    last = min(first + stream.partition, stream.store.rows)
    return _sum_batches(part, stream.batches(first, last))


def _sum_on_worker(compute: Callable[[int], SumArrays], first: int) -> SumArrays:
    with threadpool_limits(limits=1):  # results must not depend on the number of threads
        return compute(first)


@lru_cache(maxsize=1)
def cluster_client(address: str) -> Any:
    """Return a client, which is reused for all passes of a trial and of later trials."""
    from distributed import Client  # noqa: PLC0415  an optional extra

    return Client(address, set_as_default=False)


def _sum_partitions(stream: RowStream, part: RowSum) -> Iterator[SumArrays]:
    """Yield the sums of each partition in order, computed here and by idle workers of a cluster."""
    compute = partial(_sum_partition, stream, part)
    starts = range(0, stream.store.rows, stream.partition)
    futures: dict[int, Any] = {}
    address = os.environ.get(SCHEDULER_VARIABLE)
    if address is not None and len(starts) > 1:
        client = cluster_client(address)
        idle = [worker for worker, tasks in client.processing().items() if not tasks]
        if idle:
            shared = client.scatter(compute, workers=idle, broadcast=True, hash=False)
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
        yield compute(start)
