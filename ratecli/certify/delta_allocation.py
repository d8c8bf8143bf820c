"""The delta of a constraint, divided over its bounds as suits a candidate best."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import minimize

from ratecli.certify.prediction import ExpectedOutcome
from ratecli.models.base import Array
from ratecli.rates.enclosure import Enclosure, InclusionFunction

MIN_DELTA_SHARE = 0.1
"""Least share of a bound, in equal shares: what is expected may turn out otherwise."""
INTERPOLATION_KNOTS = 25
"""Shares at which limits are found; between them they are interpolated."""
SIMPLEX_STEPS = 15
"""Steps of the simplex for each share."""
SIMPLEX_SPAN = 0.1
"""By how much the simplex changes the logarithm of a share at first."""
INFINITE_END = 1e12


def optimize_delta_shares(expected: ExpectedOutcome) -> tuple[float, ...]:
    """(B,) shares of the delta for which the upper end of each tree is expected to be least.

    They depend on what is expected alone, which must not come from the rows that are tested: then
    limits hold as they do for any other deltas fixed beforehand. Shares of one tree add up to 1, and
    lead to no larger end than equal ones, which they are where some limit is infinite.

    The least end is sought by L-BFGS from equal shares, and then by a simplex (Nelder and Mead): ends
    have kinks where the arguments of a maximum change places, and there a gradient stops too early.

    Parameters
    ----------
    expected
        With the delta divided equally.
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
    """Shares (b,) of the bounds of one tree, those at `own` among all B."""

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
        """The end at the shares that x (b - 1,) gives, and its slopes, of interpolated limits."""
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
        """Any x (b - 1,) gives shares of at least the floor."""
        floor = MIN_DELTA_SHARE / len(self.own)
        weights = np.exp(np.append(x, 0.0) - max(x.max(), 0.0))
        return np.asarray(floor + (1 - MIN_DELTA_SHARE) * weights / weights.sum())

    @cached_property
    def _curves(self) -> list[PchipInterpolator]:
        """Limits in the logarithms of shares: monotone, as they are."""
        return [PchipInterpolator(np.log(self._knots), row) for row in self._table]

    @cached_property
    def _knots(self) -> Array:
        return np.geomspace(MIN_DELTA_SHARE / len(self.own), 1.0, INTERPOLATION_KNOTS)

    @cached_property
    def _table(self) -> Array:
        """(b, KNOTS) limits."""
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
        """A large number for an infinite end: searches subtract them."""
        return min(end, INFINITE_END) if not math.isnan(end) else INFINITE_END
