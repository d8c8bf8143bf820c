"""What a classifier says of rows that are in no memory: means over cells of rows that count alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.coded import Rows
from ratecli.models.stream import Shown, Stream
from ratecli.rates.matrix import Predictions, log_loss
from ratecli.rates.sample import Floats
from ratecli.rates.table import Measurement


@dataclass(frozen=True)
class StreamedPredictions(Predictions):
    """Of C cells; scores and estimates of rows are not known, what rates are means of is."""

    stream: Stream | None = None
    classifier: Classifier | None = None
    errors: dict[Measurement, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, stream: Stream, classifier: Classifier, decisions: Floats) -> StreamedPredictions:
        unknown = np.full(len(decisions), np.nan)
        return cls(decisions, unknown, unknown, None, stream, classifier)

    def measure(self, of: Measurement, label: Floats) -> Floats:
        """The mean over each cell; the first one that is not of decisions takes a pass over the rows."""
        if of == "decision":
            return self.decisions
        if not self.errors:
            assert self.stream is not None
            assert self.classifier is not None
            found = self.stream.means(
                _Errors(Shown(self.stream.encoded, (self.classifier,)), label)
            )
            self.errors.update(zip(ERRORS, found, strict=True))
        return self.errors[of]


ERRORS: tuple[Measurement, ...] = ("error", "squared_error", "log_loss")


@dataclass(frozen=True)
class _Errors:
    shown: Shown
    label: Array

    @property
    def count(self) -> int:
        return len(ERRORS)

    def __call__(self, rows: Rows) -> Sequence[Array]:
        ((classifier, X),) = self.shown.of(rows)
        estimates = classifier.estimate(X)
        label = self.label[rows.cell]
        error = np.nan_to_num(estimates - label)
        return error, error**2, log_loss(estimates, label)
