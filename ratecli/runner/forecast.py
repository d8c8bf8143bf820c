"""What a run would do, before it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from ratecli.runner.prepare import Prepared
from ratecli.runner.records import CACHED, Planned, TrialResult
from ratecli.runner.store import Store


@dataclass(frozen=True)
class Outlook:
    """One algorithm's trials; `seconds` for those to run is None where no stored trial tells."""

    label: str
    trials: int
    stored: int
    seconds: float | None

    @property
    def to_run(self) -> int:
        return self.trials - self.stored


def forecast(prepared: Prepared, ledger: Path) -> list[Outlook]:
    """By label, in the file's order; `ledger` is only read, and need not be there."""
    before, results = _stored(ledger)
    kept = {key: result for key, result in results.items() if result.status in CACHED}
    algorithm_of = {trial.key: trial.algorithm for trial in [*before, *prepared.plan.planned]}
    trials = {trial.key: trial for trial in prepared.plan.planned}
    found = []
    for label in dict.fromkeys(trial.label for trial in trials.values()):
        own = [trial for trial in trials.values() if trial.label == label]
        stored = sum(trial.key in kept for trial in own)
        times = [
            result.seconds
            for key, result in kept.items()
            if algorithm_of.get(key) == own[0].algorithm
        ]
        seconds = (len(own) - stored) * mean(times) if times else None
        found.append(Outlook(label, len(own), stored, 0.0 if stored == len(own) else seconds))
    return found


def _stored(ledger: Path) -> tuple[list[Planned], Mapping[str, TrialResult]]:
    if not ledger.is_file():
        return [], {}
    with Store(ledger, readonly=True) as store:
        return store.plan(), store.results()
