"""A file read, checked against its data, and planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, load_experiment, read_experiment
from ratecli.datasets import registry
from ratecli.datasets.columns import Lazy
from ratecli.datasets.download import Progress, ensure
from ratecli.datasets.load import given_files, missing
from ratecli.datasets.roles import Options
from ratecli.errors import Fault, FaultError
from ratecli.experiment.cases import Case
from ratecli.experiment.entry_places import EntryPlaces
from ratecli.experiment.expect_checks import expected_splits
from ratecli.experiment.filter_stage import stage_cases, stage_place
from ratecli.experiment.frontier import unknown_optima
from ratecli.experiment.group_checks import group_faults
from ratecli.experiment.label_checks import LabelKinds
from ratecli.experiment.plan import Plan, make_plan
from ratecli.experiment.reading import Columns, Pool, Reading
from ratecli.experiment.report_checks import split_faults
from ratecli.experiment.row_checks import check_drawings, check_rows, known_rows
from ratecli.experiment.split_checks import Asked, found_rows, rowless
from ratecli.experiment.stream_checks import check_streams, compared_columns
from ratecli.sampling.deployed import stored_model
from ratecli.sampling.resampling import Drawing
from ratecli.sampling.rows import Data, check_split, check_table, columns_of, world
from ratecli.sampling.streamed_rows import Written
from ratecli.streaming.files import identity


@dataclass(frozen=True)
class Prepared:
    """An experiment read, checked against its data, and planned."""

    path: Path
    experiment: Experiment
    document: Document
    data: Data
    cases: tuple[Case, ...]
    plan: Plan
    warnings: tuple[Fault, ...]
    deployed_model: bytes | None


def understand(path: Path, overrides: Sequence[str] = (), *, refuse: bool = True) -> Prepared:
    """Read a file and check all that can be checked without data; nothing is planned.

    Without `refuse`, goals that an algorithm does not take are among the warnings.
    """
    return _understood(*load_experiment(path, overrides), refuse=refuse)


def understand_document(document: Document) -> Prepared:
    """As `understand`, of an experiment that is in no file; its paths start from the document's folder."""
    return _understood(read_experiment(document), document)


def prepared(document: Document) -> Prepared:
    """The same with data that is there, and every trial planned."""
    return _with_data(understand_document(document))


def _understood(experiment: Experiment, document: Document, *, refuse: bool = True) -> Prepared:
    path = document.path
    data = _data(experiment, document, path)
    kinds = LabelKinds.of(data.options())
    experiment = kinds.with_defaults(experiment, document)
    reading = Reading(experiment, document)
    cases = tuple(reading.cases(refuse=refuse))
    kinds.check(reading, cases)
    check_streams(reading, cases, refuse=refuse)
    used = {name for case in cases for name in case.datasets}
    data = data.only(used)
    warnings = (*reading.warnings, *unknown_optima(experiment, document, cases, data))
    model = stored_model(experiment, document, data.folder)
    return Prepared(path, experiment, document, data, cases, Plan((), ()), warnings, model)


def _data(experiment: Experiment, document: Document, path: Path) -> Data:
    options = {name: entry.options() for name, entry in experiment.datasets.items()}
    if experiment.deployed and experiment.deployed.column:
        for entry in options.values():
            if "path" in entry:
                entry["deployed"] = experiment.deployed.column
    told = compared_columns(experiment)
    for entry in options.values():
        if entry.get("stream"):
            entry["slices"] = told
    data = Data.of(options, path.parent)
    _each_entry(data, document, _settled)
    return data


def _settled(_: str, options: Options) -> None:
    if "source" in options:
        registry.settle(options)


def absent_files(known: Prepared) -> list[str]:
    """Files of registered sources that are not there yet.

    Raises
    ------
    FaultError
        E403, E405 for a file of one's own, which nothing can fetch.
    """
    data = known.data

    def look(_: str, entry: Options) -> None:
        if "source" in entry:
            given_files(entry, data.folder)
        else:
            identity(entry, data.folder)

    _each_entry(data, known.document, look)
    sources = (entry for entry in data.options().values() if "source" in entry)
    return [file for entry in sources for file in missing(entry, data.folder)]


def fetch(known: Prepared, *, offline: bool, progress: Progress | None = None) -> list[Path]:
    """Bring the files of every registered source; E401-E403, E409 with the entry's place."""
    found: list[Path] = []

    def bring(_: str, options: Options) -> None:
        if "source" in options:
            source = registry.find(options["source"])
            found.extend(ensure(source, offline=offline, progress=progress).values())

    _each_entry(known.data, known.document, bring)
    return found


def prepare(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    offline: bool = False,
    progress: Progress | None = None,
    written: Written | None = None,
) -> Prepared:
    """Read a file, fetch and read its data, check both and plan every trial."""
    known = understand(path, overrides)
    return ready(known, offline=offline, progress=progress, written=written)


def ready(
    known: Prepared,
    *,
    offline: bool = False,
    progress: Progress | None = None,
    written: Written | None = None,
) -> Prepared:
    """What is understood with its data, fetched and read, and every trial planned.

    `progress` is told of bytes fetched, `written` of rows of streamed data sets that become records.
    """
    absent_files(known)  # before a long download: is what nobody can fetch there?
    fetch(known, offline=offline, progress=progress)
    return _with_data(known, written=written)


def examine(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    refuse: bool = True,
    written: Written | None = None,
) -> Prepared:
    """What can be told here and now: as `prepare` where all data is there, else as `understand`."""
    known = understand(path, overrides, refuse=refuse)
    if not absent_files(known):
        return _with_data(known, refuse=refuse, written=written)
    _plan(known, known.cases)  # E310 needs no data
    return known


def _plan(known: Prepared, cases: Sequence[Case]) -> Plan:
    return make_plan(known.experiment, known.document, cases, known.data, known.deployed_model)


def _with_data(known: Prepared, *, refuse: bool = True, written: Written | None = None) -> Prepared:
    experiment, document, data = known.experiment, known.document, known.data
    bound = experiment.limits.memory
    _each_entry(data, document, lambda name, _: check_table(data, name, bound, written))
    columns = {pool: _columns(data.only(pool)) for pool in _pools(known.cases)}
    reading = Reading(experiment, document, columns)
    cases = tuple(reading.cases(refuse=refuse))
    if experiment.resample is None:
        seed = experiment.seeds[0]
        _each_entry(data, document, lambda name, _: check_split(data, name, seed))
    check_drawings(experiment, document, data, cases)
    found = _check_rows(known, reading, cases)
    warnings = [*reading.warnings, *found, *unknown_optima(experiment, document, cases, data)]
    return replace(known, cases=cases, plan=_plan(known, cases), warnings=tuple(warnings))


def _pools(cases: Sequence[Case]) -> dict[Pool, list[Case]]:
    """The cases that are given the rows of the same data sets."""
    found: dict[Pool, list[Case]] = {}
    for case in cases:
        found.setdefault(case.datasets, []).append(case)
    return found


def _drawings(cases: Sequence[Case]) -> dict[tuple[Pool, Drawing], list[Case]]:
    """The cases that are given the same rows.

    Where more and more training rows are drawn, all stand by the most: few rows may lack a group, and
    then a trial says so.
    """
    most = max((case.share for case in cases if case.share is not None), default=None)
    found: dict[tuple[Pool, Drawing], list[Case]] = {}
    for case in cases:
        drawing = replace(case.drawing, share=most)
        found.setdefault((case.datasets, drawing), []).append(case)
    return found


def _check_rows(known: Prepared, reading: Reading, cases: Sequence[Case]) -> list[Fault]:
    """Warnings about the rows of each pool of data sets; raises the faults of all of them.

    Among those E208 where a report shows, a metric names, or an expectation compares, a split that no data
    set in question has rows of.
    """
    assert reading.columns is not None
    experiment, document = known.experiment, known.document
    warnings: list[Fault] = []
    faults: list[Fault] = []
    splits: dict[Pool, tuple[str, ...]] = {}
    asked: dict[Asked, bool] = {}
    pools = _pools(cases)
    for (pool, drawing), own in _drawings(cases).items():
        data, columns = known.data.only(pool), reading.columns[pool]
        try:
            model = known.deployed_model
            rows = known_rows(experiment, document, data, columns, model, drawing=drawing)
            splits[pool] = tuple(dict.fromkeys([*splits.get(pool, ()), *rows.splits()]))
            for each, there in found_rows(rows.sample, own).items():
                asked[each] = there or asked.get(each, False)
            told = group_faults(experiment, document, rows, own)
            faults += [fault for fault in told if fault.is_error]
            warnings += [fault for fault in told if not fault.is_error]
            warnings += check_rows(rows, document, reading, own)
        except FaultError as error:
            faults += error.faults
    for fault in _stage_faults(known, cases):
        (faults if fault.is_error else warnings).append(fault)
    if splits.keys() == pools.keys():
        faults += split_faults(experiment, document, list(dict.fromkeys(chain(*splits.values()))))
        faults += rowless(document, asked)
        faults += expected_splits(experiment, document, splits)
    if faults:
        raise FaultError(dict.fromkeys(faults))
    return list(dict.fromkeys(warnings))


def _stage_faults(known: Prepared, cases: Sequence[Case]) -> Iterator[Fault]:
    """What is wrong with the rows of the filters that training rows go through, and warnings."""
    experiment, document = known.experiment, known.document
    for (pool, drawing), own in _drawings(list(stage_cases(cases).values())).items():
        try:
            rows = world(known.data.only(pool), experiment.seeds[0], None, drawing)
        except FaultError as error:
            place = stage_place(document)
            yield from (fault.at(place) for fault in error.faults)
            continue
        yield from group_faults(experiment, document, rows, own)


def _columns(data: Data) -> Columns:
    columns = columns_of(data)
    return Columns(Lazy(columns, lambda name: distinct(columns[name])))


def distinct(column: Any) -> list[str | float]:
    """The texts or floats that an (n,) array holds, sorted, without those that are missing."""
    if column.dtype.kind == "f":
        return [float(value) for value in np.unique(column[~np.isnan(column)])]
    return sorted({value for value in column if value is not None})


def _each_entry(data: Data, document: Document, look: Callable[[str, Options], object]) -> None:
    """Call `look` with name and options of every data set; the faults of all of them, placed."""
    faults: list[Fault] = []
    for name, entry in data.options().items():
        try:
            look(name, entry)
        except FaultError as error:
            places = EntryPlaces(document, name, entry)
            faults += map(places.placed, error.faults)
    if faults:
        raise FaultError(faults)
