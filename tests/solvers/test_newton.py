from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize as generic

from ratecli.solvers.majorize.hinge import HingeProblem
from ratecli.solvers.majorize.inner import by_liblinear
from ratecli.solvers.majorize.newton import minimize


def random_problem(seed: int, n: int = 60, d: int = 4, l2: float = 0.05) -> HingeProblem:
    rng = np.random.default_rng(seed)
    up, down = rng.random((2, n)) / n
    up[rng.random(n) < 0.4] = 0
    down[rng.random(n) < 0.4] = 0
    return HingeProblem(rng.normal(size=(n, d)), up, down, l2)


@given(st.integers(0, 10_000), st.sampled_from([1e-4, 1e-2, 1.0]))
@settings(max_examples=40)
def test_the_gap_is_met_and_encloses(seed, l2):
    problem = random_problem(seed, l2=l2)
    found = minimize(problem, 1e-9)
    assert -1e-12 <= found.gap <= 1e-9
    assert (-problem.down <= found.slopes).all()
    assert (found.slopes <= problem.up).all()
    assert found.primal == pytest.approx(problem.primal(problem.X @ found.w, found.w), abs=1e-15)
    assert found.dual == pytest.approx(
        problem.dual(found.slopes, problem.X.T @ found.slopes), abs=1e-15
    )


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_weak_duality_holds_for_any_point_and_any_slopes(seed):
    problem = random_problem(seed)
    rng = np.random.default_rng(seed + 1)
    w = rng.normal(size=4)
    slopes = rng.uniform(-problem.down, problem.up)
    assert problem.dual(slopes, problem.X.T @ slopes) <= problem.primal(problem.X @ w, w) + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_no_generic_optimizer_goes_below_the_dual_value(seed):
    problem = random_problem(seed)
    found = minimize(problem, 1e-10)
    started = generic(lambda w: problem.primal(problem.X @ w, w), found.w, method="Nelder-Mead",
                      options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000})  # fmt: skip
    assert found.dual <= started.fun
    assert started.fun >= found.primal - 1e-9


def test_liblinear_agrees():
    problem = random_problem(3, n=300, d=5)
    fit = by_liblinear(problem, seed=0, tolerance=1e-8, iterations=1_000_000)
    reached = problem.primal(problem.X @ fit.weights, fit.weights)
    assert minimize(problem, 1e-9).primal == pytest.approx(reached, abs=1e-6)


def test_sparse_rows_more_features_than_rows_and_a_start_elsewhere():
    problem = random_problem(1, n=30, d=80, l2=1e-3)
    found = minimize(problem, 1e-9)
    thin = HingeProblem(sparse.csr_array(problem.X), problem.up, problem.down, problem.l2)
    assert minimize(thin, 1e-9).primal == pytest.approx(found.primal, abs=1e-9)
    other = minimize(HingeProblem(problem.X, problem.down, problem.up, problem.l2), 1e-9)
    assert minimize(problem, 1e-9, other).primal == pytest.approx(found.primal, abs=1e-9)


def test_a_start_from_near_multipliers_saves_steps():
    problem = random_problem(2, n=2000, d=20, l2=1e-3)
    found = minimize(problem, 1e-7)
    near = HingeProblem(problem.X, problem.up * 1.05, problem.down, problem.l2)
    assert minimize(near, 1e-7, found).steps < minimize(near, 1e-7).steps


def test_no_costs_leave_zero():
    problem = HingeProblem(np.ones((3, 2)), np.zeros(3), np.zeros(3), 1.0)
    found = minimize(problem, 1e-9)
    assert not found.w.any()
    assert found.primal == found.dual == 0
