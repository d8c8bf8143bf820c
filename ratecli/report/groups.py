"""Groups of trials that differ only in their seed, and estimates over each group."""

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
"""Statuses of trials that count in solution and failure rates."""

SplitMetric = tuple[str, str]
"""A split and a metric, which identify a value."""


@dataclass(frozen=True)
class TrialOutcome:
    """A trial's status and the values of one variant, None if the trial did not return it."""

    status: str
    numbers: Mapping[SplitMetric, float] | None = None

    @property
    def answered(self) -> bool:
        return self.status in CONCLUSIVE

    def broken(self, split: str, constraint: str = "") -> bool | None:
        """Return whether the classifier violates the constraint (default: any) on a split.

        None if this is unknown because nothing was measured or a value is NaN. On the training
        set, where the constraint was enforced, NaN counts as a violation.
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
    """Return the share of conclusive trials that returned a classifier."""
    found = [each.numbers is not None for each in outcomes if each.answered]
    return estimate_share(sum(found), len(found))


def failure_share(
    outcomes: Iterable[TrialOutcome], split: str, constraint: str = ""
) -> IntervalEstimate:
    """Return the share of conclusive trials whose classifier violates a constraint on a split.

    Without `constraint`, any violated constraint counts.

    Trials with unknown violations are left out; if all are unknown, there is no share.
    """
    answered = [each for each in outcomes if each.answered]
    told = [each.broken(split, constraint) for each in answered if each.numbers is not None]
    unknown = told.count(None)
    if told and unknown == len(told):
        return IntervalEstimate(None, None, 0, unknown)
    return estimate_share(told.count(True), len(answered) - unknown, unknown)


GroupKey = tuple[str, ...]
StatusAndNumbers = tuple[str, Mapping[str, Mapping[SplitMetric, float]]]
"""A trial's status, and its values by variant."""


@dataclass(frozen=True)
class SeedGroup:
    """One variant of one algorithm at one sweep point, over all seeds or only `seed`."""

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
        """The values of all trials by split and metric, without missing ones."""
        found: dict[SplitMetric, list[float]] = {}
        for outcome in self.outcomes:
            for place, value in (outcome.numbers or {}).items():
                found.setdefault(place, []).append(value)
        return {place: tuple(numbers) for place, numbers in found.items()}

    def trials(self, places: Iterable[SplitMetric]) -> int:
        """Return the largest number of trials in which one of these was measured, including NaN."""
        found = (self.estimate(*place) for place in places)
        return max((each.n + each.nan for each in found), default=0)

    def estimate(self, split: str, metric: str) -> IntervalEstimate:
        """Return the estimate of a metric: a mean, or a share for solution and failure rates."""
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
        """Return in how many trials a constraint holds, and in how many it was measured.

        NaN counts as not measured, except on the training set, where the constraint was enforced:
        there it counts as violated.
        """
        values = self.values.get((split, VIOLATION_PREFIX + constraint), ())
        told = [value for value in values if split == "train" or not math.isnan(value)]
        return sum(value <= CONSTRAINT_TOLERANCE for value in told), len(told)


def is_failure(metric: str) -> bool:
    """Return whether the metric is a failure rate, of one constraint or of any."""
    return metric == FAILURE_RATE or metric.startswith(f"{FAILURE_RATE}.")


def is_share(metric: str) -> bool:
    """Return whether the metric is a share of trials rather than a mean of measured values."""
    return metric == SOLUTION_RATE or is_failure(metric)


def seed_groups(ledger: Ledger, *, by_seed: bool = False) -> tuple[SeedGroup, ...]:
    """Return the groups in plan order, then by variant.

    At points where no trial has values, the variants are those the algorithm has at other points;
    if it has none, the variant is unknown ("").
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
    """Return the group of a variant at one point, or a group without values if it is missing."""
    outcomes = tuple(replace(each, numbers=None) for each in several[0].outcomes)
    nothing = replace(several[0], variant=variant, outcomes=outcomes)
    return next((group for group in several if group.variant == variant), nothing)


def _variants(
    first: PlannedTrial, ends: Sequence[StatusAndNumbers], by_seed: bool, known: Iterable[str]
) -> Iterator[SeedGroup]:
    """Yield the groups of trials that differ only in their seed.

    `known` are the algorithm's variants at any point.
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
    """Return a key by `repr`: 1, 1.0 and true are different sweep points but equal dict keys."""
    point = (part for name, value in trial.point.items() for part in (name, repr(value)))
    return (trial.label, *point, *([repr(trial.seed)] if by_seed else []))
