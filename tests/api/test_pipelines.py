import numpy as np
import pandas as pd
import pytest
import sklearn
from applicants import PARITY
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ratecli import (
    RatecliWarning,
    RateConstrainedClassifier,
    SafetyTest,
    rate_score,
    rate_scorer,
    violation_scorer,
)

NUMBERS = ["income", "debt", "savings"]
RATIO = "positive_rate[sex = Female] / positive_rate[sex = Male]"


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def columns():
    return make_column_transformer(
        (StandardScaler(), NUMBERS), (OneHotEncoder(sparse_output=False), ["region"])
    )


def test_grid_search_over_parameters_of_constraints(loans):
    X, y = loans
    model = RateConstrainedClassifier(constraints=PARITY, parameters={"kappa": 0.5})
    grid = {"parameters__kappa": [0.5, 1.0]}
    error = rate_scorer("error", greater_is_better=False)
    scoring = {"error": error, "ratio": rate_scorer(RATIO)}
    search = GridSearchCV(model, grid, scoring=scoring, refit="ratio", cv=2).fit(X, y)
    low, high = search.cv_results_["mean_test_ratio"]
    assert low < high
    assert search.best_params_["parameters__kappa"] == 1.0
    assert (search.cv_results_["mean_test_error"] < 0).all()
    assert rate_score(RATIO, y, search.predict(X), sensitive_features=X) >= 1 - 1e-9


KAPPA = PARITY.replace("kappa", "0.9")
ARRAY_RULE = KAPPA.replace("sex", "sensitive")
BESIDE = {
    "series": (lambda X: X["sex"], KAPPA),
    "frame": (lambda X: X[["sex", "region"]], KAPPA),
    "dict": (lambda X: {"sex": list(X["sex"])}, KAPPA),
    "array": (lambda X: X["sex"].to_numpy(), ARRAY_RULE),
    "series without a name": (lambda X: X["sex"].rename(None), ARRAY_RULE),
}


@pytest.mark.parametrize(
    ("kind", "enabled"), [*((kind, False) for kind in BESIDE), ("series", True)]
)
def test_a_scaler_and_a_classifier_with_a_sensitive_column_beside(loans, kind, enabled):
    (X, y), (beside, rule) = loans, BESIDE[kind]
    with sklearn.config_context(enable_metadata_routing=enabled):
        model, step = RateConstrainedClassifier(constraints=rule), "rateconstrainedclassifier__"
        if enabled:
            model, step = model.set_fit_request(sensitive_features=True), ""
        pipeline = make_pipeline(StandardScaler(), model)
        pipeline.fit(X[NUMBERS], y, **{f"{step}sensitive_features": beside(X)})
        said = pipeline.predict(X[NUMBERS])
    assert rate_score(RATIO, y, said, sensitive_features=X["sex"]) >= 0.9 - 1e-9


def test_an_error_says_how_to_pass_a_column_through_a_pipeline(loans):
    X, y = loans
    model = RateConstrainedClassifier(constraints=KAPPA, solver="post_shift")
    pipeline = make_pipeline(StandardScaler(), model)
    told = r"fit\(\.\.\., (rateconstrainedclassifier__sensitive_features=\{'sex': VALUES\})\)"
    with pytest.raises(ValueError, match=told):
        pipeline.fit(X[NUMBERS], y)
    beside = {"rateconstrainedclassifier__sensitive_features": {"sex": X["sex"]}}
    pipeline.fit(X[NUMBERS], y, **beside)
    told = r"predict\(\.\.\., sensitive_features=\{'sex': VALUES\}\)"
    with pytest.raises(ValueError, match=told):
        pipeline.predict(X[NUMBERS])
    assert len(pipeline.predict(X[NUMBERS], sensitive_features={"sex": X["sex"]})) == len(X)
    with pytest.raises(ValueError, match="help: did you mean 'sex'") as caught:
        RateConstrainedClassifier(constraints="tpr[sexx = Male] >= 0.5").fit(X, y)
    assert "sensitive_features" not in str(caught.value)
    with pytest.raises(ValueError, match=r"set_score_request\(sensitive_features=True\)"):
        rate_scorer(RATIO)(LogisticRegression().fit(X[NUMBERS], y), X[NUMBERS], y)


@pytest.mark.filterwarnings("ignore::ratecli.RatecliWarning")
def test_grid_search_over_parameters_of_the_model(loans):
    X, y = loans
    model = RateConstrainedClassifier(
        constraints=KAPPA, solver="thresholded", estimator=LogisticRegression(), random_state=0
    )
    pipeline = make_pipeline(StandardScaler(), model)
    grid = {"rateconstrainedclassifier__estimator__C": [1e-6, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise")
    search.fit(X[NUMBERS], y, rateconstrainedclassifier__sensitive_features=X["sex"])
    assert search.best_params_ == {"rateconstrainedclassifier__estimator__C": 1.0}
    assert search.best_estimator_[-1].estimator.C == 1.0
    same = model.set_params(estimator=None, solver_options={"model": LogisticRegression()})
    pipeline.fit(X[NUMBERS], y, rateconstrainedclassifier__sensitive_features=X["sex"])
    assert same is pipeline[-1]
    np.testing.assert_array_equal(pipeline.predict(X[NUMBERS]), search.predict(X[NUMBERS]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver_options": {"model": "linear"}}, "the model is given twice"),
        ({"solver": "majorize"}, "'majorize' only fits a model of its own"),
    ],
)
def test_an_estimator_that_has_no_place_is_refused(loans, options, message):
    model = RateConstrainedClassifier(estimator=LogisticRegression(), **options)
    with pytest.raises(ValueError, match=message):
        model.fit(*loans)


@pytest.mark.usefixtures("routing")
def test_sensitive_features_are_routed_through_a_pipeline(loans):
    X, y = loans
    model = RateConstrainedClassifier(constraints=PARITY, parameters={"kappa": 0.5})
    model.set_fit_request(sensitive_features=True)
    pipeline = Pipeline([("columns", columns()), ("model", model)])
    ratio = rate_scorer(RATIO).set_score_request(sensitive_features=True)
    grid = {"model__parameters__kappa": [0.5, 0.9]}
    search = GridSearchCV(pipeline, grid, scoring=ratio, cv=2, error_score="raise")
    search.fit(X.drop(columns="sex"), y, sensitive_features=X[["sex"]])
    assert search.best_params_ == {"model__parameters__kappa": 0.9}
    said = search.predict(X.drop(columns="sex"))
    assert rate_score(RATIO, y, said, sensitive_features=X["sex"]) >= 0.9 - 1e-9


def test_scorers_of_dataframes_need_no_routing(loans):
    X, y = loans
    scorers = {
        "ratio": rate_scorer(RATIO),
        "parity": violation_scorer(PARITY, parameters={"kappa": 0.8}),
        "accuracy": rate_scorer("accuracy"),
        "plain": "accuracy",
    }
    pipeline = make_pipeline(columns(), LogisticRegression())
    found = cross_validate(pipeline, X, y, scoring=scorers, cv=3)
    assert found["test_accuracy"] == pytest.approx(found["test_plain"])
    assert (found["test_ratio"] < 0.8).all()
    assert (found["test_parity"] < 0).all()


@pytest.mark.usefixtures("routing")
def test_a_safety_test_routes_metadata(loans):
    X, y = loans
    model = RateConstrainedClassifier(constraints=PARITY, parameters={"kappa": 1.0})
    asks = clone(model).set_fit_request(sensitive_features=True)
    bare, sex = X.drop(columns="sex"), X[["sex"]]
    inner = Pipeline([("columns", columns()), ("model", asks)])
    test = SafetyTest(inner, PARITY, parameters={"kappa": 0.6}, random_state=0)
    test.fit(bare, y, sensitive_features=sex)
    assert test.passed_
    assert set(test.predict(bare)) == {"no", "yes"}
    weighs = clone(asks).set_fit_request(sample_weight=True)
    test.set_params(estimator=weighs)
    found = test.fit(bare, y, sensitive_features=sex, sample_weight=np.full(len(X), 2.0))
    twice = found.estimator_.predict(bare)
    once = test.fit(bare, y, sensitive_features=sex).estimator_.predict(bare)
    assert (twice == once).mean() > 0.95


@pytest.mark.parametrize("enabled", [False, True])
def test_group_thresholds_receive_sensitive_features(enabled, loans):
    X, y = loans
    bare, sex = X.drop(columns="sex"), X[["sex"]]
    with sklearn.config_context(enable_metadata_routing=enabled):
        model = RateConstrainedClassifier(
            constraints=PARITY, parameters={"kappa": 1.0}, solver="post_shift"
        )
        if enabled:
            asked = {"sensitive_features": True}
            model = model.set_fit_request(**asked).set_predict_request(**asked)
        test = SafetyTest(model, PARITY, parameters={"kappa": 0.6}, random_state=0)
        test.fit(bare, y, sensitive_features=sex)
        assert test.passed_
        ratio = rate_scorer(RATIO)(test.estimator_, bare, y, sensitive_features=sex)
        said = test.predict(bare, sensitive_features=sex)
        assert ratio == rate_score(RATIO, y, said, sensitive_features=sex) > 0.8


@pytest.mark.filterwarnings("ignore::ratecli.RatecliWarning")
def test_a_fold_without_solution_fails(loans):
    X, y = loans
    model = RateConstrainedClassifier(constraints="error <= 0.01", solver="thresholded")
    with pytest.raises(ValueError, match="All the 2 fits failed"):
        cross_validate(model, X, y, cv=2)


def test_groups_that_are_left_out_are_a_warning():
    group, y = np.repeat(["a", "b", "c"], [100, 100, 5]), np.tile([0, 1], 103)[:205]
    parity = np.arange(205) % 4 < 2
    options = {"sensitive_features": pd.DataFrame({"g": group, "h": np.where(parity, "x", "z")})}
    with pytest.warns(RatecliWarning, match=r"leaves out groups .*: g = c, h = x \(3\)"):
        rate_score("max_gap(tpr, by=[g, h])", y, y, **options)
    model = RateConstrainedClassifier(constraints="max_gap(tpr, by=[g, h]) <= 0.5")
    with pytest.warns(RatecliWarning, match=r"leaves out groups .*: g = c, h = x \(3\)"):
        model.fit(y[:, None] + 0.0, y, **options)


def test_rate_score():
    y, said = [1, 1, 0, 1, 0], [1, 0, 0, 1, 1]

    def score(rate, **options):
        sex = {"sex": ["f", "f", "f", "m", "m"]}
        return rate_score(rate, y, said, sensitive_features=sex, **options)

    assert score("positive_rate[sex = f]") == pytest.approx(1 / 3)
    assert score("tpr[women]", groups={"women": "sex = f"}) == 0.5
    assert score("tpr", pos_label=0) == 0.5
    assert score("error", sample_weight=[0, 1, 0, 0, 3]) == 1.0
    assert score("error + c", parameters={"c": 0.5}) == pytest.approx(0.9)
    assert np.isnan(rate_score("precision", [0, 1], [0, 0]))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("positive_rate[sx = f]", "did you mean 'sex'"),
        ("positive_rate[sex = g]", "'g' is not a value of 'sex'"),
        ("churn", "needs a deployed model"),
        ("error <= 1", "a value is expected"),
        ("error - of(unconstrained, error)", "refers to another algorithm.*\n.*subtract"),
        ("accuraci", "rate:1:1"),
    ],
)
def test_invalid_rates_are_value_errors(text, told):
    with pytest.raises(ValueError, match=told):
        rate_score(text, [0, 1], [0, 1], sensitive_features={"sex": ["f", "m"]})
