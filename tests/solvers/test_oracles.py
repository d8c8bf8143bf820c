import inspect
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from oracles.goals import BOTH, KL, Rows, Rules, problem, run, smooth_rows
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.utils import all_estimators

from ratecli.errors import FaultError
from ratecli.experiment.entries import make_solver
from ratecli.models.base import Classifier
from ratecli.models.composed import (
    ARGMAX_COSTS,
    CostSensitiveClassifier,
    GroupThreshold,
    ModelRegressor,
    ProbabilityThreshold,
)
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import Threshold
from ratecli.models.probabilities import SklearnModel
from ratecli.models.storage import dumps, loads
from ratecli.models.trees import TreeEnsemble
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.baselines.options import PostShift
from ratecli.solvers.hull.forms import RatePoints, RateProgram
from ratecli.solvers.hull.master import best_in_hull
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.oracles import choice, linear_search, model_names, plugin
from ratecli.solvers.oracles.base import FitRows, OracleRows, blend
from ratecli.solvers.oracles.estimators import fit_estimator, make_estimator, model_class
from ratecli.solvers.problem import ERROR_RATE, Problem

GOALS = Rules({"p": "positive_rate[g=a] <= positive_rate[g=b]", "r": "recall[g=b] >= 0.7"})
SMALL = {
    "HistGradientBoostingClassifier": {"max_iter": 5},
    "GradientBoostingClassifier": {"n_estimators": 5},
    "MLPClassifier": {"hidden_layer_sizes": [4], "max_iter": 20},
}
"""Options that make slow classifiers fast."""


def cells(seed: int, n: int = 200, levels: int = 2) -> Rows:
    """Rows with three features of `levels` values each, and two groups that are independent of them."""
    rng = np.random.default_rng(seed)
    X = rng.integers(levels, size=(n, 3)).astype(float)
    group = np.array(["a", "b"], dtype=object)[rng.integers(2, size=n)]
    label = (rng.random(n) < 0.2 + 0.6 * (X[:, 0] == X[:, 1])).astype(float)
    return Rows(X, label, group)


def oracle_rows(given: Problem) -> OracleRows:
    return OracleRows.of(given.X, RowKinds.by(given.rates))


def ask(option, given: Problem, prices: np.ndarray, seed: int = 0) -> Classifier:
    rng = np.random.default_rng(seed)
    return plugin.make_oracle(option, oracle_rows(given), given.l2, rng).answer(prices, None)


def prices_of(given: Problem, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=len(given.rates.leaves))


def cost(given: Problem, prices: np.ndarray, classifier: Classifier) -> float:
    return float(prices @ given.rates.rates(classifier.decide(given.X)))


@pytest.mark.parametrize("solver", ["three_player", "coco"])
@pytest.mark.parametrize("name", ["lightgbm", "xgboost", "catboost"])
def test_players_accept_boosted_trees_as_oracle(name, solver):
    pytest.importorskip(name)
    given, booster = problem(smooth_rows(1), GOALS), {name: {"n_estimators": 5}}
    oracle = {"plugin": {"probabilities": booster}} if solver == "coco" else booster
    found = run(make_solver(solver, BOTH | {"oracle": oracle, "steps": 3, "every": 1}, []), given)
    mixture = found.variants["stochastic"]
    assert any(isinstance(getattr(member, "chances", None), TreeEnsemble)
               for member in mixture.members)  # fmt: skip
    np.testing.assert_array_equal(loads(dumps(mixture)).decide(given.X), mixture.decide(given.X))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "option",
    [
        "DecisionTreeClassifier",
        {"RandomForestClassifier": {"n_estimators": 3, "bootstrap": False}},
        {"plugin": {"probabilities": "DecisionTreeClassifier"}},
        {"plugin": {"probabilities": {"ExtraTreesClassifier": {"n_estimators": 3}}}},
    ],
    ids=str,
)
def test_full_trees_decide_each_distinct_row_optimally(option, seed):
    given = problem(cells(seed), GOALS)
    prices = 0.2 * prices_of(given, seed)
    prices[given.rates.index()[ERROR_RATE]] += 3.0
    answer = ask(option, given, prices)
    assert isinstance(answer.chances, TreeEnsemble)
    rows = oracle_rows(given)
    least = prices @ rows.rates((rows.costs(prices) < 0).astype(float))
    assert cost(given, prices, answer) == pytest.approx(float(least), abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_stumps_are_optimal_if_one_cut_separates_the_costs(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, 3))
    label = (X[:, 1] > rng.normal()).astype(float)
    label[:2] = 0, 1
    given = problem(Rows(X, label, np.full(80, "a", dtype=object)), Rules({}))
    prices = np.ones(len(given.rates.leaves))
    answer = ask({"DecisionTreeClassifier": {"max_depth": 1}}, given, prices)
    stumps = [
        cost(given, prices, Threshold(sign * np.eye(3)[j], -sign * cut))
        for j, sign in product(range(3), (1.0, -1.0))
        for cut in np.append(np.unique(X[:, j]), -9.0)
    ]
    assert cost(given, prices, answer) <= min(stumps) + 1e-12


def logistic_rows(seed: int) -> tuple[Rows, np.ndarray]:
    """Rows with a known, logistic probability of label 1, and a group that is a feature."""
    rng = np.random.default_rng(seed)
    code = rng.integers(2, size=20_000)
    X = np.stack([rng.integers(-4, 5, size=20_000) / 2.0, code], axis=1)
    chance = 1 / (1 + np.exp(-(1.5 * X[:, 0] - 0.8 * code)))
    label = (rng.random(20_000) < chance).astype(float)
    return Rows(X, label, np.array(["a", "b"], dtype=object)[code]), chance


@pytest.mark.parametrize("option", ["plugin", {"plugin": {"probabilities": "DecisionTreeClassifier"}}], ids=str)  # fmt: skip
def test_plug_in_is_the_bayes_rule_with_a_threshold_for_each_group(option):
    """The cost is `error + 0.3 positive_rate[a] - 0.3 positive_rate[b]`, so the threshold is
    1/2 + 0.15 / P(a) in group a, and 1/2 - 0.15 / P(b) in group b.
    """
    rows, chance = logistic_rows(0)
    goals = Rules({"p": "positive_rate[g=a] <= positive_rate[g=b]"})
    given = problem(rows, goals)
    wanted = {"error": 1.0, "positive_rate[g = a]": 0.3, "positive_rate[g = b]": -0.3}
    shares = np.array([np.mean(rows.group == g) for g in "ab"])
    in_b = (rows.group == "b").astype(int)
    threshold = 0.5 + np.array([0.15, -0.15])[in_b] / shares[in_b]
    clear = np.abs(chance - threshold) > 0.05
    assert 0.5 < clear.mean() < 1
    answer = ask(option, given, prices(given, wanted))
    expected = (chance > threshold).astype(float)
    np.testing.assert_array_equal(answer.decide(given.X)[clear], expected[clear])
    assert {0.0, 1.0} == set(expected[clear & (in_b == 1)]) == set(expected[clear & (in_b == 0)])


@pytest.mark.parametrize("option", ["linear", "plugin", "GaussianNB"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_costs_of_one_sign_give_a_constant_decision(option, sign):
    given = problem(smooth_rows(0), Rules({}, "positive_rate"))
    answer = ask(option, given, prices(given, {"positive_rate": sign}))
    assert (answer.decide(given.X) == (sign < 0)).all()


@pytest.mark.parametrize("n", [60, 30_000])  # from 100,000 entries on, in single precision
def test_a_linear_search_is_shared_by_the_same_problem_only(n):
    def search(seed=0, l2=0.01, prices=0):
        given = replace(problem(smooth_rows(seed, n), GOALS), l2=l2)
        return ask("linear", given, prices_of(given, prices)).weights.tolist()

    first = search()
    others = [search(seed=1), search(l2=0.02), search(prices=1)]
    assert first not in others
    linear_search._search_cache._known.clear()
    assert search() == first


def test_plug_in_fits_probabilities_once():
    given = problem(cells(1), GOALS)
    found = plugin.make_oracle("plugin", oracle_rows(given), given.l2, np.random.default_rng(0))
    one, other = (found.answer(prices_of(given, seed), None) for seed in (0, 1))
    assert one.chances is other.chances
    assert (one.costs != other.costs).all()


def test_random_state_comes_from_the_trial_unless_given():
    given = problem(smooth_rows(1, d=8), GOALS)
    prices = prices_of(given, 0)
    tree = {"ExtraTreeClassifier": {"max_depth": 4}}
    one, same, other = (dumps(ask(tree, given, prices, seed)) for seed in (0, 0, 1))
    assert one == same != other
    fixed = {"ExtraTreeClassifier": {"max_depth": 4, "random_state": 3}}
    assert dumps(ask(fixed, given, prices, 0)) == dumps(ask(fixed, given, prices, 1))


@pytest.mark.parametrize("name", model_names.CLASSIFIER_MODULES)
def test_fitted_classifiers_equal_scikit_learn_and_can_be_stored(name):
    """Decisions of two classes, and probabilities of two and three classes if there are any."""
    rng = np.random.default_rng(0)
    X = rng.random((90, 3)).round(2)
    weights = rng.random(90) + 0.1
    two = (X[:, 0] + X[:, 1] > 1).astype(int)
    for classes in (two, two + (X[:, 2] > 0.7)):
        model = make_estimator(name, SMALL.get(name, {}), np.random.default_rng(0))
        gives = hasattr(model, "predict_proba")
        if not gives and classes is not two:
            continue
        rows = FitRows(X, ColumnLayout.numbers(3), classes, weights)
        found = fit_estimator(model, rows)
        costs = np.array([1.0, -1.0]) if classes is two else np.array([1.0, -0.5, -1.0])
        answer = CostSensitiveClassifier(found, costs)
        if gives:
            np.testing.assert_allclose(found.probabilities(X), model.predict_proba(X), atol=1e-12)
        if classes is two:
            np.testing.assert_array_equal(answer.decide(X), model.predict(X))
        blob = dumps(answer)
        assert dumps(loads(blob)) == blob
        np.testing.assert_array_equal(loads(blob).decide(X), answer.decide(X))


OBJECTIVES = {
    "LGBMRegressor": ("regression_l1", "huber", "fair", "quantile", "mape"),
    "XGBRegressor": ("reg:absoluteerror", "reg:pseudohubererror"),
}
REGRESSORS = [(name, {}) for name in model_names.REGRESSOR_MODULES]
REGRESSORS += [(name, {"objective": each}) for name, all_ in OBJECTIVES.items() for each in all_]


@pytest.mark.parametrize(("name", "options"), REGRESSORS)
def test_fitted_regressors_equal_their_library_and_can_be_stored(name, options):
    pytest.importorskip(model_names.REGRESSOR_MODULES[name])
    rng = np.random.default_rng(0)
    X, weights = rng.random((90, 3)).round(2), rng.random(90) + 0.1
    y = 5 * X[:, 0] - X[:, 1] + rng.normal(size=90)
    small = {"max_depth": 2} if "Forest" in name or "Trees" in name else {}
    model = make_estimator(name, small | options, np.random.default_rng(0))
    found = fit_estimator(model, FitRows(X, ColumnLayout.numbers(3), y, weights))
    regressor = ModelRegressor(found, (0.0, 4.0))
    rounding = 1e-5 if name == "XGBRegressor" else 1e-12  # it sums 32-bit floats
    np.testing.assert_allclose(regressor.score(X), model.predict(X), atol=rounding)
    np.testing.assert_array_equal(regressor.estimate(X), np.clip(regressor.score(X), 0, 4))
    assert np.isnan(regressor.decide(X)).all()
    blob = dumps(regressor)
    assert dumps(loads(blob)) == blob
    np.testing.assert_array_equal(loads(blob).score(X), regressor.score(X))


def test_histograms_of_regressors_see_categories():
    rng = np.random.default_rng(0)
    levels = rng.integers(6, size=200)
    X, y = np.eye(6)[levels], np.array([3.0, 1, 4, 1, 5, 9])[levels]
    rows = FitRows(X, ColumnLayout(np.array([6])), y, np.ones(200))
    model = make_estimator(
        "HistGradientBoostingRegressor",
        {"max_iter": 1, "learning_rate": 1.0, "max_leaf_nodes": 5, "min_samples_leaf": 1},
        rng,
    )
    found = fit_estimator(model, rows)
    assert found.classes == 1
    np.testing.assert_allclose(found.probabilities(X)[:, 0], y, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["DecisionTreeClassifier", "GaussianNB", "LogisticRegression", "SVC"]
)
def test_sparse_and_dense_features_give_equal_decisions(name):
    given = problem(cells(2), GOALS)
    thin = replace(given, X=sparse.csr_array(given.X))
    prices = prices_of(given, 0)
    one, other = ask(name, given, prices), ask(name, thin, prices)
    np.testing.assert_array_equal(one.decide(given.X), other.decide(thin.X))
    np.testing.assert_array_equal(loads(dumps(other)).decide(thin.X), other.decide(thin.X))


@pytest.mark.parametrize(
    ("option", "code", "loc", "message"),
    [
        (3, "E103", "", "not an oracle"),
        ({"linear": {}, "plugin": {}}, "E103", "", "not an oracle"),
        ({"GaussianNB": 3}, "E103", "", "not an oracle"),
        ({"plugin": {"groups": 3}}, "E103", "plugin.groups", "must be true or false"),
        ("DecisionTree", "E104", "", "no classifier 'DecisionTree'"),
        ({"Linear": {}}, "E104", "Linear", "no classifier 'Linear'"),
        ("KNeighborsClassifier", "E104", "", "no classifier .* that accepts sample weights"),
        ({"linear": {"depth": 3}}, "E101", "linear.depth", "no option 'depth'"),
        ({"plugin": {"proba": 3}}, "E101", "plugin.proba", "no option 'proba'"),
        ({"GaussianNB": {"smooth": 1}}, "E101", "GaussianNB.smooth", "no option 'smooth'"),
        ({"SGDClassifier": {"alpha": "big"}}, "E104", "SGDClassifier.alpha", "'alpha' parameter"),
        (
            {"plugin": {"probabilities": "LinearSVC"}},
            "E104",
            "plugin.probabilities",
            "does not return",
        ),
    ],
)
def test_invalid_oracles_are_reported_at_their_location(option, code, loc, message):
    with pytest.raises(FaultError, match=message) as caught:
        choice.check_oracle(option)
    (fault,) = caught.value.faults
    assert (fault.code, ".".join(map(str, fault.loc))) == (code, loc)


def test_errors_suggest_a_similar_oracle():
    for name in ("DecisionTreeClassifier", "linear"):
        with pytest.raises(FaultError) as caught:
            choice.check_oracle(name.replace("e", "", 1))
        assert f"did you mean '{name}'?" in caught.value.faults[0].help


def test_table_of_classifiers_agrees_with_scikit_learn():
    """Every class whose fit takes sample weights, except those that ignore the features."""
    weighted = {
        name: each
        for name, each in all_estimators("classifier")
        if "sample_weight" in inspect.signature(each.fit).parameters
        and all(
            part.default is not part.empty for part in inspect.signature(each).parameters.values()
        )
    }
    del weighted["DummyClassifier"]
    assert {
        name: model_class(name, "classifier") for name in model_names.CLASSIFIER_MODULES
    } == weighted


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("MultinomialNB", "MultinomialNB cannot be fitted or stored: Negative values"),
        ({"LogisticRegression": {"solver": "newton-cg", "l1_ratio": 1}}, "cannot be fitted"),
        ({"HistGradientBoostingClassifier": {"categorical_features": [9]}}, "cannot be fitted"),
    ],
    ids=str,
)
def test_classifiers_that_reject_the_rows_are_errors_of_the_trial(option, message):
    given = problem(smooth_rows(0), GOALS)  # with negative features
    choice.check_oracle(option)
    with pytest.raises(FaultError, match=message) as caught:
        ask(option, given, prices_of(given, 0))
    assert [fault.code for fault in caught.value.faults] == ["E501"]


@pytest.mark.parametrize("seed", range(3))
def test_mixture_over_full_trees_is_optimal_over_all_rules(seed):
    given = problem(cells(seed), Rules({"p": "positive_rate[g=a] <= 0.9 * positive_rate[g=b]"}))
    rows = oracle_rows(given)
    every = [rows.rates(np.array(p, dtype=float)) for p in product((0, 1), repeat=8)]
    program = RateProgram.of(given)
    expected = best_in_hull(program, RatePoints.classifiers(np.stack(every, axis=1)), 1e-7)
    for option in ("DecisionTreeClassifier", {"plugin": {"probabilities": "ExtraTreeClassifier"}}):
        found = run(Mixture(gap=1e-6, model=option, **BOTH), given)
        assert found.status == "solved"
        assert found.trace[-1]["objective"] == pytest.approx(expected.value, abs=1e-5)
        single = given.rates.rates(found.variants["deterministic"].decide(given.X))
        assert program.excess(single) <= 1e-6


GROUPS = {"plugin": {"groups": True}}


def plug_in(given: Problem):
    rows = plugin.make_oracle_rows(GROUPS, given, RowKinds.by(given.rates))
    return plugin.make_oracle(GROUPS, rows, given.l2, np.random.default_rng(0)), rows


def prices(given: Problem, wanted: dict[str, float]) -> np.ndarray:
    return np.array([wanted.get(str(leaf), 0.0) for leaf in given.rates.leaves])


def halves(n: int = 400) -> Rows:
    """Equally many rows of group a and of group b."""
    rows = smooth_rows(0, n=n)
    return replace(rows, group=np.array(["a", "b"], dtype=object)[np.arange(n) % 2])


def thresholds(answer: GroupThreshold) -> dict[str, float]:
    """Thresholds on probabilities, by the slice of the group."""
    names = [" ".join(np.array(answer.slices)[group]) for group in answer.groups]
    return dict(zip(names, (answer.thresholds + 1) / 2, strict=True))


def test_thresholds_equal_the_value_in_the_protocols():
    """Base rate .3, selection rate .2, a group of half the rows, a multiplier of 2 on the error."""
    given = problem(halves(), Rules({"e": "error <= 0.4"}, KL))
    slope = -0.3 / 0.2 + 0.7 / 0.8
    found, _ = plug_in(given)
    answer = found.answer(prices(given, {"positive_rate[g = a]": slope, "error": 2.0}), None)
    assert thresholds(answer) == pytest.approx({"g = a": 0.1875, "g = b": 0.5})


@pytest.mark.parametrize(("slope", "decided"), [(-0.4, 1.0), (0.4, 0.0)])
def test_groups_get_one_decision_if_errors_have_no_price(slope, decided):
    given = problem(halves(), Rules({"e": "error <= 0.4"}, KL))
    found, _ = plug_in(given)
    answer = found.answer(prices(given, {"positive_rate[g = a]": slope}), None)
    decisions = given.decisions(answer)
    assert set(decisions[given.slices["g = a"]]) == {decided}
    assert set(decisions[given.slices["g = b"]]) == {0.0}


@pytest.mark.parametrize("seed", range(5))
def test_decisions_have_the_least_expected_cost(seed):
    """Checked row by row, with unlabelled rows, three groups and overlapping slices."""
    rows = smooth_rows(seed, n=150)
    rows = replace(rows, label=np.where(np.arange(150) % 7 == 0, np.nan, rows.label))
    rules = Rules({"c": "positive_rate[g=a] <= 0.3", "t": "tpr[g=b] >= 0.5", "f": "fpr <= 0.2"})
    given = problem(rows, rules)
    rng = np.random.default_rng(seed)
    costs = np.abs(rng.normal(size=4))
    wanted = {
        "positive_rate[g = a]": rng.normal(),
        "tpr[g = b]": -costs[1],
        "fpr": costs[2],
        "error": costs[3],
    }
    own_prices = prices(given, wanted)
    found, oracle_rows = plug_in(given)
    answer = found.answer(own_prices, None)
    chance = (answer.scorer.score(given.X) + 1) / 2
    each = given.rates.A.T @ own_prices  # cost of a positive decision
    for group in "abc":
        own = rows.group == group
        known = own & ~np.isnan(rows.label)
        spread = each[own & np.isnan(rows.label)].sum() / known.sum()
        a, b = (each[known & (rows.label == label)].mean() + spread for label in (1, 0))
        assert b > a
        expected = chance[own] * a + (1 - chance[own]) * b
        np.testing.assert_array_equal(given.decisions(answer)[own], expected < 0)
    np.testing.assert_array_equal(
        oracle_rows.decide(answer), answer.decide(oracle_rows.X), err_msg="cached scores"
    )


@pytest.mark.slow
def test_coco_and_mixture_reach_the_best_thresholds_of_groups():
    """The group is a feature, so probabilities are calibrated in each group. Thresholds chosen by
    counting fit the noise of 6000 labels, thresholds on probabilities do not.
    """
    rng, n = np.random.default_rng(3), 6000
    group = np.array(["a", "b"], dtype=object)[rng.integers(2, size=n)]
    X = np.column_stack([rng.normal(size=(n, 3)), group == "a"]).astype(float)
    label = (X @ [1.0, 0.5, 0.5, 2.5] + 0.5 * rng.logistic(size=n) > 1.2).astype(float)
    given = problem(Rows(X, label, group), Rules({"e": "error <= 0.2"}, KL))
    program = RateProgram.of(given)

    def reached(made):
        found = run(made, given)
        assert found.status == "solved"
        main = loads(dumps(found.variants["stochastic"]))
        rates = given.rates.rates(given.decisions(main))
        assert program.excess(rates) <= 1e-6
        return float(program.value(program.objective, rates))

    best = reached(PostShift(**BOTH))
    assert best > 0.01
    assert best - 1e-5 <= reached(make_solver("coco", BOTH, [])) <= 1.05 * best
    assert best - 1e-5 <= reached(Mixture(model=GROUPS, **BOTH)) <= 1.05 * best


def test_rows_of_one_label_need_no_fit():
    rows = halves(40)
    given = problem(replace(rows, label=np.ones(40)), Rules({"c": "positive_rate[g=a] <= 0.5"}))
    found = run(Mixture(model=GROUPS, **BOTH), given)
    assert found.status == "solved"
    rates = given.rates.rates(given.decisions(found.variants["stochastic"]))
    assert rates[given.rates.index()[ERROR_RATE]] == pytest.approx(0.25)


def test_between_two_thresholds_on_one_probability_lie_costs():
    X, y = np.arange(8.0)[:, None], np.arange(8) % 2
    chances = SklearnModel(LogisticRegression().fit(X, y))
    one, other = ProbabilityThreshold(chances, 0.3), CostSensitiveClassifier(chances, ARGMAX_COSTS)
    between = blend(one, other, 0.5)
    assert isinstance(between, CostSensitiveClassifier)
    np.testing.assert_allclose(between.costs, (one.costs + other.costs / np.sqrt(2)) / 2)
