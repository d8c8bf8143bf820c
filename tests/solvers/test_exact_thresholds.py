"""The single threshold of each group that `post_shift` returns is the best of all, by brute force."""

import numpy as np
import pytest
from oracles.goals import Rows, Rules, problem, rates_of, run

from ratecli.rates.matrix import RowKinds
from ratecli.rates.tangent import values
from ratecli.solvers.baselines import cut_search
from ratecli.solvers.baselines.cut_search import best_deterministic_cuts
from ratecli.solvers.baselines.post_shift import (
    GroupHull,
    cuts_by_group,
    goal_directions,
)
from ratecli.solvers.baselines.solvers import PostShift
from ratecli.solvers.hull.best import HullOptimum
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.problem import Groups, Problem

ROUNDING = 1e-11
ALL_GROUPS = "abcd"
ROWS = {1: 12, 2: 16, 3: 18, 4: 16}
"""Number of rows for each number of groups, so that there are at most some 600 choices."""
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
SCORES = 6
"""Number of random scores for each of two sets of rows."""


def random_rows(count: int, seed: int) -> Rows:
    """Scores with ties in `count` groups, in each of which both labels occur; weights in half."""
    rng = np.random.default_rng(seed)
    n = ROWS[count]
    group = np.array(list(ALL_GROUPS[:count]), dtype=object)[np.arange(n) % count]
    label = rng.integers(2, size=n).astype(float)
    label[: 2 * count] = np.repeat([0.0, 1.0], count)
    weight = rng.uniform(0.2, 3, size=n) if seed % 2 else None
    return Rows(random_scores(label, count, rng)[:, None], label, group, weight)


def random_scores(label: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(5 if count > 1 else 10, size=len(label)) + 1.5 * label


def hull_of(given: Problem, scores: np.ndarray) -> tuple[GroupHull, np.ndarray]:
    """The cuts of the groups, and rates (K, N) of all choices."""
    program, kinds = RateProgram.of(given), RowKinds.by(given.rates)
    of = Groups.of_problem(given).of
    cells = cuts_by_group(scores, of, kinds, goal_directions(program))
    hull, sizes = GroupHull(program, kinds, cells, 1e-5), [len(cell) for cell in cells]
    return hull, hull.rates(np.indices(sizes).reshape(len(sizes), -1))


def brute_force(given: Problem, rates: np.ndarray) -> tuple[float, float]:
    """Least violation of rates (K, N), and the least objective with it, by the goals as written."""
    index = given.rates.index()
    pieces = [piece for goal in given.constraints for piece in goal.pieces]
    excess = [values(piece, rates, index) for piece in pieces]
    missed = np.max([np.zeros(rates.shape[1]), *np.where(np.isnan(excess), np.inf, excess)], axis=0)
    for ratio in (ratio for goal in given.constraints for ratio in goal.ratios):
        missed[np.isnan(values(ratio, rates, index))] = np.inf
    missed = np.where(missed <= ROUNDING, 0.0, missed)
    cost = np.nan_to_num(values(given.objective.expression, rates, index), nan=np.inf)
    return missed.min(), cost[missed <= missed.min()].min()


def guessed_optimum(hull: GroupHull, rng: np.random.Generator) -> HullOptimum:
    """Random multipliers and rates: branch and bound must be right for every one of them."""
    choice = np.array([rng.integers(len(cell), size=3) for cell in hull.cells])
    rates, prices = (
        hull.rates(choice).mean(axis=1),
        rng.exponential(size=hull.program.owners.__len__()),
    )
    prices *= rng.random(prices.shape) < 0.5
    feasible = bool(rng.random() < 0.7)
    return HullOptimum(
        np.zeros(0), rates, np.inf, -np.inf, 0 * rates, prices, (), feasible
    )  # fmt: skip


@pytest.fixture
def without_local_search(monkeypatch):
    """Branch and bound alone, from a poor start."""
    monkeypatch.setattr(cut_search, "MAX_CHOICES_AT_ONCE", 1)
    monkeypatch.setattr(cut_search, "PASSES", 0)
    monkeypatch.setattr(cut_search, "BATCH", 64)


def allowed(name: str, count: int) -> bool:
    """Whether a goal that compares groups has some to compare."""
    return count > 1 or "by=g" not in str(GOALS[name])


CASES = [(name, count) for name in GOALS for count in ROWS if allowed(name, count)]


@pytest.mark.usefixtures("without_local_search")
@pytest.mark.parametrize(("name", "count"), CASES)
def test_branch_and_bound_finds_the_best_of_all_choices(name, count, monkeypatch):
    """Also if it is stopped early: then the best choice is within the gap."""
    for seed in range(2 * SCORES):
        rng = np.random.default_rng(seed)
        if seed % SCORES == 0:
            rows = random_rows(count, seed // SCORES)
            given = problem(rows, GOALS[name])
        hull, rates = hull_of(given, random_scores(rows.label, count, rng))
        violation, objective = brute_force(given, rates)
        optimum = guessed_optimum(hull, rng)
        start = [(np.zeros(1, dtype=np.intp), np.ones(1)) for _ in hull.cells]
        for most in (100_000, 20) if seed % 4 == 0 else (100_000,):
            monkeypatch.setattr(cut_search, "MAX_BOXES", most)
            found = best_deterministic_cuts(hull, optimum, start)
            assert most == 20 or found.gap == 0
            chosen = brute_force(given, hull.rates(found.cuts[:, None]))
            assert chosen == pytest.approx(found.key, abs=ROUNDING)
            if violation or found.violation:
                assert violation - ROUNDING <= found.violation
                assert found.violation <= violation + found.gap + ROUNDING
            else:
                assert objective - ROUNDING <= found.objective
                assert found.objective <= objective + found.gap + ROUNDING


@pytest.mark.parametrize(("name", "count"), CASES)
def test_algorithm_returns_the_best_of_all_choices(name, count, monkeypatch):
    """The same with scores that are fitted, and with the multipliers of the hull."""
    monkeypatch.setattr(cut_search, "MAX_CHOICES_AT_ONCE", 20)
    for seed in range(2):
        rows = random_rows(count, seed)
        given = problem(rows, GOALS[name])
        solution = run(PostShift(), given)
        scores = solution.variants["deterministic"].scorer.score(rows.X)
        violation, objective = brute_force(given, hull_of(given, scores)[1])
        single = rates_of(given, solution.variants["deterministic"])
        found = brute_force(given, single[:, None])
        assert solution.trace[-1]["exact"]
        assert found[0] == pytest.approx(violation, abs=1e-9)
        if not violation:
            assert found[1] == pytest.approx(objective, abs=1e-9)
            assert solution.trace[-1]["deterministic_gap"] == 0
