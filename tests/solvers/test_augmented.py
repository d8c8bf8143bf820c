from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.goals import Rules, problem, smooth_rows
from oracles.instances import INTERCEPTS, instance
from oracles.problem3 import least
from scipy.optimize import linprog, minimize

from ratecli.solvers.majorize import newton
from ratecli.solvers.majorize.augmented import AugmentedLagrangian, balance_slopes
from ratecli.solvers.majorize.convex import (
    COMPROMISE_GAP,
    FEASIBILITY_TOLERANCE,
    ConvexProblem,
    StoppingRule,
)
from ratecli.solvers.majorize.majorization import make_ramp_problem
from ratecli.solvers.majorize.solver import Majorize

GOAL = StoppingRule(0.0, 1e4, 1e6, absolute=1e-7)


def zeros(problem: ConvexProblem) -> np.ndarray:
    return np.zeros(problem.ramp.rows.width)


def first(rules: dict[str, str], intercept: str = "regularized") -> ConvexProblem:
    """Problem 3 anchored at w = 0."""
    ramp = make_ramp_problem(Majorize(intercept=intercept), problem(smooth_rows(0), Rules(rules)))
    return ConvexProblem.tight_at(ramp, np.zeros(len(ramp.rows)))


def least_excess(convex: ConvexProblem) -> float:
    """Least sum of what a point misses the constraints by: a program over w, slacks and excess."""
    ramp, m = convex.ramp, convex.constraints
    X = ramp.rows.dense(np.arange(len(ramp.rows)))
    n, d = X.shape
    found = linprog(
        np.repeat([0.0, 1.0], [d + 2 * n, m]),
        A_ub=np.block([
            [X, -np.eye(n), np.zeros((n, n + m))],
            [-X, np.zeros((n, n)), -np.eye(n), np.zeros((n, m))],
            [np.zeros((m, d)), convex.up[1:], convex.down[1:], -np.eye(m)],
        ]),
        b_ub=np.concatenate([np.full(2 * n, -0.5), -convex.flat[1:]]),
        bounds=[(None, None)] * d + [(0, None)] * (2 * n + m),
    )  # fmt: skip
    return float(found.fun)


def impossible(seed: int, intercept: str, by: float) -> ConvexProblem:
    """No point meets the second of three constraints, but one misses it by no more than `by`."""
    found = instance(seed, 3, intercept, "merged")
    alone = ConvexProblem(
        found.ramp, found.up[[0, 2]], found.down[[0, 2]], np.array([found.flat[0], 10.0])
    )
    flat = found.flat - [0, 0, found.flat[2] - 10.0 + least_excess(alone) - by, 0]
    return ConvexProblem(found.ramp, found.up, found.down, flat)


# --- slopes that add up to 0


@given(st.integers(0, 100_000))
def test_balanced_slopes_are_the_nearest_that_add_up_to_0(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    up, down = rng.random((2, n)) * (rng.random((2, n)) < 0.8)
    slopes = rng.uniform(-down, up)
    found = balance_slopes(slopes, up, down)
    assert found.sum() == pytest.approx(0, abs=1e-12)
    assert (-down <= found).all()
    assert (found <= up).all()
    nearest = minimize(
        lambda x: ((x - slopes) ** 2).sum(), np.zeros(n), jac=lambda x: 2 * (x - slopes),
        bounds=list(zip(-down, up, strict=True)), method="SLSQP", options={"ftol": 1e-15},
        constraints={"type": "eq", "fun": np.sum, "jac": np.ones_like},
    )  # fmt: skip
    np.testing.assert_allclose(found, nearest.x, atol=1e-6)


# --- without a solution


@pytest.mark.parametrize("by", [1e-3, 0.1])
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_infeasible_problem_is_violated_by_little_more_than_the_minimum(intercept, by):
    """Found is a point whose objective, excess paid for, is ROUGH above its least value or less."""
    convex = impossible(0, intercept, by)
    assert least(convex) is None
    found = AugmentedLagrangian(GOAL).solve(convex, zeros(convex))
    assert not found.feasible
    assert found.converged
    assert found.multipliers.max() == pytest.approx(GOAL.ceiling)
    cheapest = least(convex, GOAL.ceiling)
    assert cheapest
    paid = found.value + GOAL.ceiling * found.excess.sum()
    assert found.lower <= cheapest[0] * (1 + 1e-8)
    assert (
        cheapest[0] - GOAL.ceiling * 3 * FEASIBILITY_TOLERANCE
        <= paid
        <= found.lower * (1 + COMPROMISE_GAP)
    )
    total = least_excess(convex)
    assert total >= by - 1e-9
    # the objective counts too: by less than 1, which at that price is worth 1e-4 of excess
    assert abs(cheapest[0] - GOAL.ceiling * total) + abs(found.value) < 1 / (1 + COMPROMISE_GAP)
    assert (
        total - 3 * FEASIBILITY_TOLERANCE
        <= found.excess.sum()
        <= (1 + COMPROMISE_GAP) * total + 1 / GOAL.ceiling
    )


def test_lower_bound_above_hopeless_ends_the_search():
    convex = impossible(0, "none", 0.1)
    dear = AugmentedLagrangian(GOAL).solve(convex, zeros(convex))
    soon = AugmentedLagrangian(StoppingRule(0.0, 1e4, 3.0, absolute=1e-7)).solve(
        convex, zeros(convex)
    )
    assert soon.lower > 3.0
    assert soon.multipliers.max() < dear.multipliers.max()
    assert soon.work < dear.work
    assert not soon.feasible


@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_price_of_excess_grows_to_the_multiplier(intercept):
    """A thousandth of a rule has a thousand times its multiplier."""
    rule = "positive_rate[g=b] >= 0.9 * positive_rate[g=a]"
    thousandth = "0.001 * positive_rate[g=b] >= 0.0009 * positive_rate[g=a]"
    plain, scaled = (first({"p": text}, intercept) for text in (rule, thousandth))
    one = AugmentedLagrangian(GOAL).solve(plain, zeros(plain))
    two = AugmentedLagrangian(GOAL, price=0.1).solve(scaled, zeros(scaled))
    assert one.multipliers[0] > 0.01
    assert two.feasible
    assert two.converged
    assert two.multipliers[0] == pytest.approx(1000 * one.multipliers[0], rel=0.05)
    assert two.value == pytest.approx(one.value, abs=5e-4), "of FEASIBLE times the multiplier"


def test_feasible_start_at_a_low_price_is_not_returned_as_solution():
    """From a feasible point, at a price at which some excess is cheaper."""
    convex = first({"r": "recall >= 0.9"})
    start = AugmentedLagrangian(GOAL).solve(convex, zeros(convex)).w * 1.5
    start[-1] += 1.0
    assert (convex.values(start)[1:] <= 0).all()
    optimum = least(convex)
    assert optimum
    found = AugmentedLagrangian(GOAL, price=0.1 * optimum[1][0]).solve(convex, start)
    assert found.converged
    assert found.value == pytest.approx(optimum[0], abs=2e-6)


# --- the search


@pytest.mark.parametrize("kind", ["dense", "rates", "touching"])
def test_warm_start_saves_steps_and_reaches_the_same_value(kind):
    for intercept in INTERCEPTS:
        convex = instance(5, 3, intercept, kind)
        found = AugmentedLagrangian(GOAL).solve(convex, zeros(convex))
        again = AugmentedLagrangian(GOAL).solve(convex, found.w, found)
        assert again.work < found.work
        assert again.value <= found.value + 1e-12
        ramp = convex.ramp
        other = ConvexProblem.tight_at(ramp, ramp.rows.scores(found.w))
        warm, cold = (
            AugmentedLagrangian(GOAL).solve(other, found.w, each) for each in (found, None)
        )
        assert warm.value == pytest.approx(cold.value, abs=2e-7 * (1 + cold.multipliers.sum()))


def test_solution_is_never_worse_than_a_feasible_anchor():
    for seed in range(5):
        convex = instance(seed, 2, "regularized", "rates")
        anchor = (
            AugmentedLagrangian(StoppingRule(0.0, 1e4, 1e6, absolute=1e-3))
            .solve(convex, zeros(convex))
            .w
        )
        found = AugmentedLagrangian(GOAL).solve(convex, anchor)
        assert found.value <= convex.values(anchor)[0] + 1e-15


def test_gaps_are_relative_to_the_value_or_a_hundredth_of_the_range():
    goal = StoppingRule(0.01, 1e4, 1e6)
    assert goal.tolerance(2.0, 1.0) == pytest.approx(0.02)
    assert goal.tolerance(-2.0, 1.0) == pytest.approx(0.02)
    assert goal.tolerance(1e-9, 3.0) == pytest.approx(0.01 * 0.01 * 3)
    assert goal.tolerance(-np.inf, 1.0) == pytest.approx(1e-4)
    assert StoppingRule(0.01, 1e4, 1e6, absolute=0.5).tolerance(2.0, 1.0) == 0.5


def test_a_tiny_penalty_needs_a_tiny_part_of_newtons_step(monkeypatch):
    """With no row on a corner Newton's step is the gradient over the penalty."""
    convex = instance(0, 0, "none", "tiny penalty")
    assert convex.ramp.l2 < 1e-6
    assert AugmentedLagrangian(GOAL).solve(convex, zeros(convex)).converged
    monkeypatch.setattr(newton, "MIN_NEWTON_STEP", 0.5)
    assert not AugmentedLagrangian(GOAL).solve(convex, zeros(convex)).converged
