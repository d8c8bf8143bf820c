"""The classifier player that descends, for a grid of settings at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ratecli.models.base import Array
from ratecli.models.linear import Threshold
from ratecli.rates.kinds import Kinds
from ratecli.solvers.players.lagrangian import Lagrangian
from ratecli.solvers.players.rows import Floats32, LaneRows
from ratecli.solvers.players.steps import Stepper


@dataclass
class Descent:
    """Linear classifiers in B lanes that descend a hinge for each side of the Lagrangian.

    Where a yes adds to a side there is an upper hinge `max(0, 1 + score)`, where it takes from it a
    lower one, `max(0, 1 - score)` (Narasimhan, Cotter, Gupta 2019, Algorithm 2, and corrected 3).
    """

    form: Lagrangian
    kinds: Kinds
    rows: LaneRows
    stepper: Stepper
    W: Floats32

    @staticmethod
    def classifier(answer: Floats32, lane: int) -> Threshold:
        *weights, bias = answer[:, lane].astype(float)
        return Threshold(np.array(weights), float(bias))

    @staticmethod
    def finite(answer: Floats32, lane: int) -> bool:
        return bool(np.isfinite(answer[:, lane]).all())

    def move(self, prices: Array) -> tuple[Floats32, Array]:
        """The weights (d + 1, B) before a step against prices, and their rates (K, B)."""
        before = self.W
        passed = self.rows.run(before, self._above @ prices, self._below @ prices)
        with np.errstate(over="ignore", invalid="ignore"):  # what diverges is found in the end
            self.W = before - self.stepper.step(passed.slopes).astype(np.float32)
        return before, self.kinds.rates(passed.yes)

    def bounds(self, W: Floats32) -> Array:
        """(1 + J + S, B) the sides, hinges in the place of what is counted: nowhere less than it."""
        slopes, constants = self.form.sides
        above, below = self.rows.hinges(W)
        none = slopes @ np.nan_to_num(self.kinds.matrix.c)[:, None] + constants
        totals = self.kinds.totals[:, None]
        return np.asarray(none + self._above.T @ above + self._below.T @ (below - totals))

    @cached_property
    def _by_kind(self) -> Array:
        """(Q, 1 + J + S) what a weight of 1 decided yes adds to each side."""
        slopes, _ = self.form.sides
        return np.asarray((slopes @ self.kinds.slopes).T)

    @cached_property
    def _above(self) -> Array:
        return np.maximum(self._by_kind, 0.0)

    @cached_property
    def _below(self) -> Array:
        return np.maximum(-self._by_kind, 0.0)
