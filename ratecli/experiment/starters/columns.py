"""The columns of a table that `ratecli init` uses as groups and as features, and why not others."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_numeric_dtype

from ratecli.datasets.columns import as_array, as_float_array, is_text
from ratecli.datasets.table import SliceColumns
from ratecli.datasets.text_format import TextFormat, other_notation_error, spelled_numbers
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.starters.options import StarterOptions
from ratecli.rates.expression import Slice
from ratecli.rates.resolve import MAX_GROUPS, MIN_ROWS, cut_groups
from ratecli.rates.sample import Floats, Mask
from ratecli.rates.scope import Conditions
from ratecli.rates.syntax import SPLITS, Condition, is_date, value_text

MAX_NUMBERS = 8
"""Columns of more numbers are cut into groups."""

MAX_COUNTS = 12
"""Number of values with their rows that are listed."""


@dataclass(frozen=True)
class Groups:
    """Groups of the rows of a table.

    Attributes
    ----------
    columns
        The columns that define them.
    bins
        Where columns of many numbers are cut.
    counts
        The number of rows of each value of the other columns.
    missing
        The number of rows without a value, for each column.
    conditions, members
        The conditions of each group and its rows (n,), by a name for rules.
    left_out
        Whether groups with fewer than `MIN_ROWS` rows are left out.
    """

    columns: Sequence[str]
    bins: Mapping[str, Sequence[float]]
    counts: Mapping[str, Mapping[Any, int]]
    missing: Mapping[str, int]
    conditions: Mapping[str, str]
    members: Mapping[str, Mask]
    left_out: bool

    @property
    def smallest(self) -> tuple[str, int]:
        """The conditions of the smallest group, and its number of rows."""
        name = min(self.members, key=lambda name: self.members[name].sum())
        return self.conditions[name], int(self.members[name].sum())


def find_groups(frame: pd.DataFrame, request: StarterOptions) -> Groups:
    """Return the groups of the named columns; combinations with few rows are left out."""
    cuts = {name: found for name in request.group if (found := _bins(frame[name]))}
    counts = {name: _value_counts(frame[name]) for name in request.group if name not in cuts}
    parts = list[dict[str, Conditions]]()
    for name in request.group:
        if name in cuts:
            groups = cut_groups(name, cuts[name])
            edges = [f"{cut:g}".replace("-", "minus_") for cut in cuts[name]]
            between = [f"{low}_to_{high}" for low, high in itertools.pairwise(edges)]
            values: list[Any] = [f"below_{edges[0]}", *between, f"from_{edges[-1]}"]
        else:
            values = list(counts[name])
            written = (each if isinstance(each, str) else float(each) for each in values)
            groups = [(Condition(name, "=", (value_text(each),)),) for each in written]
        parts.append(dict(zip(_group_names(name, values), groups, strict=True)))
    columns = SliceColumns({name: as_array(frame[name]) for name in request.group})
    conditions, members = dict[str, str](), dict[str, Mask]()
    for choice in itertools.product(*(part.items() for part in parts)) if parts else ():
        name = "__".join(each for each, _ in choice)
        group = tuple(itertools.chain(*(each for _, each in choice)))
        conditions[name], members[name] = str(Slice((), group)), columns.rows(group)
    enough = {name: found for name, found in members.items() if found.sum() >= MIN_ROWS}
    if len(parts) > 1 or len(enough) > 1:
        members = enough
    kept = {name: conditions[name] for name in members}
    missing = {name: int(frame[name].isna().sum()) for name in request.group}
    few = len(members) < len(conditions)
    return Groups(request.group, cuts, counts, missing, kept, members, left_out=few)


def _bins(column: pd.Series) -> list[float]:
    """Return where to cut a column of many numbers into groups; empty if each value is a group."""
    if is_text(column) or column.nunique() <= MAX_NUMBERS:
        return []
    values = as_float_array(column)
    cuts = np.nanquantile(values, [0.25, 0.5, 0.75])
    least, most = np.nanmin(values), np.nanmax(values)
    exact = {float(cut) for cut in cuts if least < cut}
    for digits in range(2, 18):
        rounded = {float(f"{cut:.{digits}g}") for cut in exact}
        if len(rounded) == len(exact) and all(least < cut <= most for cut in rounded):
            break
    # larger whole numbers are written with an exponent
    return [int(cut) if cut.is_integer() and abs(cut) < 1e15 else cut for cut in sorted(rounded)]


def _value_counts(column: pd.Series) -> dict[Any, int]:
    """Return the values of a column of groups, sorted, with their rows; raise E411 for others."""
    counts = column.value_counts().sort_index()
    large = int((counts >= MIN_ROWS).sum())
    if not 2 <= len(counts) <= MAX_GROUPS or (len(counts) > MAX_NUMBERS and large < 2):
        what = "only one value" if len(counts) == 1 else f"{len(counts)} values"
        message = f"the column '{column.name}' has {what}, of which {large} have at least "
        message += f"{MIN_ROWS} rows: each value is a group, and 2 to {MAX_GROUPS} can be compared"
        hint = "name another column with --group, or add one to the table with each row's group"
        raise FaultError(Diagnostic("E411", message, hint))
    return {value: int(count) for value, count in counts.items()}


def _group_names(column: str, values: Iterable[Any]) -> list[str]:
    """Return unique names for groups that can be used in rules, such as `sex_Female`."""
    found: list[str] = []
    for value in values:
        text = unicodedata.normalize("NFKD", f"{column}_{value}")  # accents become characters
        plain = text.encode("ascii", "ignore").decode()
        name = re.sub("[^A-Za-z0-9]+", "_", plain).strip("_")[:60] or "group"
        name = name if re.match("[A-Za-z_]", name) else f"group_{name}"
        taken = [each for each in found if each == name or each.startswith(f"{name}__")]
        found.append(f"{name}__{len(taken) + 1}" if taken else name)
    return found


def format_counts(rows: Mapping[Any, int]) -> str:
    """List the first values with their numbers of rows, and say how many were left out."""
    some = list(rows.items())[:MAX_COUNTS]
    shown = [f"{quoted(name)} ({format_rows(count)})" for name, count in some]
    more = len(rows) - len(some)
    return ", ".join(shown + [f"and {more} more"] * bool(more))


def format_rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def quoted(value: Any) -> str:
    """Quote a column or value for a message, on one line."""
    return json.dumps(str(value), ensure_ascii=False)


FEW_DATES = 10
"""Up to this number of dates are categories, such as the days of cohorts."""
MAX_CATEGORIES = 50
"""Maximum number of values of a text column to be used as a feature, one indicator each."""
DATE = re.compile(r"\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{4}.*")
"""Texts that are dates, perhaps with a time."""
WEIGHT = re.compile("(.*[ _])?weight", re.IGNORECASE)
ID = re.compile(r"(.*[ _-])?(id|ID|Id|key)|.*[a-z]I[dD]")
"""Names of columns that identify rows."""
MAX_STRAY_SHARE = 0.1
"""Largest share of texts in a column of numbers."""
MIN_EQUAL_PAIRS = 10
"""Whole numbers without repeats are IDs if random numbers would repeat more often than this."""
LEAK_AREA = 0.99
"""Area under the ROC curve of a feature alone above which it is reported."""
MIN_KNOWN_NUMBERS = 10
"""A numeric feature needs this many known values, so that the training rows have some."""
OTHER_PARTS = "another column of train and test"
GAPS = "some values are missing, and only the score is used"


@dataclass(frozen=True)
class Features:
    """The columns of a user's table that a model may read.

    Attributes
    ----------
    request
        The options of `ratecli init`.
    used
        The features, by name; none if an existing score is used.
    left_out
        Why each of the other columns is no feature, by name.
    hidden
        The columns of groups, if they are no features.
    codes
        The features whose numbers are categories.
    split
        The key `split` of the data set.
    """

    request: StarterOptions
    used: pd.DataFrame
    left_out: Mapping[str, str]
    hidden: Sequence[str]
    codes: Sequence[str]
    split: Mapping[str, str]

    def keys(self) -> dict[str, Any]:
        """Return the keys of the data set."""
        keys: dict[str, Any] = {
            "scores": [self.request.score] if self.request.score else [],
            "drop": [*self.hidden, *self.left_out],
            "missing": "mean" if self.gaps() else [],
            "categorical": list(self.codes),
        }
        return {key: value for key, value in keys.items() if value != []}

    def weights(self) -> list[str]:
        """Return the features whose names say that they weigh rows."""
        return [str(name) for name in self.used if WEIGHT.fullmatch(str(name))]

    def gaps(self, *, numbers: bool = True) -> dict[str, int]:
        """Return the number of empty cells of each column of numbers, or of texts, that has any."""
        empty = self.used.isna().sum()
        return {
            str(name): rows
            for name, rows in empty.items()
            if rows and is_numeric_dtype(self.used[name]) == numbers
        }


def find_features(
    frame: pd.DataFrame, request: StarterOptions, groups: Groups, form: TextFormat
) -> Features:
    """Return the features of a table in a format, and why other columns are none."""
    # a regressor can hardly equalize the mean errors of groups that it does not know
    hidden = () if request.target else request.group
    kept = {*request.group} - {*hidden, request.order}
    others = [name for name in request.columns if name not in kept]
    columns = frame.drop(columns=list(dict.fromkeys(others)))
    split = {"train": "2/3", "test": "1/3"}
    if request.order:
        split = {"order": request.order, "test": "1/3"}
    elif parts := next((str(name) for name in columns if _has_parts(columns[name])), ""):
        split, columns = {"by": parts}, columns.drop(columns=parts)
    if request.score:
        numbers = columns.select_dtypes("number")  # unused, so gaps in them do not matter
        left_out = {str(each): GAPS for each in numbers if numbers[each].isna().any()}
        used = columns.drop(columns=[*columns])
    else:
        reasons = {
            str(each): OTHER_PARTS if _has_parts(column) else _unusable_reason(column, form)
            for each, column in columns.items()
        }
        left_out = {each: reason for each, reason in reasons.items() if reason}
        used = columns.drop(columns=[*left_out])
    codes = [str(name) for name in used if _is_code(used[name], groups)]
    return Features(request, used, left_out, hidden, codes, split)


def _has_parts(column: pd.Series) -> bool:
    """Whether a column says which rows to train on and to test on."""
    return is_text(column) and {"train", "test"} <= set(column) <= set(SPLITS)


def _is_code(column: pd.Series, groups: Groups) -> bool:
    """Whether a feature is a column of groups with more than two values, whole numbers."""
    if is_text(column) or column.name not in groups.columns or column.name in groups.bins:
        return False
    known = column.dropna()
    return known.nunique() > 2 and bool((known % 1 == 0).all())


def _unusable_reason(column: pd.Series, form: TextFormat) -> str:
    """Return why a column cannot be a feature as it is, "" if it can."""
    if len(column.drop_duplicates()) == 1:
        return "the same value in all rows" if column.notna().all() else "empty"
    if is_text(column):
        words = sorted(set(column) - {None})
        if len(words) > FEW_DATES and all(map(DATE.fullmatch, words)):
            newest = f"; `init --order {shlex.quote(str(column.name))}` tests on the newest"
            return "dates: to train on them, add a year or an age" + newest * all(
                map(is_date, words)
            )
        if other_notation_error(str(column.name), words, form):
            return f"numbers with other signs than in other columns, such as {quoted(words[0])}"
        if len(words) <= MAX_CATEGORIES:
            return ""
        strays = np.isnan(spelled_numbers(pa.array(words, pa.string()), form))
        others = [word for word, stray in zip(words, strays, strict=True) if stray]
        if 0 < len(others) <= MAX_STRAY_SHARE * len(words):
            return f"numbers, except for {quoted(others[0])}: leave such cells empty"
        if len(words) < len(column):
            return f"{len(words)} different texts, too many for categories"
        return f"{len(words)} different texts: probably a row ID"
    return _unusable_numbers(as_float_array(column), str(column.name))


def _unusable_numbers(values: Floats, name: str) -> str:
    """Return why numbers (n,) cannot be a feature, "" if they can."""
    count = int(np.isfinite(values).sum())
    if count < min(len(values), MIN_KNOWN_NUMBERS):
        return f"only {format_rows(count)} with a number: fill in more to use it"
    if len(values) > 1 and (np.diff(values) == 1).all():
        return "consecutive row numbers"
    if not len(np.unique(values)) == len(values) == count > MIN_ROWS:
        return ""
    dense = 2 * MIN_EQUAL_PAIRS * np.ptp(values) < len(values) ** 2
    is_id = (dense and (values % 1 == 0).all()) or ID.fullmatch(name)
    return "a different number in each row: probably a row ID" if is_id else ""


def find_leaks(features: pd.DataFrame, label: Floats) -> Iterator[tuple[str, float]]:
    """Yield the features that alone nearly determine the label, with their area under the curve."""
    known = ~np.isnan(label)
    for name, column in features.items():
        score = _category_means(column, label) if is_text(column) else as_float_array(column)
        both = known & np.isfinite(score)
        if len(np.unique(label[both])) < 2:
            continue
        yes, ranks = label[both] == 1, pd.Series(score[both]).rank()
        area = (ranks[yes].mean() - (yes.sum() + 1) / 2) / (~yes).sum()  # of the ROC curve
        if max(area, 1 - area) > LEAK_AREA:
            yield str(name), max(area, 1 - area)


def _category_means(column: pd.Series, label: Floats) -> Floats:
    """Return the mean label (n,) of the rows with the same text."""
    means = pd.Series(label).groupby(column.to_numpy(), dropna=False).transform("mean")
    return means.to_numpy(dtype=np.float64)
