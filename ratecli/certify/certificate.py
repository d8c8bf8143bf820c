"""The safety test: certify a candidate's goals on rows that no solver has seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize

from ratecli.certify.bound import Bound, BoundedSample, Measurements
from ratecli.certify.bounds import choose_bound
from ratecli.certify.prediction import (
    CandidateRows,
    ExpectedOutcome,
    explain_failure,
    is_unusable,
)
from ratecli.certify.safety_test import SafetyMethod, SafetyTestSpec
from ratecli.certify.trees import (
    GoalTestPlan,
    GoalTreeRecorder,
    OneSidedBound,
    TreeRecord,
    json_number,
    plan_goal_test,
)
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.interval import Interval
from ratecli.rates.matrix import RateMatrix
from ratecli.rates.sample import Mask

MIN_DELTA_SHARE = 0.1
"""Minimum share of delta for a bound, relative to equal shares, as expectations may be wrong."""
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

    Parameters
    ----------
    expected
        The expected outcome with delta divided equally.
    """
    trees = np.array([bound.tree for bound in expected.plan.bounds], dtype=np.intp)
    shares = np.ones(len(trees))
    for tree, count in zip(*np.unique(trees, return_counts=True), strict=True):
        if count > 1:
            shares[trees == tree] = _optimize_tree_shares(expected, tree, trees == tree)
    return tuple(shares.tolist())


def _optimize_tree_shares(expected: ExpectedOutcome, tree: int, own: Mask) -> Array:
    """Return the shares (b,) of one tree's bounds, which are `own` (B,) among all.

    L-BFGS searches from equal shares, then a simplex search (Nelder and Mead) refines the result:
    ends have kinks where another argument of a maximum becomes the largest, and gradients fail
    there.
    """
    plan, size = expected.plan, int(own.sum())
    bounds = [plan.bounds[b] for b in np.flatnonzero(own)]
    root = plan.inclusion(plan.trees[tree], tree)
    equal, floor = np.full(size, 1 / size), MIN_DELTA_SHARE / size

    def limits(shares: Array) -> list[float]:
        pairs = zip(bounds, shares, strict=True)
        return [expected.limit(replace(each, delta=each.delta * size * s)) for each, s in pairs]

    def upper_end(shares: Array) -> float:
        every = np.zeros(len(own))
        every[own] = limits(shares)
        end = root(every).high
        return INFINITE_END if math.isnan(end) else min(end, INFINITE_END)

    def shares_at(x: Array) -> Array:
        """Map any x (b - 1,) to shares that add up to 1 and are at least the minimum."""
        weights = np.exp(np.append(x, 0.0) - max(x.max(), 0.0))
        return np.asarray(floor + (1 - MIN_DELTA_SHARE) * weights / weights.sum())

    def end_at(x: Array) -> float:
        return upper_end(shares_at(x))

    if not np.isfinite(limits(np.full(size, floor))).all():
        return equal
    near = minimize(end_at, np.zeros(size - 1), method="L-BFGS-B").x
    simplex = near + SIMPLEX_SPAN * np.vstack([np.zeros(size - 1), np.eye(size - 1)])
    options = {"maxiter": SIMPLEX_STEPS * size, "initial_simplex": simplex}
    best = shares_at(minimize(end_at, near, method="Nelder-Mead", options=options).x)
    return best if upper_end(best) < upper_end(equal) else equal


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
        numbers = {"upper": json_number(self.upper), "estimate": json_number(self.estimate)}
        return asdict(self) | numbers | {"confidence": self.confidence}


def certify(  # noqa: PLR0917  the arguments are unrelated
    goals: Sequence[Goal],
    safety: SafetyTestSpec,
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
    certificates = []
    for goal in goals:
        known = None if candidate is None else candidate.rates
        plan = plan_goal_test(goal, safety, rates, known)
        if safety.division == "optimized" and candidate is not None:
            rows = plan.parts(candidate.rates, label_range)
            expected = ExpectedOutcome.of(plan, rows, candidate.measurements, safety.bound)
            factor = safety.rows / max(candidate.rates.members.shape[1], 1)
            shares = optimize_delta_shares(expected.scaled(factor))
            plan = plan.with_shares(safety.delta[goal.name], shares)
        rows = plan.parts(rates, label_range)
        samples = [[part.measured(measurements) for part in parts] for parts in rows]
        similar = samples
        if candidate is not None:
            similar = [
                [part.measured(candidate.measurements) for part in parts]
                for parts in plan.parts(candidate.rates, label_range)
            ]
        bounds = [choose_bound(safety.bound, parts) for parts in similar]
        limits = np.array([_limit(each, samples, bounds, rng) for each in plan.bounds])
        ends, _ = plan.upper(limits)
        value_of = _leaf_values(rates, measurements)
        estimates = np.array(plan.values(value_of))
        upper = float(ends.max())  # NaN if any end is
        undefined = math.isnan(ex.evaluate(goal.expression, value_of))
        passed = math.isfinite(upper) and upper <= 0 and not undefined
        explanation = ""
        if not passed:
            values = np.full_like(estimates, math.nan) if undefined else estimates
            expected = ExpectedOutcome.of(plan, rows, measurements, safety.bound)
            explanation = explain_failure(expected, samples, ends, values, safety.rows)
        used = [bounds[each.quantity] for each in plan.bounds]
        tree = GoalTreeRecorder(
            plan,
            limits,
            [ex.evaluate(form.expression(), value_of) for form in plan.quantities],
            [[part.rows for part in parts] for parts in samples],
            [bound.name for bound in bounds],
        )
        certificate = Certificate(
            constraint=goal.name,
            classifier=_classifier_kind(plan, measurements),
            delta=safety.delta[goal.name],
            method=safety.method,
            bound=", ".join(dict.fromkeys(bound.name for bound in used)),
            exact=all(bound.exact for bound in used) and safety.at_random,
            upper=upper,
            estimate=float(estimates.max()),
            passed=passed,
            tree=tree.record(),
            explanation=explanation,
        )
        certificates.append(certificate)
    return tuple(certificates)


def _limit(
    bound: OneSidedBound,
    samples: Sequence[Sequence[BoundedSample]],
    bounds: Sequence[Bound],
    rng: np.random.Generator,
) -> float:
    """Return one limit; a lower limit is minus the upper limit of the negated sum."""
    parts = samples[bound.quantity]
    if any(map(is_unusable, parts)):
        return bound.sign * math.inf
    signed = [replace(part, coefficient=bound.sign * part.coefficient) for part in parts]
    limit = bounds[bound.quantity].upper(signed, bound.delta, rng)
    return bound.sign * (math.inf if math.isnan(limit) else limit)


def _leaf_values(rates: RateMatrix, measurements: Measurements) -> Callable[[Expression], float]:
    """Return a function from a rate to its value on the rows of the matrix."""
    own = {leaf.rate.of: measurements[leaf.rate.of] for leaf in rates.leaves}
    known = dict(zip(rates.leaves, rates.measured(own).tolist(), strict=True))

    def value_of(node: Expression) -> float:
        assert isinstance(node, Leaf), f"{ex.to_text(node)} is no rate"
        return float(known[node])

    return value_of


def _classifier_kind(plan: GoalTestPlan, measurements: Measurements) -> ClassifierKind:
    if not any(leaf.rate.of == "decision" for leaf in ex.leaves(*plan.trees)):
        return "estimate"
    binary = np.isin(measurements["decision"], (0.0, 1.0)).all()
    return "deterministic" if binary else "randomized"
