from __future__ import annotations

import numpy as np
import pytest
from oracles.goals import Rows, Rules, grid_rows, problem, run, smooth_rows

from ratecli.models.linear import Threshold
from ratecli.rates import expression as ex
from ratecli.solvers.base import Solution
from ratecli.solvers.baselines.linear import threshold_rates
from ratecli.solvers.baselines.solvers import Thresholded, Unconstrained
from ratecli.solvers.problem import Problem

EXACT = 1e-12

GOALS = [
    Rules({"r": "recall >= 0.8"}),
    Rules({"c": "positive_rate <= 1/3"}),
    Rules({"p": "precision >= 0.75"}),
    Rules({"s": "positive_rate[g=b] >= 0.9 * positive_rate[g=a]"}),
    Rules({"o": "max_gap(tpr, by=g) <= 0.2", "c": "positive_rate >= 0.3"}),
    Rules({"r": "recall >= 0.7", "c": "churn <= 0.2"}, "error[g=a] + 0.5 * fpr"),
    Rules({"r": "tpr[g=c] >= 0.9", "f": "fpr <= 0.1"}),
    Rules({}, "error + 0.3 * fnr[g=b]"),
    Rules({"w": "losses <= 0.1"}, "error[g=a]"),
    Rules({}, "1 - f1"),
    Rules({"k": "kl(0.4, positive_rate) <= 0.05"}, "1 - g_mean"),
    Rules({"f": "max_gap(f1, by=g) <= 0.15"}, "1 - f1"),
    Rules({"e": "error <= 0.3"}, "kl(base_rate, positive_rate[g=a]) + kl(base_rate, tpr[g=b])"),
]


def solved(goals: Problem, meets: str | None = None) -> Solution:
    return run(Thresholded(meets), goals)


def plain(goals: Problem) -> Threshold:
    found = run(Unconstrained(), goals)
    return found.variants["deterministic"]


def measured(goals: Problem, decisions: np.ndarray, meets: str | None) -> tuple[float, float]:
    """Objective and largest excess, as the language measures them; minus infinity without rules."""
    known = dict(zip(goals.rates.leaves, goals.rates.rates(decisions).tolist(), strict=True))
    rules = [goal for goal in goals.constraints if meets in {None, goal.name}]
    parts = [piece for goal in rules for piece in goal.pieces]
    excess = [ex.evaluate(part, lambda leaf: known[leaf]) for part in parts]
    return ex.evaluate(goals.objective.expression, lambda leaf: known[leaf]), max(
        excess, default=-np.inf
    )


def every_way(goals: Problem, meets: str | None) -> list[tuple[float, float, float]]:
    """Objective, excess, and distance to the SVM's own bias of each threshold, one by one."""
    own = plain(goals)
    scores = np.round(np.asarray(goals.X @ own.weights), 11)
    levels = np.unique(scores)
    middles = [levels[0] - 1, *(levels[1:] + levels[:-1]) / 2, levels[-1] + 1]
    ends = [-np.inf, *levels, np.inf]
    ways = []
    for k, middle in enumerate(middles):
        same = ends[k] < -own.bias < ends[k + 1]
        decisions = (scores > middle).astype(float)
        ways.append((*measured(goals, decisions, meets), 0.0 if same else abs(middle + own.bias)))
    return ways


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rules", GOALS, ids=lambda rules: " and ".join(rules.constraints.values()))
def test_chosen_threshold_is_the_best_of_all(rules, weighted, seed):
    """On a coarse grid, where many rows are the same and their scores tie."""
    rows = grid_rows(seed, n=50)
    if weighted:
        weight = np.random.default_rng(seed).uniform(0.2, 3, size=50)
        rows = Rows(rows.X, rows.label, rows.group, weight, rows.deployed)
    goals = problem(rows, rules)
    for meets in (None, *rules.constraints):
        ways = every_way(goals, meets)
        allowed = [way for way in ways if way[1] <= EXACT]
        found = solved(goals, meets)
        if not allowed:
            least = min(excess for _, excess, _ in ways)
            assert (found.status, dict(found.variants)) == ("no_solution_found", {})
            assert found.reason.endswith(f"by {least:.3g}")
            continue
        assert found.status == "solved"
        classifier = found.variants["deterministic"]
        objective, excess = measured(goals, classifier.decide(goals.X), meets)
        best = min(value for value, _, _ in allowed)
        assert objective == pytest.approx(best, abs=EXACT)
        assert excess <= EXACT
        nearest = min(far for value, _, far in allowed if value <= best + EXACT)
        shift = classifier.bias - plain(goals).bias
        assert abs(shift) == pytest.approx(nearest, abs=1e-8)
        assert found.trace[0]["objective"] == pytest.approx(objective, abs=EXACT)
        assert found.trace[0]["shift"] == shift


@pytest.mark.parametrize("objective", ["1 - f1", "error", "kl(base_rate, positive_rate)"])
def test_chosen_threshold_on_logistic_regression_is_the_best(objective):
    rows = smooth_rows(6, n=150)
    goals = problem(rows, Rules({"c": "positive_rate <= 0.7"}, objective))
    rng = np.random.default_rng(0)
    own = Unconstrained("logistic").solve(goals, rng, lambda _: None).variants["deterministic"]
    found = Thresholded(loss="logistic").solve(goals, rng, lambda _: None)
    classifier = found.variants["deterministic"]
    np.testing.assert_array_equal(classifier.weights, own.weights)
    ways = [measured(goals, 1.0 * (own.score(rows.X) > s), None) for s in own.score(rows.X)]
    least = min(value for value, excess in ways if excess <= EXACT)
    assert measured(goals, classifier.decide(rows.X), None)[0] == pytest.approx(least, abs=EXACT)
    assert found.trace[0]["objective"] == pytest.approx(least, abs=EXACT)


def test_exactly_attained_limits_count_as_satisfied():
    """Recall at least j / P by the fewest yeses: j rows of P, however the quotient is rounded."""
    rows = smooth_rows(0, n=70)
    positives = int(rows.label.sum())
    for j in range(1, positives + 1):
        goals = problem(rows, Rules({"r": f"recall >= {j} / {positives}"}, "positive_rate"))
        decisions = solved(goals).variants["deterministic"].decide(rows.X)
        assert (decisions * rows.label).sum() == j


def test_optimal_bias_is_unchanged():
    """Only the SVM itself does not differ from the SVM."""
    rows = smooth_rows(2, n=90)
    own = plain(problem(rows, Rules()))
    deployed = Rows(rows.X, rows.label, rows.group, deployed=own.decide(rows.X))
    found = solved(problem(deployed, Rules({"r": "recall >= 0.1"}, "churn")))
    assert found.variants["deterministic"].bias == own.bias
    assert found.trace[0]["shift"] == 0.0


def test_constraints_without_a_common_threshold_give_no_solution():
    goals = problem(smooth_rows(3), Rules({"r": "recall >= 0.99", "c": "positive_rate <= 0.1"}))
    both = solved(goals)
    assert both.status == "infeasible"  # by any decisions at all: 4 in 10 rows are positive
    assert both.reason.startswith("no threshold meets 'r' and 'c': the best one misses '")
    rules = Rules({"r": "recall >= 0.99", "f": "fpr <= 0.01"})
    assert solved(problem(smooth_rows(3), rules)).status == "no_solution_found"
    assert solved(goals, "r").status == solved(goals, "c").status == "solved"
    with pytest.raises(KeyError):
        solved(goals, "s")
    free = run(Thresholded(free=True), goals)
    alone = solved(problem(smooth_rows(3), Rules()))
    assert free.variants["deterministic"].bias == alone.variants["deterministic"].bias


def test_scores_equal_up_to_rounding_share_a_decision():
    goals = problem(Rows(np.zeros((4, 1)), np.array([1.0, 0, 1, 1]), np.array(["a"] * 4)), Rules())
    scores = np.array([0.3, 1.0, 0.1 + 0.2, -2.0])
    thresholds, rates = threshold_rates(scores, goals.rates, own=0.5)
    np.testing.assert_allclose(thresholds, [2, 0.5, -0.85, -3], rtol=1e-15)
    np.testing.assert_array_equal(rates, [[0.75, 1.0, 0.5, 0.25]])


def test_feasible_threshold_with_undefined_objective_is_returned():
    goals = problem(smooth_rows(0), Rules({"c": "positive_rate <= 0"}, "1 - precision"))
    found = solved(goals)
    assert not goals.decisions(found.variants["deterministic"]).any()
