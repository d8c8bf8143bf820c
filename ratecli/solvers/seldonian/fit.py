"""Exact fits without constraints, by Newton's method."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from ratecli.models.base import Array
from ratecli.solvers.seldonian.design import DENSE, Coordinates, Design
from ratecli.solvers.seldonian.objective import Convex

STEPS = 60
"""Newton steps at most; with rows that can be told apart there is no least log loss to arrive at."""
EXACT = 1e-13
"""Decrease of the objective that a step must promise, relative to it."""
MANY = 2000
"""Iterations of L-BFGS where there are too many weights for a matrix."""


def fit(objective: Convex, design: Design, l2: float) -> Array:
    """(D,) the weights of least `objective + l2 / 2 |w|^2`, the bias not in it.

    Squares are solved for in one step; log loss in a few, each halved until it helps.
    """
    w = np.zeros(design.width)
    if design.width > DENSE:
        return _fit_many(objective, design, l2)
    value, gradient = _at(objective, design, l2, w)
    for _ in range(STEPS):
        curvatures = objective.curvatures(design.scores(w))
        local = Coordinates.around(design, np.zeros_like(w), curvatures, l2)
        slope = local.slopes(gradient)
        promised = float(slope @ slope) / 2
        if not promised > EXACT * max(abs(value), EXACT):
            break
        step, length = local.weights(-slope), 1.0
        while length > 1e-8:
            ahead, slopes = _at(objective, design, l2, w + length * step)
            if ahead <= value - 1e-4 * length * promised:
                break
            length /= 2
        if ahead >= value:
            break
        w, value, gradient = w + length * step, ahead, slopes
    return w


def _at(objective: Convex, design: Design, l2: float, w: Array) -> tuple[float, Array]:
    scores = design.scores(w)
    gradient = design.pull(objective.slopes(scores))
    gradient[:-1] += l2 * w[:-1]
    return objective.value(scores) + l2 / 2 * float(w[:-1] @ w[:-1]), gradient


def _fit_many(objective: Convex, design: Design, l2: float) -> Array:
    start = np.zeros(design.width)
    flat = Coordinates.around(design, start, objective.curvatures(design.scores(start)), l2)

    def at(v: Array) -> tuple[float, Array]:
        value, gradient = _at(objective, design, l2, flat.weights(v))
        return value, flat.slopes(gradient)

    found = minimize(at, start, jac=True, method="L-BFGS-B", options={"maxiter": MANY})
    return flat.weights(found.x)
