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

from ratecli.datasets.split import put_aside, split
from ratecli.datasets.table import Table
from ratecli.errors import Fault, FaultError
from ratecli.ledger.keys import stream


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
class Drawing:
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

    def same_rows(self, other: Drawing) -> bool:
        """Whether the same rows train, whatever of their columns is seen."""
        return (self.share, self.holdout) == (other.share, other.holdout)


AS_THEY_ARE = Drawing()


@dataclass(frozen=True)
class Dealt:
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


def dealt(
    table: Table, name: str, options: Mapping[str, Any], seed: int, drawing: Drawing
) -> Dealt:
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
        found = Dealt(None, split(table, spec, stream(own, "split", name)))
    else:
        found = _drawn(len(table), drawing.share, stream(seed, "resample", name))
    if drawing.holdout is None:
        return found
    holdout, train = drawing.holdout, np.flatnonzero(found.part == "train")
    aside = put_aside(
        table,
        train if found.rows is None else found.rows[train],
        holdout.fraction,
        stream(own, "safety", name),
        stratify=holdout.stratify,
        positional=holdout.positional,
    )
    part = found.part.copy()
    part[train[aside]] = "safety"
    return Dealt(found.rows, part)


def _drawn(count: int, share: Fraction, rng: np.random.Generator) -> Dealt:
    """Training rows drawn from all, before each row once, which tests."""
    size = round(share * count)
    if not size:
        message = f"a share of {float(share):g} of {count} rows is no row to train on"
        raise FaultError(Fault("E410", message, "draw a greater share"))
    rows = np.concatenate([rng.integers(count, size=size), np.arange(count)])
    part = np.full(len(rows), "test", dtype="<U10")
    part[:size] = "train"
    return Dealt(rows, part)
