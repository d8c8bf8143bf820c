"""Groups of trials that differ only in their seed, with means, shares and their intervals."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from scipy.special import betaincinv, stdtrit

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.sweep import DATASET_AXIS
from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    CONSTANT_NAME_KEY,
    CONSTRAINT_TOLERANCE,
    GROUP_RATES_KEY,
    VIOLATION_PREFIX,
    PlannedTrial,
    TrialResult,
    is_no_better,
    undefined_constraints,
)
from ratecli.ledger.view import MEASURED_STATUSES, NOT_RUN, Ledger
from ratecli.ledger.violations import (
    MeasuredViolation,
    ViolationSample,
    measured_violation,
)
from ratecli.rates.expression import ALL_ROWS, Slice
from ratecli.rates.parser import parse_conditions

LEVEL = 0.95


@dataclass(frozen=True)
class IntervalEstimate:
    """A mean with its confidence interval; `n` counts the values used, `nan` the ones left out.

    A mean has a Student-t interval of half-width `half`, which requires at least two values, all
    finite. Without values there is no mean. A share of trials has an exact interval, which is
    asymmetric: it has no `half`.
    """

    mean: float | None
    n: int
    nan: int = 0
    low: float | None = None
    high: float | None = None
    half: float | None = None

    @property
    def finite(self) -> bool:
        return self.mean is not None and math.isfinite(self.mean)

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    def negated(self) -> IntervalEstimate:
        mean, low, high = (None if x is None else -x for x in (self.mean, self.high, self.low))
        return replace(self, mean=mean, low=low, high=high)


NO_ESTIMATE = IntervalEstimate(None, 0)


def estimate_mean(values: Iterable[float]) -> IntervalEstimate:
    everything = list(values)
    numbers = [value for value in everything if not math.isnan(value)]
    n, nan = len(numbers), len(everything) - len(numbers)
    if not numbers:
        return IntervalEstimate(None, 0, nan)
    mean = float(statistics.mean(numbers))
    if n == 1 or not math.isfinite(mean):
        return IntervalEstimate(mean, n, nan)
    quantile = float(stdtrit(n - 1, (1 + LEVEL) / 2))
    half = quantile * statistics.stdev(numbers) / math.sqrt(n)
    return IntervalEstimate(mean, n, nan, mean - half, mean + half, half)


def estimate_share(count: float, n: float, unknown: int = 0) -> IntervalEstimate:
    """Estimate a share, `count` of `n`, with the interval of Clopper and Pearson (1934).

    `unknown` is the number of trials left out of both.
    """
    if not n:
        return IntervalEstimate(None, 0, unknown)
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return IntervalEstimate(count / n, round(n), unknown, low, high)


CONCLUSIVE = MEASURED_STATUSES | {"no_solution_found", "infeasible"}
"""Statuses of trials that count in solution and failure rates."""

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT", bound=Hashable)
SplitMetric = tuple[str, str]
"""A split and a metric, which identify a value."""


@dataclass(frozen=True)
class TrialOutcome:
    """A trial's status and the values of one variant, None if the trial did not return it.

    `violations` are those on the test set, by constraint. `best_constant` is the objective there of
    the best constant decision that violates no constraint, `undefined` are the constraints that
    have no value for it, and `constant_name` is that decision in words. `rates` are those of groups
    on new rows, by rate and group.
    """

    status: str
    numbers: Mapping[SplitMetric, float] | None = None
    violations: Mapping[str, MeasuredViolation] = field(default_factory=dict)
    best_constant: float | None = None
    rates: Mapping[tuple[str, str], float] = field(default_factory=dict)
    undefined: tuple[str, ...] = ()
    constant_name: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether the model is no better than the best constant decision on the test set."""
        objective = (self.numbers or {}).get(("test", "objective"))
        if objective is None or self.best_constant is None:
            return False
        return is_no_better(objective, self.best_constant)

    def violates(self, split: str, constraint: str = "") -> bool | None:
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


@dataclass(frozen=True)
class SeedGroup:
    """One variant of one algorithm at one sweep point, over all seeds or only `seed`.

    A `sole` variant is the only one of its algorithm, and is not named.
    """

    label: str
    variant: str
    point: Mapping[str, Any]
    seed: int | None
    outcomes: tuple[TrialOutcome, ...]
    sole: bool = False
    _known: dict[SplitMetric, IntervalEstimate] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        return self.label if self.sole else f"{self.label} ({self.variant})"

    @cached_property
    def statuses(self) -> Mapping[str, int]:
        return Counter(outcome.status for outcome in self.outcomes)

    @property
    def ended(self) -> int:
        """Number of trials that have run."""
        return len(self.outcomes) - self.statuses.get(NOT_RUN, 0)

    @cached_property
    def values(self) -> Mapping[SplitMetric, tuple[float, ...]]:
        """The values of all trials by split and metric, without missing ones."""
        found: dict[SplitMetric, list[float]] = {}
        for outcome in self.outcomes:
            for place, value in (outcome.numbers or {}).items():
                found.setdefault(place, []).append(value)
        return {place: tuple(numbers) for place, numbers in found.items()}

    @property
    def best_constant(self) -> IntervalEstimate:
        """The mean objective of the best constant decisions on the test set."""
        known = (each.best_constant for each in self.outcomes)
        return estimate_mean(each for each in known if each is not None)

    @property
    def constants(self) -> int:
        """Number of models that are no better than a constant decision."""
        return sum(each.is_constant for each in self.outcomes)

    def violation_sample(
        self, split: str, constraint: str, confidence: float | None = None
    ) -> ViolationSample | None:
        """Return the violations of a constraint on a split, None if it was not measured there.

        Their noise is known on the test set only. `confidence` is as in `ViolationSample`.
        """
        place = split, VIOLATION_PREFIX + constraint
        known = [
            each.violations[constraint]
            if split == "test"
            else MeasuredViolation(each.numbers[place], (), None, seed)
            for seed, each in enumerate(self.outcomes)
            if each.numbers and place in each.numbers
        ]
        return ViolationSample(known, confidence) if known else None

    @cached_property
    def rates(self) -> Mapping[tuple[str, str], IntervalEstimate]:
        """The means of rates of groups on new rows, by rate and group."""
        places = dict.fromkeys(place for each in self.outcomes for place in each.rates)
        found = {place: [each.rates.get(place) for each in self.outcomes] for place in places}
        return {
            place: estimate_mean(value for value in values if value is not None)
            for place, values in found.items()
        }

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
        """Return a mean over trials, or a share of the conclusive trials.

        A trial fails if its classifier violates the constraint (of `failure_rate`: any). Trials
        where this is unknown are left out of the failure rate; if all are, there is none.
        """
        if not is_share(metric):
            return estimate_mean(self.values.get((split, metric), ()))
        conclusive = [each for each in self.outcomes if each.status in CONCLUSIVE]
        solved = [each for each in conclusive if each.numbers is not None]
        if metric == SOLUTION_RATE:
            return estimate_share(len(solved), len(conclusive))
        constraint = metric.removeprefix(FAILURE_RATE).lstrip(".")
        failed = [each.violates(split, constraint) for each in solved]
        unknown = failed.count(None)
        counted = 0 if solved and unknown == len(solved) else len(conclusive) - unknown
        return estimate_share(failed.count(True), counted, unknown)


def count_satisfied(
    groups: Iterable[SeedGroup], split: str, constraint: str = ""
) -> tuple[int, int]:
    """Return in how many trials the constraint (default: all) is satisfied, of how many."""
    found = [each.violates(split, constraint) for group in groups for each in group.outcomes]
    return found.count(False), len(found) - found.count(None)


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
    return ledger.cached(("groups", by_seed), lambda: tuple(_groups(ledger, by_seed)))


def _groups(ledger: Ledger, by_seed: bool) -> Iterator[SeedGroup]:
    variants = {
        label: {variant for trial in trials for variant in ledger.numbers(trial)}
        for label, trials in group_by(ledger.plan, lambda trial: trial.label).items()
    }
    # repr: 1, 1.0 and true are different sweep points but equal dict keys
    same_point = group_by(
        ledger.plan,
        lambda trial: (trial.label, repr(trial.point), repr(trial.seed) if by_seed else ""),
    )
    for trials in same_point.values():
        first, numbers = trials[0], [ledger.numbers(trial) for trial in trials]
        here = {variant for each in numbers for variant in each}
        for variant in sorted(here or variants[first.label]) or [""]:
            outcomes = tuple(
                _outcome(ledger, trial, variant, each.get(variant))
                for trial, each in zip(trials, numbers, strict=True)
            )
            seed = first.seed if by_seed else None
            sole = len(variants[first.label]) < 2
            yield SeedGroup(first.label, variant, first.point, seed, outcomes, sole)


def _outcome(
    ledger: Ledger, trial: PlannedTrial, variant: str, numbers: Mapping[SplitMetric, float] | None
) -> TrialOutcome:
    result = ledger.results.get(trial.key)
    if result is None:
        return TrialOutcome(ledger.status(trial), numbers)
    violations = {
        metric.removeprefix(VIOLATION_PREFIX): measured_violation(
            result, variant, trial.metrics[metric], value, trial.seed
        )
        for (split, metric), value in (numbers or {}).items()
        if split == "test" and metric.startswith(VIOLATION_PREFIX)
    }
    constant = (result.info.get(BEST_CONSTANT_KEY) or {}).get("test")
    constant_name = (result.info.get(CONSTANT_NAME_KEY) or {}).get("test", "")
    undefined = undefined_constraints(trial, result)
    names, rates = group_names(ledger, trial), _group_rates(trial, result, variant)
    rates = {(rate, names.get(group, group)): value for (rate, group), value in rates.items()}
    status = ledger.status(trial)
    return TrialOutcome(
        status, numbers, violations, constant, rates, undefined, constant_name=constant_name
    )


def trial_datasets(ledger: Ledger, trial: PlannedTrial) -> Mapping[str, Any]:
    """Return the entries of the data sets whose rows the trial used."""
    found: Mapping[str, Any] = ledger.experiment.get("datasets") or {}
    one = trial.point.get(DATASET_AXIS)
    return found if one is None else {k: v for k, v in found.items() if k == str(one)}


def group_rules(ledger: Ledger, trial: PlannedTrial) -> dict[str, str]:
    """Return the conditions of the file's groups in the trial's data sets, by name."""
    groups = ledger.experiment.get("groups") or {}
    first = next(iter(trial_datasets(ledger, trial)), "")
    rules = {name: v if isinstance(v, str) else v.get(first) for name, v in groups.items()}
    return {name: rule for name, rule in rules.items() if rule is not None}


def group_names(ledger: Ledger, trial: PlannedTrial) -> dict[str, str]:
    """Return the names of the file's groups, by their conditions as stored rates have them."""
    rules = group_rules(ledger, trial)
    key = "group names", *rules.items()
    return ledger.cached(
        key, lambda: {str(Slice.of((), parse_conditions(v))): name for name, v in rules.items()}
    )


def _group_rates(
    trial: PlannedTrial, result: TrialResult, variant: str
) -> dict[tuple[str, str], float]:
    """Return stored rates by rate and group: those that metrics use, or if they use none, all."""
    found = result.info.get(GROUP_RATES_KEY) or {"rates": {}}
    texts = " ".join(trial.metrics.values())
    rates = {
        (rate, group): math.nan if value is None else value
        for group, own in found["rates"].get(variant, {}).items()
        for rate, (value, *_) in own.items()
        if group != str(ALL_ROWS)
    }
    used = {k: v for k, v in rates.items() if f"{k[0]}[" in texts and f"[{k[1]}]" in texts}
    return used or rates


def group_by(items: Iterable[ItemT], key: Callable[[ItemT], KeyT]) -> dict[KeyT, list[ItemT]]:
    """Return the items by key, in order of first occurrence."""
    found: dict[KeyT, list[ItemT]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def main_variant(ledger: Ledger, trial: PlannedTrial) -> str:
    """Return the main variant of a trial, for which constraints are enforced; "" without one."""
    result = ledger.results.get(trial.key)
    return result.values[0].variant if result and result.values else ""


def same_points(groups: Iterable[SeedGroup]) -> list[list[SeedGroup]]:
    """Return the groups at each sweep point together, which differ in their variants."""
    return list(group_by(groups, lambda group: repr(group.point)).values())


def select_variant(several: Sequence[SeedGroup], variant: str) -> SeedGroup:
    """Return the group of a variant at one point, or a group without values if it is missing."""
    outcomes = tuple(replace(each, numbers=None) for each in several[0].outcomes)
    nothing = replace(several[0], variant=variant, outcomes=outcomes)
    return next((group for group in several if group.variant == variant), nothing)
