"""Check whether any decisions on the rows can satisfy constraints on rates."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import RateProgram

SURE_VIOLATION = 1e-5
"""Largest unavoidable violation that may be a rounding error."""
VIOLATION_GAP = 1e-4
"""Accuracy of the lower bound on the violation."""


def min_constraint_excess(coefficients: Array, constants: Array) -> float:
    """Return the minimum over p in [0, 1]^n of the largest of `coefficients @ p + constants`.

    Solved as a linear program. If the result is above 0, no classifier of any kind satisfies all
    constraints. Rows with equal coefficients are interchangeable and merged; usually there is one
    kind for each combination of group, label and deployed decision.
    """
    from scipy.optimize import linprog

    kinds, counts = np.unique(coefficients, axis=1, return_counts=True)
    m, count = kinds.shape
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=np.hstack([kinds * counts, -np.ones((m, 1))]),
        b_ub=-constants,
        bounds=[(0, 1)] * count + [(None, None)],
    )
    if found.status != 0:
        raise ArithmeticError(f"the program over decisions was not solved: {found.message}")
    return float(found.fun)


def min_violation(program: RateProgram, kinds: RowKinds) -> float:
    """Return a proven lower bound on the worst violation under any decisions on the rows.

    The bound is accurate to `VIOLATION_GAP` and applies to all goals that a `RateProgram` can
    express. Return 0 if no proof was found.
    """
    # imported here because they import numba, which takes a third of a second in every process
    from ratecli.solvers.hull.best import optimize_over_hull
    from ratecli.solvers.hull.forms import RatePoints
    from ratecli.solvers.hull.relaxation import Relaxation

    everything = Relaxation(program, RatePoints.decisions(kinds), elastic=True, floor=0.0)
    found = optimize_over_hull(everything, VIOLATION_GAP)
    return 0.0 if found is None else found.bound


def unmet_status(
    program: RateProgram, kinds: RowKinds, reason: str, status: str = "no_solution_found"
) -> tuple[str, str]:
    """Return status and reason for an algorithm that did not satisfy all constraints.

    The status is `infeasible` only if no decisions at all could satisfy them; otherwise `status`
    and `reason` are returned unchanged.
    """
    least = min_violation(program, kinds)
    if least <= SURE_VIOLATION:
        return status, reason
    return "infeasible", f"{reason}; any decisions miss some constraint by {least:.3g} or more"
