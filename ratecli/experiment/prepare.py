"""Reads an experiment file, checks it against its data, plans its trials, forecasts run time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, load_experiment, read_experiment
from ratecli.datasets import registry
from ratecli.datasets.columns import LazyMapping
from ratecli.datasets.download import DownloadProgress, fetch_files
from ratecli.datasets.entry import DatasetEntry
from ratecli.datasets.load import files_from_options, missing_entry_files
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import Case
from ratecli.experiment.filter_stage import filter_place, filter_stage_cases
from ratecli.experiment.group_checks import LabelKinds, check_groups
from ratecli.experiment.plan import Plan, make_plan
from ratecli.experiment.reading import ColumnValues, DatasetNames, ExperimentReader
from ratecli.experiment.report_checks import (
    check_expected_splits,
    check_known_optima,
    check_report_splits,
)
from ratecli.experiment.row_checks import (
    SplitRate,
    check_rows,
    check_sampling,
    check_split_rates,
    find_split_rows,
    load_checked_rows,
)
from ratecli.experiment.stream_checks import check_streams, compared_columns
from ratecli.ledger.records import CACHED_STATUSES, PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.sampling.deployed import load_deployed_model
from ratecli.sampling.resampling import SamplingSpec
from ratecli.sampling.rows import (
    ExperimentData,
    check_split,
    check_table,
    load_trial_data,
    slice_columns,
)
from ratecli.sampling.streamed_rows import TableWriteProgress
from ratecli.streaming.table import entry_digest


@dataclass(frozen=True)
class PreparedExperiment:
    """An experiment that was read, checked against its data, and planned."""

    path: Path
    experiment: Experiment
    document: Document
    data: ExperimentData
    cases: tuple[Case, ...]
    plan: Plan
    warnings: tuple[Diagnostic, ...]
    deployed_model: bytes | None


def check_file(
    path: Path, overrides: Sequence[str] = (), *, refuse: bool = True
) -> PreparedExperiment:
    """Read a file and check everything that needs no data; the plan stays empty.

    Without `refuse`, goals that an algorithm does not support are warnings instead of errors.
    """
    return _check_without_data(*load_experiment(path, overrides), refuse=refuse)


def check_parsed_document(document: Document) -> PreparedExperiment:
    """Check an experiment that is not in a file, like `check_file`.

    Relative paths start from the document's folder.
    """
    return _check_without_data(read_experiment(document), document)


def prepare_document(document: Document) -> PreparedExperiment:
    """Check a document against its data, which must be present, and plan every trial."""
    return _check_with_data(check_parsed_document(document))


def _check_without_data(
    experiment: Experiment, document: Document, *, refuse: bool = True
) -> PreparedExperiment:
    path = document.path
    data = _experiment_data(experiment, document, path)
    kinds = LabelKinds.of(data.entries)
    experiment = kinds.with_defaults(experiment, document)
    reading = ExperimentReader(experiment, document)
    cases = tuple(reading.cases(refuse=refuse))
    kinds.check(reading, cases)
    check_streams(reading, cases, refuse=refuse)
    used = {name for case in cases for name in case.datasets}
    data = data.only(used)
    warnings = (*reading.warnings, *check_known_optima(experiment, document, cases, data))
    model = load_deployed_model(experiment, document, data.folder)
    return PreparedExperiment(
        path, experiment, document, data, cases, Plan((), ()), warnings, model
    )


def _experiment_data(experiment: Experiment, document: Document, path: Path) -> ExperimentData:
    entries = {name: entry.entry() for name, entry in experiment.datasets.items()}
    column = experiment.deployed.column if experiment.deployed else None
    slices = tuple((name, tuple(cuts)) for name, cuts in compared_columns(experiment).items())
    for name, entry in entries.items():
        if entry.path is not None:
            own = slices if entry.stream else ()
            entries[name] = replace(entry, deployed=column, slices=own)
    data = ExperimentData.of(entries, path.parent)
    _each_entry(data, document, _check_source_options)
    return data


def _check_source_options(_: str, entry: DatasetEntry) -> None:
    if entry.source is not None:
        registry.settle_options(entry)


def list_missing_files(known: PreparedExperiment) -> list[str]:
    """Return the files of registered sources that are not downloaded yet.

    Raises
    ------
    FaultError
        E403, E405 for a missing or changed file of the user's own, which cannot be downloaded.
    """
    data = known.data

    def look(_: str, entry: DatasetEntry) -> None:
        if entry.source is not None:
            files_from_options(entry, data.folder)
        else:
            entry_digest(entry, data.folder)

    _each_entry(data, known.document, look)
    sources = [item.entry for item in data.items if item.entry.source is not None]
    return [file for entry in sources for file in missing_entry_files(entry, data.folder)]


def fetch_sources(
    known: PreparedExperiment, *, offline: bool, progress: DownloadProgress | None = None
) -> list[Path]:
    """Download the files of every registered source; raise E401-E403, E409 at the entry's place."""
    found: list[Path] = []

    def bring(_: str, entry: DatasetEntry) -> None:
        if entry.source is not None:
            source = registry.find_source(entry.source)
            found.extend(fetch_files(source, offline=offline, progress=progress).values())

    _each_entry(known.data, known.document, bring)
    return found


def prepare(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    offline: bool = False,
    progress: DownloadProgress | None = None,
    written: TableWriteProgress | None = None,
) -> PreparedExperiment:
    """Read a file, download and read its data, check both and plan every trial."""
    known = check_file(path, overrides)
    return prepare_data(known, offline=offline, progress=progress, written=written)


def prepare_data(
    known: PreparedExperiment,
    *,
    offline: bool = False,
    progress: DownloadProgress | None = None,
    written: TableWriteProgress | None = None,
) -> PreparedExperiment:
    """Download and read the data of a checked experiment, check it again and plan every trial.

    `progress` reports downloaded bytes, `written` reports rows of streamed data sets as they are
    converted to records.
    """
    list_missing_files(known)  # report missing user files before a long download
    fetch_sources(known, offline=offline, progress=progress)
    return _check_with_data(known, written=written)


def check_available(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    refuse: bool = True,
    written: TableWriteProgress | None = None,
) -> PreparedExperiment:
    """Check as much as possible without downloading: like `prepare` if all data is present.

    Otherwise, check like `check_file`, and check the dependencies between trials.
    """
    known = check_file(path, overrides, refuse=refuse)
    if not list_missing_files(known):
        return _check_with_data(known, refuse=refuse, written=written)
    _plan_cases(known, known.cases)  # E310 needs no data
    return known


def _plan_cases(known: PreparedExperiment, cases: Sequence[Case]) -> Plan:
    return make_plan(known.experiment, known.document, cases, known.data, known.deployed_model)


def _check_with_data(
    known: PreparedExperiment, *, refuse: bool = True, written: TableWriteProgress | None = None
) -> PreparedExperiment:
    experiment, document, data = known.experiment, known.document, known.data
    bound = experiment.limits.memory
    _each_entry(data, document, lambda name, _: check_table(data, name, bound, written))
    columns = {
        pool: _read_column_values(data.only(pool)) for pool in _cases_by_datasets(known.cases)
    }
    reading = ExperimentReader(experiment, document, columns)
    cases = tuple(reading.cases(refuse=refuse))
    if experiment.resample is None:
        seed = experiment.seeds[0]
        _each_entry(data, document, lambda name, _: check_split(data, name, seed))
    check_sampling(experiment, document, data, cases)
    found = _check_rows(known, reading, cases)
    warnings = [*reading.warnings, *found, *check_known_optima(experiment, document, cases, data)]
    return replace(known, cases=cases, plan=_plan_cases(known, cases), warnings=tuple(warnings))


def _cases_by_datasets(cases: Sequence[Case]) -> dict[DatasetNames, list[Case]]:
    """Group the cases by their data sets."""
    found: dict[DatasetNames, list[Case]] = {}
    for case in cases:
        found.setdefault(case.datasets, []).append(case)
    return found


def _cases_by_rows(cases: Sequence[Case]) -> dict[tuple[DatasetNames, SamplingSpec], list[Case]]:
    """Group the cases by their data sets and the way in which rows are sampled.

    Cases that differ only in the share of sampled training rows count as one, at the largest share:
    a small sample may lack a group, and then the trial reports it.
    """
    most = max((case.share for case in cases if case.share is not None), default=None)
    found: dict[tuple[DatasetNames, SamplingSpec], list[Case]] = {}
    for case in cases:
        drawing = replace(case.drawing, share=most)
        found.setdefault((case.datasets, drawing), []).append(case)
    return found


def _check_rows(
    known: PreparedExperiment, reading: ExperimentReader, cases: Sequence[Case]
) -> list[Diagnostic]:
    """Return warnings about the rows of each pool of data sets; raise the errors of all pools.

    This includes E208 if a report, metric or expectation uses a split without rows in the relevant
    data sets.
    """
    assert reading.columns is not None
    experiment, document = known.experiment, known.document
    warnings: list[Diagnostic] = []
    faults: list[Diagnostic] = []
    splits: dict[DatasetNames, tuple[str, ...]] = {}
    asked: dict[SplitRate, bool] = {}
    pools = _cases_by_datasets(cases)
    for (pool, drawing), own in _cases_by_rows(cases).items():
        data, columns = known.data.only(pool), reading.columns[pool]
        try:
            model = known.deployed_model
            rows = load_checked_rows(experiment, document, data, columns, model, drawing=drawing)
            splits[pool] = tuple(dict.fromkeys([*splits.get(pool, ()), *rows.splits()]))
            for each, there in find_split_rows(rows.sample, own).items():
                asked[each] = there or asked.get(each, False)
            told = check_groups(experiment, document, rows, own)
            faults += [fault for fault in told if fault.is_error]
            warnings += [fault for fault in told if not fault.is_error]
            warnings += check_rows(rows, document, reading, own)
        except FaultError as error:
            faults += error.faults
    for fault in _check_filter_stages(known, cases):
        (faults if fault.is_error else warnings).append(fault)
    if splits.keys() == pools.keys():
        faults += check_report_splits(
            experiment, document, list(dict.fromkeys(chain(*splits.values())))
        )
        faults += check_split_rates(document, asked)
        faults += check_expected_splits(experiment, document, splits)
    if faults:
        raise FaultError(dict.fromkeys(faults))
    return list(dict.fromkeys(warnings))


def _check_filter_stages(known: PreparedExperiment, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield errors and warnings about the rows of the filters that training rows pass through."""
    experiment, document = known.experiment, known.document
    for (pool, drawing), own in _cases_by_rows(list(filter_stage_cases(cases).values())).items():
        try:
            rows = load_trial_data(known.data.only(pool), experiment.seeds[0], None, drawing)
        except FaultError as error:
            place = filter_place(document)
            yield from (fault.at(place) for fault in error.faults)
            continue
        yield from check_groups(experiment, document, rows, own)


def _read_column_values(data: ExperimentData) -> ColumnValues:
    columns = slice_columns(data)
    return ColumnValues(LazyMapping(columns, lambda name: distinct_values(columns[name])))


def distinct_values(column: Any) -> list[str | float]:
    """Return the distinct non-missing texts or floats of an (n,) array, sorted."""
    if column.dtype.kind == "f":
        return [float(value) for value in np.unique(column[~np.isnan(column)])]
    return sorted({value for value in column if value is not None})


def _each_entry(
    data: ExperimentData, document: Document, look: Callable[[str, DatasetEntry], object]
) -> None:
    """Call `look` with name and options of every data set; raise all errors with places."""
    faults: list[Diagnostic] = []
    for name, entry in data.entries.items():
        try:
            look(name, entry)
        except FaultError as error:
            faults += (document.placed(each, "datasets", name, key=True) for each in error.faults)
    if faults:
        raise FaultError(faults)


@dataclass(frozen=True)
class RunForecast:
    """Forecast for the trials of one algorithm or experiment.

    `seconds` is the expected time of the trials to run, None if stored trials do not indicate it.
    """

    label: str
    trials: int
    stored: int
    seconds: float | None

    @property
    def to_run(self) -> int:
        return self.trials - self.stored


def forecast_run(prepared: PreparedExperiment, ledger: Path) -> list[RunForecast]:
    """Return a forecast for each label, in the file's order; `ledger` may be missing."""
    look = _read_stored_trials(prepared, ledger)
    labels: dict[str, list[PlannedTrial]] = {}
    for trial in look.trials.values():
        labels.setdefault(trial.label, []).append(trial)
    return [_make_forecast(label, [(look, own)], look.kept) for label, own in labels.items()]


def forecast_runs(several: Sequence[tuple[PreparedExperiment, Path]]) -> list[RunForecast]:
    """Return a forecast for each experiment, by name, and one for all of them together.

    The latter counts shared trials once. A trial that one ledger stores counts as stored for all,
    since a run of all copies it. The time of an algorithm without stored trials is taken from the
    other experiments.
    """
    looks = [_read_stored_trials(prepared, ledger) for prepared, ledger in several]
    told = {name: time for look in reversed(looks) for name, time in look.seconds.items()}
    looks = [replace(look, seconds={**told, **look.seconds}) for look in looks]
    shared = {key for look in looks for key in look.kept if key in look.trials}
    found = [
        _make_forecast(prepared.experiment.name, [(look, look.trials.values())], look.kept | shared)
        for (prepared, _), look in zip(several, looks, strict=True)
    ]
    first: dict[str, _StoredTrials] = {key: look for look in reversed(looks) for key in look.trials}
    parts = [
        (look, [look.trials[key] for key in look.trials if first[key] is look]) for look in looks
    ]
    return [*found, _make_forecast("all", parts, shared)]


@dataclass(frozen=True)
class _StoredTrials:
    """The planned trials, the keys stored in the ledger, and mean seconds per algorithm."""

    trials: Mapping[str, PlannedTrial]
    kept: frozenset[str]
    seconds: Mapping[str, float]


def _read_stored_trials(prepared: PreparedExperiment, ledger: Path) -> _StoredTrials:
    before, results = _load_ledger(ledger)
    trials = {trial.key: trial for trial in prepared.plan.planned}
    algorithm_of = {trial.key: trial.algorithm for trial in [*before, *trials.values()]}
    kept = {key: result for key, result in results.items() if result.status in CACHED_STATUSES}
    times: dict[str, list[float]] = {}
    for key, result in kept.items():
        if key in algorithm_of:
            times.setdefault(algorithm_of[key], []).append(result.seconds)
    return _StoredTrials(
        trials, frozenset(kept), {name: mean(each) for name, each in times.items()}
    )


def _make_forecast(
    label: str,
    parts: Iterable[tuple[_StoredTrials, Collection[PlannedTrial]]],
    kept: Collection[str],
) -> RunForecast:
    """Combine trials of several experiments into one forecast; trials in `kept` need not run."""
    count = stored = 0
    times: list[float | None] = []
    for look, own in parts:
        lacking = [trial for trial in own if trial.key not in kept]
        count += len(own)
        stored += len(own) - len(lacking)
        times += [look.seconds.get(trial.algorithm) for trial in lacking]
    known = [time for time in times if time is not None]
    return RunForecast(label, count, stored, sum(known) if len(known) == len(times) else None)


def _load_ledger(ledger: Path) -> tuple[list[PlannedTrial], Mapping[str, TrialResult]]:
    if not ledger.is_file():
        return [], {}
    with LedgerStore(ledger, readonly=True) as store:
        plan, results, _ = store.read()
        return plan, results
