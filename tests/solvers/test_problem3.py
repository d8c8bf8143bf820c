import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles.goals import Rules, problem, smooth_rows
from oracles.instances import INTERCEPTS, KINDS, first_problem, instance, instances
from oracles.problem3 import check_solution, least
from scipy import sparse
from scipy.optimize import linprog, minimize
from thinned import one_in

from ratecli.models.linear import ramp as ramp_of
from ratecli.solvers.design_matrix import DesignMatrix, merge_equal_rows
from ratecli.solvers.majorize import augmented, newton
from ratecli.solvers.majorize.augmented import AugmentedLagrangian, balance_slopes
from ratecli.solvers.majorize.convex import (
    COMPROMISE_GAP,
    FEASIBILITY_TOLERANCE,
    ConvexProblem,
    ConvexSolution,
    RampProblem,
    StoppingRule,
)
from ratecli.solvers.majorize.cutting_plane import CuttingPlane
from ratecli.solvers.majorize.newton import MoreauEnvelope


def goal(problem: ConvexProblem, gap: float) -> StoppingRule:
    return StoppingRule(0.0, 1e4 * (problem.ramp.spread or 1.0), 1e6, absolute=gap)


def solved(method: AugmentedLagrangian | CuttingPlane, problem: ConvexProblem) -> ConvexSolution:
    return method.solve(problem, np.zeros(problem.ramp.rows.width))


@pytest.mark.parametrize("kind", KINDS)
def test_method_of_multipliers_solves_to_1e_6(kind):
    """The method of multipliers on few constraints and many, and each kind of intercept."""
    for convex in instances(range(1, 2), (0, 1, 2, 5) if kind == "rates" else (1, 5), kind):
        check_solution(convex, solved(AugmentedLagrangian(goal(convex, 5e-7)), convex), 5e-7)


@pytest.mark.parametrize("products", [1e12, 0.0], ids=["matrix", "conjugate gradients"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "wide"])
def test_all_newton_systems_lead_to_the_optimum(kind, products, monkeypatch):
    monkeypatch.setattr(newton, "CG_COST", products)
    monkeypatch.setattr(newton, "CHEAP_PRODUCTS", -1.0)
    for convex in instances(range(1), range(1, 3), kind, "unregularized"):
        check_solution(convex, solved(AugmentedLagrangian(goal(convex, 5e-7)), convex), 5e-7)


@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_products_updated_from_point_to_point_are_those_of_all_rows(kind, intercept):
    problem, rng = instance(0, 2, intercept, kind), np.random.default_rng(0)
    rows, none = problem.ramp.rows, np.zeros(problem.constraints)
    pulls, still = newton.HingePulls(problem), np.zeros(len(rows))
    envelope = MoreauEnvelope(problem, 0.01, none, 1.0, 1e-9, still, pulls)
    for spread in [0.1, 2.0] * 2 * newton.MAX_CHANGED:
        near = envelope._near(rng.normal(0, spread, len(rows)), rng.random(len(none)))
        pull, tilted = pulls.at(near)
        np.testing.assert_allclose(pull, rows.pull(near.slopes), atol=1e-12)
        np.testing.assert_allclose(tilted.T, rows.pull(near.tilts[:, near.state].T), atol=1e-12)


def closes_in(problem: ConvexProblem, gap: float, method: Callable, step: int) -> None:
    """A search stopped ever later: its ends close in on the optimum from both sides."""
    value, multipliers = least(problem)
    lower, worth, feasible = [], [], []
    for count in itertools.count(1, step):
        found = solved(method(count), problem)
        lower.append(found.lower)
        # with excess at a price above the multipliers: no point is below the optimum
        worth.append(found.lower + found.gap)
        feasible += [found.value] if found.feasible else []
        if found.converged:
            break
    assert len(lower) > 3
    assert max(lower) <= value + 1e-8
    assert min(worth) >= value - FEASIBILITY_TOLERANCE * multipliers.sum() - 1e-8
    assert (np.diff(lower) >= 0).all()
    assert (np.diff(feasible) <= 1e-12).all()
    assert (np.diff(worth) <= 1e-12).all()
    assert feasible[-1] - lower[-1] <= gap < worth[0] - lower[0]


@pytest.mark.parametrize(
    ("kind", "intercept"), one_in(2, itertools.product(["dense", "rates"], INTERCEPTS))
)
def test_gap_of_method_of_multipliers_is_nonnegative_and_shrinks(kind, intercept, monkeypatch):
    problem = instance(1, 3, intercept, kind)

    def method(rounds: int) -> AugmentedLagrangian:
        monkeypatch.setattr(augmented, "MAX_ROUNDS", rounds)
        return AugmentedLagrangian(goal(problem, 1e-7))

    closes_in(problem, 1e-7, method, 2)


@pytest.mark.parametrize("centered", [False, True])
def test_gap_of_cutting_plane_is_nonnegative_and_shrinks(centered):
    problem = instance(1, 1, "unregularized", "rates")
    limits = goal(problem, 1e-6)
    closes_in(problem, 1e-6, lambda count: CuttingPlane(limits, centered, count), 5)


LIMITS = StoppingRule(0.0, 1e4, 1e6, absolute=1e-7)


def first(rules: dict[str, str], intercept: str = "regularized") -> ConvexProblem:
    return first_problem(problem(smooth_rows(0), Rules(rules)), intercept)


def least_excess(convex: ConvexProblem) -> float:
    """Least sum of what a point misses the constraints by: a program over w, slacks and excess."""
    ramp, m = convex.ramp, convex.constraints
    X = ramp.rows.dense(np.arange(len(ramp.rows)))
    n, d = X.shape
    up, down = convex.up[:, convex.kind], convex.down[:, convex.kind]
    found = linprog(
        np.repeat([0.0, 1.0], [d + 2 * n, m]),
        A_ub=np.block([
            [X, -np.eye(n), np.zeros((n, n + m))],
            [-X, np.zeros((n, n)), -np.eye(n), np.zeros((n, m))],
            [np.zeros((m, d)), up[1:], down[1:], -np.eye(m)],
        ]),
        b_ub=np.concatenate([np.full(2 * n, -0.5), -convex.flat[1:]]),
        bounds=[(None, None)] * d + [(0, None)] * (2 * n + m),
    )  # fmt: skip
    return float(found.fun)


def impossible(seed: int, intercept: str, by: float) -> ConvexProblem:
    """No point meets the second of three constraints, but one misses it by no more than `by`."""
    found = instance(seed, 3, intercept, "merged")
    flat = np.array([found.flat[0], 10.0])
    alone = replace(found, up=found.up[[0, 2]], down=found.down[[0, 2]], flat=flat)
    flat = found.flat - [0, 0, found.flat[2] - 10.0 + least_excess(alone) - by, 0]
    return replace(found, flat=flat)


@given(st.integers(0, 100_000))
def test_balanced_slopes_are_the_nearest_with_their_sum(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    up, down = rng.random((2, n)) * (rng.random((2, n)) < 0.8)
    slopes = rng.uniform(-down, up)
    total = float(rng.choice([0.0, rng.uniform(-down.sum(), up.sum())]))
    found = balance_slopes(slopes, up, down, total)
    assert found.sum() == pytest.approx(total, abs=1e-12)
    assert (-down <= found).all()
    assert (found <= up).all()
    nearest = minimize(
        lambda x: ((x - slopes) ** 2).sum(), np.zeros(n), jac=lambda x: 2 * (x - slopes),
        bounds=list(zip(-down, up, strict=True)), method="SLSQP", options={"ftol": 1e-15},
        constraints={"type": "eq", "fun": lambda x: x.sum() - total, "jac": np.ones_like},
    )  # fmt: skip
    np.testing.assert_allclose(found, nearest.x, atol=1e-6)


@pytest.mark.parametrize(("intercept", "by"), one_in(2, itertools.product(INTERCEPTS, [1e-3, 0.1])))
def test_infeasible_problem_is_violated_by_little_more_than_the_minimum(intercept, by):
    """Found is a point whose objective, excess paid for, is ROUGH above its least value or less."""
    convex = impossible(0, intercept, by)
    assert least(convex) is None
    found = solved(AugmentedLagrangian(LIMITS), convex)
    assert not found.feasible
    assert found.converged
    assert found.multipliers.max() == pytest.approx(LIMITS.ceiling)
    cheapest = least(convex, LIMITS.ceiling)
    excess, missable = found.excess.sum(), 3 * FEASIBILITY_TOLERANCE
    paid = found.value + LIMITS.ceiling * excess
    assert found.lower <= cheapest[0] * (1 + 1e-8)
    assert cheapest[0] - LIMITS.ceiling * missable <= paid <= found.lower * (1 + COMPROMISE_GAP)
    total = least_excess(convex)
    assert total >= by - 1e-9
    # the objective counts too: by less than 1, which at that price is worth 1e-4 of excess
    assert abs(cheapest[0] - LIMITS.ceiling * total) + abs(found.value) < 1 / (1 + COMPROMISE_GAP)
    assert total - missable <= excess <= (1 + COMPROMISE_GAP) * total + 1 / LIMITS.ceiling


def test_lower_bound_above_hopeless_ends_the_search():
    convex = impossible(0, "none", 0.1)
    dear = solved(AugmentedLagrangian(LIMITS), convex)
    soon = solved(AugmentedLagrangian(StoppingRule(0.0, 1e4, 3.0, absolute=1e-7)), convex)
    assert soon.lower > 3.0
    assert soon.multipliers.max() < dear.multipliers.max()
    assert soon.work < dear.work
    assert not soon.feasible


@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_price_of_excess_grows_to_the_multiplier(intercept, monkeypatch):
    """A thousandth of a rule has a thousand times its multiplier."""
    rule = "positive_rate[g=b] >= 0.9 * positive_rate[g=a]"
    thousandth = "0.001 * positive_rate[g=b] >= 0.0009 * positive_rate[g=a]"
    plain, scaled = (first({"p": text}, intercept) for text in (rule, thousandth))
    one = solved(AugmentedLagrangian(LIMITS), plain)
    monkeypatch.setattr(augmented, "INITIAL_PRICE", 0.1)
    two = solved(AugmentedLagrangian(LIMITS), scaled)
    assert one.multipliers[0] > 0.01
    assert two.feasible
    assert two.converged
    assert two.multipliers[0] == pytest.approx(1000 * one.multipliers[0], rel=0.05)
    assert two.value == pytest.approx(one.value, abs=5e-4), "of FEASIBLE times the multiplier"


def test_feasible_start_at_a_low_price_is_not_returned_as_solution(monkeypatch):
    """From a feasible point, at a price at which some excess is cheaper."""
    convex = first({"r": "recall >= 0.9"})
    start = solved(AugmentedLagrangian(LIMITS), convex).w * 1.5
    start[-1] += 1.0
    assert (convex.values(start)[1:] <= 0).all()
    optimum = least(convex)
    monkeypatch.setattr(augmented, "INITIAL_PRICE", 0.1 * optimum[1][0])
    found = AugmentedLagrangian(LIMITS).solve(convex, start)
    assert found.converged
    assert found.value == pytest.approx(optimum[0], abs=2e-6)


@pytest.mark.parametrize("kind", one_in(2, ["touching", "dense", "rates"]))
def test_warm_start_saves_steps_and_reaches_the_same_value(kind):
    for intercept in INTERCEPTS:
        convex = instance(5, 3, intercept, kind)
        found = solved(AugmentedLagrangian(LIMITS), convex)
        again = AugmentedLagrangian(LIMITS).solve(convex, found.w, found)
        assert again.work < found.work
        assert again.value <= found.value + 1e-12
        ramp = convex.ramp
        other = ConvexProblem.tight_at(ramp, ramp.rows.scores(found.w))
        warm, cold = (AugmentedLagrangian(LIMITS).solve(other, found.w, x) for x in (found, None))
        assert warm.value == pytest.approx(cold.value, abs=2e-7 * (1 + cold.multipliers.sum()))


def test_solution_is_never_worse_than_a_feasible_anchor():
    for seed in range(5):
        convex = instance(seed, 2, "regularized", "rates")
        rough = StoppingRule(0.0, 1e4, 1e6, absolute=1e-3)
        anchor = solved(AugmentedLagrangian(rough), convex).w
        found = AugmentedLagrangian(LIMITS).solve(convex, anchor)
        assert found.value <= convex.values(anchor)[0] + 1e-15


def test_gaps_are_relative_to_the_value_or_a_hundredth_of_the_range():
    goal = StoppingRule(0.01, 1e4, 1e6)
    found = [goal.tolerance(*x) for x in ((2.0, 1.0), (-2.0, 1.0), (1e-9, 3.0), (-np.inf, 1.0))]
    assert found == pytest.approx([0.02, 0.02, 3e-4, 1e-4])
    assert StoppingRule(0.01, 1e4, 1e6, absolute=0.5).tolerance(2.0, 1.0) == 0.5


def test_a_tiny_penalty_needs_a_tiny_part_of_newtons_step(monkeypatch):
    """With no row on a corner Newton's step is the gradient over the penalty."""
    convex = instance(0, 0, "none", "tiny penalty")
    assert convex.ramp.l2 < 1e-6
    assert solved(AugmentedLagrangian(LIMITS), convex).converged
    monkeypatch.setattr(newton, "MIN_NEWTON_STEP", 0.5)
    assert not solved(AugmentedLagrangian(LIMITS), convex).converged


ROWS, FEATURES, GOALS = 6, 2, 2


def matrix(*shape: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, shape, elements=st.floats(-3, 3, width=32))


@st.composite
def ramps(draw) -> RampProblem:
    constants = draw(matrix(GOALS + 1))
    rows = DesignMatrix(draw(matrix(ROWS, FEATURES)), draw(st.sampled_from(INTERCEPTS)))
    up, down = (np.abs(draw(matrix(GOALS + 1, ROWS))) for _ in range(2))
    return RampProblem.by_kind(
        rows, np.concatenate([up, down]), constants, draw(st.floats(0.0, 2.0))
    )


def random_weights(problem: RampProblem, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=problem.rows.width)


def bounds_of_one_row(sign, z, anchor, ties=0.0):
    """What `ConvexProblem` makes of one row that a yes (sign 1) or a no (-1) costs 1."""
    one = RampProblem.of(
        DesignMatrix(np.eye(1), "none"), np.array([[sign]]), np.array([float(sign < 0)]), 0.0
    )
    return [
        ConvexProblem.tight_at(one, np.array([at]), ties).values(np.array([score]))[0]
        for score, at in zip(z, anchor, strict=True)
    ]


def test_bounds_of_the_ramp():
    """Protocols of Goh et al. 2016, vector 9.1."""
    np.testing.assert_allclose(
        ramp_of(np.array([-1, -0.5, -0.2, 0, 0.3, 0.5, 1])), [0, 0, 0.3, 0.5, 0.8, 1, 1]
    )
    z, at = np.array([[0.5, 0.5], [1, 0.5], [1, 0.6], [-1, 0.6], [-1, 0.2]]).T
    np.testing.assert_allclose(bounds_of_one_row(1.0, z, at), [1, 1.5, 1, 1, 0])
    z, at = np.array([[-0.5, -0.5], [-1, -0.5], [-1, -0.6], [2, -0.6], [0, 0], [0.75, -0.5]]).T
    np.testing.assert_allclose(bounds_of_one_row(-1.0, z, at), [1, 1.5, 1, 1, 0.5, 0], atol=1e-15)
    # a score near a corner gets the other bound with ties
    assert bounds_of_one_row(1.0, [2.0], [0.499]) == [2.5]
    assert bounds_of_one_row(1.0, [2.0, 2.0], [0.499, 0.48], ties=0.01) == [1.0, 2.5]


@given(ramps(), st.integers(0, 1000), st.sampled_from([0.0, 0.01]))
@settings(max_examples=50)
def test_a_convex_problem_bounds_the_ramp_problem_and_is_tight_at_its_anchor(problem, seed, ties):
    at, w = random_weights(problem, seed), random_weights(problem, seed + 1)
    convex = ConvexProblem.tight_at(problem, problem.rows.scores(at), ties)
    loose = convex.values(at) - problem.values(at)
    assert (np.abs(loose) <= 1e-9 + ties * (problem.up + problem.down) @ problem.counts).all()
    assert (loose >= -1e-9).all()
    assert (convex.values(w) >= problem.values(w) - 1e-9).all()
    ends, middle = convex.values(at) + convex.values(w), convex.values((at + w) / 2)
    assert (2 * middle <= ends + 1e-9).all()


def test_objectives_beyond_those_of_any_decisions():
    """1.5 at most and -2 at least, plus 0.25; a constant has no range and counts as 1."""
    rows = DesignMatrix(np.eye(3), "none")
    ramp_problem = RampProblem.of(rows, np.array([[1.0, -2.0, 0.5]]), np.array([0.25]), 0.0)
    assert ramp_problem.spread == 3.5
    assert ramp_problem.beyond(0) == 1.75
    assert ramp_problem.beyond(2) == 1.75 + 2 * 3.5
    assert RampProblem.of(rows, np.zeros((1, 3)), np.array([0.25]), 0.0).beyond(2) == 2.25


@pytest.mark.parametrize("kind", KINDS)
def test_weak_duality_holds_for_any_point_multipliers_and_slopes(kind):
    rng = np.random.default_rng(0)
    for intercept in ("regularized", "none"):
        convex = instance(1, 3, intercept, kind)
        value, multipliers = least(convex)  # Clarabel's multipliers leave no gap
        assert least(convex.lagrangian(multipliers))[0] == pytest.approx(value, abs=1e-7)
        for _ in range(20):
            v = rng.exponential(size=3)
            up, down = convex.bounds(v)
            slopes = rng.uniform(-down, up)
            w = rng.normal(size=convex.ramp.rows.width)
            values = convex.values(w)
            pull = convex.ramp.rows.pull(slopes)
            assert convex.dual(v, slopes, pull) <= values[0] + v @ values[1:] + 1e-9


@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_the_lagrangian_is_the_objective_and_the_constraints_at_their_multipliers(intercept):
    convex = instance(3, 4, intercept, "sparse")
    rng = np.random.default_rng(0)
    v, w = rng.exponential(size=4), rng.normal(size=convex.ramp.rows.width)
    alone = convex.lagrangian(v)
    assert alone.constraints == 0
    values = convex.values(w)
    np.testing.assert_allclose(alone.values(w), [values[0] + v @ values[1:]])
    np.testing.assert_allclose(alone.bounds(np.zeros(0)), convex.bounds(v))
    bias = {"regularized": [0.5], "unregularized": [0.0], "none": []}[intercept]
    assert DesignMatrix(X, intercept).penalties(0.5).tolist() == [0.5, 0.5, *bias]


X = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.0]])


@given(st.integers(0, 10_000), st.booleans())
def test_merged_rows_preserve_weighted_sums(seed, thin):
    """Of any function of the features: here of scores by random weights."""
    rng = np.random.default_rng(seed)
    points = rng.integers(-1, 2, size=(50, 3)).astype(float)
    costs = rng.random((2, 50)) * (rng.random(50) < 0.8)
    few, summed = merge_equal_rows(sparse.csr_array(points) if thin else points, costs)
    kept = sparse.csr_array(few).toarray()
    assert len(np.unique(kept, axis=0)) == len(kept) <= 27
    w = rng.normal(size=3)
    np.testing.assert_allclose(summed @ np.exp(kept @ w), costs @ np.exp(points @ w), rtol=1e-12)


def test_rows_without_costs_are_dropped():
    few, costs = merge_equal_rows(X, np.array([[1.0, 0.0, 2.0]]))
    assert sorted(zip(few.tolist(), costs[0], strict=True)) == [([1, 2], 1), ([3, 0], 2)]
    none, costs = merge_equal_rows(X, np.zeros((2, 3)))
    assert none.shape == (0, 2)
    assert costs.shape == (2, 0)


def test_different_rows_with_one_key_are_not_merged():
    key = np.random.default_rng(0).normal(size=2)
    rows = np.tile(np.diag(key[::-1]), (10, 1))
    costs = np.ones((1, 20))
    assert len(set((rows @ key).tolist())) == 1
    few, summed = merge_equal_rows(rows, costs)
    assert few is rows
    assert summed is costs
