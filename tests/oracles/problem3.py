"""Problem 3 of Goh et al. 2016 by other means than ours: a smooth program, and dual bounds.

The convex problem is given as a `ConvexProblem`; its own `values` and `minimize` are not used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize

from ratecli.solvers.majorize.convex import ConvexProblem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Hinges:
    """`flat[j] + sum_l cost[j, l] max(0, 1/2 - signed[l] @ w)`, row 0 plus `l2 / 2 |w|^2`."""

    signed: Floats
    cost: Floats
    flat: Floats
    l2: float

    @classmethod
    def of(cls, convex: ConvexProblem) -> Hinges:
        X = convex.ramp.X if isinstance(convex.ramp.X, np.ndarray) else convex.ramp.X.toarray()
        signed, cost = np.vstack([-X, X]), np.hstack([convex.up, convex.down])
        used = cost.any(axis=0)
        return cls(signed[used], cost[:, used], convex.flat, convex.ramp.l2)

    def values(self, w: Floats) -> Floats:
        values = self.cost @ np.maximum(0, 0.5 - self.signed @ w) + self.flat
        values[0] += self.l2 / 2 * (w @ w)
        return values


def by_slsqp(hinges: Hinges) -> Floats:
    """(m + 1,) values at the solution of the smooth form: a slack for each hinge."""
    count, d = hinges.signed.shape
    gradient = np.concatenate([np.zeros(d), hinges.cost[0]])

    def objective(x: Floats) -> tuple[float, Floats]:
        slope = gradient.copy()
        slope[:d] += hinges.l2 * x[:d]
        return float(gradient @ x + hinges.l2 / 2 * x[:d] @ x[:d]), slope

    above = np.hstack([hinges.signed, np.eye(count)])
    goals = np.hstack([np.zeros((len(hinges.cost) - 1, d)), -hinges.cost[1:]])
    A, b = np.vstack([above, goals]), np.concatenate([np.full(count, -0.5), -hinges.flat[1:]])
    start = np.concatenate([np.zeros(d), np.full(count, 0.5)])
    found = minimize(
        objective, start, jac=True, method="SLSQP",
        bounds=[(None, None)] * d + [(0, None)] * count,
        constraints={"type": "ineq", "fun": lambda x: A @ x + b, "jac": lambda _: A},
        options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    return hinges.values(found.x[:d])


def dual_bound(hinges: Hinges, multipliers: Floats) -> float:
    """A lower bound of z(multipliers): the SVM's dual value, feasible however it was found."""
    mix = np.concatenate([[1.0], multipliers])
    cost, flat = mix @ hinges.cost, float(mix @ hinges.flat)

    def negative(a: Floats) -> tuple[float, Floats]:
        w = hinges.signed.T @ a / hinges.l2
        return float(hinges.l2 / 2 * w @ w - a.sum() / 2), hinges.signed @ w - 0.5

    found = minimize(
        negative, cost / 2, jac=True, method="L-BFGS-B", bounds=[(0, c) for c in cost],
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-10},
    )  # fmt: skip
    a = np.clip(found.x, 0, cost)
    return flat - negative(a)[0]


def best_dual_bound(hinges: Hinges, near: Floats) -> float:
    """A lower bound of Problem 3: the dual value maximized over multipliers, from `near` on."""
    found = minimize(
        lambda v: -dual_bound(hinges, np.abs(v)), near, method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 400},
    )  # fmt: skip
    return float(-found.fun)


def toy_dual(multiplier: float) -> float:
    """z(v) of x = (1, -1), labels (1, 0), coverage at most 1/4, free bias, no regularizer: an LP.

    Variables w, b, and a slack for each hinge: error pushes x = 1 up and x = -1 down, coverage
    pushes both down.
    """
    rows = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [1.0, -1.0]])
    cost = np.array([0.5, 0.5, multiplier / 2, multiplier / 2])
    found = linprog(
        np.concatenate([np.zeros(2), cost]),
        A_ub=-np.hstack([rows, np.eye(4)]),
        b_ub=np.full(4, -0.5),
        bounds=[(None, None)] * 2 + [(0, None)] * 4,
    )
    return float(found.fun) - multiplier / 4
