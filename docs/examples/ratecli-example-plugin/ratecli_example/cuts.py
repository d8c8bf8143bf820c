"""A search among thresholds on one score, a threshold for each group that goals name."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from ratecli.models.base import Array, Features
from ratecli.models.composed import GroupThreshold
from ratecli.models.linear import Threshold
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.problem import Groups, Problem

ROUNDING = 1e-9


@dataclass(frozen=True)
class RandomCuts(Solver):
    """The best of many random thresholds for groups, on the score that tells labels apart by means.

    Attributes
    ----------
    tries
        How many thresholds are drawn for each group.
    """

    tries: Annotated[int, Ge(1)] = 300

    version: ClassVar[int] = 1
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE, Shape.CONVEX, Shape.RATIO})
    constraints: ClassVar[frozenset[str]] = objectives | {Shape.RATIO_SUM}

    @property
    def sees_slices(self) -> bool:
        return True

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        scorer = Threshold(_direction(problem))
        groups = Groups.of_problem(problem)
        scores = scorer.score(problem.X)
        span = scores.min() - 1.0, scores.max()
        best, least = None, (np.inf, np.inf)
        for draw in rng.uniform(*span, size=(self.tries, len(groups.patterns))):
            found = GroupThreshold(scorer, groups.slices, groups.patterns, draw)
            missed = max(problem.violation(found) - ROUNDING, 0.0)
            key = missed, float(np.nan_to_num(problem.value(found), nan=np.inf))
            if best is None or key < least:
                best, least = found, key
        progress(f"{self.tries} thresholds tried")
        if best is None or least[0] > 0:
            return Solution({}, "no_solution_found", "no thresholds drawn meet the constraints")
        return Solution({"deterministic": best})


def _direction(problem: Problem) -> Array:
    """(d,) from the mean of negative rows to that of positive ones, in standard deviations."""
    signs, weights = problem.labels()
    apart = sum(
        (sign * _mean(problem.X, weights * (signs == sign)) for sign in (1, -1)),
        start=np.zeros(problem.X.shape[1]),
    )
    mean = _mean(problem.X, weights)
    variance = _mean(problem.X**2, weights) - mean**2
    return np.divide(apart, variance, out=np.zeros_like(apart), where=variance > ROUNDING)


def _mean(X: Features, weights: Array) -> Array:
    return np.asarray(X.T @ weights, dtype=float) / max(float(weights.sum()), ROUNDING)
