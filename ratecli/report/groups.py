"""The trials that differ only in their seed, and what their numbers say together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ratecli.report.estimates import Estimate, estimate
from ratecli.report.ledger import Ledger
from ratecli.report.outcomes import Outcome, Place, failed, solved
from ratecli.runner.records import MET, VIOLATION, Planned
from ratecli.spec.names import FAILURE_RATE, SOLUTION_RATE

Key = tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """One variant of one algorithm at one sweep point (`seed`: only that one, if asked for)."""

    label: str
    variant: str
    point: Mapping[str, Any]
    seed: int | None
    outcomes: tuple[Outcome, ...]

    @cached_property
    def statuses(self) -> Mapping[str, int]:
        return Counter(outcome.status for outcome in self.outcomes)

    @cached_property
    def values(self) -> Mapping[Place, tuple[float, ...]]:
        """The numbers of each split and metric, by trial, without those that have none."""
        found: dict[Place, list[float]] = {}
        for outcome in self.outcomes:
            for place, value in (outcome.numbers or {}).items():
                found.setdefault(place, []).append(value)
        return {place: tuple(numbers) for place, numbers in found.items()}

    def trials(self, places: Iterable[Place]) -> int:
        """The most trials that one of these was measured in, NaN or not."""
        found = (self.estimate(*place) for place in places)
        return max((each.n + each.nan for each in found), default=0)

    def estimate(self, split: str, metric: str) -> Estimate:
        """The mean of a metric, or how often there was a solution or a failure."""
        if metric == SOLUTION_RATE:
            return solved(self.outcomes)
        if is_failure(metric):
            return failed(self.outcomes, split, metric.removeprefix(FAILURE_RATE).lstrip("."))
        return estimate(self.values.get((split, metric), ()))

    def held(self, split: str, constraint: str) -> tuple[int, int]:
        """How many trials keep the promise, of how many in which that was measured.

        A NaN was not measured. Only on training rows, where the promise was made, it counts: as
        not kept.
        """
        values = self.values.get((split, VIOLATION + constraint), ())
        told = [value for value in values if split == "train" or not math.isnan(value)]
        return sum(value <= MET for value in told), len(told)


def is_failure(metric: str) -> bool:
    """Whether it is the rate at which a constraint, or any, is broken."""
    return metric == FAILURE_RATE or metric.startswith(f"{FAILURE_RATE}.")


def is_share(metric: str) -> bool:
    """Whether it is a share of trials, not a mean of what they measured."""
    return metric == SOLUTION_RATE or is_failure(metric)


def groups(ledger: Ledger, *, by_seed: bool = False) -> list[Group]:
    """In plan order, then by variant.

    Where no trial has numbers the variants are those that the algorithm has at other points; if it has
    none anywhere, the variant is unknown: ''.
    """
    trials: dict[Key, list[Planned]] = {}
    known: dict[str, dict[str, None]] = {}
    for trial in ledger.plan:
        trials.setdefault(_key(trial, by_seed=by_seed), []).append(trial)
        known.setdefault(trial.label, {}).update(dict.fromkeys(ledger.numbers(trial)))
    return [
        group
        for members in trials.values()
        for group in _variants(ledger, members, by_seed, known[members[0].label])
    ]


def of_variant(several: Sequence[Group], variant: str) -> Group:
    """That of a variant among the groups of one point; where no trial gave it, one without numbers."""
    outcomes = tuple(replace(each, numbers=None) for each in several[0].outcomes)
    nothing = replace(several[0], variant=variant, outcomes=outcomes)
    return next((group for group in several if group.variant == variant), nothing)


def _variants(
    ledger: Ledger, members: list[Planned], by_seed: bool, known: Iterable[str]
) -> list[Group]:
    """The groups of trials that differ in their seed only; `known` are the algorithm's variants."""
    found = [(ledger.status(trial), ledger.numbers(trial)) for trial in members]
    first, here = members[0], {name for _, numbers in found for name in numbers}
    return [
        Group(
            label=first.label,
            variant=variant,
            point=first.point,
            seed=first.seed if by_seed else None,
            outcomes=tuple(Outcome(status, numbers.get(variant)) for status, numbers in found),
        )
        for variant in sorted(here) or sorted(known) or [""]
    ]


def _key(trial: Planned, *, by_seed: bool) -> Key:
    """By `repr`, since 1, 1.0 and true are three sweep points and one dict key."""
    point = (part for name, value in trial.point.items() for part in (name, repr(value)))
    return (trial.label, *point, *([repr(trial.seed)] if by_seed else []))
