"""Expected times: of the trials of a plan, and of the rest of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from ratecli.experiment.plan import Plan, algorithm_and_dataset
from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.store import LedgerStore


def format_seconds(seconds: float) -> str:
    """Return a time in the unit that fits it, such as `1.5 s`, `40 s`, `3 min` or `2.1 h`."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class RunForecast:
    """Forecast for the trials of one algorithm or experiment.

    `seconds` is the expected time of the trials to run, without `unknown` of them.
    """

    label: str
    trials: int
    stored: int
    seconds: float
    unknown: int


def forecast_runs(
    runs: Sequence[tuple[str, Plan, Path]], *, by_algorithm: bool = False
) -> list[RunForecast]:
    """Return a forecast for each experiment, given as (name, plan, ledger), and one for all.

    With `by_algorithm`, return one for each label instead of each experiment. The last one counts
    shared trials once. A trial that one ledger stores counts as stored for all, since a run of all
    copies it. A trial's time is the mean of stored trials of its algorithm and data set, or else
    what the file states, or else the mean of the same algorithm's trials in other experiments.
    """
    stored = [_stored_trials(plan, ledger) for _, plan, ledger in runs]
    cached = {trial.key for each in stored for trial, _ in each}
    every = [pair for each in stored for pair in each]
    others = _means((trial.algorithm, seconds) for trial, seconds in every)
    rows: dict[str, dict[str, float | None]] = {}
    total: dict[str, float | None] = {}
    for (name, plan, _), pairs in zip(runs, stored, strict=True):
        own = _means((algorithm_and_dataset(trial), seconds) for trial, seconds in pairs)
        for trial in plan.planned:
            guesses = (
                0.0 if trial.key in cached else None,
                own.get(algorithm_and_dataset(trial)),
                plan.seconds.get(trial.key),
                others.get(trial.algorithm),
            )
            seconds = next((each for each in guesses if each is not None), None)
            rows.setdefault(trial.label if by_algorithm else name, {})[trial.key] = seconds
            total.setdefault(trial.key, seconds)
    return [
        RunForecast(
            label,
            trials=len(found),
            stored=len(found.keys() & cached),
            seconds=sum(filter(None, found.values())),
            unknown=sum(each is None for each in found.values()),
        )
        for label, found in (*rows.items(), ("all", total))
    ]


def _stored_trials(plan: Plan, ledger: Path) -> list[tuple[PlannedTrial, float]]:
    """Return the trials that a ledger stores and this plan or its last run planned, with times."""
    if not ledger.is_file():
        return []
    with LedgerStore(ledger, readonly=True) as store:
        known = store.known()
        trials = {trial.key: trial for trial in [*store.plan(), *plan.planned]}
    return [(trials[key], seconds) for key, seconds in known.items() if key in trials]


def _means(pairs: Iterable[tuple[Hashable, float]]) -> dict[Hashable, float]:
    found: dict[Hashable, list[float]] = {}
    for name, seconds in pairs:
        found.setdefault(name, []).append(seconds)
    return {name: mean(own) for name, own in found.items()}


class TimeLeft:
    """Estimates how long the remaining trials of a run take, from the trials that have ended.

    A trial is expected to take the mean time of ended trials of its algorithm and sweep point.
    Without any, those of its algorithm and data set count. Otherwise the file's stated time counts,
    scaled by the ratio of actual to stated times so far, each with a second more. These are
    processor times. The sum is scaled by the run's own pace: how long its processes have been busy,
    as a multiple of the time of the trials that they ran. A loaded machine makes it longer, and
    cached fits make it shorter.

    Parameters
    ----------
    trials
        All trials of the run, including those that are stored.
    stated
        The times that files state, by key.
    jobs
        Number of trials that run at the same time.
    """

    def __init__(
        self, trials: Iterable[PlannedTrial], stated: Mapping[str, float], jobs: int
    ) -> None:
        self._jobs = jobs
        self._points = {
            trial.key: (*algorithm_and_dataset(trial), repr(sorted(trial.point.items())))
            for trial in trials
        }
        self._left = Counter(self._points.values())
        self._stated = _means(
            (point[:2], stated[key]) for key, point in self._points.items() if key in stated
        )
        self._ended: dict[Hashable, tuple[int, float]] = {}
        self._ran, self._pace = 0.0, 1.0

    def end(self, key: str, seconds: float | None, elapsed: float | None = None) -> None:
        """Record that a trial has ended; its `seconds` are None if it failed.

        `elapsed` are the seconds since the run began, None if the trial ended in an earlier one.
        """
        if elapsed is not None:
            self._ran += seconds or 0.0
            self._pace = (1 + self._jobs * elapsed) / (1 + self._ran)
        point = self._points[key]
        self._left[point] -= 1
        for place in (point, point[:2]) if seconds is not None else ():
            count, total = self._ended.get(place, (0, 0.0))
            self._ended[place] = count + 1, total + (seconds or 0.0)

    def __str__(self) -> str:
        """Return the estimate as text, such as `about 3 min left`; "" if nothing is known."""
        seconds, complete = self.seconds()
        about = "about" if complete else "at least"
        return f"{about} {format_seconds(seconds)} left" if seconds else ""

    def seconds(self) -> tuple[float, bool]:
        """Return the time left when a trial has just ended, and whether it includes all trials.

        Trials of an algorithm without ended trials and stated time are not included. The trials
        that are running are expected to be halfway.
        """
        actual = {place: total / count for place, (count, total) in self._ended.items()}
        both = self._stated.keys() & actual
        speed = (1 + sum(actual[k] for k in both)) / (1 + sum(self._stated[k] for k in both))
        expected = {place: speed * seconds for place, seconds in self._stated.items()} | actual
        times = [
            (expected.get(point, expected.get(point[:2])), n) for point, n in self._left.items()
        ]
        known = [(each, n) for each, n in times if n and each is not None]
        complete = len(known) == sum(n > 0 for _, n in times)
        if not known:
            return 0.0, complete
        count, total = sum(n for _, n in known), sum(each * n for each, n in known)
        running = min(self._jobs - 1, count)
        longest = max(each for each, _ in known) / (2 if running == count else 1)
        left = max(total * (1 - running / count / 2) / self._jobs, longest)
        return self._pace * left, complete
