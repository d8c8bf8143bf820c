"""Checks of data sets (their declarations, files and preparations) and of metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from ratecli.config.base import IDENTIFIER_PATTERN
from ratecli.conformance.outcome import (
    Caution,
    CheckFailedError,
    PluginCheck,
    PluginReport,
    run_checks,
    skip,
    watch_side_effects,
)
from ratecli.datasets.columns import is_text
from ratecli.datasets.encode import Encoder
from ratecli.datasets.files import fetch_files, source_checksums
from ratecli.datasets.registry import SOURCE_OPTIONS, import_function, json_sha256
from ratecli.datasets.source import Raw, Source
from ratecli.datasets.split import SPLIT_NAMES
from ratecli.datasets.table import Table
from ratecli.errors import FaultError, exception_line
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, positive_combination
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.metrics import find_rate, metric_error
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import Scope, resolve
from ratecli.rates.sample import Sample
from ratecli.rates.table import Composite, Rate

SHA256 = re.compile(r"[0-9a-f]{64}")
MIN_ROWS = 200
"""Rows of a generated table that is checked."""
MAX_LISTED = 20
"""Tables with more features than this need not name them in their notes."""
RANDOM_SAMPLES = 12
ARGUMENT_VALUE = 2.0
"""Value of all arguments of metrics with parameters."""


@dataclass
class SourceSubject:
    """A source, and the tables of its preparations once "can be read" has prepared them."""

    source: Source
    offline: bool
    tables: dict[str, Table] = field(default_factory=dict)
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

    def prepare(self, preparation: str, **changed: int) -> Table:
        """Return the table of a preparation.

        Raises CheckFailedError if the preparation fails or returns no valid Table,
        CheckSkippedError if the files cannot be fetched.
        """
        try:
            paths = self.paths
        except FaultError:
            skip("its files are not available")
        options = {"preparation": preparation, **self.options, **changed}
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


def check_dataset(source: Source, *, origin: str = "", offline: bool = False) -> PluginReport:
    """Check a source; its files are downloaded, or taken from the data folder or mirror.

    If `offline`, the network is not used, and a check fails if files are missing.
    """
    checks = run_checks(SourceSubject(source, offline), SOURCE_CHECKS, TABLE_CHECKS)
    return PluginReport("data set", source.name, origin or "not installed", checks)


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


def _fetched(data: SourceSubject) -> Iterator[str]:
    if not data.source.files:
        skip("it is generated and has no files")
    for file in data.source.files:
        if not SHA256.fullmatch(file.sha256) or file.size <= 0:
            yield f"'{file.name}' has no sha256 or no size"
        if Path(file.name).name != file.name:
            yield f"'{file.name}' is not a plain file name"
        if not file.url.startswith("https://"):
            yield Caution(f"the address of '{file.name}' is not secure: {file.url}")
    _ = data.paths


def _read(data: SourceSubject) -> Iterator[str]:
    data.tables = {name: data.prepare(name) for name in data.source.preparations}
    first, stated = next(iter(data.tables)), data.options.get("rows", data.source.rows)
    for preparation, table in data.tables.items():
        n, where = len(table), f"preparation '{preparation}':"
        if not n:
            yield f"{where} it has no rows"
        if n != stated and preparation == first:  # other preparations may select rows
            yield f"{where} it has {n} rows, and {stated} are stated"
        for key in ("label", "part", "weight", "matrix"):
            array = getattr(table, key)
            if array is not None and array.shape[0] != n:
                yield f"{where} '{key}' has {array.shape[0]} rows, not {n}"


TableReasons = Callable[[Source, str, Table], Iterable[str]]
"""Yields what is wrong with the table of a source's preparation."""


def _each_table(reasons: TableReasons) -> Callable[[SourceSubject], Iterator[str]]:
    """Return a check of every preparation's table."""

    def check(data: SourceSubject) -> Iterator[str]:
        for preparation, table in data.tables.items():
            for reason in reasons(data.source, preparation, table):
                yield type(reason)(f"preparation '{preparation}': {reason}")

    return check


@_each_table
def _columns(source: Source, _: str, table: Table) -> Iterator[str]:
    frame = table.frame
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        yield "its rows are not numbered from 0"
    for name in frame.columns:
        if not isinstance(name, str) or not _is_valid_column(frame[name]):
            yield f"the column {name!r} mixes text with other values, or has infinite numbers"
    for name in (*table.features, *source.sensitive):
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


@_each_table
def _labels(source: Source, preparation: str, table: Table) -> Iterator[str]:
    stated = source.numbers.get(preparation)
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


@_each_table
def _features(_: Source, __: str, table: Table) -> Iterator[str]:
    """Check that features can be encoded as finite numbers, and that none determines the label."""
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
    train = np.ones(len(table), dtype=bool) if table.part is None else table.part == "train"
    X = Encoder.fit([table], [np.flatnonzero(train)]).transform(table)
    if X.shape[1] == 0 or not np.isfinite(X if isinstance(X, np.ndarray) else X.data).all():
        yield "there are no features, or not all of them are finite numbers"


@_each_table
def _groups(source: Source, _: str, table: Table) -> Iterator[str]:
    if not source.sensitive:
        yield Caution("it names no sensitive column, so that no groups can be compared")
    for column in source.sensitive:
        if table.frame[column].dropna().nunique() < 2:
            yield f"'{column}' has one value only"


@_each_table
def _documented(source: Source, _: str, table: Table) -> Iterator[str]:
    features = table.features if len(table.features) <= MAX_LISTED else ()
    for name in (*source.sensitive, *features):
        if name not in source.notes:
            yield Caution(f"'notes' do not describe the column '{name}'")


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


def _silent(data: SourceSubject) -> Iterator[str]:
    if data.printed:
        yield f"it prints '{data.printed.strip()[:40]}'"


SOURCE_CHECKS = (
    PluginCheck("is declared", "fill in all fields of the Source", _declared),
    PluginCheck("can be fetched", "state address, sha256 and size of each file", _fetched),
    PluginCheck("can be read", "return a Table with digest=raw.digest, and state its rows", _read),
)
TABLE_CHECKS = (
    PluginCheck("has columns", "use ratecli.datasets.columns.with_text for the frame", _columns),
    PluginCheck("has labels", "1, 0 and NaN; or numbers, with their range in `numbers`", _labels),
    PluginCheck("has features", "finite numbers without gaps, or text, but no label", _features),
    PluginCheck("has groups", "name columns of the frame under `sensitive`", _groups),
    PluginCheck("is documented", "describe each column in `notes`", _documented),
    PluginCheck("is reproducible", "use default_rng(raw.options['seed']) only", _reproducible),
    PluginCheck("prints nothing", "remove calls of print", _silent),
)
"""Checks of tables, which are skipped if a check of the source failed."""


@dataclass(frozen=True)
class MetricSubject:
    """A metric and its name."""

    name: str
    row: Rate | Composite

    @cached_property
    def expression(self) -> Expression:
        """The parsed metric on all rows."""
        if isinstance(self.row, Rate):
            return Leaf(self.row)
        arguments = dict.fromkeys(self.row.parameters, ARGUMENT_VALUE)
        top = resolve(parse_expression(self.row.text), Scope(parameters=arguments))
        return ex.divide(top, Leaf(find_rate(self.row.over))) if self.row.over else top


def check_metric(metric: Rate | Composite, *, name: str = "", origin: str = "") -> PluginReport:
    """Check a rate or a composite metric; pass a `name` for a `Composite`, which has none."""
    name = name or (metric.name if isinstance(metric, Rate) else "metric")
    checks = run_checks(MetricSubject(name, metric), METRIC_CHECKS)
    return PluginReport("metric", name, origin or "not installed", checks)


def _random_samples() -> Iterator[tuple[Sample, Predictions]]:
    """Yield samples in which some labels and deployed decisions are missing.

    Some decisions are exactly 0 or 1, others probabilities; weights are 0.5, 1 or 3.
    """
    for seed in range(RANDOM_SAMPLES):
        n, rng = 80, np.random.default_rng(seed)
        label, deployed = rng.choice([0.0, 1.0, np.nan], size=(2, n), p=[0.4, 0.4, 0.2])
        chance = np.clip(rng.uniform(-0.3, 1.3, size=n), 0.0, 1.0)
        weight = rng.choice([0.5, 1.0, 3.0], size=n)
        sample = Sample({}, label, np.full(n, "tiny"), np.full(n, "train"), weight, deployed)
        yield sample, Predictions(chance, chance, rng.uniform(0.01, 0.99, size=n))


def _metric_declared(metric: MetricSubject) -> Iterator[str]:
    if error := metric_error(metric.name, metric.row):
        yield error
    if not metric.row.means.strip():
        yield "'means' is empty"


def _parsed(metric: MetricSubject) -> Iterator[str]:
    if isinstance(metric.row, Rate):
        skip("a rate is its own name")
    text = ex.to_text(metric.expression)
    if resolve(parse_expression(text), Scope()) != metric.expression:
        yield f"'{text}' is parsed as another expression"


def _has_values(metric: MetricSubject) -> Iterator[str]:
    found = []
    for sample, random in _random_samples():
        for constant in (None, np.zeros(len(sample)), np.ones(len(sample))):
            decided = random if constant is None else replace(random, decisions=constant)
            found += measure([metric.expression], sample, "train", decided)
    if not any(map(math.isfinite, found)):
        yield "it has no value on any rows, for any decisions"
    if all(leaf.rate.yes == leaf.rate.no for leaf in ex.leaves(metric.expression)):
        yield Caution("it does not depend on decisions")


def _complement(metric: MetricSubject) -> Iterator[str]:
    """Check that a rate is what ratecli derives from its complement, also on unlabelled rows."""
    if isinstance(metric.row, Composite) or not metric.row.complement:
        skip("it names no complement")
    leaf = Leaf(metric.row)
    both = [positive_combination(Affine({leaf: -1.0})).expression(), ex.negate(leaf)]
    for sample, predictions in _random_samples():
        derived, measured = measure(both, sample, "train", predictions)
        if not np.isclose(derived, measured, rtol=1e-9, atol=1e-9, equal_nan=True):
            total = derived - measured
            yield f"its sum with '{metric.row.complement}' is {total:+.3g} too large"


METRIC_CHECKS = (
    PluginCheck("is declared", "see Rate and Composite of ratecli.rates.table", _metric_declared),
    PluginCheck("can be parsed from its text", "write it in the language of rules", _parsed),
    PluginCheck("has values", "masks or arguments leave no rows: see `show tpr`", _has_values),
    PluginCheck("adds up with its complement", "exchange yes and no, or name none", _complement),
)
