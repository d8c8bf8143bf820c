"""Checks of data sets: their declarations, files and preparations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ratecli.config.base import IDENTIFIER_PATTERN
from ratecli.conformance.outcome import (
    CheckFailedError,
    CheckSkippedError,
    CheckWarningError,
    PluginCheck,
    PluginReport,
    exception_line,
    run_checks,
)
from ratecli.conformance.watch import watch_side_effects
from ratecli.datasets.columns import is_text
from ratecli.datasets.download import fetch_files, source_checksums
from ratecli.datasets.encode import Encoder
from ratecli.datasets.registry import SOURCE_OPTIONS, import_function, json_sha256
from ratecli.datasets.source import Raw, Source
from ratecli.datasets.table import Table
from ratecli.errors import FaultError

SHA256 = re.compile(r"[0-9a-f]{64}")
MIN_ROWS = 200
"""Rows of a generated table that is checked."""
MAX_LISTED = 20
"""Tables with more features than this need not name them in their notes."""
PART_VALUES = {"train", "validation", "test"}


@dataclass
class SourceSubject:
    """A source and its tables, each of which is prepared once."""

    source: Source
    offline: bool
    made: dict[tuple[str, str], Table] = field(default_factory=dict)
    printed: str = ""

    @cached_property
    def paths(self) -> Mapping[str, Path]:
        """The paths of its files; raises FaultError if they cannot be fetched."""
        return fetch_files(self.source, offline=self.offline)

    def options(self, **given: int) -> dict[str, int]:
        """Return its default options, with few rows if the table is generated."""
        settled = {name: option.default for name, option in self.source.options.items()}
        if "rows" in settled:
            settled["rows"] = max(MIN_ROWS, self.source.options["rows"].least)
        return settled | given

    def table(self, preparation: str, turn: str = "first", **given: int) -> Table:
        """Return the table of a preparation, cached for each `turn`.

        Raises CheckFailedError if the preparation fails or returns no valid Table,
        CheckSkippedError if the files cannot be fetched.
        """
        try:
            paths = self.paths
        except FaultError as error:
            raise CheckSkippedError("its files cannot be had") from error
        if (preparation, turn) not in self.made:
            options: dict[str, Any] = {"preparation": preparation, **self.options(**given)}
            sums = source_checksums(self.source)
            digest = json_sha256({"options": options, "files": [list(each) for each in sums]})
            raw = Raw(paths=dict(paths), options=options, digest=digest, files=sums)
            try:
                with watch_side_effects() as seen:
                    found = import_function(self.source.preparations[preparation])(raw)
            except Exception as error:
                raise CheckFailedError(
                    f"preparation '{preparation}' fails: {exception_line(error)}"
                ) from error
            if not isinstance(found, Table):
                raise CheckFailedError(
                    f"preparation '{preparation}' gives {type(found).__name__}, no Table"
                )
            if found.digest != digest:
                raise CheckFailedError(
                    f"preparation '{preparation}' does not pass on the digest it is given"
                )
            self.printed = self.printed or seen.printed
            self.made[preparation, turn] = found
        return self.made[preparation, turn]

    def tables(self) -> Iterator[tuple[str, Table]]:
        return ((name, self.table(name)) for name in self.source.preparations)


def check_dataset(source: Source, *, origin: str = "", offline: bool = False) -> PluginReport:
    """Check a source; its files are downloaded, or taken from the data folder or mirror.

    If `offline`, the network is not used, and a check fails if files are missing.
    """
    checks = run_checks(DATASET_CHECKS, SourceSubject(source, offline))
    return PluginReport("data set", source.name, origin or "not installed", checks)


def _declared(data: SourceSubject) -> None:
    source = data.source
    for key in ("summary", "label", "licence", "notes"):
        if not getattr(source, key).strip():
            raise CheckFailedError(f"'{key}' is empty")
    if not IDENTIFIER_PATTERN.fullmatch(source.name):
        raise CheckFailedError(f"'{source.name}' is not made of letters, digits and '_'")
    if not source.preparations:
        raise CheckFailedError("it has no preparation")
    odd = [key for key in source.options if key not in SOURCE_OPTIONS]
    if odd:
        raise CheckFailedError(
            f"a file cannot give the option '{odd[0]}', only {', '.join(SOURCE_OPTIONS)}"
        )
    wrong = [key for key in source.numbers if key not in source.preparations]
    if wrong:
        raise CheckFailedError(
            f"'numbers' speaks of the preparation '{wrong[0]}', which there is not"
        )


def _verified(data: SourceSubject) -> None:
    if not data.source.files:
        raise CheckSkippedError("it is generated, and has no files")
    for file in data.source.files:
        if not SHA256.fullmatch(file.sha256):
            raise CheckFailedError(f"'{file.name}' has no sha256")
        if file.size <= 0:
            raise CheckFailedError(f"'{file.name}' has no size")
        if not file.url.startswith("https://"):
            raise CheckWarningError(
                f"'{file.name}' comes from {file.url}, which anyone between can change"
            )
        if Path(file.name).name != file.name:
            raise CheckFailedError(f"'{file.name}' is no plain name of a file")


def _had(data: SourceSubject) -> None:
    if not data.source.files:
        raise CheckSkippedError("it is generated, and has no files")
    _ = data.paths


def _reads(data: SourceSubject) -> None:
    for name, table in data.tables():
        n = len(table)
        if not n:
            raise CheckFailedError(f"preparation '{name}' gives no rows")
        wanted = data.options().get("rows", data.source.rows)
        if n != wanted and name == _first(data):  # other preparations may select rows
            raise CheckFailedError(f"preparation '{name}' gives {n} rows, and {wanted} are stated")
        for key in ("label", "part", "weight", "matrix"):
            array = getattr(table, key)
            if array is not None and array.shape[0] != n:
                raise CheckFailedError(
                    f"'{key}' of preparation '{name}' is of {array.shape[0]} rows, not {n}"
                )


def _columns(data: SourceSubject) -> None:
    for name, table in data.tables():
        where, frame = f"preparation '{name}'", table.frame
        if not frame.index.equals(pd.RangeIndex(len(frame))):
            raise CheckFailedError(f"rows of {where} are not numbered from 0")
        for column in frame.columns:
            _check_column(frame[column], f"column '{column}' of {where}")
        absent = [each for each in (*table.features, *data.source.sensitive) if each not in frame]
        if absent:
            raise CheckFailedError(
                f"{where} has no column '{absent[0]}', which is a feature or sensitive"
            )
        if table.part is not None and not set(table.part.tolist()) <= PART_VALUES:
            odd = sorted(set(table.part.tolist()) - PART_VALUES)
            raise CheckFailedError(
                f"{where} has the split '{odd[0]}', not one of {', '.join(sorted(PART_VALUES))}"
            )
        if table.weight is not None and not (np.isfinite(table.weight) & (table.weight > 0)).all():
            raise CheckFailedError(f"{where} has weights that are not positive numbers")


def _check_column(column: pd.Series, where: str) -> None:
    if not isinstance(column.name, str):
        raise CheckFailedError(f"{where} has no text as its name")
    if is_text(column):
        odd = [each for each in column.unique() if each is not None and not isinstance(each, str)]
        if odd:
            raise CheckFailedError(f"{where} holds {type(odd[0]).__name__} among its texts")
    elif np.isinf(column.to_numpy(dtype=float)).any():
        raise CheckFailedError(f"{where} holds infinite numbers")


def _labels(data: SourceSubject) -> None:
    for name, table in data.tables():
        where, stated = f"the label of preparation '{name}'", data.source.numbers.get(name)
        known = table.label[~np.isnan(table.label)]
        if table.label.dtype != np.float64:
            raise CheckFailedError(f"{where} is of {table.label.dtype}, not of floats")
        if table.label_range != stated:
            raise CheckFailedError(
                f"{where} has the range {table.label_range}, and 'numbers' says {stated}"
            )
        if stated is not None:
            if known.size and not (stated[0] <= known.min() and known.max() <= stated[1]):
                raise CheckFailedError(f"{where} goes from {known.min():g} to {known.max():g}")
        elif not set(np.unique(known)) <= {0.0, 1.0}:
            raise CheckFailedError(f"{where} holds {min(set(known) - {0.0, 1.0}):g}, not 0 and 1")
        elif len(np.unique(known)) == 1:
            raise CheckFailedError(f"{where} has one class only")


def _hidden(data: SourceSubject) -> None:
    """Check that no feature determines the label."""
    for name, table in data.tables():
        known = ~np.isnan(table.label)
        for feature in table.features if known.any() else ():
            column = table.frame[feature][known]
            both = pd.DataFrame({"x": column, "y": table.label[known]}).dropna()
            kinds = both.groupby("x")["y"].nunique()
            telling = len(kinds) > 1 and len(kinds) <= len(both) / 10 and (kinds == 1).all()
            same = not is_text(column) and np.array_equal(
                column.to_numpy(dtype=float), table.label[known]
            )
            if telling or same:
                raise CheckFailedError(
                    f"the feature '{feature}' of preparation '{name}' tells the label"
                )


def _groups(data: SourceSubject) -> None:
    if not data.source.sensitive:
        raise CheckWarningError("it names no sensitive column: of whom are rates to be compared?")
    for name, table in data.tables():
        for column in data.source.sensitive:
            values = table.frame[column].dropna()
            if values.nunique() < 2:
                raise CheckFailedError(f"'{column}' has one value only in preparation '{name}'")


def _documented(data: SourceSubject) -> None:
    for name, table in data.tables():
        shown = table.features if len(table.features) <= MAX_LISTED else ()
        silent = [
            each
            for each in dict.fromkeys((*data.source.sensitive, *shown))
            if each not in data.source.notes
        ]
        if silent:
            raise CheckWarningError(
                f"'notes' say nothing of the column '{silent[0]}' (preparation '{name}')"
            )


def _repeats(data: SourceSubject) -> None:
    for name, table in data.tables():
        again = data.table(name, "again")
        frames = table.frame.equals(again.frame) and table.features == again.features
        if not (frames and np.array_equal(table.label, again.label, equal_nan=True)):
            raise CheckFailedError(f"preparation '{name}' gives other rows when it is asked again")


def _generated(data: SourceSubject) -> None:
    if "seed" not in data.source.options:
        raise CheckSkippedError("it takes no seed")
    name = _first(data)
    other = data.table(name, "other seed", seed=data.options()["seed"] + 1)
    if other.frame.equals(data.table(name).frame):
        raise CheckFailedError("another seed gives the same rows")


def _encodes(data: SourceSubject) -> None:
    """Check that the table can be encoded as finite features."""
    for name, table in data.tables():
        rows = (
            np.arange(len(table)) if table.part is None else np.flatnonzero(table.part == "train")
        )
        X = Encoder.fit([table], [rows]).transform(table)
        numbers = X if isinstance(X, np.ndarray) else X.data
        if X.shape[1] == 0 or not np.isfinite(numbers).all():
            raise CheckFailedError(
                f"the features of preparation '{name}' are none, or are not all numbers"
            )


def _silent(data: SourceSubject) -> None:
    for _ in data.tables():
        pass
    if data.printed:
        raise CheckFailedError(f"a preparation prints '{data.printed.strip()[:40]}'")


def _first(data: SourceSubject) -> str:
    return next(iter(data.source.preparations))


DATASET_CHECKS: tuple[PluginCheck[SourceSubject], ...] = (
    PluginCheck(
        "is declared", "fill in the Source: summary, label, licence, notes, preparations", _declared
    ),
    PluginCheck(
        "can be verified",
        "state sha256 and size of each file, as of the bytes published",
        _verified,
    ),
    PluginCheck("can be had", "give the file's own address, or set RATECLI_DATA_MIRROR", _had),
    PluginCheck("is read", "return a Table with digest=raw.digest, and state its rows", _reads),
    PluginCheck("has columns", "make the frame by ratecli.datasets.columns.with_text", _columns),
    PluginCheck(
        "has labels", "1, 0 and NaN; or numbers, with their range under `numbers`", _labels
    ),
    PluginCheck("keeps the label to itself", "leave it out of `features`", _hidden),
    PluginCheck("tells groups", "name columns under `sensitive` that are in the frame", _groups),
    PluginCheck("is documented", "say of each column in `notes` what it holds", _documented),
    PluginCheck(
        "gives the same again",
        "draw from numpy.random.default_rng(raw.options['seed']) only",
        _repeats,
    ),
    PluginCheck("heeds its seed", "use raw.options['seed']", _generated),
    PluginCheck("can be encoded", "numbers without gaps, or text; no infinite values", _encodes),
    PluginCheck("is silent", "print nothing", _silent),
)
