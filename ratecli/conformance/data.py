"""Checks of data sets (their declarations, files and preparations) and of metrics."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from ratecli.conformance.outcome import (
    Caution,
    Checks,
    CheckSkippedError,
    PluginReport,
)
from ratecli.datasets.columns import is_text
from ratecli.datasets.encode import Encoder
from ratecli.datasets.files import fetch_files, source_checksums
from ratecli.datasets.registry import SOURCE_OPTIONS, import_function, json_sha256
from ratecli.datasets.source import Raw, Source
from ratecli.datasets.split import SPLIT_NAMES
from ratecli.datasets.table import Table
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, positive_combination
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.metrics import find_rate, metric_error
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.sample import Logs, Sample
from ratecli.rates.scope import LoggedRanges, Scope
from ratecli.rates.table import OUTCOME, Composite, Rate

MIN_ROWS = 200
"""Rows of a generated table that is checked."""
ARGUMENT_VALUE = 2.0
"""Value of all arguments of metrics with parameters."""
SOURCE_CHECKS, METRIC_CHECKS = Checks(), Checks()
READ, TABLES = 1, 2
"""Stages of the checks of a source after those of its declaration."""


@dataclass
class SourceSubject:
    """A source, its files after they were fetched, and its tables after they were read."""

    source: Source
    offline: bool
    paths: Mapping[str, Path] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    printed: str = ""

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
        with redirect_stdout(io.StringIO()) as output:
            table = import_function(self.source.preparations[preparation])(raw)
        self.printed += output.getvalue()
        if not isinstance(table, Table):
            raise TypeError(f"'{preparation}' returns {type(table).__name__}, not a Table")
        if table.digest != raw.digest:
            raise ValueError(f"'{preparation}' does not pass on the digest of its input")
        return table


def check_dataset(source: Source, *, origin: str = "", offline: bool = False) -> PluginReport:
    """Check a source; its files are downloaded, or taken from the data folder or mirror.

    If `offline`, the network is not used, and a check fails if files are missing.
    """
    subject = SourceSubject(source, offline)
    checks = SOURCE_CHECKS.run(subject)
    return PluginReport("data set", source.name, origin or "not installed", checks)


@SOURCE_CHECKS.add("is declared", "fill in all fields of the Source")
def _declared(data: SourceSubject) -> Iterator[str]:
    source = data.source
    for key in ("summary", "label", "licence", "notes", "preparations"):
        if not str(getattr(source, key) or "").strip():
            yield f"'{key}' is empty"
    for key in source.options.keys() - SOURCE_OPTIONS:
        yield f"a file cannot set the option '{key}', only {', '.join(SOURCE_OPTIONS)}"


@SOURCE_CHECKS.add("can be fetched", "state address, sha256 and size of each file")
def _fetched(data: SourceSubject) -> Iterator[str]:
    if not data.source.files:
        raise CheckSkippedError("it is generated and has no files")
    yield from (f"'{file.name}' has no size" for file in data.source.files if file.size <= 0)
    data.paths = fetch_files(data.source, offline=data.offline)


@SOURCE_CHECKS.add("can be read", "return a Table with digest=raw.digest, and state its rows", READ)
def _read(data: SourceSubject) -> Iterator[str]:
    data.tables = {name: data.prepare(name) for name in data.source.preparations}
    if data.printed:
        yield f"it prints '{data.printed.strip()[:40]}'"
    first, stated = next(iter(data.tables)), data.options.get("rows", data.source.rows)
    for preparation, table in data.tables.items():
        n, where = len(table), f"preparation '{preparation}':"
        if n != stated and preparation == first:  # other preparations may select rows
            yield f"{where} it has {n} rows, but `rows` is {stated}"
        for key in ("label", "part", "weight", "matrix"):
            array = getattr(table, key)
            if array is not None and array.shape[0] != n:
                yield f"{where} '{key}' has {array.shape[0]} rows, not {n}"


TableReasons = Callable[[Source, str, Table], Iterable[str]]
"""Yields what is wrong with the table of a source's preparation."""


def _check_tables(name: str, mend: str) -> Callable[[TableReasons], object]:
    """Return a decorator that adds a check of every preparation's table."""

    def add(reasons: TableReasons) -> object:
        def check(data: SourceSubject) -> Iterator[str]:
            for preparation, table in data.tables.items():
                for reason in reasons(data.source, preparation, table):
                    yield type(reason)(f"preparation '{preparation}': {reason}")

        return SOURCE_CHECKS.add(name, mend, TABLES)(check)

    return add


@_check_tables("has columns", "use ratecli.datasets.columns.with_text for the frame")
def _columns(source: Source, _: str, table: Table) -> Iterator[str]:
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


@_check_tables("has labels", "1, 0 and NaN; or numbers, with their range in `numbers`")
def _labels(source: Source, preparation: str, table: Table) -> Iterator[str]:
    stated = source.numbers.get(preparation)
    values = np.unique(table.label[~np.isnan(table.label)])
    if table.label.dtype != np.float64:
        yield f"the label has the type {table.label.dtype}, not float64"
    if table.label_range != stated:
        yield f"the label has the range {table.label_range}, but 'numbers' has {stated}"
    low, high = stated or (0.0, 1.0)
    if ((values < low) | (values > high)).any() or (not stated and not set(values) <= {0.0, 1.0}):
        yield f"the label is {values[0]:g} to {values[-1]:g}, not {stated or '0 or 1'}"
    if not stated and len(values) == 1:
        yield "the label has only one class"


@_check_tables("has features", "finite numbers without gaps, or text, but no label")
def _features(_: Source, __: str, table: Table) -> Iterator[str]:
    """Check that features can be encoded as finite numbers, and that none is the label."""
    for feature in table.features:
        if np.array_equal(pd.factorize(table.frame[feature])[0], pd.factorize(table.label)[0]):
            yield f"the feature '{feature}' is the label"
    train = np.ones(len(table), dtype=bool) if table.part is None else table.part == "train"
    X = Encoder.fit([table], [np.flatnonzero(train)]).transform(table)
    if X.shape[1] == 0 or not np.isfinite(X if isinstance(X, np.ndarray) else X.data).all():
        yield "there are no features, or not all of them are finite numbers"


@_check_tables("has groups", "name columns of the frame under `sensitive`")
def _groups(source: Source, _: str, table: Table) -> Iterator[str]:
    if not source.sensitive:
        yield Caution("it names no sensitive column, so that no groups can be compared")
    for column in source.sensitive:
        if table.frame[column].dropna().nunique() < 2:
            yield f"'{column}' has only one value"


@_check_tables("is documented", "describe each column in `notes`")
def _documented(source: Source, _: str, __: Table) -> Iterator[str]:
    for name in source.sensitive:
        if name not in source.notes:
            yield Caution(f"'notes' do not describe the column '{name}'")


@SOURCE_CHECKS.add("is reproducible", "use default_rng(raw.options['seed']) only", TABLES)
def _reproducible(data: SourceSubject) -> Iterator[str]:
    """Check that a table depends on the options only, and on the seed if there is one."""
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


@dataclass(frozen=True)
class MetricSubject:
    """A metric and its name."""

    name: str
    row: Rate | Composite

    @property
    def expression(self) -> Expression:
        """The parsed metric on all rows."""
        if isinstance(self.row, Rate):
            return Leaf(self.row)
        arguments = dict.fromkeys(self.row.parameters, ARGUMENT_VALUE)
        logged = LoggedRanges({OUTCOME: (-math.inf, math.inf)})
        scope = Scope(parameters=arguments, logged=logged)
        top = resolve(parse_expression(self.row.text), scope)
        return ex.divide(top, Leaf(find_rate(self.row.over))) if self.row.over else top


def check_metric(metric: Rate | Composite, *, name: str = "", origin: str = "") -> PluginReport:
    """Check a rate or a composite metric; pass a `name` for a `Composite`, which has none."""
    name = name or (metric.name if isinstance(metric, Rate) else "metric")
    checks = METRIC_CHECKS.run(MetricSubject(name, metric))
    return PluginReport("metric", name, origin or "not installed", checks)


def _random_values(*expressions: Expression) -> list[float]:
    """Measure on a sample with logs in which some labels and deployed decisions are missing."""
    n, rng = 200, np.random.default_rng(0)
    label, deployed = rng.choice([0.0, 1.0, np.nan], size=(2, n), p=[0.4, 0.4, 0.2])
    weight = rng.choice([0.5, 1.0, 3.0], size=n)
    chances = rng.uniform(0.01, 0.99, size=n)
    action, outcome = rng.choice([0.0, 1.0], size=n), rng.normal(size=n)
    sides = {OUTCOME: (outcome, -outcome)}
    logs = Logs(action, np.full(n, 2.0), {OUTCOME: outcome}, sides, sides)
    names = np.full(n, "tiny"), np.full(n, "train")
    sample = Sample({}, label, *names, weight, deployed, logs=logs)
    return measure(expressions, sample, "train", Predictions(chances, chances, chances))


@METRIC_CHECKS.add("is declared", "see Rate and Composite of ratecli.rates.table")
def _metric_declared(metric: MetricSubject) -> Iterator[str]:
    if error := metric_error(metric.name, metric.row):
        yield error
    if not metric.row.means.strip():
        yield "'means' is empty"


@METRIC_CHECKS.add("has values", "masks or arguments leave no rows: see `show tpr`")
def _has_values(metric: MetricSubject) -> Iterator[str]:
    if not math.isfinite(_random_values(metric.expression)[0]):
        yield "it has no value on random rows, for random decisions"
    if all(leaf.rate.yes == leaf.rate.no for leaf in ex.leaves(metric.expression)):
        yield Caution("it does not depend on decisions")


@METRIC_CHECKS.add("adds up with its complement", "exchange yes and no, or name none")
def _complement(metric: MetricSubject) -> Iterator[str]:
    """Check that a rate is what ratecli derives from its complement, also on unlabelled rows."""
    if isinstance(metric.row, Composite) or not metric.row.complement:
        raise CheckSkippedError("it names no complement")
    leaf = Leaf(metric.row)
    derived = positive_combination(Affine({leaf: -1.0})).expression()
    expected, found = _random_values(derived, ex.negate(leaf))
    if not math.isclose(expected, found, abs_tol=1e-9):
        yield f"its sum with '{metric.row.complement}' is {expected - found:+.3g} too large"
