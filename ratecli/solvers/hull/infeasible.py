"""Prove that no decisions satisfy all constraints, and say by how much one must be loosened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import linprog

from ratecli.rates import expression as ex
from ratecli.rates.affine import ratio_sum
from ratecli.rates.analysis import Goal
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.master import min_violation
from ratecli.solvers.problem import Problem

SURE_VIOLATION = 1e-5
"""Largest unavoidable violation that may be a rounding error."""
PRIORITY = 1e4
"""Weight of all other constraints while one is loosened, so that they still hold."""
MAX_OTHERS = 0.01
"""Violations of the others up to this share of that of the loosened one count as none."""


def unmet_status(
    problem: Problem, reason: str, status: str = "no_solution_found"
) -> tuple[str, str]:
    """Return status and reason for an algorithm that did not satisfy all constraints.

    The status is `infeasible` only if no decisions at all could satisfy them; otherwise `status`
    and `reason` are returned unchanged. The reason then says by how much a single constraint must
    be loosened, in units of its limit, so that some decisions satisfy all.
    """
    kinds = RowKinds.by(problem.rates)
    least, _ = min_violation(RateProgram.of(problem), kinds)
    least = max(least, least_by_ranges([goal.expression for goal in problem.constraints]))
    if least <= SURE_VIOLATION:
        return status, reason
    reason += "; no decisions satisfy all constraints"
    if ways := " or ".join(f"'{name}' by {by:g}" for name, by in _ways_out(problem, kinds)):
        reason += f", unless one limit is loosened: {ways}"
    return "infeasible", reason


def least_by_ranges(expressions: Sequence[ex.Expression]) -> float:
    """Return a lower bound of the largest of some expressions, minus infinity if it has none.

    Those that are linear in rates and ratios are counted, which may have any values in their
    ranges, independently of each other.
    """
    forms = [form for each in expressions if (form := ratio_sum(each))]
    terms = [form.terms() for form in forms]
    ranges = {key: span for each in terms for key, (_, span) in each.items()}
    slopes = [[*(each[key][0] if key in each else 0.0 for key in ranges), -1.0] for each in terms]
    if not forms:
        return -math.inf
    levels = [-form.affine.constant for form in forms]
    largest = np.append(np.zeros(len(ranges)), 1.0)
    optimum = linprog(largest, slopes, levels, bounds=[*ranges.values(), (None, None)])
    return float(optimum.fun) if optimum.success else -math.inf


def _ways_out(problem: Problem, kinds: RowKinds) -> Iterator[tuple[str, float]]:
    """Yield each constraint whose loosening alone is enough, and by how much."""
    goals = problem.constraints
    written = problem.function(*(goal.expression for goal in goals))
    for goal in goals:
        program = RateProgram.of(replace(problem, constraints=tuple(_raised(goals, goal))))
        _, rates = min_violation(program, kinds)
        if rates is None:
            continue
        names = [each.name for each in goals]
        missed = dict(zip(names, written.values(rates).tolist(), strict=True))
        own = missed.pop(goal.name)
        if own > 0 and all(value <= MAX_OTHERS * own for value in missed.values()):
            yield goal.name, _round_up(own * (1 + 10 / PRIORITY))


def _raised(goals: tuple[Goal, ...], alone: Goal) -> Iterator[Goal]:
    """Yield the goals, all but one times `PRIORITY`."""
    for goal in goals:
        factor = ex.Constant(1.0 if goal is alone else PRIORITY)
        yield replace(goal, pieces=tuple(ex.multiply(factor, piece) for piece in goal.pieces))


def _round_up(value: float) -> float:
    """Return a positive value with three significant digits that is not smaller."""
    digits = 2 - math.floor(math.log10(value))
    return round(math.ceil(value * 10.0**digits) / 10.0**digits, max(digits, 0))
