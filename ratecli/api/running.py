"""An experiment run from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ratecli.api.errors import readable, warn, warn_of
from ratecli.api.lines import plain
from ratecli.api.results import Results, load_results
from ratecli.config.document import Document
from ratecli.config.override import overridden
from ratecli.experiment.prepare import Prepared, ready, understand, understand_document
from ratecli.ledger.lock import locked
from ratecli.report.expectation_warnings import differing
from ratecli.report.write import check_place, report_of
from ratecli.runner.executors import Executor, executor_of
from ratecli.runner.run import run as run_trials
from ratecli.sampling.deployed import check_kept

HERE = Path("experiment")
"""What stands for the file of an experiment that is in none: paths start from the working folder."""


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
    """Run whatever is not stored yet of an experiment, as `ratecli run` does, and write its report.

    Parameters
    ----------
    source
        Its file, or what would stand there as a mapping; paths then start from the working folder.
    settings
        What replaces keys of it: `["seeds=3"]` or `{"seeds": 3, "sweep.kappa": [0.8, 0.9]}`.
    output
        Where the folder NAME of the results is.
    jobs
        Trials at once, each in a process if there are several. A script must then be one that can be
        imported: what it does stands under `if __name__ == "__main__":`.
    executor
        Where trials run: `serial`, `processes`, `dask`, the address of a cluster as in
        `dask://host:port`, or an object that runs them. By default `serial` for one job, else
        `processes`.
    offline
        Whether to fetch nothing.
    fresh
        Whether to forget stored trials first.

    Returns
    -------
    Results
        A trial that failed is a row of `trials` with the status `error`, and is warned of.

    Raises
    ------
    ValueError
        Where nothing could be run; `faults` has the parts, with their places.
    """
    with readable():
        where = _executor(executor, jobs)
        prepared = ready(_understood(source, _overrides(settings)), offline=offline)
        folder = Path(output) / prepared.experiment.name
        warn_of(prepared.warnings)
        _run(prepared, folder, where, fresh=fresh)
    return load_results(folder)


def _executor(given: str | Executor | None, jobs: int) -> Executor:
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    return executor_of(given, jobs) if given is None or isinstance(given, str) else given


def _run(prepared: Prepared, folder: Path, executor: Executor, *, fresh: bool) -> None:
    check_kept(
        prepared.experiment, prepared.document, prepared.data.folder, {folder: prepared.path}
    )
    with locked(folder):
        check_place(folder)
        outcome = run_trials(prepared, folder, executor, fresh=fresh, quiet=True)
        ledger, _ = report_of(folder)
    warn(*outcome.warnings, *differing(ledger))
    failed = [f"{name}: {result.reason}" for name, result in outcome.failed]
    warn(*(f"a trial failed: {each}" for each in failed))


def _understood(source: str | PathLike[str] | Mapping[str, Any], settings: list[str]) -> Prepared:
    if not isinstance(source, Mapping):
        return understand(Path(source), settings)
    text = json.dumps(source, default=plain, indent=2, ensure_ascii=False)
    return understand_document(overridden(Document.of_text(text, HERE), settings))


def _overrides(settings: Sequence[str] | Mapping[str, Any]) -> list[str]:
    if isinstance(settings, str):
        return [settings]
    if not isinstance(settings, Mapping):
        return list(settings)
    return [
        f"{path}={json.dumps(value, default=plain, ensure_ascii=False)}"
        for path, value in settings.items()
    ]
