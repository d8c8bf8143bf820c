"""The safety test: what rows that no solver saw say of a candidate, and with which confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import minimize

from ratecli.certify import trees as plan
from ratecli.certify.bound import Measurements, WeightedSample
from ratecli.certify.bounds import Bound, choose_bound
from ratecli.certify.forms import FormRows
from ratecli.certify.prediction import (
    CandidateRows,
    ExpectedOutcome,
    explain_failure,
    is_unusable,
    predict_outcome,
    quantity_rows,
)
from ratecli.certify.safety_test import SafetyMethod, SafetyTestSpec
from ratecli.certify.trees import GoalTreeRecorder, TreeRecord, json_number
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.enclosure import Enclosure, InclusionFunction
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.interval import Interval
from ratecli.rates.matrix import RateMatrix

MIN_DELTA_SHARE = 0.1
"""Least share of a bound, in equal shares: what is expected may turn out otherwise."""
INTERPOLATION_KNOTS = 25
"""Shares at which limits are found; between them they are interpolated."""
SIMPLEX_STEPS = 15
"""Steps of the simplex for each share."""
SIMPLEX_SPAN = 0.1
"""By how much the simplex changes the logarithm of a share at first."""
INFINITE_END = 1e12


def optimize_delta_shares(expected: ExpectedOutcome) -> tuple[float, ...]:
    """(B,) shares of the delta for which the upper end of each tree is expected to be least.

    They depend on what is expected alone, which must not come from the rows that are tested: then
    limits hold as they do for any other deltas fixed beforehand. Shares of one tree add up to 1, and
    lead to no larger end than equal ones, which they are where some limit is infinite.

    The least end is sought by L-BFGS from equal shares, and then by a simplex (Nelder and Mead): ends
    have kinks where the arguments of a maximum change places, and there a gradient stops too early.

    Parameters
    ----------
    expected
        With the delta divided equally.
    """
    asked = expected.tested.asked
    shares = np.ones(len(asked))
    for tree in range(len(expected.tested.trees)):
        own = np.array([b for b, each in enumerate(asked) if each.tree == tree], dtype=np.intp)
        if len(own) > 1:
            shares[own] = _TreeAllocation(expected, tree, own).best()
    return tuple(shares.tolist())


@dataclass(frozen=True)
class _TreeAllocation:
    """Shares (b,) of the bounds of one tree, those at `own` among all B."""

    expected: ExpectedOutcome
    tree: int
    own: NDArray[np.intp]

    def best(self) -> Array:
        equal = np.full(len(self.own), 1 / len(self.own))
        if not np.isfinite(self._table).all():
            return equal
        start = np.zeros(len(self.own) - 1)
        near = minimize(self._smooth, start, jac=True, method="L-BFGS-B").x
        simplex = near + SIMPLEX_SPAN * np.vstack([start, np.eye(len(start))])
        options = {"maxiter": SIMPLEX_STEPS * len(self.own), "initial_simplex": simplex}
        found = minimize(lambda x: self._smooth(x)[0], near, method="Nelder-Mead", options=options)
        shares = self._shares(found.x)
        return shares if self._end(self._limits(shares)) < self._end(self._limits(equal)) else equal

    def _smooth(self, x: Array) -> tuple[float, Array]:
        """The end at the shares that x (b - 1,) gives, and its slopes, of interpolated limits."""
        shares = self._shares(x)
        at = np.log(shares)
        limits = np.array([curve(each) for curve, each in zip(self._curves, at, strict=True)])
        rise = [curve(each, 1) for curve, each in zip(self._curves, at, strict=True)]
        found = self._enclosure(limits)
        slopes = found.high_slopes[self.own] * rise / shares
        free = shares - MIN_DELTA_SHARE / len(shares)
        by_weight = free * (slopes - free @ slopes / (1 - MIN_DELTA_SHARE))
        return self._shown(found.high), by_weight[:-1]

    def _shares(self, x: Array) -> Array:
        """Any x (b - 1,) gives shares of at least the floor."""
        floor = MIN_DELTA_SHARE / len(self.own)
        weights = np.exp(np.append(x, 0.0) - max(x.max(), 0.0))
        return np.asarray(floor + (1 - MIN_DELTA_SHARE) * weights / weights.sum())

    @cached_property
    def _curves(self) -> list[PchipInterpolator]:
        """Limits in the logarithms of shares: monotone, as they are."""
        return [PchipInterpolator(np.log(self._knots), row) for row in self._table]

    @cached_property
    def _knots(self) -> Array:
        return np.geomspace(MIN_DELTA_SHARE / len(self.own), 1.0, INTERPOLATION_KNOTS)

    @cached_property
    def _table(self) -> Array:
        """(b, KNOTS) limits."""
        return np.array([self._limits(np.full(len(self.own), share)) for share in self._knots]).T

    def _limits(self, shares: Array) -> Array:
        given = (self.expected.tested.asked[b] for b in self.own)
        whole = len(self.own)
        asked = [
            replace(each, delta=each.delta * whole * share)
            for each, share in zip(given, shares.tolist(), strict=True)
        ]
        return np.array([self.expected.limit(each) for each in asked])

    def _end(self, limits: Array) -> float:
        return self._shown(self._enclosure(limits).high)

    @cached_property
    def _root(self) -> InclusionFunction:
        return self.expected.tested.inclusion(self.expected.tested.trees[self.tree], self.tree)

    def _enclosure(self, limits: Array) -> Enclosure:
        every = np.zeros(len(self.expected.tested.asked))
        every[self.own] = limits
        return self._root(every)

    @staticmethod
    def _shown(end: float) -> float:
        """A large number for an infinite end: searches subtract them."""
        return min(end, INFINITE_END) if not math.isnan(end) else INFINITE_END


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
    return optimize_delta_shares(beforehand)


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
