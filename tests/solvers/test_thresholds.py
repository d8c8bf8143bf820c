import itertools
from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import (
    BOTH,
    KL,
    Rows,
    Rules,
    evaluate,
    grid_rows,
    problem,
    rates_of,
    run,
    smooth_rows,
)
from scipy.optimize import linprog
from thinned import one_in

from ratecli.models.base import Array
from ratecli.models.linear import Threshold
from ratecli.solvers.base import Solution
from ratecli.solvers.baselines import cut_search
from ratecli.solvers.baselines.options import PostShift, Thresholded, Unconstrained
from ratecli.solvers.curve import RateCurve
from ratecli.solvers.hull.forms import RateProgram
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


def solved(goals: Problem, meets: str | None = None, loss: str = "hinge") -> Solution:
    return run(Thresholded(meets, loss=loss), goals)


def plain(goals: Problem, loss: str = "hinge") -> Threshold:
    return run(Unconstrained(loss), goals).variants["deterministic"]


def measured(goals: Problem, decisions: np.ndarray, meets: str | None) -> tuple[float, float]:
    """Objective and largest excess, as the language measures them; minus infinity without rules."""
    known = dict(zip(goals.rates.leaves, goals.rates.rates(decisions).tolist(), strict=True))
    rules = [goal for goal in goals.constraints if meets in {None, goal.name}]
    parts = [piece for goal in rules for piece in goal.pieces]
    excess = max((evaluate(part, known) for part in parts), default=-np.inf)
    return evaluate(goals.objective.expression, known), excess


def every_way(goals: Problem, meets: str | None, own: Threshold) -> list[tuple[float, ...]]:
    """Objective, excess, and distance to the classifier's own bias of each threshold, one by one."""
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


@pytest.mark.parametrize(
    ("rules", "weighted", "seed"),
    one_in(3, itertools.product(GOALS, [False, True], range(2))),
    ids=lambda each: "" if isinstance(each, Rules) else str(each),
)
def test_chosen_threshold_is_the_best_of_all(rules, weighted, seed):
    """On a coarse grid, where many rows are the same and their scores tie."""
    rows = grid_rows(seed, n=50)
    if weighted:
        weight = np.random.default_rng(seed).uniform(0.2, 3, size=50)
        rows = Rows(rows.X, rows.label, rows.group, weight, rows.deployed)
    goals, loss = problem(rows, rules), "logistic" if seed else "hinge"
    own = plain(goals, loss)
    for meets in (None, *rules.constraints):
        ways = every_way(goals, meets, own)
        allowed = [way for way in ways if way[1] <= EXACT]
        found = solved(goals, meets, loss)
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
        shift = classifier.bias - own.bias
        np.testing.assert_array_equal(classifier.weights, own.weights)
        assert abs(shift) == pytest.approx(nearest, abs=1e-8)
        assert found.trace[0]["objective"] == pytest.approx(objective, abs=EXACT)
        assert found.trace[0]["shift"] == pytest.approx(shift, abs=1e-12)


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


def test_a_limit_of_precision_is_missed_in_units_of_precision():
    rows = smooth_rows(3)
    goals = problem(rows, Rules({"p": "precision >= 0.99", "r": "recall >= 0.5"}))
    found = run(Thresholded(model={"score": "s"}), replace(goals, X=rows.X[:, :1]))
    missed = []
    for cut in rows.X[:, 0]:
        chosen, positive = rows.X[:, 0] >= cut, rows.label > 0
        precision, recall = (positive[chosen].mean(), chosen[positive].mean())
        missed.append(max(0.99 - precision, 0.5 - recall))
    assert f"violates 'p' by {min(missed):.3g}" in found.reason


def test_constraints_without_a_common_threshold_give_no_solution():
    goals = problem(smooth_rows(3), Rules({"r": "recall >= 0.99", "c": "positive_rate <= 0.1"}))
    both = solved(goals)
    assert both.status == "infeasible"  # by any decisions at all: 4 in 10 rows are positive
    assert both.reason.startswith("no threshold satisfies all constraints: the best violates '")
    rules = Rules({"r": "recall >= 0.99", "f": "fpr <= 0.01"})
    assert solved(problem(smooth_rows(3), rules)).status == "no_solution_found"
    assert solved(goals, "r").status == solved(goals, "c").status == "solved"
    with pytest.raises(KeyError):
        solved(goals, "s")
    free, alone = run(Thresholded(free=True), goals), solved(problem(smooth_rows(3), Rules()))
    assert free.variants["deterministic"].bias == alone.variants["deterministic"].bias


def test_scores_equal_up_to_rounding_share_a_decision():
    goals = problem(Rows(np.zeros((4, 1)), np.array([1.0, 0, 1, 1]), np.array(["a"] * 4)), Rules())
    scores = np.array([0.3, 1.0, 0.1 + 0.2, -2.0])
    curve = RateCurve.of(scores - 0.5, keep_zero=True)
    thresholds, rates = curve.thresholds, curve.rates(goals.rates)
    np.testing.assert_allclose(thresholds + 0.5, [2, 0.5, -0.85, -3], rtol=1e-15)
    np.testing.assert_array_equal(rates, [[0.75, 1.0, 0.5, 0.25]])


def test_feasible_threshold_with_undefined_objective_is_returned():
    goals = problem(smooth_rows(0), Rules({"c": "positive_rate <= 0"}, "1 - precision"))
    found = solved(goals)
    assert not goals.decisions(found.variants["deterministic"]).any()


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


def shifted(given: Problem, **options) -> Solution:
    return run(PostShift(**options, **BOTH), given)


def two_groups(seed: int, n: int = 24) -> Rows:
    rows = smooth_rows(seed, n=n, d=2)
    group = np.where(rows.group == "c", "a", rows.group).astype(object)
    label = rows.label.copy()
    for name in "ab":  # both labels in both groups
        label[np.flatnonzero(group == name)[:2]] = [0, 1]
    return Rows(rows.X, label, group, deployed=rows.deployed)


def all_pairs(name: str, seed: int, n: int = 24) -> tuple[Problem, RateProgram, Array]:
    """A problem, and (K, T) rates of every pair of thresholds, decided one by one."""
    rows = two_groups(seed, n)
    given = problem(rows, EVERY[name])
    scores = plain(given, "logistic").score(rows.X)
    found = []
    first, second = (np.append(scores[rows.group == name], -np.inf) for name in "ab")
    for low, high in itertools.product(np.append(first, np.inf), np.append(second, np.inf)):
        threshold = np.where(rows.group == "a", low, high)
        found.append(given.rates.rates((scores >= threshold).astype(float)))
    return given, RateProgram.of(given), np.unique(np.stack(found, axis=1), axis=1)


@pytest.mark.parametrize(("name", "seed"), one_in(3, itertools.product(EVERY, range(4))))
def test_deterministic_choice_is_the_best_of_all_pairs(name, seed):
    given, program, rates = all_pairs(name, seed)
    values = program.value(program.objective, rates)
    expected = min(values[program.excess(rates) <= 1e-12], default=np.inf)
    found = shifted(given)
    ours = rates_of(given, found.variants["deterministic"])
    assert found.trace[-1]["exact"]
    if expected == np.inf:
        assert program.excess(ours) == pytest.approx(program.excess(rates).min(), abs=1e-9)
    else:
        assert program.excess(ours) <= 1e-12
        assert program.value(program.objective, ours) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("name", "seed"), one_in(3, itertools.product(EVERY, range(4))))
def test_randomized_choice_is_at_least_as_good_as_mixtures_of_two(name, seed):
    given, program, rates = all_pairs(name, seed, n=16)
    one, two = np.triu_indices(rates.shape[1])
    found = shifted(given)
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
    last = found.trace[-1]
    assert last.get("gap", last.get("first_order_gap")) <= 1e-5


@pytest.mark.parametrize("name", ["parity", "80%", "opportunity", "odds", "churn"])
@pytest.mark.parametrize("seed", range(3))
def test_randomized_choice_is_the_optimum_of_a_linear_program(name, seed):
    given, program, rates = all_pairs(name, seed, n=30)
    full = linprog(
        program.value(program.objective, rates),
        A_ub=np.stack([program.value(form, rates) for form in program.constraints]),
        b_ub=np.zeros(len(program.constraints)),
        A_eq=np.ones((1, rates.shape[1])),
        b_eq=[1.0],
    )
    found = shifted(given)
    assert (full.status == 0) == (found.status == "solved")
    if full.status == 0:
        ours = rates_of(given, found.variants["stochastic"])
        assert program.value(program.objective, ours) == pytest.approx(full.fun, abs=1e-7)
        assert len(found.variants["stochastic"].members) <= 1 + len(program.constraints)


@pytest.mark.parametrize("name", one_in(3, EVERY))
def test_the_randomized_choice_is_never_worse_than_the_single_one(name):
    """On more groups and rows, where not every choice can be looked at."""
    rows = smooth_rows(5, n=600)
    deployed = run(Unconstrained(), problem(rows, Rules()))
    decisions = deployed.variants["deterministic"].decide(rows.X)
    given = problem(Rows(rows.X, rows.label, rows.group, deployed=decisions), EVERY[name])
    program, found = RateProgram.of(given), shifted(given)
    assert found.status == "solved"
    random, single = (rates_of(given, each) for each in found.variants.values())
    assert program.excess(random) <= 1e-6
    if program.excess(single) <= 1e-12:
        values = [program.value(program.objective, rates) for rates in (random, single)]
        assert values[0] <= values[1] + 1e-5
    chances = np.unique(given.decisions(found.variants["stochastic"]))
    assert len(chances) <= 2 + len(program.constraints) + len(program.objective.curves)


@pytest.mark.parametrize("name", ["parity", "80%", "kl", "churn"])
def test_limited_search_matches_the_exhaustive_one(name, monkeypatch):
    """The search for the single choice finds the same whether it looks at all choices or at few."""
    rows = two_groups(7, n=160)
    given = problem(rows, EVERY[name])
    program, every = RateProgram.of(given), shifted(given)
    monkeypatch.setattr(cut_search, "MAX_CHOICES", 1)
    few = shifted(given)
    rates = (rates_of(given, each.variants["deterministic"]) for each in (every, few))
    least, found = (program.value(program.objective, each) for each in rates)
    assert every.trace[-1]["exact"]
    assert least - 1e-9 <= found <= least + 1e-9


def test_divergence_alone_reaches_zero_without_wasting_error():
    """Each group's share of yes is the prevalence (protocol of PostShift), and error is not wasted."""
    rows = two_groups(0, n=301)
    given = problem(rows, Rules({}, KL))
    found = shifted(given)
    random, single = (
        dict(zip(map(str, given.rates.leaves), rates_of(given, each), strict=True))
        for each in found.variants.values()
    )
    for name in "ab":
        shares = random[f"positive_rate[g = {name}]"]
        assert shares == pytest.approx(rows.label.mean(), abs=2e-4)
    assert random["error"] <= single["error"] + 0.02


def test_counts_of_a_mixture_are_averaged_before_f1():
    """As in vector 9.6: of 2, 0, 3 and 3, 0, 2 at even chances F1 is 2/3, the mean of F1 .66071; other
    chances of cuts with as many yeses in the mean have the same counts.
    """
    label = np.array([1.0] * 5 + [0.0] * 5)
    X = np.array([9.0, 8, 7, 3, 2, 6, 1, 0.5, 0.4, 0.3])[:, None]
    rows = Rows(X, label, np.array(["a"] * 10, dtype=object))
    whole = shifted(problem(rows, Rules({"c": "positive_rate <= 0.2"}, "1 - f1")))
    # two yeses of ten, both right: the counts of f1 are 2, 0 and 3
    assert whole.trace[-1]["objective"] == pytest.approx(1 - 4 / 7, abs=1e-9)
    half = shifted(problem(rows, Rules({"c": "positive_rate <= 0.25"}, "1 - f1")))
    # half a yes more in the mean, right too: 2.5, 0 and 2.5
    assert half.trace[-1]["objective"] == pytest.approx(1 - 5 / 7.5, abs=1e-9)
    assert half.variants["stochastic"].decide(X).sum() == pytest.approx(2.5)


def test_group_without_goals_keeps_threshold_zero():
    found = shifted(problem(two_groups(1, n=200), Rules({}, "error[g=a]")))
    single = found.variants["deterministic"]
    assert single.slices == ("g = a",)
    assert single.thresholds[~single.groups[:, 0]].tolist() == [0.0]
    assert single.thresholds[single.groups[:, 0]] != 0.0


def test_contradictory_constraints_are_infeasible():
    rows = two_groups(2, n=60)
    found = shifted(problem(rows, Rules({"r": "recall >= 0.9", "c": "positive_rate <= 0.1"})))
    assert found.status == "infeasible"
    assert found.reason.startswith(
        "no choice of thresholds satisfies all constraints: the last one violates '"
    )
    shuffled = Rows(rows.X * 0, rows.label, rows.group)
    found = shifted(problem(shuffled, Rules({"r": "recall >= 0.7", "f": "fpr <= 0.3"})))
    assert found.status == "no_solution_found"
    # one threshold on no information: tpr = fpr, and the least that both can miss is .2
    assert found.trace[-1]["violation"] == pytest.approx(0.2, abs=1e-6)


def test_multiplier_is_the_derivative_of_the_objective():
    """A constraint that is loosened by a little lowers the objective by its multiplier."""
    rows = two_groups(4, n=400)
    found = [
        shifted(problem(rows, Rules({"c": f"positive_rate[g=a] <= {limit}", "r": "recall >= 0.2"})))
        for limit in (0.30, 0.3001)
    ]
    objectives = [each.trace[-1]["objective"] for each in found]
    assert found[0].multipliers["c"] == pytest.approx((objectives[0] - objectives[1]) / 1e-4)
    assert found[0].multipliers["r"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", [40, 46, 72, 78])
def test_constraints_that_only_a_least_violation_satisfies(seed):
    """The point comes from another relaxation than the bound, and its prices with it."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(30, 420))
    X, group = rng.normal(size=(n, 3)), np.array([*"ab"], dtype=object)[rng.integers(2, size=n)]
    label = (X[:, 0] + (group == "a") + rng.normal(size=n) > 0).astype(float)
    rules = Rules({"none": "positive_rate[g=a] <= 0", "all": "positive_rate[g=b] >= 1"})
    given = problem(Rows(X, label, group), rules)
    solution = run(PostShift(**BOTH), given)
    assert solution.status == "solved"
    decided = given.decisions(solution.main)
    np.testing.assert_allclose(decided, group == "b", atol=1e-9)
