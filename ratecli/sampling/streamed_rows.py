"""Streamed tables of trials, and predictions on their cells of equivalent rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from ratecli.datasets.entry import DatasetEntry
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Classifier
from ratecli.rates.matrix import Predictions
from ratecli.rates.sample import Floats
from ratecli.rates.table import Measurement
from ratecli.streaming.stream import RowStream
from ratecli.streaming.table import StreamedTable, read_streamed_table

MEASUREMENTS: tuple[Measurement, ...] = ("decision", "error", "squared_error", "log_loss")
"""In the order of `RowStream.measurements`."""


@dataclass(frozen=True)
class StreamedPredictions(Predictions):
    """Predictions of a classifier on C cells, as means of the rows in each cell.

    Scores and estimates of single rows are unknown; `means` has what rates need, by measurement.
    """

    means: Mapping[Measurement, Floats] = field(default_factory=dict)

    def measure(self, of: Measurement, label: Floats) -> Floats:
        del label  # included in the means
        return self.means[of]


def predict_stream(
    stream: RowStream, classifiers: Mapping[str, Classifier], label: Floats | None
) -> dict[str, StreamedPredictions]:
    """Return the predictions of each classifier by name, computed in one pass.

    The errors of estimates are included only if the `label` (C,) of each cell is given.
    """
    unknown = np.full(len(stream), np.nan)
    found = stream.measurements(tuple(classifiers.values()), label)
    return {
        name: StreamedPredictions(
            means[0], unknown, unknown, means=dict(zip(MEASUREMENTS, means, strict=False))
        )
        for name, means in zip(classifiers, found, strict=True)
    }


TableWriteProgress = Callable[[str, int, int | None], None]
"""Called with a data set's name, the rows written so far, and their total or None if unknown."""


@lru_cache(maxsize=8)
def open_streamed_table(entry: DatasetEntry, folder: Path) -> StreamedTable:
    """Return the table of an entry; relative paths start from `folder`."""
    return read_streamed_table(entry, folder)


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
