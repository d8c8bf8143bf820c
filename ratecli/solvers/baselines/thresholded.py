"""A plain classifier whose threshold is moved until a goal is met: the baseline of figure 3."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.linear import Threshold
from ratecli.rates.analysis import Goal
from ratecli.rates.matrix import RateMatrix, RowKinds
from ratecli.rates.sample import Mask
from ratecli.solvers.base import ConstraintName, Progress, Role, Solution, Solver
from ratecli.solvers.baselines.plain import fit_plain_classifier
from ratecli.solvers.feasibility import unmet_status
from ratecli.solvers.hull.forms import PROGRAM_SHAPES, RateProgram
from ratecli.solvers.problem import Problem

SCORE_TIE = 1e-12
"""Scores nearer than this, relative to the largest, are one: in another matrix product the same row
may get another last bit, and is to be decided alike."""

OUTER_MARGIN = 1.0
"""How far the thresholds of all yes and of all no lie beyond the scores: that of an SVM."""


@dataclass(frozen=True)
class ThresholdRates:
    """The T ways to say yes above a threshold, from all yes to all no.

    Attributes
    ----------
    thresholds
        (T,) ascending, midway between neighbouring scores.
    rates
        (K, T) the rates of the matrix at each: sums of row weights, divided last, so that with
        weights of 1 they are exact to the last bit.
    """

    thresholds: Array
    rates: Array

    @classmethod
    def of(cls, scores: Array, matrix: RateMatrix, own: float) -> ThresholdRates:
        """All cuts of scores (n,), n at least 1: n log n steps, and n for each rate.

        The threshold `own` stays as it is where it lies between two neighbours.
        """
        order = np.argsort(scores, kind="stable")
        ranked = scores[order]
        tie = SCORE_TIE * max(float(np.abs(ranked).max()), OUTER_MARGIN)
        inner = 1 + np.flatnonzero(np.diff(ranked) > tie)
        sums = [_suffix_sums(row.toarray().ravel()[order])[[0, *inner, -1]] for row in matrix.sums]
        rates = (np.stack(sums) + matrix.constants[:, None]) / matrix.totals[:, None]
        return cls(_place_thresholds(ranked, inner, tie, own), rates)


def _place_thresholds(ranked: Array, inner: NDArray[np.intp], tie: float, own: float) -> Array:
    """Thresholds below the first, between the others at `inner`, and above the last score."""
    below, above = ranked[[*(inner - 1), -1]], ranked[[0, *inner]]
    middles = below[:-1] + 0.5 * (above[1:] - below[:-1])
    found = np.concatenate([above[:1] - OUTER_MARGIN, middles, below[-1:] + OUTER_MARGIN])
    near = np.append(-np.inf, below) + tie < own, own < np.append(above, np.inf) - tie
    return np.where(near[0] & near[1], own, found)


def _suffix_sums(ranked: Array) -> Array:
    """(n + 1,) sums of the last n, n - 1, ..., 0 numbers."""
    return np.append(np.cumsum(ranked[::-1])[::-1], 0.0)


ROUNDING = 1e-12
"""What a sum of a few exact rates may be off by."""


@dataclass(frozen=True)
class Thresholded(Solver):
    """A linear classifier whose bias is shifted until goals are met (Goh et al. 2016, figure 3).

    The classifier is that of `unconstrained`, an SVM to a certified gap. Of all thresholds on its
    scores that meet the goals on training rows it takes the one of least objective, and of equally
    good ones the nearest to the classifier's own: every threshold is looked at, so goals may be of
    any class that can be measured on decisions. Goals that one threshold cannot meet together need
    not be named: `meets` chooses one.

    With `loss: logistic`, `free: true` and the objective `1 - f1` it is the plug-in classifier for
    the F-measure (UncF1 of Narasimhan et al. 2019, table 4), but that the paper chooses among 1000
    quantiles of the validation scores and this one among all training scores.

    Attributes
    ----------
    meets
        The constraint to meet; all of them if none is named.
    free
        Whether no constraint is to be met: the least objective of all thresholds.
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
        """Raises KeyError where none has the name that `meets` says: runs never come so far."""
        if self.free:
            return ()
        named = {goal.name: goal for goal in constraints}
        return constraints if self.meets is None else (named[self.meets],)


def _best_cut(cuts: ThresholdRates, values: Array, allowed: Mask, own: float) -> int:
    """Of the allowed cuts the one of least value, of equals the nearest to the threshold `own`.

    What has no value is worse than all that has one.
    """
    known = np.nan_to_num(values, nan=np.inf)
    least = allowed & (known <= known[allowed].min() + ROUNDING)
    return int(np.where(least, np.abs(cuts.thresholds - own), np.inf).argmin())


def _unmet_reason(cuts: ThresholdRates, program: RateProgram, cut: int) -> str:
    """Why there is no solution: what the cut of least excess misses."""
    missed = dict.fromkeys(program.owners, -np.inf)
    for name, form in zip(program.owners, program.constraints, strict=True):
        missed[name] = max(missed[name], float(program.value(form, cuts.rates[:, cut])))
    names = " and ".join(f"'{name}'" for name in missed)
    worst = max(missed, key=lambda name: missed[name])
    return f"no threshold meets {names}: the best one misses '{worst}' by {missed[worst]:.3g}"
