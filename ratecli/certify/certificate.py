"""The safety test: certify a candidate's goals on rows that no solver has seen.

Before the test, its outcome is predicted from the moments of the rows that the candidate was chosen
on, to divide delta; after a failed test, from those of the tested rows, to explain the failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize

from ratecli.certify.bound import MIN_GROUP_ROWS, Bound, BoundedSample, SampleMoments
from ratecli.certify.forms import MeasuredRows
from ratecli.certify.trees import (
    GoalTestPlan,
    OneSidedBound,
    SafetyMethod,
    SafetyTestSpec,
    TreeRecord,
    json_number,
    plan_goal_test,
    record_tree,
)
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression
from ratecli.rates.sample import Mask


@dataclass(frozen=True)
class ExpectedOutcome:
    """The predicted outcome of a safety test: confidence limits, and the upper end of each tree.

    Each group is assumed to have the same share among the rows of the test.

    Attributes
    ----------
    moments, bounds
        Moments of the parts of every quantity, and its confidence bound.
    """

    plan: GoalTestPlan
    moments: Sequence[Sequence[SampleMoments]]
    bounds: Sequence[Bound]

    @classmethod
    def of(cls, plan: GoalTestPlan, rows: MeasuredRows, bound: str) -> ExpectedOutcome:
        """Return the outcome to expect on as many rows as these."""
        samples = plan.samples(rows)
        moments = [[sample.moments() for sample in parts] for parts in samples]
        return cls(plan, moments, plan.choose_bounds(bound, samples))

    def limit(self, bound: OneSidedBound) -> float:
        """Return one confidence limit, upper or lower."""
        parts = [
            replace(part, coefficient=bound.sign * part.coefficient)
            for part in self.moments[bound.quantity]
        ]
        return bound.sign * self.bounds[bound.quantity].predicted(parts, bound.delta).value

    def upper(self) -> Array:
        """Return (P,) the upper end of each tree."""
        return self.plan.upper(np.array([self.limit(each) for each in self.plan.bounds]))[0]

    def scaled(self, factor: float) -> ExpectedOutcome:
        """Return the outcome to expect with `factor` times as many rows."""
        moments = [
            [replace(part, rows=round(factor * part.rows)) for part in parts]
            for parts in self.moments
        ]
        return replace(self, moments=moments)


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
        end = root(every)[1]
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


def certify(
    goals: Sequence[Goal],
    safety: SafetyTestSpec,
    rows: MeasuredRows,
    rng: np.random.Generator,
    candidate: MeasuredRows | None = None,
) -> tuple[Certificate, ...]:
    """Test goals on safety rows, each at its own delta.

    A candidate is returned only if it passes all tests. A candidate that violates some goals must
    pass the tests of those goals, so the probability that it is returned is at most the smallest of
    their deltas, and never more than the largest delta. Hence delta is not divided among goals.

    Parameters
    ----------
    rows
        The safety rows, with every rate of the goals.
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
    return tuple(_certify_goal(goal, safety, rows, rng, candidate) for goal in goals)


def _certify_goal(
    goal: Goal,
    safety: SafetyTestSpec,
    rows: MeasuredRows,
    rng: np.random.Generator,
    candidate: MeasuredRows | None,
) -> Certificate:
    plan = plan_goal_test(goal, safety, rows.rates, candidate.rates if candidate else None)
    if safety.division == "optimized" and candidate is not None:
        plan = _optimize_division(plan, safety, candidate)
    samples = plan.samples(rows)
    similar = samples if candidate is None else plan.samples(candidate)
    bounds = plan.choose_bounds(safety.bound, similar)
    limits = np.array([_limit(each, samples, bounds, rng) for each in plan.bounds])
    ends, _ = plan.upper(limits)
    known = rows.rates.measured(rows.measurements).tolist()
    value_of = dict[Expression, float](zip(rows.rates.leaves, known, strict=True)).__getitem__
    estimates = np.array([ex.evaluate(tree, value_of) for tree in plan.trees])
    upper = float(ends.max())  # NaN if any end is
    undefined = math.isnan(ex.evaluate(goal.expression, value_of))
    passed = math.isfinite(upper) and upper <= 0 and not undefined
    explanation = ""
    if not passed:
        values = np.full_like(estimates, math.nan) if undefined else estimates
        expected = ExpectedOutcome.of(plan, rows, safety.bound)
        explanation = explain_failure(expected, samples, ends, values, safety.rows)
    used = [bounds[each.quantity] for each in plan.bounds]
    quantities = [
        {
            "estimate": json_number(ex.evaluate(form.expression(), value_of)),
            "rows": [part.rows for part in parts],
            "bound": bound.name,
        }
        for form, parts, bound in zip(plan.quantities, samples, bounds, strict=True)
    ]
    return Certificate(
        constraint=goal.name,
        classifier=_classifier_kind(plan, rows),
        delta=safety.delta[goal.name],
        method=safety.method,
        bound=", ".join(dict.fromkeys(bound.name for bound in used)),
        exact=all(bound.exact for bound in used) and safety.at_random,
        upper=upper,
        estimate=float(estimates.max()),
        passed=passed,
        tree=record_tree(plan, limits, quantities),
        explanation=explanation,
    )


def _optimize_division(
    plan: GoalTestPlan, safety: SafetyTestSpec, candidate: MeasuredRows
) -> GoalTestPlan:
    """Divide delta by the outcome that candidate rows predict for the number of safety rows."""
    expected = ExpectedOutcome.of(plan, candidate, safety.bound)
    factor = safety.rows / max(candidate.rates.members.shape[1], 1)
    shares = optimize_delta_shares(expected.scaled(factor))
    delta = safety.delta[plan.goal.name]
    pairs = zip(plan.bounds, shares, strict=True)
    return replace(plan, bounds=tuple(replace(b, delta=delta * share) for b, share in pairs))


def _limit(
    bound: OneSidedBound,
    samples: Sequence[Sequence[BoundedSample]],
    bounds: Sequence[Bound],
    rng: np.random.Generator,
) -> float:
    """Return one limit; a lower limit is minus the upper limit of the negated sum."""
    parts = samples[bound.quantity]
    if not all(part.usable for part in parts):
        return bound.sign * math.inf
    signed = [replace(part, coefficient=bound.sign * part.coefficient) for part in parts]
    limit = bounds[bound.quantity].upper(signed, bound.delta, rng)
    return bound.sign * (math.inf if math.isnan(limit) else limit)


def _classifier_kind(plan: GoalTestPlan, rows: MeasuredRows) -> ClassifierKind:
    if not any(leaf.rate.of == "decision" for leaf in ex.leaves(*plan.trees)):
        return "estimate"
    binary = np.isin(rows.measurements["decision"], (0.0, 1.0)).all()
    return "deterministic" if binary else "randomized"


MAX_ROWS_NEEDED = 10**9
"""Numbers of rows beyond this are reported as "more than"."""
ROWS_HALVINGS = 10
"""Halvings of a factor of at most 4: a relative precision of 0.0014."""


def explain_failure(
    expected: ExpectedOutcome,
    samples: Sequence[Sequence[BoundedSample]],
    ends: Array,
    estimates: Array,
    rows: int,
) -> str:
    """Explain in one or two sentences why a test was not passed.

    Parameters
    ----------
    expected
        Prediction from the moments of the tested rows themselves.
    samples
        The samples of every quantity.
    ends, estimates
        (P,) the upper end of each tree, and its value on the tested rows.
    rows
        The number of tested rows.
    """
    plan, worst = expected.plan, float(estimates.max())
    reached = f"'{plan.goal.name}': the upper bound on the violation is {ends.max():.4g} > 0"
    for form, parts in zip(plan.quantities, samples, strict=True):
        for sample in parts:
            if not sample.usable:
                finite = int(np.isfinite(sample.values).sum())
                return (
                    f"{reached}; '{ex.to_text(form.expression())}' was measured on {sample.rows:,} "
                    f"safety rows, {finite:,} of them with a finite number: at least "
                    f"{MIN_GROUP_ROWS} rows are needed, and all must be finite"
                )
    if math.isnan(worst):
        return f"{reached}; on the safety rows its value is not defined"
    measured = f"{reached}. On the safety rows, the constraint's value is {worst:.4g}"
    if worst >= 0:
        return f"{measured}: more rows would not help this candidate"
    # bounds use more than the moments that predict them: correct by the error at these rows
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = (ends - estimates) / (expected.upper() - estimates)
    scale[~((scale > 0) & (scale < math.inf))] = 1.0

    def passes(factor: float) -> bool:
        widths = expected.scaled(factor).upper() - estimates
        return bool((estimates + scale * widths <= 0).all())

    # groups are assumed to keep their shares, and measurements their moments
    factor = smallest_factor(passes, MAX_ROWS_NEEDED / rows, ROWS_HALVINGS)
    more = f"more than {MAX_ROWS_NEEDED:,}"
    enough = more if factor is None else f"about {round_up(factor * rows):,}"
    return f"{measured}: this candidate would pass with {enough} safety rows instead of {rows:,}"


def smallest_factor(passes: Callable[[float], bool], most: float, halvings: int) -> float | None:
    """Return the smallest factor above 1 that passes; None if that is above `most`."""
    low, high = 1.0, 2.0
    while not passes(high):
        low, high = high, 4 * high
        if high > most:
            return None
    for _ in range(halvings):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def round_up(count: float, digits: int = 3) -> int:
    """Round up to `digits` significant digits."""
    unit: int = 10 ** max(math.floor(math.log10(max(count, 1))) + 1 - digits, 0)
    return math.ceil(count / unit) * unit
