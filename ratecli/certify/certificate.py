"""The safety test: certify a candidate's goals on rows that no solver has seen.

After a failed test, its outcome with more rows is predicted from the moments of the tested rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from ratecli.certify.base import MIN_GROUP_ROWS, Bound, BoundedSample, SampleMoments
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
from ratecli.rates.rate_function import RateFunction


def expected_ends(
    plan: GoalTestPlan,
    moments: Sequence[Sequence[SampleMoments]],
    bounds: Sequence[Bound],
    times: float = 1.0,
) -> Array:
    """Predict the upper end of each tree (P,) on `times` as many rows as the moments are from.

    `moments` and `bounds` are those of each quantity. Each group is assumed to keep its share of
    the rows.
    """
    limits = []
    for side in plan.bounds:
        parts = [
            replace(part, coefficient=side.sign * part.coefficient, rows=round(times * part.rows))
            for part in moments[side.quantity]
        ]
        found = bounds[side.quantity].predicted(parts, side.delta)
        limits.append(side.sign * found.value)
    return plan.upper(np.array(limits))[0]


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
        The rows that the candidate was chosen on. They determine the bound that `auto` selects, and
        help to decide which groups are disjoint. Without them, the tested rows decide both (see
        `bounds.choose_bound` and `trees.plan_goal_test`).

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
    samples = plan.samples(rows)
    similar = samples if candidate is None else plan.samples(candidate)
    bounds = plan.choose_bounds(safety.bound, similar)
    limits = np.array([_limit(each, samples, bounds, rng) for each in plan.bounds])
    ends, _ = plan.upper(limits)
    forms = [form.expression() for form in plan.quantities]
    function = RateFunction.of([*plan.trees, *forms, goal.expression], rows.rates.index())
    found = function.values(rows.rates.measured(rows.measurements))
    estimates, known = found[: len(ends)], found[len(ends) : -1].tolist()
    upper = float(ends.max())  # NaN if any end is
    undefined = math.isnan(found[-1])
    passed = math.isfinite(upper) and upper <= 0 and not undefined
    explanation = ""
    if not passed:
        values = np.full_like(estimates, math.nan) if undefined else estimates
        explanation = explain_failure(plan, samples, bounds, ends, values, rows=safety.rows)
    used = [bounds[each.quantity] for each in plan.bounds]
    quantities = [
        {
            "estimate": json_number(estimate),
            "rows": [part.rows for part in parts],
            "bound": bound.name,
        }
        for estimate, parts, bound in zip(known, samples, bounds, strict=True)
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
    plan: GoalTestPlan,
    samples: Sequence[Sequence[BoundedSample]],
    bounds: Sequence[Bound],
    ends: Array,
    estimates: Array,
    *,
    rows: int,
) -> str:
    """Explain in one or two sentences why a test was not passed.

    Parameters
    ----------
    samples, bounds
        The samples and the confidence bound of every quantity.
    ends, estimates
        (P,) the upper end of each tree, and its value on the tested rows.
    rows
        The number of tested rows.
    """
    worst = float(estimates.max())
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
    moments = [[part.moments() for part in parts] for parts in samples]
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = (ends - estimates) / (expected_ends(plan, moments, bounds) - estimates)
    scale[~((scale > 0) & (scale < math.inf))] = 1.0

    def passes(factor: float) -> bool:
        widths = expected_ends(plan, moments, bounds, factor) - estimates
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
