"""What classifiers say of rows that are in no memory: means over cells of rows that count alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.coded import RecordBatch
from ratecli.rates.matrix import Predictions, log_loss
from ratecli.rates.sample import Floats
from ratecli.rates.table import Measurement
from ratecli.streaming.stream_protocol import ClassifierInputs, RowStream

STREAMED_ERRORS: tuple[Measurement, ...] = ("error", "squared_error", "log_loss")


@dataclass(frozen=True)
class StreamedPredictions(Predictions):
    """Of C cells; scores and estimates of rows are not known, what rates are means of is.

    Attributes
    ----------
    errors
        Those of all classifiers that were asked together, of which this is the `place`-th.
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
    """Means over cells of all that is measured by estimates: one pass, when the first is asked for."""

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
    """Of each classifier the errors, before them all decisions if those are asked for."""

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
    """Of each classifier, by name, in one pass; what estimates tell as well if `label` (C,) is given."""
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
