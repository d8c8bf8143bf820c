"""What is made of the iterates of a game: the choice among them, and the mixture of a few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from ratecli.models.base import Array
from ratecli.solvers.hull.best import optimize_over_hull
from ratecli.solvers.hull.columns import RatePoints
from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RateProgram
from ratecli.solvers.hull.relaxation import Relaxation

SHRINK_GAP = 1e-5
SHRINK_SLACK = 1e-6
"""Added to the least violation that can be had, so that it can be had in rounded numbers too."""


def best_iterate(objectives: Array, violations: Array) -> int:
    """The iterate whose worse rank, by objective (T,) or by violation (T,), is least.

    Equal values share the smallest rank, and what is not violated is equal. Ties go to the lesser
    objective, then to the later iterate (protocols 3.5, vector 9.11).
    """
    ranks = [rankdata(each, method="min") for each in (objectives, np.maximum(violations, 0.0))]
    worse = np.max(ranks, axis=0)
    order = np.lexsort((-np.arange(len(worse)), objectives, worse))
    return int(order[0])


@dataclass(frozen=True)
class ShrunkMixture:
    """Chances (T,) of few iterates, and the violation that was allowed, 0 if none was needed."""

    chances: Array
    allowed: float


def shrink_mixture(program: RateProgram, rates: Array) -> ShrunkMixture:
    """The best mixture of iterates with rates (K, T): a vertex, so it has few of them.

    Goals are functions of the mixture's rates, as they are when it is measured. Where no mixture meets
    all constraints, they are loosened by the least amount that lets one (protocols 3.5). Where some
    constraint is undefined for all of them (a ratio of nothing) the last is taken.
    """
    columns = RatePoints.classifiers(rates)
    found = optimize_over_hull(Relaxation(program, columns), SHRINK_GAP)
    if found is not None:
        return ShrunkMixture(found.weights, 0.0)
    nearest = optimize_over_hull(Relaxation(program, columns, elastic=True), SHRINK_GAP)
    if nearest is None:
        return _last_iterate(rates.shape[1])
    allowed = max(nearest.value, 0.0) + SHRINK_SLACK
    found = optimize_over_hull(Relaxation(program.loosened(allowed), columns), SHRINK_GAP)
    return ShrunkMixture((found or nearest).weights, allowed)


def shrink_by_metrics(objectives: Array, violations: Array) -> ShrunkMixture:
    """The same with goals averaged over the mixture as if they were rates: the published program.

    Objectives are (T,), violations (J, T). Of a ratio the mixture may have another value than the
    mean of its members' (vectors 9.6 and 9.10). An iterate with a metric that is not defined (a
    ratio of nothing) is no candidate, unless all are such: then the last is taken.
    """
    metrics = np.vstack([objectives[None], violations])
    known = np.isfinite(metrics).all(axis=0)
    if not known.all():
        if not known.any():
            return _last_iterate(len(objectives))
        found = shrink_by_metrics(objectives[known], violations[:, known])
        chances = np.zeros(len(objectives))
        chances[known] = found.chances
        return ShrunkMixture(chances, found.allowed)
    count = len(metrics)
    unit = [ProgramForm(LinearTerm(row, 0.0), np.zeros(0)) for row in np.eye(count)]
    program = RateProgram(unit[0], tuple(unit[1:]), (), ("",) * (count - 1), {})
    return shrink_mixture(program, metrics)


def _last_iterate(count: int) -> ShrunkMixture:
    """The last of some iterates alone, none of which has a violation that is known."""
    return ShrunkMixture(np.eye(count)[-1], np.inf)
