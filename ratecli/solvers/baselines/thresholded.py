"""A plain classifier with a threshold moved to satisfy constraints: the algorithm `thresholded`."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from ratecli.models.base import Array
from ratecli.models.linear import Threshold
from ratecli.rates.analysis import Goal
from ratecli.rates.matrix import RateMatrix, RowKinds
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.baselines.plain import ClassificationLoss, fit_plain_classifier
from ratecli.solvers.feasibility import unmet_status
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.numerics.thresholds import SCORE_TIE, Thresholds
from ratecli.solvers.problem import Problem

ROUNDING = 1e-12
"""Rounding error of a sum of a few exact rates."""


def threshold_rates(scores: Array, matrix: RateMatrix, own: float) -> tuple[Array, Array]:
    """Return all thresholds (T,) on scores (n,), descending, and the rates (K, T) at each.

    The threshold `own` is kept as it is if it lies between two neighbouring scores. Sums of row
    weights are divided last, so that with weights of 1 the rates are exact to the last bit.
    """
    cuts = Thresholds.of(scores)
    values = cuts.values.copy()
    if np.abs(scores - own).min() > SCORE_TIE * max(float(np.abs(scores).max()), 1.0):
        values[cuts.counts == (scores > own).sum()] = own
    sums = cuts.positive_sums(matrix.sums.toarray()) + matrix.constants[:, None]
    return values, sums / matrix.totals[:, None]


def solve_thresholded(
    problem: Problem,
    goals: tuple[Goal, ...],
    loss: ClassificationLoss,
    rng: np.random.Generator,
    progress: Progress,
) -> Solution:
    """Return the plain classifier with the best threshold that satisfies the given constraints."""
    begun = time.perf_counter()
    plain, short = fit_plain_classifier(problem, loss, rng)
    progress(f"{loss} loss fitted")
    own = -plain.bias
    thresholds, rates = threshold_rates(problem.X @ plain.weights, problem.rates, own)
    program = RateProgram.of(replace(problem, constraints=goals))
    missed = program.missed(rates, ROUNDING)
    allowed = missed == 0
    if not allowed.any():
        reason = _unmet_reason(program, rates[:, missed.argmin()])
        return Solution({}, *unmet_status(program, RowKinds.by(problem.rates), reason))
    values = program.value(program.objective, rates)
    known = np.nan_to_num(values, nan=np.inf)  # undefined is worse than any other value
    least = allowed & (known <= known[allowed].min() + ROUNDING)
    best = int(np.where(least, np.abs(thresholds - own), np.inf).argmin())
    classifier = Threshold(plain.weights, -float(thresholds[best]))
    row = {
        "iteration": 1,
        "objective": float(values[best]),
        "violation": problem.violation(classifier),
        "shift": own - float(thresholds[best]),
        "seconds": time.perf_counter() - begun,
    }
    status = "iteration_limit" if short else "solved"
    return Solution({"deterministic": classifier}, status, short, trace=(row,))


def _unmet_reason(program: RateProgram, rates: Array) -> str:
    """Return why there is no solution, given the rates (K,) of the threshold that misses least."""
    excess = [float(program.value(form, rates)) for form in program.constraints]
    worst = int(np.argmax(excess))
    names = " and ".join(f"'{name}'" for name in dict.fromkeys(program.owners))
    return (
        f"no threshold meets {names}: the best one misses '{program.owners[worst]}' "
        f"by {excess[worst]:.3g}"
    )
