"""Prediction of the safety test's bounds from a candidate's measurements on its own rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ratecli.certify.bound import BoundPredictor, SampleMoments, WeightedSample
from ratecli.certify.bounds import Bound, choose_bound
from ratecli.certify.forms import FormRows, independent_parts
from ratecli.certify.safety_test import SafetyTestSpec
from ratecli.certify.trees import GoalTestPlan, OneSidedBound, plan_goal_test
from ratecli.models.base import Array
from ratecli.rates.analysis import pieces
from ratecli.rates.enclosure import InclusionFunction
from ratecli.rates.expression import Expression
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.design import DesignMatrix
from ratecli.solvers.seldonian.inflation import BoundInflation
from ratecli.solvers.seldonian.measures import Measurements


@dataclass(frozen=True)
class MeanEstimate:
    """One mean that bounds are made of: measurements of some candidate rows, and their features."""

    rows: FormRows
    design: DesignMatrix
    expected: int
    """Expected number of such rows in the test."""
    spread: float
    """Variance of the difference of the means on these and on test rows, for unit variance of a
    row.
    """

    @classmethod
    def of(
        cls, rows: FormRows, design: DesignMatrix, share: float, times: float = 1.0
    ) -> MeanEstimate:
        """Return the estimate for `share` test rows per row, with all rows taken `times` times."""
        count = times * len(rows.rows)
        expected = round(share * count)
        spread = 1 / count + 1 / expected if expected else np.inf
        return cls(rows, design, expected, spread)

    @property
    def count(self) -> int:
        return len(self.rows.rows)

    def measured(self, said: Measurements) -> Array:
        """Return the measurements (n_g,)."""
        own = said.measured(self.rows.of)[self.rows.rows]
        return self.rows.slope * own + self.rows.offset

    def moments(self, values: Array) -> tuple[float, float]:
        """Return mean and deviation of measurements; NaN if there are too few rows for them."""
        if not self.count:
            return np.nan, np.nan
        mean = float(values.mean())
        if self.count == 1:
            return mean, np.nan
        apart = values - mean
        return mean, float(np.sqrt(apart @ apart / (self.count - 1)))

    def slopes(self, said: Measurements, values: Array) -> Array:
        """Return slopes (2, D) of mean and deviation in the weights; 0 where the deviation is 0."""
        mean, deviation = self.moments(values)
        if not self.count:
            return np.zeros((2, self.design.width))
        own = self.rows.slope * said.slopes(self.rows.of)[self.rows.rows]
        apart = np.zeros_like(own)
        if deviation > 0:
            apart = (values - mean) * own / ((self.count - 1) * deviation)
        return self.design.pull(np.stack([own / self.count, apart]).T).T


@dataclass(frozen=True)
class ConfidenceLimit:
    """A one-sided confidence limit that a goal's tree needs, and the groups it is computed from."""

    asked: OneSidedBound
    bound: Bound
    groups: tuple[tuple[int, float], ...]
    """Indices of groups and their coefficients."""

    def side(self, groups: Sequence[MeanEstimate], inflation: BoundInflation) -> PredictedLimit:
        """Return the limit as a function of the moments of the groups."""
        own, turned = [groups[q] for q, _ in self.groups], self.asked.sign
        parts = [
            SampleMoments(turned * c, 0.0, 0.0, group.expected, group.rows.range)
            for group, (_, c) in zip(own, self.groups, strict=True)
        ]
        return PredictedLimit(
            turned,
            np.array([q for q, _ in self.groups], dtype=np.intp),
            np.array([part.coefficient for part in parts]),
            np.array([c**2 * group.spread for group, (_, c) in zip(own, self.groups, strict=True)]),
            self.bound.forecast(parts, self.asked.delta),
            inflation,
        )


@dataclass(frozen=True)
class PredictedLimit:
    """An upper (sign 1) or lower (-1) limit as a function of the moments of k of the groups."""

    sign: int
    places: NDArray[np.intp]
    coefficients: Array
    noise: Array
    """(k,) factors of squared deviations in the variance of the candidate's minus the test's
    estimate.
    """
    forecast: BoundPredictor
    inflation: BoundInflation

    def at(self, moments: Array) -> tuple[float, Array]:
        """Return the limit at means and deviations (Q, 2), and its slopes (Q, 2) in them."""
        means, deviations = moments[self.places].T
        factor, found = self.inflation.factor, self.forecast(means, deviations)
        point = float(self.coefficients @ means)
        value = point + factor * (found.value - point) if factor else point
        by_mean = self.coefficients * (1 - factor) + factor * found.by_mean
        by_deviation = factor * found.by_deviation
        if self.inflation.deviates:
            error = math.sqrt(self.noise @ deviations**2) if self._has_rows else math.inf
            value += self.inflation.deviates * error
            if 0 < error < math.inf:
                scale = self.inflation.deviates / error
                by_deviation = by_deviation + scale * self.noise * deviations
        slopes = np.zeros_like(moments)
        slopes[self.places, 0], slopes[self.places, 1] = by_mean, by_deviation
        return self.sign * value, self.sign * slopes

    @cached_property
    def _has_rows(self) -> bool:
        """Whether every group has rows, here and in the test."""
        return bool(np.isfinite(self.noise).all())


@dataclass(frozen=True)
class PredictedGoal:
    """A goal with the limits that it needs, and its trees split into smooth parts.

    Attributes
    ----------
    limits
        One for each bound that is needed.
    nodes
        The parts of maxima: the index of the goal's tree that each belongs to, and its expression.
        The upper end of a tree is the largest upper end of its parts.
    """

    tested: GoalTestPlan
    limits: tuple[ConfidenceLimit, ...]
    nodes: tuple[tuple[int, Expression], ...]

    @property
    def name(self) -> str:
        return self.tested.goal.name

    @cached_property
    def _inclusions(self) -> Sequence[InclusionFunction]:
        return [self.tested.inclusion(node, tree) for tree, node in self.nodes]

    def upper(self, limits: Array) -> tuple[Array, Array]:
        """Return upper ends (P,) of the parts, and their slopes (P, B) in the limits."""
        found = [inclusion(limits) for inclusion in self._inclusions]
        slopes = np.array([each.high_slopes for each in found])
        return np.array([each.high for each in found]), slopes.reshape(len(found), -1)

    def taken_apart(self, limits: Array) -> PredictedGoal:
        """Split trees that are maxima into their parts if those have the same upper end."""
        nodes = list[tuple[int, Expression]]()
        whole, _ = self.tested.upper(limits)
        for tree, (node, end) in enumerate(zip(self.tested.trees, whole, strict=True)):
            parts = pieces(node)
            ends = [self.tested.inclusion(part, tree)(limits).high for part in parts]
            same = np.isclose(max(ends), end, rtol=1e-9, atol=1e-12)
            nodes += [(tree, part) for part in (parts if same else (node,))]
        return replace(self, nodes=tuple(nodes))


@dataclass(frozen=True)
class PredictedTestResult:
    """The predicted test of one candidate: (P,) upper ends of all trees, +inf if there is none."""

    upper: Array
    said: Measurements
    values: tuple[Array, ...]
    slopes: Array
    """(P, Q, 2) slopes of the ends in means and deviations."""

    @property
    def worst(self) -> float:
        return float(self.upper.max(initial=-np.inf))


@dataclass(frozen=True)
class TestPrediction:
    """The test of all goals, predicted from n candidate rows.

    Attributes
    ----------
    groups
        The Q distinct means that limits are made of.
    goals
        The goals of the trees, in the order of `owners`.
    rows, share
        Number of rows of the test, and its ratio to the number of candidate rows.
    needed
        The largest end at which a tree passes; it is subtracted from the ends.
    """

    groups: tuple[MeanEstimate, ...]
    goals: tuple[PredictedGoal, ...]
    rows: int
    share: float
    inflation: BoundInflation = field(default_factory=BoundInflation)
    needed: float = 0.0

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """(P,) name of the goal of each tree."""
        return tuple(goal.name for goal in self.goals for _ in goal.nodes)

    @cached_property
    def sides(self) -> tuple[tuple[PredictedLimit, ...], ...]:
        """The limits of each goal as functions of moments."""
        return tuple(
            tuple(limit.side(self.groups, self.inflation) for limit in goal.limits)
            for goal in self.goals
        )

    @property
    def asked(self) -> int:
        """Total number of bounds."""
        return sum(len(goal.limits) for goal in self.goals)

    def scaled(self, times: float) -> TestPrediction:
        """Return the prediction for `times` as many candidate and safety rows."""
        groups = tuple(MeanEstimate.of(g.rows, g.design, self.share, times) for g in self.groups)
        return replace(self, groups=groups)

    def inflated(self, inflation: BoundInflation) -> TestPrediction:
        return replace(self, inflation=inflation)

    def taken_apart(self, said: Measurements) -> TestPrediction:
        """Split trees into smooth parts: see `PredictedGoal`."""
        moments = self.moments(tuple(group.measured(said) for group in self.groups))
        goals = [
            goal.taken_apart(np.array([side.at(moments)[0] for side in sides]))
            for goal, sides in zip(self.goals, self.sides, strict=True)
        ]
        return replace(self, goals=tuple(goals))

    def moments(self, values: Sequence[Array]) -> Array:
        """Return means and deviations (Q, 2) of the measurements in each group."""
        found = [group.moments(own) for group, own in zip(self.groups, values, strict=True)]
        return np.array(found).reshape(-1, 2)

    def at(self, said: Measurements) -> PredictedTestResult:
        values = tuple(group.measured(said) for group in self.groups)
        upper, slopes = self.of_moments(self.moments(values))
        return PredictedTestResult(upper, said, values, slopes)

    def of_moments(self, moments: Array) -> tuple[Array, Array]:
        """Return upper ends (P,) of the trees at moments (Q, 2), and their slopes (P, Q, 2)."""
        upper, slopes = [np.zeros(0)], [np.zeros((0, *moments.shape))]
        for goal, sides in zip(self.goals, self.sides, strict=True):
            found = [side.at(moments) for side in sides]
            ends, by = goal.upper(np.array([value for value, _ in found]))
            inner = np.array([each for _, each in found]).reshape(len(sides), moments.size)
            upper.append(np.where(np.isnan(ends), np.inf, ends - self.needed))
            with np.errstate(invalid="ignore", over="ignore"):
                slopes.append((by @ inner).reshape(-1, *moments.shape))
        whole = np.concatenate(slopes)
        if not np.isfinite(whole).all():
            whole = np.nan_to_num(whole, posinf=0, neginf=0)
        return np.concatenate(upper), whole

    def slopes(self, expected: PredictedTestResult) -> Array:
        """Return the slopes (P, D) of the upper ends in the weights."""
        pairs = zip(self.groups, expected.values, strict=True)
        inner = [group.slopes(expected.said, values) for group, values in pairs]
        width = inner[0].shape[1] if inner else 0
        flat = expected.slopes.reshape(len(expected.upper), -1)
        return np.asarray(flat @ np.reshape(inner, (-1, width)))


def predict_safety_test(
    problem: Problem, promise: SafetyTestSpec, said: Measurements
) -> TestPrediction:
    """Predict the test of a problem's constraints, with bounds that suit the measurements.

    Raises
    ------
    FaultError
        E308 and E411, as `plan_goal_test` and `independent_parts` do.
    """
    share = promise.rows / max(problem.X.shape[0], 1)
    made = _MeanRegistry(DesignMatrix(problem.X), share)
    goals = []
    for goal in problem.constraints:
        found = plan_goal_test(goal, promise, problem.rates)
        limits = []
        for asked in found.asked:
            parts = independent_parts(
                found.quantities[asked.quantity], problem.rates, problem.label_ends
            )
            assert parts is not None, "a quantity is what has a joint bound"
            bound = choose_bound(promise.bound, [_sample_part(rows, said) for rows in parts])
            groups = tuple((made.number(rows), rows.coefficient) for rows in parts)
            limits.append(ConfidenceLimit(asked, bound, groups))
        goals.append(PredictedGoal(found, tuple(limits), tuple(enumerate(found.trees))))
    whole = TestPrediction(tuple(made.groups), tuple(goals), promise.rows, share)
    return whole.taken_apart(said)


def _sample_part(rows: FormRows, said: Measurements) -> WeightedSample:
    return rows.measured({rows.of: said.measured(rows.of)})


@dataclass
class _MeanRegistry:
    """Collects distinct groups."""

    design: DesignMatrix
    share: float
    groups: list[MeanEstimate] = field(default_factory=list)
    _known: dict[Hashable, int] = field(default_factory=dict)
    _designs: dict[bytes, DesignMatrix] = field(default_factory=dict)

    def number(self, rows: FormRows) -> int:
        places = rows.rows.tobytes()
        key = (places, rows.of, rows.slope.tobytes(), rows.offset.tobytes())
        if key not in self._known:
            if places not in self._designs:
                self._designs[places] = self.design.rows(rows.rows)
            self._known[key] = len(self.groups)
            self.groups.append(MeanEstimate.of(rows, self._designs[places], self.share))
        return self._known[key]
