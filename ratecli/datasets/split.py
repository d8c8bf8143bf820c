"""Assign rows to training, validation, test and safety parts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.config.dataset import DATASET_PARTS, SplitSpec
from ratecli.datasets.columns import is_text
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.rates.syntax import is_date

SPLIT_NAMES = DATASET_PARTS
_TEST = Fraction(1, 3)
"""Share of the test part by default."""


def assign_split_parts(
    table: Table, spec: SplitSpec, rng: np.random.Generator, fold: int = 0
) -> NDArray[np.str_]:
    """Return the part of each row: "train", "validation" or "test".

    Parts come from a column (`by`), from the order of a column's values, from the official split,
    or are sampled with `rng`, by fractions or as folds, of which `fold` is the test set.
    `SplitSpec.draw` returns the seed of `rng`, and `fold`. Raises E410 if a part would be empty.
    """
    part = split_rows(table, spec, rng, fold)
    check_parts({name: int((part == name).sum()) for name in SPLIT_NAMES}, spec, table.part)
    return part


def split_rows(
    table: Table, spec: SplitSpec, rng: np.random.Generator, fold: int = 0, *, exact: bool = True
) -> NDArray[np.str_]:
    """Return the part of each row, like `assign_split_parts`; parts may be empty.

    `exact` as in `sample_parts`.
    """
    if spec.by is not None:
        part = _by_column(table, spec.by)
    elif spec.order is not None:
        part = _by_order(_column(table, spec.order), spec)
    else:
        part = _sampled_parts(table, spec, rng, fold, exact=exact)
    return np.where((part == "test") & spec.has_no_test, "train", part)


def _sampled_parts(
    table: Table, spec: SplitSpec, rng: np.random.Generator, fold: int, *, exact: bool
) -> NDArray[np.str_]:
    part, rows, shares = np.full(len(table), "train", "<U10"), np.arange(len(table)), None
    if is_official(spec, table.part):
        assert table.part is not None
        part, held = table.part.astype("<U10"), Fraction(str(spec.validation or 0))
        rows, shares = np.flatnonzero(part == "train"), {"train": 1 - held, "validation": held}
    strata = _strata(table, spec.stratify or ())
    if spec.folds is not None:
        test, held = _fold(strata, spec.folds, fold, rng), Fraction(str(spec.validation or 0))
        rows, held = np.flatnonzero(~test), held * Fraction(spec.folds, spec.folds - 1)
        part[test], shares = "test", {"train": 1 - held, "validation": held}
    part[rows] = sample_parts(rows, shares or part_shares(spec), strata, rng, exact=exact)
    return part


@dataclass(frozen=True)
class Holdout:
    """A share `fraction` of each data set's training rows, held out for a safety test.

    The rows are random, stratified by the columns `stratify` (`label` is the label), or the last
    ones if `positional`.
    """

    fraction: Fraction
    stratify: tuple[str, ...] = ()
    positional: bool = False

    def content(self) -> dict[str, Any]:
        """Return the settings that are part of a trial's key."""
        return {
            "fraction": str(self.fraction),
            "stratify": sorted(self.stratify),
            "positional": self.positional,
        }


def reserve_safety_rows(
    table: Table, rows: NDArray[np.intp], holdout: Holdout, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which of some rows, (m,) with or without repetitions, are held out.

    If `positional`, these are the last rows: the first `round((1 - fraction) m)` train, as in the
    Seldonian Toolkit. Otherwise they are sampled, within one row of the fraction in each stratum.
    Raises E205 if a column to stratify by is missing, E410 if either part would be empty.
    """
    if holdout.positional:
        aside = np.arange(len(rows)) >= round((1 - holdout.fraction) * len(rows))
    else:
        shares = {"train": 1 - holdout.fraction, "safety": holdout.fraction}
        part = sample_parts(rows, shares, _strata(table, holdout.stratify), rng)
        aside = np.asarray(part == "safety")
    for name, there in (("safety", aside), ("train", ~aside)):
        if not there.any():
            message = f"the {name} part would be empty ({len(rows)} training rows in all)"
            hint = "use another fraction, more rows, or strata of fewer values, such as the label's"
            raise impossible_split_error(message, hint)
    return aside


def is_official(spec: SplitSpec, part: NDArray[np.str_] | None) -> bool:
    """Return whether rows keep the official split `part`; raise E410 if that is impossible."""
    if part is None and spec.official:
        message = "the data set has no official split"
        raise impossible_split_error(message, "specify fractions, for example 'test: 1/3'")
    stated = spec.train is not None or not (spec.test is None or spec.has_no_test)
    default = not stated and spec.order is None and spec.folds is None
    return part is not None and (default if spec.official is None else spec.official)


def _by_column(table: Table, name: str) -> NDArray[np.str_]:
    values = _column(table, name)
    wrong = values[~values.isin(SPLIT_NAMES)].tolist()
    if wrong:
        message = f"column '{name}' holds {wrong[0]!r}, which is not a split"
        hint = "its values must be train, validation or test"
        if not is_text(values) or is_date(str(wrong[0])):
            hint += (
                f"; to test on the largest values: split: {{order: {json.dumps(name)}, test: 1/3}}"
            )
        raise impossible_split_error(message, hint)
    return values.to_numpy(dtype="<U10")


def _by_order(values: pd.Series, spec: SplitSpec) -> NDArray[np.str_]:
    """Return parts in the order of the values; equal values are in the part of their middle row."""
    order = values
    if is_text(values):
        order = pd.to_datetime(values, format="ISO8601", utc=True, errors="coerce")
    if order.isna().any():
        row = int(np.argmax(order.isna()))
        if values.isna()[row]:
            message, hint = f"has no value in row {row + 1}", "fill it in, or leave out such rows"
        else:
            message = f"has '{values[row]}' in row {row + 1}, not a number or a date"
            hint = "write dates as year-month-day, as in 2024-05-31 or 2024-05-31T08:30"
        raise impossible_split_error(f"column '{values.name}' {message}", hint)
    codes, _ = pd.factorize(order, sort=True)
    counts = np.bincount(codes)
    middle = (np.cumsum(counts) - counts / 2) / len(codes)
    shares = part_shares(spec)
    ends = np.cumsum([float(share) for share in shares.values()])[:-1]
    return np.array(list(shares), "<U10")[np.searchsorted(ends, middle)][codes]


def part_shares(spec: SplitSpec) -> dict[str, Fraction]:
    """Return the shares of the three parts.

    By default, test has 1/3, or one fold, or the rest if the training share is given. Validation
    has none, and training the rest.
    """
    stated = spec.stated() | ({"test": Fraction(1, spec.folds)} if spec.folds else {})
    given = {key: Fraction(str(stated[key])) for key in SPLIT_NAMES if key in stated}
    shares = {"validation": Fraction(0)} | given
    if "train" in given:
        shares.setdefault("test", 1 - shares["train"] - shares["validation"])
    shares.setdefault("test", _TEST)
    shares.setdefault("train", 1 - shares["validation"] - shares["test"])
    if sum(shares.values()) != 1 or min(shares.values()) < 0:
        message = f"the fractions {', '.join(given)} do not sum to 1 or leave a rest"
        raise impossible_split_error(message, "leave one out: it gets the rest")
    return {part: shares[part] for part in SPLIT_NAMES}


def _fold(
    strata: NDArray[np.int64], folds: int, fold: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which rows are in one of some folds; `rng` must be in the same state for each."""
    found = np.zeros(len(strata), dtype=bool)
    for value in np.unique(strata):
        members = rng.permutation(np.flatnonzero(strata == value))
        first, last = np.floor(np.array([fold, fold + 1]) * len(members) / folds + rng.random())
        found[members[int(first) : int(last)]] = True
    return found


def _strata(table: Table, names: Sequence[str]) -> NDArray[np.int64]:
    """Return a number for each row, equal where all the named columns are equal."""
    if not names:
        return np.zeros(len(table), dtype=np.int64)
    columns = {
        name: pd.Series(table.label) if name == "label" else _column(table, name) for name in names
    }
    groups = pd.DataFrame(columns).groupby(list(columns), sort=True, dropna=False)
    return np.asarray(groups.ngroup(), dtype=np.int64)


def _column(table: Table, name: str) -> pd.Series:
    if name not in table.frame:
        raise missing_column_error(name, map(str, table.frame.columns))
    return table.frame[name]


def missing_column_error(name: str, columns: Iterable[str]) -> FaultError:
    hint = did_you_mean(name, columns, "columns")
    return FaultError(Diagnostic("E205", f"'{name}' is not a column", hint, loc=("split",)))


def sample_parts(
    rows: NDArray[np.int64],
    shares: Mapping[str, Fraction],
    strata: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    exact: bool = True,
) -> NDArray[np.str_]:
    """Sample parts for `rows`, within one row of each share in each stratum.

    Unless `exact`, counts are rounded up or down at random, so that the shares of many tables
    together are exact on average.
    """
    part, stratum = np.empty(len(rows), dtype="<U10"), strata[rows]
    ends = np.cumsum([float(share) for share in shares.values()])
    for value in np.unique(stratum):
        members = rng.permutation(np.flatnonzero(stratum == value))
        if exact:
            counts: Any = apportion(len(members), list(shares.values()))
        else:
            upto = np.floor(len(members) * ends + rng.random()).astype(np.int64)
            upto[-1] = len(members)
            counts = np.diff(np.minimum(upto, len(members)), prepend=0)
        part[members] = np.repeat(list(shares), counts)
    return part


def apportion(total: int, shares: list[Fraction]) -> list[int]:
    """Return integers that sum to `total`, each within one of its share (largest remainders)."""
    exact = [share * total for share in shares]
    counts = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def check_parts(
    counts: Mapping[str, int], spec: SplitSpec, official: NDArray[np.str_] | None
) -> None:
    """Raise E410 if a part of which `counts` has the number of rows is empty.

    The test part may be empty if its share is 0.
    """
    shared = spec.by is None and not is_official(spec, official)
    wanted = {
        "train": 1,
        "test": not spec.has_no_test and (part_shares(spec)["test"] if shared else 1),
        "validation": Fraction(str(spec.validation or 0)),
    }
    for name, share in wanted.items():
        if share and not counts[name]:
            message = f"the {name} part would be empty ({sum(counts.values())} rows in all)"
            ties = "; rows with equal values stay in one part" if spec.order else ""
            raise impossible_split_error(message, f"use other fractions or more rows{ties}")


def impossible_split_error(message: str, way: str) -> FaultError:
    return FaultError(Diagnostic("E410", message, way, loc=("split",)))
