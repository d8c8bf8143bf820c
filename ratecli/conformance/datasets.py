"""Checks of data sets: their declarations, files and preparations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ratecli.config.base import IDENTIFIER_PATTERN
from ratecli.conformance.outcome import (
    Caution,
    CheckFailedError,
    CheckList,
    PluginReport,
    run_checks,
    skip,
    watch_side_effects,
)
from ratecli.datasets.columns import is_text
from ratecli.datasets.download import fetch_files, source_checksums
from ratecli.datasets.encode import Encoder
from ratecli.datasets.registry import SOURCE_OPTIONS, import_function, json_sha256
from ratecli.datasets.source import Raw, Source
from ratecli.datasets.split import SPLIT_NAMES
from ratecli.datasets.table import Table
from ratecli.errors import FaultError, exception_line

SHA256 = re.compile(r"[0-9a-f]{64}")
MIN_ROWS = 200
"""Rows of a generated table that is checked."""
MAX_LISTED = 20
"""Tables with more features than this need not name them in their notes."""


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

    @property
    def options(self) -> dict[str, int]:
        """Its default options, with few rows if the table is generated."""
        default = {name: option.default for name, option in self.source.options.items()}
        if "rows" in default:
            default["rows"] = max(MIN_ROWS, self.source.options["rows"].least)
        return default

    def table(self, preparation: str, turn: str = "first", **changed: int) -> Table:
        """Return the table of a preparation, prepared once for each `turn`.

        Raises CheckFailedError if the preparation fails or returns no valid Table,
        CheckSkippedError if the files cannot be fetched.
        """
        if (preparation, turn) not in self.made:
            self.made[preparation, turn] = self._prepare(preparation, self.options | changed)
        return self.made[preparation, turn]

    def _prepare(self, preparation: str, options: dict[str, Any]) -> Table:
        try:
            paths = self.paths
        except FaultError:
            skip("its files are not available")
        options = {"preparation": preparation, **options}
        sums = source_checksums(self.source)
        digest = json_sha256({"options": options, "files": [list(each) for each in sums]})
        raw = Raw(paths=dict(paths), options=options, digest=digest, files=sums)
        where = f"preparation '{preparation}'"
        try:
            with watch_side_effects() as effects:
                table = import_function(self.source.preparations[preparation])(raw)
        except Exception as error:
            raise CheckFailedError(f"{where} fails: {exception_line(error)}") from error
        if not isinstance(table, Table):
            raise CheckFailedError(f"{where} returns {type(table).__name__}, not a Table")
        if table.digest != digest:
            raise CheckFailedError(f"{where} does not pass on the digest of its input")
        self.printed = self.printed or effects.printed
        return table


DATASET_CHECKS = CheckList[SourceSubject]()
dataset_check = DATASET_CHECKS.check

TableReasons = Callable[[SourceSubject, str, Table], Iterable[str]]


def _each_table(name: str, mend: str) -> Callable[[TableReasons], TableReasons]:
    """Return a decorator that adds a check of every preparation's table."""

    def add(reasons: TableReasons) -> TableReasons:
        @dataset_check(name, mend)
        def _(data: SourceSubject) -> Iterator[str]:
            for preparation in data.source.preparations:
                for reason in reasons(data, preparation, data.table(preparation)):
                    yield type(reason)(f"preparation '{preparation}': {reason}")

        return reasons

    return add


def check_dataset(source: Source, *, origin: str = "", offline: bool = False) -> PluginReport:
    """Check a source; its files are downloaded, or taken from the data folder or mirror.

    If `offline`, the network is not used, and a check fails if files are missing.
    """
    checks = run_checks(DATASET_CHECKS, SourceSubject(source, offline))
    return PluginReport("data set", source.name, origin or "not installed", checks)


@dataset_check("is declared", "fill in all fields of the Source")
def _declared(data: SourceSubject) -> Iterator[str]:
    source = data.source
    for key in ("summary", "label", "licence", "notes"):
        if not getattr(source, key).strip():
            yield f"'{key}' is empty"
    if not IDENTIFIER_PATTERN.fullmatch(source.name):
        yield f"the name '{source.name}' may have letters, digits and '_' only"
    if not source.preparations:
        yield "it has no preparation"
    for key in source.options.keys() - SOURCE_OPTIONS:
        yield f"a file cannot set the option '{key}', only {', '.join(SOURCE_OPTIONS)}"
    for key in source.numbers.keys() - source.preparations.keys():
        yield f"'numbers' names the preparation '{key}', which does not exist"


@dataset_check("can be verified", "state sha256 and size of each published file")
def _verified(data: SourceSubject) -> Iterator[str]:
    if not data.source.files:
        skip("it is generated and has no files")
    for file in data.source.files:
        if not SHA256.fullmatch(file.sha256):
            yield f"'{file.name}' has no sha256"
        if file.size <= 0:
            yield f"'{file.name}' has no size"
        if Path(file.name).name != file.name:
            yield f"'{file.name}' is not a plain file name"
        if not file.url.startswith("https://"):
            yield Caution(f"the address of '{file.name}' is not secure: {file.url}")


@dataset_check("can be fetched", "give the file's own address, or set RATECLI_DATA_MIRROR")
def _fetched(data: SourceSubject) -> Iterator[str]:
    if not data.source.files:
        skip("it is generated and has no files")
    _ = data.paths
    yield from ()


@_each_table("can be read", "return a Table with digest=raw.digest, and state its rows")
def _reads(data: SourceSubject, preparation: str, table: Table) -> Iterator[str]:
    n, stated = len(table), data.options.get("rows", data.source.rows)
    if not n:
        yield "it has no rows"
    # other preparations may select rows
    if n != stated and preparation == next(iter(data.source.preparations)):
        yield f"it has {n} rows, and {stated} are stated"
    for key in ("label", "part", "weight", "matrix"):
        array = getattr(table, key)
        if array is not None and array.shape[0] != n:
            yield f"'{key}' has {array.shape[0]} rows, not {n}"


@_each_table("has columns", "create the frame with ratecli.datasets.columns.with_text")
def _columns(data: SourceSubject, _: str, table: Table) -> Iterator[str]:
    frame = table.frame
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        yield "its rows are not numbered from 0"
    for name in frame.columns:
        if not isinstance(name, str) or not _is_valid_column(frame[name]):
            yield f"the column {name!r} mixes text with other values, or has infinite numbers"
    for name in (*table.features, *data.source.sensitive):
        if name not in frame:
            yield f"there is no column '{name}', which is a feature or sensitive"
    if table.part is not None and not set(table.part.tolist()) <= set(SPLIT_NAMES):
        yield f"'part' has other values than {', '.join(SPLIT_NAMES)}"
    if table.weight is not None and not (np.isfinite(table.weight) & (table.weight > 0)).all():
        yield "its weights are not all positive numbers"


def _is_valid_column(column: pd.Series) -> bool:
    if is_text(column):
        return all(isinstance(each, str | None) for each in column.unique())
    return not np.isinf(column.to_numpy(dtype=float)).any()


@_each_table("has labels", "1, 0 and NaN; or numbers, with their range under `numbers`")
def _labels(data: SourceSubject, preparation: str, table: Table) -> Iterator[str]:
    stated = data.source.numbers.get(preparation)
    values = np.unique(table.label[~np.isnan(table.label)])
    if table.label.dtype != np.float64:
        yield f"the label has the type {table.label.dtype}, not float64"
    if table.label_range != stated:
        yield f"the label has the range {table.label_range}, and 'numbers' says {stated}"
    low, high = stated or (0.0, 1.0)
    if ((values < low) | (values > high)).any() or (not stated and not set(values) <= {0.0, 1.0}):
        yield f"the label is {values[0]:g} to {values[-1]:g}, not {stated or '0 or 1'}"
    if not stated and len(values) == 1:
        yield "the label has one class only"


@_each_table("hides the label from features", "leave it out of `features`")
def _hidden(_: SourceSubject, __: str, table: Table) -> Iterator[str]:
    """Check that no feature determines the label."""
    known = ~np.isnan(table.label)
    label = table.label[known]
    for feature in table.features if known.any() else ():
        column = table.frame[feature][known]
        both = pd.DataFrame({"x": column, "y": label}).dropna()
        classes = both.groupby("x")["y"].nunique()
        determined = 1 < len(classes) <= len(both) / 10 and (classes == 1).all()
        numeric = not is_text(column)
        if determined or (numeric and np.array_equal(column.to_numpy(dtype=float), label)):
            yield f"the feature '{feature}' determines the label"


@dataset_check("has groups", "name columns of the frame under `sensitive`")
def _groups(data: SourceSubject) -> Iterator[str]:
    if not data.source.sensitive:
        yield Caution("it names no sensitive column, so that no groups can be compared")
    for name in data.source.preparations:
        for column in data.source.sensitive:
            if data.table(name).frame[column].dropna().nunique() < 2:
                yield f"preparation '{name}': '{column}' has one value only"


@_each_table("is documented", "describe each column in `notes`")
def _documented(data: SourceSubject, _: str, table: Table) -> Iterator[str]:
    features = table.features if len(table.features) <= MAX_LISTED else ()
    for name in (*data.source.sensitive, *features):
        if name not in data.source.notes:
            yield Caution(f"'notes' do not describe the column '{name}'")


@_each_table("is reproducible", "use numpy.random.default_rng(raw.options['seed']) only")
def _repeats(data: SourceSubject, preparation: str, table: Table) -> Iterator[str]:
    again = data.table(preparation, "again")
    same = table.frame.equals(again.frame) and table.features == again.features
    if not (same and np.array_equal(table.label, again.label, equal_nan=True)):
        yield "a second call returns other rows"


@dataset_check("uses its seed", "use raw.options['seed']")
def _seeded(data: SourceSubject) -> Iterator[str]:
    if "seed" not in data.source.options:
        skip("it has no seed")
    name = next(iter(data.source.preparations))
    other = data.table(name, "other seed", seed=data.options["seed"] + 1)
    if other.frame.equals(data.table(name).frame):
        yield "another seed returns the same rows"


@_each_table("can be encoded", "numbers without gaps, or text; no infinite values")
def _encodes(_: SourceSubject, __: str, table: Table) -> Iterator[str]:
    """Check that the table can be encoded as finite features."""
    train = np.ones(len(table), dtype=bool) if table.part is None else table.part == "train"
    X = Encoder.fit([table], [np.flatnonzero(train)]).transform(table)
    if X.shape[1] == 0 or not np.isfinite(X if isinstance(X, np.ndarray) else X.data).all():
        yield "there are no features, or not all of them are finite numbers"


@_each_table("prints nothing", "remove calls of print")
def _silent(data: SourceSubject, _: str, __: Table) -> Iterator[str]:
    if data.printed:
        yield f"it prints '{data.printed.strip()[:40]}'"
