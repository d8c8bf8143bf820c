"""Rows as stored records (numbers and coded words), and their conversion to features.

The features of 20 million rows take 30 GB, their records 3 GB. Sums over rows therefore expand
records a block at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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

    def features(self, numbers: Numbers, codes: Codes) -> Features:
        """Return (m, d) features, bit for bit as an in-memory encoder does (`datasets.encode`)."""
        # imports numba, which takes 0.2 s in every process
        from ratecli.models.loops import fill_entries  # noqa: PLC0415

        blocks = len(self.coding.of_number) + len(self.coding.of_code)
        columns = np.empty((len(numbers), blocks), np.int32)
        values = np.empty(columns.shape)
        fill_entries(numbers, codes, self.coding, columns, values)
        if not len(self.coding.of_code) and blocks == self.width:
            return values
        return features_of_entries(columns, values, self.width)


@dataclass(frozen=True)
class RowBlock:
    """m rows of a stream, starting at row `start` of the table.

    Attributes
    ----------
    numbers, codes
        (m, ...) the rows' records.
    cell
        (m,) the cell of each row (`streaming.stream`).
    weight
        (m,) the weight of each row.
    encoder
        Conversion of the records to features.
    """

    start: int
    numbers: Numbers
    codes: Codes
    cell: NDArray[np.int32]
    weight: Array
    encoder: RecordEncoder

    def __len__(self) -> int:
        return len(self.cell)

    @cached_property
    def X(self) -> Features:
        """(m, d) features."""
        return self.encoder.features(self.numbers, self.codes)

    def some(self, which: Any) -> RowBlock:
        """Return selected rows, in the order of `which`."""
        parts: Any = {name: getattr(self, name)[which] for name in _BY_ROW}
        return replace(self, **parts)

    @classmethod
    def joined(cls, blocks: Sequence[RowBlock]) -> RowBlock:
        """Return the rows of all blocks, at least one, as a single block."""
        parts: Any = {name: np.concatenate([getattr(b, name) for b in blocks]) for name in _BY_ROW}
        return replace(blocks[0], **parts)


_BY_ROW = ("numbers", "codes", "cell", "weight")
