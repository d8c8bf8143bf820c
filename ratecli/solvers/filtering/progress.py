"""The paper's split: the step towards the target, as a rate-constrained problem (Algorithm 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ratecli.models.base import Array
from ratecli.models.mixture import Mixture as Stochastic
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import Goal, objective_goal, rule_goal
from ratecli.rates.matrix import RateMatrix
from ratecli.solvers.filtering.aim import Aim
from ratecli.solvers.filtering.split import Leaf, Split
from ratecli.solvers.filtering.weights import Sampling, sampling
from ratecli.solvers.mixture.solver import Mixture
from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class Progressing:
    """Splits a leaf by the most progress `<R(V1) - R(V), U - U'> w(V1)` that keeps both children secret.

    R are the shares of groups in a leaf, w its mass, U the target and U' its projection on the hull of the
    leaves. With offset `literal` each unit of mass has to bring `|U - U'| f(gamma)` (Lemma 4, the sign of
    its last term corrected). The program is linear in the split and is given to `mixture`, each leaf with
    the weights of its rows.
    """

    aim: Aim
    problem: Problem
    offset: str
    gamma: float
    gap: float
    calls: int
    oracle: Any
    relaxed: bool
    rng: np.random.Generator

    def __call__(self, leaves: Sequence[Leaf], own: int) -> Split | None:
        """Of the offsets that are tried, the split after which the hull is nearer."""
        literal = {"zero": (False,), "literal": (True,), "both": (False, True)}[self.offset]
        found = [split for each in literal if (split := self._split(leaves, own, each)) is not None]
        return min(found, key=lambda split: split.distance, default=None)

    def _split(self, leaves: Sequence[Leaf], own: int, literal: bool) -> Split | None:
        leaf = leaves[own]
        away = self._projection(leaves) - self.aim.target
        shares = leaf.mass[self.aim.balanced] / leaf.mass[-1]
        step = float(shares @ away)
        if literal:
            size = float(np.linalg.norm(away))
            off = float(np.linalg.norm(shares - (away + self.aim.target)))
            step -= size * needed(self.gamma, off)
        solution = Mixture(gap=self.gap, calls=self.calls, oracle=self.oracle).solve(
            self._problem(leaf, away, step), self.rng, _silent
        )
        classifier = solution.variants["stochastic"]
        assert isinstance(classifier, Stochastic)
        yes = leaf.ground.rates(leaf.ground.decide(classifier))
        if not min(yes[-1], leaf.mass[-1] - yes[-1]) > 0:
            return None
        after = [each.mass for k, each in enumerate(leaves) if k != own]
        masses = np.stack([*after, leaf.mass - yes, yes])
        return Split(classifier, self._weights(masses).residual, float(solution.trace[-1]["gap"]))

    def _projection(self, leaves: Sequence[Leaf]) -> Array:
        return self._weights(np.stack([leaf.mass for leaf in leaves])).induced

    def _weights(self, masses: Array) -> Sampling:
        sizes = masses[:, -1]
        shares = masses[:, self.aim.balanced] / sizes[:, None]
        return sampling(shares, sizes, self.aim.target, relaxed=self.relaxed)

    def _problem(self, leaf: Leaf, away: Array, step: float) -> Problem:
        """On the rows of the leaf, as shares of its mass."""
        size = float(leaf.mass[-1])
        names, whole = self.aim.kinds.matrix.leaves, self.aim.kinds.matrix.leaves[-1]
        aims = {names[k]: float(cost) for k, cost in zip(self.aim.balanced, away, strict=True)}
        progress = Affine(aims) + Affine({whole: -step})
        return replace(
            self.problem,
            rates=_weighed(self.aim.kinds.matrix, leaf.chances),
            objective=objective_goal("progress", (progress * (1 / size)).expression()),
            constraints=tuple(self._secrets(leaf)),
            validation=None,
        )

    def _secrets(self, leaf: Leaf) -> Iterator[Goal]:
        """The four families of appendix A.4 for each group, multiplied by their denominators."""
        matrix, size = self.aim.kinds.matrix, float(leaf.mass[-1])
        whole = matrix.leaves[-1]
        terms = zip(self.aim.secret, self.aim.base, self.aim.alpha, strict=True)
        for k, base, alpha in terms:
            group = matrix.leaves[k]
            held = float(leaf.mass[k])
            for sign in (1.0, -1.0):
                yes = Affine({group: sign}) + Affine({whole: -sign * base - alpha})
                no = yes * -1.0 + Affine({}, sign * held - (sign * base + alpha) * size)
                for form in (yes, no):
                    rule = (form * (1 / size)).expression()
                    yield rule_goal(f"secret {k}", "", (rule,), rule)


def needed(gamma: float, off: float) -> float:
    """f(gamma) of Lemma 3, where the leaf is `off` away from the projection."""
    g = 2 * gamma - gamma**2
    inner = np.sqrt(max(2 - g * off**2, 0.0))
    return float(np.sqrt(g) * np.sqrt(max(2 - off**2 + 2 * off * (1 - gamma) * inner, 0.0)))


def _weighed(matrix: RateMatrix, chances: Array) -> RateMatrix:
    """The same rates where rows count with chances (n,): still shares of all rows."""
    return replace(matrix, sums=matrix.sums.multiply(chances[None, :]).tocsr())


def _silent(_: str) -> None:
    pass
