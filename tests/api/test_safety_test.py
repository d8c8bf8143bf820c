import numpy as np
import pandas as pd
import pytest
from applicants import PARITY, people
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ratecli import (
    NoSolutionFoundError,
    RatecliWarning,
    RateConstrainedClassifier,
    SafetyTest,
    rate_scorer,
)

NUMBERS = ["income", "debt", "savings"]


class Fixed(ClassifierMixin, BaseEstimator):
    """Says what the first column says."""

    def fit(self, X, y):  # noqa: ARG002
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.classes_[(X[:, 0] > 0).astype(int)]


def test_the_bound_equals_clopper_pearson(loans):
    X, y = loans
    model = make_pipeline(StandardScaler(), LogisticRegression())
    options = {"bound": "clopper_pearson", "fraction": 0.5, "random_state": 2}
    test = SafetyTest(model, "error <= 0.3", **options).fit(X[NUMBERS], y)
    record = test.certificates_[0]
    wrong = round((record["estimate"] + 0.3) * 300)
    upper = stats.beta.ppf(0.95, wrong + 1, 300 - wrong)
    assert test.bounds_["error <= 0.3"] == pytest.approx(upper - 0.3)
    assert test.passed_
    assert test.score(X[NUMBERS], y) > 0.7
    assert test.predict_proba(X[NUMBERS]).shape == (600, 2)


def test_thresholds_on_boosted_trees_are_certified_by_rows_that_nothing_else_uses():
    pytest.importorskip("lightgbm")
    X, y = people(3000)
    model = {"lightgbm": {"n_estimators": 10}}
    trained = RateConstrainedClassifier(
        constraints=PARITY.replace("kappa", "0.3"),
        solver="post_shift",
        solver_options={"model": model, "tune": {"num_leaves": [4, 8]}},
        safety={"delta": 0.2, "fraction": 0.4, "order": "positional", "aim": 0.9},
        variant="deterministic",
        random_state=0,
    )
    found = trained.fit(X, y)
    (record,) = (each for each in found.certificates_ if each["variant"] == "deterministic")
    held = X[1800:]
    women, men = ((found.predict(held) == "yes")[held.sex == sex].mean()
                  for sex in ("Female", "Male"))  # fmt: skip
    assert record["passed"]
    assert record["estimate"] == pytest.approx(0.3 * men - women)
    assert record["estimate"] < record["upper"] <= 0
    # other safety rows, here each one twice and the others not at all, give the same model
    rows = np.r_[:1800, 1800:2400, 1800:2400]
    again = clone(trained).fit(X.iloc[rows], y.iloc[rows])
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    assert again.bounds_ != found.bounds_


def test_a_model_that_fails_cannot_predict(loans):
    X, y = loans
    rule = {"fair": "positive_rate[sex = Female] >= 0.9 * positive_rate[sex = Male]"}
    test = SafetyTest(RateConstrainedClassifier(), rule, random_state=0).fit(X, y)
    assert not test.passed_
    assert test.bounds_["fair"] > 0
    assert not hasattr(test, "estimator_")
    assert "'fair'" in test.explanation_
    for ask in (test.predict, test.predict_proba, test.decision_function):
        with pytest.raises(NoSolutionFoundError, match="did not pass its safety test"):
            ask(X)
    with pytest.warns(UserWarning, match="did not pass"):
        scores = cross_val_score(clone(test), X, y, cv=2)
    assert np.isnan(scores).all()
    test.set_params(constraints="error <= 0.5").fit(X, y)
    assert test.passed_
    test.set_params(constraints="error <= 0.01").fit(X, y)  # removes the model
    with pytest.raises(NoSolutionFoundError):
        test.predict(X)
    trained = RateConstrainedClassifier(constraints=rule["fair"].replace("0.9", "1.2"))
    fair = SafetyTest(trained, rule, fraction=0.6, random_state=0).fit(*people(1500, 1))
    assert fair.passed_


def test_a_failed_fit_leaves_no_verdict(loans):
    X, y = loans
    test = SafetyTest(LogisticRegression(), "error <= 0.5", random_state=0).fit(X[NUMBERS], y)
    with pytest.raises(ValueError, match="'eror'"):
        test.set_params(constraints="eror <= 0.5").fit(X[NUMBERS], np.where(y == "yes", 1, 0))
    with pytest.raises(NotFittedError):
        test.predict(X[NUMBERS])


def test_scorers_pass_groups_through_the_test(loans):
    X, y = loans
    options = {"solver": "post_shift", "random_state": 0}
    trained = RateConstrainedClassifier("error", "positive_rate[sex = Male] >= 0.2", **options)
    test = SafetyTest(trained, "error <= 0.6", random_state=0)
    test.fit(X[NUMBERS], y, sensitive_features=X["sex"])
    decided = test.predict(X[NUMBERS], sensitive_features=X["sex"])
    scorer = rate_scorer("error", greater_is_better=False)
    value = scorer(test, X[NUMBERS], y, sensitive_features=X["sex"])
    assert value == pytest.approx(-np.mean(decided != y))
    with pytest.raises(ValueError, match="y contains 'maybe', but the labels are"):
        scorer(test, X[NUMBERS], np.where(y == "yes", y, "maybe"), sensitive_features=X["sex"])


def test_a_violating_model_passes_at_most_delta_of_the_time():
    """The classifier's error is 0.25, just above what the rule allows."""
    delta, runs, rng = 0.2, 120, np.random.default_rng(7)
    passed = 0
    for seed in range(runs):
        wrong = rng.random(60) < 0.25
        y = rng.integers(2, size=60)
        X = np.where(wrong, 1 - y, y)[:, None] * 2.0 - 1
        test = SafetyTest(Fixed(), "error <= 0.249", delta=delta, random_state=seed)
        passed += test.fit(X, y).passed_
    # of the chance that more pass than this where the promise is kept there is 0.1 %
    assert passed <= stats.binom.ppf(0.999, runs, delta)
    assert passed > 0


def test_tested_rows_are_held_out(loans):
    X, y = loans

    class Seen(Fixed):
        def fit(self, X, y):
            Seen.rows = X[:, 0]
            return super().fit(X, y)

    numbered = np.arange(1.0, 601.0)[:, None]
    test = SafetyTest(Seen(), "positive_rate >= 0.5", fraction=0.25, random_state=0)
    test.fit(numbered, y)
    assert len(np.unique(Seen.rows)) == 450
    stratified = clone(test).set_params(constraints="tpr[sex = Male] >= 0.5", stratify=["sex"])
    stratified.fit(numbered, y, sensitive_features=X["sex"])
    men = (X["sex"] == "Male").to_numpy()
    aside = ~np.isin(numbered[:, 0], Seen.rows)
    assert aside[men].mean() == pytest.approx(0.25, abs=1 / men.sum())
    assert stratified.passed_


def test_churn_against_a_deployed_model(loans):
    X, y = loans
    X = X[NUMBERS].assign(now=(X["income"] > 46).astype(int))
    model = RateConstrainedClassifier(constraints="churn <= 5%", deployed="now", encode=True)
    test = SafetyTest(model, "churn <= 15%", deployed="now", random_state=0).fit(X, y)
    assert test.passed_
    changed = (test.predict(X) == "yes") != (X["now"] == 1)
    assert changed.mean() <= 0.15


def test_no_constraints_is_a_warning(loans):
    X, y = loans
    with pytest.warns(RatecliWarning, match="nothing is tested"):
        test = SafetyTest(RateConstrainedClassifier()).fit(X, y)
    plain = RateConstrainedClassifier().fit(X, y)
    assert (test.predict(X) == plain.predict(X)).all()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"delta": 0}, "'delta' must be greater than 0"),
        ({"delta": {"unfair": 0.1}}, "unfair"),
        ({"fraction": 0.0001}, "safety part would be empty"),
        ({"stratify": ["sexx"]}, "did you mean 'sex'"),
        ({"constraints": "roc_auc >= 0.8"}, "no confidence bound is known for 'roc_auc'"),
        ({"constraints": "error <= of(unconstrained, error)"}, "not fitted here"),
        ({"constraints": "error <= lots"}, "constraints\\[0\\]:1:10"),
    ],
)
def test_invalid_arguments_are_value_errors(options, told, loans):
    X, y = loans
    given = {"constraints": {"small": "error <= 0.5"}} | options
    with pytest.raises(ValueError, match=told):
        SafetyTest(RateConstrainedClassifier(), **given).fit(X, y)


def test_sample_weight_needs_metadata_routing(loans):
    X, y = loans
    test = SafetyTest(RateConstrainedClassifier(), "error <= 0.5")
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        test.fit(X, y, sample_weight=np.ones(600))


def test_a_constraint_may_compare_with_the_deployed_model():
    """Both are measured on the held-out rows, row by row: the difference of a row is -1, 0 or 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    y = (x + 0.5 * rng.normal(size=4000) > 0).astype(int)
    X = pd.DataFrame({"x": x, "old": np.where(rng.random(4000) < 0.3, 1 - y, y)})
    rule = "error <= of(deployed, error) - 0.02"
    options = {"deployed": "old", "bound": "hoeffding", "delta": 0.1, "fraction": 0.5}
    test = SafetyTest(LogisticRegression(), rule, **options, random_state=0).fit(X, y)
    (record,) = test.certificates_
    assert test.passed_
    assert record["upper"] - record["estimate"] == pytest.approx(2 * np.sqrt(np.log(10) / 4000))
