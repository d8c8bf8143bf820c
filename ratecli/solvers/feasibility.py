"""Whether constraints on rates can be met at all, by any decisions on the rows."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import RateProgram

SURE_VIOLATION = 1e-5
"""Above this a violation that no decisions avoid is none of rounding."""
VIOLATION_GAP = 1e-4
"""How near the proven violation is to the least one."""


def min_constraint_excess(coefficients: Array, constants: Array) -> float:
    """Least, over p in [0, 1]^n, of the largest of `coefficients @ p + constants`: a linear program.

    Above 0 no classifier of any kind meets all constraints. Rows with the same coefficients are
    interchangeable; mostly there is one kind for each group, label and deployed decision.
    """
    from scipy.optimize import linprog  # noqa: PLC0415  slow, and a file without rules needs none

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
    """What the worst constraint is at least, whatever is decided on the rows, by a proof that holds to
    `VIOLATION_GAP`: for goals of any class that a `RateProgram` can be made of. Where no proof was found, 0.
    """
    # they import numba, which takes every process a third of a second
    from ratecli.solvers.hull.best import optimize_over_hull  # noqa: PLC0415
    from ratecli.solvers.hull.columns import RatePoints  # noqa: PLC0415
    from ratecli.solvers.hull.relaxation import Relaxation  # noqa: PLC0415

    everything = Relaxation(program, RatePoints.decisions(kinds), elastic=True, floor=0.0)
    found = optimize_over_hull(everything, VIOLATION_GAP)
    return 0.0 if found is None else found.bound


def unmet_status(
    program: RateProgram, kinds: RowKinds, reason: str, status: str = "no_solution_found"
) -> tuple[str, str]:
    """Status and reason where an algorithm met not all constraints, which its own `reason` tells: only
    what no decisions at all could meet is `infeasible`.
    """
    least = min_violation(program, kinds)
    if least <= SURE_VIOLATION:
        return status, reason
    return "infeasible", f"{reason}; any decisions miss some constraint by {least:.3g} or more"
