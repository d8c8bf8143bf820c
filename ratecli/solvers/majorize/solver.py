"""Algorithm 1 of Goh et al. 2016: majorization-minimization of rates under rate constraints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from ratecli.rates.affine import Affine
from ratecli.rates.analysis import Goal as RateGoal
from ratecli.rates.analysis import Shape, affine_pieces
from ratecli.solvers.base import Progress, Solution, Solver

if TYPE_CHECKING:
    from ratecli.models.base import Array, Classifier
    from ratecli.solvers.majorize.convex import ConvexMethod, ConvexSolution, RampProblem
    from ratecli.solvers.problem import Problem

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
MIN_PROGRESS_FACTOR = 0.99
"""A step that does not reduce the excess below this part of its value has stalled."""


@dataclass
class _MajorizationState:
    """State of majorization: weights, (m + 1,) ramp values, convex solutions, trace."""

    w: Array
    values: Array
    found: list[ConvexSolution] = field(default_factory=list)
    trace: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def missed(self) -> float:
        """Total excess over all constraints."""
        from ratecli.solvers.majorize.convex import constraint_excess

        return float(constraint_excess(self.values[1:]).sum())

    def step(self, found: ConvexSolution, values: Array, seconds: float) -> None:
        """Move to the solution of a convex problem and record the step in the trace."""
        self.w, self.values = found.w, values
        self.found.append(found)
        self.trace.append(
            {
                "iteration": len(self.trace) + 1,
                "objective": float(values[0]),
                "violation": float(values[1:].max(initial=0.0)),
                "bound": found.value,
                "lower": found.lower,
                "gap": found.gap,
                "work": found.work,
                "seconds": seconds,
            }
        )


@dataclass(frozen=True)
class Majorize(Solver):
    """Ramp rates under affine constraints (Goh et al. 2016, Algorithms 1 and 2).

    Each iteration replaces every ramp by a convex bound that is tight at the current classifier,
    and solves that problem to a certified gap. Once an iterate is feasible all later ones are, and
    the ramp objective never rises. Until then (the zero vector need not be feasible) a step takes
    the best compromise, and the bounds that are tight there may admit a feasible one.

    Upper and lower bounds of a rate coincide only where they are tight, so an exact equality leaves
    almost no room for improvement: allow a difference, such as `<= 0.001`.

    Attributes
    ----------
    iterations
        Maximum number of majorization steps (the paper's T), counted from the first feasible one. A
        step without any change is the last.
    gap
        Accuracy of each convex problem, relative to its objective.
    intercept
        `regularized` (a constant feature), `unregularized` (appendix F.2) or `none`.
    inner
        Solver of each convex problem: `newton`, the method of multipliers with all constraints at
        once; `cutting_plane`, the paper's Algorithm 2 over exact SVMs; `liblinear`, the same over
        LIBLINEAR's SVMs.
    chooser
        Where Algorithm 2 cuts: `center` (of mass, appendix E.2) or `maximization` (E.1).
    cuts
        Maximum number of SVMs that Algorithm 2 fits for one convex problem.
    hashed
        Whether to add the variant `hashed`, which draws random decisions from a hash of the row
        (appendix A), so that equal rows always get equal decisions.
    """

    iterations: Annotated[int, Ge(1)] = 8
    gap: Annotated[float, Gt(0)] = 1e-4
    intercept: Literal["regularized", "unregularized", "none"] = "regularized"
    inner: Literal["newton", "cutting_plane", "liblinear"] = "newton"
    chooser: Literal["center", "maximization"] = "center"
    cuts: Annotated[int, Ge(1)] = 100
    hashed: bool = False

    version: ClassVar[int] = 3
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})

    def __post_init__(self) -> None:
        if self.inner == "liblinear" and self.intercept == "unregularized":
            raise ValueError("LIBLINEAR cannot leave the intercept unregularized")

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        return self.path([problem], rng, progress)[0]

    def path(
        self, problems: Sequence[Problem], rng: np.random.Generator, progress: Progress
    ) -> list[Solution]:
        """Solve problems on the same rows, neighbours on a sweep, faster than separately.

        Each convex problem starts from the solution of the same step of the previous problem. It is
        solved to the same gap, but the points within the gap differ, and with them the later steps:
        a solution may be another local optimum than that of `solve`.
        """
        from ratecli.solvers.majorize.convex import ConvexSolution

        solutions, near = [], list[ConvexSolution]()
        for problem in problems:
            solution, near = self._solve(problem, rng, progress, near)
            solutions.append(solution)
        return solutions

    def _solve(
        self,
        problem: Problem,
        rng: np.random.Generator,
        progress: Progress,
        near: Sequence[ConvexSolution],
    ) -> tuple[Solution, list[ConvexSolution]]:
        """Run Algorithm 1; also return the solutions of all convex problems on the way."""
        from ratecli.solvers.problem import sum_by_goal

        ramp, names = self.ramp_problem(problem)
        methods = [self.method(ramp, rng, price) for price in EXCESS_PRICES]
        run = self._descend(ramp, methods, near, progress)
        if run.missed:
            again = self._descend(ramp, methods[-1:], (), progress)
            run = min(run, again, key=lambda each: each.missed)
        status, reason = self._ending(run, problem, names)
        variants = {} if run.missed else self.variants(run.w, rng)
        multipliers = sum_by_goal(names, run.found[-1].multipliers)
        return Solution(variants, status, reason, multipliers, tuple(run.trace)), run.found

    def _descend(
        self,
        ramp: RampProblem,
        methods: Sequence[ConvexMethod],
        near: Sequence[ConvexSolution],
        progress: Progress,
    ) -> _MajorizationState:
        """Take majorization steps from w = 0.

        Until a point is feasible, each method is used until it stalls; later ones put a higher
        price on excess. After that the last one is used.
        """
        from ratecli.solvers.majorize.convex import ConvexProblem, constraint_excess

        w = np.zeros(ramp.rows.width)
        run, left, begun = (
            _MajorizationState(w, ramp.values(w)),
            self.iterations,
            time.perf_counter(),
        )
        while left:
            ties, before = RAMP_TIE if _has_converged(run.trace) else 0.0, run.missed
            convex = ConvexProblem.tight_at(ramp, ramp.rows.scores(run.w), ties)
            method = methods[0] if before else methods[-1]
            found = method.solve(convex, run.w, _most_similar_solution(run.found, near))
            values = ramp.values(found.w)
            # with ties the bound is slightly above the ramps at w
            worse = constraint_excess(values[1:]).any() or values[0] >= run.values[0]
            if ties and worse and not before:
                break
            run.step(found, values, time.perf_counter() - begun)
            if run.missed > MIN_PROGRESS_FACTOR * before:
                methods = methods[1:]
            if run.missed and (not methods or len(run.trace) >= MAX_PHASE_ONE_STEPS):
                break
            left -= not run.missed
            progress(f"{self.iterations - left} of {self.iterations} iterations")
        return run

    def method(self, ramp: RampProblem, rng: np.random.Generator, price: float) -> ConvexMethod:
        """Return the solver of the convex problems of `ramp`; excess costs at most `price`."""
        from ratecli.solvers.majorize import cutting_plane as choosers
        from ratecli.solvers.majorize import cutting_plane as svm
        from ratecli.solvers.majorize.augmented import AugmentedLagrangian
        from ratecli.solvers.majorize.convex import StoppingRule
        from ratecli.solvers.majorize.cutting_plane import CuttingPlane

        ceiling = price * (ramp.spread or 1.0)
        goal = StoppingRule(self.gap, ceiling, ramp.beyond(MAX_USEFUL_OBJECTIVE))
        if self.inner == "newton":
            return AugmentedLagrangian(goal)
        least = (
            svm.newton_svm()
            if self.inner == "cutting_plane"
            else svm.liblinear_svm(_draw_seed(rng))
        )
        chooser = choosers.center_of_mass if self.chooser == "center" else choosers.model_maximizer
        return CuttingPlane(goal, least, chooser, self.cuts)

    def ramp_problem(self, problem: Problem) -> tuple[RampProblem, list[str]]:
        """Return Problem 2 of the goals on merged rows, and the name of each constraint."""
        from ratecli.solvers.majorize.convex import RampProblem
        from ratecli.solvers.majorize.rows import FeatureRows, merge_equal_rows

        goals = [problem.objective, *problem.constraints]
        forms = _affine_forms(goals)
        coefficients, constants = problem.rows(forms)
        costs = np.concatenate([np.maximum(coefficients, 0), np.maximum(-coefficients, 0)])
        X, costs = merge_equal_rows(problem.X, costs)
        up, down = costs[: len(forms)], costs[len(forms) :]
        ramp = RampProblem(FeatureRows(X, self.intercept), up, down, constants, 2 * problem.l2)
        return ramp, [goal.name for goal in problem.constraints for _ in affine_pieces(goal)]

    def variants(self, w: Array, rng: np.random.Generator) -> Mapping[str, Classifier]:
        """Return classifiers that decide randomly by the ramp, and by the sign of the score."""
        from ratecli.models.hashed import HashedRamp
        from ratecli.models.linear import Ramp, Threshold

        weights, bias = (w, 0.0) if self.intercept == "none" else (w[:-1], float(w[-1]))
        found: dict[str, Classifier] = {
            "stochastic": Ramp(weights, bias),
            "deterministic": Threshold(weights, bias),
        }
        if self.hashed:
            found["hashed"] = HashedRamp(weights, bias, _draw_seed(rng))
        return found

    def _ending(
        self, run: _MajorizationState, problem: Problem, names: list[str]
    ) -> tuple[str, str]:
        """Return status and reason; `infeasible` only if no decisions at all are feasible."""
        from ratecli.solvers.feasibility import min_constraint_excess
        from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE, constraint_excess

        missed, last = constraint_excess(run.values[1:]), run.found[-1]
        if missed.any():
            worst = int(np.argmax(missed))
            reason = (
                f"'{names[worst]}' could not be met: the best compromise of step {len(run.trace)} "
                f"misses it by {missed[worst]:.3g}"
            )
            least = min_constraint_excess(*problem.rows(_affine_forms(problem.constraints)))
            if least <= FEASIBILITY_TOLERANCE:
                return "no_solution_found", reason
            return "infeasible", f"{reason}, and any decisions miss some constraint by {least:.3g}"
        if not last.converged:
            return "iteration_limit", (
                f"the last step ended after {last.work} {self._unit} with a gap of "
                f"{last.gap:.2g}, which is not certain to be {self.gap:.2g} of its objective"
            )
        return "solved", ""

    @property
    def _unit(self) -> str:
        return "Newton steps" if self.inner == "newton" else "SVMs"


def _draw_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _affine_forms(goals: Sequence[RateGoal]) -> list[Affine]:
    return [form for goal in goals for form in affine_pieces(goal)]


def _has_converged(trace: list[Mapping[str, Any]]) -> bool:
    """Whether the last step's improvement was within its gap."""
    if len(trace) < 2:
        return False
    before, last = trace[-2:]
    return bool(before["objective"] - last["objective"] <= last["gap"])


def _most_similar_solution(
    found: Sequence[ConvexSolution], near: Sequence[ConvexSolution]
) -> ConvexSolution | None:
    """Return the solution of the problem most similar to the next one, or None.

    That is the solution of the same step of the previous problem, or the last one. Solutions that
    violate a constraint are not used: their multipliers are prices, far above those of the next
    problem.
    """
    like = near[len(found)] if len(found) < len(near) else found[-1] if found else None
    return like if like is None or like.feasible else None
