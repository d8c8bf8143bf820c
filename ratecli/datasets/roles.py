"""The roles of the columns in a user's own table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.datasets.missing import MISSING_IS_ERROR
from ratecli.datasets.tables import guess_separator
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean

EntryOptions = Mapping[str, Any]


TABLE_OPTIONS = (
    "format",
    "separator",
    "label",
    "positive",
    "target",
    "label_range",
    "features",
    "drop",
    "weight",
    "categorical",
    "missing",
    "deployed",
)
"""Options that change the table; those of the split change trials instead."""


def table_options_of(options: EntryOptions) -> dict[str, Any]:
    """Return the options of an entry that change the table."""
    stated = {key: options[key] for key in TABLE_OPTIONS if key in options}
    if stated.get("missing") == MISSING_IS_ERROR:  # the default
        del stated["missing"]
    if by := options.get("split", {}).get("by"):
        stated["by"] = by
    return stated


@dataclass(frozen=True)
class ColumnRoles:
    """The columns used as label, weight and features."""

    label: str | None
    weight: str | None
    features: tuple[str, ...]


def column_roles(options: EntryOptions, columns: Sequence[str]) -> ColumnRoles:
    """Return the checked roles of the columns.

    Raises E205 if a named column does not exist; E411 if a column has two roles or no feature is
    left.
    """
    label, weight = options.get("label"), options.get("weight")
    by = options.get("split", {}).get("by")
    _check_names(options, columns)
    taken = {label: "the label", weight: "the weight", by: "what splits the rows"}
    taken |= dict.fromkeys(options.get("drop", ()), "dropped")
    taken[options.get("deployed")] = "the deployed model's decisions"
    stated = options.get("features")
    for k, name in enumerate(stated or ()):
        if name in taken:
            message = f"column '{name}' cannot be a feature: it is {taken[name]}"
            loc = ("features", k)
            raise FaultError(Diagnostic("E411", message, "take it out of 'features'", loc=loc))
    if label is not None and label == weight:
        message = f"column '{label}' cannot be both label and weight"
        raise FaultError(Diagnostic("E411", message, "name another column", loc=("weight",)))
    left = [name for name in columns if name not in taken]
    features = tuple(dict.fromkeys(left if stated is None else stated))
    if not features:
        shown = ", ".join(f"'{name}'" for name in columns[:20]) + ", ..." * (len(columns) > 20)
        raise FaultError(Diagnostic("E411", "no column is left as a feature", f"columns: {shown}"))
    return ColumnRoles(label, weight, features)


def _check_names(options: EntryOptions, columns: Sequence[str]) -> None:
    named: dict[Loc, str] = {
        (key,): options[key] for key in ("label", "weight") if key in options
    } | {
        (key, k): name
        for key in ("features", "drop", "categorical")
        for k, name in enumerate(options.get(key, ()))
    }
    known, mark = frozenset(columns), guess_separator(columns)
    said = mark and f"columns seem to be separated by {mark!r}: say separator: {mark!r}"
    faults = [
        Diagnostic(
            "E205",
            f"'{name}' under '{loc[0]}' is not a column",
            said or did_you_mean(name, columns, "columns"),
            loc=loc,
        )
        for loc, name in named.items()
        if name not in known
    ]
    if faults:
        raise FaultError(faults)
