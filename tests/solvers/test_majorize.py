from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from oracles import problem1
from oracles.goals import Rows, Rules, forms, grid_rows, measured, problem, smooth_rows
from scipy import sparse

from ratecli.rates.parser import parse_value
from ratecli.rates.resolve import Scope, resolve
from ratecli.solvers.base import Solution
from ratecli.solvers.majorize import newton
from ratecli.solvers.majorize.convex import ConvexProblem
from ratecli.solvers.majorize.cutting_plane import FEASIBLE
from ratecli.solvers.majorize.solver import Majorize
from ratecli.solvers.problem import Problem

GAP = Majorize().gap

FAMILIES = {
    "nothing": {},
    "parity": {"p": "positive_rate[g=a] >= 0.9 * positive_rate[g=c]"},
    "recall": {"r": "recall >= 0.85"},
    "fpr": {"f": "fpr <= 0.1"},
    "precision": {"p": "precision >= 0.9"},
    "coverage": {"c": "0.2 <= positive_rate <= 0.3"},
    "odds": {"t": "max_gap(tpr, by=g) <= 0.05", "f": "max_gap(fpr, by=g) <= 0.05"},
    "churn": {"c": "churn <= 0.35"},
    "four": {
        "p": "positive_rate[g=a] >= 0.8 * positive_rate[g=c]",
        "r": "recall >= 0.6",
        "f": "fpr <= 0.25",
        "c": "churn <= 0.4",
    },
}
BY_FAMILY = pytest.mark.parametrize("family", FAMILIES)


def solve(goals: Problem, solver: Majorize | None = None, seed: int = 0) -> Solution:
    return (solver or Majorize()).solve(goals, np.random.default_rng(seed), lambda _: None)


def on(rows: Rows, family: str, l2: float | None = None) -> Problem:
    return problem(rows, Rules(FAMILIES[family]), l2)


def column(solution: Solution, name: str) -> np.ndarray:
    return np.array([row[name] for row in solution.trace])


# --- what the paper proves


@pytest.mark.parametrize("l2", [None, 0.3])
@BY_FAMILY
def test_iterates_are_feasible_and_never_get_worse(family, l2):
    for seed in (0, 1) if l2 else (0,):
        solution = solve(on(smooth_rows(seed), family, l2))
        objective, violation = column(solution, "objective"), column(solution, "violation")
        assert solution.status == "solved", solution.reason
        assert len(objective) == 8
        met = np.flatnonzero(violation > 1e-8).max(initial=-1) + 1
        assert met <= 2, "only w = 0 and what first compromises with it may be infeasible"
        assert (np.diff(objective[met:]) <= 1e-9).all()
        assert (objective <= column(solution, "bound") + 1e-9).all()
        assert (column(solution, "gap")[met:] <= GAP).all()


@BY_FAMILY
def test_the_trace_is_that_of_the_classifier(family):
    goals = on(smooth_rows(2), family)
    solution = solve(goals)
    ramp = solution.variants["stochastic"]
    values = measured(goals, ramp)
    norm = ramp.weights @ ramp.weights + ramp.bias**2
    # lambda is 2 l2 in the ramp's units
    assert solution.trace[-1]["objective"] == pytest.approx(values[0] + goals.l2 * norm, abs=1e-12)
    assert solution.trace[-1]["violation"] == pytest.approx(max(0, *values[1:], 0), abs=1e-12)


@BY_FAMILY
def test_multipliers_are_positive_and_slack_constraints_have_none(family):
    """Of the last convex problem, anchored at the iterate before the last."""
    goals, names = on(smooth_rows(3), family), list(FAMILIES[family])
    solver = Majorize(iterations=6)
    before, last = (
        solve(goals, replace(solver, iterations=5)),
        solve(goals, solver),
    )
    assert list(last.multipliers) == names
    assert min(last.multipliers.values(), default=0) >= 0
    ramp, rows = solver.ramp_problem(goals)
    old, new = (
        np.append(s.variants["stochastic"].weights, s.variants["stochastic"].bias)
        for s in (before, last)
    )
    values = ConvexProblem.tight_at(ramp, ramp.X @ old).values(new[:, None])[1:, 0]
    for name in names:
        nearest = max(value for value, row in zip(values, rows, strict=True) if row == name)
        assert last.multipliers[name] * max(-nearest, 0) <= 2e-3


def test_svm_toy():
    """Protocols of Goh et al. 2016, vector 9.2: further steps leave the first one unchanged."""
    rows = Rows(np.array([[1.0], [-1.0]]), np.array([1.0, 0.0]), np.array(["a", "b"], dtype=object))
    for weight, w, value in ((1.0, 0.5, 0.125), (4.0, 0.25, 0.375)):
        solver = Majorize(intercept="none")
        solution = solve(problem(rows, Rules(), weight / 2), solver)
        np.testing.assert_allclose(solution.variants["stochastic"].weights, [w], atol=1e-3)
        np.testing.assert_allclose(column(solution, "bound"), value, atol=1e-5)
        assert solution.variants["stochastic"].bias == 0


def test_coverage_toy():
    """Vector 9.3: error and coverage 1/4, multiplier 1, in the first step."""
    rows = Rows(np.array([[1.0], [-1.0]]), np.array([1.0, 0.0]), np.array(["a", "b"], dtype=object))
    goals = problem(rows, Rules({"c": "coverage <= 0.25"}), 5e-5)
    solution = solve(goals, Majorize(iterations=1))
    error, over = measured(goals, solution.variants["stochastic"])
    assert error == pytest.approx(0.25, abs=1e-3)
    assert over == pytest.approx(0, abs=1e-3)
    assert solution.multipliers["c"] == pytest.approx(1, abs=5e-3)


# --- against the exact optimum of Problem 1

EXACT = {name: FAMILIES[name] for name in ("nothing", "fpr", "precision", "four")} | {
    "parity": {"p": "positive_rate[g=b] >= 0.8 * positive_rate[g=a]"},
    "recall": {"r": "recall >= 0.8"},
    "odds": {"o": "max_gap(tpr, by=g) <= 0.1"},
    "coverage": {"c": "positive_rate <= 0.3"},
}


@pytest.mark.parametrize("family", EXACT)
def test_nothing_beats_the_exact_optimum_and_little_is_lost(family):
    losses = []
    for seed in range(5):
        rows = grid_rows(seed)
        goals = problem(rows, Rules(EXACT[family]))
        solution, exact = solve(goals), problem1.by_enumeration(rows.X, *forms(goals))
        if not solution.variants:
            assert solution.status in {"infeasible", "no_solution_found"}
            continue
        random = measured(goals, solution.variants["stochastic"])
        hard = measured(goals, solution.variants["deterministic"])
        assert max(random[1:], default=0) <= FEASIBLE
        assert random[0] >= problem1.of_mixtures(rows.X, *forms(goals)) - 1e-6
        if max(hard[1:], default=0) <= 1e-9:
            assert hard[0] >= exact.value - 1e-9
            losses.append(hard[0] - exact.value)
    assert len(losses) >= 2
    assert max(losses) <= 0.125 + 1e-9, "of 40 rows, at most 5 more are wrong"
    assert np.mean(losses) <= 0.075, "and 3 on average"


@pytest.mark.parametrize("seed", [0, 1])
def test_three_features_against_the_milp(seed):
    rows = grid_rows(seed, n=24, d=3, reach=2)
    goals = problem(rows, Rules({"c": "positive_rate <= 0.4", "r": "recall >= 0.6"}))
    hard = measured(goals, solve(goals).variants["deterministic"])
    exact = problem1.by_milp(rows.X, *forms(goals))
    feasible = (hard[1:] <= 1e-9).all()
    assert not feasible or exact.value - 1e-9 <= hard[0] <= exact.value + 0.125


SEPARABLE = {
    "parity": {"p": "positive_rate[g=b] >= 0.9 * positive_rate[g=a]"},
    "recall and precision": {"r": "recall >= 0.9", "p": "precision >= 0.9"},
    "coverage": {"c": "positive_rate <= 0.5"},
    "odds": {"t": "max_gap(tpr, by=g) <= 0.05", "f": "max_gap(fpr, by=g) <= 0.05"},
    "churn": {"c": "churn <= 0.15"},
}


@pytest.mark.parametrize("family", SEPARABLE)
def test_what_can_be_had_without_error_is(family):
    """Labels of a line that keeps the constraints: Problem 1 has optimum 0, which is attained."""
    x = np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5], dtype=float)
    X = np.stack([np.tile(x, 4), np.repeat([-1.0, 0.0, 1.0, 2.0], 10)], axis=1)
    label = (X[:, 0] > 0).astype(float)
    deployed = (X[:, 0] > 1).astype(float)
    group = np.where(np.arange(40) // 10 % 2, "a", "b").astype(object)
    goals = problem(Rows(X, label, group, deployed=deployed), Rules(SEPARABLE[family]), 1e-3)
    solution = solve(goals)
    assert problem1.by_enumeration(X, *forms(goals)).value == pytest.approx(0, abs=1e-12)
    assert solution.status == "solved"
    for name, variant in solution.variants.items():
        values = measured(goals, variant)
        # the ramp's corners are met up to the gap, the sign exactly
        assert values[0] == pytest.approx(0, abs=Majorize().gap if name == "stochastic" else 1e-9)
        assert (values[1:] <= FEASIBLE).all()


# --- where there is nothing to find


@pytest.mark.parametrize(
    "rules",
    [
        {"fine": "recall >= 0.9", "few": "positive_rate <= 0.01"},
        {"few": "positive_rate <= 0.01", "fine": "recall >= 0.9"},
        {"few": "recall >= 1.5"},
        {"fine": "error <= 0.9", "few": "positive_rate[g=a] - positive_rate[g=b] >= 1.2"},
    ],
)
@pytest.mark.parametrize("n", [40, 400])
def test_what_cannot_be_met_is_named_with_an_amount_and_gives_no_classifier(rules, n):
    goals = problem(smooth_rows(0, n=n), Rules(rules))
    solution = solve(goals)
    assert solution.status == "infeasible"
    assert not solution.variants
    found = re.fullmatch(
        r"'(\w+)' could not be met: the best compromise of step (\d) misses it by ([\d.]+), "
        r"and any decisions miss some constraint by ([\d.]+)",
        solution.reason,
    )
    assert found
    assert found[1] in rules
    assert int(found[2]) == len(solution.trace)
    assert float(found[3]) == pytest.approx(solution.trace[-1]["violation"], rel=0.01)
    assert 0.1 < float(found[4]) <= float(found[3])


def test_a_start_that_is_infeasible_is_left_by_compromises():
    """w = 0 says yes to half of all rows, and the first convex problem has no solution."""
    rows = smooth_rows(1)
    deployed = (rows.X @ np.array([1.0, -0.5, 0.2, 0.0, 0.3]) > 0.2).astype(float)
    rules = Rules({"c": "churn <= 0.05", "p": "positive_rate[g=a] >= 0.4 * positive_rate[g=c]"})
    solution = solve(problem(replace(rows, deployed=deployed), rules))
    assert solution.status == "solved", solution.reason
    assert solution.trace[-1]["violation"] <= 1e-8


def test_what_is_not_met_when_steps_run_out_is_no_solution_found():
    goals = problem(smooth_rows(0), Rules({"c": "churn <= 0.15"}))
    solution = solve(goals, Majorize(iterations=1))
    assert solution.status == "no_solution_found"
    assert solution.reason.startswith("'c' could not be met: ")
    assert not solution.variants


def test_too_few_cuts_are_told():
    goals = on(smooth_rows(0), "odds")
    solution = solve(goals, Majorize(iterations=1, cuts=4))
    assert solution.status == "iteration_limit"
    assert "after 4 SVMs" in solution.reason
    assert solution.variants


def test_an_svm_cut_short_is_told(monkeypatch):
    monkeypatch.setattr(newton, "ROUNDS", 1)
    monkeypatch.setattr(newton, "STEPS", 1)
    solution = solve(on(smooth_rows(0), "coverage", 1e-6))
    assert solution.status in {"iteration_limit", "infeasible", "no_solution_found"}
    if solution.status == "iteration_limit":
        assert "did not reach" in solution.reason or "gap of" in solution.reason


# --- what must not matter, and what must


@pytest.mark.parametrize("family", ["nothing", "parity", "odds"])
def test_both_inner_solvers_reach_the_same_convex_value(family):
    """LIBLINEAR is the reference; the first problem is convex, so its value is unique."""
    goals = on(smooth_rows(1), family)
    values = [
        solve(goals, Majorize(iterations=1, inner=inner)).trace[0]["bound"]
        for inner in ("newton", "liblinear")
    ]
    assert values[0] == pytest.approx(values[1], abs=5e-4)
    assert values[0] <= values[1] + Majorize().gap


@pytest.mark.parametrize("family", ["nothing", "odds", "four"])
def test_the_same_seed_gives_the_same_weights_to_the_last_bit(family):
    goals = on(smooth_rows(4, n=200), family)
    one, two = (solve(goals, Majorize(iterations=3), seed=7) for _ in range(2))
    np.testing.assert_array_equal(
        one.variants["stochastic"].weights, two.variants["stochastic"].weights
    )
    assert one.multipliers == two.multipliers


@BY_FAMILY
def test_dense_and_sparse_rows_agree(family):
    rows = smooth_rows(0, n=200)
    thin = replace(rows, X=sparse.csr_array(rows.X))
    one, two = (solve(on(each, family), Majorize(iterations=1)) for each in (rows, thin))
    assert one.trace[0]["bound"] == pytest.approx(two.trace[0]["bound"], abs=GAP)


@pytest.mark.parametrize("family", ["odds", "four"])
def test_constraints_in_another_order_give_the_same_value(family):
    rows, rules = smooth_rows(0, n=200), FAMILIES[family]
    turned = dict(reversed(rules.items()))
    one = solve(problem(rows, Rules(rules)), Majorize(iterations=1))
    two = solve(problem(rows, Rules(turned)), Majorize(iterations=1))
    if one.status == "solved":
        assert one.trace[0]["bound"] == pytest.approx(two.trace[0]["bound"], abs=1.5 * GAP)
    assert one.status == two.status
    assert set(one.multipliers) == set(two.multipliers)


def test_an_inactive_constraint_changes_nothing():
    rows = smooth_rows(0)
    free, idle = (
        solve(problem(rows, Rules(rules)))
        for rules in ({}, {"r": "recall >= 0.01", "f": "fpr <= 0.99"})
    )
    assert idle.multipliers == {"r": 0.0, "f": 0.0}
    np.testing.assert_allclose(
        idle.variants["stochastic"].weights, free.variants["stochastic"].weights, atol=1e-9
    )


def test_without_an_intercept_there_is_none():
    goals = on(smooth_rows(0), "parity")
    solution = solve(goals, Majorize(intercept="none"))
    assert {variant.bias for variant in solution.variants.values()} == {0.0}
    assert solution.variants["stochastic"].decide(np.zeros((1, 5))) == [0.5]
    assert solution.trace[-1]["violation"] <= 1e-8


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_of_one_class_pull_all_rows_one_way(label):
    rows = replace(smooth_rows(0, n=100), label=np.full(100, label))
    rules = Rules({"c": "0.3 <= positive_rate <= 0.6"})
    goals = problem(rows, rules)
    error, *over = measured(goals, solve(goals).variants["stochastic"])
    assert error == pytest.approx(0.4 if label else 0.3, abs=0.02)
    assert max(over) <= FEASIBLE


@pytest.mark.parametrize("direction", ["positive_rate", "negative_rate"])
def test_an_objective_of_one_sign_and_no_constraint(direction):
    goals = problem(smooth_rows(0, n=100), Rules(objective=direction))
    solution = solve(goals)
    assert measured(goals, solution.variants["deterministic"])[0] == pytest.approx(0)


def test_unlabelled_rows_count_for_coverage_alone():
    """A third of the rows have no label; they are one group, kept at its rate."""
    rows = smooth_rows(5)
    hidden = np.where(rows.group == "b", np.nan, rows.label)
    goals = problem(
        replace(rows, label=hidden), Rules({"c": "positive_rate[g=b] <= 0.3", "r": "recall >= 0.6"})
    )
    solution = solve(goals)
    assert solution.status == "solved"
    decisions = solution.variants["stochastic"].decide(rows.X)
    assert decisions[rows.group == "b"].mean() <= 0.3 + 1e-8
    assert decisions[hidden == 1].mean() >= 0.6 - 1e-8


def test_row_weights_enter_rates_and_objective():
    """A row of weight 2 is a row that stands twice."""
    rows = smooth_rows(6, n=60)
    weight = np.where(np.arange(60) % 3 == 0, 2.0, 1.0)
    twice = np.concatenate([np.arange(60), np.flatnonzero(weight == 2)])
    repeated = Rows(rows.X[twice], rows.label[twice], rows.group[twice])
    rules, solver = Rules({"c": "positive_rate <= 0.3"}), Majorize(iterations=1)
    one = solve(problem(replace(rows, weight=weight), rules, 0.02), solver)
    two = solve(problem(repeated, rules, 0.02), solver)
    assert one.trace[0]["bound"] == pytest.approx(two.trace[0]["bound"], abs=1.5 * GAP)


def test_a_goal_that_is_not_affine_is_refused():
    rows = smooth_rows(0, n=60)
    goals = on(rows, "nothing")
    f1 = resolve(parse_value("0 - f1"), Scope())
    with pytest.raises(ValueError, match="not affine"):
        solve(replace(goals, objective=replace(goals.objective, pieces=(f1,))))


def test_every_step_is_reported():
    told: list[str] = []
    goals = on(smooth_rows(0, n=60), "nothing")
    Majorize(iterations=3).solve(goals, np.random.default_rng(0), told.append)
    assert told == [f"iteration {k} of 3" for k in (1, 2, 3)]
