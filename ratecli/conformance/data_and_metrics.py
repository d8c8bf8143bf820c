"""Checks of data sets (their declarations, files and tables) and of metrics."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ratecli.conformance import checks as ck
from ratecli.conformance.problems import plain_table, trial_data
from ratecli.datasets import registry
from ratecli.datasets.columns import is_text
from ratecli.datasets.encode import Encoder
from ratecli.datasets.files import fetch_files, source_checksums
from ratecli.datasets.source import Raw, Source
from ratecli.datasets.split import SPLIT_NAMES
from ratecli.datasets.table import Table
from ratecli.rates import expression as ex
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.metrics import find_rate, metric_error
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.sample import Logs
from ratecli.rates.scope import LoggedRanges, Scope
from ratecli.rates.table import OUTCOME, Composite, Rate

MIN_ROWS = 200
"""Rows of a generated table that is checked."""
ARGUMENT_VALUE = 2.0
"""Value of all arguments of metrics with parameters."""


@dataclass
class SourceTables:
    """A source, its files after they were fetched, and its tables after they were read."""

    source: Source
    offline: bool
    paths: Mapping[str, Path] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, int]:
        """Its default options, with few rows if the table is generated."""
        known = self.source.options
        few = {"rows": max(MIN_ROWS, known["rows"].least)} if "rows" in known else {}
        return {name: option.default for name, option in known.items()} | few

    def prepare(self, preparation: str, **changed: int) -> Table:
        """Return the table of a preparation; raise ValueError if it returns no valid Table."""
        options = {"preparation": preparation, **self.options, **changed}
        digest, sums = registry.json_sha256(options), source_checksums(self.source)
        raw = Raw(dict(self.paths), options, digest, sums, self.source.columns)
        with redirect_stdout(io.StringIO()):  # a report on standard output must stay valid JSON
            table = registry.import_function(self.source.preparations[preparation])(raw)
        if not isinstance(table, Table):
            raise TypeError(f"'{preparation}' returns {type(table).__name__}, not a Table")
        if table.digest != digest:
            raise ValueError(f"'{preparation}' does not pass on the digest of its input")
        return table


class PreparedTable(NamedTuple):
    """The table of one preparation, with all that is known of its source."""

    data: SourceTables
    preparation: str
    table: Table


def prepared_tables(data: SourceTables) -> Iterator[tuple[str, PreparedTable]]:
    """Yield the tables that were read."""
    for name, table in data.tables.items():
        yield f"preparation '{name}'", PreparedTable(data, name, table)


def check_dataset(source: Source, *, origin: str = "", offline: bool = False) -> ck.PluginReport:
    """Check a source; its files are downloaded, or taken from the data folder or mirror.

    If `offline`, the network is not used, and a check fails if files are missing.
    """
    required = (is_declared, can_be_fetched, can_be_read)
    others = (has_valid_columns, has_labels, has_groups, is_reproducible)
    cases: ck.CheckTable = {
        **dict.fromkeys(required, ck.itself),
        **dict.fromkeys(others, prepared_tables),
    }
    checks = ck.run_checks(SourceTables(source, offline), cases, required)
    return ck.PluginReport("data set", source.name, origin or "not installed", checks)


def is_declared(data: SourceTables) -> Iterator[str]:
    """Fill in all fields of the Source."""
    for key in ("summary", "label", "licence", "notes", "preparations"):
        if not str(getattr(data.source, key) or "").strip():
            yield f"'{key}' is empty"
    for key in data.source.options.keys() - registry.SOURCE_OPTIONS:
        yield f"a file cannot set the option '{key}', only {', '.join(registry.SOURCE_OPTIONS)}"


def can_be_fetched(data: SourceTables) -> Iterator[str]:
    """State address, sha256 and size of each file."""
    if not data.source.files:
        raise ck.CheckSkippedError("it is generated and has no files")
    yield from (f"'{file.name}' has no size" for file in data.source.files if file.size <= 0)
    data.paths = fetch_files(data.source, offline=data.offline)


def can_be_read(data: SourceTables) -> Iterator[str]:
    """Return a Table with digest=raw.digest."""
    data.tables = {name: data.prepare(name) for name in data.source.preparations}
    rows, stated = len(next(iter(data.tables.values()))), data.source.rows
    if rows != data.options.get("rows", stated):  # other preparations may select rows
        yield f"it has {rows} rows, but `rows` is {data.options.get('rows', stated)}"
    for where, (_, _, table) in prepared_tables(data):
        for key in ("label", "part", "weight", "matrix"):
            array = getattr(table, key)
            if array is not None and array.shape[0] != len(table):
                yield f"{where}: '{key}' has {array.shape[0]} rows"


def has_valid_columns(case: PreparedTable) -> Iterator[str]:
    """See Table of ratecli.datasets.table."""
    table, frame = case.table, case.table.frame
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        yield "its rows are not numbered from 0"
    for name, column in frame.items():
        text = all(isinstance(each, str | None) for each in column.unique())
        if not text if is_text(column) else np.isinf(column.to_numpy(dtype=float)).any():
            yield f"the column {name!r} mixes text with other values, or has infinite numbers"
    for name in {*table.features, *case.data.source.sensitive} - {*frame}:
        yield f"there is no column '{name}', which is a feature or sensitive"
    for name in set(table.features) & set(frame):
        if np.array_equal(pd.factorize(frame[name])[0], pd.factorize(table.label)[0]):
            yield f"the feature '{name}' is the label"
    if table.part is not None and not set(table.part.tolist()) <= set(SPLIT_NAMES):
        yield f"'part' has other values than {', '.join(SPLIT_NAMES)}"
    if table.weight is not None and not (np.isfinite(table.weight) & (table.weight > 0)).all():
        yield "its weights are not all positive numbers"
    train = np.ones(len(table), dtype=bool) if table.part is None else table.part == "train"
    X = Encoder.fit([table], [np.flatnonzero(train)]).transform(table)
    if X.shape[1] == 0 or not np.isfinite(X if isinstance(X, np.ndarray) else X.data).all():
        yield "there are no features, or not all of them are finite numbers"


def has_labels(case: PreparedTable) -> Iterator[str]:
    """1, 0 and NaN; or numbers, with their range in `numbers`."""
    label, stated = case.table.label, case.data.source.numbers.get(case.preparation)
    values, (low, high) = np.unique(label[~np.isnan(label)]), stated or (0.0, 1.0)
    if label.dtype != np.float64:
        yield f"the label has the type {label.dtype}, not float64"
    if case.table.label_range != stated:
        yield f"its label has the range {case.table.label_range}, not {stated}"
    if not ((values >= low) & (values <= high) & (bool(stated) | (values % 1 == 0))).all():
        yield f"the label is {values[0]:g} to {values[-1]:g}, not {stated or '0 or 1'}"
    if not stated and len(values) == 1:
        yield "the label has only one class"


def has_groups(case: PreparedTable) -> Iterator[str]:
    """Name columns in `sensitive`, and describe them in `notes`."""
    source = case.data.source
    if not source.sensitive:
        yield ck.Caution("it names no sensitive column, so that no groups can be compared")
    for column in source.sensitive:
        if column not in source.notes:
            yield ck.Caution(f"'notes' do not describe the column '{column}'")
        if case.table.frame[column].dropna().nunique() < 2:
            yield f"'{column}' has only one value"


def is_reproducible(case: PreparedTable) -> Iterator[str]:
    """Use default_rng(raw.options['seed']) only."""
    (data, preparation, table), again = case, case.data.prepare(case.preparation)
    same = table.frame.equals(again.frame) and table.features == again.features
    if not (same and np.array_equal(table.label, again.label, equal_nan=True)):
        yield "a second call returns other rows"
    if "seed" in data.options:
        other = data.prepare(preparation, seed=data.options["seed"] + 1)
        if other.frame.equals(table.frame):
            yield "another seed returns the same rows"


def check_metric(metric: Rate | Composite, *, name: str = "", origin: str = "") -> ck.PluginReport:
    """Check a rate or a composite metric; pass a `name` for a `Composite`, which has none."""
    name = name or (metric.name if isinstance(metric, Rate) else "metric")
    checks = ck.run_checks(
        (name, metric), dict.fromkeys((is_defined, has_values), ck.itself), {is_defined}
    )
    return ck.PluginReport("metric", name, origin or "not installed", checks)


def is_defined(metric: tuple[str, Rate | Composite]) -> Iterator[str]:
    """See Rate and Composite of ratecli.rates.table."""
    if error := metric_error(*metric):
        yield error
    if not metric[1].means.strip():
        yield "'means' is empty"


def has_values(metric: tuple[str, Rate | Composite]) -> Iterator[str]:
    """Masks or arguments leave no rows: see `show tpr`."""
    expression = _expression(metric[1])
    if not math.isfinite(_value_on_random_rows(expression)):
        yield "it has no value on random rows, for random decisions"
    if all(leaf.rate.yes == leaf.rate.no for leaf in ex.leaves(expression)):
        yield ck.Caution("it does not depend on decisions")


def _expression(metric: Rate | Composite) -> ex.Expression:
    """Return the parsed metric on all rows."""
    if isinstance(metric, Rate):
        return ex.Leaf(metric)
    arguments = dict.fromkeys(metric.parameters, ARGUMENT_VALUE)
    logged = LoggedRanges({OUTCOME: (-math.inf, math.inf)})
    top = resolve(parse_expression(metric.text), Scope(parameters=arguments, logged=logged))
    return ex.divide(top, ex.Leaf(find_rate(metric.over))) if metric.over else top


def _value_on_random_rows(expression: ex.Expression) -> float:
    """Measure on a sample with logs in which some labels and deployed decisions are missing."""
    sample, rng = trial_data(plain_table().assign(part="train")).sample, np.random.default_rng(0)
    n = len(sample)
    label, deployed = rng.choice([0.0, 1.0, np.nan], size=(2, n), p=[0.4, 0.4, 0.2])
    outcome, chances = rng.normal(size=n), rng.uniform(0.01, 0.99, size=n)
    sides = {OUTCOME: (outcome, -outcome)}
    logs = Logs(rng.choice([0.0, 1.0], size=n), np.full(n, 2.0), {OUTCOME: outcome}, sides, sides)
    weight = rng.choice([0.5, 1.0, 3.0], size=n)
    sample = replace(sample, label=label, deployed=deployed, weight=weight, logs=logs)
    return measure([expression], sample, "train", Predictions(chances, chances, chances))[0]
