"""What tells the rows of a streamed table apart in rates: labels, words, and sides of numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.streaming.table import StreamedTable

ValueIndices = NDArray[np.int64]


@dataclass(frozen=True)
class GroupingColumn(ABC):
    """One column of a record.

    Attributes
    ----------
    column
        Its place among the codes, or the numbers, of a record.
    values
        What stands for the rows of each of its places.
    """

    column: int
    values: NDArray[Any]

    @abstractmethod
    def of(self, records: NDArray[np.void]) -> ValueIndices:
        """(m,) the place of each row."""


class TextGrouping(GroupingColumn):
    """Each word is a place of its own."""

    def of(self, records: NDArray[np.void]) -> ValueIndices:
        return np.asarray(records["codes"][:, self.column], dtype=np.int64)


class NumberGrouping(GroupingColumn):
    """Each of a few numbers is, and no number in the last place."""

    def of(self, records: NDArray[np.void]) -> ValueIndices:
        found = records["numbers"][:, self.column].astype(np.float64)
        known = self.values[:-1]
        return np.where(np.isnan(found), len(known), np.searchsorted(known, found))


@dataclass(frozen=True)
class IntervalGrouping(GroupingColumn):
    """Numbers between two cuts, and those at one: no comparison with a cut tells them apart."""

    cuts: NDArray[np.float64]

    def of(self, records: NDArray[np.void]) -> ValueIndices:
        found = records["numbers"][:, self.column].astype(np.float64)
        side = np.searchsorted(self.cuts, found, "left") + np.searchsorted(
            self.cuts, found, "right"
        )
        return np.where(np.isnan(found), 2 * len(self.cuts) + 1, side)


def grouping_column(table: StreamedTable, name: str, cuts: Sequence[float]) -> GroupingColumn:
    """What tells rows apart by a column, if numbers of it are compared with no others than `cuts`."""
    column = table.columns[name]
    if column.is_text:
        place = [each.name for each in table.store.texts].index(name)
        return TextGrouping(place, np.array(column.levels, dtype=object))
    place = [each.name for each in table.store.numbers].index(name)
    assert column.numbers is not None
    if column.numbers.distinct is not None:
        return NumberGrouping(place, np.array([*column.numbers.distinct, np.nan]))
    sorted_cuts = np.unique(np.array(cuts, dtype=np.float64))
    return IntervalGrouping(place, np.array([*_interval_values(sorted_cuts), np.nan]), sorted_cuts)


def _interval_values(cuts: NDArray[np.float64]) -> list[float]:
    """A number for each side: below the first cut, the cut, between it and the next, ..."""
    if not len(cuts):
        return [0.0]
    found = [float(np.nextafter(cuts[0], -np.inf))]
    for k, cut in enumerate(cuts):
        last = k + 1 == len(cuts)
        beyond = np.nextafter(cut, np.inf) if last else cut / 2 + cuts[k + 1] / 2
        found += [float(cut), float(beyond)]
    return found
