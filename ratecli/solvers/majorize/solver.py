"""Algorithm 1 of Goh et al. 2016: majorization-minimization of rates under rate constraints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from ratecli.models.base import Array
from ratecli.models.linear import Ramp, Threshold
from ratecli.rates.analysis import Shape, affine_pieces
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.liblinear import with_ones
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
from ratecli.solvers.majorize.cutting_plane import (
    FEASIBLE,
    Columns,
    ConvexSolution,
    CuttingPlane,
    Minimize,
    excess,
)
from ratecli.solvers.majorize.inner import liblinear, newton
from ratecli.solvers.majorize.newton import NARROW
from ratecli.solvers.possible import least_excess
from ratecli.solvers.problem import Problem

MULTIPLIER_CEILING = 1e4
HOPELESS = 10.0
"""How many ranges of the ramp objective above it no point is worth having."""
HEADWAY = 0.99
"""An excess that a step does not bring below this part of itself has come to rest."""
INNER = 0.1
"""Part of the gap to which the inner SVM is solved."""


@dataclass(frozen=True)
class Majorize(Solver):
    """Ramp rates under affine constraints (Goh et al. 2016, Algorithms 1 and 2).

    Each iteration replaces every ramp by a convex bound that is tight at the current classifier and
    solves that problem by cutting planes over the multipliers, a weighted SVM inside. Once an
    iterate is feasible all later ones are and the ramp objective never rises: the current
    classifier is itself one of the points that the next one is mixed from. Until then a step takes
    the best compromise, and the bounds that are tight there may admit a feasible one.

    Attributes
    ----------
    iterations
        Majorization steps (the paper's T).
    gap
        Accuracy of each convex problem, in the objective's units.
    cuts
        Most SVMs for one convex problem.
    intercept
        `regularized` (a constant feature) or `none`.
    inner
        What solves the weighted SVM: `newton` (semismooth, to a certified gap), `liblinear`, or
        `auto`: Newton up to 2000 features.
    """

    iterations: Annotated[int, Ge(1)] = 8
    gap: Annotated[float, Gt(0)] = 1e-4
    cuts: Annotated[int, Ge(1)] = 30
    intercept: Literal["regularized", "none"] = "regularized"
    inner: Literal["auto", "newton", "liblinear"] = "auto"

    version: ClassVar[int] = 1
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        ramp, names = self.ramp_problem(problem)
        method = CuttingPlane(
            self._minimize(ramp.X.shape[1], rng), self.gap, self.cuts, MULTIPLIER_CEILING,
            ramp.beyond(HOPELESS),
        )  # fmt: skip
        w = np.zeros(ramp.X.shape[1])
        seen, guess, missed = w[:, None], np.zeros(len(names)), np.inf
        trace: list[Mapping[str, Any]] = []
        for iteration in range(1, self.iterations + 1):
            started = time.perf_counter()
            convex = ConvexProblem.tight_at(ramp, np.asarray(ramp.X @ w))
            found = method.solve(convex, Columns.of(convex, seen), guess)
            w, values = found.w, ramp.values(found.w)
            # Prices that no point could meet say nothing of the next bounds, and are slow to solve at.
            guess = found.multipliers if found.feasible else np.zeros(len(names))
            seen = np.hstack([w[:, None], found.columns.W])
            trace.append(_row(iteration, values, found, time.perf_counter() - started))
            progress(f"iteration {iteration} of {self.iterations}")
            before, missed = missed, float(excess(values[1:]).sum())
            if missed > HEADWAY * before:
                break
        status, reason = self._ending(found, ramp, names, len(trace))
        variants = {} if missed else self.variants(w)
        return Solution(variants, status, reason, _named(names, found.multipliers), tuple(trace))

    def _minimize(self, width: int, rng: np.random.Generator) -> Minimize:
        if self.inner == "newton" or (self.inner == "auto" and width <= NARROW):
            return newton(INNER * self.gap)
        return liblinear(int(rng.integers(2**31)))

    def ramp_problem(self, problem: Problem) -> tuple[RampProblem, list[str]]:
        """Problem 2 of the goals, and the name of each constraint row."""
        goals = [problem.objective, *problem.constraints]
        forms = [(goal.name, form) for goal in goals for form in affine_pieces(goal)]
        coefficients, constants = problem.rows([form for _, form in forms])
        X = with_ones(problem.X) if self.intercept == "regularized" else problem.X
        ramp = RampProblem(X, coefficients, constants, 2 * problem.l2)
        return ramp, [name for name, _ in forms[1:]]

    def variants(self, w: Array) -> Mapping[str, Ramp | Threshold]:
        """The same scores, decided at random by the ramp and by their sign."""
        weights, bias = (w[:-1], float(w[-1])) if self.intercept == "regularized" else (w, 0.0)
        return {"stochastic": Ramp(weights, bias), "deterministic": Threshold(weights, bias)}

    def _ending(
        self, found: ConvexSolution, ramp: RampProblem, names: list[str], steps: int
    ) -> tuple[str, str]:
        """Status and reason. Only what no decisions at all could meet is called infeasible."""
        missed = excess(ramp.values(found.w)[1:])
        if missed.any():
            worst = int(np.argmax(missed))
            reason = (
                f"'{names[worst]}' could not be met: the best compromise of step {steps} misses it "
                f"by {missed[worst]:.3g}"
            )
            least = least_excess(ramp.coefficients[1:], ramp.constants[1:])
            if least <= FEASIBLE:
                return "no_solution_found", reason
            return "infeasible", f"{reason}, and any decisions miss some constraint by {least:.3g}"
        if found.gap > self.gap:
            return "iteration_limit", (
                f"the last step stopped after {self.cuts} SVMs with a gap of {found.gap:.2g}, "
                f"above {self.gap:.2g}"
            )
        if not found.converged:
            return "iteration_limit", (
                "an SVM did not reach its tolerance in the last step: the gap is not certain"
            )
        return "solved", ""


def _named(names: list[str], values: Array) -> dict[str, float]:
    """A constraint of several pieces has the sum of their multipliers."""
    total = dict.fromkeys(names, 0.0)
    for name, value in zip(names, values, strict=True):
        total[name] += float(value)
    return total


def _row(iteration: int, values: Array, found: ConvexSolution, seconds: float) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "objective": float(values[0]),
        "violation": float(values[1:].max(initial=0.0)),
        "bound": found.value,
        "gap": found.gap,
        "svms": found.minimizations,
        "seconds": seconds,
    }
