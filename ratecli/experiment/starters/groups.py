"""The groups that `ratecli init` compares: the values of columns, or ranges of their numbers."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ratecli.datasets.columns import as_array, as_float_array, is_text
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.starters.options import StarterOptions
from ratecli.rates.expression import Slice
from ratecli.rates.resolve import MAX_GROUPS, MIN_ROWS, cut_groups
from ratecli.rates.sample import Mask
from ratecli.rates.scope import Conditions
from ratecli.rates.syntax import Condition, value_text
from ratecli.sampling.slice_columns import SliceColumns

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
    conditions, members
        The conditions of each group and its rows (n,), by a name for rules.
    left_out
        Whether groups with fewer than `MIN_ROWS` rows are left out.
    """

    columns: Sequence[str]
    bins: Mapping[str, Sequence[float]]
    conditions: Mapping[str, str]
    members: Mapping[str, Mask]
    left_out: bool

    @cached_property
    def rows(self) -> dict[str, int]:
        """Number of rows of each group."""
        return {name: int(members.sum()) for name, members in self.members.items()}


def find_groups(frame: pd.DataFrame, request: StarterOptions) -> Groups:
    """Return the groups of the named columns; combinations with few rows are left out."""
    cuts = {each: _bins(frame[each]) for each in request.group}
    parts = list[dict[str, Conditions]]()
    for name in request.group:
        if cuts[name]:
            groups = cut_groups(name, cuts[name])
            edges = [f"{cut:g}".replace("-", "minus_") for cut in cuts[name]]
            between = [f"{low}_to_{high}" for low, high in itertools.pairwise(edges)]
            names = _group_names(name, [f"below_{edges[0]}", *between, f"from_{edges[-1]}"])
            parts.append(dict(zip(names, groups, strict=True)))
        else:
            values = _group_values(frame[name], name)
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
    left_out = len(members) < len(conditions)
    bins = {name: found for name, found in cuts.items() if found}
    return Groups(request.group, bins, kept, members, left_out)


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


def _group_values(column: pd.Series, name: str) -> list[Any]:
    """Return the values of the column, sorted."""
    counts = column.value_counts()
    values, large = counts.index.tolist(), int((counts >= MIN_ROWS).sum())
    if not 2 <= len(values) <= MAX_GROUPS or (len(values) > MAX_NUMBERS and large < 2):
        what = "only one value" if len(values) == 1 else f"{len(values)} values"
        message = f"the column '{name}' has {what}: each value is a group, and "
        message += f"2 to {MAX_GROUPS} can be compared"
        if 2 <= len(values) <= MAX_GROUPS:
            message += f", but {large} of them have at least {MIN_ROWS} rows"
        hint = "name another column with --group, or add one to the table with each row's group"
        raise FaultError(Diagnostic("E411", message, hint))
    return sorted(values)


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


def group_notes(
    frame: pd.DataFrame,
    request: StarterOptions,
    groups: Groups,
) -> Iterator[str]:
    """Say which groups there are, and how many rows belong to none."""
    for name in request.group:
        missing = int(frame[name].isna().sum())
        tail = f"; {format_rows(missing)} without a value belong to no group" * bool(missing)
        if name in groups.bins:
            cuts = ", ".join(f"{cut:g}" for cut in groups.bins[name])
            yield f"{quoted(name)}: cut at {cuts}; a value at a cut is in the group above it{tail}"
        else:
            counts = frame[name].value_counts()
            shown = {value: int(counts[value]) for value in _group_values(frame[name], name)}
            yield f"{quoted(name)}: {format_counts(shown)}{tail}"
    if len(request.group) > 1:
        kept = f"{len(groups.rows)} combinations with at least {MIN_ROWS} rows"
        if groups.rows:
            smallest = min(groups.rows, key=lambda name: groups.rows[name])
            kept += f", the smallest {groups.conditions[smallest]} ({groups.rows[smallest]})"
        yield kept


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
