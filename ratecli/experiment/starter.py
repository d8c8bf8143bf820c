"""Writes a starter experiment for a user's table, from its columns and values.

Every assumption is reported as a note.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from ratecli.config.document import Document
from ratecli.datasets import tables as own
from ratecli.datasets.columns import as_float_array, is_text
from ratecli.datasets.label import MISSING_WORDS, read_label, value_key
from ratecli.datasets.paths import resolve_user_path
from ratecli.datasets.tables import SEPARATOR_HELP, read_table_file
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.experiment.prepare import prepare_document
from ratecli.rates.syntax import Condition, quote

MAX_GROUPS = 8
MAX_CATEGORIES = 50
"""Maximum number of values of a text column to be used as a feature, one indicator each."""
MIN_KNOWN_NUMBERS = 10
"""Minimum number of known values of a numeric feature, so that training rows have some."""
DECIMAL_COMMA = re.compile(r"[+-]?\d+(?:\.\d{3})*,\d+")
BOOLEAN_LABELS = {"0", "1", "-1", "false", "true"}
"""Labels for which the positive value is clear."""


@dataclass(frozen=True)
class StarterOptions:
    """Options of `ratecli init`.

    Attributes
    ----------
    table
        The user's table.
    label, group
        Its columns of labels and groups.
    path
        The experiment file to write.
    positive
        The positive value of the label; None if the labels are 0 and 1, or false and true.
    separator
        The separator of columns; None for the default of the file type.
    """

    table: Path
    label: str
    group: str
    path: Path
    positive: str | None = None
    separator: str | None = None


@dataclass(frozen=True)
class Starter:
    """The text of the experiment, notes on what was assumed, and warnings."""

    text: str
    notes: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class OddColumns:
    """Columns that need attention: unusable ones with the reason, and those with gaps.

    `gaps` maps each other column with missing numbers to the number of affected rows.
    """

    left_out: dict[str, str]
    gaps: dict[str, int]

    @classmethod
    def of(cls, features: pd.DataFrame) -> OddColumns:
        left_out = _unusable_columns(features)
        counts = features.select_dtypes("number").isna().sum()
        gaps = {str(name): int(count) for name, count in counts[counts > 0].items()}
        return cls(left_out, {name: gaps[name] for name in gaps if name not in left_out})


def make_starter(asked: StarterOptions) -> Starter:
    """Return an experiment on the table that runs without changes.

    It minimizes the error while both groups get positive decisions nearly equally often.

    Raises
    ------
    FaultError
        E104, E404, E405 if the file is not a table; E205 for a missing column; E406 for a label
        that does not have two values or whose positive value is unclear; E411 for a column that
        defines no groups. Anything else that keeps the table from a run raises the same error as
        the run.
    """
    separator = asked.separator or own.separator_of(asked.table)
    frame = read_table_file(asked.table, separator, own.read_own_table)
    _check_columns(asked, list(frame.columns))
    positive, negative = _label_values(frame[asked.label], asked)
    groups = _group_counts(frame[asked.group], asked.group)
    odd = OddColumns.of(frame.drop(columns=[asked.label, asked.group]))
    text = _write_starter(asked, separator, positive, groups, odd)
    notes = (
        (
            f"label    {_format_value(asked.label)}: {_format_value(positive)} counts as yes, "
            f"{_format_value(negative)} as no"
        ),
        f"groups   {_format_value(asked.group)}: {_format_counts(groups)}",
        *(f"left out {_format_value(name)}: {why}" for name, why in odd.left_out.items()),
        *(
            [f"missing  {_format_counts(odd.gaps)}: the mean, and a feature that says where"]
            if odd.gaps
            else []
        ),
    )
    return Starter(text, notes, _check_starter(text, asked.path))


def _check_columns(asked: StarterOptions, columns: Sequence[str]) -> None:
    for name in (asked.label, asked.group):
        if name not in columns:
            hint = did_you_mean(name, columns, "columns")
            if mark := own.guess_separator(columns):
                hint = SEPARATOR_HELP.format(mark=repr(mark))
            raise FaultError(Diagnostic("E205", f"'{asked.table}' has no column '{name}'", hint))
    if asked.label == asked.group:
        message = f"'{asked.label}' cannot be both the label and the group"
        raise FaultError(Diagnostic("E411", message, "name another column with --group"))


def _label_values(column: pd.Series, asked: StarterOptions) -> tuple[str, str]:
    """Return the label's two values as written in the table, the positive one first."""
    shown = {value_key(value): str(value) for value in _column_values(column)}
    if asked.positive is None and len(shown) == 2 and not set(shown) <= BOOLEAN_LABELS:
        one, other = sorted(shown.values())
        message = (
            f"the label '{asked.label}' has the values '{one}' and '{other}': which one is the yes?"
        )
        raise FaultError(
            Diagnostic("E406", message, f"say so, as in --positive {json.dumps(other)}")
        )
    label = read_label(column, asked.label, asked.positive)  # raises if the label cannot be used
    yes = column[label == 1].iloc[0]
    return str(yes), next(word for code, word in shown.items() if code != value_key(yes))


def _column_values(column: pd.Series) -> list[Any]:
    found = column.dropna().unique().tolist()
    return [value for value in found if str(value).strip().casefold() not in MISSING_WORDS]


def _group_counts(column: pd.Series, name: str) -> dict[Any, int]:
    """Return the values of the column, sorted, with their numbers of rows."""
    values = _column_values(column)
    if not 2 <= len(values) <= MAX_GROUPS:
        what = "one value only" if len(values) == 1 else f"{len(values)} values"
        message = (
            f"the column '{name}' has {what}: each value is a group, "
            f"and 2 to {MAX_GROUPS} can be compared"
        )
        hint = (
            "name another column with --group, "
            "or add one to the table that says who is in which group"
        )
        raise FaultError(Diagnostic("E411", message, hint))
    counts = column.value_counts()
    return {value: int(counts[value]) for value in sorted(values)}


def _unusable_columns(features: pd.DataFrame) -> dict[str, str]:
    """Return the columns that cannot be features as they are, with the reason."""
    reasons = {
        str(name): _unusable_text(column)
        if is_text(column)
        else _unusable_numbers(as_float_array(column))
        for name, column in features.items()
    }
    return {name: why for name, why in reasons.items() if why}


def _unusable_numbers(values: NDArray[np.float64]) -> str:
    known, infinite = int((~np.isnan(values)).sum()), int(np.isinf(values).sum())
    if infinite:
        return f"infinite in {_format_row_count(infinite)}: correct them to use it"
    if known < min(len(values), MIN_KNOWN_NUMBERS):
        return f"{_format_row_count(known)} only with a number there: fill in more to use it"
    if len(values) > 1 and (np.diff(values) == 1).all():
        return "a running number"
    return ""


def _unusable_text(column: pd.Series) -> str:
    words = set(column) - {None}
    known = (word for word in words if word.casefold() not in MISSING_WORDS)
    if (first := next(known, None)) and all(map(DECIMAL_COMMA.fullmatch, (first, *known))):
        return "numbers with decimal commas: write points to use it"
    if len(words) > MAX_CATEGORIES:
        return f"{len(words)} different texts: a name or number of the row, perhaps"
    return ""


def _check_starter(text: str, path: Path) -> tuple[Diagnostic, ...]:
    """Return warnings about the experiment; raise the errors that would keep it from running.

    Both come without places, since the file is not written yet.
    """
    try:
        found = prepare_document(Document.of_text(text, path)).warnings
    except FaultError as error:
        raise FaultError([replace(fault, place=None) for fault in error.faults]) from None
    return tuple(replace(fault, place=None) for fault in found)


def _write_starter(
    asked: StarterOptions,
    separator: str,
    positive: str,
    groups: dict[Any, int],
    odd: OddColumns,
) -> str:
    column = quote(asked.group)
    names = dict(zip(groups, _group_names(asked.group, groups), strict=True))
    conditions = {
        names[value]: Condition(
            asked.group, "=", (value if isinstance(value, str) else float(value),)
        )
        for value in groups
    }
    yes = {f"yes_{name}": f"positive_rate[{name}]" for name in names.values()}
    ratio = f"min_ratio(positive_rate, by={column})"
    return STARTER_TEMPLATE.format(
        slug=_slug(asked.table.stem),
        path=_yaml(_relative_table_path(asked)),
        separator=""
        if separator == own.separator_of(asked.table)
        else f"\n    separator: {_yaml(separator)}",
        label=_yaml(asked.label),
        positive=_yaml(positive),
        drop=_yaml([asked.group, *odd.left_out]),
        missing=MEANS_TEMPLATE if odd.gaps else "",
        groups=_yaml_lines((name, str(condition)) for name, condition in conditions.items()),
        parity=_yaml(f"{ratio} >= kappa"),
        ratio=_yaml(ratio),
        yes=_yaml_lines(yes.items()),
        columns=", ".join(["error", "ratio", *yes, "violation.parity"]),
    )


def _relative_table_path(asked: StarterOptions) -> str:
    """Return the table's path, relative if it is in the experiment's folder."""
    base = asked.path.absolute().parent
    table = asked.table.absolute()
    try:
        given = table.relative_to(base).as_posix()
        resolve_user_path(given, base)
    except (ValueError, FaultError):
        return str(table)
    return given


def _slug(stem: str) -> str:
    words = _without_accents(stem).lower()
    return re.sub(r"[^a-z0-9._-]+", "-", words).strip("-._")[:60] or "my-table"


def _without_accents(text: str) -> str:
    """Return the text without accents: 'Sud' for 'Süd'."""
    apart = unicodedata.normalize("NFKD", text)
    return "".join(each for each in apart if not unicodedata.combining(each))


def _group_names(column: str, values: Iterable[Any]) -> list[str]:
    """Return unique names for groups that can be used in rules, such as `sex_Female`."""
    found: list[str] = []
    for value in values:
        words = _without_accents(f"{column}_{value}")
        name = re.sub(r"[\W_]+", "_", words, flags=re.ASCII).strip("_")[:60] or "group"
        name = name if re.match("[A-Za-z_]", name) else f"group_{name}"
        taken = [each for each in found if each == name or each.startswith(f"{name}__")]
        found.append(f"{name}__{len(taken) + 1}" if taken else name)
    return found


def _yaml_lines(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"  {name}: {_yaml(rule)}" for name, rule in pairs)


def _yaml(value: Any) -> str:
    """Return the value as YAML on one line, quoted if needed."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")


def _format_counts(rows: dict[Any, int]) -> str:
    return ", ".join(
        f"{_format_value(name)} ({_format_row_count(count)})" for name, count in rows.items()
    )


def _format_row_count(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def _format_value(value: Any) -> str:
    """Quote a column or value for a message, on one line."""
    return json.dumps(str(value), ensure_ascii=False)


MEANS_TEMPLATE = """
    # A missing number is the mean of the training rows, and a feature COLUMN=(missing) says where.
    missing: mean"""
STARTER_TEMPLATE = """\
# Your own table: what does it cost to say yes to all groups nearly equally often?
#
# Written by `ratecli init`. Check it with `ratecli validate`, run it with `ratecli run`; then
# `ratecli pin` keeps its numbers, and `ratecli check` tells whether a later run still reaches them.
name: {slug}
description: What does it cost to say yes to all groups nearly equally often?

datasets:
  table:
    path: {path}{separator}
    label: {label}
    positive: {positive}
    # No features, but rules see these columns all the same.
    drop: {drop}{missing}
    split: {{train: 2/3, test: 1/3}}

groups:
{groups}

# What to minimize, and what to keep: the group with the fewest yes gets at least kappa \
times as many as
# the one with the most. 0.8 is the 80% rule. `ratecli ls metrics` lists other rates, such as tpr.
objective: error
constraints:
  parity: {parity}

sweep:
  kappa: [0.6, 0.7, 0.8, 0.9, 0.95]

algorithms:
  - unconstrained
  - mixture

seeds: 5

metrics:
  error: error
  ratio: {ratio}
{yes}

report:
  tables:
    - {{rows: [algorithm, variant, kappa], columns: [{columns}]}}
  plots:
    - {{kind: tradeoff, x: ratio, y: error, file: tradeoff}}
"""
