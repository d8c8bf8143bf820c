"""What a run would do, before it does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from ratecli.experiment.prepare import PreparedExperiment
from ratecli.ledger.records import CACHED_STATUSES, PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore


@dataclass(frozen=True)
class RunForecast:
    """One algorithm's trials; `seconds` for those to run is None where no stored trial tells."""

    label: str
    trials: int
    stored: int
    seconds: float | None

    @property
    def to_run(self) -> int:
        return self.trials - self.stored


def forecast_run(prepared: PreparedExperiment, ledger: Path) -> list[RunForecast]:
    """By label, in the file's order; `ledger` is only read, and need not be there."""
    look = _read_stored_trials(prepared, ledger)
    labels: dict[str, list[PlannedTrial]] = {}
    for trial in look.trials.values():
        labels.setdefault(trial.label, []).append(trial)
    return [_make_forecast(label, [(look, own)], look.kept) for label, own in labels.items()]


def forecast_runs(several: Sequence[tuple[PreparedExperiment, Path]]) -> list[RunForecast]:
    """Of each experiment, by its name, and then of all, where trials that some have in common count once.

    What one of them has stored is stored for the others: a run of all takes it from there. How long an
    algorithm takes that one knows nothing of, others tell.
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
    """An experiment's trials, the keys that its ledger has, the mean seconds of algorithms there."""

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
    """Of some trials of each of some experiments; `kept` are those that need not run."""
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
