"""A prepared experiment's trials, run and stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from ratecli.faults import Fault
from ratecli.runner.executors import Executor, Hooks
from ratecli.runner.expected import unknown_expected_variants
from ratecli.runner.files import atomic_write, writing
from ratecli.runner.meta import datasets, meta
from ratecli.runner.origins import brought
from ratecli.runner.prepare import Prepared
from ratecli.runner.progress import open_progress
from ratecli.runner.provenance import manifest
from ratecli.runner.records import FAILED, Planned, TrialResult
from ratecli.runner.shown import swept, unknown_variants
from ratecli.runner.store import Store
from ratecli.runner.trial import run_trial
from ratecli.runner.unkept import unkept

LEDGER = "trials.sqlite"
UNSOLVED = "no_solution_found"


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes
    ----------
    counts
        Trials by status, `ran` of them in this run.
    failed
        Name and result of each trial that gave no answer.
    unsolved
        Name and result of each trial that found no solution.
    warnings
        Rules that do not hold on test rows (W402), variants to draw that there are none of (W208).
    """

    folder: Path
    counts: Mapping[str, int]
    ran: int
    failed: tuple[tuple[str, TrialResult], ...]
    unsolved: tuple[tuple[str, TrialResult], ...]
    warnings: tuple[Fault, ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0


def run(
    prepared: Prepared,
    folder: Path,
    executor: Executor,
    *,
    fresh: bool = False,
    quiet: bool = False,
    command: Sequence[str] = (),
) -> Outcome:
    """Run what is not stored yet. `folder` gets the ledger and the record of the run.

    Whoever calls this holds the folder (`lock.locked`) until its report is written.
    """
    started = datetime.now(UTC)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    ledger = folder / LEDGER
    if fresh:
        with writing(ledger):
            ledger.unlink(missing_ok=True)
            ledger.with_name(f"{LEDGER}-journal").unlink(missing_ok=True)  # of a killed run
    _write_record(prepared, folder, command, started, None)
    with Store(ledger) as store:
        store.begin(prepared.plan.planned, meta(prepared))
        known = store.known()
        tasks = [task for task in prepared.plan.tasks if task.key not in known]
        names = {planned.key: display_name(planned) for planned in prepared.plan.planned}
        stored = len(prepared.plan.tasks) - len(tasks)
        with open_progress(len(prepared.plan.tasks), stored, names.__getitem__, quiet=quiet) as bar:

            def done(result: TrialResult) -> None:
                store.put(result)
                bar.done(result)

            executor.run(tasks, run_trial, done, Hooks(recall=store.result, on_start=bar.start))
        results = store.results()
    _write_record(prepared, folder, command, started, datetime.now(UTC))
    ended = [results[task.key] for task in prepared.plan.tasks]
    failed = tuple((names[result.key], result) for result in ended if result.status in FAILED)
    unsolved = tuple((names[each.key], each) for each in ended if each.status == UNSOLVED)
    warnings = _warnings(prepared, results)
    return Outcome(folder, _counts(ended), len(tasks), failed, unsolved, warnings)


def _warnings(prepared: Prepared, results: Mapping[str, TrialResult]) -> tuple[Fault, ...]:
    """What only the numbers tell."""
    trials = [(trial.label, results[trial.key]) for trial in prepared.plan.planned]
    given = {(label, value.variant): None for label, found in trials for value in found.values}
    variants = {variant for _, variant in given}
    return (
        *unkept(prepared.plan.planned, results),
        *unknown_variants(prepared.experiment, prepared.document, variants),
        *unknown_expected_variants(prepared.experiment, prepared.document, given),
    )


def kept(prepared: Prepared, folder: Path) -> int:
    """How many of the planned trials are stored with an answer."""
    if not (folder / LEDGER).is_file():
        return 0
    with Store(folder / LEDGER, readonly=True) as store:
        known = store.known()
    return sum(task.key in known for task in prepared.plan.tasks)


def _counts(results: Sequence[TrialResult]) -> dict[str, int]:
    statuses = [result.status for result in results]
    return {status: statuses.count(status) for status in dict.fromkeys(statuses)}


def display_name(planned: Planned) -> str:
    """What a trial is called in messages: `majorize kappa=0.8 seed=1`."""
    point = [f"{name}={value}" for name, value in planned.point.items()]
    return " ".join([planned.label, *point, f"seed={planned.seed}"])


def _write_record(
    prepared: Prepared,
    folder: Path,
    command: Sequence[str],
    started: datetime,
    ended: datetime | None,
) -> None:
    resolved = prepared.experiment.resolved()
    text = yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=100)
    atomic_write(folder / "experiment.yaml", prepared.document.text)
    atomic_write(folder / "resolved.yaml", text)
    record = manifest(
        data=datasets(prepared),
        command=command or sys.argv,
        started=started,
        ended=ended,
        folder=Path.cwd(),
        deployed_model=prepared.deployed_model,
        plugins=brought(prepared.experiment, swept(prepared.experiment)),
    )
    atomic_write(folder / "manifest.json", json.dumps(record, indent=2) + "\n")
