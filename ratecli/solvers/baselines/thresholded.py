"""A plain classifier whose threshold is moved until a goal is met: the baseline of figure 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ratecli.models.linear import Threshold
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import Goal, Shape, affine_pieces
from ratecli.solvers.base import ConstraintName, Progress, Role, Solution, Solver
from ratecli.solvers.baselines.cuts import Cuts
from ratecli.solvers.baselines.svm import GAP, plain_svm
from ratecli.solvers.majorize.solution import ConvexSolution
from ratecli.solvers.problem import Problem

Mask = NDArray[np.bool_]

ROUNDING = 1e-12
"""What a sum of a few exact rates may be off by."""


@dataclass(frozen=True)
class Thresholded(Solver):
    """A linear SVM whose bias is shifted until goals are met (Goh et al. 2016, figure 3).

    The SVM is that of `unconstrained`, but to a certified gap. Of all thresholds on its scores that
    meet the goals on training rows it takes the one of least objective, and of equally good ones
    the nearest to the SVM's own: every threshold is looked at. Goals that one threshold cannot meet
    together need not be named: `meets` chooses one.

    Attributes
    ----------
    meets
        The constraint to meet; all of them if none is named.
    """

    meets: ConstraintName | None = None

    version: ClassVar[int] = 1
    role: ClassVar[Role] = "reads"
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})

    def solve(
        self,
        problem: Problem,
        rng: np.random.Generator,  # noqa: ARG002  nothing is left to chance
        progress: Progress,
    ) -> Solution:
        svm = plain_svm(problem)
        progress("hinge loss fitted")
        weights, own = 2 * svm.w[:-1], -2 * float(svm.w[-1])
        cuts = Cuts.of(np.asarray(problem.X @ weights), problem.rates, own)
        goals = self._to_meet(problem.constraints)
        excess = cuts.largest(form for goal in goals for form in affine_pieces(goal))
        allowed = excess <= ROUNDING
        if not allowed.any():
            return Solution({}, "no_solution_found", _nearest(cuts, goals, int(excess.argmin())))
        (objective,) = affine_pieces(problem.objective)
        chosen = _best(cuts, objective, allowed, own)
        threshold = float(cuts.thresholds[chosen])
        row = {
            "iteration": 1,
            "objective": float(cuts.values(objective)[chosen]),
            "violation": max(float(excess[chosen]), 0.0),
            "shift": own - threshold,
        }
        classifier = Threshold(weights, -threshold)
        return Solution({"deterministic": classifier}, *_ending(svm), trace=(row,))

    def _to_meet(self, constraints: tuple[Goal, ...]) -> tuple[Goal, ...]:
        """Raises KeyError where none has the name that `meets` says: runs never come so far."""
        named = {goal.name: goal for goal in constraints}
        return constraints if self.meets is None else (named[self.meets],)


def _ending(svm: ConvexSolution) -> tuple[str, str]:
    if svm.converged:
        return "solved", ""
    return "iteration_limit", (
        f"the SVM stopped after {svm.work} Newton steps with a gap of {svm.gap:.2g}, above {GAP:.2g} "
        "of its loss"
    )


def _best(cuts: Cuts, objective: Affine, allowed: Mask, own: float) -> int:
    """Of the allowed cuts the one of least objective, of equals the nearest to the threshold `own`."""
    values = np.where(allowed, cuts.values(objective), np.inf)
    far = np.abs(cuts.thresholds - own)
    return int(np.where(values <= values.min() + ROUNDING, far, np.inf).argmin())


def _nearest(cuts: Cuts, goals: tuple[Goal, ...], cut: int) -> str:
    """Why there is no solution: what the cut of least excess misses."""
    missed = {goal.name: float(cuts.largest(affine_pieces(goal))[cut]) for goal in goals}
    names = " and ".join(f"'{name}'" for name in missed)
    worst = max(missed, key=lambda name: missed[name])
    return f"no threshold meets {names}: the best one misses '{worst}' by {missed[worst]:.3g}"
