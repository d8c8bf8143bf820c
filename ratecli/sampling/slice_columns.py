"""The columns of the rows that slices of rules may name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ratecli.datasets.columns import LazyMapping
from ratecli.rates.expression import Slice
from ratecli.rates.sample import Mask, Sample
from ratecli.rates.scope import Conditions


@dataclass(frozen=True)
class SliceColumns:
    """The columns that slices may name.

    `arrays` are (n,) arrays by name, as in `Sample.columns`. Of a streamed table, they contain each
    value once, and rows are not counted.
    """

    arrays: Mapping[str, Any]
    streamed: bool = False

    @cached_property
    def values(self) -> Mapping[str, Sequence[str | float]]:
        """The distinct values of each column, sorted, without missing ones."""
        return LazyMapping(self.arrays, lambda name: distinct_values(self.arrays[name]))

    def count(self, conditions: Conditions) -> int:
        """Return the number of rows for which the conditions hold."""
        return int(self.rows(conditions).sum())

    def rows(self, conditions: Conditions) -> Mask:
        """Return for which rows (n,) the conditions hold."""
        return self._sample.rows(Slice((), conditions))

    @cached_property
    def _sample(self) -> Sample:
        rows = len(next(iter(self.arrays.values()), ()))
        none, names = np.zeros(rows), np.full(rows, "")
        return Sample(self.arrays, label=none, dataset=names, part=names, weight=none)


def distinct_values(column: Any) -> list[str | float]:
    """Return the distinct non-missing texts or floats of an (n,) array, sorted."""
    if column.dtype.kind == "f":
        return [float(value) for value in np.unique(column[~np.isnan(column)])]
    return sorted({value for value in column if value is not None})
