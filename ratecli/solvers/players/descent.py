"""The classifier players: one calls an oracle, the other descends for a grid of settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.solvers.numerics import Stepper, StepRule
from ratecli.solvers.oracles.base import Oracle, OracleRows
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.lanes import WIDTH, Floats32, pack_lanes, unpack_lanes
from ratecli.solvers.players.rows import BatchSampler, LaneRows, RowSelection
from ratecli.solvers.streamed.player import StreamedBatchSampler, StreamedLaneRows

OracleAnswers = Sequence[Classifier]


@dataclass
class BestResponsePlayer:
    """An oracle's answers to the costs that a Lagrangian puts on the rates (Algorithm 1).

    An oracle that needs a starting classifier gets its last answer in the same lane.
    """

    form: ProgramLagrangian
    ground: OracleRows
    oracle: Oracle
    last: list[Classifier | None] = field(default_factory=list)

    def classifier(self, answer: OracleAnswers, lane: int) -> Classifier:
        return answer[lane]

    def finite(self, answer: OracleAnswers, lane: int) -> bool:  # noqa: ARG002
        return True

    def measured(
        self,
        answers: Sequence[OracleAnswers],  # noqa: ARG002
        seen: Sequence[Array],
    ) -> list[Array]:
        return list(seen)  # its rates are already on all rows

    def bounds(self, answer: OracleAnswers) -> Array:  # noqa: ARG002
        raise TypeError("an oracle's classifier has rates as they are counted, and no others")

    def move(self, prices: Array) -> tuple[OracleAnswers, Array]:
        """Return the oracle's answers and their rates.

        Raises FloatingPointError if multipliers are not finite.
        """
        slopes, _ = self.form.sides
        costs = slopes.T @ prices
        if not np.isfinite(costs).all():
            raise FloatingPointError(
                "the multipliers grew beyond all numbers: lower multiplier_rate"
            )
        lanes = costs.shape[1]
        self.last = self.last or [None] * lanes
        answers = [self._answer(costs[:, lane], self.last[lane]) for lane in range(lanes)]
        self.last = list(answers)
        rates = [self.ground.rates(self.ground.decide(answer)) for answer in answers]
        return answers, np.stack(rates, axis=1)

    def _answer(self, prices: Array, near: Classifier | None) -> Classifier:
        if not self.ground.costs(prices).any():  # all answers cost the same
            return near or self.ground.constant(yes=False)
        return self.oracle.answer(prices, near if self.oracle.starts else None)


class DescentPlayer:
    """Linear classifiers in B lanes that descend on a hinge for each term of the Lagrangian.

    Where a positive decision increases a term, the upper hinge `max(0, 1 + score)` is used; where
    it decreases the term, the lower hinge `max(0, 1 - score)` (Narasimhan, Cotter, Gupta 2019,
    Algorithm 2, and Algorithm 3 as corrected).
    """

    def __init__(
        self,
        form: ProgramLagrangian,
        rows: LaneRows | StreamedLaneRows,
        rule: StepRule,
        learning: Array,
        batch: BatchSampler | StreamedBatchSampler | None = None,
    ) -> None:
        """Start from zero weights, with one learning rate for each of B lanes."""
        self.form, self.rows, self.batch, self.lanes = form, rows, batch, len(learning)
        self.stepper = Stepper(rule, pack_lanes(learning[None]))
        self.W = pack_lanes(np.zeros((rows.width + 1, self.lanes)))
        self._seen: RowSelection | None = None

    @staticmethod
    def classifier(answer: Floats32, lane: int) -> Threshold:
        *weights, bias = answer[lane // WIDTH, :, lane % WIDTH].astype(float)
        return Threshold(np.array(weights), float(bias))

    @staticmethod
    def finite(answer: Floats32, lane: int) -> bool:
        return bool(np.isfinite(answer[lane // WIDTH, :, lane % WIDTH]).all())

    def move(self, prices: Array) -> tuple[Floats32, Array]:
        """Take one step; return the weights (L, d + 1, WIDTH) before it and their rates (K, B).

        With a batch, the rates are those of the sampled rows.
        """
        before = self.W
        self._seen = None if self.batch is None else self.batch.draw()
        passed = self.rows.run(before, pack_lanes(self._sides @ prices), self._seen)
        self.W = (before - self.stepper.step(passed.slopes)).astype(np.float32)
        return before, self.rows.kinds.rates(unpack_lanes(passed.yes, self.lanes))

    def measured(self, answers: Sequence[Floats32], seen: Sequence[Array]) -> list[Array]:
        if self.batch is None:
            return list(seen)
        kinds = self.rows.kinds
        return [kinds.rates(unpack_lanes(yes, self.lanes)) for yes in self.rows.counted(answers)]

    def bounds(self, W: Floats32) -> Array:
        """Return the terms (1 + J + S, B) with hinges instead of counts: upper bounds on them.

        With a batch, they are computed on the rows sampled last.
        """
        slopes, constants = self.form.sides
        above, below = (unpack_lanes(each, self.lanes) for each in self.rows.hinges(W, self._seen))
        none = slopes @ np.nan_to_num(self.rows.kinds.matrix.c)[:, None] + constants
        found = self._sides.T @ np.concatenate([above, below - self.rows.kinds.totals[:, None]])
        return np.asarray(none + found)

    @cached_property
    def _sides(self) -> Array:
        """(2 Q, 1 + J + S) effect on each term of positively deciding a weight of 1 of each kind.

        The first Q rows hold increases, the others decreases, as positive numbers.
        """
        slopes, _ = self.form.sides
        added = (slopes @ self.rows.kinds.slopes).T
        return np.concatenate([np.maximum(added, 0.0), np.maximum(-added, 0.0)])
