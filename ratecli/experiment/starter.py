"""Writes a starter experiment for a user's table, from its columns and values.

Every assumption is reported as a note.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from ratecli.config.document import Document
from ratecli.datasets import tables as own
from ratecli.datasets.columns import MISSING_WORDS, as_float_array, is_text, read_label, value_key
from ratecli.datasets.tables import SEPARATOR_HELP, read_table_file
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.experiment.catalogue import STARTERS
from ratecli.experiment.prepare import prepare_document
from ratecli.rates.syntax import Condition, quote

MAX_GROUPS = 8
MAX_CATEGORIES = 50
"""Maximum number of values of a text column to be used as a feature, one indicator each."""
MIN_KNOWN_NUMBERS = 10
"""Minimum number of known values of a numeric feature, so that training rows have some."""
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


def make_starter(request: StarterOptions) -> Starter:
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
    separator = request.separator or own.separator_of(request.table)
    frame = read_table_file(request.table, separator, own.read_own_table)
    _check_columns(request, list(frame.columns))
    positive, negative = _label_values(frame[request.label], request)
    groups = _group_counts(frame[request.group], request.group)
    features = frame.drop(columns=[request.label, request.group])
    reasons = {str(name): _unusable_reason(column) for name, column in features.items()}
    left_out = {name: reason for name, reason in reasons.items() if reason}
    gaps = features.drop(columns=list(left_out)).select_dtypes("number").isna().sum()
    gaps = gaps[gaps > 0].to_dict()
    text = _write_starter(request, separator, positive, groups, left_out, with_gaps=bool(gaps))
    yes, no = _quoted(positive), _quoted(negative)
    notes = [
        f"label    {_quoted(request.label)}: {yes} is positive, {no} is negative",
        f"groups   {_quoted(request.group)}: {_format_counts(groups)}",
        *(f"left out {_quoted(name)}: {reason}" for name, reason in left_out.items()),
    ]
    if gaps:
        notes.append(f"missing  {_format_counts(gaps)}: set to the mean, and marked by a feature")
    return Starter(text, tuple(notes), _check_starter(text, request.path))


def _check_columns(request: StarterOptions, columns: Sequence[str]) -> None:
    for name in (request.label, request.group):
        if name not in columns:
            hint = did_you_mean(name, columns, "columns")
            if mark := own.guess_separator(columns):
                hint = SEPARATOR_HELP.format(mark=repr(mark))
            raise FaultError(Diagnostic("E205", f"'{request.table}' has no column '{name}'", hint))
    if request.label == request.group:
        message = f"'{request.label}' cannot be both the label and the group"
        raise FaultError(Diagnostic("E411", message, "name another column with --group"))


def _label_values(column: pd.Series, request: StarterOptions) -> tuple[str, str]:
    """Return the label's two values as written in the table, the positive one first."""
    shown = {value_key(value): str(value) for value in _column_values(column)}
    if request.positive is None and len(shown) == 2 and not set(shown) <= BOOLEAN_LABELS:
        one, other = sorted(shown.values())
        message = (
            f"the label '{request.label}' has the values '{one}' and '{other}': "
            "which value is positive?"
        )
        hint = f"for example --positive {json.dumps(other)}"
        raise FaultError(Diagnostic("E406", message, hint))
    # raises if the label cannot be used
    label = read_label(column, request.label, request.positive)
    yes = column[label == 1].iloc[0]
    return str(yes), next(word for code, word in shown.items() if code != value_key(yes))


def _column_values(column: pd.Series) -> list[Any]:
    found = column.dropna().unique().tolist()
    return [value for value in found if str(value).strip().casefold() not in MISSING_WORDS]


def _group_counts(column: pd.Series, name: str) -> dict[Any, int]:
    """Return the values of the column, sorted, with their numbers of rows."""
    values = _column_values(column)
    if not 2 <= len(values) <= MAX_GROUPS:
        what = "only one value" if len(values) == 1 else f"{len(values)} values"
        message = (
            f"the column '{name}' has {what}: each value is a group, "
            f"and 2 to {MAX_GROUPS} can be compared"
        )
        hint = "name another column with --group, or add one to the table with each row's group"
        raise FaultError(Diagnostic("E411", message, hint))
    counts = column.value_counts()
    return {value: int(counts[value]) for value in sorted(values)}


def _unusable_reason(column: pd.Series) -> str:
    """Return why a column cannot be a feature as it is, "" if it can."""
    if is_text(column):
        words = set(column) - {None}
        many = len(words) > MAX_CATEGORIES
        return f"{len(words)} different texts: probably a row ID" if many else ""
    values = as_float_array(column)
    count = int(np.isfinite(values).sum())
    if count < min(len(values), MIN_KNOWN_NUMBERS):
        return f"only {_format_row_count(count)} with a number: fill in more to use it"
    running = len(values) > 1 and (np.diff(values) == 1).all()
    return "consecutive row numbers" if running else ""


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
    request: StarterOptions,
    separator: str,
    positive: str,
    groups: Mapping[Any, int],
    left_out: Collection[str],
    *,
    with_gaps: bool,
) -> str:
    ratio = f"min_ratio(positive_rate, by={quote(request.group)})"
    names = _group_names(request.group, groups)
    conditions = {}
    for name, value in zip(names, groups, strict=True):
        values = (value if isinstance(value, str) else float(value),)
        conditions[name] = str(Condition(request.group, "=", values))
    metrics = {f"yes_{name}": f"positive_rate[{name}]" for name in names}
    default = separator == own.separator_of(request.table)
    template = (STARTERS / "own-table.yaml.template").read_text("utf-8")
    return template.format(
        slug=_slug(request.table.stem),
        path=_yaml(_relative_table_path(request)),
        separator="" if default else f"\n    separator: {_yaml(separator)}",
        label=_yaml(request.label),
        positive=_yaml(positive),
        drop=_yaml([request.group, *left_out]),
        missing=MEANS_TEMPLATE if with_gaps else "",
        groups=_yaml_lines(conditions),
        parity=_yaml(f"{ratio} >= kappa"),
        ratio=_yaml(ratio),
        yes=_yaml_lines(metrics),
        columns=", ".join(["error", "ratio", *metrics, "violation.parity"]),
    )


def _relative_table_path(request: StarterOptions) -> str:
    """Return the table's path, relative if it is in the experiment's folder."""
    folder, table = request.path.absolute().parent, request.table.absolute()
    return table.relative_to(folder).as_posix() if table.is_relative_to(folder) else str(table)


def _slug(stem: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")[:60] or "my-table"


def _group_names(column: str, values: Iterable[Any]) -> list[str]:
    """Return unique names for groups that can be used in rules, such as `sex_Female`."""
    found: list[str] = []
    for value in values:
        name = re.sub("[^A-Za-z0-9]+", "_", f"{column}_{value}").strip("_")[:60] or "group"
        name = name if re.match("[A-Za-z_]", name) else f"group_{name}"
        taken = [each for each in found if each == name or each.startswith(f"{name}__")]
        found.append(f"{name}__{len(taken) + 1}" if taken else name)
    return found


def _yaml_lines(rules: Mapping[str, str]) -> str:
    return "\n".join(f"  {name}: {_yaml(rule)}" for name, rule in rules.items())


def _yaml(value: Any) -> str:
    """Return the value as YAML on one line, quoted if needed."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")


def _format_counts(rows: Mapping[Any, int]) -> str:
    return ", ".join(
        f"{_quoted(name)} ({_format_row_count(count)})" for name, count in rows.items()
    )


def _format_row_count(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def _quoted(value: Any) -> str:
    """Quote a column or value for a message, on one line."""
    return json.dumps(str(value), ensure_ascii=False)


MEANS_TEMPLATE = """
    # Missing numbers are replaced by the training mean; the feature COLUMN=(missing) is 1 there.
    missing: mean"""
