"""Read an experiment file, check it with and without its data, and plan its trials."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ratecli.config.dataset import DatasetSpec
from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, read_experiment
from ratecli.datasets import registry
from ratecli.datasets.files import DownloadProgress, fetch_files, missing_source_files
from ratecli.datasets.load import find_files
from ratecli.datasets.registry import logged_columns
from ratecli.errors import Diagnostic, FaultError, errors_at, errors_under
from ratecli.experiment.cases import Case
from ratecli.experiment.checks.report import check_known_optima, check_splits
from ratecli.experiment.checks.rows import (
    check_constant_columns,
    check_filter_groups,
    check_row_ids,
    check_rows,
    check_sampling,
    load_rows,
)
from ratecli.experiment.filters import filter_goal_loc, filter_stage_cases
from ratecli.experiment.plan import Plan, make_plan
from ratecli.experiment.reading import DatasetNames, ProblemReader
from ratecli.files import shell_command
from ratecli.rates.expression import Slice
from ratecli.sampling.deployed import load_deployed_model
from ratecli.sampling.resampling import SamplingSpec
from ratecli.sampling.rows import (
    ExperimentData,
    TableWriteProgress,
    check_split,
    check_table,
    load_trial_data,
    slice_columns,
)
from ratecli.solvers.oracles.choice import check_probability_classifier, check_regressor


@dataclass(frozen=True)
class PreparedExperiment:
    """An experiment that was read, checked against its data, and planned.

    The plan is empty as long as the data was not read.
    """

    experiment: Experiment
    document: Document
    data: ExperimentData
    cases: tuple[Case, ...]
    warnings: tuple[Diagnostic, ...]
    deployed_model: bytes | None
    plan: Plan = field(default=Plan((), ()))

    @property
    def path(self) -> Path:
        return self.document.path

    def command(self, name: str, folder: Path, *more: str) -> str:
        """Return a command on this file with its overrides, for results in `folder`."""
        changes = (each for text in self.document.overrides for each in ("--set", text))
        return shell_command(name, self.path, *more, *changes, output=folder.parent)


def check_file(
    path: Path, overrides: Sequence[str] = (), *, refuse: bool = True
) -> PreparedExperiment:
    """Read a file and check everything that needs no data, like `check_document`."""
    return check_document(Document.read(path).with_overrides(overrides), refuse=refuse)


def prepare_document(document: Document) -> PreparedExperiment:
    """Check a document against its data, which must be present, and plan every trial."""
    return _check_with_data(check_document(document))


def check_document(document: Document, *, refuse: bool = True) -> PreparedExperiment:
    """Check everything that needs no data; the plan stays empty.

    Relative paths start from the document's folder. Without `refuse`, goals that an algorithm does
    not support are warnings instead of errors.
    """
    experiment = read_experiment(document)
    entries = experiment.datasets
    _each_entry(entries, document, lambda _, entry: _check_entry(entry))
    defaults: dict[str, Any] = {}
    if all(registry.label_range(entry) is not None for entry in entries.values()):
        defaults = {"objective": "mse", "metrics": {"mse": "mse"}}
    elif any(columns and columns.episode for columns in map(logged_columns, entries.values())):
        defaults = {"metrics": {}}
    absent = {key: value for key, value in defaults.items() if key not in document.data}
    experiment = experiment.model_copy(update=absent)
    reader = ProblemReader(experiment, document, entries)
    cases = reader.cases(refuse=refuse)
    column = experiment.deployed.column if experiment.deployed else None
    word = experiment.deployed.positive if experiment.deployed else None
    slices = tuple((name, tuple(cuts)) for name, cuts in reader.compared_columns(cases).items())
    used = {name for case in cases for name in case.datasets}
    folder = document.path.parent
    data = ExperimentData.of(entries, folder, deployed=column, positive=word, slices=slices)
    data = data.only(used)
    reader.add(check_known_optima(experiment, cases, data))
    model = load_deployed_model(experiment, document, data.folder)
    warnings = reader.finish()
    return PreparedExperiment(experiment, document, data, tuple(cases), warnings, model)


def list_missing_files(checked: PreparedExperiment) -> list[str]:
    """Return the files of registered sources that are not downloaded yet.

    Raises
    ------
    FaultError
        E403, E405 for a missing or changed file of the user's own, which cannot be downloaded.
    """
    entries, folder = checked.data.entries, checked.data.folder

    def check(_: str, entry: DatasetSpec) -> None:
        find_files(entry, folder, checked.data.deployed)

    _each_entry(entries, checked.document, check)
    names = [entry.source for entry in entries.values() if entry.source is not None]
    return [file for name in names for file in missing_source_files(registry.find_source(name))]


def fetch_sources(
    checked: PreparedExperiment, *, offline: bool, progress: DownloadProgress | None = None
) -> list[Path]:
    """Download the files of every registered source; raise E401-E403, E409 at the entry's place."""
    paths: list[Path] = []

    def fetch(_: str, entry: DatasetSpec) -> None:
        if entry.source is not None:
            source = registry.find_source(entry.source)
            paths.extend(fetch_files(source, offline=offline, progress=progress).values())

    _each_entry(checked.data.entries, checked.document, fetch)
    return paths


def prepare(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    offline: bool = False,
    progress: DownloadProgress | None = None,
    write_progress: TableWriteProgress | None = None,
) -> PreparedExperiment:
    """Read a file, download and read its data, check both and plan every trial."""
    checked = check_file(path, overrides)
    return prepare_data(checked, offline=offline, progress=progress, write_progress=write_progress)


def prepare_data(
    checked: PreparedExperiment,
    *,
    offline: bool = False,
    progress: DownloadProgress | None = None,
    write_progress: TableWriteProgress | None = None,
) -> PreparedExperiment:
    """Download and read the data of a checked experiment, check it again and plan every trial.

    `progress` reports downloaded bytes, `write_progress` the rows of streamed data sets as they are
    converted to records.
    """
    list_missing_files(checked)  # report missing user files before a long download
    fetch_sources(checked, offline=offline, progress=progress)
    return _check_with_data(checked, write_progress=write_progress)


def check_available(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    refuse: bool = True,
    skip_rows: Callable[[PreparedExperiment], bool] = lambda _: False,
    write_progress: TableWriteProgress | None = None,
) -> PreparedExperiment:
    """Check as much as possible without downloading: like `prepare` if all data is present.

    Otherwise, and if `skip_rows` says so, check like `check_file`, and plan the trials. If a rule
    compares all values of a column, which are then unknown, the keys of such a plan are not those
    of a run.
    """
    checked = check_file(path, overrides, refuse=refuse)
    if list_missing_files(checked) or skip_rows(checked):
        return replace(checked, plan=_plan_cases(checked))
    return _check_with_data(checked, refuse=refuse, write_progress=write_progress)


def depends_on_rows(checked: PreparedExperiment) -> bool:
    """Return whether keys of trials depend on the values of a column, as in `by=sex`."""
    experiment = checked.experiment
    rules = (experiment.objective, *experiment.constraints.values(), *experiment.metrics.values())
    return experiment.filter is not None or any(re.search(r"\bby\s*=", rule) for rule in rules)


def _plan_cases(checked: PreparedExperiment) -> Plan:
    return make_plan(
        checked.experiment, checked.document, checked.cases, checked.data, checked.deployed_model
    )


def _check_with_data(
    prepared: PreparedExperiment,
    *,
    refuse: bool = True,
    write_progress: TableWriteProgress | None = None,
) -> PreparedExperiment:
    experiment, document, data = prepared.experiment, prepared.document, prepared.data
    memory_limit = experiment.limits.memory
    entries = data.entries
    _each_entry(
        entries, document, lambda name, _: check_table(data, name, memory_limit, write_progress)
    )
    pools = dict.fromkeys(case.datasets for case in prepared.cases)
    columns = {pool: slice_columns(data.only(pool)) for pool in pools}
    reader = ProblemReader(experiment, document, experiment.datasets, columns)
    cases = reader.cases(refuse=refuse)
    used = {case.datasets for case in cases if not case.sampling.score}
    reader.add(check_row_ids(data, set(chain.from_iterable(used))))
    reader.add(check_constant_columns(data, used))
    if experiment.resample is None:
        seed = experiment.seeds[0]
        _each_entry(entries, document, lambda name, _: check_split(data, name, seed))
    reader.add(check_sampling(experiment, data, cases))
    reader.finish()
    _check_rows(prepared, reader, cases)
    reader.add(check_known_optima(experiment, cases, data))
    checked = replace(prepared, cases=tuple(cases), warnings=reader.finish())
    return replace(checked, plan=_plan_cases(checked))


def _cases_by_rows(cases: Sequence[Case]) -> Mapping[tuple[DatasetNames, SamplingSpec], list[Case]]:
    """Group the cases by their data sets and the way in which rows are sampled.

    Cases that differ only in the share of sampled training rows count as one, at the largest share:
    a small sample may lack a group, and then the trial reports it.
    """
    largest = max((case.share for case in cases if case.share is not None), default=None)
    groups: dict[tuple[DatasetNames, SamplingSpec], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.datasets, replace(case.sampling, share=largest)), []).append(case)
    return groups


def _check_rows(prepared: PreparedExperiment, reader: ProblemReader, cases: Sequence[Case]) -> None:
    """Add the errors and warnings about the rows of each pool of data sets, and of each filter.

    This includes E208 if a report, metric or expectation uses a split without rows in the relevant
    data sets.
    """
    assert reader.columns is not None
    experiment, data = prepared.experiment, prepared.data
    splits: dict[str, list[str]] = {}
    for (pool, sampling), own in _cases_by_rows(cases).items():
        with reader.collecting():
            names, model = reader.columns[pool].arrays, prepared.deployed_model
            rows = load_rows(experiment, data.only(pool), names, model, sampling)
            for name in pool:
                own_rows = partial(rows.sample.rows, Slice((name,)))
                present = (split for split in rows.splits() if own_rows(split).any())
                splits.setdefault(name, []).extend(present)
            reader.add(check_rows(reader, rows, own))
    stages = list(filter_stage_cases(cases).values())
    for (pool, sampling), own in _cases_by_rows(stages).items():
        assert experiment.filter is not None
        loc = filter_goal_loc(experiment.filter)
        with reader.collecting(), errors_at(*loc):
            rows = load_trial_data(data.only(pool), experiment.seeds[0], None, sampling)
            has_text = experiment.filter.balance is None
            reader.add(
                replace(fault, loc=loc, span=fault.span if has_text else None)
                for fault in check_filter_groups(rows, own)
            )
    if splits.keys() == {name for pool in reader.columns for name in pool}:
        reader.add(check_splits(experiment, cases, splits))


def _check_entry(entry: DatasetSpec) -> None:
    """Raise the errors of an entry's source options, and of the models that it names."""
    if entry.source is not None:
        registry.settle_options(entry)
    elif entry.logged is not None:
        with errors_under("logged", "propensity", "estimate"):
            if entry.logged.estimate is not None:
                check_probability_classifier(entry.logged.estimate)
        with errors_under("logged", "outcome_model"):
            if entry.logged.outcome_model is not None:
                check_regressor(entry.logged.outcome_model)


def _each_entry(
    entries: Mapping[str, DatasetSpec],
    document: Document,
    check: Callable[[str, DatasetSpec], object],
) -> None:
    """Call `check` with name and options of every data set; raise all errors with places."""
    faults: list[Diagnostic] = []
    for name, entry in entries.items():
        try:
            check(name, entry)
        except FaultError as error:
            located = (each.under("datasets", name, key=True) for each in error.faults)
            faults += map(document.placed, located)
    if faults:
        raise FaultError(faults)
