"""Load the `Table` of an entry of `datasets:`, or compute its digest without reading it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from ratecli.config.dataset import MISSING_TO_MEAN, DatasetSpec
from ratecli.datasets import registry
from ratecli.datasets.columns import (
    FEW_LEVELS,
    STRAY_SHARE,
    ColumnFacts,
    LazyMapping,
    missing_cells_error,
    read_label,
    read_number_label,
    read_numbers,
)
from ratecli.datasets.files import (
    fetch_files,
    find_user_file,
    missing_file_error,
    read_errors,
    resolve_user_path,
    sha256_of,
    source_checksums,
    stored_sha256,
)
from ratecli.datasets.logged import check_logged, episode_table
from ratecli.datasets.scores import add_scores
from ratecli.datasets.source import Raw, Source
from ratecli.datasets.table import Table
from ratecli.datasets.tables import (
    FORMAT_BY_SUFFIX,
    TableFile,
    guess_separator,
    not_a_table_error,
    read_own_table,
)
from ratecli.datasets.text_format import (
    OR_TEXT,
    PLAIN,
    TextFormat,
    other_notation_error,
    spelled_numbers,
)
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean, errors_at, exception_line
from ratecli.rates.sample import relative_weights

READING_VERSION = 3
"""Increased when a user's table gives other numbers."""
_NOT_THE_TABLE = {"path", "stream", "sha256", "levels", "scores", "split"}
"""Options of a user's own file that do not change the table."""


def feature_names(
    entry: DatasetSpec, columns: Sequence[str], deployed: str | None = None
) -> tuple[str, ...]:
    """Return the columns that are features; that of the deployed model's decisions is none.

    Raises E205 if a named column does not exist; E411 if a column has two roles or no feature is
    left.
    """
    _check_names(entry, columns)
    taken = {entry.label, entry.weight, entry.division.column, deployed, *(entry.drop or ())}
    logged = () if entry.logged is None else entry.logged.names
    taken |= {*entry.score_columns, *logged}
    for k, name in enumerate(entry.named_features):
        if name in taken:
            message = f"column '{name}' cannot be a feature: it has another role, too"
            loc = (*_features_loc(entry), k)
            raise FaultError(Diagnostic("E411", message, "remove it from 'features'", loc=loc))
    if entry.label is not None and entry.label == entry.weight:
        message = f"column '{entry.label}' cannot be both label and weight"
        raise FaultError(Diagnostic("E411", message, "name another column", loc=("weight",)))
    left = [name for name in columns if name not in taken]
    features = tuple(dict.fromkeys(entry.named_features or left))
    if not features:
        shown = ", ".join(f"'{name}'" for name in columns[:20]) + ", ..." * (len(columns) > 20)
        raise FaultError(Diagnostic("E411", "no column is left as a feature", f"columns: {shown}"))
    return features


def _features_loc(entry: DatasetSpec) -> Loc:
    return ("features",) if entry.kernel is None else ("features", "columns")


def _check_names(entry: DatasetSpec, columns: Sequence[str]) -> None:
    """Raise an E205 for each column that the entry names and the table does not have."""
    named: list[tuple[Loc, str | None]] = [(("label",), entry.label), (("weight",), entry.weight)]
    named += [((*_features_loc(entry), k), name) for k, name in enumerate(entry.named_features)]
    for key in ("drop", "categorical"):
        named += [((key, k), name) for k, name in enumerate(getattr(entry, key) or ())]
    named += [(("scores", k), name) for k, name in enumerate(entry.score_columns)]
    named += [(("logged",), name) for name in (entry.logged.names if entry.logged else ())]
    known, hint = frozenset(columns), ""
    if mark := guess_separator(columns):
        hint = f"columns seem to be separated by {mark!r}: set separator: {mark!r}"
    faults = [
        Diagnostic(
            "E205",
            f"'{name}' under '{loc[0]}' is not a column",
            hint or did_you_mean(name, columns, "columns"),
            loc=loc,
        )
        for loc, name in named
        if name is not None and name not in known
    ]
    if faults:
        raise FaultError(faults)


def load_entry_table(
    entry: DatasetSpec, base: Path, *, deployed: str | None = None, offline: bool = False
) -> Table:
    """Return the table of one entry; relative paths start from the folder `base`.

    `deployed` is the column of a deployed model's decisions, which is not a feature.
    """
    if entry.source is None:
        files = find_files(entry, base, deployed)
        return add_scores(_load_own(entry, files, deployed), entry, files.scores)
    source, settled = registry.find_source(entry.source), registry.settle_options(entry)
    paths, files = fetch_files(source, offline=offline), find_files(entry, base)
    raw = Raw(
        paths=paths | files.options,
        options=settled,
        digest=files.digest,
        files=files.sums,
        columns=source.columns,
        logged=source.logged.get(settled["preparation"]),
    )
    table = _run_preparation(source, settled["preparation"], raw)
    return add_scores(_without_dropped(table, entry), entry, files.scores)


def _without_dropped(table: Table, entry: DatasetSpec) -> Table:
    """Return the table of a source without the features that the entry drops.

    Raises E205 if it has no such column, and E411 if its features are no columns or none is left.
    """
    if not entry.drop:
        return table
    _check_names(entry, list(table.frame.columns))
    left = tuple(name for name in table.features if name not in entry.drop)
    if not left:
        message = "no column is left as a feature"
        if table.matrix is not None:
            message = "no column can be dropped: the features are ready-made"
        raise FaultError(Diagnostic("E411", message, loc=("drop",), key=True))
    return replace(table, features=left)


@errors_at("source")
def _run_preparation(source: Source, preparation: str, raw: Raw) -> Table:
    """Return the table of a preparation; raise E210 if a plugin's preparation fails."""
    plugin = registry.providing_plugin(source)
    try:
        table: object = registry.import_function(source.preparations[preparation])(raw)
    except BaseException as error:  # a plugin may raise anything
        if plugin is None or isinstance(error, FaultError | KeyboardInterrupt):
            raise
        reason = f"its preparation '{preparation}' fails: {exception_line(error)}"
        raise plugin.broken(reason) from error
    if plugin is not None and not isinstance(table, Table):
        raise plugin.broken(f"its preparation '{preparation}' does not return a Table")
    assert isinstance(table, Table)
    # a plugin may change its own arrays later
    return table if plugin is None else replace(deepcopy(table))


@dataclass(frozen=True)
class EntryFiles:
    """The files of an entry of `datasets:`, and the digest of the table that is made of them.

    Attributes
    ----------
    own
        The user's table, in order; empty for a source.
    options, scores
        The user's files that options of a source name, and those of scores, by name.
    sums
        The name and SHA-256 of each file, for the records of trials.
    digest
        Identifies the table. Files are hashed for it, but not parsed.
    """

    own: tuple[TableFile, ...]
    options: dict[str, Path]
    scores: dict[str, Path]
    sums: tuple[tuple[str, str], ...]
    digest: str

    @cached_property
    def names(self) -> list[str]:
        """The column names of `own`; raise E404 if a file has other columns than the first."""
        first, *others = self.own
        names = first.names()
        for file in others:
            found = file.names()
            if found != names:
                other = [*sorted({*names} ^ {*found}), "the order"][0]
                reason = f"its columns are not those of '{first.path.name}': '{other}'"
                hint = "all files of a table need the same columns"
                raise not_a_table_error(file.path, reason, hint)
        return names


def find_files(entry: DatasetSpec, base: Path, deployed: str | None = None) -> EntryFiles:
    """Return the files of an entry; those of a source itself need not be there yet.

    Raises
    ------
    FaultError
        E405 if one of the user's files is missing, E404 if its format is unknown, E403 if its
        SHA-256 is not the stated one.
    """
    own, options = tuple[TableFile, ...](), dict[str, Path]()
    if entry.source is None:
        own, sums, digest = _find_own_files(entry, base, deployed)
    else:
        source = registry.find_source(entry.source)
        given = {key: getattr(entry, key, None) for key in source.file_options}
        options = _user_files(given, base)
        settled = registry.settle_options(entry) | _sha256_of_each(options)
        sums = source_checksums(source)
        digest = registry.source_digest(source, settled, sums)
        sums += tuple((path.name, sha256_of(path)) for path in options.values())
        if entry.drop:
            digest = registry.json_sha256({"table": digest, "drop": sorted({*entry.drop})})
    scores = _user_files(entry.score_files, base, "scores")
    if entry.scores:
        files = [*_sha256_of_each(scores).items()]
        content = {"table": digest, "columns": entry.score_columns, "files": files}
        digest = registry.json_sha256(content)
        sums += tuple((path.name, sha256_of(path)) for path in scores.values())
    return EntryFiles(own, options, scores, sums, digest)


def _user_files(given: Mapping[str, str | None], base: Path, *loc: str) -> dict[str, Path]:
    """Return the user's files by name, except where there is none; E405 if one is missing."""
    paths = {}
    for name, file in given.items():
        if file is not None:
            with errors_at(*loc, name), read_errors(file):
                paths[name] = find_user_file(file, base)
                sha256_of(paths[name])
    return paths


def _sha256_of_each(paths: Mapping[str, Path]) -> dict[str, str]:
    return {name: sha256_of(path) for name, path in paths.items()}


@errors_at("path")
def _find_own_files(
    entry: DatasetSpec, base: Path, deployed: str | None
) -> tuple[tuple[TableFile, ...], tuple[tuple[str, str], ...], str]:
    """Return the file of an entry, its name and SHA-256, and the digest of its table.

    If it is streamed, the files may be all tables of a folder, by name.
    """
    given = str(entry.path)
    path = resolve_user_path(given, base)
    if not (entry.stream and path.is_dir()):
        paths = [find_user_file(given, base)]
    else:
        paths = sorted(each for each in path.iterdir() if each.suffix.lower() in FORMAT_BY_SUFFIX)
        if not paths:
            way = "put files that end in .parquet or .csv there"
            raise missing_file_error(given, "is a folder without a table", way)
    files = tuple(TableFile.of(each, TextFormat.of_spec(entry), entry.format) for each in paths)
    sums = _checksums(entry, paths)
    content: dict[str, Any] = {"sha256": sums[0], "suffix": paths[0].suffix.lower()}
    if entry.stream:
        content = {"streamed": sums, "kind": files[0].kind}
    options = entry.model_dump(mode="json", exclude_none=True, exclude=_NOT_THE_TABLE)
    content |= {"reading": READING_VERSION, "options": options}
    content |= {"others": [entry.division.column, deployed]}
    named = tuple((each.name, sha256) for each, sha256 in zip(paths, sums, strict=True))
    return files, named, registry.json_sha256(content)


def _checksums(entry: DatasetSpec, paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the SHA-256 of each file; raise E403 if it differs from the stated one.

    The sums of streamed files are stored, and computed again only if one is stated.
    """
    read = stored_sha256 if entry.stream and entry.sha256 is None else sha256_of
    with read_errors(str(entry.path)):
        sums = tuple(map(read, paths))
    if entry.sha256 is not None and sums != (entry.sha256.lower(),):
        message = f"'{entry.path}' is not the file that 'sha256' states: its sha256 is {sums[0]}"
        hint = f"expected: {entry.sha256.lower()}"
        raise FaultError(Diagnostic("E403", message, hint, loc=("sha256",)))
    return sums


def _load_own(entry: DatasetSpec, files: EntryFiles, deployed: str | None) -> Table:
    with errors_at("path"):
        frame = read_own_table(files.own[0], entry.categorical or ())
    features = feature_names(entry, [str(name) for name in frame.columns], deployed)
    if entry.logged is not None and not entry.logged.episode:
        check_logged(frame, entry.logged)
    facts = LazyMapping(map(str, frame.columns), lambda name: ColumnFacts.of(frame[name]))
    check_columns(entry, features, facts, len(frame))
    label_range, label = registry.label_range(entry), np.full(len(frame), np.nan)
    if entry.label is not None and label_range is not None:
        label = read_number_label(frame[entry.label], label_range)
    elif entry.label is not None:
        label = read_label(frame[entry.label], entry.label, entry.positive)
    if entry.logged is not None and entry.logged.episode:
        return episode_table(frame, features, entry.logged, digest=files.digest, files=files.sums)
    return Table(
        frame=frame,
        features=features,
        label=label,
        label_range=label_range,
        weight=None if entry.weight is None else _read_weight(frame[entry.weight]),
        digest=files.digest,
        files=files.sums,
        missing=entry.missing == MISSING_TO_MEAN,
        logged=entry.logged,
    )


def check_columns(
    entry: DatasetSpec,
    features: Sequence[str],
    facts: Mapping[str, ColumnFacts],
    rows: int,
) -> None:
    """Raise the first error of columns that cannot be numbers or features.

    Features with the same value in all rows are left out, and need not be right.
    """
    form = TextFormat.of_spec(entry)
    for name in [name for name in entry.number_columns if name in facts]:
        if fault := other_notation_error(name, facts[name].words, form):
            raise FaultError(fault)
    for name in features:
        if facts[name].only_value(rows) is None:
            meant_as_text = name in (entry.categorical or ())
            means = entry.missing == MISSING_TO_MEAN
            fault = feature_error(facts[name], form, meant_as_text=meant_as_text, means=means)
            if fault is not None:
                raise FaultError(fault)


def check_feature(column: pd.Series, *, meant_as_text: bool, means: bool = False) -> None:
    """Raise the error of a column that cannot be a feature (`feature_error`)."""
    facts = ColumnFacts.of(column)
    if fault := feature_error(facts, PLAIN, meant_as_text=meant_as_text, means=means):
        raise FaultError(fault)


def feature_error(
    facts: ColumnFacts, form: TextFormat, *, meant_as_text: bool, means: bool
) -> Diagnostic | None:
    """Return the E407 or E411 for a column that cannot be a feature, or None.

    E407 for infinite numbers, and for missing ones unless they are replaced by `means`; E411 for
    numbers in another notation, and for a few other words among numbers.
    """
    name = facts.name
    many = None
    if not facts.is_text:
        return missing_cells_error(name, facts.missing, facts.infinite, means=means)
    if not facts.kept:
        message = f"column '{name}' has more than {len(facts.words) - 1} values"
        many = Diagnostic("E411", message, "drop it")
    if meant_as_text:
        return many
    if fault := other_notation_error(name, facts.words, form, OR_TEXT):
        return fault
    words = [word for word in facts.words if word is not None]
    cells = zip(facts.words, facts.counts, facts.firsts, strict=True)
    counts, firsts = np.array([cell[1:] for cell in cells if cell[0] is not None], int).T
    strays = np.isnan(spelled_numbers(pa.array(words, pa.string()), form))
    share = counts[strays].sum() / counts.sum()
    if len(words) <= FEW_LEVELS or not 0 < share < STRAY_SHARE:
        return many
    first = int(np.where(strays, firsts, np.inf).argmin())
    message = f"column '{name}' holds numbers, except for '{words[first]}' in row"
    hint = "correct it, or name the column under 'categorical' or 'drop'"
    return Diagnostic("E411", f"{message} {firsts[first] + 1}", hint)


@errors_at("weight")
def _read_weight(column: pd.Series) -> NDArray[np.float64]:
    weight = read_numbers(
        column,
        "weight column",
        (sys.float_info.min, sys.float_info.max),
        wanted="a positive number",
        code="E411",
        hint="drop such rows, or give them a small weight",
    )
    try:
        relative_weights(weight)  # the total over all data sets is checked when they are stacked
    except ValueError as error:
        message = f"weight column '{column.name}' {error}"
        raise FaultError(Diagnostic("E411", message, "drop rows that should not count")) from None
    return weight
