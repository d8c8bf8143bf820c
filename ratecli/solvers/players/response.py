"""The classifier player that best-responds: an oracle, asked at every step and for every setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.solvers.oracles.base import Oracle
from ratecli.solvers.oracles.ground import OracleRows
from ratecli.solvers.players.lagrangian import ProgramLagrangian

OracleAnswers = Sequence[Classifier]


@dataclass
class BestResponsePlayer:
    """Answers of an oracle to the prices that a Lagrangian puts on the rates (Algorithm 1).

    An oracle that starts from a classifier is given its last answer in the same lane.
    """

    form: ProgramLagrangian
    ground: OracleRows
    oracle: Oracle
    last: list[Classifier | None] = field(default_factory=list)

    def classifier(self, answer: OracleAnswers, lane: int) -> Classifier:
        return answer[lane]

    def finite(self, answer: OracleAnswers, lane: int) -> bool:  # noqa: ARG002  an oracle's weights are
        return True

    def measured(self, answers: Sequence[OracleAnswers], seen: Sequence[Array]) -> list[Array]:  # noqa: ARG002
        return list(seen)  # it has seen all rows

    def bounds(self, answer: OracleAnswers) -> Array:  # noqa: ARG002
        raise TypeError("an oracle's classifier has rates as they are counted, and no others")

    def move(self, prices: Array) -> tuple[OracleAnswers, Array]:
        """Raises FloatingPointError where prices are no numbers."""
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
        if not self.ground.costs(prices).any():  # no answer is better than another
            return near or self.ground.constant(yes=False)
        return self.oracle.answer(prices, near if self.oracle.starts else None)
