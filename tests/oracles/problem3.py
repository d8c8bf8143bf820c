"""Problem 3 of Goh et al. 2016 by a generic interior-point solver (Clarabel), to eight digits."""

import clarabel
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE, ConvexProblem, ConvexSolution

Floats = NDArray[np.float64]


def least(problem: ConvexProblem, price: float | None = None) -> tuple[float, Floats] | None:
    """The least value and the multipliers; None if no w meets the constraints.

    With a `price`, what a point misses each constraint by may be paid for. Variables are w, a slack
    for each hinge with a cost, and excess e: minimize `penalties / 2 w^2 + c0 s + price e` subject
    to s >= 0, s >= 1/2 + y z, e >= 0 and C s - e + flat <= 0.
    """
    ramp = problem.ramp
    X = ramp.rows.X if isinstance(ramp.rows.X, np.ndarray) else ramp.rows.X.toarray()
    X = np.hstack([X, np.ones((len(X), 1))]) if ramp.rows.biased else X
    costs = np.hstack([problem.up[:, problem.kind], problem.down[:, problem.kind]])
    signed = np.vstack([X, -X])
    used = costs.any(axis=0)
    costs, signed = costs[:, used], signed[used]
    count, d, m = costs.shape[1], X.shape[1], problem.constraints
    paid = np.eye(m)[:, : m if price else 0]
    k = paid.shape[1]
    P = sparse.csc_matrix(sparse.diags_array(np.append(ramp.penalties, np.zeros(count + k))))
    q = np.concatenate([np.zeros(d), costs[0], np.full(k, price or 0.0)])
    A = sparse.csc_matrix(np.block([
        [signed, -np.eye(count), np.zeros((count, k))],
        [np.zeros((count, d)), -np.eye(count), np.zeros((count, k))],
        [np.zeros((m, d)), costs[1:], -paid],
        [np.zeros((k, d + count)), -np.eye(k)],
    ]))  # fmt: skip
    b = np.concatenate([np.full(count, -0.5), np.zeros(count), -problem.flat[1:], np.zeros(k)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    cones = [clarabel.NonnegativeConeT(2 * count + m + k)]
    found = clarabel.DefaultSolver(P, q, A, b, cones, settings).solve()
    if str(found.status) in {"PrimalInfeasible", "AlmostPrimalInfeasible"}:
        return None
    assert str(found.status) in {"Solved", "AlmostSolved"}, found.status
    return float(found.obj_val + problem.flat[0]), np.array(found.z[2 * count : 2 * count + m])


def check_solution(problem: ConvexProblem, found: ConvexSolution, gap: float) -> None:
    """The point is feasible and as good as the optimum, and the certificate is one."""
    value, multipliers = least(problem)
    at = problem.values(found.w)
    assert found.converged
    assert found.feasible
    assert at[1:].max(initial=0.0) <= FEASIBILITY_TOLERANCE * (1 + 1e-9)
    assert found.value == pytest.approx(at[0], abs=1e-12)
    assert found.lower <= value + 1e-8
    # a point may miss each constraint by FEASIBLE, and be better by what that is worth
    worth = FEASIBILITY_TOLERANCE * multipliers.sum()
    assert -worth - 1e-9 <= found.value - found.lower <= gap
    assert found.gap == pytest.approx(max(found.value - found.lower, 0), abs=1e-12)
    assert value - worth - 1e-8 <= found.value <= value + gap + 1e-8


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
