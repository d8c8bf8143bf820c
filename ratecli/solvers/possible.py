"""Whether constraints on rates can be met at all, by any decisions on the rows."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array


def least_excess(coefficients: Array, constants: Array) -> float:
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
