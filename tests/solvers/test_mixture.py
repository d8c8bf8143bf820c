from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from oracles.goals import Rows, Rules, grid_rows, problem, smooth_rows

from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.best import optimize_over_hull
from ratecli.solvers.hull.forms import RatePoints, RateProgram
from ratecli.solvers.hull.mixture import max_slack_problem
from ratecli.solvers.hull.solver import Mixture
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.oracles.linear import LinearOracle, best_line_step, sweep_directions
from ratecli.solvers.problem import Problem

EVERY = {
    "parity": Rules({"p": "positive_rate[g=a] <= 1.1 * positive_rate[g=b]"}),
    "two": Rules({"r": "recall >= 0.8", "q": "max_gap(positive_rate, by=g) <= 0.1"}),
    "kl": Rules(
        {"e": "error <= 0.35"},
        "kl(base_rate, positive_rate[g=a]) + kl(base_rate, positive_rate[g=b])",
    ),
    "f1 parity": Rules({"f": "f1[g=a] - f1[g=b] <= 0.02"}, "1 - f1"),
    "f1 turned round": Rules({"f": "f1[g=a] - f1[g=b] <= -0.1"}, "1 - f1"),
    "g-mean": Rules({}, "1 - g_mean"),
    "share": Rules({"s": "min(share, by=g) >= 0.3"}),
}


def solved(given: Problem, **options):
    return Mixture(**options).solve(given, np.random.default_rng(0), lambda _: None)


def rates_of(given: Problem, classifier) -> np.ndarray:
    return given.rates.rates(classifier.decide(given.X))


def linear_decisions(X: np.ndarray) -> np.ndarray:
    """Return the decisions (count, n) of all linear classifiers in the plane.

    There is one direction between each two at which points tie.
    """
    steps = [b - a for a, b in combinations(np.unique(X, axis=0), 2)]
    normals = np.array([(sign * -y, sign * x) for x, y in steps for sign in (1, -1)])
    angles = np.unique(np.arctan2(normals[:, 1], normals[:, 0]).round(9))
    middles = 0.5 * (angles + np.roll(angles, -1))
    middles[-1] += np.pi
    found = {tuple(np.ones(len(X)))}
    for angle in middles:
        scores = X @ [np.cos(angle), np.sin(angle)]
        found |= {tuple(1.0 * (scores > cut + 1e-9)) for cut in np.unique(scores)}
    return np.array(sorted(found))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("seed", range(2))
def test_result_is_the_best_mixture_of_all_linear_classifiers(name, seed):
    rows = grid_rows(seed, n=24, d=2)
    given = problem(rows, EVERY[name], l2=0.04)
    every = np.stack([given.rates.rates(p) for p in linear_decisions(rows.X)], axis=1)
    program = RateProgram.of(given)
    expected = optimize_over_hull(program, RatePoints.classifiers(every), 1e-5)
    found = solved(given, gap=1e-5, calls=200, sweeps=6)
    rates = rates_of(given, found.variants["stochastic"])
    assert found.status == "solved"
    assert program.excess(rates) <= 1e-6
    assert program.value(program.objective, rates) == pytest.approx(expected.value, abs=3e-5)


@pytest.mark.parametrize("name", EVERY)
def test_objective_decreases_and_constraints_hold(name):
    given = problem(smooth_rows(1), EVERY[name])
    found = solved(given)
    program = RateProgram.of(given)
    assert found.status == "solved"
    kept = [row["objective"] for row in found.trace if row["violation"] <= 1e-6]
    assert (np.diff(kept) <= 1e-4 + 1e-6).all()  # as far as each is certain
    assert kept[-1] <= min(kept) + 1e-4 + 1e-6
    members = found.variants["stochastic"].members
    assert len(members) <= len(given.rates.leaves) + 1
    for variant in ("stochastic", "deterministic"):
        assert program.excess(rates_of(given, found.variants[variant])) <= 1e-6
    single = found.variants["deterministic"].decide(given.X)
    assert set(np.unique(single)) <= {0.0, 1.0}


@pytest.mark.parametrize("seed", range(3))
def test_constraints_that_cost_nothing_hold_with_the_largest_slack(seed):
    """A random decision has equal selection rates at no cost: of all such mixtures, take the one of least error."""
    rows = grid_rows(seed, n=24, d=2)
    given = problem(rows, EVERY["kl"])
    every = np.stack([given.rates.rates(p) for p in linear_decisions(rows.X)], axis=1)
    room = max_slack_problem(given, 1e-4)
    least = optimize_over_hull(RateProgram.of(room), RatePoints.classifiers(every), 1e-5)
    found = solved(given, calls=200, sweeps=6)
    rates = rates_of(given, found.variants["stochastic"])
    program = RateProgram.of(given)
    assert found.status == "solved"
    assert program.value(program.objective, rates) <= 1e-4 + 1e-6
    assert program.excess(rates) == pytest.approx(least.value, abs=3e-4)


def test_prices_of_the_constraints_are_its_multipliers():
    """A constraint that is loosened by a little lowers the objective by its multiplier."""
    rows = smooth_rows(2)
    values = []
    for limit in (0.50, 0.501):
        found = solved(
            problem(rows, Rules({"c": f"positive_rate[g=a] <= {limit}", "r": "recall >= 0.9"}))
        )
        values.append((found.trace[-1]["objective"], found.multipliers))
    (tight, multipliers), (loose, _) = values
    assert set(multipliers) == {"c", "r"}
    assert loose <= tight + 1e-9
    assert min(multipliers.values()) >= 0


BASE_RATE = smooth_rows(0).label.mean()
LEAST = (0.9 * BASE_RATE - 0.01) / (1 + BASE_RATE)
APART = Rules({"r": "recall >= 0.9", "c": "positive_rate <= 0.01"})
OPPOSED = Rules({"a": "positive_rate >= 0.6", "b": "positive_rate <= 0.4"})
NOT_LINEAR = grid_rows(0, n=40, d=1), Rules({"e": "error <= 0.01"})
STATUSES = {
    "any decisions violate it": (smooth_rows(0), APART, "infeasible", f"by {LEAST:.3g} or more"),
    # all decisions cost the same at the prices
    "no prices": (smooth_rows(0), OPPOSED, "infeasible", "by 0.1 or more"),
    "linear ones violate it": (*NOT_LINEAR, "no_solution_found", "misses some constraint by"),
}


@pytest.mark.parametrize(("rows", "rules", "status", "reason"), STATUSES.values(), ids=STATUSES)
def test_status_says_whether_any_decisions_satisfy_the_constraints(rows, rules, status, reason):
    found = solved(problem(rows, rules))
    assert (found.status, reason in found.reason) == (status, True)
    assert found.variants


def test_too_few_calls_are_an_iteration_limit():
    found = solved(problem(smooth_rows(1), EVERY["kl"]), calls=1)
    assert found.status == "iteration_limit"
    assert found.reason.startswith("after 1 rounds an answer promised")


def test_hashed_variant_is_optional():
    given = problem(smooth_rows(1), EVERY["parity"])
    assert "hashed" not in solved(given).variants
    hashed = solved(given, hashed=True).variants["hashed"].decide(given.X)
    assert set(np.unique(hashed)) <= {0.0, 1.0}


@pytest.mark.parametrize("seed", range(20))
def test_line_step_has_the_smallest_cost(seed):
    rng = np.random.default_rng(seed)
    scores, slopes = rng.normal(size=15), rng.choice([-2.0, -1.0, 1.0], 15)
    costs = rng.normal(size=15)
    step = best_line_step(scores, slopes, costs)
    turns = np.sort(-scores / slopes)
    middles = np.concatenate([[turns[0] - 1], 0.5 * (turns[:-1] + turns[1:]), [turns[-1] + 1]])
    least = min(costs @ (scores + t * slopes > 0) for t in middles)
    assert costs @ (scores + step * slopes > 0) == pytest.approx(least)


def test_sweeps_never_increase_the_cost():
    rng = np.random.default_rng(0)
    given = problem(smooth_rows(3), Rules({}))
    oracle = LinearOracle(OracleRows.of(given.X, RowKinds.by(given.rates)), given.l2, 0, rng)
    w, costs = rng.normal(size=6), rng.normal(size=400)
    paid = [costs @ (oracle._features @ w > 0)]
    for _ in range(4):
        w = sweep_directions(oracle._features, w, costs, rng)
        paid.append(costs @ (oracle._features @ w > 0))
    assert (np.diff(paid) <= 1e-9).all()
    assert paid[-1] < paid[0] - 1


def test_merged_rows_have_the_same_rates_and_costs():
    rows = grid_rows(1, n=200)
    given = problem(rows, EVERY["two"])
    ground = OracleRows.of(given.X, RowKinds.by(given.rates))
    assert ground.X.shape[0] <= 49
    w = np.array([0.3, -1.0])
    decisions, full = (1.0 * (X @ w > 0.1) for X in (ground.X, given.X))
    np.testing.assert_allclose(ground.rates(decisions), given.rates.rates(full), atol=1e-12)
    prices = np.random.default_rng(0).normal(size=len(given.rates.leaves))
    assert ground.costs(prices) @ decisions == pytest.approx((prices @ given.rates.A) @ full)
    thresholds, rates = ground.cut_rates(ground.X @ w)
    for threshold, column in zip(thresholds, rates.T, strict=True):
        expected = given.rates.rates(1.0 * (given.X @ w > threshold))
        np.testing.assert_allclose(column, expected, atol=1e-12)


def test_rows_with_equal_features_need_no_oracle():
    """Any classifier has an error of 1/2."""
    group = np.array(["a", "b"] * 10, dtype=object)
    rows = Rows(np.zeros((20, 2)), np.repeat([0.0, 1.0], 10), group)
    given = problem(rows, Rules({"c": "positive_rate <= 0.3"}))
    found = solved(given)
    rates = rates_of(given, found.variants["stochastic"])
    assert found.status == "solved"
    assert RateProgram.of(given).excess(rates) <= 1e-6
