"""The classifier player that descends, for a grid of settings at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ratecli.models.base import Array
from ratecli.models.linear import Threshold
from ratecli.rates.kinds import RowKinds
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.lanes import WIDTH, Floats32, pack_lanes, unpack_lanes
from ratecli.solvers.players.rows import PassResult, RowSelection
from ratecli.solvers.players.steps import Stepper, StepRule


class GradientRows(Protocol):
    """Rows as this player sees them: in memory (`LaneRows`) or not."""

    @property
    def kinds(self) -> RowKinds: ...

    @property
    def width(self) -> int: ...

    def run(self, W: Floats32, sides: Floats32, some: RowSelection | None = None) -> PassResult: ...

    def counted(self, answers: Sequence[Floats32]) -> list[Array]: ...

    def hinges(self, W: Floats32, some: RowSelection | None = None) -> tuple[Array, Array]: ...


class BatchSource(Protocol):
    def draw(self) -> RowSelection: ...


@dataclass
class DescentPlayer:
    """Linear classifiers in B lanes that descend a hinge for each side of the Lagrangian.

    Where a yes adds to a side there is an upper hinge `max(0, 1 + score)`, where it takes from it a
    lower one, `max(0, 1 - score)` (Narasimhan, Cotter, Gupta 2019, Algorithm 2, and corrected 3).
    """

    form: ProgramLagrangian
    rows: GradientRows
    stepper: Stepper
    W: Floats32
    lanes: int
    batch: BatchSource | None = None
    _seen: RowSelection | None = None

    @classmethod
    def start(
        cls,
        form: ProgramLagrangian,
        rows: GradientRows,
        rule: StepRule,
        learning: Array,
        batch: BatchSource | None = None,
    ) -> DescentPlayer:
        """From zeros, with a learning rate for each of B lanes."""
        stepper = Stepper(rule, pack_lanes(learning[None]))
        W = pack_lanes(np.zeros((rows.width + 1, len(learning))))
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
        passed = self.rows.run(before, pack_lanes(self._sides @ prices), self._seen)
        with np.errstate(over="ignore", invalid="ignore"):  # what diverges is found in the end
            self.W = (before - self.stepper.step(passed.slopes)).astype(np.float32)
        return before, self.rows.kinds.rates(unpack_lanes(passed.yes, self.lanes))

    def measured(self, answers: Sequence[Floats32], seen: Sequence[Array]) -> list[Array]:
        if self.batch is None:
            return list(seen)
        kinds = self.rows.kinds
        return [kinds.rates(unpack_lanes(yes, self.lanes)) for yes in self.rows.counted(answers)]

    def bounds(self, W: Floats32) -> Array:
        """(1 + J + S, B) the sides, hinges in the place of what is counted: nowhere less than it.

        With a batch on the rows drawn last.
        """
        slopes, constants = self.form.sides
        above, below = (unpack_lanes(each, self.lanes) for each in self.rows.hinges(W, self._seen))
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
