"""Run an experiment from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from ratecli.api.errors import convert_errors, issue_warning, issue_warnings
from ratecli.api.results import Results, load_results
from ratecli.config.document import Document
from ratecli.config.override import apply_overrides
from ratecli.experiment.prepare import (
    PreparedExperiment,
    check_file,
    check_parsed_document,
    prepare_data,
)
from ratecli.ledger.lock import lock_results
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
