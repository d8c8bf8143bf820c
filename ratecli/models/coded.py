"""Rows as records have them, numbers and codes of words, and what turns them into features.

Features of 20 million rows fill 30 GB, and the records from which they are made 3: whoever sums over rows
makes them on the way, in compiled loops (`models.decode`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Features

Numbers = NDArray[np.floating]
Codes = NDArray[np.unsignedinteger]

SPARSE_BELOW = 0.3
"""Share of entries that are not zero under which features are held sparse."""


class FeatureCoding(NamedTuple):
    """What compiled code needs to know of d features.

    Attributes
    ----------
    of_number
        (P,) which numbers of a record are features.
    mean, scale
        (P,) the feature is (number - mean) / scale.
    number_at
        (P,) which feature it is.
    missing_at
        (P,) which feature is 1 where a row has no such number, -1 where none is: the feature is 0 there.
    of_code
        (G,) which codes of a record are.
    first
        (G,) where each one's levels begin in `level_at`.
    level_at
        (L,) which feature each level is, -1 where it is none.
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
    """m rows of a stream, the first of which stands at `start` in the table.

    Attributes
    ----------
    numbers, codes
        (m, ...) of their records.
    cell
        (m,) what each row counts as (`streaming.stream_protocol`); -1 where it is left out.
    weight
        (m,) how much each counts.
    """

    start: int
    numbers: Numbers
    codes: Codes
    cell: NDArray[np.int32]
    weight: Array

    def some(self, which: Any) -> RecordBatch:
        """Those of the rows, in the order of `which`."""
        return RecordBatch(self.start, *(part[which] for part in self[1:]))

    def followed_by(self, others: RecordBatch) -> RecordBatch:
        """These rows, then the others."""
        pairs: Any = zip(self[1:], others[1:], strict=True)
        return RecordBatch(self.start, *(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class RecordEncoder:
    """d features in their order: the columns that they are made of, and how.

    Attributes
    ----------
    places
        (P + G,) which column of the features' order each number, then each code, is.
    firsts
        (P + G,) the first feature of each.
    shares
        (d,) of the training rows that have each feature.
    """

    coding: FeatureCoding
    width: int
    places: NDArray[np.intp]
    firsts: NDArray[np.intp]
    shares: Array

    def entries(self, rows: RecordBatch) -> tuple[NDArray[np.int64], Array]:
        """(m, P + G) which feature each column of a row is, in their order, and its value."""
        # it imports numba, which takes every process a fifth of a second
        from ratecli.models.decode import fill_entries  # noqa: PLC0415

        columns = np.empty((len(rows.cell), len(self.places)), np.int64)
        values = np.empty(columns.shape)
        fill_entries(
            rows.numbers, rows.codes, self.coding, self.places, self.firsts, columns, values
        )
        return columns, values

    def features(self, rows: RecordBatch) -> Features:
        """(m, d) as an encoder in memory gives them (`datasets.encode`), to the last bit."""
        columns, values = self.entries(rows)
        blocks = len(self.places)
        if not len(self.coding.of_code) and blocks == self.width:
            return values
        starts = np.arange(0, columns.size + 1, blocks)
        shape = (len(rows.cell), self.width)
        matrix = sparse.csr_array((values.ravel(), columns.ravel(), starts), shape=shape)
        if blocks / max(self.width, 1) >= SPARSE_BELOW:
            return np.asarray(matrix.toarray())
        return matrix

    def scores(self, rows: RecordBatch, weights: Array) -> Array:
        """(m, M) `features @ weights` of weights (d, M), without the features; each column lies together."""
        from ratecli.models.decode import score_records  # noqa: PLC0415

        found = np.empty((weights.shape[1], len(rows.cell))).T
        score_records(rows.numbers, rows.codes, self.coding, weights, found)
        return found
