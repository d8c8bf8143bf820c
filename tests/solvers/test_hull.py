import contextlib
import itertools
from dataclasses import replace
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import problem1
from oracles.goals import BOTH, KL, Rows, Rules, grid_rows, problem, rates_of, smooth_rows
from scipy.optimize import linprog
from thinned import one_in

from ratecli.models.linear import Threshold
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.curve import RateCurve
from ratecli.solvers.hull import mixture
from ratecli.solvers.hull.forms import RatePoints, RateProgram
from ratecli.solvers.hull.master import HullOptimum, best_in_hull, min_violation
from ratecli.solvers.hull.mixture import max_slack_problem
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.hull.simplex import _solve_by_highs, solve_linear_program
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.problem import Problem

GAP = 1e-5
GOALS = {
    "affine": Rules({"p": "positive_rate[g=a] <= 1.2 * positive_rate[g=b]", "r": "recall >= 0.4"}),
    "kl": Rules({"e": "error <= 0.45"}, KL),
    "g-mean": Rules({"p": "positive_rate <= 0.5"}, "1 - g_mean"),
    "h-mean within": Rules({"h": "h_mean >= 0.3"}, "error"),
    "q-mean": Rules({}, "1 - q_mean"),
    "f1": Rules({"p": "positive_rate <= 0.6"}, "1 - f1"),
    "f1 parity": Rules({"f": "max_gap(f1, by=g) <= 0.1"}, "1 - f1"),
    "precision parity": Rules({"f": "max_gap(precision, by=g) <= 0.1"}),
    "f1 and error": Rules({"f": "max_gap(f1, by=g) <= 0.2"}, "error - f1[g=a] - f1[g=b]"),
    "ratio and curve": Rules({"k": "kl(0.5, positive_rate) <= 0.2"}, "1 - f1"),
    "ratios and rates": Rules({"r": "f1[g=a] + recall <= precision[g=b] + 0.4"}, "1 - f1"),
    "one ratio twice": Rules({"f": "f1 >= 0.4", "a": "f1[g=a] >= f1 - 0.05"}, "1 - f1"),
}
THREE = {
    "f1 parity": Rules({"f": "max_gap(f1, by=g) <= 0.05"}, "1 - f1"),
    "precision parity": Rules({"f": "max_gap(precision, by=g) <= 0.05"}),
    "both": Rules({"f": "max_gap(f1, by=g) <= 0.1", "p": "max_gap(precision, by=g) <= 0.2"}),
    "a chain": Rules({"b": "f1[g=b] >= f1[g=a] - 0.1", "c": "f1[g=c] >= f1[g=b]"}),
    "a sum": Rules({}, "error - f1[g=a] - f1[g=b] - f1[g=c]"),
}


def given_rules(seed: int, rules: Rules, groups: str):
    """A problem of 60 rows, and a generator for more."""
    rng = np.random.default_rng(seed)
    group = np.array([*groups], dtype=object)[rng.integers(len(groups), size=60)]
    label = (rng.random(60) < np.where(group == "a", 0.6, 0.3)).astype(float)
    return problem(Rows(np.zeros((60, 1)), label, group), rules), rng


def instance(seed: int, rules: Rules, count: int, groups: str = "ab"):
    """A program, and rates (K, count) of random decisions of 60 rows in groups."""
    given, rng = given_rules(seed, rules, groups)
    decisions = (rng.random((count, 60)) < rng.random((count, 1))).astype(float)
    return RateProgram.of(given), np.stack([given.rates.rates(p) for p in decisions], axis=1)


def on_grid(program: RateProgram, rates: np.ndarray, steps: int) -> float:
    """The least objective of the mixtures whose chances are multiples of 1 / steps."""
    count = rates.shape[1]
    cuts = itertools.combinations(range(steps + count - 1), count - 1)
    bars = np.array([(-1, *cut, steps + count - 1) for cut in cuts])
    mixtures = (rates @ ((np.diff(bars, axis=1) - 1) / steps).T).T
    values = program.value(program.objective, mixtures.T)
    return float(np.fmin.reduce(values[program.excess(mixtures.T) <= 1e-9], initial=np.inf))


def best_mixture(program: RateProgram, rates: np.ndarray, gap: float = GAP) -> HullOptimum:
    return best_in_hull(program, RatePoints.classifiers(rates), gap)


@pytest.mark.parametrize(
    ("name", "groups"),
    one_in(2, [*((name, "ab") for name in GOALS), *((name, "abc") for name in THREE)]),
)
@given(st.integers(0, 2**32 - 1))
@example(2417183978)  # for "both abc": no relaxed point has levels at which a point is feasible
@settings(max_examples=2, deadline=None)
def test_optimum_is_at_least_as_good_as_mixtures_on_a_grid(name, groups, seed):
    program, rates = instance(seed, (GOALS if groups == "ab" else THREE)[name], 4, groups)
    found, grid = best_mixture(program, rates), on_grid(program, rates, 24)
    if not found.feasible:
        assert grid == np.inf
        return
    assert found.value <= grid + GAP
    assert program.excess(found.rates) <= 5e-7
    assert found.value == pytest.approx(program.value(program.objective, found.rates), abs=1e-9)
    assert found.bound <= min(found.value, grid) + 1e-9
    if found.value < 2:  # otherwise a rate is 0, where no tangent touches kl
        assert found.left <= 5 * GAP
    assert found.rates == pytest.approx(rates @ found.weights)
    assert found.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", GOALS)
def test_bound_is_below_all_decisions_of_the_rows(name):
    """Also with a block for each kind of rows, and for goals that are not convex."""
    given, rng = given_rules(0, GOALS[name], "ab")
    program = RateProgram.of(given)
    found = best_in_hull(program, RatePoints.decisions(RowKinds.by(given.rates)), GAP)
    assert found.feasible
    decisions = rng.random((2000, 60)) < rng.random((2000, 1))
    rates = np.stack([given.rates.rates(p) for p in decisions.astype(float)], axis=1)
    values = program.cost(rates)[program.excess(rates) <= 0]
    assert found.bound <= found.value + 1e-9
    assert found.value <= values.min(initial=np.inf) + GAP
    if program.is_convex and found.value < 2:
        assert found.left <= 5 * GAP


@pytest.mark.parametrize(
    ("seed", "frugal"), one_in(3, itertools.product([7, 12, 18, 21], [True, False]))
)
def test_a_search_from_a_point_finds_none_worse(seed, frugal):
    """With more and more points, and comparisons of ratios that most points violate."""
    limits = {
        f"{a}{b}": 0.1 + 0.01 * k for k, (a, b) in enumerate(itertools.permutations("abc", 2))
    }
    rules = {
        name: f"precision[g={name[0]}] - precision[g={name[1]}] + f1[g={name[0]}] <= 1 + {limit}"
        for name, limit in limits.items()
    }
    program, rates = instance(seed, Rules(rules, "1 - f1"), 20, "abc")
    near, last = None, np.inf
    for count in (8, 12, 16, 20):
        hull = RatePoints.classifiers(rates[:, :count])
        found = best_in_hull(program, hull, 1e-5, near=near, frugal=frugal)
        if found.feasible:
            assert program.excess(found.rates) <= 5e-7
            assert found.value <= last + 1e-9
            near, last = found.weights, found.value
    assert last < np.inf


UNSATISFIABLE = {
    "affine": Rules({"p": "positive_rate[g=a] <= positive_rate[g=b] - 2"}),
    "log": Rules({"k": "log(positive_rate) >= 2"}),
    "f1 gap": Rules({"f": "f1[g=a] - f1[g=b] <= -2"}),
}


@pytest.mark.parametrize("name", UNSATISFIABLE)
@pytest.mark.parametrize("seed", range(3))
def test_prices_of_the_least_violation_are_its_slopes(name, seed):
    """Otherwise column generation would not look for classifiers that reduce the violation."""
    program, rates = instance(seed, UNSATISFIABLE[name], 6)
    found = best_mixture(program, rates, 1e-6)
    steps = 1e-6 * np.eye(len(rates))
    moved = [program.excess(found.rates + s) - program.excess(found.rates - s) for s in steps]
    np.testing.assert_allclose(found.prices, np.array(moved) / 2e-6, atol=1e-4)
    assert np.abs(found.prices).max() > 0.1
    assert found.multipliers.sum() == pytest.approx(1.0)
    assert not found.feasible


def violation(rules: Rules) -> float:
    goals = problem(smooth_rows(0), rules)
    return min_violation(RateProgram.of(goals), RowKinds.by(goals.rates))[0]


APART = Rules({"r": "recall >= 0.9", "c": "positive_rate <= 0.01"})
BASE_RATE = smooth_rows(0).label.mean()
LEAST = (0.9 * BASE_RATE - 0.01) / (1 + BASE_RATE)
"""Both rules of APART are missed by it, as positive_rate is at least base_rate * recall."""


@pytest.mark.parametrize(
    ("rules", "least"),
    [
        (Rules({"r": "recall >= 1.25"}), 0.25),
        (APART, LEAST),
        (Rules({"e": "error <= 0", "c": "max_gap(tpr, by=g) <= 0"}), 0.0),
        (Rules({"r": "recall >= 0.5"}), 0.0),
    ],
    ids=["beyond the range", "exclude each other", "met by the labels", "easy"],
)
def test_min_violation_is_the_least_that_any_decisions_reach(rules, least):
    assert max(violation(rules), 0.0) == pytest.approx(least, abs=2e-4)


def test_min_violation_allows_an_undefined_objective():
    """Nobody of a is selected there, and of b a share of x so that `x - .9 = .47 - x / 2`."""
    rules = {
        "most": "positive_rate[g=b] <= 0.9",
        "apart": "positive_rate[g=a] - 0.5 * positive_rate[g=b] <= -0.47",
        "ratio": "f1[g=b] - precision <= 0.9",
    }
    found = violation(Rules(rules, "1 - precision[g=a]"))
    assert found == pytest.approx(0.02 / 1.5, abs=2e-4)


def random_table(seed: int) -> tuple[np.ndarray, int]:
    """A random degenerate program with repeated columns and rows, and its number of equations."""
    rng = np.random.default_rng(seed)
    m, n, equal = rng.integers(2, 9), rng.integers(1, 40), rng.integers(1, 4)
    rows = rng.normal(size=(m, n)).round(1) * 10.0 ** rng.integers(-4, 4, size=(m, 1))
    rows[0] = rng.choice([1.0, 0.3]) + 0.2 * rng.random(n) * rng.integers(2)
    rows[1] = rows[-1] if rng.random() < 0.2 else rows[1]
    table = np.vstack([rng.normal(size=2 * n).round(1), np.repeat(rows, 2, axis=1)])
    return table, min(int(equal), int(m))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_optimum_equals_that_of_highs(seed):
    """Also that of the fallback, and its duals are feasible, so they give a bound."""
    table, equal = random_table(seed)
    (cost, *rows), right = table, np.eye(len(table) - 1)[0]
    expected = linprog(cost, rows[equal:] or None, right[equal:], rows[:equal], right[:equal])
    assume(expected.status in {0, 2})  # HiGHS fails occasionally
    answers = [solve_linear_program(table, equal)]
    with contextlib.suppress(ArithmeticError):  # HiGHS fails occasionally
        answers.append(_solve_by_highs(table, equal))
    for found in answers:
        assert (found is None) == (expected.status == 2)
        if found is None:
            continue
        assert found.duals[0] == pytest.approx(expected.fun, abs=1e-6, rel=1e-6)
        assert cost @ found.x == pytest.approx(expected.fun, abs=1e-6, rel=1e-6)
        off = (rows @ found.x - right) / (1 + np.abs(rows).max(axis=1))
        assert (np.abs(off[:equal]) <= 1e-7).all()
        assert (off[equal:] <= 1e-7).all()
        assert (found.x >= 0).all()
        assert (found.duals[equal:] <= 1e-9).all()
        assert (cost - found.duals @ rows).min() >= -1e-7


def test_degenerate_program_with_thousands_of_columns():
    """The optimum is all of the first column by construction, and costs nothing."""
    rng = np.random.default_rng(0)
    fixed = rng.normal(size=(40, 5000))
    fixed[0], fixed[1:, 0] = 1.0, 0.0
    cost = np.append(0.0, rng.random(4999)) - rng.random(39) @ fixed[1:]
    found = solve_linear_program(np.vstack([cost, fixed]), 1)
    assert found.duals[0] == pytest.approx(0.0, abs=1e-9)
    assert found.x[0] == pytest.approx(1.0)
    assert (cost - found.duals @ fixed).min() >= -1e-8


PROGRAMS = {
    "parity": Rules({"p": "positive_rate[g=a] <= 1.1 * positive_rate[g=b]"}),
    "two": Rules({"r": "recall >= 0.8", "q": "max_gap(positive_rate, by=g) <= 0.1"}),
    "kl": Rules({"e": "error <= 0.35"}, KL),
    "f1 parity": Rules({"f": "f1[g=a] - f1[g=b] <= 0.02"}, "1 - f1"),
    "f1 turned round": Rules({"f": "f1[g=a] - f1[g=b] <= -0.1"}, "1 - f1"),
    "g-mean": Rules({}, "1 - g_mean"),
    "share": Rules({"s": "min(share, by=g) >= 0.3"}),
}


class ExactOracle:
    """The cheapest of all linear classifiers of integral points in the plane."""

    starts = False

    def __init__(self, rows: OracleRows) -> None:
        self.rows, points = rows, np.round(rows.X).astype(int)
        self.directions = problem1.directions(np.unique(points, axis=0))

    def answer(self, prices, near):  # noqa: ARG002
        costs = self.rows.costs(prices)
        every = []
        for weights in self.directions:
            scores = self.rows.X @ weights
            cut = RateCurve.of(scores).cheapest(costs)
            every.append((costs @ (scores > cut), Threshold(weights.astype(float), -cut)))
        return min(every, key=itemgetter(0))[1]


@pytest.fixture
def _exact_oracle(monkeypatch):
    monkeypatch.setattr(mixture, "make_oracle", lambda _, rows, *__: ExactOracle(rows))


def best(given: Problem, **options):
    return Mixture(**(BOTH | options)).solve(given, np.random.default_rng(0), lambda _: None)


@pytest.mark.parametrize(("seed", "name"), one_in(2, itertools.product(range(2), PROGRAMS)))
@pytest.mark.usefixtures("_exact_oracle")
def test_result_is_the_best_mixture_of_all_linear_classifiers(name, seed):
    rows = grid_rows(seed, n=24, d=2)
    given = problem(rows, PROGRAMS[name], l2=0.04)
    every = np.stack([given.rates.rates(p) for p in problem1.dichotomies(rows.X)], axis=1)
    program = RateProgram.of(given)
    expected = best_in_hull(program, RatePoints.classifiers(every), 1e-5)
    found = best(given, gap=1e-5, calls=200)
    rates = rates_of(given, found.variants["stochastic"])
    assert found.status == "solved"
    assert program.excess(rates) <= 1e-6
    assert program.value(program.objective, rates) == pytest.approx(expected.value, abs=3e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_objective_decreases_and_constraints_hold(name):
    given = problem(smooth_rows(1), PROGRAMS[name])
    found = best(given)
    program = RateProgram.of(given)
    assert found.status == "solved"
    assert set(found.multipliers) == set(PROGRAMS[name].constraints)
    assert min(found.multipliers.values(), default=0) >= -1e-12
    kept = [row["objective"] for row in found.trace if row["violation"] <= 1e-6]
    assert (np.diff(kept) <= 1e-4 + 1e-6).all()  # as far as each is certain
    assert kept[-1] <= min(kept) + 1e-4 + 1e-6
    members = found.variants["stochastic"].members
    assert len(members) <= len(given.rates.leaves) + 1
    for variant in ("stochastic", "deterministic"):
        assert program.excess(rates_of(given, found.variants[variant])) <= 1e-6
    single = found.variants["deterministic"].decide(given.X)
    assert set(np.unique(single)) <= {0.0, 1.0}


@pytest.mark.parametrize("seed", one_in(3, range(3)))
@pytest.mark.usefixtures("_exact_oracle")
def test_constraints_that_cost_nothing_hold_with_the_largest_slack(seed):
    """A random decision has equal selection rates at no cost: of all such mixtures, take the one of least error."""
    rows = grid_rows(seed, n=24, d=2)
    given = problem(rows, PROGRAMS["kl"])
    every = np.stack([given.rates.rates(p) for p in problem1.dichotomies(rows.X)], axis=1)
    room = max_slack_problem(given, 1e-4)
    least = best_in_hull(RateProgram.of(room), RatePoints.classifiers(every), 1e-5)
    found = best(given, calls=200)
    rates = rates_of(given, found.variants["stochastic"])
    program = RateProgram.of(given)
    assert found.status == "solved"
    assert program.value(program.objective, rates) <= 1e-4 + 1e-6
    assert program.excess(rates) == pytest.approx(least.value, abs=3e-4)


def test_a_search_from_a_mixture_finds_nothing_worse():
    """With one call, and the mixture of a stricter rule, which few calls cannot find."""
    rows = smooth_rows(0)
    strict, loose = (
        problem(rows, Rules({"p": f"positive_rate <= {most}"})) for most in (0.2, 0.22)
    )
    near = best(strict).variants["stochastic"]
    found = best(replace(loose, near=near), calls=1)
    assert found.trace[0]["violation"] == 0
    assert found.trace[0]["objective"] <= strict.value(near) + 1e-9
    assert best(loose, calls=1).trace[0]["objective"] > strict.value(near) + 1e-3


OPPOSED = Rules({"a": "positive_rate >= 0.6", "b": "positive_rate <= 0.4"})
NOT_LINEAR = grid_rows(0, n=40, d=1), Rules({"e": "error <= 0.01"})
STATUSES = {
    # all decisions cost the same at the prices
    "any decisions violate it": (
        smooth_rows(0),
        OPPOSED,
        "infeasible",
        "'a' by 0.201 or 'b' by 0.201",
    ),
    "linear ones violate it": (
        *NOT_LINEAR,
        "no_solution_found",
        "the closest violates 'e' by",
    ),
}


@pytest.mark.parametrize(("rows", "rules", "status", "reason"), STATUSES.values(), ids=STATUSES)
def test_status_says_whether_any_decisions_satisfy_the_constraints(rows, rules, status, reason):
    found = best(problem(rows, rules))
    assert (found.status, reason in found.reason) == (status, True)
    assert found.variants


def test_too_few_calls_are_an_iteration_limit():
    given = problem(smooth_rows(1), PROGRAMS["kl"])
    found = best(given, calls=1, variants=("hashed",))
    assert found.status == "iteration_limit"
    assert found.reason.startswith("after 1 rounds the objective could")
    assert set(found.variants["hashed"].decide(given.X)) <= {0.0, 1.0}


def test_merged_rows_have_the_same_rates_and_costs():
    rows = grid_rows(1, n=200)
    given = problem(rows, PROGRAMS["two"])
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
    found = best(given)
    rates = rates_of(given, found.variants["stochastic"])
    assert found.status == "solved"
    assert RateProgram.of(given).excess(rates) <= 1e-6


def test_a_model_whose_answers_all_violate_a_rule_by_little_is_not_a_constant():
    """On new rows, boosted trees are less precise than their probabilities say, at any price."""
    rules = Rules({"budget": "positive_rate <= 0.3", "p": "precision[g=a] >= 0.75"}, "-recall")
    trees = {"HistGradientBoostingClassifier": {"max_iter": 8, "random_state": 0}}
    found = best(problem(smooth_rows(0, n=400), rules), model=trees)
    assert found.status == "solved"
    assert found.trace[-1]["objective"] < -0.4
    judged, decisions = found.judged
    assert judged.worst_violation(judged.rates.rates(decisions)) <= 1e-6
