"""The multiplier player: what the sides of a Lagrangian cost, by how far they are broken.

Sides are the objective, J constraints and S arguments; their prices are (1 + J + S, B), those of the
objective 1 except under swap regret. All raise what is broken; they differ in how far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.players.atoms import MIN_SHARE
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.steps import Stepper, project_onto_simplex_cap


@dataclass(frozen=True)
class StepObservation:
    """What a multiplier player sees of a step, of B lanes.

    Attributes
    ----------
    broken
        (J, B) the constraints, with slacks for arguments.
    apart
        (S, B) by how much each argument is on the wrong side of its slack.
    arguments
        (S, B) the arguments themselves.
    """

    broken: Array
    apart: Array
    arguments: Array


class MultiplierPlayer(Protocol):
    def next(self, prices: Array, seen: StepObservation) -> Array: ...


@dataclass
class GradientAscent:
    """Gradient steps, kept not negative and, with a `radius`, of at most that sum.

    The nearest such point is taken ("l1 projection" in the paper means that; vector 9.9).
    """

    stepper: Stepper
    radius: float | None

    def next(self, prices: Array, seen: StepObservation) -> Array:
        risen = prices[1:] + self.stepper.step(np.concatenate([seen.broken, seen.apart]))
        cap = np.inf if self.radius is None else self.radius
        return np.concatenate([prices[:1], project_onto_simplex_cap(risen, cap)])


@dataclass
class FollowTheLeader:
    """Arguments' multipliers follow the leader: slopes of the atoms at the mean of all arguments so far.

    That is Frank-Wolfe where the classifier is an oracle and rates are true, NEMSIS where it descends
    and rates are hinges (protocols 3.2, B.1). Constraints ascend.
    """

    form: ProgramLagrangian
    ascent: GradientAscent
    total: Array

    def next(self, prices: Array, seen: StepObservation) -> Array:
        risen = self.ascent.next(prices, seen)
        self.total = self.total + seen.arguments
        mean = np.clip(self.total / self.ascent.stepper.taken, MIN_SHARE, 1.0)
        count = len(seen.broken)
        weights = self.form.weights(risen[: 1 + count])
        risen[1 + count :] = slack_multipliers(self.form, weights, mean)
        return risen


@dataclass
class SwapRegret:
    """Prices add up to 1, the objective's too (Cotter, Jiang, Sridharan 2019; protocols 3.2, C).

    A matrix for each lane, whose columns are distributions, grows where a side is broken; prices are
    its stationary distribution. Iterates count by the objective's price.

    Attributes
    ----------
    matrix
        (B, n, n), n = 1 + J + S.
    rates
        (B,) of the exponents.
    """

    matrix: Array
    rates: Array

    @classmethod
    def even(cls, sides: int, rates: Array) -> SwapRegret:
        return cls(np.full((len(rates), sides, sides), 1 / sides), rates)

    def next(self, prices: Array, seen: StepObservation) -> Array:
        nothing = np.zeros((1, prices.shape[1]))
        gain = np.concatenate([nothing, seen.broken, seen.apart])
        outer = np.einsum("ib,jb->bij", gain, prices)
        grown = self.matrix * np.exp(self.rates[:, None, None] * outer)
        self.matrix = grown / grown.sum(axis=1, keepdims=True)
        return stationary_distributions(self.matrix)


def stationary_distributions(matrix: Array) -> Array:
    """(n, B) distributions with `matrix @ x = x`, of (B, n, n) matrices with columns that add up to 1."""
    count = matrix.shape[1]
    system = matrix - np.eye(count)
    system[:, -1, :] = 1.0
    right = np.zeros((len(matrix), count, 1))
    right[:, -1] = 1.0
    return np.asarray(np.maximum(np.linalg.solve(system, right)[:, :, 0].T, 0.0))


def slack_multipliers(form: ProgramLagrangian, weights: Array, at: Array) -> Array:
    """(S, B) multipliers at which slacks `at` are best responses: slopes of the atoms there."""
    return np.asarray(np.maximum(form.signs * form.slopes(weights, at), 0.0))
