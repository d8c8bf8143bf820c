"""Prediction of the safety test's bounds from a candidate's outputs on its own rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ratecli.certify.base import Bound, BoundedSample, BoundPredictor, SampleMoments
from ratecli.certify.forms import FormRows
from ratecli.certify.trees import GoalTestPlan, OneSidedBound, SafetyTestSpec, plan_goal_test
from ratecli.models.base import Array
from ratecli.rates.analysis import pieces
from ratecli.rates.expression import Expression
from ratecli.rates.matrix import Measurements
from ratecli.rates.rate_function import RateFunction
from ratecli.solvers.design_matrix import DesignMatrix
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.options import DEFAULT_PASS_PROBABILITY, PASS_KEY
from ratecli.solvers.seldonian.score_models import Design, SmoothOutputs


@dataclass(frozen=True)
class MeanEstimate:
    """One mean that bounds are made of: measurements of some candidate rows, and their features."""

    rows: FormRows
    design: Design

    @property
    def count(self) -> int:
        return len(self.rows.rows)

    def moments(self, values: Array) -> tuple[float, float]:
        """Return mean and deviation of measurements; NaN if there are too few rows for them."""
        found = BoundedSample(values).moments()
        return found.mean, found.deviation

    def slopes(self, outputs: SmoothOutputs) -> Array:
        """Return slopes (2, D) of mean and deviation in the weights; 0 where the deviation is 0."""
        if not self.count:
            return np.zeros((2, self.design.width))
        values = self.rows.values(outputs)
        mean, deviation = self.moments(values)
        by = np.stack([self.rows.slope / self.count, np.zeros(self.count)], axis=1)
        if deviation > 0:
            by[:, 1] = (values - mean) * self.rows.slope / ((self.count - 1) * deviation)
        return self.design.pull(outputs.slopes(self.rows.of, by, self.rows.rows)).T


def calibrate_inflation(wanted: float, bounds: int) -> float:
    """Return the margin with which the real test is passed with a probability of at least `wanted`.

    It is in standard errors: of the difference between the estimates of the same means on candidate
    and on safety rows.

    Let a bound on a mean be computed from `n` candidate rows or `m` safety rows. The mean on the
    candidate rows is `C = mu + s / sqrt(n) Z`, that of the test `S = mu + s / sqrt(m) Z'`, with Z
    and Z' independent and approximately normal. The bound of the test lies `h` above S, and h
    hardly varies. Candidate selection requires `C + h + r <= limit` with a margin r. If that holds
    with equality, the test's bound is within the limit if `S - C <= r`. As `S - C` has standard
    deviation `s sqrt(1 / n + 1 / m)`, the margin `r = z s sqrt(1 / n + 1 / m)` with `Phi(z) = p`
    gives a probability of p. For Student's t, with `h = t s / sqrt(m)`, this is the factor `1 + (z
    / t) sqrt(1 + m / n)` on h: about 2.2 for 60 % of the rows in the test, a delta of 0.05 and p =
    0.9. So the tutorial's 2 is right for one delta, one split and one p.

    Several bounds, over all constraints, hold together with a probability of at least `wanted` if
    each holds with `1 - (1 - wanted) / bounds`. If all limits are at most those predicted, so is
    the upper end of every goal, which is monotone in them. Not accounted for: the candidate was
    chosen on these rows, so its C is slightly better than that of a given model.
    """
    return NormalDist().inv_cdf(1 - (1 - wanted) / max(bounds, 1))


@dataclass(frozen=True)
class PredictedLimit:
    """An upper (sign 1) or lower (-1) limit as a function of the moments of k of the groups.

    Attributes
    ----------
    places
        (k,) indices of the groups.
    noise
        (k,) factors of squared deviations in the variance of the candidate's minus the test's
        estimate; infinite for a group without rows.
    """

    sign: int
    places: NDArray[np.intp]
    noise: Array
    predictor: BoundPredictor

    def at(
        self, moments: Array, factor: float, margin: float, *, sloped: bool
    ) -> tuple[float, Array]:
        """Return the limit at means and deviations (Q, 2), and its slopes (Q, 2) if `sloped`.

        Its distance from the point estimate is multiplied by the factor and increased by `margin`
        standard errors.
        """
        means, deviations = moments[self.places].T
        bound = self.predictor(means, deviations, sloped=sloped)
        coefficients = self.predictor.coefficients
        point = float(coefficients @ means)
        value = point + factor * (bound.value - point) if factor else point
        slopes = np.zeros_like(moments)
        slopes[self.places, 0] = coefficients * (1 - factor) + factor * bound.by_mean
        slopes[self.places, 1] = factor * bound.by_deviation
        if margin:
            known = np.isfinite(self.noise).all()
            error = math.sqrt(self.noise @ deviations**2) if known else math.inf
            value += margin * error
            if 0 < error < math.inf:
                slopes[self.places, 1] += margin / error * self.noise * deviations
        return self.sign * value, self.sign * slopes


@dataclass(frozen=True)
class PredictedGoal:
    """A goal with the terms of its limits, and its trees split into smooth parts.

    Attributes
    ----------
    terms
        For each quantity, its confidence bound, and the indices of its groups with coefficients.
    nodes
        The parts of maxima: the index of the goal's tree that each belongs to, and its expression.
        The upper end of a tree is the largest upper end of its parts.
    """

    plan: GoalTestPlan
    terms: tuple[tuple[Bound, tuple[tuple[int, float], ...]], ...]
    nodes: tuple[tuple[int, Expression], ...]

    @cached_property
    def functions(self) -> Sequence[tuple[int, RateFunction]]:
        return [(tree, self.plan.function(node)) for tree, node in self.nodes]

    def with_parts(self, limits: Array) -> PredictedGoal:
        """Split trees that are maxima into their parts if those have the same upper end."""
        nodes = list[tuple[int, Expression]]()
        whole, _ = self.plan.upper(limits)
        for tree, (node, end) in enumerate(zip(self.plan.trees, whole, strict=True)):
            parts, same = pieces(node), False
            with suppress(KeyError):  # of a part whose affine terms are not bounded as such
                functions = [(tree, self.plan.function(part)) for part in parts]
                ends, _ = self.plan.upper(limits, functions)
                same = bool(np.isclose(ends.max(), end, rtol=1e-9, atol=1e-12))
            nodes += [(tree, part) for part in (parts if same else (node,))]
        return replace(self, nodes=tuple(nodes))


@dataclass(frozen=True)
class TestPrediction:
    """The test of all goals, predicted from n candidate rows.

    Attributes
    ----------
    groups
        The Q distinct means that limits are made of.
    goals
        The goals of the trees, in the order of `owners`.
    rows
        Number of rows of the test.
    test_share
        Expected number of test rows for each candidate row.
    factor, margin
        How predicted limits are inflated: see `PredictedLimit.at` and `calibrate_inflation`.
    times
        How many times all rows, candidate and test alike, are assumed to be there.
    needed
        The largest end at which a tree passes; it is subtracted from the ends.
    """

    groups: tuple[MeanEstimate, ...]
    goals: tuple[PredictedGoal, ...]
    rows: int
    test_share: float
    factor: float = 1.0
    margin: float = 0.0
    times: float = 1.0
    needed: float = 0.0

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """(P,) name of the goal of each tree."""
        return tuple(goal.plan.goal.name for goal in self.goals for _ in goal.nodes)

    @cached_property
    def _limits(self) -> list[list[PredictedLimit]]:
        """The limits of each goal as functions of moments."""
        return [
            [self._limit(bound, *goal.terms[bound.quantity]) for bound in goal.plan.bounds]
            for goal in self.goals
        ]

    def _limit(
        self, side: OneSidedBound, bound: Bound, terms: Sequence[tuple[int, float]]
    ) -> PredictedLimit:
        parts, noise = list[SampleMoments](), list[float]()
        for q, coefficient in terms:
            group, signed = self.groups[q], side.sign * coefficient
            expected = round(self.test_share * self.times * group.count)
            parts.append(SampleMoments(signed, 0.0, 0.0, expected, group.rows.range))
            spread = 1 / (self.times * group.count) + 1 / expected if expected else np.inf
            noise.append(signed**2 * spread)
        places = np.array([q for q, _ in terms], dtype=np.intp)
        predictor = BoundPredictor(bound, parts, side.delta)
        return PredictedLimit(side.sign, places, np.array(noise), predictor)

    def with_parts(self, outputs: Measurements) -> TestPrediction:
        """Split trees into smooth parts: see `PredictedGoal`."""
        known = self._at(outputs, sloped=False)
        pairs = zip(self.goals, known, strict=True)
        return replace(self, goals=tuple(goal.with_parts(values) for goal, (values, _) in pairs))

    def _at(self, outputs: Measurements, *, sloped: bool) -> list[tuple[Array, Array]]:
        """Return for each goal its limits (B,), and their slopes (B, 2 Q) in means and deviations.

        Those of a group are next to each other.
        """
        found = [group.moments(group.rows.values(outputs)) for group in self.groups]
        moments, goals = np.reshape(found, (-1, 2)), []
        for limits in self._limits:
            each = [limit.at(moments, self.factor, self.margin, sloped=sloped) for limit in limits]
            slopes = np.reshape([slopes for _, slopes in each], (len(limits), moments.size))
            goals.append((np.array([value for value, _ in each]), slopes))
        return goals

    def upper(self, outputs: Measurements) -> Array:
        """Return the upper ends (P,) of all trees, infinite where there is no bound."""
        found = [np.zeros(0)]
        for goal, (limits, _) in zip(self.goals, self._at(outputs, sloped=False), strict=True):
            found.append(goal.plan.upper(limits, goal.functions)[0])
        ends = np.concatenate(found) - self.needed
        return np.where(np.isnan(ends), np.inf, ends)

    def slopes(self, outputs: SmoothOutputs) -> Array:
        """Return the slopes (P, D) of the upper ends in the weights."""
        inner = [group.slopes(outputs) for group in self.groups]
        width = inner[0].shape[1] if inner else 0
        found = [np.zeros((0, width))]
        for goal, (limits, by_moment) in zip(
            self.goals, self._at(outputs, sloped=True), strict=True
        ):
            _, by_limit = goal.plan.upper(limits, goal.functions)
            with np.errstate(invalid="ignore", over="ignore"):
                slopes = np.nan_to_num(by_limit @ by_moment, posinf=0, neginf=0)
            found.append(slopes @ np.reshape(inner, (-1, width)))
        return np.concatenate(found)


def predict_safety_test(
    problem: Problem,
    safety: SafetyTestSpec,
    outputs: Measurements,
    inflation: float | Mapping[str, float] | None = 1.0,
    design: Design | None = None,
) -> TestPrediction:
    """Predict the test of a problem's constraints, with bounds that suit the outputs.

    `inflation` is the option of `Seldonian`, and `design` has the features of the rows.

    Raises
    ------
    FaultError
        E308 and E411, as `plan_goal_test` and `independent_parts` do.
    """
    design = design or DesignMatrix(problem.X, "unregularized")
    share = safety.rows / max(problem.X.shape[0], 1)
    groups, numbers = list[MeanEstimate](), dict[object, int]()

    def group_number(rows: FormRows) -> int:
        """Return the index of a group, each distinct one once."""
        arrays = (rows.rows, rows.slope, rows.offset)
        key = (rows.of, *(array.tobytes() for array in arrays))
        if key not in numbers:
            numbers[key] = len(groups)
            groups.append(MeanEstimate(rows, design.some(rows.rows)))
        return numbers[key]

    def terms(parts: Sequence[FormRows]) -> tuple[tuple[int, float], ...]:
        return tuple((group_number(rows), rows.coefficient) for rows in parts)

    goals = []
    for goal in problem.constraints:
        plan = plan_goal_test(goal, safety, problem.rates)
        quantities = plan.parts(problem.rates, problem.label_ends)
        samples = [[rows.measured(outputs) for rows in parts] for parts in quantities]
        bounds = plan.choose_bounds(safety.bound, samples)
        own = tuple(zip(bounds, map(terms, quantities), strict=True))
        goals.append(PredictedGoal(plan, own, tuple(enumerate(plan.trees))))
    plain = TestPrediction(tuple(groups), tuple(goals), safety.rows, share).with_parts(outputs)
    if isinstance(inflation, float | int):
        return replace(plain, factor=float(inflation))
    wanted = DEFAULT_PASS_PROBABILITY if inflation is None else inflation[PASS_KEY]
    count = sum(len(goal.plan.bounds) for goal in goals)
    return replace(plain, margin=calibrate_inflation(wanted, count))
