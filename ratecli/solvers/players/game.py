"""The game of three players: a classifier, slacks and multipliers, in B lanes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.solvers.players.atoms import RatioAtom, SmoothAtom
from ratecli.solvers.players.lagrangian import OBJECTIVE_OWNER, ProgramLagrangian
from ratecli.solvers.players.multipliers import MultiplierPlayer, StepObservation, slack_multipliers
from ratecli.solvers.players.steps import Stepper

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
