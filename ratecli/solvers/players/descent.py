"""The classifier player that descends, for a grid of settings at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ratecli.models.base import Array
from ratecli.models.linear import Threshold
from ratecli.solvers.players.batch import Batch
from ratecli.solvers.players.lagrangian import Lagrangian
from ratecli.solvers.players.lanes import WIDTH, Floats32, packed, unpacked
from ratecli.solvers.players.rows import LaneRows, Some
from ratecli.solvers.players.steps import Rule, Stepper


@dataclass
class Descent:
    """Linear classifiers in B lanes that descend a hinge for each side of the Lagrangian.

    Where a yes adds to a side there is an upper hinge `max(0, 1 + score)`, where it takes from it a
    lower one, `max(0, 1 - score)` (Narasimhan, Cotter, Gupta 2019, Algorithm 2, and corrected 3).
    """

    form: Lagrangian
    rows: LaneRows
    stepper: Stepper
    W: Floats32
    lanes: int
    batch: Batch | None = None
    _seen: Some | None = None

    @classmethod
    def start(
        cls,
        form: Lagrangian,
        rows: LaneRows,
        rule: Rule,
        learning: Array,
        batch: Batch | None = None,
    ) -> Descent:
        """From zeros, with a learning rate for each of B lanes."""
        stepper = Stepper(rule, packed(learning[None]))
        W = packed(np.zeros((rows.X.shape[1] + 1, len(learning))))
        return cls(form, rows, stepper, W, len(learning), batch)

    @staticmethod
    def classifier(answer: Floats32, lane: int) -> Threshold:
        *weights, bias = answer[lane // WIDTH, :, lane % WIDTH].astype(float)
        return Threshold(np.array(weights), float(bias))

    @staticmethod
    def finite(answer: Floats32, lane: int) -> bool:
        return bool(np.isfinite(answer[lane // WIDTH, :, lane % WIDTH]).all())

    def move(self, prices: Array) -> tuple[Floats32, Array]:
        """The weights (L, d + 1, WIDTH) before a step against prices, and their rates (K, B): with a
        batch those of the rows drawn.
        """
        before = self.W
        self._seen = None if self.batch is None else self.batch.draw()
        passed = self.rows.run(before, packed(self._sides @ prices), self._seen)
        with np.errstate(over="ignore", invalid="ignore"):  # what diverges is found in the end
            self.W = (before - self.stepper.step(passed.slopes)).astype(np.float32)
        return before, self.rows.kinds.rates(unpacked(passed.yes, self.lanes))

    def measured(self, W: Floats32, seen: Array) -> Array:
        if self.batch is None:
            return seen
        nothing = np.zeros((len(W), 2 * self.rows.kinds.count, WIDTH), np.float32)
        return self.rows.kinds.rates(unpacked(self.rows.run(W, nothing).yes, self.lanes))

    def bounds(self, W: Floats32) -> Array:
        """(1 + J + S, B) the sides, hinges in the place of what is counted: nowhere less than it.

        With a batch on the rows drawn last.
        """
        slopes, constants = self.form.sides
        above, below = (unpacked(each, self.lanes) for each in self.rows.hinges(W, self._seen))
        none = slopes @ np.nan_to_num(self.rows.kinds.matrix.c)[:, None] + constants
        found = self._sides.T @ np.concatenate([above, below - self.rows.kinds.totals[:, None]])
        return np.asarray(none + found)

    @cached_property
    def _sides(self) -> Array:
        """(2 Q, 1 + J + S) what a weight of 1 decided yes of each kind adds to each side, and what it
        takes from it.
        """
        slopes, _ = self.form.sides
        added = (slopes @ self.rows.kinds.slopes).T
        return np.concatenate([np.maximum(added, 0.0), np.maximum(-added, 0.0)])
