"""The roles of the columns in a user's own table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratecli.datasets.entry import DatasetEntry
from ratecli.datasets.tables import guess_separator
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean


@dataclass(frozen=True)
class ColumnRoles:
    """The columns used as label, weight and features."""

    label: str | None
    weight: str | None
    features: tuple[str, ...]


def column_roles(entry: DatasetEntry, columns: Sequence[str]) -> ColumnRoles:
    """Return the checked roles of the columns.

    Raises E205 if a named column does not exist; E411 if a column has two roles or no feature is
    left.
    """
    label, weight = entry.label, entry.weight
    _check_names(entry, columns)
    taken = {label: "the label", weight: "the weight", entry.split.by: "what splits the rows"}
    taken |= dict.fromkeys(entry.drop, "dropped")
    taken[entry.deployed] = "the deployed model's decisions"
    for k, name in enumerate(entry.features):
        if name in taken:
            message = f"column '{name}' cannot be a feature: it is {taken[name]}"
            loc = ("features", k)
            raise FaultError(Diagnostic("E411", message, "take it out of 'features'", loc=loc))
    if label is not None and label == weight:
        message = f"column '{label}' cannot be both label and weight"
        raise FaultError(Diagnostic("E411", message, "name another column", loc=("weight",)))
    left = [name for name in columns if name not in taken]
    features = tuple(dict.fromkeys(entry.features or left))
    if not features:
        shown = ", ".join(f"'{name}'" for name in columns[:20]) + ", ..." * (len(columns) > 20)
        raise FaultError(Diagnostic("E411", "no column is left as a feature", f"columns: {shown}"))
    return ColumnRoles(label, weight, features)


def _check_names(entry: DatasetEntry, columns: Sequence[str]) -> None:
    named: dict[Loc, str] = {
        (key,): name for key in ("label", "weight") if (name := getattr(entry, key)) is not None
    } | {
        (key, k): name
        for key in ("features", "drop", "categorical")
        for k, name in enumerate(getattr(entry, key))
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
