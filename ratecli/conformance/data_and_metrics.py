"""Checks of data sets (their declarations, files and tables) and of metrics."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from ratecli.conformance.checks import Caution, CheckSkippedError, PluginReport, run_checks
from ratecli.conformance.problems import plain_table, trial_data
from ratecli.datasets.columns import is_text
from ratecli.datasets.encode import Encoder
from ratecli.datasets.files import fetch_files, source_checksums
from ratecli.datasets.registry import SOURCE_OPTIONS, import_function, json_sha256
from ratecli.datasets.source import Raw, Source
from ratecli.datasets.split import SPLIT_NAMES
from ratecli.datasets.table import Table
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, Leaf
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
class SourceSubject:
    """A source, its files after they were fetched, and its tables after they were read."""

    source: Source
    offline: bool
    paths: Mapping[str, Path] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, int]:
        """Its default options, with few rows if the table is generated."""
        default = {name: option.default for name, option in self.source.options.items()}
        if "rows" in default:
            default["rows"] = max(MIN_ROWS, self.source.options["rows"].least)
        return default

    def prepare(self, preparation: str, **changed: int) -> Table:
        """Return the table of a preparation; raise ValueError if it returns no valid Table."""
        options = {"preparation": preparation, **self.options, **changed}
        sums = source_checksums(self.source)
        raw = Raw(paths=dict(self.paths), options=options, digest=json_sha256(options), files=sums)
        with redirect_stdout(io.StringIO()):  # a report on standard output must stay valid JSON
            table = import_function(self.source.preparations[preparation])(raw)
        if not isinstance(table, Table):
            raise TypeError(f"'{preparation}' returns {type(table).__name__}, not a Table")
        if table.digest != raw.digest:
            raise ValueError(f"'{preparation}' does not pass on the digest of its input")
        return table


def check_dataset(source: Source, *, origin: str = "", offline: bool = False) -> PluginReport:
    """Check a source; its files are downloaded, or taken from the data folder or mirror.

    If `offline`, the network is not used, and a check fails if files are missing.
    """
    required = (is_declared, can_be_fetched, can_be_read)
    others = (has_valid_columns, has_labels, has_groups, is_reproducible)
    checks = run_checks(SourceSubject(source, offline), required, others)
    return PluginReport("data set", source.name, origin or "not installed", checks)


def is_declared(data: SourceSubject) -> Iterator[str]:
    """Fill in all fields of the Source."""
    source = data.source
    for key in ("summary", "label", "licence", "notes", "preparations"):
        if not str(getattr(source, key) or "").strip():
            yield f"'{key}' is empty"
    for key in source.options.keys() - SOURCE_OPTIONS:
        yield f"a file cannot set the option '{key}', only {', '.join(SOURCE_OPTIONS)}"


def can_be_fetched(data: SourceSubject) -> Iterator[str]:
    """State address, sha256 and size of each file."""
    if not data.source.files:
        raise CheckSkippedError("it is generated and has no files")
    yield from (f"'{file.name}' has no size" for file in data.source.files if file.size <= 0)
    data.paths = fetch_files(data.source, offline=data.offline)


def can_be_read(data: SourceSubject) -> Iterator[str]:
    """Return a Table with digest=raw.digest."""
    data.tables = {name: data.prepare(name) for name in data.source.preparations}
    first, stated = next(iter(data.tables)), data.options.get("rows", data.source.rows)
    if len(data.tables[first]) != stated:  # other preparations may select rows
        yield f"it has {len(data.tables[first])} rows, but `rows` is {stated}"
    for preparation, table in data.tables.items():
        for key in ("label", "part", "weight", "matrix"):
            array = getattr(table, key)
            if array is not None and array.shape[0] != len(table):
                yield f"preparation '{preparation}': '{key}' has {array.shape[0]} rows"


def has_valid_columns(data: SourceSubject) -> Iterator[str]:
    """See Table of ratecli.datasets.table."""
    for preparation, table in data.tables.items():
        for reason in chain(_column_errors(data.source, table), _feature_errors(table)):
            yield f"preparation '{preparation}': {reason}"


def _column_errors(source: Source, table: Table) -> Iterator[str]:
    frame = table.frame
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        yield "its rows are not numbered from 0"
    for name, column in frame.items():
        text = all(isinstance(each, str | None) for each in column.unique())
        if not text if is_text(column) else np.isinf(column.to_numpy(dtype=float)).any():
            yield f"the column {name!r} mixes text with other values, or has infinite numbers"
    for name in (*table.features, *source.sensitive):
        if name not in frame:
            yield f"there is no column '{name}', which is a feature or sensitive"
    if table.part is not None and not set(table.part.tolist()) <= set(SPLIT_NAMES):
        yield f"'part' has other values than {', '.join(SPLIT_NAMES)}"
    if table.weight is not None and not (np.isfinite(table.weight) & (table.weight > 0)).all():
        yield "its weights are not all positive numbers"


def _feature_errors(table: Table) -> Iterator[str]:
    for name in set(table.features) & set(table.frame):
        if np.array_equal(pd.factorize(table.frame[name])[0], pd.factorize(table.label)[0]):
            yield f"the feature '{name}' is the label"
    train = np.ones(len(table), dtype=bool) if table.part is None else table.part == "train"
    X = Encoder.fit([table], [np.flatnonzero(train)]).transform(table)
    if X.shape[1] == 0 or not np.isfinite(X if isinstance(X, np.ndarray) else X.data).all():
        yield "there are no features, or not all of them are finite numbers"


def has_labels(data: SourceSubject) -> Iterator[str]:
    """1, 0 and NaN; or numbers, with their range in `numbers`."""
    for preparation, table in data.tables.items():
        where, stated = f"preparation '{preparation}':", data.source.numbers.get(preparation)
        values = np.unique(table.label[~np.isnan(table.label)])
        if table.label.dtype != np.float64:
            yield f"{where} the label has the type {table.label.dtype}, not float64"
        if table.label_range != stated:
            yield f"{where} its label has the range {table.label_range}, not {stated}"
        low, high = stated or (0.0, 1.0)
        if not ((values >= low) & (values <= high) & (bool(stated) | (values % 1 == 0))).all():
            yield f"{where} the label is {values[0]:g} to {values[-1]:g}, not {stated or '0 or 1'}"
        if not stated and len(values) == 1:
            yield f"{where} the label has only one class"


def has_groups(data: SourceSubject) -> Iterator[str]:
    """Name columns in `sensitive`, and describe them in `notes`."""
    if not data.source.sensitive:
        yield Caution("it names no sensitive column, so that no groups can be compared")
    for column in data.source.sensitive:
        if column not in data.source.notes:
            yield Caution(f"'notes' do not describe the column '{column}'")
        for preparation, table in data.tables.items():
            if table.frame[column].dropna().nunique() < 2:
                yield f"preparation '{preparation}': '{column}' has only one value"


def is_reproducible(data: SourceSubject) -> Iterator[str]:
    """Use default_rng(raw.options['seed']) only."""
    for preparation, table in data.tables.items():
        again = data.prepare(preparation)
        same = table.frame.equals(again.frame) and table.features == again.features
        if not (same and np.array_equal(table.label, again.label, equal_nan=True)):
            yield f"preparation '{preparation}': a second call returns other rows"
    if "seed" in data.source.options:
        preparation, table = next(iter(data.tables.items()))
        other = data.prepare(preparation, seed=data.options["seed"] + 1)
        if other.frame.equals(table.frame):
            yield "another seed returns the same rows"


def check_metric(metric: Rate | Composite, *, name: str = "", origin: str = "") -> PluginReport:
    """Check a rate or a composite metric; pass a `name` for a `Composite`, which has none."""
    name = name or (metric.name if isinstance(metric, Rate) else "metric")
    others = (has_values,)
    checks = run_checks((name, metric), (is_defined,), others)
    return PluginReport("metric", name, origin or "not installed", checks)


def _expression(metric: Rate | Composite) -> Expression:
    """Return the parsed metric on all rows."""
    if isinstance(metric, Rate):
        return Leaf(metric)
    arguments = dict.fromkeys(metric.parameters, ARGUMENT_VALUE)
    logged = LoggedRanges({OUTCOME: (-math.inf, math.inf)})
    top = resolve(parse_expression(metric.text), Scope(parameters=arguments, logged=logged))
    return ex.divide(top, Leaf(find_rate(metric.over))) if metric.over else top


def _random_values(*expressions: Expression) -> list[float]:
    """Measure on a sample with logs in which some labels and deployed decisions are missing."""
    sample, rng = trial_data(plain_table().assign(part="train")).sample, np.random.default_rng(0)
    n = len(sample)
    label, deployed = rng.choice([0.0, 1.0, np.nan], size=(2, n), p=[0.4, 0.4, 0.2])
    outcome, chances = rng.normal(size=n), rng.uniform(0.01, 0.99, size=n)
    sides = {OUTCOME: (outcome, -outcome)}
    logs = Logs(rng.choice([0.0, 1.0], size=n), np.full(n, 2.0), {OUTCOME: outcome}, sides, sides)
    weight = rng.choice([0.5, 1.0, 3.0], size=n)
    sample = replace(sample, label=label, deployed=deployed, weight=weight, logs=logs)
    return measure(expressions, sample, "train", Predictions(chances, chances, chances))


def is_defined(metric: tuple[str, Rate | Composite]) -> Iterator[str]:
    """See Rate and Composite of ratecli.rates.table."""
    if error := metric_error(*metric):
        yield error
    if not metric[1].means.strip():
        yield "'means' is empty"


def has_values(metric: tuple[str, Rate | Composite]) -> Iterator[str]:
    """Masks or arguments leave no rows: see `show tpr`."""
    expression = _expression(metric[1])
    if not math.isfinite(_random_values(expression)[0]):
        yield "it has no value on random rows, for random decisions"
    if all(leaf.rate.yes == leaf.rate.no for leaf in ex.leaves(expression)):
        yield Caution("it does not depend on decisions")
