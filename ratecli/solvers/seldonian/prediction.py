"""Prediction of the safety test's bounds from a candidate's outputs on its own rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ratecli.certify.base import Bound, BoundPredictor, SampleMoments
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
        if not self.count:
            return np.nan, np.nan
        mean = float(values.mean())
        if self.count == 1:
            return mean, np.nan
        apart = values - mean
        return mean, float(np.sqrt(apart @ apart / (self.count - 1)))

    def slopes(self, outputs: SmoothOutputs, values: Array) -> Array:
        """Return slopes (2, D) of mean and deviation in the weights; 0 where the deviation is 0."""
        mean, deviation = self.moments(values)
        if not self.count:
            return np.zeros((2, self.design.width))
        by = np.stack([self.rows.slope / self.count, np.zeros(self.count)], axis=1)
        if deviation > 0:
            by[:, 1] = (values - mean) * self.rows.slope / ((self.count - 1) * deviation)
        return self.design.pull(outputs.slopes(self.rows.of, by, self.rows.rows)).T


@dataclass(frozen=True)
class BoundInflation:
    """How a predicted bound is inflated: see `calibrate_inflation`.

    Attributes
    ----------
    factor
        Multiplies the distance of the predicted bound from the point estimate.
    deviates
        Number of standard errors to add: of the difference between the estimates of the same means
        on candidate and on safety rows.
    """

    factor: float = 1.0
    deviates: float = 0.0


def calibrate_inflation(wanted: float, bounds: int) -> BoundInflation:
    """Return the margin with which the real test is passed with a probability of at least `wanted`.

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
    return BoundInflation(1.0, NormalDist().inv_cdf(1 - (1 - wanted) / max(bounds, 1)))


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
    inflation: BoundInflation

    def at(self, moments: Array, *, sloped: bool) -> tuple[float, Array]:
        """Return the limit at means and deviations (Q, 2), and its slopes (Q, 2) if `sloped`."""
        means, deviations = moments[self.places].T
        factor, margin = self.inflation.factor, self.inflation.deviates
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
    def _functions(self) -> Sequence[tuple[int, RateFunction]]:
        return [(tree, self.plan.function(node)) for tree, node in self.nodes]

    def upper(self, limits: Array) -> tuple[Array, Array]:
        """Return upper ends (P,) of the parts, and their slopes (P, B) in the limits."""
        return self.plan.upper(limits, self._functions)

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
    times
        How many times all rows, candidate and test alike, are assumed to be there.
    needed
        The largest end at which a tree passes; it is subtracted from the ends.
    """

    groups: tuple[MeanEstimate, ...]
    goals: tuple[PredictedGoal, ...]
    rows: int
    test_share: float
    times: float = 1.0
    inflation: BoundInflation = field(default_factory=BoundInflation)
    needed: float = 0.0

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """(P,) name of the goal of each tree."""
        return tuple(goal.plan.goal.name for goal in self.goals for _ in goal.nodes)

    @cached_property
    def limits(self) -> list[list[PredictedLimit]]:
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
        return PredictedLimit(side.sign, places, np.array(noise), predictor, self.inflation)

    def with_parts(self, outputs: Measurements) -> TestPrediction:
        """Split trees into smooth parts: see `PredictedGoal`."""
        moments = self._moments(outputs)
        goals = [
            goal.with_parts(np.array([limit.at(moments, sloped=False)[0] for limit in limits]))
            for goal, limits in zip(self.goals, self.limits, strict=True)
        ]
        return replace(self, goals=tuple(goals))

    def _moments(self, outputs: Measurements) -> Array:
        """Return means and deviations (Q, 2) of the measurements in each group."""
        found = [group.moments(group.rows.values(outputs)) for group in self.groups]
        return np.array(found).reshape(-1, 2)

    def upper(self, outputs: Measurements) -> Array:
        """Return the upper ends (P,) of all trees, infinite where there is no bound."""
        return self.of_moments(self._moments(outputs), sloped=False)[0]

    def of_moments(self, moments: Array, *, sloped: bool) -> tuple[Array, Array]:
        """Return upper ends (P,) of the trees at moments (Q, 2), and their slopes (P, Q, 2)."""
        upper, slopes = [np.zeros(0)], [np.zeros((0, *moments.shape))]
        for goal, limits in zip(self.goals, self.limits, strict=True):
            known = [limit.at(moments, sloped=sloped) for limit in limits]
            ends, by_limit = goal.upper(np.array([value for value, _ in known]))
            by_moment = np.array([each for _, each in known]).reshape(len(limits), moments.size)
            upper.append(np.where(np.isnan(ends), np.inf, ends - self.needed))
            with np.errstate(invalid="ignore", over="ignore"):
                slopes.append((by_limit @ by_moment).reshape(-1, *moments.shape))
        return np.concatenate(upper), np.nan_to_num(np.concatenate(slopes), posinf=0, neginf=0)

    def slopes(self, outputs: SmoothOutputs) -> Array:
        """Return the slopes (P, D) of the upper ends in the weights."""
        values = [group.rows.values(outputs) for group in self.groups]
        moments = [group.moments(own) for group, own in zip(self.groups, values, strict=True)]
        inner = [group.slopes(outputs, own) for group, own in zip(self.groups, values, strict=True)]
        upper, slopes = self.of_moments(np.reshape(moments, (-1, 2)), sloped=True)
        width = inner[0].shape[1] if inner else 0
        return np.asarray(slopes.reshape(len(upper), -1) @ np.reshape(inner, (-1, width)))


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
        return replace(plain, inflation=BoundInflation(float(inflation)))
    wanted = DEFAULT_PASS_PROBABILITY if inflation is None else inflation[PASS_KEY]
    count = sum(len(goal.plan.bounds) for goal in goals)
    return replace(plain, inflation=calibrate_inflation(wanted, count))
