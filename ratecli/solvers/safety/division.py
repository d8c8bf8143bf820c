"""The delta of a constraint, divided over its bounds as suits a candidate best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ratecli.models.base import Array
from ratecli.solvers.safety.expected import Expected

LEAST = 0.1
"""Least share of a bound, in equal shares: what is expected may turn out otherwise."""
KNOTS = 25
"""Shares at which limits are found; between them they are interpolated in the logarithm."""
STEPS = 150
"""Iterations of the search for each share."""


def optimized(expected: Expected) -> tuple[float, ...]:
    """(B,) shares of the delta for which the upper end of each tree is expected to be least.

    They depend on what is expected alone, which must not come from the rows that are tested: then
    limits hold as they do for any other deltas fixed beforehand. Shares of one tree add up to 1, and
    lead to no larger end than equal ones, which they are where some limit is infinite.

    The least end is sought by the simplex method of Nelder and Mead, from equal shares: ends have kinks
    where the arguments of a maximum change places.

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
            shares[own] = _Tree(expected, tree, own).best()
    return tuple(shares.tolist())


@dataclass(frozen=True)
class _Tree:
    """Shares (b,) of the bounds of one tree, those at `own` among all B."""

    expected: Expected
    tree: int
    own: NDArray[np.intp]

    def best(self) -> Array:
        equal = np.full(len(self.own), 1 / len(self.own))
        if not np.isfinite(self._table).all():
            return equal
        start = np.zeros(len(self.own) - 1)
        options = {"maxiter": STEPS * len(self.own), "adaptive": True, "xatol": 1e-4, "fatol": 1e-9}
        found = minimize(
            lambda x: self._end(self._tabulated(self._shares(x))),
            start,
            method="Nelder-Mead",
            options=options,
        )
        shares = self._shares(found.x)
        return shares if self._exact(shares) < self._exact(equal) else equal

    def _shares(self, x: Array) -> Array:
        """Any x (b - 1,) gives shares of at least the floor."""
        floor = LEAST / len(self.own)
        weights = np.exp(np.append(x, 0.0) - max(x.max(), 0.0))
        return np.asarray(floor + (1 - LEAST) * weights / weights.sum())

    @cached_property
    def _knots(self) -> Array:
        return np.geomspace(LEAST / len(self.own), 1.0, KNOTS)

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

    def _tabulated(self, shares: Array) -> Array:
        at, knots = np.log(shares), np.log(self._knots)
        return np.array([np.interp(x, knots, row) for x, row in zip(at, self._table, strict=True)])

    def _exact(self, shares: Array) -> float:
        return self._end(self._limits(shares))

    def _end(self, limits: Array) -> float:
        """The upper end of the tree; a large number where it is infinite."""
        every = np.zeros(len(self.expected.tested.asked))
        every[self.own] = limits
        root = self.expected.tested.trees[self.tree]
        end = self.expected.tested.enclosure(root, self.tree, every).high
        return float(np.nan_to_num(end, nan=_LARGE, posinf=_LARGE))


_LARGE = 1e12
