"""The game of three players (classifier, slacks and multipliers) in B lanes (settings) at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.solvers.gradient_steps import Stepper
from ratecli.solvers.oracles.base import Oracle, OracleRows
from ratecli.solvers.players.lagrangian import (
    NEGATIVE_RATIO,
    RATIO,
    ProgramLagrangian,
    multiply_lanes,
)
from ratecli.solvers.players.rows import Floats32, KindRows, LaneRows


class ClassifierPlayer(ABC):
    """Plays classifiers in B lanes; an answer holds those of all lanes."""

    form: ProgramLagrangian

    @abstractmethod
    def move(self, prices: Array) -> tuple[Any, Array]:
        """Return the answer to the multipliers (1 + J + S, B), and its rates (K, B).

        Raises FloatingPointError if multipliers are not finite.
        """

    @abstractmethod
    def classifier(self, answer: Any, lane: int) -> Classifier:
        """Return the classifier of one lane."""

    def is_finite(self, answer: Any, lane: int) -> bool:  # noqa: ARG002
        """Return whether the classifier of one lane has finite weights, as those of oracles do."""
        return True

    def terms(self, answer: Any, rates: Array) -> Array:  # noqa: ARG002
        """Return the terms (1 + J + S, B) of the Lagrangian that the multipliers see."""
        return self.form.terms(rates)

    def rates_on_all_rows(self, answers: Sequence[Any]) -> list[Array] | None:  # noqa: ARG002
        """Return the rates (K, B) of several answers; None if `move` returned them."""
        return None


class BestResponsePlayer(ClassifierPlayer):
    """An oracle's answers to the costs that a Lagrangian puts on the rates (Algorithm 1).

    An oracle that needs a starting classifier gets its last answer in the same lane.
    """

    def __init__(self, form: ProgramLagrangian, rows: OracleRows, oracle: Oracle) -> None:
        self.form, self.rows, self.oracle = form, rows, oracle
        self._last: Sequence[Classifier | None] = ()

    def move(self, prices: Array) -> tuple[Sequence[Classifier], Array]:
        costs = self.form.costs(prices)
        if not np.isfinite(costs).all():
            raise FloatingPointError("the multipliers became infinite: lower multiplier_rate")
        last = self._last or [None] * costs.shape[1]
        answers = [self._answer(own, near) for own, near in zip(costs.T, last, strict=True)]
        self._last = answers
        rates = [self.rows.rates(self.rows.decide(answer)) for answer in answers]
        return answers, np.stack(rates, axis=1)

    def _answer(self, prices: Array, near: Classifier | None) -> Classifier:
        if not self.rows.costs(prices).any():  # all answers cost the same
            return near or self.rows.constant(yes=False)
        return self.oracle.answer(prices, near)

    def classifier(self, answer: Sequence[Classifier], lane: int) -> Classifier:
        return answer[lane]


class DescentPlayer(ClassifierPlayer):
    """Linear classifiers in B lanes that descend on a hinge for each term of the Lagrangian.

    Where a positive decision increases a term, the upper hinge `max(0, 1 + score)` is used; where
    it decreases the term, the lower hinge `max(0, 1 - score)` (Narasimhan, Cotter, Gupta 2019,
    Algorithm 2, and Algorithm 3 as corrected). An answer is the weights (d + 1, B), bias last.
    """

    def __init__(
        self,
        form: ProgramLagrangian,
        rows: LaneRows,
        stepper: Stepper,
        lanes: int,
        batch: Iterator[KindRows] | None = None,
        *,
        surrogate: bool = False,
    ) -> None:
        """Start from zero weights. With `surrogate`, multipliers see hinges, not true rates."""
        self.form, self.rows, self.batch, self.surrogate = form, rows, batch, surrogate
        self.stepper, self.W = stepper, np.zeros((rows.width + 1, lanes), np.float32)
        self._seen: LaneRows | KindRows = rows

    def classifier(self, answer: Floats32, lane: int) -> Threshold:
        own = answer[:, lane].astype(float)
        return Threshold(own[:-1], float(own[-1]))

    def is_finite(self, answer: Floats32, lane: int) -> bool:
        return bool(np.isfinite(answer[:, lane]).all())

    def move(self, prices: Array) -> tuple[Floats32, Array]:
        """Take one step; return the weights before it and their rates.

        With a batch, the rates are those of the sampled rows.
        """
        before = self.W
        self._seen = self.rows if self.batch is None else next(self.batch)
        yes, slopes = self._seen.run(before, multiply_lanes(self._sides, prices))
        self.W = (before - self.stepper.step(slopes)).astype(np.float32)
        return before, self.rows.kinds.rates(yes)

    def rates_on_all_rows(self, answers: Sequence[Floats32]) -> list[Array] | None:
        if self.batch is None:
            return None
        return np.split(self.rates_of(np.hstack(answers)), len(answers), axis=1)

    def rates_of(self, weights: Floats32) -> Array:
        """Return the rates (K, N) of classifiers with weights (d + 1, N) on all rows."""
        return self.rows.kinds.rates(self.rows.run(weights)[0])

    def terms(self, answer: Floats32, rates: Array) -> Array:
        """Return the terms, with hinges instead of counts as upper bounds if `surrogate`.

        With a batch, they are computed on the rows sampled last.
        """
        if not self.surrogate:
            return super().terms(answer, rates)
        kinds = self.rows.kinds
        above, below = self._seen.hinges(answer)
        hinges = np.concatenate([above, below - kinds.totals[:, None]])
        none = self.form.terms(np.nan_to_num(kinds.matrix.c)[:, None])
        return none + multiply_lanes(self._sides.swapaxes(1, 2), hinges)

    @cached_property
    def _sides(self) -> Array:
        return self.form.effects(self.rows.kinds)


class MultiplierPlayer(Protocol):
    """Changes the multipliers after a step in B lanes."""

    def next(self, prices: Array, broken: Array, apart: Array) -> Array:
        """Return the next multipliers (1 + J + S, B).

        The constraints have the values `broken` (J, B), with slacks as arguments of the atoms;
        positive if violated. The arguments have the signed distances `apart` (S, B) from their
        slacks; positive on the wrong side.
        """
        ...


@dataclass
class GradientAscent:
    """Gradient steps projected onto `{x >= 0, sum of x <= radius}`.

    The projection is the Euclidean one (the paper's "l1 projection" means this; vector 9.9).
    """

    stepper: Stepper
    radius: float | None

    def next(self, prices: Array, broken: Array, apart: Array) -> Array:
        risen = prices[1:] + self.stepper.step(np.concatenate([broken, apart]))
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

    def __init__(self, sides: int, rates: Array) -> None:
        self.matrix, self.rates = np.full((len(rates), sides, sides), 1 / sides), rates

    def next(self, prices: Array, broken: Array, apart: Array) -> Array:
        nothing = np.zeros((1, prices.shape[1]))
        gain = np.concatenate([nothing, broken, apart])
        outer = np.einsum("ib,jb->bij", gain, prices)
        grown = self.matrix * np.exp(self.rates[:, None, None] * outer)
        self.matrix = grown / grown.sum(axis=1, keepdims=True)
        return stationary_distributions(self.matrix)


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


class Iterate(NamedTuple):
    """Classifiers that were kept in a step, in B lanes.

    Attributes
    ----------
    answer
        The classifiers, as `ClassifierPlayer.move` returns them.
    rates
        (K, B) their rates on all rows.
    prices
        (1 + J + S, B) the multipliers to which they responded.
    """

    step: int
    answer: Any
    rates: Array
    prices: Array


class ThreePlayerGame:
    """Simultaneous steps of all players (Algorithms 2 and 3 and relatives).

    Slacks are best responses where these have a closed form; the others descend. Slacks that follow
    the leader are the mean of their arguments so far, and their multipliers the slopes of the atoms
    there. If an atom is concave, those of all ratios do. If all do, it is Frank-Wolfe if the
    classifier is an oracle and rates are true, and NEMSIS if it descends and rates are hinges
    (protocols 3.2, B.1).

    Attributes
    ----------
    followers
        (S,) whether a slack follows the leader.
    kinked
        (S,) whether its atom has kinks. Slopes jump there, so a follower's multiplier is the mean
        of all slopes so far.
    slack_rates
        (B,) the step sizes of the slacks that descend.
    prices
        (1 + J + S, B) the multipliers: at first 1 for the objective, 0 for constraints, and those
        of slacks that make the initial slacks best responses.
    slacks
        (S, B)
    """

    def __init__(
        self,
        form: ProgramLagrangian,
        player: ClassifierPlayer,
        multipliers: MultiplierPlayer,
        slack_rates: Array,
        *,
        leader: bool = False,
    ) -> None:
        """With `leader`, the slacks of all atoms follow the leader."""
        self.form, self.player, self.multipliers = form, player, multipliers
        self.slack_rates, lanes = slack_rates, len(slack_rates)
        self.slacks = np.zeros((len(form.signs), lanes))
        self.followers = np.full(len(form.signs), leader)
        kinds = [each.atom.kind for each in form.bundles]
        self.kinked = np.zeros_like(self.followers)
        for bundle, kind in zip(form.bundles, kinds, strict=True):
            ratio = kind in {RATIO, NEGATIVE_RATIO}
            self.followers[bundle.slots] |= ratio and NEGATIVE_RATIO in kinds
            self.kinked[bundle.slots] = kind.kinked
            self.slacks[bundle.slots] = kind.start
        self._own = [each for each in form.bundles if not self.followers[each.slots[0, 0]]]
        # the slopes of a ratio are steep where the first denominator is 0: begin at the start
        self._taken = 0 if leader else 1
        self._total, self._slopes = self._taken * self.slacks, 0.0 * self.slacks
        prices = np.append(1.0, np.zeros(form.constraints))[:, None] * np.ones(lanes)
        self.prices = np.concatenate([prices, form.slack_multipliers(prices, self.slacks)])
        if isinstance(multipliers, SwapRegret):
            self.prices = np.full_like(self.prices, 1 / len(self.prices))

    def play(self, steps: int, every: int) -> list[Iterate]:
        """Run `steps` steps and keep the iterates 0, `every`, 2 `every`, ... and the last one."""
        kept = []
        for step in range(steps + 1):
            prices = self.prices
            answer, rates = self.step()
            if step % every == 0 or step == steps:
                kept.append(Iterate(step, answer, rates, prices))
        known = self.player.rates_on_all_rows([each.answer for each in kept])
        if known is None:
            return kept
        return [each._replace(rates=rates) for each, rates in zip(kept, known, strict=True)]

    def step(self) -> tuple[Any, Array]:
        """Advance all players by one step.

        Return the classifiers that responded to the current multipliers, and their rates (K, B), as
        `ClassifierPlayer.move` does.
        """
        first = 1 + self.form.constraints
        answer, rates = self.player.move(self.prices)
        terms = self.player.terms(answer, rates)
        signs = self.form.signs
        pulls, signed = signs * self.prices[first:], terms[first:]
        if self.followers.any():
            self._total, self._taken = self._total + signs * signed, self._taken + 1
            mean = self.form.boxed(self._total / self._taken)
            self.slacks[self.followers] = mean[self.followers]
        for bundle in self._own:
            if bundle.atom.kind.respond is not None:
                weight, pull = self.prices[bundle.owners], pulls[bundle.slots]
                self.slacks[bundle.slots] = bundle.atom.respond(weight, pull)
        broken = terms[1:first] + self.form.values(self.slacks)
        apart = signed - signs * self.slacks
        for bundle in self._own:
            if bundle.atom.kind.respond is None:
                slacks, weight = self.slacks[bundle.slots], self.prices[bundle.owners]
                slopes = weight * bundle.atom.slopes(slacks) - pulls[bundle.slots]
                self.slacks[bundle.slots] = bundle.atom.boxed(slacks - self.slack_rates * slopes)
        self.prices = self.multipliers.next(self.prices, broken, apart)
        if self.followers.any():
            slopes = self.form.slack_multipliers(self.prices[:first], self.slacks)
            self._slopes += (slopes - self._slopes) / self._taken
            slopes[self.kinked] = self._slopes[self.kinked]
            self.prices[first:][self.followers] = slopes[self.followers]
        return answer, rates
