"""Algorithm 1 of Goh et al. 2016: majorization-minimization of rates under rate constraints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import HashedRamp
from ratecli.models.linear import Ramp, Threshold
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.design_matrix import DesignMatrix, compact, merge_equal_rows
from ratecli.solvers.hull.infeasible import unmet_status
from ratecli.solvers.majorize import cutting_plane as cuts
from ratecli.solvers.majorize.augmented import AugmentedLagrangian
from ratecli.solvers.majorize.convex import (
    ConvexProblem,
    ConvexSolution,
    RampProblem,
    StoppingRule,
    constraint_excess,
    one_sided,
)
from ratecli.solvers.problem import Problem, sum_by_goal

if TYPE_CHECKING:
    from ratecli.solvers.majorize.solver import Majorize

EXCESS_PRICES = (10.0, 100.0, 1e3, 1e4)
"""Prices per unit of excess, in ranges of the objective, tried in order until a point is feasible.
At too high a price the bound is satisfied, if at all, by a w that is far too large.
"""
MAX_USEFUL_OBJECTIVE = 10.0
"""Points are useless if they exceed the largest ramp objective by more of its ranges than this."""
MAX_PHASE_ONE_STEPS = 30
"""Maximum number of steps towards a first feasible point, which do not count as iterations."""
RAMP_TIE = 1e-6
"""After a step without progress, scores this close to a corner of the ramp count as lying on it,
because the other bound may help there.
"""
PROGRESS_SHARE = 0.002
"""All steps but the last may end with a gap of this part of their progress. The part must be small:
a step that loses more is followed by others with other hinges, and ends elsewhere.
"""
MIN_PROGRESS_FACTOR = 0.99
"""A step that does not reduce the excess below this part of its value has stalled."""


@dataclass
class _MajorizationState:
    """State of majorization: weights, (m + 1,) ramp values, last solution, trace."""

    w: Array
    values: Array
    found: ConvexSolution | None = None
    trace: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def missed(self) -> float:
        """Total excess over all constraints."""
        return float(constraint_excess(self.values[1:]).sum())


def solve_by_majorization(
    solver: Majorize, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Run Algorithm 1."""
    ramp = make_ramp_problem(solver, problem)
    names = problem.piece_owners
    methods = [make_method(solver, ramp, rng, price) for price in EXCESS_PRICES]
    run = _descend(ramp, solver.iterations, methods, progress)
    if run.missed:
        again = _descend(ramp, solver.iterations, methods[-1:], progress)
        run = min(run, again, key=lambda each: each.missed)
    last, missed = run.found, constraint_excess(run.values[1:])
    assert last is not None
    variants, status, reason = dict[str, Classifier](), "solved", ""
    if missed.any():
        worst = int(np.argmax(missed))
        reason = (
            f"'{names[worst]}' is not satisfied: the closest model, found in step "
            f"{len(run.trace)}, violates it by {missed[worst]:.3g}"
        )
        status, reason = unmet_status(problem, reason)
    else:
        variants = _variants(solver, run.w, rng)
        if not last.converged:
            unit = "Newton steps" if solver.inner == "newton" else "SVMs"
            status = "iteration_limit"
            reason = (
                f"the last step ended after {last.work} {unit} with a gap of {last.gap:.2g}, "
                f"which may be more than {solver.gap:.2g} of its objective"
            )
    multipliers = sum_by_goal(names, last.multipliers)
    return Solution(variants, status, reason, multipliers, tuple(run.trace))


def make_ramp_problem(solver: Majorize, problem: Problem) -> RampProblem:
    """Return Problem 2 of the goals on merged rows."""
    coefficients, constants = problem.rows(problem.objective, *problem.constraints)
    X, costs = merge_equal_rows(problem.X, one_sided(coefficients))
    rows = DesignMatrix(compact(X), solver.intercept)
    return RampProblem.by_kind(rows, costs, constants, 2 * problem.l2)


ConvexMethod = AugmentedLagrangian | cuts.CuttingPlane


def make_method(
    solver: Majorize, ramp: RampProblem, rng: np.random.Generator, price: float
) -> ConvexMethod:
    """Return the solver of the convex problems of `ramp`; excess costs at most `price`."""
    ceiling = price * (ramp.spread or 1.0)
    stopping = StoppingRule(solver.gap, ceiling, ramp.beyond(MAX_USEFUL_OBJECTIVE))
    if solver.inner == "newton":
        return AugmentedLagrangian(stopping)
    exact = solver.inner == "cutting_plane"
    svm = cuts.newton_svm() if exact else cuts.liblinear_svm(int(rng.integers(2**31)))
    return cuts.CuttingPlane(stopping, svm, solver.chooser == "center", solver.cuts)


def _descend(
    ramp: RampProblem, iterations: int, methods: Sequence[ConvexMethod], progress: Progress
) -> _MajorizationState:
    """Take majorization steps from w = 0.

    Until a point is feasible, each method is used until it stalls; later ones put a higher price on
    excess. After that the last one is used. A solution that violates a constraint is not the start
    of the next problem: its multipliers are prices, far above those of that problem.
    """
    w, left, begun = np.zeros(ramp.rows.width), iterations, time.perf_counter()
    run = _MajorizationState(w, ramp.values(w))
    while left:
        ties, before = RAMP_TIE if _has_converged(run.trace) else 0.0, run.missed
        convex = ConvexProblem.tight_at(ramp, ramp.rows.scores(run.w), ties)
        method = methods[0] if before else methods[-1]
        last = run.found if run.found is not None and run.found.feasible else None
        if left > 1 and isinstance(method, AugmentedLagrangian):
            method = AugmentedLagrangian(replace(method.stopping, progress=PROGRESS_SHARE))
        found = method.solve(convex, run.w, last)
        values = ramp.values(found.w)
        # with ties the bound is slightly above the ramps at w
        worse = constraint_excess(values[1:]).any() or values[0] >= run.values[0]
        if ties and worse and not before:
            break
        run.w, run.values, run.found = found.w, values, found
        violation = float(values[1:].max(initial=0.0))
        row = trace_row(len(run.trace) + 1, float(values[0]), violation, begun)
        certificate = {"bound": found.value, "lower": found.lower, "gap": found.gap}
        run.trace.append(row | certificate | {"work": found.work})
        if run.missed > MIN_PROGRESS_FACTOR * before:
            methods = methods[1:]
        if run.missed and (not methods or len(run.trace) >= MAX_PHASE_ONE_STEPS):
            break
        left -= not run.missed
        progress(f"{iterations - left} of {iterations} iterations")
    return run


def _variants(solver: Majorize, w: Array, rng: np.random.Generator) -> dict[str, Classifier]:
    """Return classifiers that decide randomly by the ramp, and by the sign of the score."""
    weights, bias = (w, 0.0) if solver.intercept == "none" else (w[:-1], float(w[-1]))
    found: dict[str, Classifier] = {
        "stochastic": Ramp(weights, bias),
        "deterministic": Threshold(weights, bias),
    }
    if solver.hashed:
        found["hashed"] = HashedRamp(weights, bias, int(rng.integers(2**31)))
    return found


def _has_converged(trace: list[Mapping[str, Any]]) -> bool:
    """Whether the last step's improvement was within its gap."""
    if len(trace) < 2:
        return False
    before, last = trace[-2:]
    return bool(before["objective"] - last["objective"] <= last["gap"])
