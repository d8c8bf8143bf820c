"""The safety test: certify a candidate's goals on rows that no solver has seen."""

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
"""Minimum share of delta for a bound, relative to equal shares, as expectations may be wrong."""
INTERPOLATION_KNOTS = 25
"""Number of shares at which limits are computed; between them they are interpolated."""
SIMPLEX_STEPS = 15
"""Steps of the simplex search for each share."""
SIMPLEX_SPAN = 0.1
"""Initial change of the logarithms of the shares in the simplex search."""
INFINITE_END = 1e12


def optimize_delta_shares(expected: ExpectedOutcome) -> tuple[float, ...]:
    """Return (B,) shares of delta that minimize the expected upper end of each tree.

    The shares depend only on expectations, which must not come from the tested rows. Limits then
    hold as for any other deltas fixed beforehand. The shares of a tree add up to 1 and never lead
    to a larger expected end than equal shares; they are equal if some limit is infinite.

    L-BFGS searches from equal shares, then a simplex search (Nelder and Mead) refines the result:
    ends have kinks where another argument of a maximum becomes the largest, and gradients fail
    there.

    Parameters
    ----------
    expected
        The expected outcome with delta divided equally.
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
    """Optimizes the shares (b,) of one tree's bounds, whose indices among all B are `own`."""

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
        """Return the upper end and its slopes in x, shape (b - 1,), from interpolated limits."""
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
        """Map any x (b - 1,) to shares that add up to 1 and are at least the minimum."""
        floor = MIN_DELTA_SHARE / len(self.own)
        weights = np.exp(np.append(x, 0.0) - max(x.max(), 0.0))
        return np.asarray(floor + (1 - MIN_DELTA_SHARE) * weights / weights.sum())

    @cached_property
    def _curves(self) -> list[PchipInterpolator]:
        """Limits as functions of the logarithms of shares; like the limits, they are monotone."""
        return [PchipInterpolator(np.log(self._knots), row) for row in self._table]

    @cached_property
    def _knots(self) -> Array:
        return np.geomspace(MIN_DELTA_SHARE / len(self.own), 1.0, INTERPOLATION_KNOTS)

    @cached_property
    def _table(self) -> Array:
        """(b, INTERPOLATION_KNOTS) limits."""
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
        """Replace an infinite end by a large number, because the searches subtract ends."""
        return min(end, INFINITE_END) if not math.isnan(end) else INFINITE_END


ClassifierKind = Literal["deterministic", "randomized", "estimate"]
"""Which classifier a certificate applies to.

`deterministic`
    The decisions themselves: all of them were 0 or 1.
`randomized`
    Decisions sampled with the measured probabilities, never a threshold on these probabilities.
`estimate`
    Numeric estimates instead of decisions.
"""


@dataclass(frozen=True)
class Certificate:
    """The outcome of testing whether a goal holds for the distribution of the rows.

    Attributes
    ----------
    constraint
        The goal's name.
    delta
        A candidate that violates the goal passes with at most this probability over the sampling of
        the safety rows. If not `exact`, this holds approximately, for many rows.
    bound
        The name of the confidence bound, or several names.
    upper, estimate
        The upper end of the tested expression, and its value on the safety rows. With the method
        `pieces`, denominators are cleared, which does not change the sign.
    passed
        Whether `upper` is finite and at most 0 and the goal itself is defined on the safety rows: a
        ratio 0 / 0 is not, although it is 0 once its denominator is cleared.
    explanation
        Why the test failed, and what it would have taken; empty if it was passed.
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
        """Return the certificate as JSON-compatible data, with infinities and NaN as strings."""
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


def certify(  # noqa: PLR0917  the arguments are unrelated
    goals: Sequence[Goal],
    promise: SafetyTestSpec,
    rates: RateMatrix,
    measurements: Measurements,
    label_range: Interval,
    rng: np.random.Generator,
    candidate: CandidateRows | None = None,
) -> tuple[Certificate, ...]:
    """Test goals on safety rows, each at its own delta.

    A candidate is returned only if it passes all tests. A candidate that violates some goals must
    pass the tests of those goals, so the probability that it is returned is at most the smallest of
    their deltas, and never more than the largest delta. Hence delta is not divided among goals.

    Parameters
    ----------
    rates
        Every rate of the goals, on the safety rows.
    measurements
        The classifier's outputs on the rows of `rates`.
    label_range
        Minimum and maximum label; infinite if unknown.
    rng
        For randomized bounds: resampling, or sampling the decisions of a randomized classifier.
    candidate
        The rows that the candidate was chosen on. They determine the division `optimized` and the
        bound that `auto` selects, and help to decide which groups are disjoint. Without them, delta
        is divided equally, and the tested rows decide the rest (see `bounds.choose_bound` and
        `trees.plan_goal_test`).

    Raises
    ------
    FaultError
        E308 for a goal without a known bound, E411 for weighted rows.
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
    """Return the bound of each quantity as chosen on candidate rows; None without such rows."""
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
        upper = float(ends.max())  # NaN if any end is
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
        """Return one limit; a lower limit is minus the upper limit of the negated sum."""
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
        """The rates measured on the safety rows."""
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
