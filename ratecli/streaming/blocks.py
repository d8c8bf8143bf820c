"""A block of rows: records (numbers and coded words), expanded to features one block at a time.

The features of 20 million rows take 30 GB, their records 3 GB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import SPARSE_BELOW, Array, Features

Numbers = NDArray[np.floating]
Codes = NDArray[np.unsignedinteger]
Places = NDArray[np.intp]


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

    @property
    def width(self) -> int:
        """Number of features d."""
        return len(self.shares)


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
    cell
        (m,) the cell of each row (`streaming.stream`).
    weight
        (m,) the weight of each row.
    coding
        How records become features.
    """

    start: int
    numbers: Numbers
    codes: Codes
    rows: Places
    cell: NDArray[np.int32]
    weight: Array
    coding: FeatureCoding

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def X(self) -> Features:
        """(m, d) features, those of an in-memory encoder bit for bit (`datasets.encode`)."""
        from ratecli.streaming.loops import fill_entries  # noqa: PLC0415  numba

        shape, width = (len(self), len(self.coding.at)), self.coding.width
        columns, values = np.empty(shape, np.int32), np.empty(shape)
        fill_entries(self.numbers, self.codes, self.rows, self.coding, columns, values)
        if shape[1] == width:
            return values
        if shape[1] >= SPARSE_BELOW * width:
            dense = np.zeros((len(self), width))
            np.put_along_axis(dense, columns, values, axis=1)
            return dense
        starts = np.arange(0, columns.size + 1, shape[1], dtype=np.int32)
        found = sparse.csr_array((values.ravel(), columns.ravel(), starts), (len(self), width))
        found.has_canonical_format = True  # columns ascend in each row
        return found

    def some(self, which: Any) -> RowBlock:
        """Return selected rows, in the order of `which`."""
        own = {name: getattr(self, name)[which] for name in ("rows", "cell", "weight")}
        return replace(self, **own)

    @classmethod
    def joined(cls, blocks: Sequence[RowBlock]) -> RowBlock:
        """Return the rows of all blocks, at least one, as a single block."""
        parts = ((b.numbers[b.rows], b.codes[b.rows], b.cell, b.weight) for b in blocks)
        numbers, codes, cell, weight = map(np.concatenate, zip(*parts, strict=True))
        rows = np.arange(len(cell))
        return RowBlock(0, numbers, codes, rows, cell, weight, blocks[0].coding)
