"""Column generation: best mixtures of known classifiers, and an oracle that adds classifiers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.solvers.hull.best import HullOptimum, optimize_over_hull
from ratecli.solvers.hull.columns import RatePoints
from ratecli.solvers.hull.forms import LinearTerm, RateProgram
from ratecli.solvers.hull.relaxation import Relaxation
from ratecli.solvers.oracles.base import Oracle, OracleRows
from ratecli.solvers.problem import Problem

MIN_MEMBER_CHANCE = 1e-9
"""Smaller chances are treated as rounding errors of 0."""


@dataclass
class ClassifierPool:
    """Classifiers with their rates (K, T) on the rows."""

    ground: OracleRows
    members: list[Classifier] = field(default_factory=list)
    _rates: list[Array] = field(default_factory=list)

    def add(self, classifier: Classifier) -> Array:
        """Add a classifier and return its rates (K,)."""
        rates = self.ground.rates(self.ground.decide(classifier))
        self.members.append(classifier)
        self._rates.append(rates)
        return rates

    @property
    def rates(self) -> Array:
        return np.stack(self._rates, axis=1)

    def cheapest(self, prices: Array) -> Classifier:
        """Return the member of least cost at prices (K,)."""
        return self.members[int(np.argmin(prices @ self.rates))]

    def some(self, chances: Array) -> tuple[tuple[Classifier, ...], Array]:
        """Return the members with positive chances, and these chances, which sum to 1."""
        kept = np.flatnonzero(chances > MIN_MEMBER_CHANCE)
        return tuple(self.members[k] for k in kept), chances[kept] / chances[kept].sum()


@dataclass
class ColumnGeneration:
    """Alternates between the best mixture of a pool and an oracle's answer to its prices.

    Attributes
    ----------
    program
        The goals as functions of rates.
    pool
        The known classifiers, at least one before the first round.
    gap
        The search ends when an answer promises to improve the objective by no more than this.
    calls
        Maximum number of rounds.
    found
        The best mixture, after a round.
    feasible
        Whether it satisfies the constraints; otherwise it is the mixture of least violation.
    ended
        Whether no answer promises more than the gap.
    """

    program: RateProgram
    pool: ClassifierPool
    oracle: Oracle
    gap: float
    calls: int
    feasible: bool = False
    ended: bool = False
    trace: list[Mapping[str, Any]] = field(default_factory=list)
    found: HullOptimum = field(init=False)

    def __post_init__(self) -> None:
        self._aim = self.program
        self._begun = time.perf_counter()
        self._tangents: list[tuple[int, LinearTerm]] = []

    def start(self, prices: Array) -> None:
        """Add both constant classifiers and one that is cheap at `prices` (K,).

        The latter is skipped if all decisions cost the same.
        """
        for yes in (True, False):
            self.pool.add(self.pool.ground.constant(yes=yes))
        if self.pool.ground.costs(prices).any():
            self.ask(prices, None)

    @property
    def objective(self) -> float:
        """The objective of the best mixture."""
        return float(self.program.value(self.program.objective, self.found.rates))

    @property
    def least(self) -> float:
        """Lower bound of the objective, provided that the oracle's answers are the cheapest."""
        return self.objective - float(self.trace[-1]["gap"])

    def turn_to(self, room: Problem | None) -> None:
        """Continue with the problem `room` if constraints do not affect the optimum."""
        price = float(np.abs(self.found.multipliers).sum())
        if room is not None and self.feasible and self.ended and price <= self.gap:
            self._aim, self._tangents, self.ended = RateProgram.of(room), [], False

    def goes_on(self) -> bool:
        return not self.ended and len(self.trace) < self.calls

    def step(self) -> str:
        """Find the best mixture and ask the oracle at its prices; return a message."""
        found = self.found = self._best()
        near = self.pool.cheapest(found.prices)
        saved = self._saving(found, near)
        if saved <= self.gap and self.oracle.starts:
            saved = max(saved, self._saving(found, None))
        row = {
            "iteration": len(self.trace) + 1,
            "objective": self.objective,
            "violation": max(float(self.program.excess(found.rates)), 0.0),
            "gap": saved,
            "seconds": time.perf_counter() - self._begun,
        }
        self.trace.append(row)
        self.ended = saved <= self.gap
        return (
            f"objective {row['objective']:.5g}, violation {row['violation']:.2g}, gap {saved:.2g}"
        )

    def _best(self) -> HullOptimum:
        """Return the best mixture of the pool, or that of least violation if none is feasible."""
        columns = RatePoints.classifiers(self.pool.rates)
        gap = 0.5 * self.gap
        found = optimize_over_hull(Relaxation(self._aim, columns, tangents=self._tangents), gap)
        self.feasible = found is not None
        if found is None:
            found = optimize_over_hull(Relaxation(self._aim, columns, elastic=True), gap)
            assert found is not None
        else:
            self._tangents = found.tangents
        return found

    def _saving(self, found: HullOptimum, near: Classifier | None) -> float:
        """Return how much the oracle's answer, sought from `near`, saves at the prices."""
        if not self.pool.ground.costs(found.prices).any():
            return 0.0  # all decisions cost the same
        answer = self.ask(found.prices, near)
        return float(found.prices @ (found.rates - answer))

    def ask(self, prices: Array, near: Classifier | None) -> Array:
        """Add the oracle's answer to the pool and return its rates (K,)."""
        return self.pool.add(self.oracle.answer(prices, near))
