"""The rows of an experiment: tables are read once per process, then stacked and split per seed.

With `levels: M`, each row occurs M times, once per level. Streamed data sets are included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.datasets.columns import LazyMapping, as_float_array, is_text
from ratecli.datasets.encode import Encoder
from ratecli.datasets.entry import DatasetEntry
from ratecli.datasets.load import load_entry_table
from ratecli.datasets.paths import modification_time
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Classifier, Features
from ratecli.models.group_threshold import append_memberships
from ratecli.models.proxies import ProxyFilter
from ratecli.rates.expression import ALL_ROWS
from ratecli.rates.interval import Interval
from ratecli.rates.matrix import Predictions
from ratecli.rates.sample import Floats, Sample, relative_weights
from ratecli.sampling.encoding import Encoding, read_decisions, slice_memberships
from ratecli.sampling.resampling import NO_RESAMPLING, RowSplit, SamplingSpec, split_dataset_rows
from ratecli.sampling.streamed_rows import (
    TableWriteProgress,
    check_memory,
    load_streamed_rows,
    open_streamed_table,
    predict_stream,
)
from ratecli.streaming.stream import RowStream
from ratecli.streaming.table import StreamedTable, read_streamed_table

LEVEL_COLUMN = "level"
"""Column with the level of each copy of a row: 0.0 to M - 1."""

T = TypeVar("T", bound=np.generic)


def check_level_column(table: Table, levels: int) -> None:
    """Raise E411 if rows are to be copied at levels and their table already has a level column."""
    if levels > 1 and LEVEL_COLUMN in table.frame:
        message = (
            f"with 'levels' each row gets a column '{LEVEL_COLUMN}', and the table already has one"
        )
        hint = "rename the table's own column"
        raise FaultError(Diagnostic("E411", message, hint, loc=("levels",)))


def column_at_levels(columns: Mapping[str, Any], levels: int) -> Mapping[str, Any]:
    """Repeat (n,) columns to M n rows, with copies adjacent, and append the level column."""
    if levels == 1:
        return columns
    found = {name: np.repeat(column, levels) for name, column in columns.items()}
    rows = len(next(iter(columns.values())))
    found[LEVEL_COLUMN] = np.tile(np.arange(levels, dtype=float), rows)
    return found


def sample_at_levels(sample: Sample, levels: int) -> Sample:
    """Repeat each row of a sample M times; the copies differ only in their level."""

    def each(values: NDArray[T]) -> NDArray[T]:
        return np.repeat(values, levels)

    return replace(
        sample,
        columns=column_at_levels(sample.columns, levels),
        label=each(sample.label),
        dataset=each(sample.dataset),
        part=each(sample.part),
        weight=each(sample.weight),
        deployed=None if sample.deployed is None else each(sample.deployed),
        _cache={},
    )


def features_at_levels(X: Features, levels: int) -> Features:
    """Return (M n, d + M) features, sparse if X is: rows repeated M times, with one-hot levels."""
    n = X.shape[0]
    if isinstance(X, np.ndarray):
        return np.hstack([np.repeat(X, levels, axis=0), np.tile(np.eye(levels), (n, 1))])
    which = sparse.kron(np.ones((n, 1)), sparse.eye_array(levels), format="csr")
    rows = X[np.repeat(np.arange(n), levels)]
    return sparse.csr_array(sparse.hstack([rows, which], format="csr"))


RowPositions = NDArray[np.intp]


class DatasetItem(NamedTuple):
    """A data set of an experiment; `written` is the modification time of the user's own file.

    With that time, a long-lived process, such as a notebook, reads a changed file again.
    """

    name: str
    entry: DatasetEntry
    written: int


@dataclass(frozen=True)
class ExperimentData:
    """The data sets of an experiment in alphabetical order; paths are relative to `folder`."""

    items: tuple[DatasetItem, ...]
    folder: Path

    @classmethod
    def of(cls, entries: Mapping[str, DatasetEntry], folder: Path) -> ExperimentData:
        items = (
            DatasetItem(name, entry, modification_time(entry.path, folder))
            for name, entry in sorted(entries.items())
        )
        return cls(tuple(items), folder.absolute())

    def only(self, names: Collection[str]) -> ExperimentData:
        """Return the data restricted to some of the data sets."""
        return replace(self, items=tuple(item for item in self.items if item.name in names))

    @property
    def entries(self) -> dict[str, DatasetEntry]:
        return {item.name: item.entry for item in self.items}


@dataclass(frozen=True)
class TrialData:
    """All rows of one seed: the sample that rates read, and the features that classifiers read.

    Each row of the data occurs `levels` times. `encoding` is JSON that describes how features are
    made of columns (`sampling.encoding`). `before` are the rows before a filter weighted or dropped
    some, None without a filter (`sampling.filtered`). With a `stream`, rows are not in memory: the
    sample consists of cells of rows with equal rates (`streaming.stream`), and X has no
    columns.
    """

    sample: Sample
    X: Features
    levels: int = 1
    encoding: str = ""
    before: Sample | None = None
    stream: RowStream | None = None

    def answers(
        self, classifiers: Mapping[str, Classifier], *, estimated: bool = True
    ) -> dict[str, Predictions]:
        """Return the predictions of each classifier; over a stream, in one pass.

        Unless `estimated`, predictions over a stream lack the errors of estimates.
        """
        if self.stream is None or not classifiers:
            return {name: self.predictions(each) for name, each in classifiers.items()}
        label = self.sample.label if estimated else None
        return dict(predict_stream(self.stream, classifiers, label))

    def predictions(self, classifier: Classifier) -> Predictions:
        """Return predictions on all rows; E411 for slices of missing columns."""
        if self.stream is not None:
            return self.answers({"": classifier})[""]
        X = append_memberships(self.X, slice_memberships(self.sample, classifier.slices))
        if isinstance(classifier, ProxyFilter):
            return _apply_row_filter(classifier, X)
        return Predictions(classifier.decide(X), classifier.score(X), classifier.estimate(X))

    def counted(self, some: RowPositions) -> float:
        """Return the number of rows at some positions; with a filter, the expected number kept."""
        if self.before is None:
            return float(self.sample.counted(some))
        return float((self.sample.weight[some] / self.before.weight[some]).sum())

    def unfiltered(self) -> Sample:
        """Return the rows with the splits and weights that they have without a filter."""
        if self.before is None:
            return self.sample
        return replace(self.before, deployed=self.sample.deployed, _cache={})

    def splits(self) -> dict[str, int]:
        """Return the number of rows of each nonempty split, in the order of `SPLITS`."""
        sample = self.sample
        counts = {name: sample.counted(sample.rows(ALL_ROWS, name)) for name in SPLITS}
        return {name: count for name, count in counts.items() if count}


SPLITS = ("train", "validation", "test", "safety")


def get_tables(data: ExperimentData) -> dict[str, Table]:
    """Return every table by its name in the file."""
    return {item.name: _read_table(item, data.folder) for item in data.items}


def get_table(data: ExperimentData, name: str) -> Table:
    return get_tables(data.only([name]))[name]


@lru_cache(maxsize=8)
def _read_table(item: DatasetItem, folder: Path) -> Table:
    """Read a table; its files were downloaded before any trial, so this never uses the network."""
    return load_entry_table(item.entry, folder, offline=True)


@lru_cache(maxsize=2)
def load_trial_data(
    data: ExperimentData,
    seed: int,
    deployed: str | None = None,
    drawing: SamplingSpec = NO_RESAMPLING,
) -> TrialData:
    """Return the stacked rows of a seed; `deployed` is a column with a model's decisions.

    Results that differ only in the rows held out for a safety test have the same rows in the same
    order, with features encoded as their own training rows require.
    """
    if is_streamed(data):
        return load_streamed_trial_data(data, seed, deployed)
    found = {name: split_dataset(data, name, seed, drawing) for name in data.entries}
    return build_trial_data(data, found, deployed, drawing.unseen)


def build_trial_data(
    data: ExperimentData, found: Mapping[str, RowSplit], deployed: str | None, unseen: Sequence[str]
) -> TrialData:
    """Return the rows of a seed, like `load_trial_data`, from rows that are already split.

    `found` maps each data set to its split. Rows without a split are neither training nor test
    rows.
    """
    named = get_tables(data)
    trained = [_training_positions(found[name]) for name in named]
    encoder = Encoder.fit(list(named.values()), trained, unseen)
    X = _encode_features(encoder, named, found)
    rows = _stacked_positions(named, found)
    stacked = _stack_tables(data)
    columns = LazyMapping(stacked.columns, lambda name: _take_rows(stacked.columns[name], rows))
    sample = Sample(
        columns=columns,
        label=_take_rows(stacked.label, rows),
        dataset=np.concatenate([np.full(len(each.part), name) for name, each in found.items()]),
        part=np.concatenate([each.part for each in found.values()]),
        weight=_take_rows(stacked.weight, rows),
        label_range=_common_range([table.label_range for table in named.values()]),
    )
    if deployed is not None:
        sample = sample.with_deployed(read_decisions(columns[deployed], deployed))
    levels = common_level_count(data)
    encoding = Encoding.of(encoder, stacked.columns, levels).text()
    if levels == 1:
        return TrialData(sample, X, encoding=encoding)
    X = features_at_levels(X, levels)
    return TrialData(sample_at_levels(sample, levels), X, levels, encoding)


def _apply_row_filter(found: ProxyFilter, X: Features) -> Predictions:
    kept = found.decide(X)
    return Predictions(kept, kept, kept, found.memberships(X))


@dataclass(frozen=True)
class _StackedTables:
    columns: Mapping[str, Any]
    label: Floats
    weight: Floats


@lru_cache(maxsize=2)
def _stack_tables(data: ExperimentData) -> _StackedTables:
    """Stack all rows of all tables, each once; the data of every seed is taken from it."""
    found = list(get_tables(data).values())
    try:
        weight = relative_weights(np.concatenate([_row_weights(table) for table in found]))
    except ValueError as error:
        message = f"the weight of all data sets together {error}"
        raise FaultError(Diagnostic("E411", message, "weigh them in the same unit")) from None
    return _StackedTables(
        stack_columns(found), np.concatenate([table.label for table in found]), weight
    )


def _encode_features(
    encoder: Encoder, named: Mapping[str, Table], found: Mapping[str, RowSplit]
) -> Features:
    """Return the features (m, d); each row is encoded once, however often it is sampled."""
    blocks = [
        _take_rows(encoder.transform(table), found[name].rows) for name, table in named.items()
    ]
    return _stack_features(blocks)


def _training_positions(given: RowSplit) -> RowPositions:
    """Return the positions of a table's training rows, repeated as often as they were sampled."""
    train = np.flatnonzero(given.part == "train")
    return train if given.rows is None else given.rows[train]


def _stacked_positions(
    named: Mapping[str, Table], found: Mapping[str, RowSplit]
) -> RowPositions | None:
    """Return the position of each row in the stacked tables; None if it is every row in order."""
    starts = np.cumsum([0, *(len(table) for table in named.values())])
    drawn = [each.rows for each in found.values()]
    if any(rows is None for rows in drawn):
        return None
    return np.concatenate([start + rows for start, rows in zip(starts, drawn, strict=False)])


def _take_rows(values: Any, rows: RowPositions | None) -> Any:
    return values if rows is None else values[rows]


def slice_columns(data: ExperimentData) -> Mapping[str, Any]:
    """Return every column that slices may name, over all rows; if streamed, each value once."""
    if is_streamed(data):
        return {
            column: np.array(
                values, dtype=object if any(isinstance(v, str) for v in values) else float
            )
            for column, values in get_streamed_table(data).values().items()
        }
    return column_at_levels(_stack_tables(data).columns, common_level_count(data))


def common_level_count(data: ExperimentData) -> int:
    """Return the number of levels, which all data sets share (`config.conflicts`)."""
    (levels,) = {item.entry.levels for item in data.items}
    return levels


def check_table(
    data: ExperimentData,
    name: str,
    bound: int | None = None,
    written: TableWriteProgress | None = None,
) -> None:
    """Read a table and raise its errors, E404 to E413.

    E412 if a streamed table takes more than `bound` bytes. `written` reports its rows as they are
    converted to records.
    """
    entry = data.entries[name]
    if entry.stream:
        progress = None if written is None else partial(written, name)
        check_memory(name, read_streamed_table(entry, data.folder, progress), bound)
    else:
        check_level_column(get_table(data, name), entry.levels)


def split_dataset(
    data: ExperimentData, name: str, seed: int, drawing: SamplingSpec = NO_RESAMPLING
) -> RowSplit:
    """Return the rows of one data set and their splits, which copies at all levels share."""
    return split_dataset_rows(get_table(data, name), name, data.entries[name].split, seed, drawing)


def check_split(data: ExperimentData, name: str, seed: int) -> None:
    """Raise E205 or E410 if the rows cannot be split as the entry specifies."""
    if data.entries[name].stream:
        load_trial_data(data.only([name]), seed)
    else:
        split_dataset(data, name, seed)


def get_any_table(data: ExperimentData, name: str) -> Table | StreamedTable:
    """Return a table, in memory or streamed."""
    own = data.only([name])
    return get_streamed_table(own) if is_streamed(own) else get_table(data, name)


def get_streamed_table(data: ExperimentData) -> StreamedTable:
    """Return the table of the only data set, which is streamed."""
    (item,) = data.items
    return open_streamed_table(item.entry, data.folder)


def is_streamed(data: ExperimentData) -> bool:
    """Return whether rows are streamed; a streamed data set is always the only one."""
    return any(item.entry.stream for item in data.items)


def load_streamed_trial_data(data: ExperimentData, seed: int, deployed: str | None) -> TrialData:
    """Return the rows of a seed, like `load_trial_data`, of a streamed data set."""
    (item,) = data.items
    found = load_streamed_rows(item.name, item.entry, data.folder, seed, deployed)
    X = np.zeros((len(found.sample), 0))
    return TrialData(found.sample, X, encoding=found.encoding, stream=found.stream)


def _common_range(ranges: Sequence[Interval | None]) -> Interval | None:
    """Return the range that covers all numeric labels; None for labels of two classes."""
    known = [each for each in ranges if each is not None]
    if not known:
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _row_weights(table: Table) -> Floats:
    return np.ones(len(table)) if table.weight is None else table.weight


def _stack_features(blocks: Sequence[Features]) -> Features:
    if len(blocks) == 1:
        return blocks[0]
    if all(isinstance(block, np.ndarray) for block in blocks):
        return np.vstack(blocks)
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))


def stack_columns(found: Sequence[Table]) -> Mapping[str, Any]:
    """Stack each column over all tables; where missing, floats are NaN and objects None."""
    names = dict.fromkeys(str(name) for table in found for name in table.frame.columns)
    return LazyMapping(names, partial(_stack_column, found=found))


def _stack_column(name: str, found: Sequence[Table]) -> Any:
    present = [table.frame[name] for table in found if name in table.frame]
    if not any(is_text(column) for column in present):
        return np.concatenate(
            [
                as_float_array(table.frame[name])
                if name in table.frame
                else np.full(len(table), np.nan)
                for table in found
            ]
        )
    absent = pd.Series([None], dtype=object)
    return np.concatenate(
        [
            np.asarray(
                table.frame[name] if name in table.frame else absent.repeat(len(table)), object
            )
            for table in found
        ]
    )
