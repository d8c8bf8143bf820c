"""Exact fits without constraints, by Newton's method."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from ratecli.models.base import Array
from ratecli.solvers.seldonian.design import MAX_DENSE_WEIGHTS, DesignMatrix, WhitenedCoordinates
from ratecli.solvers.seldonian.objective import ConvexObjective

MAX_FIT_STEPS = 60
"""Newton steps at most; with rows that can be told apart there is no least log loss to arrive at."""
FIT_TOLERANCE = 1e-13
"""Decrease of the objective that a step must promise, relative to it."""
MAX_LBFGS_ITERATIONS = 2000
"""Iterations of L-BFGS where there are too many weights for a matrix."""


def fit_unconstrained(objective: ConvexObjective, design: DesignMatrix, l2: float) -> Array:
    """(D,) the weights of least `objective + l2 / 2 |w|^2`, the bias not in it.

    Squares are solved for in one step; log loss in a few, each halved until it helps.
    """
    w = np.zeros(design.width)
    if design.width > MAX_DENSE_WEIGHTS:
        return _fit_by_lbfgs(objective, design, l2)
    value, gradient = _penalized_value(objective, design, l2, w)
    for _ in range(MAX_FIT_STEPS):
        curvatures = objective.curvatures(design.scores(w))
        local = WhitenedCoordinates.around(design, np.zeros_like(w), curvatures, l2)
        slope = local.slopes(gradient)
        promised = float(slope @ slope) / 2
        if not promised > FIT_TOLERANCE * max(abs(value), FIT_TOLERANCE):
            break
        step, length = local.weights(-slope), 1.0
        while length > 1e-8:
            ahead, slopes = _penalized_value(objective, design, l2, w + length * step)
            if ahead <= value - 1e-4 * length * promised:
                break
            length /= 2
        if ahead >= value:
            break
        w, value, gradient = w + length * step, ahead, slopes
    return w


def _penalized_value(
    objective: ConvexObjective, design: DesignMatrix, l2: float, w: Array
) -> tuple[float, Array]:
    scores = design.scores(w)
    gradient = design.pull(objective.slopes(scores))
    gradient[:-1] += l2 * w[:-1]
    return objective.value(scores) + l2 / 2 * float(w[:-1] @ w[:-1]), gradient


def _fit_by_lbfgs(objective: ConvexObjective, design: DesignMatrix, l2: float) -> Array:
    start = np.zeros(design.width)
    flat = WhitenedCoordinates.around(design, start, objective.curvatures(design.scores(start)), l2)

    def at(v: Array) -> tuple[float, Array]:
        value, gradient = _penalized_value(objective, design, l2, flat.weights(v))
        return value, flat.slopes(gradient)

    found = minimize(
        at, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_LBFGS_ITERATIONS}
    )
    return flat.weights(found.x)
