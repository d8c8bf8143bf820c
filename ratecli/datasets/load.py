"""Load the `Table` of an entry of `datasets:`, or compute its digest without reading it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets import registry
from ratecli.datasets import tables as own
from ratecli.datasets.columns import (
    FEW_LEVELS,
    CellCounts,
    as_float_array,
    has_stray_words,
    is_text,
    missing_cells_error,
    stray_word_error,
)
from ratecli.datasets.download import (
    DownloadProgress,
    fetch_files,
    missing_source_files,
    sha256_of,
    source_checksums,
)
from ratecli.datasets.entry import DatasetEntry
from ratecli.datasets.label import MISSING_WORDS, read_label, read_number
from ratecli.datasets.paths import find_user_file, resolve_user_path, unreadable_file_error
from ratecli.datasets.source import Raw, Source
from ratecli.datasets.table import Table
from ratecli.datasets.tables import guess_separator
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean, errors_at, exception_line
from ratecli.rates.sample import relative_weights


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


def load_entry_table(
    entry: DatasetEntry,
    base: Path,
    *,
    offline: bool = False,
    progress: DownloadProgress | None = None,
) -> Table:
    """Return the table of one entry; relative paths start from the folder `base`."""
    if entry.source is None:
        return _load_own(entry, base)
    source, settled = registry.find_source(entry.source), registry.settle_options(entry)
    paths = fetch_files(source, offline=offline, progress=progress)
    given = files_from_options(entry, base)
    sums = source_checksums(source)
    raw = Raw(
        paths=paths | given,
        options=settled,
        digest=table_digest(entry, base),
        files=(*sums, *((path.name, sha256_of(path)) for path in given.values())),
    )
    return _run_preparation(source, settled["preparation"], raw)


@errors_at("source")
def _run_preparation(source: Source, preparation: str, raw: Raw) -> Table:
    """Return the table of a preparation; raise E210 if a plugin's preparation fails."""
    plugin = registry.providing_plugin(source)
    try:
        table: object = registry.import_function(source.preparations[preparation])(raw)
    except Exception as error:  # a plugin may raise anything
        if plugin is None or isinstance(error, FaultError):
            raise
        reason = exception_line(error)
        raise plugin.broken(f"its preparation '{preparation}' fails: {reason}") from error
    if plugin is not None and not isinstance(table, Table):
        raise plugin.broken(f"its preparation '{preparation}' does not return a Table")
    assert isinstance(table, Table)
    return table


def table_digest(entry: DatasetEntry, base: Path) -> str:
    """Return the digest of the entry's table; files are hashed but not parsed."""
    if entry.source is None:
        return _own_digest(entry, _own_file(entry, base))
    source, settled = registry.find_source(entry.source), registry.settle_options(entry)
    given = {key: sha256_of(path) for key, path in files_from_options(entry, base).items()}
    return registry.source_digest(source, settled | given, source_checksums(source))


def files_from_options(entry: DatasetEntry, base: Path) -> dict[str, Path]:
    """Return the user's files that source options name, by option; raise E405 if one is missing."""
    paths = {}
    for key in registry.find_source(str(entry.source)).file_options:
        given = getattr(entry, key, None)
        if given is not None:
            with errors_at(key):
                paths[key] = find_user_file(given, base)
                _sha256_or_error(given, paths[key])
    return paths


def missing_entry_files(entry: DatasetEntry, base: Path) -> list[str]:
    """Return the missing files of an entry; those of sources can be fetched."""
    if entry.source is not None:
        return missing_source_files(registry.find_source(entry.source))
    path = resolve_user_path(str(entry.path), base)
    there = path.is_file() or (entry.stream and path.is_dir())
    return [] if there else [str(path)]


@errors_at("path")
def _own_file(entry: DatasetEntry, base: Path) -> Path:
    """Return the path of the file; raise E403 if its sha256 is not the stated one."""
    given = str(entry.path)
    path = find_user_file(given, base)
    check_sha256(entry, _sha256_or_error(given, path))
    return path


def check_sha256(entry: DatasetEntry, found: str) -> None:
    """Raise E403 if the SHA-256 of an entry's file is not the stated one."""
    if entry.sha256 is not None and entry.sha256.lower() != found:
        message = f"'{entry.path}' is not the file that 'sha256' states: its sha256 is {found}"
        hint = f"'sha256' says {entry.sha256.lower()}"
        raise FaultError(Diagnostic("E403", message, hint, loc=("sha256",)))


def _sha256_or_error(given: str, path: Path) -> str:
    """Return the sha256; raise E405 if the file cannot be read."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise unreadable_file_error(given, path, error) from error


def _own_digest(entry: DatasetEntry, path: Path) -> str:
    content = {
        "sha256": sha256_of(path),
        "suffix": path.suffix.lower(),
        "options": entry.table_options(),
    }
    return registry.json_sha256(content)


def _load_own(entry: DatasetEntry, base: Path) -> Table:
    path = _own_file(entry, base)
    with errors_at("path"):
        kind = entry.format or own.table_format(path)
        separator = entry.separator or own.separator_of(path)
        frame = own.read_own_table(path, kind, separator, entry.categorical)
    roles = column_roles(entry, [str(name) for name in frame.columns])
    means = entry.fills_with_means
    for name in roles.features:
        check_feature(frame[name], name, meant_as_text=name in entry.categorical, means=means)
    label_range = registry.label_range(entry)
    return Table(
        frame=frame,
        features=roles.features,
        label=_label(frame, roles.label, label_range, entry.positive),
        label_range=label_range,
        weight=_weight(frame, roles.weight),
        digest=_own_digest(entry, path),
        files=((path.name, sha256_of(path)),),
        missing=means,
    )


def check_feature(
    column: pd.Series, name: str, *, meant_as_text: bool, means: bool = False
) -> None:
    """Raise E407 or E411 if a column cannot be a feature.

    E407 for infinite numbers, and for missing ones unless they are replaced by `means`; E411 for
    words among numbers.
    """
    if is_text(column):
        if not meant_as_text:
            _check_stray_words(column, name)
        return
    values = as_float_array(column)
    missing, infinite = CellCounts.of(np.isnan(values)), CellCounts.of(np.isinf(values))
    if fault := missing_cells_error(name, len(values), missing, infinite, means=means):
        raise FaultError(fault)


def _check_stray_words(column: pd.Series, name: str) -> None:
    """Raise E411 for a column of numbers with a few words among them."""
    if len(set(column)) <= FEW_LEVELS:
        return
    words = column.dropna()
    words = words[~words.str.casefold().isin(MISSING_WORDS)]
    slips = words.map(own.parse_number_word).isna()
    if has_stray_words(words.nunique(), float(slips.mean())):
        row = int(words.index[slips][0])
        raise FaultError(stray_word_error(name, row, words[row]))


def _label(
    frame: pd.DataFrame, name: str | None, label_range: tuple[float, float] | None, positive: Any
) -> NDArray[np.float64]:
    if name is None:
        return np.full(len(frame), np.nan)
    if label_range is not None:
        return read_number(frame[name], name, label_range)
    return read_label(frame[name], name, positive)


@errors_at("weight")
def _weight(frame: pd.DataFrame, name: str | None) -> NDArray[np.float64] | None:
    if name is None:
        return None
    if is_text(frame[name]):
        raise FaultError(
            Diagnostic("E411", f"weight column '{name}' holds text", "name another column")
        )
    weight = as_float_array(frame[name])
    wrong = ~(np.isfinite(weight) & (weight > 0))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0]) + 1  # from 1, not counting the header
        message = f"weight column '{name}' is not a positive number in row {row}"
        raise FaultError(Diagnostic("E411", message, "drop such rows, or give them a small weight"))
    try:
        relative_weights(weight)  # the total over all data sets is checked when they are stacked
    except ValueError as error:
        message = f"weight column '{name}' {error}"
        raise FaultError(Diagnostic("E411", message, "drop rows that should not count")) from None
    return weight
