"""Every threshold on the scores of rows: what is decided, and what is expected of its safety test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.rates.expression import Expression
from ratecli.rates.matrix import RateMatrix
from ratecli.rates.sample import Mask
from ratecli.rates.tangent import values
from ratecli.solvers.seldonian.prediction import MeanEstimate, TestPrediction

BOUND_ROUNDING = 1e-9
"""How far above 0 a goal's own value may seem to be where its predicted end is at most 0."""
BOUND_KNOTS = 32
"""Thresholds at which ends are found before others are left out."""
INTERPOLATION_SAFETY = 0.95
"""Part of the interpolated distance of an end from its estimate that is relied on."""
IndexArray = NDArray[np.intp]


@dataclass(frozen=True)
class ThresholdCandidates:
    """The T thresholds on scores (n,) that decide differently, from no yes at all to nothing but yes.

    Attributes
    ----------
    objective
        Of rates of decisions; the least one is wanted.
    prediction
        Of the test of decisions.
    """

    scores: Array
    rates: RateMatrix
    objective: Expression
    prediction: TestPrediction

    @cached_property
    def order(self) -> IndexArray:
        """(n,) rows by falling scores."""
        return np.argsort(-self.scores, kind="stable")

    @cached_property
    def counts(self) -> IndexArray:
        """(T,) how many rows get a yes at each threshold."""
        ranked = self.scores[self.order]
        inner = np.flatnonzero(np.diff(ranked)) + 1
        return np.concatenate([[0], inner, [len(ranked)]])

    def thresholds(self) -> Array:
        """(T,) halfway between scores; beyond them at the ends."""
        ranked = self.scores[self.order]
        inner = self.counts[1:-1]
        middle = (ranked[inner - 1] + ranked[inner]) / 2
        # rounding may put the middle on the higher score, which must stay above it
        middle = np.where(middle < ranked[inner - 1], middle, ranked[inner])
        return np.concatenate([[ranked[0]], middle, [ranked[-1] - 1.0]])

    def _sums(self, weights: Array) -> Array:
        """(T,) sums of weights (n,) over the rows with a yes."""
        total = np.append(0.0, np.cumsum(weights[self.order]))
        return np.asarray(total[self.counts])

    @cached_property
    def all_rates(self) -> Array:
        """(K, T) rates of decisions."""
        sums = np.array([self._sums(row) for row in self.rates.sums.toarray()])
        found = (sums + self.rates.constants[:, None]) / np.where(
            self.rates.totals > 0, self.rates.totals, np.nan
        )[:, None]
        return np.asarray(np.clip(found, 0.0, 1.0))

    def values(self) -> Array:
        """(T,) of the objective; infinite where it has no value."""
        found = values(self.objective, self.all_rates, self.rates.index())
        return np.asarray(np.nan_to_num(found, nan=np.inf))

    @cached_property
    def estimates(self) -> Array:
        """(P, T) what the trees are at the estimates themselves: ends are not below."""
        index = self.rates.index()
        trees = [node for goal in self.prediction.goals for _, node in goal.nodes]
        found = [values(tree, self.all_rates, index) for tree in trees]
        return np.nan_to_num(np.reshape(found, (len(trees), -1)), nan=np.inf)

    def broken(self) -> Array:
        """(T,) by how much the worst tree is above 0 at the estimates."""
        return np.asarray(self.estimates.max(axis=0, initial=-np.inf))

    @cached_property
    def moments(self) -> Array:
        """(T, Q, 2) means and deviations of the groups."""
        return np.array([self._moments(group) for group in self.prediction.groups]).transpose(
            2, 0, 1
        )

    def _moments(self, group: MeanEstimate) -> Array:
        """(2, T)."""
        rows, count = group.rows, group.count
        linear, square = np.zeros((2, len(self.scores)))
        linear[rows.rows] = rows.slope
        square[rows.rows] = rows.slope * (rows.slope + 2 * rows.offset)
        mean = (self._sums(linear) + rows.offset.sum()) / max(count, 1)
        power = (self._sums(square) + (rows.offset**2).sum()) / max(count, 1)
        variance = np.maximum(power - mean**2, 0.0) * count / max(count - 1, 1)
        variance[variance < np.finfo(float).eps * power * count] = 0.0
        short = np.nan if count < 2 else 0.0
        return np.stack([mean if count else mean + np.nan, np.sqrt(variance) + short])

    def ends(self, cut: int) -> Array:
        """(P,) the ends that are expected at one threshold."""
        return self.prediction.of_moments(self.moments[cut])[0]

    def worst(self, cut: int) -> float:
        """The largest of them."""
        return float(self.ends(cut).max(initial=-np.inf))

    def best(self, below: float) -> int | None:
        """The threshold of the least objective, if that is less than `below`, that is expected to pass.

        Left out are thresholds at which a goal is broken by the estimates themselves, and those where
        an end lies far above 0 as it is interpolated between some thresholds (all, where there are few):
        how far ends are above estimates changes little from one threshold to the next. The others are
        tried from the best on.
        """
        found = self.values()
        likely = np.flatnonzero((self.broken() <= BOUND_ROUNDING) & (found < below))
        if len(likely) > BOUND_KNOTS:
            likely = likely[self._hopeful(likely)]
        for cut in likely[np.argsort(found[likely], kind="stable")].tolist():
            if self.worst(cut) <= 0:
                return int(cut)
        return None

    def _hopeful(self, some: IndexArray) -> Mask:
        """(len(some),) which of some thresholds, in ascending order, are to be tried."""
        steps = np.sin(
            np.linspace(-np.pi / 2, np.pi / 2, BOUND_KNOTS)
        )  # counts are rare at the ends
        knots = np.unique(some[np.round((steps + 1) / 2 * (len(some) - 1)).astype(int)])
        above = np.array([self.ends(cut) for cut in knots.tolist()]).T - self.estimates[:, knots]
        hopeful = np.ones(len(some), dtype=bool)
        for own, estimates in zip(above, self.estimates[:, some], strict=True):
            room = np.interp(some, knots, np.nan_to_num(own, nan=0.0, posinf=0.0))
            hopeful &= estimates + INTERPOLATION_SAFETY * room <= BOUND_ROUNDING
        return hopeful

    def nearest(self, tries: int) -> tuple[int, float]:
        """The threshold of the least largest end among the `tries` that look best, and that end."""
        return min(((k, self.worst(k)) for k in self._promising(tries)), key=lambda each: each[1])

    def any_passes(self, tries: int, prediction: TestPrediction) -> bool:
        """Whether one of those is expected to pass a test of more rows."""
        found = (prediction.of_moments(self.moments[k])[0] for k in self._promising(tries))
        return any(float(upper.max(initial=-np.inf)) <= 0 for upper in found)

    def _promising(self, tries: int) -> list[int]:
        """The thresholds at which goals are broken least, and as many all over."""
        spread = np.linspace(0, len(self.counts) - 1, tries).astype(int)
        least = np.argsort(self.broken(), kind="stable")[:tries]
        return list(dict.fromkeys([*least.tolist(), *spread.tolist()]))
