"""Which rows a trial is given, and what of them: drawn anew or as they are, some put aside for a safety
test, some columns unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.datasets.split import assign_split_parts, reserve_safety_rows
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.keys import random_stream


@dataclass(frozen=True)
class Holdout:
    """Of the training rows of each data set, `fraction` is put aside for a safety test.

    Some are drawn, with equal shares for all values of the columns `stratify` (`label` is the label), or
    the last ones are taken if `positional`.
    """

    fraction: Fraction
    stratify: tuple[str, ...] = ()
    positional: bool = False

    def content(self) -> dict[str, Any]:
        """What of it is part of a trial's key."""
        return {
            "fraction": str(self.fraction),
            "stratify": sorted(self.stratify),
            "positional": self.positional,
        }


@dataclass(frozen=True)
class SamplingSpec:
    """How the rows of a seed come about.

    Attributes
    ----------
    share
        So many times the rows there are, drawn with replacement, train; all rows are then test rows.
        None: rows are divided as the data set's `split` says.
    holdout
        What becomes of training rows before anything is fitted to them.
    unseen
        Columns that are none of the features.
    """

    share: Fraction | None = None
    holdout: Holdout | None = None
    unseen: tuple[str, ...] = ()

    def same_rows(self, other: SamplingSpec) -> bool:
        """Whether the same rows train, whatever of their columns is seen."""
        return (self.share, self.holdout) == (other.share, other.holdout)


NO_RESAMPLING = SamplingSpec()


@dataclass(frozen=True)
class RowSplit:
    """Rows of one data set, in the order in which a trial has them.

    Attributes
    ----------
    rows
        (m,) positions in the table; None for every row once, in order.
    part
        (m,) the split that each is in.
    """

    rows: NDArray[np.intp] | None
    part: NDArray[np.str_]


def split_dataset_rows(
    table: Table, name: str, options: Mapping[str, Any], seed: int, drawing: SamplingSpec
) -> RowSplit:
    """The rows of the data set `name`, of which `options` are the entry in the file.

    Training, validation and test rows are the same whatever is put aside for a safety test, but for that.
    A `seed` of the split fixes what is put aside, too.

    Raises
    ------
    FaultError
        E205, E410: a part would be empty, or a column to stratify by is not there.
    """
    spec = options.get("split", {})
    own = spec.get("seed", seed)
    if drawing.share is None:
        found = RowSplit(None, assign_split_parts(table, spec, random_stream(own, "split", name)))
    else:
        found = _resample_rows(len(table), drawing.share, random_stream(seed, "resample", name))
    if drawing.holdout is None:
        return found
    holdout, train = drawing.holdout, np.flatnonzero(found.part == "train")
    aside = reserve_safety_rows(
        table,
        train if found.rows is None else found.rows[train],
        holdout.fraction,
        random_stream(own, "safety", name),
        stratify=holdout.stratify,
        positional=holdout.positional,
    )
    part = found.part.copy()
    part[train[aside]] = "safety"
    return RowSplit(found.rows, part)


def _resample_rows(count: int, share: Fraction, rng: np.random.Generator) -> RowSplit:
    """Training rows drawn from all, before each row once, which tests."""
    size = round(share * count)
    if not size:
        message = f"a share of {float(share):g} of {count} rows is no row to train on"
        raise FaultError(Diagnostic("E410", message, "draw a greater share"))
    rows = np.concatenate([rng.integers(count, size=size), np.arange(count)])
    part = np.full(len(rows), "test", dtype="<U10")
    part[:size] = "train"
    return RowSplit(rows, part)
