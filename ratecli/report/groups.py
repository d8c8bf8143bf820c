"""The trials that differ only in their seed, and what their numbers say together."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scipy.special import stdtrit

from ratecli.report.ledger import Ledger
from ratecli.runner.records import MET, VIOLATION, Planned

LEVEL = 0.95

Key = tuple[str, ...]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its Student-t interval; `n` counts numbers, `nan` what was left out.

    Without two finite numbers there is no interval, without one no mean.
    """

    mean: float | None
    half: float | None
    n: int
    nan: int = 0

    @property
    def low(self) -> float | None:
        return None if self.mean is None or self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.mean is None or self.half is None else self.mean + self.half


def estimate(values: Iterable[float]) -> Estimate:
    everything = list(values)
    numbers = [value for value in everything if not math.isnan(value)]
    n, nan = len(numbers), len(everything) - len(numbers)
    if not numbers:
        return Estimate(None, None, 0, nan)
    if not all(map(math.isfinite, numbers)):
        return Estimate(_infinite(numbers), None, n, nan)
    mean = float(statistics.mean(numbers))
    if n == 1:
        return Estimate(mean, None, n, nan)
    quantile = float(stdtrit(n - 1, (1 + LEVEL) / 2))
    return Estimate(mean, quantile * statistics.stdev(numbers) / math.sqrt(n), n, nan)


def _infinite(numbers: list[float]) -> float:
    """The mean of numbers with an infinity among them: that infinity, or nothing if both are."""
    infinite = {number for number in numbers if math.isinf(number)}
    return infinite.pop() if len(infinite) == 1 else math.nan


@dataclass(frozen=True)
class Group:
    """One variant of one algorithm at one sweep point (`seed`: only that one, if asked for)."""

    label: str
    variant: str
    point: Mapping[str, Any]
    seed: int | None
    statuses: Mapping[str, int]
    values: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)

    def trials(self, places: Iterable[tuple[str, str]]) -> int:
        """The most trials that one of these, each a (split, metric), was measured in, NaN or not."""
        return max((len(self.values.get(place, ())) for place in places), default=0)

    def estimate(self, split: str, metric: str) -> Estimate:
        return estimate(self.values.get((split, metric), ()))

    def held(self, split: str, constraint: str) -> tuple[int, int]:
        """How many trials keep the promise, of how many in which that was measured.

        A NaN was not measured. Only on training rows, where the promise was made, it counts: as
        not kept.
        """
        values = self.values.get((split, VIOLATION + constraint), ())
        told = [value for value in values if split == "train" or not math.isnan(value)]
        return sum(value <= MET for value in told), len(told)


def groups(ledger: Ledger, *, by_seed: bool = False) -> list[Group]:
    """In plan order, then by variant. Where no trial has numbers the variant is unknown: ''."""
    trials: dict[Key, list[Planned]] = {}
    for trial in ledger.plan:
        trials.setdefault(_key(trial, by_seed=by_seed), []).append(trial)
    values: dict[Key, dict[str, dict[tuple[str, str], list[float]]]] = {key: {} for key in trials}
    for item in ledger.measurements():
        variants = values[_key(item.trial, by_seed=by_seed)]
        cell = variants.setdefault(item.variant, {}).setdefault((item.split, item.metric), [])
        cell.append(item.value)
    return [
        Group(
            label=members[0].label,
            variant=variant,
            point=members[0].point,
            seed=members[0].seed if by_seed else None,
            statuses=Counter(map(ledger.status, members)),
            values={
                place: tuple(numbers) for place, numbers in values[key].get(variant, {}).items()
            },
        )
        for key, members in trials.items()
        for variant in sorted(values[key]) or [""]
    ]


def _key(trial: Planned, *, by_seed: bool) -> Key:
    """By `repr`, since 1, 1.0 and true are three sweep points and one dict key."""
    point = (part for name, value in trial.point.items() for part in (name, repr(value)))
    return (trial.label, *point, *([repr(trial.seed)] if by_seed else []))
