"""The safety test as it is expected to end, from what a candidate does on its own rows."""

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
    """How many rows of the test are like these."""
    spread: float
    """Variance of the difference between a mean on these rows and one on those, per row's variance."""

    @classmethod
    def of(
        cls, rows: FormRows, design: DesignMatrix, share: float, times: float = 1.0
    ) -> MeanEstimate:
        """With `share` times as many rows in the test, all of them `times` over."""
        count = times * len(rows.rows)
        expected = round(share * count)
        spread = 1 / count + 1 / expected if expected else np.inf
        return cls(rows, design, expected, spread)

    @property
    def count(self) -> int:
        return len(self.rows.rows)

    def measured(self, said: Measurements) -> Array:
        """(n_g,)."""
        own = said.measured(self.rows.of)[self.rows.rows]
        return self.rows.slope * own + self.rows.offset

    def moments(self, values: Array) -> tuple[float, float]:
        """Mean and deviation of measurements; NaN for the deviation of one row, and for both of none."""
        if not self.count:
            return np.nan, np.nan
        mean = float(values.mean())
        if self.count == 1:
            return mean, np.nan
        apart = values - mean
        return mean, float(np.sqrt(apart @ apart / (self.count - 1)))

    def slopes(self, said: Measurements, values: Array) -> Array:
        """(2, D) of mean and deviation in the weights; 0 where the deviation has a corner."""
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
    """One confidence limit that a goal's tree asks for: of which groups, to which side."""

    asked: OneSidedBound
    bound: Bound
    groups: tuple[tuple[int, float], ...]
    """Numbers of groups and their coefficients."""

    def side(self, groups: Sequence[MeanEstimate], inflation: BoundInflation) -> PredictedLimit:
        """What it is at any moments of the groups."""
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
    """A limit, upper (sign 1) or lower (-1), as a function of moments of k of the groups."""

    sign: int
    places: NDArray[np.intp]
    coefficients: Array
    noise: Array
    """(k,) what squared deviations add to the variance of what is seen here less what the test sees."""
    forecast: BoundPredictor
    inflation: BoundInflation

    def at(self, moments: Array) -> tuple[float, Array]:
        """The limit at (Q, 2) means and deviations, and its (Q, 2) slopes in them."""
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
        """Whether there are some of every group, here and in the test."""
        return bool(np.isfinite(self.noise).all())


@dataclass(frozen=True)
class PredictedGoal:
    """A goal with the limits that it asks for, its trees taken apart into smooth ones.

    Attributes
    ----------
    limits
        One for each bound that is asked for.
    nodes
        Parts of a maximum: which of the goal's trees each is of, and its expression. The upper end of
        a tree is the largest of those of its parts.
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
        """(P,) upper ends of the parts, and their slopes in the limits (P, B)."""
        found = [inclusion(limits) for inclusion in self._inclusions]
        slopes = np.array([each.high_slopes for each in found])
        return np.array([each.high for each in found]), slopes.reshape(len(found), -1)

    def taken_apart(self, limits: Array) -> PredictedGoal:
        """With trees as the parts of a maximum that they are, where those have the same ends."""
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
    """What is expected at one candidate: (P,) upper ends of all trees, +inf for what has none."""

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
        The Q means that limits are made of, each once.
    goals
        Of the trees, in the order of `owners`.
    rows, share
        How many rows the test has, and that over the number of candidate rows.
    needed
        The end at which a tree passes; ends are given less that.
    """

    groups: tuple[MeanEstimate, ...]
    goals: tuple[PredictedGoal, ...]
    rows: int
    share: float
    inflation: BoundInflation = field(default_factory=BoundInflation)
    needed: float = 0.0

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """(P,) the goal of each tree."""
        return tuple(goal.name for goal in self.goals for _ in goal.nodes)

    @cached_property
    def sides(self) -> tuple[tuple[PredictedLimit, ...], ...]:
        """Of each goal, what its limits are at any moments."""
        return tuple(
            tuple(limit.side(self.groups, self.inflation) for limit in goal.limits)
            for goal in self.goals
        )

    @property
    def asked(self) -> int:
        """How many bounds there are in all."""
        return sum(len(goal.limits) for goal in self.goals)

    def scaled(self, times: float) -> TestPrediction:
        """With so many times the candidate and safety rows."""
        groups = tuple(MeanEstimate.of(g.rows, g.design, self.share, times) for g in self.groups)
        return replace(self, groups=groups)

    def inflated(self, inflation: BoundInflation) -> TestPrediction:
        return replace(self, inflation=inflation)

    def taken_apart(self, said: Measurements) -> TestPrediction:
        """With smooth trees: see `PredictedGoal`."""
        moments = self.moments(tuple(group.measured(said) for group in self.groups))
        goals = [
            goal.taken_apart(np.array([side.at(moments)[0] for side in sides]))
            for goal, sides in zip(self.goals, self.sides, strict=True)
        ]
        return replace(self, goals=tuple(goals))

    def moments(self, values: Sequence[Array]) -> Array:
        """(Q, 2) means and deviations of what was measured in each group."""
        found = [group.moments(own) for group, own in zip(self.groups, values, strict=True)]
        return np.array(found).reshape(-1, 2)

    def at(self, said: Measurements) -> PredictedTestResult:
        values = tuple(group.measured(said) for group in self.groups)
        upper, slopes = self.of_moments(self.moments(values))
        return PredictedTestResult(upper, said, values, slopes)

    def of_moments(self, moments: Array) -> tuple[Array, Array]:
        """(P,) upper ends of the trees at (Q, 2) moments, and their (P, Q, 2) slopes in those."""
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
        """(P, D) of the upper ends in the weights."""
        pairs = zip(self.groups, expected.values, strict=True)
        inner = [group.slopes(expected.said, values) for group, values in pairs]
        width = inner[0].shape[1] if inner else 0
        flat = expected.slopes.reshape(len(expected.upper), -1)
        return np.asarray(flat @ np.reshape(inner, (-1, width)))


def predict_safety_test(
    problem: Problem, promise: SafetyTestSpec, said: Measurements
) -> TestPrediction:
    """The test of a problem's constraints, with bounds that suit what is said of the rows.

    Raises
    ------
    FaultError
        What `safety.tested` and `safety.forms` raise.
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
    """Groups as they are met, each once."""

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
