"""The `thresholded` algorithm: a plain classifier with a threshold moved to meet constraints."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.rates.analysis import PROGRAM_SHAPES, Goal
from ratecli.solvers.base import ConstraintName, Progress, Role, Solution, Solver

if TYPE_CHECKING:
    from ratecli.models.base import Array
    from ratecli.rates.matrix import RateMatrix
    from ratecli.rates.sample import Mask
    from ratecli.solvers.hull.forms import RateProgram
    from ratecli.solvers.problem import Problem

SCORE_TIE = 1e-12
"""Scores closer than this, relative to the largest, are equal: the last bit of a row's score may
differ between matrix products, and equal rows must get equal decisions.
"""

OUTER_MARGIN = 1.0
"""Distance of the outermost thresholds from the scores: the margin of an SVM."""


@dataclass(frozen=True)
class ThresholdRates:
    """Rates of the T thresholds on scores, from only positive to only negative decisions.

    Attributes
    ----------
    thresholds
        (T,) ascending, midway between neighbouring scores.
    rates
        (K, T) rates of the matrix at each threshold. Sums of row weights are divided last, so that
        with weights of 1 they are exact to the last bit.
    """

    thresholds: Array
    rates: Array

    @classmethod
    def of(cls, scores: Array, matrix: RateMatrix, own: float) -> ThresholdRates:
        """Return all thresholds on scores (n,), n at least 1.

        Takes O(n log n) time plus O(n) for each rate. The threshold `own` is kept as it is if it
        lies between two neighbouring scores.
        """
        order = np.argsort(scores, kind="stable")
        ranked = scores[order]
        tie = SCORE_TIE * max(float(np.abs(ranked).max()), OUTER_MARGIN)
        inner = 1 + np.flatnonzero(np.diff(ranked) > tie)
        sums = [_suffix_sums(row.toarray().ravel()[order])[[0, *inner, -1]] for row in matrix.sums]
        rates = (np.stack(sums) + matrix.constants[:, None]) / matrix.totals[:, None]
        return cls(_place_thresholds(ranked, inner, tie, own), rates)


def _place_thresholds(ranked: Array, inner: NDArray[np.intp], tie: float, own: float) -> Array:
    """Return thresholds below all scores, between scores at the indices `inner`, and above all."""
    below, above = ranked[[*(inner - 1), -1]], ranked[[0, *inner]]
    middles = below[:-1] + 0.5 * (above[1:] - below[:-1])
    found = np.concatenate([above[:1] - OUTER_MARGIN, middles, below[-1:] + OUTER_MARGIN])
    near = np.append(-np.inf, below) + tie < own, own < np.append(above, np.inf) - tie
    return np.where(near[0] & near[1], own, found)


def _suffix_sums(ranked: Array) -> Array:
    """Return (n + 1,) sums of the last n, n - 1, ..., 0 numbers."""
    return np.append(np.cumsum(ranked[::-1])[::-1], 0.0)


ROUNDING = 1e-12
"""Rounding error of a sum of a few exact rates."""


@dataclass(frozen=True)
class Thresholded(Solver):
    """A linear classifier whose bias is shifted to satisfy constraints (Goh et al. 2016, figure 3).

    The classifier is that of `unconstrained`, an SVM with a certified gap. Of all thresholds on its
    scores that satisfy the constraints on the training set, the one with the smallest objective is
    chosen, and among equally good ones the one nearest to the classifier's own. Every threshold is
    evaluated, so goals may be of any class that can be computed from decisions. If one threshold
    cannot satisfy all constraints together, `meets` selects one of them.

    With `loss: logistic`, `free: true` and the objective `1 - f1` this is the plug-in classifier
    for the F-measure (UncF1 of Narasimhan et al. 2019, table 4), except that the paper chooses
    among 1000 quantiles of the validation scores, and this algorithm among all training scores.

    Attributes
    ----------
    meets
        The constraint to satisfy; all of them by default.
    free
        Whether to ignore the constraints and minimize the objective over all thresholds.
    loss
        `hinge` (linear SVM) or `logistic` (by LIBLINEAR).
    """

    meets: ConstraintName | None = None
    free: bool = False
    loss: Literal["hinge", "logistic"] = "hinge"

    version: ClassVar[int] = 2
    role: ClassVar[Role] = "reads"
    objectives: ClassVar[frozenset[str]] = PROGRAM_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    def __post_init__(self) -> None:
        if self.free and self.meets is not None:
            raise ValueError("meets: with free: true no constraint is met")

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.models.linear import Threshold
        from ratecli.rates.matrix import RowKinds
        from ratecli.solvers.baselines.plain import fit_plain_classifier
        from ratecli.solvers.feasibility import unmet_status
        from ratecli.solvers.hull.forms import RateProgram

        begun = time.perf_counter()
        plain, short = fit_plain_classifier(problem, self.loss, rng)
        progress(f"{self.loss} loss fitted")
        own = -plain.bias
        cuts = ThresholdRates.of(np.asarray(problem.X @ plain.weights), problem.rates, own)
        goals = self._to_meet(problem.constraints)
        program = RateProgram.of(replace(problem, constraints=goals))
        missed = program.missed(cuts.rates, ROUNDING)
        allowed = missed == 0
        if not allowed.any():
            reason = _unmet_reason(cuts, program, int(missed.argmin()))
            return Solution({}, *unmet_status(program, RowKinds.by(problem.rates), reason))
        values = program.value(program.objective, cuts.rates)
        chosen = _best_cut(cuts, values, allowed, own)
        threshold = float(cuts.thresholds[chosen])
        classifier = Threshold(plain.weights, -threshold)
        row = {
            "iteration": 1,
            "objective": float(values[chosen]),
            "violation": problem.violation(classifier),
            "shift": own - threshold,
            "seconds": time.perf_counter() - begun,
        }
        status = "iteration_limit" if short else "solved"
        return Solution({"deterministic": classifier}, status, short, trace=(row,))

    def _to_meet(self, constraints: tuple[Goal, ...]) -> tuple[Goal, ...]:
        """Return the constraints to satisfy.

        Raises
        ------
        KeyError
            If none has the name given by `meets`. Files like that are rejected before a run.
        """
        if self.free:
            return ()
        named = {goal.name: goal for goal in constraints}
        return constraints if self.meets is None else (named[self.meets],)


def _best_cut(cuts: ThresholdRates, values: Array, allowed: Mask, own: float) -> int:
    """Return the allowed cut of smallest value; of equal ones the nearest to the threshold `own`.

    An undefined value is worse than any other.
    """
    known = np.nan_to_num(values, nan=np.inf)
    least = allowed & (known <= known[allowed].min() + ROUNDING)
    return int(np.where(least, np.abs(cuts.thresholds - own), np.inf).argmin())


def _unmet_reason(cuts: ThresholdRates, program: RateProgram, cut: int) -> str:
    """Return why there is no solution: the violations of the cut with the smallest one."""
    missed = dict.fromkeys(program.owners, -np.inf)
    for name, form in zip(program.owners, program.constraints, strict=True):
        missed[name] = max(missed[name], float(program.value(form, cuts.rates[:, cut])))
    names = " and ".join(f"'{name}'" for name in missed)
    worst = max(missed, key=lambda name: missed[name])
    return f"no threshold meets {names}: the best one misses '{worst}' by {missed[worst]:.3g}"
