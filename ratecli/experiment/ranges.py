"""By how much a rule can be broken, over all rates there could be: is it vacuous, is it hopeless?"""

from __future__ import annotations

import numpy as np

from ratecli.ledger.records import CONSTRAINT_TOLERANCE
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal, Shape, affine_pieces, constraint_goal, interval
from ratecli.solvers.feasibility import min_constraint_excess


def violation_range(goal: Goal) -> tuple[float, float]:
    """Least and most by which a rule can be broken, over all rates."""
    known = [
        part
        for part in goal.pieces
        if not any(isinstance(n, ex.AlgorithmMetric) for n in ex.walk(part))
    ]
    if len(known) < len(goal.pieces):
        return float("-inf"), float("inf")
    shaped = constraint_goal(goal.name, goal.text, goal.pieces, goal.expression)
    ranges = [interval(piece) for piece in shaped.pieces]
    low = max(low for low, _ in ranges)
    if len(goal.pieces) > 1 and shaped.shape is Shape.AFFINE:
        low = _least_chain_violation(
            shaped
        )  # each comparison may be met where all together are not
    return low, max(high for _, high in ranges)


def _least_chain_violation(goal: Goal) -> float:
    """Least, over rates in [0, 1], by which a chain of affine comparisons is broken."""
    forms = affine_pieces(goal)
    rates = ex.leaves(*goal.pieces)
    coefficients = np.array(
        [[form.coefficients.get(rate, 0.0) for rate in rates] for form in forms]
    )
    least = min_constraint_excess(coefficients, np.array([form.constant for form in forms]))
    return least if least > CONSTRAINT_TOLERANCE else min(least, 0.0)
