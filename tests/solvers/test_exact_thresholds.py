"""Thresholds of groups compared with brute force on a thousand small problems.

Brute force evaluates the decisions of every combination of one threshold per group. It shares only
the rates and the goals with the algorithms, not their groups and their thresholds.
"""

from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import BOTH, Rows, Rules, problem, rates_of, run, values
from scipy.optimize import linprog
from thinned import one_in

from ratecli.models.base import Array
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.base import Solution
from ratecli.solvers.baselines import cut_search
from ratecli.solvers.baselines.cut_search import best_deterministic_cuts, proven_cuts
from ratecli.solvers.baselines.group_hull import GroupHull, cuts_by_group, goal_directions
from ratecli.solvers.baselines.options import PostShift, Thresholded
from ratecli.solvers.hull.forms import UNDEFINED_RATIO_REASON, RateProgram
from ratecli.solvers.problem import Groups, Problem

ROUNDING = 1e-11
ALL_GROUPS = "abcd"
ROWS = {1: 12, 2: 16, 3: 18, 4: 16}
"""Number of rows for each number of groups, so that there are at most some 1300 choices."""
GOALS = {
    "affine": Rules({"c": "positive_rate <= 0.4"}, "error + 0.3 * fnr"),
    "ratio of selection": Rules({"p": "min_ratio(positive_rate, by=g) >= 0.8"}),
    "two-sided": Rules({"p": "max_gap(tpr, by=g) <= 0.2", "r": "recall >= 0.5"}),
    "odds": Rules({"t": "max_gap(tpr, by=g) <= 0.3", "f": "max_gap(fpr, by=g) <= 0.3"}),
    "equal": Rules({"p": "abs(positive_rate[g=a] - 1/2) <= 0.01"}),
    "kl of all": Rules({"e": "error <= 0.4"}, "kl(base_rate, positive_rate)"),
    "kl of groups": Rules({}, "kl(base_rate, positive_rate[g=a]) + kl(0.4, tpr) + 0.1 * error"),
    "q-mean": Rules({"c": "positive_rate <= 0.6"}, "rms(fpr, fnr)"),
    "q-mean limit": Rules({"q": "rms(fpr, fnr) <= 0.4"}, "max(fpr, fnr) + 0.2 * error"),
    "f1": Rules({"r": "recall[g=a] >= 0.6"}, "1 - f1"),
    "f1 of a group": Rules({"c": "positive_rate <= 0.5"}, "1 - f1[g=a]"),
    "precision": Rules({"p": "precision >= 0.75"}, "fnr + 0.1 * fpr"),
    "precision of a group": Rules({"p": "precision[g=a] >= 0.7", "r": "recall >= 0.4"}),
    "least precision": Rules({"r": "recall >= 0.5"}, "1 - precision"),
    "gap of f1": Rules({"f": "max_gap(f1, by=g) <= 0.2"}, "1 - f1"),
    "gap of f1 and f1 of all": Rules({"f": "f1 - f1[g=a] <= 0.05", "r": "recall >= 0.5"}),
    "sum of ratios": Rules({"c": "positive_rate <= 0.5"}, "2 - f1 - f1[g=a]"),
    "sum of joint ratios": Rules({"r": "recall[g=a] >= 0.5"}, "2 - f1 - precision"),
    "ratios and curves": Rules({"k": "kl(0.4, positive_rate) <= 0.1"}, "1 - f1"),
    "contradictory": Rules({"r": "recall >= 0.9", "f": "fpr <= 0.05"}),
    "contradictory ratios": Rules({"f": "f1[g=a] - f1 >= 0.5"}, "1 - f1"),
}
AFFINE = ("affine", "ratio of selection", "two-sided", "odds", "equal", "contradictory")
"""Goals that are affine in the rates, so that the best random choice is a linear program."""
FITTED, EXISTING = PostShift(**BOTH), PostShift(model={"score": "s"}, **BOTH)
SETS = 2
"""Number of sets of rows for each kind of goals and number of groups."""


def random_rows(count: int, seed: int) -> Rows:
    """Return rows with a score that has ties, in `count` groups, each with both labels.

    Some sets of rows have weights, unlabelled rows, or rows whose group is unknown.
    """
    rng = np.random.default_rng(seed)
    n = ROWS[count]
    group = np.array(list(ALL_GROUPS[:count]), dtype=object)[np.arange(n) % count]
    label = rng.integers(2, size=n).astype(float)
    label[: 2 * count] = np.repeat([0.0, 1.0], count)
    weight = rng.uniform(0.2, 3, size=n) if seed % 2 else None
    if seed % 3:
        group[-1] = None
    if seed % 3 == 2:
        label[-3:-1] = np.nan
    return Rows(random_scores(label, count, rng)[:, None], label, group, weight)


def random_scores(label: Array, count: int, rng: np.random.Generator) -> Array:
    return rng.integers(5 if count > 1 else 10, size=len(label)) + 1.5 * np.nan_to_num(label)


def cells(name: str, rows: Rows) -> np.ndarray:
    """Return the cell (n,) of each row: rows that the goals treat alike share their thresholds."""
    text = str(GOALS[name])
    if "by=g" in text:  # rows of an unknown group are a cell of their own
        return np.unique([str(group) for group in rows.group], return_inverse=True)[1]
    return (rows.group == "a").astype(int) if "g=a" in text else np.zeros(len(rows), dtype=int)


def all_rates(given: Problem, scores: Array, of: np.ndarray) -> Array:
    """Return the rates (K, N) of all combinations of one threshold for each cell."""
    limits = [np.append(np.unique(scores[of == cell]), np.inf) for cell in range(of.max() + 1)]
    chosen = np.meshgrid(*limits, indexing="ij")
    thresholds = np.stack([each.ravel() for each in chosen])
    decisions = (scores[:, None] >= thresholds[of]).astype(float)
    sums = given.rates.sums @ decisions + given.rates.constants[:, None]
    return sums / given.rates.totals[:, None]


def excess_and_cost(given: Problem, rates: Array) -> tuple[Array, Array]:
    """Return all pieces of the constraints (J, N), and the objective (N,), infinite if undefined.

    A constraint that is undefined as written adds an infinite piece.
    """
    index = given.rates.index()
    pieces = [piece for goal in given.constraints for piece in goal.pieces]
    written = [goal.expression for goal in given.constraints]
    excess = [values(piece, rates, index) for piece in pieces]
    undefined = [np.where(np.isnan(values(each, rates, index)), np.inf, -1.0) for each in written]
    found = np.array([*excess, *undefined]).reshape(-1, rates.shape[1])
    cost = values(given.objective.expression, rates, index)
    return np.where(np.isnan(found), np.inf, found), np.nan_to_num(cost, nan=np.inf)


def least(excess: Array, cost: Array) -> tuple[float, float]:
    """Return the smallest violation of choices, and the smallest objective with that violation."""
    missed = excess.max(axis=0, initial=0.0)
    missed = np.where(missed <= ROUNDING, 0.0, missed)
    return missed.min(), cost[missed <= missed.min()].min()


def brute_force(given: Problem, rates: Array) -> tuple[float, float]:
    """Return the smallest violation of rates (K, N), and the smallest objective with it."""
    return least(*excess_and_cost(given, rates))


def hull_of(given: Problem, scores: Array) -> GroupHull:
    """Return the hull of a problem's groups for any scores of its rows."""
    program, kinds = RateProgram.of(given), RowKinds.by(given.rates)
    groups = Groups.of_problem(given).of
    parts = cuts_by_group(scores, groups, kinds, goal_directions(program))
    return GroupHull(program, kinds, parts, 1e-5)


def allowed(name: str, count: int) -> bool:
    """Whether a goal that compares groups has some to compare."""
    return count > 1 or "by=g" not in str(GOALS[name])


CASES = [(name, count) for name in GOALS for count in ROWS if allowed(name, count)]


@pytest.mark.parametrize(("name", "count"), one_in(10, reversed(CASES)))
def test_search_finds_the_best_of_all_choices(name, count, monkeypatch):
    """From any start; nearly the best if the goals are not convex. The optimum is within its gap."""
    monkeypatch.setattr(cut_search, "MAX_CHOICES", 1)
    for seed in range(SETS):
        rows, rng = random_rows(count, seed), np.random.default_rng(seed)
        given, of = problem(rows, GOALS[name]), cells(name, rows)
        for _ in range(2):
            scores = random_scores(rows.label, count, rng)
            hull = hull_of(given, scores)
            violation, objective = brute_force(given, all_rates(given, scores, of))
            optimum = hull.best()
            start = [(np.zeros(1, dtype=np.intp), np.ones(1)) for _ in hull.cells]
            for chances in (hull.chances(optimum), start):
                found = proven_cuts(hull) or best_deterministic_cuts(hull, optimum, chances)
                chosen = brute_force(given, hull.rates(found.cuts[:, None]))
                assert chosen == pytest.approx(found.key, abs=ROUNDING)
                assert found.violation == pytest.approx(violation, abs=1e-9)
                if not violation:
                    convex = hull.program.is_convex
                    assert found.gap < 1e-9 or not convex
                    most = objective + (1e-9 if convex else 1e-3)
                    assert objective - ROUNDING <= found.objective <= most
                    assert found.objective <= objective + found.gap + 1e-6


@pytest.mark.parametrize("name", ["ratio of selection", "two-sided", "odds", "equal"])
def test_cuts_of_two_groups_are_the_best_of_all_choices(name):
    """Looked up; where no choice satisfies the constraints, there is none."""
    for seed in range(20):
        rows, rng = random_rows(2, seed), np.random.default_rng(seed)
        rows = replace(rows, group=np.array([each or "a" for each in rows.group], dtype=object))
        given, of = problem(rows, GOALS[name]), cells(name, rows)
        scores = random_scores(rows.label, 2, rng)
        violation, objective = brute_force(given, all_rates(given, scores, of))
        found = cut_search.LocalSearch(hull_of(given, scores)).pair()
        assert (found is None) == (violation > ROUNDING)
        assert found is None or found.key == pytest.approx((0.0, objective), abs=ROUNDING)


def check_post_shift(solver: PostShift, given: Problem, excess: Array, cost: Array) -> Solution:
    """Compare a solution with all choices, given their `excess_and_cost`, and return it."""
    solution = run(solver, given)
    violation, objective = least(excess, cost)
    single = rates_of(given, solution.variants["deterministic"])
    found, last = brute_force(given, single[:, None]), solution.trace[-1]
    assert last["exact"]
    assert found[0] == pytest.approx(violation, abs=1e-9)
    if violation:
        assert "deterministic_gap" not in last
        return solution
    assert found[1] == pytest.approx(objective, abs=1e-9)
    assert last["deterministic_gap"] == 0
    # a single choice that satisfies all constraints is also a random one
    assert solution.status not in {"no_solution_found", "infeasible"}
    if "gap" in last:
        assert last["objective"] - last["gap"] <= objective + 1e-6
    if solution.status == "solved":
        random = brute_force(given, rates_of(given, solution.variants["stochastic"])[:, None])
        assert random[0] <= 1e-6
        assert random[1] == pytest.approx(last["objective"], abs=1e-6)
        assert random[1] <= objective + last.get("gap", 1e-5) + 1e-6
    return solution


@pytest.mark.parametrize(("name", "count"), one_in(6, CASES))
def test_algorithm_returns_the_best_of_all_choices(name, count):
    """With a fitted score and with existing ones, and with the multipliers of the hull."""
    rows, rng = random_rows(count, 0), np.random.default_rng(0)
    given, of = problem(rows, GOALS[name]), cells(name, rows)
    score = run(FITTED, given).variants["deterministic"].scorer.score(rows.X)
    check_post_shift(FITTED, given, *excess_and_cost(given, all_rates(given, score, of)))
    for k in range(2):
        given = replace(given, X=random_scores(rows.label, count, rng)[:, None])
        solver, own = (EXISTING, of) if k else (replace(EXISTING, groups="unknown"), 0 * of)
        excess, cost = excess_and_cost(given, all_rates(given, given.X[:, 0], own))
        solution = check_post_shift(solver, given, excess, cost)
        if name in AFFINE:
            check_random_choice(given, solution, excess, cost)


def test_a_ratio_that_is_defined_by_a_rounding_error_alone_is_undefined():
    """The linear program selects 1e-24 of the rows; the classifier that is returned selects none."""
    rows = random_rows(4, 1)
    scores = random_scores(rows.label, 4, np.random.default_rng(1))
    given = problem(replace(rows, X=scores[:, None]), GOALS["ratio of selection"])
    solution = run(replace(EXISTING, groups="unknown"), given)
    assert not given.decisions(solution.variants["stochastic"]).any()
    assert (solution.status, solution.reason) == ("iteration_limit", UNDEFINED_RATIO_REASON)


def best_mixture(excess: Array, cost: Array) -> tuple[float, float]:
    """Return the smallest violation of random choices, and the smallest objective with it."""
    n = len(cost)
    chances = {"A_eq": np.append(np.ones(n), 0.0)[None], "b_eq": [1.0]}
    rows = np.column_stack([excess, -np.ones(len(excess))])
    violation = linprog(np.eye(n + 1)[n], rows, np.zeros(len(rows)), **chances).fun
    limits = np.full(len(rows), violation)
    return violation, linprog(
        np.append(cost, 0), rows * np.append(np.ones(n), 0), limits, **chances
    ).fun


def check_random_choice(given: Problem, solution: Solution, excess: Array, cost: Array) -> None:
    """Compare with the best mixture of all choices; goals are affine, their ratios defined."""
    defined = np.isfinite(excess).all(axis=0)
    excess = excess[:, defined][: sum(len(goal.pieces) for goal in given.constraints)]
    violation, objective = best_mixture(excess, cost[defined])
    last = solution.trace[-1]
    if solution.status in {"no_solution_found", "infeasible"}:
        assert violation > 1e-7
        assert last["violation"] == pytest.approx(violation, abs=1e-6)
        anything = any_decisions(given)
        assert (solution.status == "infeasible") == (anything > 1e-5)
    elif solution.status == "solved":
        assert violation <= 1e-6
        assert last["objective"] - last["gap"] - 1e-6 <= objective <= last["objective"] + 1e-6


def any_decisions(given: Problem) -> float:
    """Return the smallest violation of any decisions, by a linear program over them."""
    coefficients, constants = given.rows(*given.constraints)
    n = coefficients.shape[1]
    return linprog(
        np.eye(n + 1)[n],
        np.column_stack([coefficients, -np.ones(len(constants))]),
        -constants,
        bounds=[(0, 1)] * n + [(0, None)],
    ).fun


@pytest.mark.parametrize(("name", "count"), one_in(6, CASES))
def test_one_threshold_for_all_is_the_best_of_all(name, count):
    """`thresholded` finds no solution exactly if no threshold satisfies the constraints."""
    solver = Thresholded(model={"score": "s"})
    for seed in range(SETS):
        rows, rng = random_rows(count, seed), np.random.default_rng(seed)
        given = problem(rows, GOALS[name])
        for _ in range(2):
            given = replace(given, X=random_scores(rows.label, count, rng)[:, None])
            rates = all_rates(given, given.X[:, 0], np.zeros(len(rows), dtype=int))
            violation, objective = brute_force(given, rates)
            solution = run(solver, given)
            if violation:
                assert solution.status in {"no_solution_found", "infeasible"}
                assert not solution.variants
                continue
            assert solution.status == "solved"
            found = rates_of(given, solution.variants["deterministic"])
            assert brute_force(given, found[:, None]) == pytest.approx((0.0, objective), abs=1e-9)
