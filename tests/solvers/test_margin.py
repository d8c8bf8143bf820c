import re
from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import Rows, Rules, problem, rates_of, smooth_rows, tangent, values
from scipy import stats
from scipy.stats import norm
from thinned import one_in

from ratecli.certify.certificate import certify
from ratecli.certify.forms import MeasuredRows
from ratecli.certify.trees import SafetyTestSpec
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.linear import Threshold
from ratecli.solvers.base import JudgedRows, Solution, Solver
from ratecli.solvers.baselines.options import PostShift, Unconstrained
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.infeasible import least_by_ranges
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.judges import EXTRA_NOISE, Attempt, NormalJudge, SafetyTestJudge, _deviates
from ratecli.solvers.majorize.options import Majorize
from ratecli.solvers.margin import MarginSpec, solve_with_margin
from ratecli.solvers.players.options import ThreePlayer
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.options import Seldonian
from ratecli.solvers.tightening import (
    BIAS_SHARES,
    SPARE_SHARE,
    TighteningSearch,
    best_constant,
    folds_of,
    next_step,
)

PARITY = Rules({"p": "positive_rate[g=a] <= positive_rate[g=c]", "r": "recall >= 0.7"})
RATIO_RULE = {"p": "positive_rate[g=a] >= 0.9 * positive_rate[g=c]"}
TREES = {"GradientBoostingClassifier": {"n_estimators": 5}}
MIXTURE = Mixture()
SOLVERS = {
    "majorize": Majorize(iterations=3),
    "mixture": Mixture(),
    "three_player": ThreePlayer(steps=300),
}


def split_problem(seed: int, rules: Rules, n: int = 300):
    """Fitted to 300 rows, judged on another 300."""
    every = smooth_rows(seed, n=2 * n)
    parts = (Rows(every.X[k::2], every.label[k::2], every.group[k::2]) for k in (0, 1))
    train, validation = (problem(part, rules) for part in parts)
    return replace(train, validation=validation)


def excess(given, classifier) -> float:
    return RateProgram.of(given).excess(rates_of(given, classifier))


def first(solution):
    return solution.main


def guarded(given, *split, solver=MIXTURE, **spec):
    return solve_with_margin(solver, MarginSpec(*split, **spec), given, np.random.default_rng(0))


class AlwaysPositiveWhereItLearned(Solver):
    """Has a rate of 1 on its own rows, and of 0 on others."""

    def solve(self, given, *_):
        never = {"main": Threshold(np.zeros(given.X.shape[1]), -1.0)}
        return Solution(never, "solved", judged=JudgedRows(given, np.ones(given.X.shape[0])))


def search_of(given, solver, level=0.9) -> TighteningSearch:
    rng = np.random.default_rng(0)
    judge = NormalJudge(level)
    return TighteningSearch(solver, given, given, rng, lambda _: None, judge, folds=folds_of(given))


def test_training_is_repeated_on_two_of_three_folds_and_judged_on_the_third():
    given = problem(smooth_rows(0), Rules({"p": "positive_rate >= 0.5"}))
    found = search_of(given, AlwaysPositiveWhereItLearned()).rehearse(np.zeros(1))
    assert found.plain == pytest.approx(-0.5)
    assert found.unseen == pytest.approx(0.5)
    assert found.bias == pytest.approx(BIAS_SHARES[1] - 1)
    assert not found.judged.decisions.any()


def test_an_excess_is_judged_at_the_margin_that_is_used():
    """With a tighter rule, a model uses more of the features that are like a group by chance."""
    given = mimicking_rows(0, 1500, 60)
    search = search_of(given, Mixture(randomize=True))
    found = [search.rehearse(np.full(1, by)) for by in (0.0, 0.08, 0.16)]
    excess = [float(each.unseen[0] - each.plain[0]) for each in found]
    assert excess[0] < excess[1] < excess[2]
    assert [each.plain[0] for each in found] == pytest.approx([0.0, -0.08, -0.16], abs=0.01)


FOUR_FIFTHS = "positive_rate[g=a] >= 0.8 * positive_rate[g=b]"


def mimicking_rows(
    seed: int, n: int, d: int, rule: str = FOUR_FIFTHS, share: float = 0.3
) -> Problem:
    """A table of d normal features, the first of which differs by group."""
    rng = np.random.default_rng(seed)
    rare, X = rng.random(n) < share, rng.normal(size=(n, d))
    X[rare, 0] -= 0.7
    score = X[:, 0] + 0.8 * X[:, 1] - 0.6 * X[:, 2] + 0.4 * X[:, 3]
    label = (rng.random(n) < 1 / (1 + np.exp(-score))).astype(float)
    rows = Rows(X, label, np.where(rare, "a", "b").astype(object))
    return replace(problem(rows, Rules({"p": rule})), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n", "d"),
    [
        ("mixture", 1500, 60),
        ("mixture", 4000, 60),
        ("mixture", 4000, 10),
        ("majorize", 1500, 30),
        ("majorize", 4000, 60),
    ],
)
def test_promises_hold_where_features_are_like_a_group_by_chance(name, n, d):
    """30 training sets: 22 that hold have a probability of 1 % if 90 % of all do."""
    population, kept, plain = mimicking_rows(10**6, 40_000, d), [], []
    for seed in range(30):
        given = mimicking_rows(seed, n, d)
        plain.append(population.violation(first(guarded(given, solver=SOLVERS[name]))) == 0)
        found = guarded(given, "new_rows", level=0.9, solver=SOLVERS[name])
        if found.variants:
            kept.append(population.violation(first(found)) == 0)
    assert np.mean(plain) < 0.5
    assert len(kept) >= 27
    assert sum(kept) >= stats.binom.ppf(0.01, len(kept), 0.9)


def test_a_refusal_names_a_limit_and_an_algorithm_with_which_the_rule_holds():
    given = mimicking_rows(7, 4000, 30, "abs(tpr[g=a] - tpr[g=b]) <= 0.05")
    found = guarded(given, "new_rows", level=0.9)
    assert found.status == "no_solution_found"
    limit = float(re.search(r"a limit of ([0-9.]+) instead of 0.05", found.reason)[1])
    assert 0.05 < limit < 0.2
    looser = mimicking_rows(7, 4000, 30, f"abs(tpr[g=a] - tpr[g=b]) <= {limit}")
    assert guarded(looser, "new_rows", level=0.9).variants
    assert "or the algorithm post_shift (groups must be known" in found.reason
    assert guarded(given, "new_rows", level=0.9, solver=PostShift()).variants


@pytest.mark.slow
def test_a_difference_that_is_limited_from_both_sides_is_answered_and_holds():
    """30 training sets: 22 that hold have a probability of 1 % if 90 % of all do."""
    rule = "abs(tpr[g=a] - tpr[g=b]) <= 0.05"
    population, kept = mimicking_rows(10**6, 40_000, 10, rule), []
    for seed in range(30):
        given = mimicking_rows(seed, 4000, 10, rule)
        found = guarded(given, "new_rows", level=0.9, solver=PostShift())
        if found.variants:
            kept.append(population.violation(first(found)) == 0)
    assert len(kept) >= 27
    assert sum(kept) >= stats.binom.ppf(0.01, len(kept), 0.9)


def test_a_refusal_names_a_group_that_is_too_small():
    given = mimicking_rows(0, 400, 6, share=0.03)
    found = guarded(given, "new_rows", level=0.9)
    size = given.slices["g = a"].sum()
    assert f"a group that is larger than 'g = a' ({size} rows)" in found.reason


def test_a_random_constant_decision_is_one_that_a_model_must_beat():
    given = problem(smooth_rows(0), Rules({"p": "0.4 <= positive_rate <= 0.6"}))
    errors = [given.value_of(np.full(len(given.X), chance)) for chance in (0.4, 0.5, 0.6)]
    assert best_constant(given, given, NormalJudge()) == pytest.approx(min(errors))


@pytest.mark.slow
def test_several_floors_hold_together_with_the_level():
    """30 training sets: 22 that hold have a probability of 1 % if 90 % of all do."""
    rules, kept = {each: f"tpr[g={each}] >= 0.85" for each in "abc"}, []
    population = problem(rows_of_regions(10**6, 40_000), Rules(rules))
    for seed in range(30):
        given = replace(problem(rows_of_regions(seed, 4000), Rules(rules)), seed=seed)
        found = guarded(given, "new_rows", level=0.9, solver=PostShift())
        kept.append(population.violation(first(found)) == 0)
    assert sum(kept) >= stats.binom.ppf(0.01, 30, 0.9)


def rows_of_regions(seed: int, n: int) -> Rows:
    """Three groups of unequal size in which the same features decide."""
    rng = np.random.default_rng(seed)
    group = np.array(["a", "b", "c"], dtype=object)[rng.choice(3, size=n, p=[0.5, 0.3, 0.2])]
    X = rng.normal(size=(n, 5))
    score = 1.5 * X[:, 0] + 1.2 * X[:, 1] - 0.9 * X[:, 2]
    return Rows(X, (rng.random(n) < 1 / (1 + np.exp(-score))).astype(float), group)


def test_what_is_easy_is_not_refused():
    """Recall of .9 in three regions: a logistic regression with one threshold has it."""
    given = problem(rows_of_regions(0, 4000), Rules({"r": "min(recall, by=g) >= 0.9"}))
    found = guarded(given, "new_rows", level=0.9)
    assert found.status == "solved"
    assert given.value(first(found)) < 0.9 * best_constant(given, given, NormalJudge(0.9))


@pytest.mark.parametrize("name", SOLVERS)
def test_constraints_hold_where_they_are_judged(name):
    broken, kept = [], []
    for seed in (0, 1, 2):
        given = split_problem(seed, PARITY)
        plain = guarded(given, solver=SOLVERS[name])
        found = guarded(given, "validation", solver=SOLVERS[name])
        broken.append(excess(given.validation, first(plain)))
        kept.append(excess(given.validation, first(found)))
        assert excess(given, first(found)) <= 1e-6  # on training rows too
    assert max(broken) > 0.01
    assert np.mean(np.maximum(kept, 0)) < 0.3 * np.mean(np.maximum(broken, 0))


def test_margin_is_a_multiple_of_the_standard_error():
    given = split_problem(0, Rules({"r": "recall >= 0.95"}))
    given = replace(given, validation=given)
    found = first(guarded(given, "validation", level=0.95))
    p = found.decide(given.X)
    recall = 0.95 - excess(given, found)
    positive = given.rates.totals[[leaf.rate.name for leaf in given.rates.leaves].index("tpr")]
    label = given.labels()[0] > 0
    error = np.sqrt(((p[label] - recall) ** 2).sum()) / positive
    near = (recall * positive + 1) / (positive + 2)
    unseen = (near * (1 - near) - recall * (1 - recall)) / positive
    added = 1.645 * EXTRA_NOISE * np.sqrt(error**2 + unseen)
    assert 0.95 - 1e-3 <= recall - added <= 0.95 + 0.02  # and not much more


def test_standard_error_matches_resampling():
    """3000 resamples estimate a standard deviation to about 2 %."""
    given = problem(smooth_rows(0), Rules({"f": "f1[g=a] - precision <= 0.5"}))
    rng = np.random.default_rng(0)
    p = (rng.random(400) < 0.3 + 0.4 * (given.labels()[0] > 0)).astype(float)
    matrix = given.rates
    (piece,) = given.constraints[0].pieces
    slopes = tangent(piece, matrix.rates(p), matrix.index()).slopes
    drawn = rng.multinomial(400, np.full(400, 1 / 400), size=3000)
    parts = (matrix.sums.multiply(p[None]) + matrix.against).toarray(), matrix.members.toarray()
    rates = (parts[0] @ drawn.T) / (parts[1] @ drawn.T)
    spread = values(piece, rates, matrix.index()).std()
    assert matrix.standard_error(slopes, {"decision": p}) == pytest.approx(spread, rel=0.1)
    several = np.stack([slopes, 2 * slopes, np.eye(len(slopes))[0]])
    alone = [float(matrix.standard_error(each, {"decision": p})) for each in several]
    assert matrix.standard_error(several, {"decision": p}) == pytest.approx(alone, rel=1e-12)
    assert alone[1] == pytest.approx(2 * alone[0])


def test_no_margin_or_no_constraints_leaves_the_solution_unchanged():
    given = split_problem(0, PARITY)
    rng = np.random.default_rng
    for solver, guard in ((Unconstrained(), MarginSpec("validation")), (Mixture(), MarginSpec())):
        found = solve_with_margin(solver, guard, given, rng(0))
        alone = solver.solve(given, rng(0), lambda _: None)
        np.testing.assert_array_equal(first(found).decide(given.X), first(alone).decide(given.X))


def test_too_few_rows_for_a_margin_are_no_solution():
    """Standard errors of rows that stand 30 times are those of 30 times as many rows."""
    every, rules = smooth_rows(0, n=200), Rules({"r": "recall >= 0.9", "f": "fpr <= 0.35"})
    for copies, status in ((1, "no_solution_found"), (30, "solved")):
        rows = np.tile(np.arange(0, 200, 2), copies)
        given = problem(Rows(every.X[rows], every.label[rows], every.group[rows]), rules)
        assert guarded(given).status == "solved"
        found = guarded(given, "new_rows", level=0.99)
        assert (found.status, bool(found.variants)) == (status, status == "solved")
        assert ("What may help: a limit of" in found.reason) == (copies == 1)


def test_a_model_no_better_than_a_constant_does_not_call_for_more_rows():
    given = split_problem(0, Rules({"e": "error <= 0.9"}, "positive_rate"))
    found = guarded(given, "new_rows", level=0.9)
    assert found.status == "no_solution_found"
    assert found.reason.startswith("the model is no better than a constant decision that satisfies")


@pytest.mark.parametrize("level", [0.6, 0.9, 0.99])
def test_independent_pieces_hold_together_with_the_level(level):
    """8,192 draws give tails to within .01 of the level (three standard errors)."""
    errors, room = np.array([0.01, 0.02, 0.0, 0.05]), np.array([0.0, 0.0, 0.3, 0.04])
    alone = np.eye(4), np.diag(errors**2)
    c = _deviates(-room, errors, *alone, level)
    kept = norm.cdf(np.maximum(c, room[errors > 0] / errors[errors > 0]))
    assert kept.prod() == pytest.approx(level, abs=3 * np.sqrt(level * (1 - level) / 8192))
    far = _deviates(-50 * errors, errors, *alone, level)
    assert far == pytest.approx(norm.isf(1 - level))
    one = _deviates(np.zeros(1), np.ones(1), np.eye(1), np.eye(1), level)
    assert one == pytest.approx(norm.ppf(level))


def test_pieces_that_fail_together_cost_no_more_than_one():
    slopes, covariance = np.ones((20, 1)), np.array([[1e-4]])
    c = _deviates(np.zeros(20), np.full(20, 0.01), slopes, covariance, 0.9)
    assert c == pytest.approx(norm.ppf(0.9), abs=0.06)  # three standard errors of the draws
    apart = _deviates(np.zeros(20), np.full(20, 0.01), np.eye(20), 1e-4 * np.eye(20), 0.9)
    assert apart == pytest.approx(norm.ppf(0.9 ** (1 / 20)), abs=0.1)


def test_probabilities_are_added_up_where_draws_are_too_few():
    errors, level = np.array([0.01, 0.02]), 1 - 2**-53
    c = _deviates(np.zeros(2), errors, np.eye(2), np.diag(errors**2), level)
    assert 2 * norm.cdf(-c) == pytest.approx(1 - level)


@pytest.mark.parametrize("positives", [3, 10, 40])
def test_a_rate_of_one_over_few_rows_is_not_certain(positives):
    """With x of n rows, the variance is that of (x + 1) / (n + 2): Agresti and Coull 1998."""
    rows = smooth_rows(0, n=200)
    group = np.where(
        np.cumsum((rows.label > 0) & (rows.group == "a")) <= positives, rows.group, "b"
    )
    given = problem(Rows(rows.X, rows.label, group), Rules({"r": "tpr[g=a] >= 0.9"}))
    (upper,) = NormalJudge(0.9)(given, np.ones(200))
    count = given.rates.totals[[leaf.rate.name for leaf in given.rates.leaves].index("tpr")]
    near = (count + 1) / (count + 2)
    error = EXTRA_NOISE * np.sqrt(near * (1 - near) / count)
    assert upper == pytest.approx(-0.1 + norm.ppf(0.9) * error)


POPULATION = problem(smooth_rows(7, n=20_000), Rules(RATIO_RULE))
DRAWS = 16


ON_TREES = PostShift(model=TREES, scores={"folds": 3})


@pytest.mark.slow
@pytest.mark.parametrize("solver", [PostShift(), ON_TREES])
def test_promises_hold_in_the_population_of_the_rows(solver):
    """Without a margin, a binding constraint holds in about half of the samples."""
    plain, promised, costs = [], [], []
    for k in range(DRAWS):
        rows = np.random.default_rng(k).choice(20_000, 1500, replace=False)
        given = replace(POPULATION.on(rows), seed=k)
        free = first(guarded(given, solver=solver))
        plain.append(POPULATION.violation(free) == 0)
        found = guarded(given, "new_rows", level=0.9, solver=solver)
        if found.variants:
            kept = first(found)
            promised.append(POPULATION.violation(kept) == 0)
            costs.append(POPULATION.value(kept) - POPULATION.value(free))
    assert np.mean(plain) <= 0.75
    assert len(promised) >= 0.75 * DRAWS
    assert sum(promised) >= stats.binom.ppf(0.01, len(promised), 0.9)
    assert np.mean(costs) <= 0.02


GAPS = {
    "ratio": {"p": "positive_rate[g=c] >= 0.8 * positive_rate[g=a]"},
    "tpr": {"p": "abs(tpr[g=a] - tpr[g=c]) <= 0.05"},
    "odds": {"p": "max(abs(tpr[g=a] - tpr[g=c]), abs(fpr[g=a] - fpr[g=c])) <= 0.05"},
}


CASES = [
    *(("ratio", "majorize", 1), ("ratio", "mixture", 1), ("ratio", "three_player", 2)),  # solved
    *(("odds", "majorize", 0), ("tpr", "mixture", 0), ("odds", "three_player", 1)),
]
"""Each algorithm with a sample that has enough rows for its rule, and with one that has too few."""


@pytest.mark.parametrize(("rule", "name", "sample"), one_in(5, CASES))
def test_margin_never_returns_a_model_worse_than_a_constant(rule, name, sample):
    """Constants satisfy all these rules without noise; tightening beyond the tolerance led to worse."""
    seed, n = [(0, 60), (2, 90), (3, 120)][sample]
    given = split_problem(seed, Rules(GAPS[rule]), n=n)
    found = guarded(given, "new_rows", level=0.95, solver=SOLVERS[name])
    if found.variants:
        constant = min(given.value_of(np.full(n, each)) for each in (0.0, 1.0))
        assert given.value(first(found)) < constant
    else:
        assert found.status == "no_solution_found"
        rates = {"odds": r" \([ft]pr\[g = [ac]\], [ft]pr\[g = [ac]\]\)"}.get(rule, "")  # of four
        start = f"no model that is expected to satisfy 'p'{rates} on new rows with probability 0.95"
        assert re.match(start, found.reason)


def test_a_model_that_misses_tightened_constraints_is_no_answer():
    """A yes with the same chance for every row has no sampling error, though no other rule fits in."""
    given = split_problem(0, Rules({"p": "0.5 <= positive_rate <= 0.51"}), n=100)
    found = guarded(replace(given, validation=given), "validation", level=0.99)
    assert found.status == "no_solution_found"
    assert "more validation rows than 100 (how many cannot be said)" in found.reason


def test_infeasible_constraints_stay_infeasible():
    given = split_problem(0, Rules({"r": "recall >= 0.9", "p": "positive_rate <= 0.05"}))
    found = guarded(given, "new_rows", level=0.99)
    assert found.status == "infeasible"


def test_missing_validation_rows_are_an_error():
    given = replace(split_problem(0, PARITY), validation=None)
    with pytest.raises(FaultError, match="have to hold on validation rows, but there are none"):
        guarded(given, "validation")


class TakesOneLimit(Mixture):
    """It fails if the limit is not that of the file."""

    def solve(self, given, *others):
        if given.near is not None:
            raise FaultError(Diagnostic("E501", "another limit"))
        return super().solve(given, *others)


def test_an_algorithm_that_cannot_take_a_tightened_rule_finds_no_solution():
    rules = Rules({"p": "positive_rate[g=a] <= 0.9 * positive_rate[g=c]"})
    found = guarded(split_problem(0, rules), "validation", level=0.9, solver=TakesOneLimit())
    assert found.status == "no_solution_found"


def test_slack_is_that_of_training_rows_where_validation_rows_are_judged():
    given, judge = split_problem(0, PARITY), NormalJudge()
    solution = guarded(given)
    search = TighteningSearch(
        MIXTURE, given, given.validation, np.random.default_rng(0), lambda _: None, judge
    )
    found = search.judged(solution, np.zeros(len(given.pieces)))
    for rows, values_there in ((given, found.plain), (given.validation, found.unseen)):
        decided = rows.decisions(solution.main)
        assert values_there == pytest.approx(rows.piece_values(rows.measured(decided)))


def with_a_test(seed: int) -> tuple[Problem, Problem]:
    """A problem whose solution will be tested on as many rows of its kind, and these rows."""
    rules = Rules({"p": "positive_rate[g=a] >= 0.9 * positive_rate[g=c]", "r": "recall >= 0.6"})
    given = split_problem(seed, rules, n=1000)
    spec = SafetyTestSpec(dict.fromkeys(rules.constraints, 0.05), rows=1000)
    return replace(given, safety_test=spec, validation=None), given.validation


def passes(given: Problem, other: Problem, guard: MarginSpec) -> bool:
    """Whether what is found passes the test."""
    rng = np.random.default_rng(0)
    found = first(solve_with_margin(Mixture(), guard, given, rng, path=False))
    decisions = {"decision": other.decisions(found)}
    rows = MeasuredRows(other.rates, decisions, (0, 1))
    tests = certify(other.constraints, given.safety_test, rows, rng)
    return all(each.passed for each in tests)


@pytest.mark.slow
def test_candidates_with_an_aim_pass_the_safety_test_more_often():
    pairs = [with_a_test(seed) for seed in range(8)]
    assert np.mean([passes(*pair, MarginSpec()) for pair in pairs]) <= 0.5
    assert np.mean([passes(*pair, MarginSpec(aim=0.9)) for pair in pairs]) >= 0.7


def test_bolder_candidates_have_less_and_less_margin():
    """The last one is that of the constraints as they are."""
    given, _ = with_a_test(0)
    found = guarded(given, aim=0.9, solver=Mixture(randomize=True))
    path = [first(found), *(next(iter(each.values())) for each in found.bolder)]
    worst = np.array([given.violation(each) for each in path])
    slack = [given.violations(given.rates.rates(given.decisions(each)))["p"] for each in path]
    assert len(path) > 10
    assert worst.max() <= 1e-5
    assert np.diff(slack).min() > 0
    assert slack[-1] == pytest.approx(0.0, abs=1e-5)
    objectives = [given.value(each) for each in path]
    assert np.diff(objectives).max() <= 1e-5


@pytest.mark.parametrize("method", ["pieces", "forms"])
def test_an_algorithm_with_a_margin_of_its_own_gives_some_of_it_up(method):
    given, _ = with_a_test(0)
    given = replace(given, safety_test=replace(given.safety_test, method=method))
    found = guarded(given, aim=0.9, solver=Seldonian(inflation={"pass": 0.9}))
    if method == "forms":
        assert found.bolder == ()
        return
    path = [first(found), *(next(iter(each.values())) for each in found.bolder)]
    slack = [given.violations(given.rates.rates(given.decisions(each)))["p"] for each in path]
    assert slack[0] < -0.03
    assert np.diff(slack).min() > 0
    assert slack[-1] == pytest.approx(0.0, abs=0.015)


def test_a_piece_with_slack_is_tightened_from_its_value():
    by, plain, upper = np.zeros(2), np.array([-0.07, -0.03]), np.array([-0.03, 0.004])
    judged = JudgedRows(split_problem(0, Rules({})), np.zeros(0))
    missed = Attempt(by, plain, plain, 0 * by, upper, 0.1, judged)
    slopes = np.ones(2)
    start, target = next_step(missed, slopes, np.full(2, -np.inf), np.full(2, np.inf))
    assert start.tolist() == [0.0, 0.03]
    spare = SPARE_SHARE * 0.034
    assert target == pytest.approx([0.0, 0.034 + spare / 2])
    _, target = next_step(missed, slopes, np.full(2, -np.inf), np.full(2, 0.032))
    assert target == pytest.approx([0.0, 0.031])  # more is known to be too much
    _, target = next_step(missed, slopes, np.full(2, -np.inf), np.zeros(2))  # beside other amounts
    assert target == pytest.approx([0.0, 0.034 + spare / 2])


def test_infinite_bound_does_not_tighten_without_end():
    """Of two rows nothing is known of a ratio: tightening ends, and it is said what is missing."""
    rules = Rules({"p": "precision[g=a] <= precision[g=c] + 0.1"})
    given = replace(split_problem(0, rules, n=100), safety_test=SafetyTestSpec({"p": 0.05}, rows=2))
    plain = first(guarded(given))
    short = SafetyTestJudge(given, 0.9)(given, given.decisions(plain))
    assert short.tolist() == [1.0]
    found = guarded(given, aim=0.9)
    assert found.status == "iteration_limit"
    assert "'p' is violated by 1 in the predicted safety test" in found.reason


def test_undefined_constraint_counts_as_violated():
    """Three groups cannot all be 0.45 of the positives, unless there are none."""
    given = split_problem(0, Rules({"s": "min(share, by=g) >= 0.45"}))
    found = guarded(given, "validation", solver=Mixture(randomize=True))
    assert not first(found).decide(given.X).any()
    assert given.violation(first(found)) == 1.0
    assert found.reason == "'s' is violated by 1 on validation rows"


def test_a_constant_that_leaves_a_rule_undefined_counts_as_in_reports():
    """Selecting nobody satisfies the rule as a product; as a ratio it is 0 / 0."""
    ratio, factor = (
        split_problem(0, Rules({"p": rule}))
        for rule in (
            "positive_rate[g=a] / positive_rate[g=c] >= 0.8",
            "positive_rate[g=a] >= 0.8 * positive_rate[g=c]",
        )
    )
    nobody = ratio.value_of(np.zeros(len(ratio.X)))
    assert nobody < ratio.value_of(np.ones(len(ratio.X)))
    for given in (ratio, factor):
        assert best_constant(given, given, NormalJudge(0.9)) == nobody


@pytest.mark.parametrize(
    ("rules", "can_hold"),
    [
        (("positive_rate >= 0.6", "positive_rate <= 0.5"), False),
        (
            ("precision[g=a] - precision[g=b] >= 0.3", "precision[g=a] - precision[g=b] <= 0.2"),
            False,
        ),
        (
            ("precision[g=a] - precision[g=b] >= 0.2", "precision[g=b] - precision[g=a] >= 0.1"),
            False,
        ),
        (
            ("precision[g=a] - precision[g=b] >= 0.2", "precision[g=a] - precision[g=b] <= 0.3"),
            True,
        ),
        (("f1[g=a] - f1[g=b] >= 0.6", "f1[g=b] - f1[g=c] >= 0.6"), False),  # f1 is at most 1
        (("f1[g=a] - f1[g=b] >= 0.4", "f1[g=b] - f1[g=c] >= 0.4"), True),
    ],
)
def test_contradicting_constraints_are_recognized(rules, can_hold):
    given = problem(smooth_rows(0), Rules(dict(enumerate(rules))))
    assert (least_by_ranges(given.pieces) <= 0) == can_hold
