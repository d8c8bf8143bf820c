"""Objectives that are smooth, but neither convex nor made of ratios, against brute force."""

import itertools

import numpy as np
import pytest
from oracles.goals import BOTH, Rows, Rules, grid_rows, problem, rates_of, run, smooth_rows
from sklearn.metrics import matthews_corrcoef
from thinned import one_in

from ratecli.models.base import Array
from ratecli.solvers.baselines import cut_search
from ratecli.solvers.baselines.options import PostShift, Thresholded, Unconstrained
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.problem import Groups, Problem

GAP = 1e-5
OBJECTIVES = {
    "product": "-tpr * tnr",
    "mcc": "-mcc",
    "mcc of groups": "-mean(mcc, by=g)",
    "worst mcc": "-min(mcc, by=g)",
    "product of groups": "-tpr[g=a] * tpr[g=b] * tnr",
    "with convex terms and ratios": "max_gap(positive_rate, by=g) - mcc - f1",
}
CONSTRAINTS = {
    "none": {},
    "ratio": {"p": "min_ratio(positive_rate, by=g) >= 0.9"},
    "recall": {"r": "recall >= 0.8"},
    "f1": {"f": "max_gap(f1, by=g) <= 0.1"},
}


def small_rows(seed: int, kind: str = "plain", n: int = 24) -> Rows:
    """Rows of two groups, each with both labels."""
    rows = grid_rows(seed, n) if kind == "ties" else smooth_rows(seed, n, d=2)
    group, label = np.where(rows.group == "c", "a", rows.group).astype(object), rows.label.copy()
    for name in "ab":
        label[np.flatnonzero(group == name)[:2]] = [0, 1]
    weight = np.random.default_rng(seed).choice([0.3, 1, 2.5], n) if kind == "weights" else None
    return Rows(rows.X, label, group, weight)


def all_thresholds(given: Problem) -> Array:
    """(K, T) rates of every combination of thresholds of the goals' groups, decided one by one."""
    scores = run(Unconstrained("logistic"), given).variants["deterministic"].score(given.X)
    of = Groups.of_problem(given).of
    each = [[-np.inf, *np.unique(scores[of == k])] for k in range(of.max() + 1)]
    found = [
        given.rates.rates((scores > np.array(cuts)[of]).astype(float))
        for cuts in itertools.product(*each)
    ]
    return np.unique(np.stack(found, axis=1), axis=1)


def best_of(program: RateProgram, rates: Array) -> float:
    values = program.value(program.objective, rates)[program.excess(rates) <= 1e-12]
    return float(np.min(values[np.isfinite(values)], initial=np.inf))


def best_of_pairs(program: RateProgram, rates: Array) -> float:
    """The best of the mixtures of two whose chances are multiples of 1 / 16."""
    one, two = np.triu_indices(rates.shape[1])
    shares = np.linspace(0, 1, 17)
    return min(
        best_of(program, rates[:, one] * share + rates[:, two] * (1 - share)) for share in shares
    )


@pytest.mark.parametrize(
    ("objective", "limits", "kind"),
    one_in(17, list(itertools.product(OBJECTIVES, CONSTRAINTS, ["plain", "ties", "weights"]))),
)
def test_thresholds_are_at_least_as_good_as_all_pairs(objective, limits, kind):
    for seed in range(2):
        given = problem(small_rows(seed, kind), Rules(CONSTRAINTS[limits], OBJECTIVES[objective]))
        program, found = RateProgram.of(given), run(PostShift(**BOTH), given)
        every = all_thresholds(given)
        if best_of_pairs(program, every) == np.inf:
            assert found.status != "solved"
            continue
        random, single = (
            rates_of(given, found.variants[k]) for k in ("stochastic", "deterministic")
        )
        value = program.value(program.objective, random)
        assert found.status == "solved"
        assert program.excess(random) <= 1e-6
        assert value <= best_of_pairs(program, every) + GAP
        assert found.trace[-1]["exact"]
        assert "gap" not in found.trace[-1]
        assert 0 <= found.trace[-1]["first_order_gap"] <= GAP
        if np.isfinite(best_of(program, every)):
            assert program.value(program.objective, single) == pytest.approx(
                best_of(program, every), abs=1e-9
            )


@pytest.mark.parametrize("objective", ["product", "mcc", "mcc of groups"])
def test_no_small_step_improves_the_random_choice(objective):
    given = problem(small_rows(1, n=60), Rules(CONSTRAINTS["ratio"], OBJECTIVES[objective]))
    program, found = RateProgram.of(given), run(PostShift(**BOTH), given)
    start, step = rates_of(given, found.main), 1e-4
    moved = (1 - step) * start[:, None] + step * all_thresholds(given)
    values = program.value(program.objective, moved)[program.excess(moved) <= 1e-9]
    assert len(values) > 10
    assert values.min() >= program.value(program.objective, start) - step * GAP - 1e-9


@pytest.mark.parametrize("objective", ["mcc of groups", "product of groups"])
def test_local_search_over_thresholds_finds_what_all_choices_have(objective, monkeypatch):
    given = problem(small_rows(7, n=160), Rules(CONSTRAINTS["ratio"], OBJECTIVES[objective]))
    program, every = RateProgram.of(given), run(PostShift(**BOTH), given)
    monkeypatch.setattr(cut_search, "MAX_CHOICES", 100)
    few = run(PostShift(**BOTH), given)
    assert (every.trace[-1]["exact"], few.trace[-1]["exact"]) == (True, False)
    assert "deterministic_gap" not in few.trace[-1]
    rates = (rates_of(given, each.variants["deterministic"]) for each in (every, few))
    best, found = (float(program.value(program.objective, each)) for each in rates)
    assert best - 1e-12 <= found <= best + 1e-9


@pytest.mark.parametrize("limits", ["none", "recall"])
@pytest.mark.parametrize("objective", ["product", "mcc"])
def test_one_threshold_for_all_rows_is_the_best_of_all(objective, limits):
    for seed, kind in enumerate(["plain", "ties", "weights"]):
        given = problem(small_rows(seed, kind), Rules(CONSTRAINTS[limits], OBJECTIVES[objective]))
        found = run(Thresholded(loss="logistic"), given)
        program = RateProgram.of(given)
        value = program.value(program.objective, rates_of(given, found.main))
        assert value == pytest.approx(best_of(program, all_thresholds(given)), abs=1e-9)


@pytest.mark.parametrize("limits", ["none", "ratio", "recall"])
@pytest.mark.parametrize("objective", ["product", "mcc", "worst mcc"])
def test_mixtures_of_lines_are_at_least_as_good_as_all_pairs(objective, limits):
    """With one feature, a linear classifier is a threshold, with either sign."""
    rows = small_rows(0, n=40)
    rows = Rows(rows.X[:, :1], rows.label, rows.group)
    given = problem(rows, Rules(CONSTRAINTS[limits], OBJECTIVES[objective]), l2=1e-3)
    cuts = np.append(rows.X[:, 0], np.inf)
    decisions = [sign * rows.X[:, 0] >= sign * cut for cut in cuts for sign in (1, -1)]
    every = np.stack([given.rates.rates(each.astype(float)) for each in decisions], axis=1)
    program, found = RateProgram.of(given), run(Mixture(**BOTH), given)
    ours = rates_of(given, found.main)
    assert found.status == "solved"
    assert program.excess(ours) <= 1e-6
    assert program.value(program.objective, ours) <= best_of_pairs(program, every) + 1e-3
    assert found.trace[-1]["first_order_gap"] <= Mixture().gap
    assert "gap" not in found.trace[-1]


def test_mcc_is_that_of_scikit_learn_and_0_for_equal_decisions():
    rows = small_rows(3, "weights", n=50)
    given = problem(rows, Rules({}, "mcc"))
    rng = np.random.default_rng(0)
    for decisions in (rng.random(50) < 0.3, rows.X[:, 0] > 0, np.zeros(50), np.ones(50)):
        expected = matthews_corrcoef(rows.label, decisions.astype(float), sample_weight=rows.weight)
        assert given.value_of(decisions.astype(float)) == pytest.approx(expected, abs=1e-8)
