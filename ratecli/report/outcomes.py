"""How trials ended: which share of them gave a classifier, and which share one that breaks a rule.

A trial that ends without a classifier since none passed, or since there is none, is a trial of which
nothing can fail. One that crashed, ran out of time or diverged said nothing: it is neither solved nor
safe, and no rate counts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ratecli.ledger.records import CONSTRAINT_TOLERANCE, VIOLATION_PREFIX
from ratecli.ledger.view import MEASURED_STATUSES
from ratecli.report.estimates import IntervalEstimate, estimate_share

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
