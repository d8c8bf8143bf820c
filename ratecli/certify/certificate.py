"""The safety test: what rows that no solver saw say of a candidate, and with which confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ratecli.certify import delta_allocation as division
from ratecli.certify import trees as plan
from ratecli.certify.bounds import Bound, choose_bound
from ratecli.certify.explanation import explain_failure, is_unusable
from ratecli.certify.forms import FormRows
from ratecli.certify.prediction import CandidateRows, predict_outcome, quantity_rows
from ratecli.certify.safety_test import SafetyMethod, SafetyTestSpec
from ratecli.certify.samples import Measurements, WeightedSample
from ratecli.certify.tree_record import GoalTreeRecorder, TreeRecord, json_number
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.interval import Interval
from ratecli.rates.matrix import RateMatrix

ClassifierKind = Literal["deterministic", "randomized", "estimate"]
"""Of which classifier a certificate speaks.

`deterministic`
    Of the decisions themselves: all of them were 0 or 1.
`randomized`
    Of decisions that are drawn anew with the probabilities that were measured, never of a threshold
    on these.
`estimate`
    Of numbers that are estimated, not of decisions.
"""


@dataclass(frozen=True)
class Certificate:
    """That a goal holds for the distribution that rows are drawn from, or that it was not shown to.

    Attributes
    ----------
    constraint
        The goal's name.
    delta
        With at most this probability, over the draw of the safety rows, does a candidate pass that
        breaks the goal: at most so where `exact`, nearly so with many rows otherwise.
    bound
        The name of the confidence bound, or names.
    upper, estimate
        The upper end of what is tested, and its value on the safety rows. With the method `pieces` that
        is the goal with denominators cleared, which has the goal's sign.
    passed
        Whether `upper` is a number and at most 0, and the goal itself has a value on the safety rows:
        a ratio of 0 and 0 has none, and cleared of its denominator it is 0.
    explanation
        Why it did not pass, and what it would have taken; empty where it did.
    """

    constraint: str
    classifier: ClassifierKind
    delta: float
    method: SafetyMethod
    bound: str
    exact: bool
    upper: float
    estimate: float
    passed: bool
    tree: TreeRecord
    explanation: str = ""

    @property
    def confidence(self) -> float:
        return 1 - self.delta

    def record(self) -> dict[str, Any]:
        """All of it as JSON has it: infinities and NaN by name."""
        return {
            "constraint": self.constraint,
            "classifier": self.classifier,
            "delta": self.delta,
            "confidence": self.confidence,
            "method": self.method,
            "bound": self.bound,
            "exact": self.exact,
            "upper": json_number(self.upper),
            "estimate": json_number(self.estimate),
            "passed": self.passed,
            "explanation": self.explanation,
            "tree": self.tree,
        }


def certify(  # noqa: PLR0917  each is a thing of its own
    goals: Sequence[Goal],
    promise: SafetyTestSpec,
    rates: RateMatrix,
    measurements: Measurements,
    label_range: Interval,
    rng: np.random.Generator,
    candidate: CandidateRows | None = None,
) -> tuple[Certificate, ...]:
    """Test goals on safety rows, each at its own delta.

    A candidate that breaks some goals is returned only if it passes all tests, that of a broken goal
    among them. So it is returned with at most the least delta of those it breaks, and whatever it
    breaks with at most the largest of all deltas: nothing is divided among goals.

    Parameters
    ----------
    rates
        Every rate of the goals, on the safety rows.
    measurements
        What the classifier says of the rows of `rates`.
    label_range
        Least and largest label; infinite where that is not known.
    rng
        For bounds that draw: a resampling, or the decisions of a randomized classifier.
    candidate
        The rows that the candidate was chosen on: they tell what the division `optimized` is, and
        which bound `auto`, and have a say in which groups are disjoint. Without them the delta is
        divided equally, and the rest is told by the rows that are tested (see `bounds.chosen` and
        `tested.tested`).

    Raises
    ------
    FaultError
        E308 for a goal that no bound is known for, E411 for weighted rows.
    """
    found = []
    for goal in goals:
        seen = None if candidate is None else candidate.rates
        given = plan.plan_goal_test(goal, promise, rates, candidate=seen)
        if promise.division == "optimized" and candidate is not None:
            shares = _optimize_shares(given, promise, candidate, label_range)
            given = plan.plan_goal_test(goal, promise, rates, shares, seen)
        bounds = _choose_bounds(given, promise, candidate, label_range)
        test = _GoalTest(given, promise, rates, measurements, label_range, bounds)
        found.append(test.certificate(rng))
    return tuple(found)


def _choose_bounds(
    given: plan.GoalTestPlan,
    promise: SafetyTestSpec,
    candidate: CandidateRows | None,
    label_range: Interval,
) -> Sequence[Bound] | None:
    """The bound of each quantity as candidate rows choose it; None without any."""
    if candidate is None:
        return None
    rows = _require_rows(given, candidate.rates, label_range)
    parts = ([part.measured(candidate.measurements) for part in each] for each in rows)
    return [choose_bound(promise.bound, each) for each in parts]


def _optimize_shares(
    given: plan.GoalTestPlan,
    promise: SafetyTestSpec,
    candidate: CandidateRows,
    label_range: Interval,
) -> Sequence[float]:
    rows = _require_rows(given, candidate.rates, label_range)
    of_all = promise.rows / max(candidate.rates.members.shape[1], 1)
    beforehand = predict_outcome(given, rows, candidate.measurements, promise.bound).scaled(of_all)
    return division.optimize_delta_shares(beforehand)


def _require_rows(
    given: plan.GoalTestPlan, rates: RateMatrix, label_range: Interval
) -> list[tuple[FormRows, ...]]:
    found = quantity_rows(given, rates, label_range)
    if found is None:
        raise ValueError("quantities were found on other rows than these")
    return found


@dataclass(frozen=True)
class _GoalTest:
    tested: plan.GoalTestPlan
    promise: SafetyTestSpec
    rates: RateMatrix
    measurements: Measurements
    label_range: Interval
    beforehand: Sequence[Bound] | None

    def certificate(self, rng: np.random.Generator) -> Certificate:
        limits = np.array([self._limit(each, rng) for each in self.tested.asked])
        ends, _ = self.tested.upper(limits)
        estimates = np.array(self.tested.values(self._value))
        upper = float(ends.max())  # NaN if any is
        goal = self.tested.goal
        undefined = math.isnan(ex.evaluate(goal.expression, self._value))
        passed = math.isfinite(upper) and upper <= 0 and not undefined
        values = np.full_like(estimates, math.nan) if undefined else estimates
        used = [self._bounds[each.quantity] for each in self.tested.asked]
        return Certificate(
            goal.name,
            self._kind(),
            self.promise.delta[goal.name],
            self.promise.method,
            ", ".join(dict.fromkeys(bound.name for bound in used)),
            all(bound.exact for bound in used) and self.promise.at_random,
            upper,
            float(estimates.max()),
            passed,
            self._picture(limits).node(),
            "" if passed else self._explanation(ends, values),
        )

    def _limit(self, asked: plan.OneSidedBound, rng: np.random.Generator) -> float:
        """A lower limit is minus the upper one of the negated sum; infinite where nothing is known."""
        parts = self._parts[asked.quantity]
        if any(map(is_unusable, parts)):
            return asked.sign * math.inf
        turned = [replace(part, coefficient=asked.sign * part.coefficient) for part in parts]
        found = self._bounds[asked.quantity].upper(turned, asked.delta, rng)
        return asked.sign * (math.inf if math.isnan(found) else found)

    @cached_property
    def _rows(self) -> Sequence[Sequence[FormRows]]:
        return _require_rows(self.tested, self.rates, self.label_range)

    @cached_property
    def _parts(self) -> Sequence[Sequence[WeightedSample]]:
        return [[part.measured(self.measurements) for part in parts] for parts in self._rows]

    @cached_property
    def _bounds(self) -> Sequence[Bound]:
        return self.beforehand or [choose_bound(self.promise.bound, parts) for parts in self._parts]

    @cached_property
    def _leaves(self) -> list[Leaf]:
        return ex.leaves(*self.tested.trees)

    @cached_property
    def _known(self) -> Mapping[Leaf, float]:
        """The rates, without any confidence."""
        leaves = self.rates.leaves
        found = {leaf.rate.of: self.measurements[leaf.rate.of] for leaf in leaves}
        return dict(zip(leaves, self.rates.measured(found).tolist(), strict=True))

    def _value(self, node: Expression) -> float:
        if isinstance(node, Leaf):
            return self._known[node]
        raise TypeError(f"{ex.to_text(node)} is no rate")

    def _kind(self) -> ClassifierKind:
        if not any(leaf.rate.of == "decision" for leaf in self._leaves):
            return "estimate"
        decisions = self.measurements["decision"]
        return "deterministic" if np.isin(decisions, (0.0, 1.0)).all() else "randomized"

    def _picture(self, limits: Array) -> GoalTreeRecorder:
        values = [ex.evaluate(form.expression(), self._value) for form in self.tested.quantities]
        sizes = [[len(part.rows) for part in parts] for parts in self._rows]
        names = [bound.name for bound in self._bounds]
        return GoalTreeRecorder(self.tested, limits, values, sizes, names)

    def _explanation(self, ends: Array, estimates: Array) -> str:
        found = predict_outcome(self.tested, self._rows, self.measurements, self.promise.bound)
        return explain_failure(found, self._parts, ends, estimates, self.promise.rows)
