"""The rows of a seed of a streamed data set: only cells of equivalent rows are in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.keys import random_stream
from ratecli.models.base import Array, Classifier
from ratecli.models.coded import RecordBatch
from ratecli.rates.matrix import Predictions, log_loss
from ratecli.rates.sample import Floats, Sample
from ratecli.rates.table import Measurement
from ratecli.sampling.encoding import Encoding, read_decisions
from ratecli.streaming.encode import encoded_stream
from ratecli.streaming.split import StreamedSplit
from ratecli.streaming.stream_protocol import ClassifierInputs, RowStream
from ratecli.streaming.table import StreamedTable, read_streamed_table
from ratecli.streaming.writing import RecordProgress

STREAMED_ERRORS: tuple[Measurement, ...] = ("error", "squared_error", "log_loss")


@dataclass(frozen=True)
class StreamedPredictions(Predictions):
    """Predictions of a classifier on C cells.

    Scores and estimates of single rows are unknown, but the cell means needed for rates are
    available.

    Attributes
    ----------
    errors
        The errors of all classifiers that were evaluated together.
    place
        The position of this classifier among them.
    """

    errors: StreamedErrors | None = None
    place: int = 0

    def measure(self, of: Measurement, label: Floats) -> Floats:
        if of == "decision":
            return self.decisions
        assert self.errors is not None
        return self.errors.of(self.place, of, label)


@dataclass
class StreamedErrors:
    """Cell means of everything measured by estimates, computed in one pass on first use."""

    stream: RowStream
    classifiers: tuple[Classifier, ...]
    found: list[Array] = field(default_factory=list)

    def of(self, place: int, measurement: Measurement, label: Floats) -> Floats:
        if not self.found:
            shown = ClassifierInputs(self.stream.encoded, self.classifiers)
            self.found = self.stream.means(_PredictionMeasure(shown, label, decisions=False))
        return self.found[place * len(STREAMED_ERRORS) + STREAMED_ERRORS.index(measurement)]


@dataclass(frozen=True)
class _PredictionMeasure:
    """Measures the errors of each classifier, preceded by all decisions if `decisions` is set."""

    shown: ClassifierInputs
    label: Array
    decisions: bool

    @property
    def count(self) -> int:
        return (len(STREAMED_ERRORS) + self.decisions) * len(self.shown.classifiers)

    def __call__(self, rows: RecordBatch) -> Sequence[Array]:
        label, seen = self.label[rows.cell], self.shown.of(rows)
        found = [classifier.decide(X) for classifier, X in seen] if self.decisions else []
        for classifier, X in seen:
            estimates = classifier.estimate(X)
            error = np.nan_to_num(estimates - label)
            found += [error, error**2, log_loss(estimates, label)]
        return found


def predict_stream(
    stream: RowStream, classifiers: Mapping[str, Classifier], label: Floats | None = None
) -> dict[str, StreamedPredictions]:
    """Return the predictions of each classifier by name, computed in one pass.

    With `label` (C,), the pass also computes what is measured by estimates.
    """
    asked = tuple(classifiers.values())
    errors = StreamedErrors(stream, asked)
    if label is None:
        decisions = stream.decisions(asked)
    else:
        found = stream.means(
            _PredictionMeasure(ClassifierInputs(stream.encoded, asked), label, decisions=True)
        )
        decisions, errors.found = found[: len(asked)], found[len(asked) :]
    unknown = np.full(len(stream), np.nan)
    return {
        name: StreamedPredictions(decided, unknown, unknown, None, errors, place)
        for place, (name, decided) in enumerate(zip(classifiers, decisions, strict=True))
    }


TableWriteProgress = Callable[[str, int, int | None], None]
"""Called with a data set's name, the rows written so far, and their total or None if unknown."""


@dataclass(frozen=True)
class StreamedSample:
    """Cells as a sample, the rows in them, and the encoding of their features as JSON."""

    sample: Sample
    stream: RowStream
    encoding: str


@dataclass(frozen=True)
class _WriteListener:
    """A progress callback that compares equal to any other, so that it does not affect caching."""

    tell: RecordProgress | None = field(compare=False)


def open_streamed_table(entry: str, base: str, tell: RecordProgress | None = None) -> StreamedTable:
    """Return the table of an entry of `datasets:` (as JSON); `tell` reports written rows."""
    return _open_table(entry, base, _WriteListener(tell))


@lru_cache(maxsize=8)
def _open_table(entry: str, base: str, heard: _WriteListener) -> StreamedTable:
    return read_streamed_table(json.loads(entry), Path(base), heard.tell)


def check_memory(name: str, table: StreamedTable, bound: int | None) -> None:
    """Raise E412 if reading the table piece by piece takes more than `bound` bytes."""
    if bound is None or table.memory <= bound:
        return
    message = (
        f"to read '{name}' piece by piece takes about {table.memory / 2**20:.0f} MiB, "
        f"and a trial may take {bound / 2**20:.0f}"
    )
    hint = "say limits: {memory: ...} of more, or leave out columns: drop: [...]"
    raise FaultError(Diagnostic("E412", message, hint))


def load_streamed_rows(
    name: str, entry: str, base: str, seed: int, deployed: str | None
) -> StreamedSample:
    """Return the rows of the data set `name`.

    `deployed` names the column of a deployed model's decisions.

    Raises
    ------
    FaultError
        E205, E406, E410, E411, E413.
    """
    options, table = json.loads(entry), open_streamed_table(entry, base)
    spec = options.get("split", {})
    own = spec.get("seed", seed)

    def random(stretch: int) -> np.random.Generator:
        return random_stream(own, "split", name, *([str(stretch)] if stretch else []))

    slices = options.get("slices", {})
    if deployed is not None:
        slices = {**slices, deployed: [0.0, 1.0, *slices.get(deployed, ())]}
    cells = StreamedSplit(table, slices, spec, f"{own} {name}", random).cells()
    rows, encoder = encoded_stream(table, cells)
    sample = Sample(
        columns={each: _as_table_column(values) for each, values in cells.columns.items()},
        label=cells.label,
        dataset=np.full(len(cells.label), name),
        part=cells.part,
        weight=cells.weight,
        count=cells.count,
    )
    if deployed is not None:
        sample = sample.with_deployed(read_decisions(sample.columns[deployed], deployed))
    others = {each: kind for each, kind in table.kinds.items() if each not in encoder.kinds}
    return StreamedSample(sample, rows, Encoding(encoder, others).text())


def _as_table_column(values: Any) -> Any:
    return values if values.dtype == object else values.astype(float)
