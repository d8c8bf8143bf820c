"""The trials that differ only in their seed, and what their numbers say together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.ledger.records import CONSTRAINT_TOLERANCE, VIOLATION_PREFIX, PlannedTrial
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.estimates import IntervalEstimate, estimate_mean, estimate_share

CONCLUSIVE = MEASURED_STATUSES | {"no_solution_found", "infeasible"}
"""Statuses that rates of solutions and failures count."""

SplitMetric = tuple[str, str]
"""A split and a metric: where a number is."""


@dataclass(frozen=True)
class TrialOutcome:
    """The end of one trial and the numbers of one variant; None where it gave no such classifier."""

    status: str
    numbers: Mapping[SplitMetric, float] | None = None

    @property
    def answered(self) -> bool:
        return self.status in CONCLUSIVE

    def broken(self, split: str, constraint: str = "") -> bool | None:
        """Whether the classifier breaks the constraint, or any, on the rows of a split.

        None if nobody can tell: nothing was measured there, or NaN was. Only on training rows, where
        the promise was made, a NaN is a promise that is not kept.
        """
        found = [
            value
            for (where, metric), value in (self.numbers or {}).items()
            if where == split and metric.startswith(VIOLATION_PREFIX)
            if constraint in {"", metric.removeprefix(VIOLATION_PREFIX)}
        ]
        unknown = any(map(math.isnan, found))
        if any(value > CONSTRAINT_TOLERANCE for value in found) or (unknown and split == "train"):
            return True
        return None if unknown or not found else False


def solution_share(outcomes: Iterable[TrialOutcome]) -> IntervalEstimate:
    """The share of the trials with an answer that gave a classifier."""
    found = [each.numbers is not None for each in outcomes if each.answered]
    return estimate_share(sum(found), len(found))


def failure_share(
    outcomes: Iterable[TrialOutcome], split: str, constraint: str = ""
) -> IntervalEstimate:
    """The share of the trials with an answer that gave a classifier which breaks the constraint, or
    any, on the rows of a split. Where of no classifier anybody can tell there is no share.
    """
    answered = [each for each in outcomes if each.answered]
    told = [each.broken(split, constraint) for each in answered if each.numbers is not None]
    unknown = told.count(None)
    if told and unknown == len(told):
        return IntervalEstimate(None, None, 0, unknown)
    return estimate_share(told.count(True), len(answered) - unknown, unknown)


GroupKey = tuple[str, ...]
StatusAndNumbers = tuple[str, Mapping[str, Mapping[SplitMetric, float]]]
"""How a trial ended, and its numbers by variant."""


@dataclass(frozen=True)
class SeedGroup:
    """One variant of one algorithm at one sweep point (`seed`: only that one, if asked for)."""

    label: str
    variant: str
    point: Mapping[str, Any]
    seed: int | None
    outcomes: tuple[TrialOutcome, ...]
    _known: dict[SplitMetric, IntervalEstimate] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def statuses(self) -> Mapping[str, int]:
        return Counter(outcome.status for outcome in self.outcomes)

    @cached_property
    def values(self) -> Mapping[SplitMetric, tuple[float, ...]]:
        """The numbers of each split and metric, by trial, without those that have none."""
        found: dict[SplitMetric, list[float]] = {}
        for outcome in self.outcomes:
            for place, value in (outcome.numbers or {}).items():
                found.setdefault(place, []).append(value)
        return {place: tuple(numbers) for place, numbers in found.items()}

    def trials(self, places: Iterable[SplitMetric]) -> int:
        """The most trials that one of these was measured in, NaN or not."""
        found = (self.estimate(*place) for place in places)
        return max((each.n + each.nan for each in found), default=0)

    def estimate(self, split: str, metric: str) -> IntervalEstimate:
        """The mean of a metric, or how often there was a solution or a failure."""
        place = split, metric
        if place not in self._known:
            self._known[place] = self._estimate(split, metric)
        return self._known[place]

    def _estimate(self, split: str, metric: str) -> IntervalEstimate:
        if metric == SOLUTION_RATE:
            return solution_share(self.outcomes)
        if is_failure(metric):
            return failure_share(
                self.outcomes, split, metric.removeprefix(FAILURE_RATE).lstrip(".")
            )
        return estimate_mean(self.values.get((split, metric), ()))

    def held(self, split: str, constraint: str) -> tuple[int, int]:
        """How many trials keep the promise, of how many in which that was measured.

        A NaN was not measured. Only on training rows, where the promise was made, it counts: as
        not kept.
        """
        values = self.values.get((split, VIOLATION_PREFIX + constraint), ())
        told = [value for value in values if split == "train" or not math.isnan(value)]
        return sum(value <= CONSTRAINT_TOLERANCE for value in told), len(told)


def is_failure(metric: str) -> bool:
    """Whether it is the rate at which a constraint, or any, is broken."""
    return metric == FAILURE_RATE or metric.startswith(f"{FAILURE_RATE}.")


def is_share(metric: str) -> bool:
    """Whether it is a share of trials, not a mean of what they measured."""
    return metric == SOLUTION_RATE or is_failure(metric)


def seed_groups(ledger: Ledger, *, by_seed: bool = False) -> tuple[SeedGroup, ...]:
    """In plan order, then by variant.

    Where no trial has numbers the variants are those that the algorithm has at other points; if it has
    none anywhere, the variant is unknown: ''.
    """
    return ledger.once(("groups", by_seed), lambda: tuple(_groups(ledger, by_seed)))


def _groups(ledger: Ledger, by_seed: bool) -> Iterator[SeedGroup]:
    ends: dict[GroupKey, tuple[PlannedTrial, list[StatusAndNumbers]]] = {}
    known: dict[str, dict[str, None]] = {}
    for trial in ledger.plan:
        numbers = ledger.numbers(trial)
        _, several = ends.setdefault(_key(trial, by_seed=by_seed), (trial, []))
        several.append((ledger.status(trial), numbers))
        known.setdefault(trial.label, {}).update(dict.fromkeys(numbers))
    for first, several in ends.values():
        yield from _variants(first, several, by_seed, known[first.label])


def select_variant(several: Sequence[SeedGroup], variant: str) -> SeedGroup:
    """That of a variant among the groups of one point; where no trial gave it, one without numbers."""
    outcomes = tuple(replace(each, numbers=None) for each in several[0].outcomes)
    nothing = replace(several[0], variant=variant, outcomes=outcomes)
    return next((group for group in several if group.variant == variant), nothing)


def _variants(
    first: PlannedTrial, ends: Sequence[StatusAndNumbers], by_seed: bool, known: Iterable[str]
) -> Iterator[SeedGroup]:
    """The groups of trials that differ from the first in their seed only; `known` are the algorithm's
    variants.
    """
    here = {name for _, numbers in ends for name in numbers}
    for variant in sorted(here) or sorted(known) or [""]:
        yield SeedGroup(
            label=first.label,
            variant=variant,
            point=first.point,
            seed=first.seed if by_seed else None,
            outcomes=tuple(TrialOutcome(status, numbers.get(variant)) for status, numbers in ends),
        )


def _key(trial: PlannedTrial, *, by_seed: bool) -> GroupKey:
    """By `repr`, since 1, 1.0 and true are three sweep points and one dict key."""
    point = (part for name, value in trial.point.items() for part in (name, repr(value)))
    return (trial.label, *point, *([repr(trial.seed)] if by_seed else []))
