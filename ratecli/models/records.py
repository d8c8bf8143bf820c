"""Rows as stored records (numbers and coded words), and their conversion to features.

The features of 20 million rows take 30 GB, their records 3 GB. Code that sums over rows therefore
computes features on the fly, in compiled loops (`models.loops`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Features, features_of_entries

Numbers = NDArray[np.floating]
Codes = NDArray[np.unsignedinteger]


class FeatureCoding(NamedTuple):
    """How records are turned into d features, as compiled code needs it.

    Attributes
    ----------
    of_number
        (P,) indices of the record's numbers that are features.
    mean, scale
        (P,) the feature is (number - mean) / scale.
    number_at
        (P,) index of the feature.
    missing_at
        (P,) index of the feature that is 1 if the number is missing (the feature itself is then 0),
        -1 if there is none.
    of_code
        (G,) indices of the record's codes that are features.
    first
        (G,) index in `level_at` of each code's first level.
    level_at
        (L,) index of the feature of each level, -1 if it has none.
    """

    of_number: NDArray[np.intp]
    mean: Array
    scale: Array
    number_at: NDArray[np.intp]
    missing_at: NDArray[np.intp]
    of_code: NDArray[np.intp]
    first: NDArray[np.intp]
    level_at: NDArray[np.intp]


class RecordBatch(NamedTuple):
    """m rows of a stream, starting at row `start` of the table.

    Attributes
    ----------
    numbers, codes
        (m, ...) the rows' records.
    cell
        (m,) the cell of each row (`streaming.stream`); -1 if the row is left out.
    weight
        (m,) the weight of each row.
    """

    start: int
    numbers: Numbers
    codes: Codes
    cell: NDArray[np.int32]
    weight: Array

    def some(self, which: Any) -> RecordBatch:
        """Return selected rows, in the order of `which`."""
        return RecordBatch(self.start, *(part[which] for part in self[1:]))

    def followed_by(self, others: RecordBatch) -> RecordBatch:
        """Return these rows followed by the others."""
        pairs: Any = zip(self[1:], others[1:], strict=True)
        return RecordBatch(self.start, *(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class RecordEncoder:
    """The conversion of records to `width` features.

    Attributes
    ----------
    shares
        (d,) share of the training rows that have each feature.
    """

    coding: FeatureCoding
    width: int
    shares: Array

    def entries(self, rows: RecordBatch) -> tuple[NDArray[np.int64], Array]:
        """Return (m, P + G) feature indices and values of rows: numbers first, then codes."""
        # imports numba, which takes 0.2 s in every process
        from ratecli.models.loops import fill_entries  # noqa: PLC0415

        blocks = len(self.coding.of_number) + len(self.coding.of_code)
        columns = np.empty((len(rows.cell), blocks), np.int64)
        values = np.empty(columns.shape)
        fill_entries(rows.numbers, rows.codes, self.coding, columns, values)
        return columns, values

    def features(self, rows: RecordBatch) -> Features:
        """Return (m, d) features, bit for bit as an in-memory encoder does (`datasets.encode`)."""
        columns, values = self.entries(rows)
        if not len(self.coding.of_code) and columns.shape[1] == self.width:
            return values
        return features_of_entries(columns, values, self.width)

    def scores(self, rows: RecordBatch, weights: Array) -> Array:
        """Return (m, M) `features @ weights` for weights (d, M), in Fortran order.

        The features are not stored.
        """
        from ratecli.models.loops import score_records  # noqa: PLC0415

        found = np.empty((weights.shape[1], len(rows.cell))).T
        score_records(rows.numbers, rows.codes, self.coding, weights, found)
        return found
