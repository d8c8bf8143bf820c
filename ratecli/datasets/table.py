"""A data set as the rest of the house sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.datasets.columns import LevelCodes, as_float_array, is_text, level_codes


@dataclass(frozen=True)
class Table:
    """Rows of one data set, before any split or encoding.

    Attributes
    ----------
    frame
        Every column by name, sensitive ones included, one row an example, index 0..n-1. Text columns
        hold strings or None, numeric ones floats or ints, NaN where none is known. Slices read their conditions from here.
    features
        The columns of `frame` that a classifier may see.
    label
        (n,) floats: 1 positive, 0 negative, NaN unlabelled; or any numbers, where there is a range.
    label_range
        Where the label is a number: the least and the largest that it can be, infinite where that is
        not known. None where it is one of two classes.
    part
        (n,) the official split ("train", "validation" or "test"), or None where there is none.
    matrix
        (n, d) ready-made features that are used as they are (a9a), or the counts of terms that are
        weighted (`counts`); then `features` is empty.
    counts
        Whether the (sparse) matrix holds how often each term occurs in a text, from which the
        encoder makes TF-IDF.
    weight
        (n,) positive row weights, or None for all 1.
    missing
        Whether a numeric feature that training rows have no number of gets another feature, which says
        where (`missing: mean`).
    digest
        sha256 over everything that decides the numbers: file hashes, preparation version, options.
    files
        Name and sha256 of each file that was read, for the record.
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

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def values(self) -> Mapping[str, NDArray[np.float64] | LevelCodes]:
        """What rows have of each feature: every seed encodes them anew."""
        columns = {name: self.frame[name] for name in self.features}
        return {
            n: level_codes(each) if is_text(each) else as_float_array(each)
            for n, each in columns.items()
        }
