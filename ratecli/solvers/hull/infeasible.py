"""Prove that no decisions satisfy all constraints, and say by how much one must be loosened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.matrix import RowKinds
from ratecli.rates.tangent import values
from ratecli.solvers.hull.best import min_violation
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.problem import Problem

SURE_VIOLATION = 1e-5
"""Largest unavoidable violation that may be a rounding error."""
PRIORITY = 1e4
"""Factor of the constraints that must hold while another one is loosened."""
MAX_OTHERS = 0.01
"""Largest violation of these, as a share of that of the loosened one, that counts as none."""


def unmet_status(
    problem: Problem, reason: str, status: str = "no_solution_found"
) -> tuple[str, str]:
    """Return status and reason for an algorithm that did not satisfy all constraints.

    The status is `infeasible` only if no decisions at all could satisfy them; otherwise `status`
    and `reason` are returned unchanged. With several constraints, the reason says by how much one
    of them must be loosened so that some decisions satisfy all.
    """
    kinds = RowKinds.by(problem.rates)
    least, _ = min_violation(RateProgram.of(problem), kinds)
    if least <= SURE_VIOLATION:
        return status, reason
    reason += f"; any decisions violate some constraint by {least:.3g} or more"
    if enough := " or ".join(_ways_out(problem, kinds)):
        reason += f"; some satisfy all if {enough}"
    return "infeasible", reason


def _ways_out(problem: Problem, kinds: RowKinds) -> Iterator[str]:
    """Yield for each constraint by how much it must be loosened, unless others contradict too."""
    goals, index = problem.constraints, problem.rates.index()
    for goal in goals if len(goals) > 1 else ():
        program = RateProgram.of(replace(problem, constraints=tuple(_raised(goals, goal))))
        _, rates = min_violation(program, kinds)
        if rates is None:
            continue
        missed = {each.name: values(each.expression, rates[:, None], index)[0] for each in goals}
        own = missed.pop(goal.name)
        if own > 0 and all(value <= MAX_OTHERS * own for value in missed.values()):
            yield f"'{goal.name}' is loosened by {own:.2g}"


def _raised(goals: tuple[Goal, ...], alone: Goal) -> Iterator[Goal]:
    """Yield the goals, all but one times `PRIORITY`."""
    for goal in goals:
        factor = ex.Constant(1.0 if goal is alone else PRIORITY)
        yield replace(goal, pieces=tuple(ex.multiply(factor, piece) for piece in goal.pieces))
