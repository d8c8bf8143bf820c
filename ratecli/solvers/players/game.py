"""The game of three players: a classifier, slacks and multipliers, in B lanes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.solvers.players.atoms import MIN_SHARE, RatioAtom, SmoothAtom
from ratecli.solvers.players.lagrangian import OBJECTIVE_OWNER, ProgramLagrangian
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


INITIAL_SLACK = 0.5
"""The share that arguments are thought to have before anything is known of them."""


class ClassifierPlayer(Protocol):
    """The one who decides: it descends, or is an oracle."""

    def move(self, prices: Array) -> tuple[Any, Array]:
        """Classifiers of B lanes, in the player's own form, and their true rates (K, B) on the rows that
        the player has looked at.
        """
        ...

    def measured(self, answers: Sequence[Any], seen: Sequence[Array]) -> list[Array]:
        """(K, B) true rates on all rows of each answer; `seen` are those that came with it."""
        ...

    def bounds(self, answer: Any) -> Array:
        """(1 + J + S, B) the sides with convex surrogates in the place of what is counted."""
        ...

    def classifier(self, answer: Any, lane: int) -> Classifier: ...

    def finite(self, answer: Any, lane: int) -> bool: ...


@dataclass
class GameIterates:
    """What was kept: T answers, their true rates (K, B), and the prices (1 + J + S, B) they met."""

    steps: list[int] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    rates: list[Array] = field(default_factory=list)
    prices: list[Array] = field(default_factory=list)


@dataclass
class ThreePlayerGame:
    """Simultaneous steps of all players (Algorithms 2 and 3 and relatives).

    Slacks of convex atoms are best responses; those of ratios descend with `slack`.

    Attributes
    ----------
    surrogate
        Whether multipliers see hinges in the place of rates.
    """

    form: ProgramLagrangian
    player: ClassifierPlayer
    multipliers: MultiplierPlayer
    slack: Stepper
    prices: Array
    slacks: Array
    surrogate: bool = False

    def play(self, steps: int, every: int) -> GameIterates:
        """`steps` steps; the iterates 0, `every`, 2 `every`, ... and the last are kept."""
        kept = GameIterates()
        for step in range(steps + 1):
            prices = self.prices
            answer, rates = self.step()
            if step % every == 0 or step == steps:
                kept.steps.append(step)
                kept.answers.append(answer)
                kept.rates.append(rates)
                kept.prices.append(prices)
        kept.rates = self.player.measured(kept.answers, kept.rates)
        return kept

    def step(self) -> tuple[Any, Array]:
        """One step of all; the classifiers that met the prices and their rates (K, B), as `ClassifierPlayer.move`."""
        answer, rates = self.player.move(self.prices)
        slopes, constants = self.form.sides
        sides = self.player.bounds(answer) if self.surrogate else slopes @ rates + constants
        signs, count = self.form.signs, len(self.form.constraints)
        weights, pulls = self.form.weights(self.prices), signs * self.prices[1 + count :]
        self._respond(weights, pulls)
        limits, signed = sides[1 : 1 + count], sides[1 + count :]
        seen = StepObservation(
            limits + self.form.values(self.slacks), signed - signs * self.slacks, signs * signed
        )
        self._descend(weights, pulls)
        self.prices = self.multipliers.next(self.prices, seen)
        return answer, rates

    def _respond(self, weights: Array, pulls: Array) -> None:
        """Best responses to weights (A, B) of the atoms and signed multipliers (S, B)."""
        for bundle in self.form.bundles:
            atom, weight, pull = bundle.atom, weights[bundle.members], pulls[bundle.slots]
            if isinstance(atom, SmoothAtom):
                near = self.slacks[bundle.slots]
                self.slacks[bundle.slots] = atom.respond(weight, pull, near)
            elif not isinstance(atom, RatioAtom):
                self.slacks[bundle.slots] = atom.respond(weight, pull)

    def _descend(self, weights: Array, pulls: Array) -> None:
        """A step of the slacks of ratios, within their boxes."""
        for bundle in self.form.bundles:
            if isinstance(bundle.atom, RatioAtom):
                before = self.slacks[bundle.slots]
                slopes = weights[bundle.members] * bundle.atom.slopes(before) - pulls[bundle.slots]
                self.slacks[bundle.slots] = bundle.atom.boxed(before - self.slack.step(slopes))


def initial_slacks(form: ProgramLagrangian, lanes: int) -> Array:
    """(S, B): a half, and 1 for those of ratios."""
    slacks = np.full((len(form.signs), lanes), INITIAL_SLACK)
    for bundle in form.bundles:
        if isinstance(bundle.atom, RatioAtom):
            slacks[bundle.slots] = 1.0
    return slacks


def initial_prices(form: ProgramLagrangian, slacks: Array) -> Array:
    """(1 + J + S, B): 1 for the objective, nothing for constraints, and for slacks what suits them."""
    lanes = slacks.shape[1]
    weights = np.zeros((len(form.atoms), lanes))
    weights[[owner == OBJECTIVE_OWNER for owner in form.owners]] = 1.0
    none = np.zeros((len(form.constraints), lanes))
    return np.concatenate([np.ones((1, lanes)), none, slack_multipliers(form, weights, slacks)])
