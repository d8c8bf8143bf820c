from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from oracles.families import FAMILIES
from oracles.goals import Rows, Rules, measured, problem, run, smooth_rows
from oracles.instances import INTERCEPTS
from scipy import sparse

from ratecli.solvers import design_matrix
from ratecli.solvers.base import Solution
from ratecli.solvers.majorize import augmented
from ratecli.solvers.majorize import majorization as solver_module
from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE, ConvexProblem
from ratecli.solvers.majorize.majorization import make_method, make_ramp_problem
from ratecli.solvers.majorize.solver import Majorize
from ratecli.solvers.problem import Problem

GAP = Majorize().gap

BY_FAMILY = pytest.mark.parametrize("family", FAMILIES)


def solve(goals: Problem, solver: Majorize | None = None, seed: int = 0) -> Solution:
    return run(solver or Majorize(), goals, seed)


def on(rows: Rows, family: str, l2: float | None = None) -> Problem:
    return problem(rows, Rules(FAMILIES[family]), l2)


def weights(solution: Solution) -> np.ndarray:
    ramp = solution.variants["stochastic"]
    return np.append(ramp.weights, ramp.bias)


def column(solution: Solution, name: str) -> np.ndarray:
    return np.array([row[name] for row in solution.trace])


# --- what the paper proves


@BY_FAMILY
def test_multipliers_are_positive_and_slack_constraints_have_none(family):
    """Of the last convex problem, anchored at the iterate before the last."""
    goals, names = on(smooth_rows(3, n=150), family), list(FAMILIES[family])
    solver = Majorize(iterations=2)
    before, last = (
        solve(goals, replace(solver, iterations=1)),
        solve(goals, solver),
    )
    assert list(last.multipliers) == names
    assert min(last.multipliers.values(), default=0) >= 0
    ramp = make_ramp_problem(solver, goals)
    rows = [goal.name for goal in goals.constraints for _ in goal.pieces]
    old, new = weights(before), weights(last)
    values = ConvexProblem.tight_at(ramp, ramp.rows.scores(old)).values(new)[1:]
    missable = 1e-9 + FEASIBILITY_TOLERANCE * sum(last.multipliers.values())
    for name in names:
        nearest = max(value for value, row in zip(values, rows, strict=True) if row == name)
        # what slack is worth is a part of the gap, but for what FEASIBLE lets others miss
        assert last.multipliers[name] * -nearest <= last.trace[-1]["gap"] + missable


def test_svm_toy():
    """Protocols of Goh et al. 2016, vector 9.2: further steps leave the first one unchanged."""
    rows = Rows(np.array([[1.0], [-1.0]]), np.array([1.0, 0.0]), np.array(["a", "b"], dtype=object))
    for weight, w, value in ((1.0, 0.5, 0.125), (4.0, 0.25, 0.375)):
        solver = Majorize(intercept="none")
        solution = solve(problem(rows, Rules(), weight / 2), solver)
        np.testing.assert_allclose(solution.variants["stochastic"].weights, [w], atol=1e-3)
        np.testing.assert_allclose(column(solution, "bound"), value, rtol=GAP)
        assert solution.variants["stochastic"].bias == 0


@pytest.mark.parametrize("inner", ["newton", "cutting_plane"])
def test_coverage_toy(inner):
    """Vector 9.3, with a bias that is free: error and coverage 1/4, multiplier 1, in the first step."""
    rows = Rows(np.array([[1.0], [-1.0]]), np.array([1.0, 0.0]), np.array(["a", "b"], dtype=object))
    goals = problem(rows, Rules({"c": "coverage <= 0.25"}), 5e-4)
    solver = Majorize(iterations=1, intercept="unregularized", inner=inner, gap=1e-6)
    solution = solve(goals, solver)
    classifier = solution.variants["stochastic"]
    error, over = measured(goals, classifier)
    assert error == pytest.approx(0.25, abs=1e-5)
    assert over == pytest.approx(0, abs=1e-5)
    assert solution.multipliers["c"] == pytest.approx(1, abs=2e-3)
    # the score is <w, x> - b in the paper
    assert classifier.weights == pytest.approx([0.25], abs=1e-3)
    assert classifier.bias == pytest.approx(-0.25, abs=1e-3)


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
def test_infeasible_constraint_is_reported_with_its_violation_and_no_classifier(rules):
    goals = problem(smooth_rows(0, n=40), Rules(rules))
    solution = solve(goals)
    assert solution.status == "infeasible"
    assert not solution.variants
    found = re.fullmatch(
        r"'(\w+)' could not be met: the best compromise of step (\d+) misses it by ([\d.]+); "
        r"any decisions miss some constraint by ([\d.]+) or more",
        solution.reason,
    )
    assert found
    assert found[1] in rules
    assert int(found[2]) == len(solution.trace)
    assert float(found[3]) == pytest.approx(solution.trace[-1]["violation"], rel=0.01)
    assert 0.1 < float(found[4]) <= float(found[3])


def test_steps_before_the_first_feasible_point_do_not_count_as_iterations():
    """w = 0 has recall 1/2; so have compromises on the way less than what is asked."""
    solution = solve(
        problem(smooth_rows(1, n=100), Rules({"r": "recall >= 0.97", "f": "fpr <= 0.3"})),
        Majorize(iterations=2),
    )
    violation = column(solution, "violation")
    missed = int((violation > FEASIBILITY_TOLERANCE).sum())
    assert missed >= 1
    assert (np.diff(violation[: missed + 1]) < 0).all()
    assert len(violation) == missed + 2
    assert solution.status == "solved"


def test_stalled_compromises_end_as_no_solution_found():
    """The deployed decisions are noise: any classifier of the features churns, though decisions need
    not.
    """
    rows = smooth_rows(0)
    noise = np.random.default_rng(0).integers(2, size=len(rows)).astype(float)
    solution = solve(problem(replace(rows, deployed=noise), Rules({"c": "churn <= 0.15"})))
    assert solution.status == "no_solution_found"
    assert re.fullmatch(
        r"'c' could not be met: the best compromise of step \d+ misses it by 0\.\d+",
        solution.reason,
    )
    assert not solution.variants
    assert solution.trace[-1]["violation"] > 0.15


def test_iteration_limit_after_too_few_cuts():
    goals = on(smooth_rows(0), "odds")
    solution = solve(goals, Majorize(iterations=1, inner="cutting_plane", cuts=3))
    assert solution.status == "iteration_limit"
    assert "after 3 SVMs" in solution.reason
    assert solution.variants


def test_iteration_limit_after_too_few_newton_steps(monkeypatch):
    monkeypatch.setattr(augmented, "MAX_ROUNDS", 1)
    monkeypatch.setattr(augmented, "MAX_NEWTON_STEPS", 1)
    solution = solve(on(smooth_rows(0), "nothing", 1e-6))
    assert solution.status == "iteration_limit"
    assert re.match(r"the last step ended after \d+ Newton steps with a gap of", solution.reason)


def test_majorize_stops_before_a_step_that_raises_the_objective(monkeypatch):
    """Bounds of scores near a corner are not tight: at 0.05 they are far from it."""
    monkeypatch.setattr(solver_module, "RAMP_TIE", 0.05)
    monkeypatch.setattr(solver_module, "_has_converged", lambda _: True)
    for family in ("parity", "coverage"):
        goals = on(smooth_rows(1, n=150), family)
        solution = solve(goals, Majorize(iterations=40))
        objective, violation = column(solution, "objective"), column(solution, "violation")
        assert solution.status == "solved"
        assert (violation <= FEASIBILITY_TOLERANCE).all()
        assert (np.diff(objective) < 0).all()
        assert len(objective) < 40
        # the step after the last, on the same bound, gains nothing
        ramp = make_ramp_problem(Majorize(), goals)
        found = solution.variants["stochastic"]
        w = np.append(found.weights, found.bias)
        convex = ConvexProblem.tight_at(ramp, ramp.rows.scores(w), 0.05)
        following = make_method(Majorize(), ramp, np.random.default_rng(0), 1e4).solve(convex, w).w
        gained = objective[-1] - ramp.values(following)[0]
        assert gained <= 2 * convex.values(following)[0] * Majorize().gap


def test_liblinear_cannot_leave_the_bias_unregularized():
    with pytest.raises(ValueError, match="LIBLINEAR cannot leave the intercept unregularized"):
        Majorize(inner="liblinear", intercept="unregularized")


# --- variants


def test_hashed_variant_is_optional_and_depends_on_the_seed():
    rows = smooth_rows(0, n=200)
    goals = on(rows, "parity", 0.3)
    assert list(solve(goals).variants) == ["stochastic", "deterministic"]
    hashed, other = (solve(goals, Majorize(hashed=True), seed).variants for seed in (0, 1))
    assert list(hashed) == ["stochastic", "deterministic", "hashed"]
    ramp, decided = hashed["stochastic"], hashed["hashed"].decide(rows.X)
    assert (hashed["hashed"].weights == ramp.weights).all()
    assert set(decided) == {0.0, 1.0}
    assert (other["hashed"].decide(rows.X) != decided).any(), "another seed, another hash"


# --- what must not matter, and what must


@pytest.mark.parametrize("family", ["nothing", "parity", "churn"])
def test_all_inner_solvers_reach_the_same_convex_value(family):
    """The first problem is convex, so its value is unique."""
    goals = on(smooth_rows(1, n=150), family)
    solvers = [
        Majorize(iterations=1),
        Majorize(iterations=1, inner="cutting_plane"),
        Majorize(iterations=1, inner="cutting_plane", chooser="maximization"),
        Majorize(iterations=1, inner="liblinear", chooser="maximization"),
    ]
    values = [solve(goals, solver).trace[0]["bound"] for solver in solvers]
    assert values[:3] == pytest.approx([values[0]] * 3, rel=GAP)
    assert values[3] == pytest.approx(values[0], abs=5e-4)


@pytest.mark.parametrize("family", ["nothing", "four"])
def test_dense_sparse_and_cached_rows_give_the_same_weights(family, monkeypatch):
    """Held dense with their ones, as small ones are, or left as they are, dense or sparse."""
    rows = smooth_rows(0, n=100)
    thin = replace(rows, X=sparse.csr_array(rows.X))
    for intercept in INTERCEPTS:
        solver = Majorize(iterations=2, intercept=intercept)
        held = weights(solve(on(rows, family), solver))
        assert np.abs(held).max() > 0.1
        with monkeypatch.context() as patched:
            patched.setattr(design_matrix, "MAX_DENSE_ENTRIES", 0)
            for each in (rows, thin):
                found = weights(solve(on(each, family), solver))
                np.testing.assert_allclose(found, held, rtol=0, atol=1e-8)


@pytest.mark.parametrize("family", ["odds", "four"])
def test_constraints_in_another_order_give_the_same_value(family):
    rows, rules = smooth_rows(0, n=200), FAMILIES[family]
    turned = dict(reversed(rules.items()))
    one = solve(problem(rows, Rules(rules)), Majorize(iterations=1))
    two = solve(problem(rows, Rules(turned)), Majorize(iterations=1))
    if one.status == "solved":
        assert one.trace[0]["bound"] == pytest.approx(two.trace[0]["bound"], rel=GAP)
    assert one.status == two.status
    assert set(one.multipliers) == set(two.multipliers)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_of_one_class_move_the_rate_to_its_limit(label):
    rows = replace(smooth_rows(0, n=100), label=np.full(100, label))
    rules = Rules({"c": "0.3 <= positive_rate <= 0.6"})
    goals = problem(rows, rules)
    error, *over = measured(goals, solve(goals).variants["stochastic"])
    assert error == pytest.approx(0.4 if label else 0.3, abs=0.02)
    assert max(over) <= FEASIBILITY_TOLERANCE


def test_unlabelled_rows_count_for_coverage_only():
    """A third of the rows have no label; they are one group, kept at its rate."""
    rows = smooth_rows(5)
    hidden = np.where(rows.group == "b", np.nan, rows.label)
    goals = problem(
        replace(rows, label=hidden), Rules({"c": "positive_rate[g=b] <= 0.3", "r": "recall >= 0.6"})
    )
    solution = solve(goals)
    assert solution.status == "solved"
    decisions = solution.variants["stochastic"].decide(rows.X)
    assert decisions[rows.group == "b"].mean() <= 0.3 + FEASIBILITY_TOLERANCE
    assert decisions[hidden == 1].mean() >= 0.6 - FEASIBILITY_TOLERANCE


def test_row_of_weight_two_equals_two_rows():
    """A row of weight 2 is a row that stands twice."""
    rows = smooth_rows(6, n=60)
    weight = np.where(np.arange(60) % 3 == 0, 2.0, 1.0)
    twice = np.concatenate([np.arange(60), np.flatnonzero(weight == 2)])
    repeated = Rows(rows.X[twice], rows.label[twice], rows.group[twice])
    rules, solver = Rules({"c": "positive_rate <= 0.3"}), Majorize(iterations=1)
    one = solve(problem(replace(rows, weight=weight), rules, 0.02), solver)
    two = solve(problem(repeated, rules, 0.02), solver)
    assert one.trace[0]["bound"] == pytest.approx(two.trace[0]["bound"], rel=GAP)


def test_progress_reports_every_step():
    told: list[str] = []
    goals = on(smooth_rows(0, n=60), "nothing")
    solution = Majorize(iterations=3).solve(goals, np.random.default_rng(0), told.append)
    assert told == [f"{k} of 3 iterations" for k in range(1, len(solution.trace) + 1)]


def test_exact_equality_of_two_rates_is_solved_to_the_gap():
    """Both sides bind wherever they are met: multipliers end at the ceiling, the gap still closes."""
    rules = Rules({"e": "abs(positive_rate[g=a] - positive_rate[g=b]) <= 0"})
    solution = solve(problem(smooth_rows(1, n=120), rules))
    assert solution.status == "solved"
    last = solution.trace[-1]
    assert last["violation"] <= FEASIBILITY_TOLERANCE
    assert last["bound"] - last["lower"] <= 1e-4 * last["bound"] * (1 + 1e-9)
