"""The plain linear classifier that other baselines start from."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ratecli.models.linear import Logistic, Threshold
from ratecli.solvers.liblinear import fit_hinge, fit_logistic, with_ones
from ratecli.solvers.problem import Problem

Loss = Literal["hinge", "logistic"]

TOLERANCE = 1e-4
MAX_ITERATIONS = 20_000


def plain_fit(problem: Problem, loss: Loss, rng: np.random.Generator) -> tuple[Threshold, str]:
    """Least mean loss plus `l2 / 2 |w|^2`, the bias in it, on the labelled rows, by LIBLINEAR.

    Also why it is not quite the least one, "" if it is. Raises E306 where no row has a label.
    """
    signs, weights = problem.labels()
    labelled = np.flatnonzero(signs)
    fit = (fit_hinge if loss == "hinge" else fit_logistic)(
        with_ones(problem.X[labelled]),
        signs[labelled],
        weights[labelled] / problem.l2,
        seed=int(rng.integers(2**31)),
        tolerance=TOLERANCE,
        iterations=MAX_ITERATIONS,
    )
    model = Threshold if loss == "hinge" else Logistic
    classifier = model(fit.weights[:-1], float(fit.weights[-1]))
    if fit.converged:
        return classifier, ""
    return classifier, f"LIBLINEAR stopped after {MAX_ITERATIONS} passes over the rows"
