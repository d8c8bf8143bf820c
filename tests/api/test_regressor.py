import numpy as np
import pytest
from applicants import people
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import ratecli
from ratecli import RatecliWarning, RateConstrainedRegressor
from ratecli.models.storage import dumps

NUMBERS = ["income", "savings", "age"]
GAP = "abs(mean_error[sex = Female] - mean_error[sex = Male]) <= {}"


@pytest.fixture(scope="module")
def debts():
    """Features, a group, and amounts of debt that are larger for men."""
    X, _ = people(600)
    return X[NUMBERS], X["sex"], X["debt"] + 20 * (X["sex"] == "Male") + 0.2 * X["income"]


def gap(model, X, sex, y):
    error = model.predict(X) - y
    return abs(error[sex == "Female"].mean() - error[sex == "Male"].mean())


def test_errors_of_groups_are_bounded(debts):
    X, sex, y = debts
    free = RateConstrainedRegressor().fit(X, y)
    bound = RateConstrainedRegressor(constraints=GAP.format(14)).fit(X, y, sensitive_features=sex)
    assert gap(free, X, sex, y) > 15
    assert gap(bound, X, sex, y) == pytest.approx(14, abs=1e-5)
    assert (bound.status_, bound.violations_[GAP.format(14)] <= 0) == ("ok", True)
    assert bound.objective_ == pytest.approx(((bound.predict(X) - y) ** 2).mean())
    assert free.objective_ < bound.objective_
    assert bound.multipliers_[GAP.format(14)] > 0
    assert bound.score(X, y) < free.score(X, y) < 1


def test_pipelines_sparse_matrices_and_dropped_columns_give_the_same(debts):
    X, sex, y = debts
    scaled = StandardScaler().fit_transform(X)
    model = RateConstrainedRegressor(constraints=GAP.format(14))
    plain = clone(model).fit(scaled, y, sensitive_features=sex)
    pipeline = make_pipeline(StandardScaler(), clone(model))
    pipeline.fit(X, y, rateconstrainedregressor__sensitive_features=sex)
    np.testing.assert_allclose(pipeline.predict(X), plain.predict(scaled))
    rows = sparse.csc_matrix(scaled)
    thin = clone(model).fit(rows, y, sensitive_features=sex)
    np.testing.assert_allclose(thin.predict(rows), plain.predict(scaled))
    dropped = clone(model).set_params(drop=["sex"], encode=True)
    dropped.fit(X.assign(sex=sex), y)
    np.testing.assert_allclose(dropped.predict(X), plain.predict(scaled))


def test_the_model_equals_that_of_a_run(debts, tmp_path, monkeypatch):
    X, sex, y = debts
    monkeypatch.chdir(tmp_path)
    X.assign(sex=sex, y=y).to_csv("rows.csv", index=False)
    entry = {"path": "rows.csv", "label": "y", "target": "number", "split": {"train": 1},
             "drop": ["sex"]}  # fmt: skip
    results = ratecli.run(
        {
            "name": "same",
            "datasets": {"rows": entry},
            "constraints": {"c": GAP.format(14)},
            "algorithms": ["least_squares"],
        }
    )
    model = RateConstrainedRegressor(constraints={"c": GAP.format(14)}, drop=["sex"], encode=True)
    model.fit(X.assign(sex=sex), y)
    found = results.model("least_squares")
    assert dumps(model.regressor_) == dumps(found.classifier)
    np.testing.assert_array_equal(found.answers(X)["estimate"], model.predict(X))


def test_grid_search_and_weights(debts):
    X, _, y = debts
    search = GridSearchCV(RateConstrainedRegressor(), {"l2": [1e-4, 1e4]}, cv=2).fit(X, y)
    assert search.best_params_ == {"l2": 1e-4}
    heavy = RateConstrainedRegressor().fit(X, y, np.where(y > y.median(), 1e3, 1.0))
    assert heavy.predict(X).mean() > search.predict(X).mean() + 1


def test_a_safety_test_certifies_errors(debts):
    X, sex, y = debts
    model = RateConstrainedRegressor(
        constraints="mean_error[sex = Male] <= 30",
        solver="seldonian",
        safety={"delta": 0.1},
        label_range=(0, 200),
        random_state=0,
    ).fit(X, y, sensitive_features=sex)
    assert max(model.bounds_.values()) <= 0
    assert model.predict(X).min() >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": "max_gap(mse, by=sex) <= 1"}, "it subtracts 'mse', which is not convex"),
        ({"constraints": "positive_rate <= 0.5"}, "rates of numbers: mean_error and mse"),
        ({"solver": "mixture"}, "needs labels of two classes, not numbers"),
        ({"solver": "unconstrained"}, 'unconstrained: {"loss": "squared"}, least_squares'),
        ({"solver": "seldonian"}, "trains for a safety test"),
        ({"label_range": (0, 50)}, "y has values outside of label_range, 0 to 50"),
    ],
)
def test_invalid_arguments_are_value_errors(debts, options, message):
    X, sex, y = debts
    with pytest.raises(ValueError, match=message):
        RateConstrainedRegressor(**options).fit(X, y, sensitive_features=sex)


def test_labels_are_limited_in_size(debts):
    """RuntimeWarnings are errors in tests."""
    X, _, y = debts
    scale = 1e99 / y.max()
    assert np.isfinite(RateConstrainedRegressor().fit(X, y * scale).objective_)
    with pytest.raises(ValueError, match=r"must be at most 1e\+100 in size"):
        RateConstrainedRegressor().fit(X, y * scale * 100)


def test_a_limit_that_costs_more_than_the_model_explains_is_a_warning(debts):
    X, sex, y = debts
    with pytest.warns(
        RatecliWarning, match="no better than a constant prediction: objective 306.1"
    ):
        RateConstrainedRegressor(constraints=GAP.format(5)).fit(X, y, sensitive_features=sex)


def test_a_violated_constraint_is_a_warning(debts):
    X, _, y = debts
    with pytest.warns(RatecliWarning, match="the regressor violates 'mse <= 1' by"):
        model = RateConstrainedRegressor(constraints="mse <= 1").fit(X, y)
    assert model.status_ == "infeasible"


def test_any_regressor_is_a_base_model_and_its_parameters_can_be_searched(debts):
    X, sex, y = debts
    tree = DecisionTreeRegressor(random_state=0)
    options = {"scores": "in_sample"}
    model = RateConstrainedRegressor(
        constraints=GAP.format(14), estimator=tree, solver_options=options, random_state=0
    )
    search = GridSearchCV(model, {"estimator__max_depth": [1, 4]}, cv=2)
    with pytest.warns(RatecliWarning, match="no better than a constant prediction"):  # depth 1
        search.fit(X, y, sensitive_features=sex)
    assert search.best_params_ == {"estimator__max_depth": 4}
    assert gap(search.best_estimator_, X, sex, y) <= 14
    assert not hasattr(tree, "tree_")
    with pytest.raises(ValueError, match="it is not a regressor class"):
        clone(model).set_params(estimator=LogisticRegression()).fit(X, y, sensitive_features=sex)
