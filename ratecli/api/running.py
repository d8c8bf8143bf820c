"""Run experiments and load registered data sets from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ratecli.api.errors import convert_errors, issue_warning, issue_warnings
from ratecli.api.results import Results, load_results
from ratecli.config.document import Document
from ratecli.config.override import apply_overrides
from ratecli.datasets.entry import DatasetEntry
from ratecli.datasets.load import load_entry_table
from ratecli.datasets.registry import find_source
from ratecli.datasets.table import Table
from ratecli.experiment.prepare import (
    PreparedExperiment,
    check_file,
    check_parsed_document,
    prepare_data,
)
from ratecli.ledger.store import lock_results
from ratecli.report.expectations import warn_unmet_expectations
from ratecli.report.write import check_report_folder, write_and_load_report
from ratecli.runner.executors import Executor, parse_executor
from ratecli.runner.run import run_experiment as run_trials
from ratecli.sampling.deployed import check_model_preserved

DEFAULT_PATH = Path("experiment")
"""Path of an experiment that is not in a file: relative paths start from the working directory."""


def run(
    source: str | PathLike[str] | Mapping[str, Any],
    *,
    settings: Sequence[str] | Mapping[str, Any] = (),
    output: str | PathLike[str] = "results",
    jobs: int = 1,
    executor: str | Executor | None = None,
    offline: bool = False,
    fresh: bool = False,
) -> Results:
    """Run the trials of an experiment that are not stored yet, as `ratecli run` does, and write its
    report.

    Parameters
    ----------
    source
        The experiment file, or its content as a mapping; then paths are relative to the working
        directory.
    settings
        Values to override: `["seeds=3"]` or `{"seeds": 3, "sweep.kappa": [0.8, 0.9]}`.
    output
        The folder in which to create the results folder NAME.
    jobs
        Number of trials to run in parallel, each in its own process if there is more than one. A
        script that calls this must then be importable: put its code under `if __name__ ==
        "__main__":`.
    executor
        Where trials run: `serial`, `processes`, `dask`, the address of a cluster as in
        `dask://host:port`, or an executor object. Default: `serial` for one job, otherwise
        `processes`.
    offline
        Whether downloads are forbidden.
    fresh
        Whether to delete stored trials first.

    Returns
    -------
    Results
        A failed trial is a row of `trials` with the status `error`; a warning reports it.

    Raises
    ------
    ValueError
        If the experiment cannot be run; the attribute `faults` lists the errors with their
        locations.
    """
    with convert_errors():
        where = _executor(executor, jobs)
        prepared = prepare_data(_understand_source(source, _overrides(settings)), offline=offline)
        folder = Path(output) / prepared.experiment.name
        issue_warnings(prepared.warnings)
        _run(prepared, folder, where, fresh=fresh)
    return load_results(folder)


def _executor(given: str | Executor | None, jobs: int) -> Executor:
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    return parse_executor(given, jobs) if given is None or isinstance(given, str) else given


def _run(prepared: PreparedExperiment, folder: Path, executor: Executor, *, fresh: bool) -> None:
    check_model_preserved(
        prepared.experiment, prepared.document, prepared.data.folder, {folder: prepared.path}
    )
    with lock_results(folder):
        check_report_folder(folder)
        outcome = run_trials(prepared, folder, executor, fresh=fresh, quiet=True)
        ledger, _ = write_and_load_report(folder)
    issue_warning(*outcome.warnings, *warn_unmet_expectations(ledger))
    failed = [f"{name}: {result.reason}" for name, result in outcome.failed]
    issue_warning(*(f"a trial failed: {each}" for each in failed))


def _understand_source(
    source: str | PathLike[str] | Mapping[str, Any], settings: list[str]
) -> PreparedExperiment:
    if not isinstance(source, Mapping):
        return check_file(Path(source), settings)
    document = Document.of_data(source, DEFAULT_PATH)
    return check_parsed_document(apply_overrides(document, settings))


def _overrides(settings: Sequence[str] | Mapping[str, Any]) -> list[str]:
    if isinstance(settings, str):
        return [settings]
    if not isinstance(settings, Mapping):
        return list(settings)
    return [
        f"{path}={json.dumps(value, default=_plain_value, ensure_ascii=False)}"
        for path, value in settings.items()
    ]


def _plain_value(value: Any) -> Any:
    """Convert a NumPy value or a path for JSON."""
    return fspath(value) if isinstance(value, PathLike) else value.tolist()


class Dataset(NamedTuple):
    """Rows X (n, d) and labels y (n,): 1, 0 or NaN (unlabelled), or numbers."""

    X: pd.DataFrame
    y: pd.Series


def load_dataset(name: str, *, split: str | None = None, **options: Any) -> Dataset:
    """Load a registered data set (`ratecli ls datasets`), downloading and verifying it if
    necessary.

    Parameters
    ----------
    name : str
        Name of the data set, such as `adult`, or `loans`, which is generated.
    split : str, default=None
        `train`, `validation` or `test`, if the data set has an official split; None for all rows.
    **options
        Options of the data set, as in an experiment file: `rows=2000`,
        `preparation="narasimhan2019"`.

    Returns
    -------
    Dataset
        A pair `X, y`. X has the features, followed by the sensitive columns that are not features;
        pass these to an estimator as `drop`.

    Raises
    ------
    ValueError
        If the data set does not exist or cannot be downloaded, or its features are not columns
        (texts).

    Examples
    --------
    >>> import ratecli
    >>> X, y = ratecli.load_dataset("loans", rows=500)
    >>> X.shape
    (500, 8)
    """
    with convert_errors():
        source = find_source(name)
        table = load_entry_table(DatasetEntry.of({"source": name, **options}), Path())
    if table.matrix is not None:
        raise ValueError(f"the features of '{name}' are ready-made, not columns of a table")
    extra = [
        each for each in source.sensitive if each in table.frame and each not in table.features
    ]
    rows = _rows(table, name, split)
    X = table.frame.loc[rows, [*table.features, *extra]].reset_index(drop=True)
    label = table.label[rows]
    whole = table.label_range is None and not np.isnan(label).any()
    return Dataset(X, pd.Series(label.astype(np.int64) if whole else label, name=source.label))


def _rows(table: Table, name: str, split: str | None) -> Any:
    if split is None:
        return np.ones(len(table), dtype=bool)
    known = () if table.part is None else np.unique(table.part).tolist()
    if split not in known:
        raise ValueError(
            f"'{name}' has no rows called '{split}', only: {', '.join(known) or 'all'}"
        )
    return table.part == split
