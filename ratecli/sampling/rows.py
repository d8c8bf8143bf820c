"""The rows of an experiment: tables are read once per process, then stacked and split per seed.

With `levels: M`, each row occurs M times, once per level. A balanced filter weights training rows
by their chance to be kept, or samples them. Streamed data sets are included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.config.dataset import DatasetSpec, KernelSpec
from ratecli.datasets.columns import ColumnKind, LazyMapping, is_text
from ratecli.datasets.encode import Encoder, features_at_levels, stack_features
from ratecli.datasets.files import modification_time
from ratecli.datasets.load import load_entry_table
from ratecli.datasets.logged import DEPLOYED_DECISION, read_decisions
from ratecli.datasets.registry import import_function, true_returns
from ratecli.datasets.table import SliceColumns, Table
from ratecli.datasets.text_format import PLAIN, TextFormat
from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import TrialResult, random_stream
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import all_outputs, append_memberships
from ratecli.models.layout import ColumnLayout
from ratecli.models.output_cache import fixed_features
from ratecli.models.policy import EpisodeLayout, SoftmaxPolicy
from ratecli.models.proxies import ProxyFilter
from ratecli.models.storage import loads
from ratecli.rates.expression import ALL_ROWS
from ratecli.rates.matrix import Predictions
from ratecli.rates.sample import Sample, make_read_only, relative_weights
from ratecli.rates.syntax import SPLITS
from ratecli.rates.table import return_key
from ratecli.sampling.encoding import Encoding, slice_memberships
from ratecli.sampling.logs import logs_of
from ratecli.sampling.resampling import (
    NO_RESAMPLING,
    RowSplit,
    SamplingSpec,
    split_dataset_rows,
)
from ratecli.streaming.cells import CellTable, encoded_stream
from ratecli.streaming.stream import RowStream
from ratecli.streaming.table import RecordProgress, StreamedTable, check_memory

TableWriteProgress = Callable[[str, int, int | None], None]
"""Called with a data set's name, the rows written so far, and their total or None if unknown."""
LEVEL_COLUMN = "level"
"""Column with the level of each copy of a row: 0.0 to M - 1."""
MIN_KEEP_CHANCE = 1e-12
"""A smaller chance to be kept by a filter counts as 0: it is a rounding error."""
DROPPED = "dropped"
"""Marks training rows that a filter drops; it is not a split."""

RowPositions = NDArray[np.intp]


class NoRowsKeptError(FaultError):
    """Raised if a filter keeps no training rows."""


class DatasetItem(NamedTuple):
    """A data set of an experiment; `written` are the modification times of the user's own files.

    With these times, a long-lived process, such as a notebook, reads a changed file again.
    """

    name: str
    entry: DatasetSpec
    written: tuple[int, ...]


@dataclass(frozen=True)
class ExperimentData:
    """The data sets of an experiment in alphabetical order; paths are relative to `folder`.

    `deployed` is the column with the decisions of a deployed model, which is not a feature, and
    `positive` the word for a positive one, None if it has the words of the label. For each column
    that defines groups of streamed rows, `slices` has the numbers it is compared with.
    """

    items: tuple[DatasetItem, ...]
    folder: Path
    deployed: str | None = None
    positive: str | None = None
    slices: tuple[tuple[str, tuple[float, ...]], ...] = ()

    @classmethod
    def of(cls, entries: Mapping[str, DatasetSpec], folder: Path, **others: Any) -> ExperimentData:
        items = []
        for name, entry in sorted(entries.items()):
            files = (entry.path, *filter(None, entry.score_files.values()))
            written = tuple(modification_time(file, folder) for file in files)
            items.append(DatasetItem(name, entry, written))
        return cls(tuple(items), folder.absolute(), **others)

    def only(self, names: Collection[str]) -> ExperimentData:
        """Return the data restricted to some of the data sets."""
        return replace(self, items=tuple(item for item in self.items if item.name in names))

    @property
    def entries(self) -> dict[str, DatasetSpec]:
        return {item.name: item.entry for item in self.items}

    @property
    def text_format(self) -> TextFormat:
        """How the files of tables write rows and numbers; the default if they differ."""
        forms = set(map(TextFormat.of_spec, self.entries.values()))
        return forms.pop() if len(forms) == 1 else PLAIN

    @property
    def kernel(self) -> KernelSpec | None:
        """The kernel of the features; E411 if that of the data sets differs."""
        kernel, *others = dict.fromkeys(entry.kernel for entry in self.entries.values())
        if others:
            message = "the data sets' features differ: they have different kernels"
            hint = "write the same kernel, components and gamma under 'features' of each"
            raise FaultError(Diagnostic("E411", message, hint))
        return kernel

    @property
    def levels(self) -> int:
        """The number of levels, which all data sets share (`config.experiment`)."""
        (levels,) = {item.entry.levels or 1 for item in self.items}
        return levels

    @property
    def streamed(self) -> bool:
        """Whether rows are streamed; a streamed data set is always the only one."""
        return any(bool(item.entry.stream) for item in self.items)


@dataclass(frozen=True)
class TrialData:
    """All rows of one seed: the sample that rates read, and the features that classifiers read.

    Each row of the data occurs `levels` times. `encoding` is JSON that describes how features are
    made of columns (`sampling.encoding`), `layout` says which belong to one column (None: each is
    a number). `before` are the rows before a filter weighted or dropped some, None without one.
    `positions` are the rows' places in the tables, one after another; None if they are in order.
    With a `stream`, rows are not in memory: the sample consists of cells of rows with equal rates
    (`streaming.stream`), and X has no columns.
    """

    sample: Sample
    X: Features
    levels: int = 1
    encoding: str = ""
    before: Sample | None = None
    stream: RowStream | None = None
    layout: ColumnLayout | None = None
    episodes: EpisodeLayout | None = None
    true_returns: str = ""
    positions: RowPositions | None = None

    def __post_init__(self) -> None:
        make_read_only(self)

    def answers(
        self, classifiers: Mapping[str, Classifier], *, estimated: bool = True
    ) -> dict[str, Predictions]:
        """Return the predictions of each classifier; over a stream, in one pass.

        Unless `estimated`, predictions over a stream lack the errors of estimates.
        """
        if self.stream is None or not classifiers:
            with fixed_features(self.X):
                return {name: self.predictions(each) for name, each in classifiers.items()}
        label = self.sample.label if estimated else None
        return self.stream.predictions(classifiers, label)

    def predictions(self, classifier: Classifier) -> Predictions:
        """Return predictions on all rows; E411 for slices of missing columns."""
        if self.stream is not None:
            return self.answers({"": classifier})[""]
        X = append_memberships(self.X, slice_memberships(self.sample, classifier.slices))
        if isinstance(classifier, ProxyFilter):
            kept = classifier.decide(X)
            return Predictions(kept, kept, kept, classifier.proxy.memberships(X))
        if isinstance(classifier, SoftmaxPolicy):
            return self._predicted_returns(classifier)
        return Predictions(*all_outputs(classifier, X))

    def _predicted_returns(self, policy: SoftmaxPolicy) -> Predictions:
        """Return the returns of a policy, and the true ones if they are known."""
        none, returns = policy.decide(self.X), dict[str, Array](policy.returns(self.X))
        if self.true_returns:
            for outcome, value in import_function(self.true_returns)(policy).items():
                returns[return_key("return_true", outcome)] = np.full(len(none), value)
        return Predictions(none, none, none, returns=returns)

    def counted(self, some: RowPositions) -> float:
        """Return the number of rows at some positions; with a filter, the expected number kept."""
        if self.before is None:
            return float(self.sample.counted(some))
        return float((self.sample.weight[some] / self.before.weight[some]).sum())

    def unfiltered(self) -> Sample:
        """Return the rows with the splits and weights that they have without a filter."""
        if self.before is None:
            return self.sample
        return replace(self.before, deployed=self.sample.deployed, others=self.sample.others)

    def splits(self) -> dict[str, int]:
        """Return the number of rows of each nonempty split, in the order of `SPLITS`."""
        sample = self.sample
        counts = {name: sample.counted(sample.rows(ALL_ROWS, name)) for name in SPLITS}
        return {name: count for name, count in counts.items() if count}


def get_tables(data: ExperimentData) -> dict[str, Table]:
    """Return every table by its name in the file."""
    return {item.name: _read_table(item, data.folder, data.deployed) for item in data.items}


def get_table(data: ExperimentData, name: str) -> Table:
    return get_tables(data.only([name]))[name]


@lru_cache(maxsize=8)
def _read_table(item: DatasetItem, folder: Path, deployed: str | None) -> Table:
    """Read a table; its files were downloaded before any trial, so this never uses the network."""
    return load_entry_table(item.entry, folder, deployed=deployed, offline=True)


@lru_cache(maxsize=8)
def get_streamed_table(data: ExperimentData) -> StreamedTable:
    """Return the table of the only data set, which is streamed."""
    return _streamed_table(data, None)


def _streamed_table(data: ExperimentData, progress: RecordProgress | None) -> StreamedTable:
    (item,) = data.items
    slices = [name for name, _ in data.slices]
    return StreamedTable(item.entry, data.folder, progress, slices, data.deployed)


def get_any_table(data: ExperimentData, name: str) -> Table | StreamedTable:
    """Return a table, in memory or streamed."""
    own = data.only([name])
    return get_streamed_table(own) if own.streamed else get_table(own, name)


def check_table(
    data: ExperimentData,
    name: str,
    bound: int | None = None,
    written: TableWriteProgress | None = None,
) -> None:
    """Read a table and raise its errors, E404 to E413.

    E412 if a streamed table takes more than `bound` bytes; E411 if rows are to be copied at levels
    and their table already has a level column. `written` reports the rows of a streamed table as
    they are converted to records.
    """
    own = data.only([name])
    if own.streamed:
        progress = None if written is None else partial(written, name)
        check_memory(name, _streamed_table(own, progress), bound)
    elif LEVEL_COLUMN in get_table(data, name).frame and data.levels > 1:
        message = (
            f"with 'levels' each row gets a column '{LEVEL_COLUMN}', but the table already has one"
        )
        hint = "rename the table's own column"
        raise FaultError(Diagnostic("E411", message, hint, loc=("levels",)))


def split_dataset(
    data: ExperimentData, name: str, seed: int, sampling: SamplingSpec = NO_RESAMPLING
) -> RowSplit:
    """Return the rows of one data set and their splits, which copies at all levels share.

    Neither this nor `load_trial_data` applies a filter, so `sampling` must have none.
    """
    assert sampling.row_filter is None
    table, spec = get_table(data, name), data.entries[name].division
    return split_dataset_rows(table, name, spec, seed, sampling)


def check_split(data: ExperimentData, name: str, seed: int) -> None:
    """Raise E205 or E410 if the rows cannot be split as the entry specifies."""
    if data.entries[name].stream:
        load_trial_data(data.only([name]), seed)
    else:
        split_dataset(data, name, seed)


@lru_cache(maxsize=2)
def load_trial_data(
    data: ExperimentData,
    seed: int,
    deployed: str | None = None,
    sampling: SamplingSpec = NO_RESAMPLING,
) -> TrialData:
    """Return the stacked rows of a seed; `deployed` is a column with a model's decisions.

    Results that differ only in the rows held out for a safety test have the same rows in the same
    order, with features encoded as their own training rows require.
    """
    if data.streamed:
        return _load_streamed(data, seed, deployed)
    found = {name: split_dataset(data, name, seed, sampling) for name in data.entries}
    return _encode_rows(data, found, deployed, sampling, seed)


def load_training_rows(
    data: ExperimentData,
    seed: int,
    deployed: str | None,
    sampling: SamplingSpec,
    results: Mapping[str, TrialResult],
) -> TrialData:
    """Return the rows of a trial; `results` has the result of the filter's trial, by key.

    Raises
    ------
    NoRowsKeptError
        E410 if no training row is left.
    """
    if sampling.row_filter is None:
        return load_trial_data(data, seed, deployed, sampling)
    blob = next(iter(results[sampling.row_filter.key].models.values()))
    return filter_trial_data(data, seed, deployed, sampling, blob)


@lru_cache(maxsize=2)
def filter_trial_data(
    data: ExperimentData, seed: int, deployed: str | None, sampling: SamplingSpec, blob: bytes
) -> TrialData:
    """Return the rows of `load_trial_data` after a stored filter, which changes only training rows.

    With `take: weights`, the weight of a training row is multiplied by its chance of being kept;
    with `take: sample`, it is kept with that chance. Dropped rows belong to no split, and features
    are encoded as the remaining rows require.
    """
    row_filter, sampling = sampling.row_filter, replace(sampling, row_filter=None)
    assert row_filter is not None
    unfiltered = load_trial_data(data, seed, None, row_filter.sampling)
    train = unfiltered.sample.part == "train"
    kept = np.where(train, unfiltered.predictions(loads(blob)).decisions, 1.0)
    kept[kept < MIN_KEEP_CHANCE] = 0.0
    if row_filter.take == "sample":
        draws, order = random_stream(seed, "filter sample").random(len(kept)), unfiltered.positions
        if sampling.share is None and data.levels == 1 and order is not None:
            draws = draws[order]  # one for each row of the tables
        kept = np.where(train, draws < kept, 1.0)
    if not kept[train].any():
        message = "the filter keeps no training row"
        raise NoRowsKeptError(Diagnostic("E410", message, "set take: weights, or a higher limit"))
    splits = {name: split_dataset(data, name, seed, sampling) for name in data.entries}
    ends = np.cumsum([len(each.part) for each in splits.values()])[:-1]
    for (name, each), own in zip(list(splits.items()), np.split(kept, ends), strict=True):
        splits[name] = RowSplit(each.rows, np.where(own == 0, DROPPED, each.part))
    rows = _encode_rows(data, splits, deployed, sampling, seed)
    before = replace(rows.sample, part=unfiltered.sample.part)
    weight = before.weight * np.where(kept > 0, kept, 1.0)
    return replace(rows, sample=replace(rows.sample, weight=weight), before=before)


def _encode_rows(
    data: ExperimentData,
    found: Mapping[str, RowSplit],
    deployed: str | None,
    sampling: SamplingSpec,
    seed: int,
) -> TrialData:
    """Return the rows of a seed, like `load_trial_data`, from rows that are already split.

    `found` maps each data set to its split. Rows without a split are neither training nor test
    rows.
    """
    named, levels, stacked, kernel = get_tables(data), data.levels, _stack_tables(data), data.kernel
    tables, splits = list(named.values()), [found[name] for name in named]
    train = [split.rows[split.part == "train"] for split in splits]
    encoder = Encoder.fit(tables, train, sampling.unseen, sampling.score)
    if kernel is not None and not sampling.score:
        draws = int(random_stream(seed, "kernel").integers(2**32))
        encoder = encoder.with_kernel(kernel, tables, train, draws)
    # all rows in order are not copied
    chosen = (
        None if np.array_equal(own.rows, np.arange(len(table))) else own.rows
        for table, own in zip(tables, splits, strict=True)
    )
    X = stack_features(list(map(encoder.transform, tables, chosen)))
    starts = np.cumsum([0, *map(len, tables)])[:-1]
    rows = np.repeat(
        np.concatenate([a + b.rows for a, b in zip(starts, splits, strict=True)]), levels
    )
    columns = LazyMapping(stacked.columns, lambda name: stacked.columns[name][rows])
    sample = replace(
        stacked,
        columns=_with_levels(columns, levels, X.shape[0]),
        label=stacked.label[rows],
        dataset=stacked.dataset[rows],
        part=np.repeat(np.concatenate([split.part for split in splits]), levels),
        weight=stacked.weight[rows],
    )
    layout = encoder.layout
    if (logs := logs_of(named, sample, X, layout)) is not None:
        sample = replace(sample, logs=logs)
    if levels > 1:
        X, layout = features_at_levels(X, levels), ColumnLayout(np.append(layout.levels, levels))
    return TrialData(
        _with_decisions(sample, deployed, data),
        X,
        levels,
        Encoding.of(encoder, stacked.columns, levels, data.text_format).text(),
        layout=layout,
        episodes=tables[0].episodes,
        true_returns=true_returns(data.items[0].entry),
        positions=rows,
    )


def _with_levels(columns: Mapping[str, Any], levels: int, rows: int = 1) -> Mapping[str, Any]:
    """Return columns of rows at each level in turn, and a level column if there are levels."""
    if levels == 1:
        return columns
    level = np.tile(np.arange(levels, dtype=float), rows)
    names = [*columns, LEVEL_COLUMN]
    return LazyMapping(names, lambda name: level if name == LEVEL_COLUMN else columns[name])


def _with_decisions(sample: Sample, deployed: str | None, data: ExperimentData) -> Sample:
    """Return the sample with the deployed model's decisions, read from a column if one is named.

    They may be the words of the label, if all data sets name the same positive one.
    """
    if deployed is None:
        return sample
    positives = {data.positive or entry.positive for entry in data.entries.values()}
    positive = positives.pop() if len(positives) == 1 else None
    decisions = read_decisions(sample.columns[deployed], deployed, DEPLOYED_DECISION, positive)
    return sample.with_deployed(decisions)


@lru_cache(maxsize=2)
def _stack_tables(data: ExperimentData) -> Sample:
    """Stack all rows of all tables, each once; the data of every seed is taken from it."""
    named = get_tables(data)
    tables = list(named.values())
    weights = [np.ones(len(each)) if each.weight is None else each.weight for each in tables]
    try:
        weight = relative_weights(np.concatenate(weights))
    except ValueError as error:
        message = f"the weight of all data sets together {error}"
        raise FaultError(Diagnostic("E411", message, "use weights in the same unit")) from None
    names = dict.fromkeys(str(name) for table in tables for name in table.frame.columns)
    ends = [table.label_range for table in tables if table.label_range is not None]
    return Sample(
        columns=LazyMapping(names, partial(_stack_column, tables)),
        label=np.concatenate([table.label for table in tables]),
        dataset=np.concatenate([np.full(len(table), name) for name, table in named.items()]),
        part=np.full(len(weight), ""),
        weight=weight,
        # the range that covers all numeric labels
        label_range=(min(low for low, _ in ends), max(high for _, high in ends)) if ends else None,
    )


def _stack_column(tables: Sequence[Table], name: str) -> NDArray[Any]:
    """Stack a column over all tables; where missing, floats are NaN and objects None."""
    columns = [table.frame.get(name) for table in tables]
    text = any(column is not None and is_text(column) for column in columns)
    kind, missing = (object, None) if text else (float, np.nan)
    found = [
        np.full(len(table), missing) if column is None or column.isna().all() else column
        for column, table in zip(columns, tables, strict=True)
    ]
    return np.concatenate([np.asarray(column, dtype=kind) for column in found])


def slice_columns(data: ExperimentData) -> SliceColumns:
    """Return every column that slices may name, over all rows; if streamed, each value once."""
    if data.streamed:
        return SliceColumns(get_streamed_table(data).values(), streamed=True)
    return SliceColumns(_with_levels(_stack_tables(data).columns, data.levels))


def _load_streamed(data: ExperimentData, seed: int, deployed: str | None) -> TrialData:
    """Return the rows of a seed, like `load_trial_data`, of a streamed data set.

    Raises
    ------
    FaultError
        E205, E406, E410, E411, E413.
    """
    (item,) = data.items
    table, spec = get_streamed_table(data), item.entry.division
    own, fold = spec.draw(seed)

    def random(stretch: int) -> np.random.Generator:
        return random_stream(own, "split", item.name, *([str(stretch)] if stretch else []))

    slices = dict(data.slices)
    if deployed is not None:
        slices[deployed] = (0.0, 1.0, *slices.get(deployed, ()))
    cells = CellTable(table, slices, spec, f"{own} {fold} {item.name}", random, fold=fold)
    stream, encoder = encoded_stream(table, cells)
    sample = Sample(
        columns=cells.columns,
        label=cells.label,
        dataset=np.full(len(cells.label), item.name),
        part=cells.part,
        weight=cells.weight,
        count=cells.count,
    )
    others: dict[str, ColumnKind] = {
        name: "text" if column.is_text else "number"
        for name, column in table.columns.items()
        if name not in encoder.kinds
    }
    X, encoding = np.zeros((len(sample), 0)), Encoding(encoder, others, form=data.text_format)
    sample = _with_decisions(sample, deployed, data)
    return TrialData(sample, X, encoding=encoding.text(), stream=stream)
