"""Measure the processor time of trials, and write `trial_seconds` into experiment files.

    python tools/trial_seconds.py experiments/quickstart.yaml --budget 60
    python tools/trial_seconds.py experiments/quickstart.yaml --results results

For each algorithm (and data set, if they are swept), a few trials of the first seed are run, spread
over its sweep points, in this process, until the budget of processor seconds is used. The key gets
their mean. Algorithms for which the budget leaves no trial are left out. With `--results`, the mean
is that of all trials stored there.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1]))

from ratecli.config.sweep import DATASET_AXIS
from ratecli.experiment.plan import Task
from ratecli.experiment.prepare import PreparedExperiment, prepare
from ratecli.ledger.records import FAILED_STATUSES, PlannedTrial, TrialResult
from ratecli.ledger.view import Ledger
from ratecli.runner.trial import run_trial
from ratecli.runner.workers import limit_to_one_thread

Group = tuple[str, str]
"""An algorithm's label and its data set, "" unless data sets are swept."""
TRIALS = 6
"""Most trials of a group that are measured."""
COMMENT = "# mean processor seconds of a trial, by tools/trial_seconds.py"
OLD = re.compile(rf"{COMMENT}[^\n]*\ntrial_seconds:[^\n]*\n(?: [^\n]*\n)*")


def spread(trials: Sequence[PlannedTrial]) -> list[PlannedTrial]:
    """Return up to `TRIALS` trials, from evenly spaced places, the middle one first."""
    count = min(TRIALS, len(trials))
    places = [int((k + 0.5) * len(trials) / count) for k in range(count)]
    middle = len(trials) // 2
    return [trials[k] for k in sorted(places, key=lambda place: abs(place - middle))]


def groups(trials: Iterable[PlannedTrial]) -> dict[Group, list[PlannedTrial]]:
    """Return the trials by group."""
    found: dict[Group, list[PlannedTrial]] = {}
    for trial in trials:
        place = (trial.label, str(trial.point.get(DATASET_AXIS, "")))
        found.setdefault(place, []).append(trial)
    return found


def groups_of_first_seed(prepared: PreparedExperiment) -> dict[Group, list[PlannedTrial]]:
    seed = prepared.experiment.seeds[0]
    return groups(trial for trial in prepared.plan.planned if trial.seed == seed)


def stored(folder: Path) -> dict[Group, list[float]]:
    """Return the processor seconds of the stored trials of each group."""
    ledger = Ledger.read(folder / "trials.sqlite")
    parts = groups(trial for trial in ledger.plan if trial.key in ledger.results)
    return {
        place: [ledger.results[trial.key].seconds for trial in own] for place, own in parts.items()
    }


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it started and that ended."""
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


class Runner:
    """Runs tasks with those that they need, each once, and records their processor seconds."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = {task.key: task for task in tasks}
        self.results: dict[str, TrialResult] = {}
        self.seconds: dict[str, float] = {}

    def run(self, key: str) -> float:
        if key not in self.results:
            task = self.tasks[key]
            for need in task.needs:
                self.run(need)
            begun = processor_seconds()
            needed = {need: self.results[need] for need in task.needs}
            self.results[key] = found = run_trial(task.payload, needed)
            self.seconds[key] = processor_seconds() - begun
            if found.status in FAILED_STATUSES:
                raise SystemExit(f"{key}: {found.reason}")
        return self.seconds[key]


def measure(prepared: PreparedExperiment, budget: float) -> dict[Group, list[float]]:
    """Return the processor seconds of some trials of each group."""
    found: dict[Group, list[float]] = {}
    begun, runner = processor_seconds(), Runner(prepared.plan.tasks)
    chosen = {place: spread(trials) for place, trials in groups_of_first_seed(prepared).items()}
    with limit_to_one_thread():
        for turn in range(TRIALS):
            for place, trials in chosen.items():
                own = found.get(place, [])
                left = begun + budget - processor_seconds()
                if turn < len(trials) and left > (mean(own) if own else 0):
                    if not own:  # the first trial in a process compiles and reads rows
                        runner.run(trials[0].key)
                        if runner.seconds[trials[0].key] < left / 20:
                            del runner.results[trials[0].key]
                    found.setdefault(place, []).append(runner.run(trials[turn].key))
    return found


def lines(found: dict[Group, list[float]], every: Sequence[Group]) -> Iterator[str]:
    """Yield the lines of the key."""
    counts = sorted({len(own) for own in found.values()})
    some = " to " if len(counts) > 2 else " or "
    yield f"{COMMENT}, of {some.join(map(str, dict.fromkeys([counts[0], counts[-1]])))} trials each"
    yield "trial_seconds:"
    labels = dict.fromkeys(label for label, _ in every)
    for label in labels:
        means = {name: mean(found[label, name]) for at, name in found if at == label}
        own = {n: f"{x:.2g}" if x < 10 else f"{x:.0f}" for n, x in means.items()}
        if own:
            inner = ", ".join(f"{name}: {seconds}" for name, seconds in own.items())
            yield f"  {label}: " + (own[""] if list(own) == [""] else f"{{{inner}}}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--budget", type=float, default=60.0, help="processor seconds for a file")
    parser.add_argument("--results", type=Path, help="a folder with stored results of the files")
    arguments = parser.parse_args()
    for path in arguments.files:
        prepared = prepare(path, offline=True)
        if arguments.results:
            found = stored(arguments.results / prepared.experiment.name)
        else:
            found = measure(prepared, arguments.budget)
        text = "\n".join(lines(found, list(groups(prepared.plan.planned)))) + "\n"
        before = path.read_text("utf-8")
        after = OLD.sub("", before)
        at = re.search(r"^(metrics|report|expect):", after, re.MULTILINE)
        place = at.start() if at else len(after)
        path.write_text(after[:place] + text + after[place:], "utf-8")
        print(path, text, sep="\n", flush=True)


if __name__ == "__main__":
    main()
