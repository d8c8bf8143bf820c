"""The table of a data set, as the packages above see it, and the columns that slices may name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.config.dataset import LoggedSpec
from ratecli.datasets.columns import (
    ColumnFacts,
    LazyMapping,
    as_float_array,
    is_text,
    level_codes,
)
from ratecli.models.policy import EpisodeLayout
from ratecli.rates.expression import Slice
from ratecli.rates.sample import Mask, Sample, make_read_only
from ratecli.rates.scope import Conditions


@dataclass(frozen=True)
class Table:
    """Rows of one data set, before any split or encoding.

    Attributes
    ----------
    frame
        All columns, including sensitive ones, with one row per example and index 0..n-1. Text
        columns hold strings or None, numeric ones floats or ints, NaN if missing. Conditions of
        slices are evaluated on this frame.
    features
        The columns of `frame` that a classifier may see.
    label
        (n,) floats: 1 positive, 0 negative, NaN unlabelled; any numbers if there is a range.
    label_range
        The smallest and largest possible label if it is a number, infinite if unknown. None if the
        label has two classes.
    part
        (n,) the official split ("train", "validation" or "test"), or None if there is none.
    matrix
        (n, d) ready-made features that are used unchanged (a9a), or counts of terms (see
        `counts`). If given, `features` is empty.
    counts
        Whether the (sparse) matrix has counts of the terms in a text, which the encoder converts to
        TF-IDF.
    weight
        (n,) positive row weights, or None for all 1.
    logged
        The columns of logged decisions, if there are any.
    episodes
        How the matrix holds the steps of episodes, if each row is one.
    missing
        Whether a numeric feature with missing values in training rows gets a second feature that
        indicates them (`missing: mean`).
    digest
        sha256 over everything that decides the numbers: file hashes, preparation version, options.
    files
        Name and sha256 of each file that was read, for the records of trials.
    """

    frame: pd.DataFrame
    features: tuple[str, ...]
    label: NDArray[np.float64]
    digest: str
    label_range: tuple[float, float] | None = None
    part: NDArray[np.str_] | None = None
    matrix: sparse.csr_array | NDArray[np.float64] | None = None
    counts: bool = False
    weight: NDArray[np.float64] | None = None
    files: tuple[tuple[str, str], ...] = ()
    missing: bool = False
    logged: LoggedSpec | None = None
    episodes: EpisodeLayout | None = None

    def __post_init__(self) -> None:
        make_read_only(self)

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def values(self) -> Mapping[str, NDArray[np.float64] | pd.Categorical]:
        """The values of each column, cached because every seed encodes features again."""

        def values(name: str) -> NDArray[np.float64] | pd.Categorical:
            column = self.frame[name]
            return level_codes(column) if is_text(column) else as_float_array(column)

        return LazyMapping(map(str, self.frame.columns), values)

    @cached_property
    def facts(self) -> Mapping[str, ColumnFacts]:
        """The facts about each column."""
        names = map(str, self.frame.columns)
        return LazyMapping(names, lambda name: ColumnFacts.of(self.frame[name]))


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
