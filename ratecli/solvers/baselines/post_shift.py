"""One threshold per group on a plain classifier's score: the algorithm `post_shift`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ratecli.models.base import Classifier
from ratecli.models.group_threshold import GroupThreshold
from ratecli.models.mixture import MixtureClassifier
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.baselines.group_hull import (
    CutIndices,
    GroupHull,
    couple_group_cuts,
    cuts_by_group,
    goal_directions,
)
from ratecli.solvers.baselines.plain import ClassificationLoss, fit_plain_classifier
from ratecli.solvers.baselines.single_cuts import best_deterministic_cuts
from ratecli.solvers.feasibility import unmet_status
from ratecli.solvers.groups import Groups
from ratecli.solvers.hull.forms import UNDEFINED_RATIO_REASON, RateProgram
from ratecli.solvers.problem import Problem

MAX_ROUNDS = 100


def solve_post_shift(
    problem: Problem,
    loss: ClassificationLoss,
    gap: float,
    rng: np.random.Generator,
    progress: Progress,
) -> Solution:
    """Return the best random and the best single choice of thresholds: see `solvers.PostShift`.

    This is column generation over the cuts of groups: find the best point of the hull of some cuts,
    then add cuts that are cheap at its prices.
    """
    begun, trace = time.perf_counter(), list[dict[str, Any]]()
    scorer, short = fit_plain_classifier(problem, loss, rng)
    progress(f"{loss} loss fitted")
    program, kinds = RateProgram.of(problem), RowKinds.by(problem.rates)
    groups = Groups.of_problem(problem)
    cells = cuts_by_group(scorer.score(problem.X), groups, kinds, goal_directions(program))
    hull, ended = GroupHull(program, kinds, cells, gap), False
    while not ended and len(trace) < MAX_ROUNDS:
        optimum = hull.best()
        promised, more = hull.cheaper(optimum)
        kept = sum(map(len, hull.kept))
        ended = promised <= 0.5 * gap or kept == sum(map(len, more))
        bound = optimum.bound - max(promised, 0.0)
        optimum = hull.settled(optimum) if ended else optimum
        left = optimum.value - bound
        chances = hull.chances(optimum)
        hull.kept = more
        row = {
            "iteration": len(trace) + 1,
            "objective": float(program.value(program.objective, optimum.rates)),
            "violation": max(float(program.excess(optimum.rates)), 0.0),
            "cuts": kept,
            "seconds": time.perf_counter() - begun,
        }
        trace.append(row | ({"gap": left} if hull.sure and np.isfinite(left) else {}))
        progress(f"objective {row['objective']:.5g}, violation {row['violation']:.2g}, {kept} cuts")
    single = best_deterministic_cuts(hull, optimum, bound, chances)
    choices, weights = couple_group_cuts(chances)
    if hull.feasible and not single.violation and single.objective < optimum.value - gap:
        # an interrupted search may return a random choice that is worse than the single one
        choices, weights = single.cuts[None, :], np.ones(1)
        left += single.objective - optimum.value
        trace[-1]["objective"] = single.objective
    trace[-1]["exact"] = single.exact

    def classifier(cuts: CutIndices) -> GroupThreshold:
        thresholds = [cell.thresholds[cut] for cell, cut in zip(cells, cuts, strict=True)]
        return GroupThreshold(scorer, groups.slices, groups.patterns, np.array(thresholds))

    variants: dict[str, Classifier] = {
        "stochastic": MixtureClassifier(tuple(map(classifier, choices)), weights),
        "deterministic": classifier(single.cuts),
    }
    multipliers = program.by_goal(optimum.multipliers)
    if not hull.feasible:
        missed = trace[-1]["violation"]
        reason = f"every choice of thresholds misses some constraint by {missed:.3g} or more"
        status, reason = unmet_status(program, kinds, reason)
        return Solution(variants, status, reason, multipliers, tuple(trace))
    if program.missed(optimum.rates) == np.inf:
        reason = UNDEFINED_RATIO_REASON
    elif ended and left <= gap:
        reason = short
    elif np.isinf(left):
        reason = "the search for the best random choice gave up"
    else:
        reason = f"the objective may be {left:.2g} above the least one"
    status = "iteration_limit" if reason else "solved"
    return Solution(variants, status, reason, multipliers, tuple(trace))
