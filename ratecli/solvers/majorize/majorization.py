"""Algorithm 1 of Goh et al. 2016: majorization-minimization of rates under rate constraints."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Classifier, append_columns
from ratecli.models.composed import HashedRamp
from ratecli.models.linear import Ramp, Threshold
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import Goal, affine_maxima
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.design_matrix import DesignMatrix, compact, merge_equal_rows
from ratecli.solvers.hull.deterministic import best_of_members
from ratecli.solvers.hull.infeasible import unmet_status
from ratecli.solvers.majorize.augmented import AugmentedLagrangian
from ratecli.solvers.majorize.convex import (
    ConvexProblem,
    ConvexSolution,
    RampProblem,
    StoppingRule,
    constraint_excess,
    one_sided,
)
from ratecli.solvers.majorize.cutting_plane import CuttingPlane
from ratecli.solvers.problem import Problem, combine_affine_forms, sum_by_goal

if TYPE_CHECKING:
    from ratecli.solvers.majorize.options import Majorize

LEVEL_LENGTH = 1000.0
"""Feature of the rows of a level, so long that the regularizer of its weight is negligible."""
LEVEL_PART = 4
"""Merged rows per row of a level. With one row, `newton` took 100 times as long for 60 groups."""
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
    begun = time.perf_counter()
    ramp = make_ramp_problem(solver, problem)
    bounds = list(leveled_rows(problem.constraints))
    names = [row.owner for row in bounds]
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
        bias = 0.0 if solver.intercept == "none" else float(run.w[-1])
        line = run.w[: problem.X.shape[1]], bias
        single = best_of_members(problem, [Threshold(*line)])
        variants = solver.select(
            {
                "stochastic": lambda: Ramp(*line),
                "deterministic": lambda: single.classifier,
                "hashed": lambda: HashedRamp(*line, int(rng.integers(2**31))),
            }
        )
        if single.violation and not solver.randomize:
            status, reason = single.ending(problem)
        elif not last.converged:
            unit = "Newton steps" if solver.inner == "newton" else "SVMs"
            status = "iteration_limit"
            reason = (
                f"the last step ended after {last.work} {unit} with a gap of {last.gap:.2g}, "
                f"which may be more than {solver.gap:.2g} of its objective"
            )
        if not solver.randomize:
            row = trace_row(len(run.trace) + 1, single.objective, single.violation, begun)
            run.trace.append(row)
    multipliers = sum_by_goal(names, last.multipliers * [row.binds for row in bounds])
    return Solution(variants, status, reason, multipliers, tuple(run.trace))


class LeveledRow(NamedTuple):
    """An affine form plus multiples of levels, by their numbers, and the name of its goal.

    It `binds` if its multiplier is one of the goal: a row that bounds a level has another one.
    """

    owner: str
    form: Affine
    shares: Mapping[int, float]
    binds: bool = True


def leveled_rows(goals: Sequence[Goal]) -> Iterator[LeveledRow]:
    """Yield rows that are all at most 0 at some levels in [0, 1] where the goals are satisfied.

    A sum of maxima of affine forms has a level for each maximum but the last, which bounds it. Its
    scale is three times the range of the maximum, so that it never has to be 0 or 1.
    """
    levels = itertools.count()
    for goal in goals:
        for piece in goal.pieces:
            (rest,), *maxima = affine_maxima(piece) or ()
            shares = dict[int, float]()
            for forms in maxima[:-1]:
                level, ends = next(levels), np.array([form.range() for form in forms]).max(axis=0)
                scale = 3 * float(ends[1] - ends[0]) or 1.0
                start = Affine({}, float(ends.mean()) - scale / 2)
                yield from (
                    LeveledRow(goal.name, form + start * -1.0, {level: -scale}, binds=False)
                    for form in forms
                )
                rest, shares[level] = rest + start, scale
            for form in maxima[-1] if maxima else [Affine({})]:
                yield LeveledRow(goal.name, rest + form, shares)


def make_ramp_problem(solver: Majorize, problem: Problem) -> RampProblem:
    """Return Problem 2 of the goals on merged rows, followed by rows of levels.

    A level is the decision of some equal rows with a feature of their own. No other row depends on
    it, so their ramp may have any value.
    """
    rows = list(leveled_rows((problem.objective, *problem.constraints)))
    coefficients, constants = combine_affine_forms(problem.rates, [row.form for row in rows])
    X, costs = merge_equal_rows(problem.X, one_sided(coefficients))
    count = 1 + max((level for row in rows for level in row.shares), default=-1)
    if count:
        copies = max(X.shape[0] // LEVEL_PART, 1)
        added = np.zeros((len(rows), count))
        for own, row in zip(added, rows, strict=True):
            own[list(row.shares)] = list(row.shares.values())
        costs = np.hstack([costs, np.repeat(one_sided(added / copies), copies, axis=1)])
        units = np.kron(np.eye(count), np.full((copies, 1), LEVEL_LENGTH))
        X = append_columns(X, np.zeros((X.shape[0], count)))
        below = np.hstack([np.zeros((count * copies, X.shape[1] - count)), units])
        X = (
            np.vstack([X, below])
            if isinstance(X, np.ndarray)
            else sparse.csr_array(sparse.vstack([X, sparse.csr_array(below)]))
        )
    design = DesignMatrix(compact(X), solver.intercept)
    return RampProblem.by_kind(design, costs, constants, 2 * problem.l2)


ConvexMethod = AugmentedLagrangian | CuttingPlane


def make_method(
    solver: Majorize, ramp: RampProblem, rng: np.random.Generator, price: float
) -> ConvexMethod:
    """Return the solver of the convex problems of `ramp`; excess costs at most `price`."""
    ceiling = price * (ramp.spread or 1.0)
    stopping = StoppingRule(solver.gap, ceiling, ramp.beyond(MAX_USEFUL_OBJECTIVE))
    if solver.inner == "newton":
        return AugmentedLagrangian(stopping)
    seed = int(rng.integers(2**31)) if solver.inner == "liblinear" else None
    return CuttingPlane(stopping, solver.chooser == "center", solver.cuts, seed)


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


def _has_converged(trace: list[Mapping[str, Any]]) -> bool:
    """Whether the last step's improvement was within its gap."""
    if len(trace) < 2:
        return False
    before, last = trace[-2:]
    return bool(before["objective"] - last["objective"] <= last["gap"])
