from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracles.goals import Rows, Rules, problem, run, smooth_rows
from scipy.optimize import linprog

from ratecli.models.base import Array, Classifier
from ratecli.solvers.base import Solution
from ratecli.solvers.baselines import linear as plain
from ratecli.solvers.baselines import post_shift
from ratecli.solvers.baselines.solvers import PostShift, Unconstrained
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.problem import Problem

KL = "kl(base_rate, positive_rate[g=a]) + kl(base_rate, positive_rate[g=b])"
EVERY = {
    "parity": Rules({"p": "max_gap(positive_rate, by=g) <= 0.05"}),
    "80%": Rules({"p": "positive_rate[g=b] >= 0.8 * positive_rate[g=a]", "r": "recall >= 0.7"}),
    "opportunity": Rules({"p": "max_gap(tpr, by=g) <= 0.02"}),
    "odds": Rules({"t": "max_gap(tpr, by=g) <= 0.02", "f": "max_gap(fpr, by=g) <= 0.02"}),
    "kl": Rules({"e": "error <= 0.3"}, KL),
    "f1": Rules({"c": "positive_rate[g=a] <= 0.45"}, "1 - f1"),
    "f1 parity": Rules({"f": "f1[g=a] - f1[g=b] <= 0.02"}, "1 - f1"),
    "churn": Rules({"c": "churn <= 0.25", "p": "max_gap(tpr, by=g) <= 0.1"}),
}


def solved(given: Problem, **options) -> Solution:
    return run(PostShift(**options), given)


def rates_of(given: Problem, classifier: Classifier) -> Array:
    return given.rates.rates(given.decisions(classifier))


def two_groups(seed: int, n: int = 24) -> Rows:
    rows = smooth_rows(seed, n=n, d=2)
    group = np.where(rows.group == "c", "a", rows.group).astype(object)
    label = rows.label.copy()
    for name in "ab":  # both labels in both groups
        label[np.flatnonzero(group == name)[:2]] = [0, 1]
    return Rows(rows.X, label, group, deployed=rows.deployed)


def every_choice(given: Problem, rows: Rows) -> Array:
    """(K, T) rates of every pair of thresholds, decided one by one."""
    fitted = run(Unconstrained("logistic"), given)
    scores = fitted.variants["deterministic"].score(rows.X)
    found = []
    first, second = (np.append(scores[rows.group == name], -np.inf) for name in "ab")
    for low, high in itertools.product(np.append(first, np.inf), np.append(second, np.inf)):
        threshold = np.where(rows.group == "a", low, high)
        found.append(given.rates.rates((scores >= threshold).astype(float)))
    return np.unique(np.stack(found, axis=1), axis=1)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("seed", range(4))
def test_deterministic_choice_is_the_best_of_all_pairs(name, seed):
    rows = two_groups(seed)
    given = problem(rows, EVERY[name])
    program, rates = RateProgram.of(given), every_choice(given, rows)
    values = program.value(program.objective, rates)
    expected = min(values[program.excess(rates) <= 1e-12], default=np.inf)
    found = solved(given)
    ours = rates_of(given, found.variants["deterministic"])
    assert found.trace[-1]["exact"]
    if expected == np.inf:
        assert program.excess(ours) == pytest.approx(program.excess(rates).min(), abs=1e-9)
    else:
        assert program.excess(ours) <= 1e-12
        assert program.value(program.objective, ours) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("seed", range(4))
def test_randomized_choice_is_at_least_as_good_as_mixtures_of_two(name, seed):
    rows = two_groups(seed, n=16)
    given = problem(rows, EVERY[name])
    program, rates = RateProgram.of(given), every_choice(given, rows)
    one, two = np.triu_indices(rates.shape[1])
    found = solved(given)
    ours = rates_of(given, found.variants["stochastic"])
    best = np.inf
    for share in np.linspace(0, 0.5, 9):
        mixed = np.hstack([rates[:, one] * share + rates[:, two] * (1 - share),
                           rates[:, one] * (1 - share) + rates[:, two] * share])  # fmt: skip
        allowed = program.excess(mixed) <= 1e-12
        best = min(best, *program.value(program.objective, mixed[:, allowed]), np.inf)
    if found.status != "solved":
        assert (found.status, best) == ("no_solution_found", np.inf)
        return
    assert program.excess(ours) <= 1e-6
    assert program.value(program.objective, ours) <= best + 1e-5
    assert found.trace[-1]["gap"] <= 1e-5


@pytest.mark.parametrize("name", ["parity", "80%", "opportunity", "odds", "churn"])
@pytest.mark.parametrize("seed", range(3))
def test_randomized_choice_is_the_optimum_of_a_linear_program(name, seed):
    rows = two_groups(seed, n=30)
    given = problem(rows, EVERY[name])
    program, rates = RateProgram.of(given), every_choice(given, rows)
    full = linprog(
        program.value(program.objective, rates),
        A_ub=np.stack([program.value(form, rates) for form in program.constraints]),
        b_ub=np.zeros(len(program.constraints)),
        A_eq=np.ones((1, rates.shape[1])),
        b_eq=[1.0],
    )
    found = solved(given)
    assert (full.status == 0) == (found.status == "solved")
    if full.status == 0:
        ours = rates_of(given, found.variants["stochastic"])
        assert program.value(program.objective, ours) == pytest.approx(full.fun, abs=1e-7)
        assert len(found.variants["stochastic"].members) <= 1 + len(program.constraints)


@pytest.mark.parametrize("name", EVERY)
def test_the_randomized_choice_is_never_worse_than_the_single_one(name):
    """On more groups and rows, where not every choice can be looked at."""
    rows = smooth_rows(5, n=600)
    deployed = run(Unconstrained(), problem(rows, Rules()))
    rows = Rows(rows.X, rows.label, rows.group,
                deployed=deployed.variants["deterministic"].decide(rows.X))  # fmt: skip
    given = problem(rows, EVERY[name])
    program, found = RateProgram.of(given), solved(given)
    assert found.status == "solved"
    random, single = (rates_of(given, found.variants[name]) for name in found.variants)
    assert program.excess(random) <= 1e-6
    if program.excess(single) <= 1e-12:
        values = [program.value(program.objective, rates) for rates in (random, single)]
        assert values[0] <= values[1] + 1e-5
    chances = np.unique(given.decisions(found.variants["stochastic"]))
    curves = len(program.objective.curves)
    assert len(chances) <= 2 + len(program.constraints) + curves


@pytest.mark.parametrize("name", ["parity", "80%", "kl", "churn"])
def test_limited_search_matches_the_exhaustive_one(name, monkeypatch):
    """The search for the single choice finds the same whether it looks at all choices or at few."""
    rows = two_groups(7, n=160)
    given = problem(rows, EVERY[name])
    program = RateProgram.of(given)
    every = solved(given)
    monkeypatch.setattr(post_shift, "MAX_CHOICES_AT_ONCE", 1500)
    few = solved(given)
    assert every.trace[-1]["exact"]
    values = [
        program.value(program.objective, rates_of(given, each.variants["deterministic"]))
        for each in (every, few)
    ]
    if few.trace[-1]["exact"]:
        assert values[1] == pytest.approx(values[0], abs=1e-9)
    assert values[0] <= values[1] + 1e-9
    assert name == "kl" or few.trace[-1]["exact"]


def test_divergence_alone_reaches_zero_without_wasting_error():
    """Each group's share of yes is the prevalence (protocol of PostShift), and error is not wasted."""
    rows = two_groups(0, n=301)
    given = problem(rows, Rules({}, KL))
    found = solved(given)
    index = {str(leaf): k for k, leaf in enumerate(given.rates.leaves)}
    rates = rates_of(given, found.variants["stochastic"])
    for name in "ab":
        assert rates[index[f"positive_rate[g = {name}]"]] == pytest.approx(
            rows.label.mean(), abs=2e-4
        )
    single = rates_of(given, found.variants["deterministic"])
    assert rates[index["error"]] <= single[index["error"]] + 0.02


def test_counts_of_a_mixture_are_averaged_before_f1():
    """As in vector 9.6: of 2, 0, 3 and 3, 0, 2 at even chances F1 is 2/3, the mean of F1 .66071; other
    chances of cuts with as many yeses in the mean have the same counts.
    """
    label = np.array([1.0] * 5 + [0.0] * 5)
    X = np.array([9.0, 8, 7, 3, 2, 6, 1, 0.5, 0.4, 0.3])[:, None]
    rows = Rows(X, label, np.array(["a"] * 10, dtype=object))
    whole = solved(problem(rows, Rules({"c": "positive_rate <= 0.2"}, "1 - f1")))
    # two yeses of ten, both right: the counts of f1 are 2, 0 and 3
    assert whole.trace[-1]["objective"] == pytest.approx(1 - 4 / 7, abs=1e-9)
    half = solved(problem(rows, Rules({"c": "positive_rate <= 0.25"}, "1 - f1")))
    # half a yes more in the mean, right too: 2.5, 0 and 2.5
    assert half.trace[-1]["objective"] == pytest.approx(1 - 5 / 7.5, abs=1e-9)
    assert half.variants["stochastic"].decide(X).sum() == pytest.approx(2.5)


def test_group_without_goals_keeps_threshold_zero():
    found = solved(problem(two_groups(1, n=200), Rules({}, "error[g=a]")))
    single = found.variants["deterministic"]
    assert single.slices == ("g = a",)
    assert single.thresholds[~single.groups[:, 0]].tolist() == [0.0]
    assert single.thresholds[single.groups[:, 0]] != 0.0


def test_contradictory_constraints_are_infeasible():
    rows = two_groups(2, n=60)
    rules = {"r": "recall >= 0.9", "c": "positive_rate <= 0.1"}
    found = solved(problem(rows, Rules(rules)))
    assert found.status == "infeasible"
    assert found.reason.startswith("every choice of thresholds misses some constraint by 0.")
    shuffled = Rows(rows.X * 0, rows.label, rows.group)
    found = solved(problem(shuffled, Rules({"r": "recall >= 0.7", "f": "fpr <= 0.3"})))
    assert found.status == "no_solution_found"
    # one threshold on no information: tpr = fpr, and the least that both can miss is .2
    assert found.trace[-1]["violation"] == pytest.approx(0.2, abs=1e-6)


def test_iteration_limit_is_reported(monkeypatch):
    monkeypatch.setattr(plain, "MAX_ITERATIONS", 1)
    found = solved(problem(two_groups(0, n=300), Rules(), 1e-6))
    assert found.status == "iteration_limit"
    assert "1 passes" in found.reason


def test_multiplier_is_the_derivative_of_the_objective():
    """A constraint that is loosened by a little lowers the objective by its multiplier."""
    rows = two_groups(4, n=400)
    found = [
        solved(problem(rows, Rules({"c": f"positive_rate[g=a] <= {limit}", "r": "recall >= 0.2"})))
        for limit in (0.30, 0.3001)
    ]
    objectives = [each.trace[-1]["objective"] for each in found]
    assert found[0].multipliers["c"] == pytest.approx((objectives[0] - objectives[1]) / 1e-4)
    assert found[0].multipliers["r"] == pytest.approx(0, abs=1e-9)
