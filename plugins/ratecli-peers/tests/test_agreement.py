"""Decisions are those of the packages' own code, run by hand on the same rows."""

import warnings
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pandas as pd
import pytest
from oracles.goals import Rules, problem, run, smooth_rows
from ratecli_peers.thresholds import NO_THRESHOLDS
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from ratecli.experiment.entries import make_solver
from ratecli.models.storage import dumps, loads

ROWS = smooth_rows(3)
GROUP = np.unique(ROWS.group, return_inverse=True)[1]
LABEL = ROWS.label.astype(int)
PARITY = "max_gap(positive_rate, by=g) <= 0.05"
RECALL = "max_gap(tpr, by=g) <= 0.05"
ODDS = "equalized_odds_difference(by=g) <= 0.05"
RATIO = "min_ratio(positive_rate, by=g) >= 0.8"
TREE = {"max_depth": 3, "random_state": 0}


@pytest.fixture(autouse=True)
def _their_warnings():
    """Ignore what the packages warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def decisions(name, rule, rows=ROWS, **options):
    """Return the chances of positive decisions on the rows, of the solution after it was stored."""
    given = problem(rows, Rules({"rule": rule} if isinstance(rule, str) else rule))
    solution = run(make_solver(name, options, ["rule"], idle=True), given)
    found = given.decisions(loads(dumps(solution.main)))
    value, violation = given.value_of(found), given.worst_violation(given.rates.rates(found))
    assert solution.trace[-1]["objective"] == pytest.approx(value)
    assert solution.trace[-1]["violation"] == pytest.approx(violation, abs=1e-12)
    assert (solution.status == "solved") == (violation <= 5e-7)
    return found


def plain(**options):
    """Return the scores and the model of the algorithm `unconstrained`."""
    given = problem(ROWS, Rules({}))
    model = run(make_solver("unconstrained", options or {"loss": "logistic"}, []), given).main
    return model.score(ROWS.X), model


def learner():
    return LogisticRegression(solver="liblinear", C=1.0)


class Scores(LogisticRegression):
    """An estimator that is fitted: its prediction is its only feature."""

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        return X[:, 0]


@pytest.mark.parametrize(
    ("rule", "constraint", "tol"),
    [
        (PARITY, "demographic_parity", 0.05),
        (RECALL, "true_positive_rate_parity", 0.05),
        (ODDS, "equalized_odds", None),
    ],
)
def test_threshold_optimizer(rule, constraint, tol):
    post = pytest.importorskip("fairlearn.postprocessing")
    scores, _ = plain()
    made = post.ThresholdOptimizer(
        estimator=Scores(), constraints=constraint, prefit=True, predict_method="predict", tol=tol
    ).fit(scores[:, None], LABEL, sensitive_features=GROUP)
    expected = made._pmf_predict(scores[:, None], sensitive_features=GROUP)[:, 1]
    np.testing.assert_allclose(decisions("threshold_optimizer", rule), expected, atol=1e-9)


def test_a_random_choice_with_one_member_has_the_same_main_variant():
    """Reports count the trials of a main variant together."""
    pytest.importorskip("error_parity")
    rows = replace(ROWS, label=(ROWS.X[:, 0] > 0).astype(float))
    solver = make_solver("error_parity", {"scores": "in_sample"}, ["rule"])
    rules = (Rules({"rule": f"max_gap(positive_rate, by=g) <= {each}"}) for each in (0.05, 0.5))
    found = [run(solver, problem(rows, each)) for each in rules]
    assert [len(each.main.members) > 1 for each in found] == [True, False]
    assert [[*each.variants] for each in found] == [["stochastic"], ["stochastic"]]


def test_a_ratio_is_the_largest_difference_that_keeps_it():
    pytest.importorskip("fairlearn")
    found = decisions("threshold_optimizer", RATIO, steps=8)
    rates = [found[g == GROUP].mean() for g in range(3)]
    assert min(rates) / max(rates) == pytest.approx(0.82, abs=0.02)


@pytest.mark.parametrize(
    ("rule", "moment", "bound"),
    [
        (PARITY, "DemographicParity", {"difference_bound": 0.05}),
        (RECALL, "TruePositiveRateParity", {"difference_bound": 0.05}),
        (RATIO, "DemographicParity", {"ratio_bound": 0.8}),
        (ODDS, "EqualizedOdds", {"difference_bound": 0.05}),
    ],
)
def test_grid_search(rule, moment, bound):
    reductions = pytest.importorskip("fairlearn.reductions")
    search = reductions.GridSearch(learner(), getattr(reductions, moment)(**bound), grid_size=20)
    search.fit(ROWS.X, LABEL, sensitive_features=GROUP)
    options = {"grid_size": 20, "selection_rule": "tradeoff_optimization"}
    np.testing.assert_array_equal(decisions("grid_search", rule, **options), search.predict(ROWS.X))
    given = problem(ROWS, Rules({"rule": rule}))
    chosen = decisions("grid_search", rule, grid_size=20)
    every = [each.predict(ROWS.X).astype(float) for each in search.predictors_]
    keys = [(given.worst_violation(given.rates.rates(p)), given.value_of(p)) for p in every]
    assert (given.worst_violation(given.rates.rates(chosen)), given.value_of(chosen)) == min(keys)


@pytest.mark.parametrize(
    ("alpha", "model", "estimator"),
    [
        (1.0, "linear", learner()),
        (0.5, "linear", learner()),
        (1.0, {"DecisionTreeClassifier": TREE}, DecisionTreeClassifier(**TREE)),
    ],
)
def test_correlation_remover(alpha, model, estimator):
    pre = pytest.importorskip("fairlearn.preprocessing")
    d = ROWS.X.shape[1]
    table = np.hstack([ROWS.X, np.eye(3)[GROUP]])
    remover = pre.CorrelationRemover(sensitive_feature_ids=[d, d + 1, d + 2], alpha=alpha)
    remaining = remover.fit_transform(table)
    expected = estimator.fit(remaining, LABEL).predict(remaining)
    found = decisions("correlation_remover", PARITY, alpha=alpha, model=model)
    np.testing.assert_array_equal(found, expected)


def probabilities(scores, model):
    """Return the chances (n, 2) of labels, given the score of a linear model or of trees."""
    chance = 1 / (1 + np.exp(-scores)) if hasattr(model, "bias") else scores + 0.5
    return np.column_stack([1 - chance, chance])


@pytest.mark.parametrize(
    ("rule", "metric", "value", "more"),
    [
        (RATIO, "pos_pred_rate.min_ratio", 0.8, []),
        (RECALL, "recall.max_diff", 0.05, []),
        ("min(tpr, by=g) >= 0.8", "recall.min", 0.8, []),
        (ODDS, "equalized_odds_max", 0.05, []),
        ({"rule": RATIO, "r": "min(tpr, by=g) >= 0.7"}, "pos_pred_rate.min_ratio", 0.8,
         [("recall.min", 0.7)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"model": {"DecisionTreeClassifier": TREE}}])
def test_oxonfair(rule, metric, value, more, options):
    oxonfair = pytest.importorskip("oxonfair")

    def metric_of(name):
        return attrgetter(name)(oxonfair.group_metrics)

    data = {"data": probabilities(*plain(**options)), "target": LABEL, "groups": GROUP}
    made = oxonfair.FairPredictor(None, data)
    others = [(metric_of(name), bound) for name, bound in more]
    made.fit(
        oxonfair.group_metrics.accuracy, metric_of(metric), value, additional_constraints=others
    )
    found = decisions("oxonfair", rule, **options, scores="in_sample")
    np.testing.assert_array_equal(found, made.predict(data))


def test_oxonfair_has_no_solution_if_no_point_of_its_grid_keeps_all_limits():
    pytest.importorskip("oxonfair")
    rules = {"p": "min_ratio(positive_rate, by=g) >= 0.9999", "t": "max_gap(tpr, by=g) <= 0.0001",
             "r": "min(tpr, by=g) >= 0.5", "e": "max_gap(error, by=g) <= 0.0001"}  # fmt: skip
    solver = make_solver("oxonfair", {"scores": "in_sample"}, ["rule"])
    found = run(solver, problem(ROWS, Rules(rules)))
    assert (found.status, found.reason) == ("no_solution_found", NO_THRESHOLDS)


@pytest.mark.parametrize("threshold", [0.0, 0.36, 0.4])
def test_oxonfair_with_inferred_groups(threshold):
    oxonfair = pytest.importorskip("oxonfair")
    groups = LogisticRegression(C=1.0).fit(ROWS.X, GROUP)
    chances = probabilities(*plain())
    data = {"data": np.hstack([ROWS.X, chances]), "target": LABEL, "groups": GROUP}
    made = oxonfair.FairPredictor(
        lambda X: X[:, -2:].copy(),
        data,
        inferred_groups=lambda X: groups.predict_proba(X[:, :-2]),
        threshold=threshold,
    )
    made.fit(oxonfair.group_metrics.accuracy, oxonfair.group_metrics.recall.max_diff, 0.05)
    found = decisions("oxonfair", RECALL, groups="inferred", threshold=threshold)
    np.testing.assert_array_equal(found, made.predict(data))


@pytest.mark.parametrize(
    ("rule", "constraint"),
    [
        (PARITY, "demographic_parity"),
        (RECALL, "true_positive_rate_parity"),
        (ODDS, "equalized_odds"),
    ],
)
def test_error_parity(rule, constraint):
    """Its own decisions are random: compare the rates that it says they have."""
    package = pytest.importorskip("error_parity")
    scores, _ = plain()
    made = package.RelaxedThresholdOptimizer(
        predictor=lambda X: X[:, 0], constraint=constraint, tolerance=0.05
    ).fit(scores[:, None], LABEL, group=GROUP)
    chance = decisions("error_parity", rule)
    rates = [[chance[(g == GROUP) & (y == LABEL)].mean() for y in (0, 1)] for g in range(3)]
    np.testing.assert_allclose(rates, np.array(made.groupwise_roc_points), atol=1e-4)


TWO = (GROUP == 0).astype(int)
TWO_GROUPS = replace(ROWS, group=np.where(TWO == 1, "a", "b").astype(object))


def by_group(chances):
    """Return chances and labels as AIF360 takes them; the group `a` is the first."""
    index = pd.Index(1 - TWO, name="group")
    return pd.DataFrame(chances, index=index), pd.Series(LABEL, index=index)


@pytest.mark.parametrize(
    ("model", "estimator"),
    [
        ("linear", learner()),
        ({"LogisticRegression": {"C": 0.1}}, LogisticRegression(C=0.1)),
        ({"DecisionTreeClassifier": TREE}, DecisionTreeClassifier(**TREE)),
    ],
)
def test_reweighing(model, estimator):
    package = pytest.importorskip("aif360.sklearn.preprocessing")
    _, weights = package.Reweighing(prot_attr=GROUP).fit_transform(ROWS.X, LABEL)
    expected = estimator.fit(ROWS.X, LABEL, sample_weight=weights).predict(ROWS.X)
    np.testing.assert_array_equal(decisions("reweighing", PARITY, model=model), expected)


def test_sparse_features_may_have_64_bit_indices():
    pytest.importorskip("aif360.sklearn.preprocessing")
    X = sparse.csr_array(ROWS.X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    found = decisions("reweighing", PARITY, rows=replace(ROWS, X=X))
    np.testing.assert_array_equal(found, decisions("reweighing", PARITY))


@pytest.mark.parametrize("cost", ["fpr", "fnr", "weighted"])
def test_calibrated_equalized_odds(cost):
    package = pytest.importorskip("aif360.sklearn.postprocessing")
    chances, label = by_group(probabilities(*plain()))
    made = package.CalibratedEqualizedOdds("group", cost_constraint=cost, random_state=0)
    made.fit(chances, label)
    repeated = np.mean(
        [made.set_params(random_state=k).predict(chances) for k in range(400)], axis=0
    )
    found = decisions("calibrated_equalized_odds", PARITY, rows=TWO_GROUPS, cost_constraint=cost)
    np.testing.assert_allclose(found, repeated, atol=0.12)


@pytest.mark.parametrize(
    ("rule", "scoring"),
    [
        ("max_gap(positive_rate, by=g) <= 0.1", "statistical_parity"),
        ("min_ratio(positive_rate, by=g) >= 0.8", "disparate_impact"),
        ("max_gap(tpr, by=g) <= 0.1", "equal_opportunity"),
        ("equalized_odds_difference(by=g) <= 0.1", "average_odds"),
    ],
)
@pytest.mark.parametrize("metric", ["balanced_accuracy", "accuracy"])
def test_reject_option(rule, scoring, metric):
    package = pytest.importorskip("aif360.sklearn.postprocessing")
    chances, label = by_group(probabilities(*plain()))
    privileged = int(label.groupby(level=0).mean().to_numpy().argmax())
    made = package.RejectOptionClassifierCV("group", scoring=scoring)
    made.fit(chances, label, priv_group=privileged)
    if metric == "accuracy":
        scores = {**made.scoring, "bal_acc": "accuracy"}
        made = package.RejectOptionClassifierCV("group", scoring=scores, refit=made.refit)
        made.fit(chances, label, priv_group=privileged)
    found = decisions("reject_option", rule, rows=TWO_GROUPS, metric=metric)
    np.testing.assert_array_equal(found, made.predict(chances))
