"""Which rows a trial uses: resampled or split, some held out for a safety test, filtered."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ratecli.config.dataset import SplitSpec
from ratecli.datasets.split import (
    SPLIT_NAMES,
    Holdout,
    assign_split_parts,
    reserve_safety_rows,
)
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import random_stream


@dataclass(frozen=True)
class SamplingSpec:
    """How the rows of a seed are chosen.

    Attributes
    ----------
    share
        If set, training rows are sampled with replacement, this many times the number of rows, and
        all rows are test rows. If None, rows are split as the data set's entry specifies.
    holdout
        The training rows held out before anything is fitted.
    unseen
        Columns that are excluded from the features.
    score
        The column of scores that is the only feature; "" for all features.
    row_filter
        The filter that training rows pass through, if any.
    """

    share: Fraction | None = None
    holdout: Holdout | None = None
    unseen: tuple[str, ...] = ()
    score: str = ""
    row_filter: RowFilter | None = None

    def same_rows(self, other: SamplingSpec) -> bool:
        """Return whether the training rows are the same before a filter; features may differ."""
        return (self.share, self.holdout) == (other.share, other.holdout)


NO_RESAMPLING = SamplingSpec()


@dataclass(frozen=True)
class RowFilter:
    """The filter that training rows pass through.

    Attributes
    ----------
    key
        Key of the trial that computes the filter.
    sampling
        How the rows of that trial are chosen.
    take
        `weights` or `sample` (see `experiment.cases.CaseFilter`).
    """

    key: str
    sampling: SamplingSpec
    take: str


@dataclass(frozen=True)
class RowSplit:
    """The rows of one data set, in the order used by a trial.

    Attributes
    ----------
    rows
        (m,) positions in the table.
    part
        (m,) the split of each row.
    """

    rows: NDArray[np.intp]
    part: NDArray[np.str_]


def split_dataset_rows(
    table: Table, name: str, spec: SplitSpec, seed: int, sampling: SamplingSpec
) -> RowSplit:
    """Return the rows of the data set `name`.

    A holdout does not affect the other rows or the order. A `seed` in the split also fixes the
    holdout. Rows of encoded features are ordered by part, so that those of the training rows are
    not copied; a ready-made matrix stays as it is.

    Raises
    ------
    FaultError
        E205, E410 if a part would be empty, or a column to stratify by is missing.
    """
    own, fold = spec.draw(seed)
    if sampling.share is None:
        part = assign_split_parts(table, spec, random_stream(own, "split", name), fold)
        order = np.arange(len(table))
        if table.matrix is None:
            order = np.concatenate([np.flatnonzero(part == each) for each in SPLIT_NAMES])
        found = RowSplit(order, part[order])
    else:
        found = _resample_rows(len(table), sampling.share, random_stream(seed, "resample", name))
    if sampling.holdout is None:
        return found
    train = np.flatnonzero(found.part == "train")
    rng = random_stream(own, "safety", name)
    aside = reserve_safety_rows(table, found.rows[train], sampling.holdout, rng)
    part = found.part.copy()
    part[train[aside]] = "safety"
    return RowSplit(found.rows, part)


def _resample_rows(count: int, share: Fraction, rng: np.random.Generator) -> RowSplit:
    """Sample training rows from all rows, followed by each row once as a test row."""
    size = round(share * count)
    if not size:
        message = f"a share of {float(share):g} of {count} rows leaves no row to train on"
        raise FaultError(Diagnostic("E410", message, "sample a larger share"))
    rows = np.concatenate([rng.integers(count, size=size), np.arange(count)])
    part = np.full(len(rows), "test", dtype="<U10")
    part[:size] = "train"
    return RowSplit(rows, part)
