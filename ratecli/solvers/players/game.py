"""The game of three players (classifier, slacks, multipliers) in B lanes (settings) at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.numerics import Stepper
from ratecli.solvers.players.atoms import MIN_SHARE, RatioAtom, SmoothAtom
from ratecli.solvers.players.descent import BestResponsePlayer, DescentPlayer
from ratecli.solvers.players.lagrangian import OBJECTIVE_OWNER, ProgramLagrangian


class StepObservation(NamedTuple):
    """What the multiplier player observes in one step, for B lanes.

    Attributes
    ----------
    broken
        (J, B) values of the constraints, with slacks as arguments of the atoms; positive if
        violated.
    apart
        (S, B) signed distance of each argument from its slack; positive on the wrong side.
    arguments
        (S, B) the arguments themselves.
    """

    broken: Array
    apart: Array
    arguments: Array


@dataclass
class GradientAscent:
    """Gradient steps projected onto `{x >= 0, sum of x <= radius}`.

    The projection is the Euclidean one (the paper's "l1 projection" means this; vector 9.9).
    """

    stepper: Stepper
    radius: float | None

    def next(self, prices: Array, seen: StepObservation) -> Array:
        risen = prices[1:] + self.stepper.step(np.concatenate([seen.broken, seen.apart]))
        cap = np.inf if self.radius is None else self.radius
        return np.concatenate([prices[:1], project_onto_simplex_cap(risen, cap)])


def project_onto_simplex_cap(points: Array, radius: float) -> Array:
    """Project the columns of points (n, B) onto `{x >= 0, sum of x <= radius}` (vector 9.9)."""
    kept = np.maximum(points, 0.0)
    if radius == np.inf:
        return kept
    far = kept.sum(axis=0) > radius
    if not far.any():
        return kept
    ranked = -np.sort(-kept[:, far], axis=0)
    excess = (np.cumsum(ranked, axis=0) - radius) / np.arange(1, len(kept) + 1)[:, None]
    last = (ranked > excess).sum(axis=0) - 1
    kept[:, far] = np.maximum(kept[:, far] - excess[last, np.arange(len(last))], 0.0)
    return kept


@dataclass
class FollowTheLeader:
    """Multipliers of arguments that follow the leader.

    They are the slopes of the atoms at the mean of all arguments so far. This is Frank-Wolfe if the
    classifier is an oracle and rates are true, and NEMSIS if it descends and rates are hinges
    (protocols 3.2, B.1). Multipliers of constraints ascend.
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
    """Multipliers, including the objective's, that add up to 1 and have low swap regret.

    See Cotter, Jiang, Sridharan 2019 and protocols 3.2, C. Each lane has a matrix whose columns are
    distributions; it is updated multiplicatively by violations, and the multipliers are its
    stationary distribution. Iterates are weighted by the objective's multiplier.

    Attributes
    ----------
    matrix
        (B, n, n), n = 1 + J + S.
    rates
        (B,) step sizes in the exponents.
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


MultiplierPlayer = GradientAscent | FollowTheLeader | SwapRegret
ClassifierPlayer = BestResponsePlayer | DescentPlayer


def stationary_distributions(matrix: Array) -> Array:
    """Return the distributions (n, B) with `matrix @ x = x`.

    The matrices are (B, n, n), with columns that add up to 1.
    """
    count = matrix.shape[1]
    system = matrix - np.eye(count)
    system[:, -1, :] = 1.0
    right = np.zeros((len(matrix), count, 1))
    right[:, -1] = 1.0
    return np.asarray(np.maximum(np.linalg.solve(system, right)[:, :, 0].T, 0.0))


def slack_multipliers(form: ProgramLagrangian, weights: Array, at: Array) -> Array:
    """Return multipliers (S, B) that make the slacks `at` best responses: slopes of the atoms."""
    return np.asarray(np.maximum(form.signs * form.slopes(weights, at), 0.0))


INITIAL_SLACK = 0.5
"""Assumed value of each argument before any rate is known."""


@dataclass
class GameIterates:
    """The T iterates that were kept.

    Each has an answer, its true rates (K, B), and the multipliers (1 + J + S, B) it responded to.
    """

    steps: list[int] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    rates: list[Array] = field(default_factory=list)
    prices: list[Array] = field(default_factory=list)


@dataclass
class ThreePlayerGame:
    """Simultaneous steps of all players (Algorithms 2 and 3 and relatives).

    Slacks of convex atoms are best responses; slacks of ratios descend with the stepper `slack`.

    Attributes
    ----------
    surrogate
        Whether multipliers see hinges instead of true rates.
    """

    form: ProgramLagrangian
    player: ClassifierPlayer
    multipliers: MultiplierPlayer
    slack: Stepper
    prices: Array
    slacks: Array
    surrogate: bool = False

    def play(self, steps: int, every: int) -> GameIterates:
        """Run `steps` steps and keep the iterates 0, `every`, 2 `every`, ... and the last one."""
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
        """Advance all players by one step.

        Return the classifiers that responded to the current multipliers, and their rates (K, B), as
        `ClassifierPlayer.move` does.
        """
        answer: Any
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
        """Set the slacks of convex atoms to best responses.

        Weights are (A, B), signed multipliers (S, B).
        """
        for bundle in self.form.bundles:
            atom, weight, pull = bundle.atom, weights[bundle.members], pulls[bundle.slots]
            if isinstance(atom, SmoothAtom):
                near = self.slacks[bundle.slots]
                self.slacks[bundle.slots] = atom.respond(weight, pull, near)
            elif not isinstance(atom, RatioAtom):
                self.slacks[bundle.slots] = atom.respond(weight, pull)

    def _descend(self, weights: Array, pulls: Array) -> None:
        """Take a gradient step with the slacks of ratios, projected onto their boxes."""
        for bundle in self.form.bundles:
            if isinstance(bundle.atom, RatioAtom):
                before = self.slacks[bundle.slots]
                slopes = weights[bundle.members] * bundle.atom.slopes(before) - pulls[bundle.slots]
                self.slacks[bundle.slots] = bundle.atom.boxed(before - self.slack.step(slopes))


def initial_slacks(form: ProgramLagrangian, lanes: int) -> Array:
    """Return the initial slacks (S, B): `INITIAL_SLACK`, and 1 for those of ratios."""
    slacks = np.full((len(form.signs), lanes), INITIAL_SLACK)
    for bundle in form.bundles:
        if isinstance(bundle.atom, RatioAtom):
            slacks[bundle.slots] = 1.0
    return slacks


def initial_prices(form: ProgramLagrangian, slacks: Array) -> Array:
    """Return the initial multipliers (1 + J + S, B).

    They are 1 for the objective, 0 for constraints, and those of slacks make the initial slacks
    best responses.
    """
    lanes = slacks.shape[1]
    weights = np.zeros((len(form.atoms), lanes))
    weights[[owner == OBJECTIVE_OWNER for owner in form.owners]] = 1.0
    none = np.zeros((len(form.constraints), lanes))
    return np.concatenate([np.ones((1, lanes)), none, slack_multipliers(form, weights, slacks)])
