"""All thresholds on the scores of rows, with their rates and predicted safety-test bounds."""

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
"""Tolerance for the estimate of a goal whose predicted bound is at most 0."""
BOUND_KNOTS = 32
"""Number of thresholds with computed bounds; others may be ruled out by interpolation."""
INTERPOLATION_SAFETY = 0.95
"""Fraction of the interpolated distance between bound and estimate that is relied on."""
IndexArray = NDArray[np.intp]


@dataclass(frozen=True)
class ThresholdCandidates:
    """The T thresholds on scores (n,) with different decisions, from all negative to all positive.

    Attributes
    ----------
    objective
        To be minimized; a function of rates of decisions.
    prediction
        Predicts the test of the decisions.
    """

    scores: Array
    rates: RateMatrix
    objective: Expression
    prediction: TestPrediction

    @cached_property
    def order(self) -> IndexArray:
        """(n,) rows by decreasing score."""
        return np.argsort(-self.scores, kind="stable")

    @cached_property
    def counts(self) -> IndexArray:
        """(T,) number of positive decisions at each threshold."""
        ranked = self.scores[self.order]
        inner = np.flatnonzero(np.diff(ranked)) + 1
        return np.concatenate([[0], inner, [len(ranked)]])

    def thresholds(self) -> Array:
        """Return the thresholds (T,): midway between scores, and beyond them at the ends."""
        ranked = self.scores[self.order]
        inner = self.counts[1:-1]
        middle = (ranked[inner - 1] + ranked[inner]) / 2
        # rounding may return the higher score itself, which must stay above the threshold
        middle = np.where(middle < ranked[inner - 1], middle, ranked[inner])
        return np.concatenate([[ranked[0]], middle, [ranked[-1] - 1.0]])

    def _sums(self, weights: Array) -> Array:
        """Return the sums (T,) of weights (n,) over the rows with a positive decision."""
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
        """Return the objective (T,); infinite where it is undefined."""
        found = values(self.objective, self.all_rates, self.rates.index())
        return np.asarray(np.nan_to_num(found, nan=np.inf))

    @cached_property
    def estimates(self) -> Array:
        """(P, T) values of the trees at the point estimates: lower limits of their bounds."""
        index = self.rates.index()
        trees = [node for goal in self.prediction.goals for _, node in goal.nodes]
        found = [values(tree, self.all_rates, index) for tree in trees]
        return np.nan_to_num(np.reshape(found, (len(trees), -1)), nan=np.inf)

    def broken(self) -> Array:
        """Return how far the largest tree is above 0 at the point estimates, as (T,)."""
        return np.asarray(self.estimates.max(axis=0, initial=-np.inf))

    @cached_property
    def moments(self) -> Array:
        """(T, Q, 2) means and standard deviations of the groups."""
        return np.array([self._moments(group) for group in self.prediction.groups]).transpose(
            2, 0, 1
        )

    def _moments(self, group: MeanEstimate) -> Array:
        """Return mean and standard deviation of a group at each threshold, as (2, T)."""
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
        """Return the predicted bounds (P,) at one threshold."""
        return self.prediction.of_moments(self.moments[cut])[0]

    def worst(self, cut: int) -> float:
        """Return the largest predicted bound at one threshold."""
        return float(self.ends(cut).max(initial=-np.inf))

    def best(self, below: float) -> int | None:
        """Return the threshold expected to pass with the smallest objective under `below`, or None.

        Skips thresholds whose point estimates already violate a goal. If there are more than
        `BOUND_KNOTS`, it also skips those where a bound interpolated between some thresholds is
        clearly above 0, because the distance between bound and estimate changes little from one
        threshold to the next. The others are tried from the best objective on.
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
        """Return which of some thresholds, in ascending order, are worth trying, as a mask."""
        # thresholds are denser at the ends, where counts are small
        steps = np.sin(np.linspace(-np.pi / 2, np.pi / 2, BOUND_KNOTS))
        knots = np.unique(some[np.round((steps + 1) / 2 * (len(some) - 1)).astype(int)])
        above = np.array([self.ends(cut) for cut in knots.tolist()]).T - self.estimates[:, knots]
        hopeful = np.ones(len(some), dtype=bool)
        for own, estimates in zip(above, self.estimates[:, some], strict=True):
            room = np.interp(some, knots, np.nan_to_num(own, nan=0.0, posinf=0.0))
            hopeful &= estimates + INTERPOLATION_SAFETY * room <= BOUND_ROUNDING
        return hopeful

    def nearest(self, tries: int) -> tuple[int, float]:
        """Return the promising threshold whose worst bound is smallest, and that bound."""
        return min(((k, self.worst(k)) for k in self._promising(tries)), key=lambda each: each[1])

    def any_passes(self, tries: int, prediction: TestPrediction) -> bool:
        """Return whether any promising threshold is expected to pass under another prediction."""
        found = (prediction.of_moments(self.moments[k])[0] for k in self._promising(tries))
        return any(float(upper.max(initial=-np.inf)) <= 0 for upper in found)

    def _promising(self, tries: int) -> list[int]:
        """Return the thresholds with the smallest violations, and as many spread evenly."""
        spread = np.linspace(0, len(self.counts) - 1, tries).astype(int)
        least = np.argsort(self.broken(), kind="stable")[:tries]
        return list(dict.fromkeys([*least.tolist(), *spread.tolist()]))
