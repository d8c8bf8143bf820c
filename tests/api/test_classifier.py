import itertools
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from applicants import PARITY, people
from entries import generate_loans
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from thinned import one_in

import ratecli
from ratecli import (
    BalancedFilter,
    NoSolutionFoundError,
    RatecliWarning,
    RateConstrainedClassifier,
    SafetyTest,
    rate_score,
    rate_scorer,
)
from ratecli.models.storage import dumps
from ratecli.solvers.oracles.choice import named_estimators
from ratecli.solvers.oracles.estimators import make_estimator

RULE = PARITY.replace("kappa", "0.9")
NUMBERS = ["income", "debt", "savings"]


def ratio(said, X):
    rates = (said == "yes").groupby(X["sex"]).mean()
    return rates["Female"] / rates["Male"]


class Stump(ClassifierMixin, BaseEstimator):
    """A user's classifier, which needs a parameter and cannot be stored."""

    def __init__(self, depth, random_state=None):
        self.depth, self.random_state = depth, random_state

    def fit(self, X, y, sample_weight=None):
        self.tree_ = DecisionTreeClassifier(max_depth=self.depth, random_state=self.random_state)
        self.tree_.fit(X, y, sample_weight)
        self.classes_, self.n_features_in_ = self.tree_.classes_, X.shape[1]
        return self

    def predict_proba(self, X):
        return self.tree_.predict_proba(X)


def violations(loans, **options):
    model = RateConstrainedClassifier(
        constraints=PARITY.replace("kappa", "0.8"), random_state=0, **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RatecliWarning)
        return list(model.fit(*loans).violations_.values())


BOOSTER = HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=4)
TEXT = {"HistGradientBoostingClassifier": {"max_iter": 5, "max_leaf_nodes": 4}}


@pytest.mark.filterwarnings("ignore::ratecli.RatecliWarning")
def test_estimators_can_be_tuned_as_models(loans):
    named = [{"DecisionTreeClassifier": {"max_depth": depth}} for depth in (1, 3)]
    reached = []
    for models in ([Stump(1), Stump(3)], named):
        options = {"tune": {"model": models}, "scores": "in_sample"}
        found = RateConstrainedClassifier(
            constraints=RULE,
            solver="post_shift",
            solver_options=options,
            encode=True,
            random_state=3,
        )
        rows = found.fit(*loans).settings_
        reached.append([(each["objective"], each["violation"], each["chosen"]) for each in rows])
    assert reached[0] == reached[1]
    assert [chosen for *_, chosen in reached[0]].count(True) == 1


@pytest.mark.parametrize(
    ("solver", "instance", "text"),
    [
        ("unconstrained", {"model": BOOSTER}, {"model": TEXT}),
        ("post_shift", {"model": BOOSTER}, {"model": TEXT}),
        ("post_shift", {"model": Stump(3), "scores": "in_sample"},
         {"model": {"DecisionTreeClassifier": {"max_depth": 3}}, "scores": "in_sample"}),
        ("post_shift", {"model": Stump(9), "tune": {"depth": [2]}, "scores": "in_sample"},
         {"model": "DecisionTreeClassifier", "tune": {"max_depth": [2]}, "scores": "in_sample"}),
        ("mixture", {"model": {"plugin": {"probabilities": Stump(2)}}},
         {"model": {"plugin": {"probabilities": {"DecisionTreeClassifier": {"max_depth": 2}}}}}),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::ratecli.RatecliWarning")
def test_an_estimator_is_the_same_model_as_its_name(loans, solver, instance, text):
    X, y = loans
    arguments = {"constraints": RULE, "solver": solver, "random_state": 3, "encode": True}
    given = RateConstrainedClassifier(solver_options=instance, **arguments)
    found = clone(given).fit(X, y)
    named = RateConstrainedClassifier(solver_options=text, **arguments).fit(X, y)
    np.testing.assert_array_equal(found.predict_proba(X), named.predict_proba(X))
    assert [each["chosen"] for each in found.settings_].count(True) == ("tune" in instance)
    np.testing.assert_array_equal(found.decision_function(X), named.decision_function(X))
    for key, value in instance.items():
        assert given.get_params()[f"solver_options__{key}"] is value
    if isinstance(instance["model"], Stump):
        assert not hasattr(instance["model"], "tree_")
        with pytest.raises(ValueError, match=r"types that are not trusted: .*Stump"):
            dumps(found.classifier_)


def test_estimators_of_estimators_are_models(loans):
    X, y = loans
    calibrated = CalibratedClassifierCV(DecisionTreeClassifier(max_depth=2), cv=2)
    options = {"model": calibrated, "scores": "in_sample"}
    found = RateConstrainedClassifier(solver="thresholded", solver_options=options).fit(X, y)
    assert set(found.predict(X)) == {"yes", "no"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (KNeighborsClassifier(), "its fit takes no sample weights"),
        (DecisionTreeRegressor(), "'model: DecisionTreeRegressor.* estimates numbers"),
        (DecisionTreeClassifier, r"pass an instance, such as DecisionTreeClassifier\(\)"),
        ({"score": "income"}, "has no existing scores"),
    ],
)
def test_estimators_that_are_no_models_are_refused(loans, model, message):
    with pytest.raises(ValueError, match=message):
        RateConstrainedClassifier(solver="unconstrained", solver_options={"model": model}).fit(
            *loans
        )


def test_a_constraint_is_satisfied_on_training_rows(loans):
    X, y = loans
    free = RateConstrainedClassifier().fit(X, y)
    bound = RateConstrainedClassifier(constraints=RULE).fit(X, y)
    assert ratio(pd.Series(free.predict(X)), X) < 0.6
    assert ratio(pd.Series(bound.predict(X)), X) >= 0.9 - 1e-9
    assert max(bound.violations_.values()) <= 1e-6
    assert bound.status_ == "ok"
    assert bound.objective_ == pytest.approx((bound.predict(X) != y).mean())
    assert bound.objective_ >= free.objective_


@pytest.mark.parametrize(
    ("solver", "options", "safety"),
    [
        ("mixture", {}, None),
        ("majorize", {"iterations": 3}, None),
        ("post_shift", {}, None),
        ("seldonian", {}, {"delta": 0.1, "fraction": 0.6}),
        ("post_shift", {}, {"aim": 0.8, "stratify": ["sex"]}),
    ],
)
@pytest.mark.filterwarnings("ignore::ratecli.RatecliWarning")
def test_the_model_equals_that_of_a_run(solver, options, safety, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = generate_loans(500, 4).frame.assign(part=["train"] * 300 + ["test"] * 200)
    frame.to_csv("rows.csv", index=False)
    rule = "positive_rate[women] >= kappa * positive_rate[men]"
    groups = {"women": "sex = Female", "men": "sex = Male"}
    kappa = 0.8 if safety is None else 0.3
    results = ratecli.run({
        "name": "same",
        "datasets": {"rows": {"path": "rows.csv", "label": "repaid", "positive": "yes",
                              "split": {"by": "part"}}},
        "groups": groups,
        "constraints": {"parity": rule},
        "sweep": {"kappa": [kappa]},
        "algorithms": [{solver: options}],
        "seeds": [3],
        "report": {"plots": []},
    } | ({} if safety is None else {"safety": safety}))  # fmt: skip
    train = frame[:300].drop(columns=["repaid", "part"])
    model = RateConstrainedClassifier(
        constraints={"parity": rule},
        solver=solver,
        solver_options=options,
        groups=groups,
        parameters={"kappa": kappa},
        safety=safety,
        random_state=3,
    ).fit(train, frame["repaid"][:300])
    measured = results.metrics[results.metrics["split"] == "train"]
    for variant, found in model.variants_.items():
        assert dumps(results.model(variant=variant).classifier) == dumps(found)
    chosen = next(name for name, each in model.variants_.items() if each is model.classifier_)
    here = measured[measured["variant"] == chosen].set_index("metric")["value"]
    assert model.violations_["parity"] == here["violation.parity"]
    assert model.objective_ == here["objective"]
    test = frame[300:].drop(columns=["repaid", "part"])
    answers = results.model(variant=chosen).answers(test)
    np.testing.assert_array_equal(model.predict_proba(test)[:, 1], answers["chance"])
    assert list(model.bounds_) == ([] if safety is None else ["parity"])
    written = [json.loads(file.read_text()) for file in Path("results").rglob("certificates.json")]
    uppers = [each["upper"] for file in written for each in file["certificates"]]
    assert sorted(each["upper"] for each in model.certificates_) == sorted(uppers)


def test_decide_samples_from_a_randomized_classifier(loans):
    X, y = loans
    model = RateConstrainedClassifier(
        constraints=RULE, solver="majorize", solver_options={"iterations": 2, "randomize": True}
    ).fit(X, y)
    chances = model.predict_proba(X)[:, 1]
    assert ((chances > 0) & (chances < 1)).any()
    assert (model.predict(X) == model.predict(X)).all()
    assert (model.predict(X) == np.where(chances > 0.5, "yes", "no")).all()
    left = X[(chances > 0.2) & (chances < 0.8)].head(5)
    draws = [model.decide(left, seed) == "yes" for seed in range(50)]
    assert np.mean(draws, axis=0) == pytest.approx(model.predict_proba(left)[:, 1], abs=0.3)
    assert (model.decide(X, 1) == model.decide(X, 1)).all()
    women = (X["sex"] == "Female").to_numpy()
    assert chances[women].mean() >= 0.9 * chances[~women].mean() - 1e-6


def test_a_violated_constraint_is_a_warning():
    X, y = people(300, 1)
    options = {"solver": "majorize", "solver_options": {"iterations": 1}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RateConstrainedClassifier(constraints=RULE, **options).fit(X, y)
    rules = ["error <= 0.01"]
    with pytest.warns(RatecliWarning, match=r"violates 'error <= 0\.01' by 0\.1") as caught:
        RateConstrainedClassifier(constraints=rules).fit(X, y)
    assert caught[0].filename == __file__
    with pytest.raises(NoSolutionFoundError, match="majorize found no classifier"):
        RateConstrainedClassifier(constraints=rules, solver="majorize").fit(X, y)


def test_rules_that_unseen_rows_satisfy_are_not_doubted(loans):
    """Trees are sure of their own rows, so thresholds are chosen by those of folds."""
    trees = HistGradientBoostingClassifier(max_iter=30, random_state=0)
    model = RateConstrainedClassifier(
        constraints=RULE, solver="post_shift", estimator=trees, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", RatecliWarning)
        model.fit(*loans)
    assert model.status_ == "ok"
    assert max(model.violations_.values()) > 1e-3  # on its own rows


def test_a_model_no_better_than_a_constant_is_a_warning():
    random = np.random.default_rng(0)
    X, g = random.normal(size=(2, 400)).T, random.integers(0, 4, 400).astype(str)
    y = random.random(400) < 0.2 + 0.1 * (X[:, 0] > 1.2)
    model = RateConstrainedClassifier(constraints="precision >= 0.9", solver="majorize")
    with pytest.warns(RatecliWarning) as caught:
        model.fit(X, y, sensitive_features=pd.Series(g, name="g"))
    told = [str(warning.message) for warning in caught]
    assert model.objective_ >= y.mean()
    against = f"objective {model.objective_:.4g} against {y.mean():.4g}"
    assert told[-1].endswith(against)
    assert "the deterministic classifier violates 'precision >= 0.9' by" in told[0]


def test_a_model_that_fails_its_safety_test_is_an_error(loans):
    X, y = loans
    model = RateConstrainedClassifier("error", RULE, solver="unconstrained", safety={})
    with pytest.raises(NoSolutionFoundError, match="found no classifier that passes its safety"):
        model.fit(X, y)
    model.set_params(constraints="error <= 0.4").fit(X, y)
    assert max(model.bounds_.values()) <= 0
    with pytest.raises(NoSolutionFoundError):
        model.set_params(constraints=RULE).fit(X, y)
    with pytest.raises(NotFittedError):  # and none of an earlier fit
        model.predict(X)
    rough = X.assign(income=X["income"].where(np.arange(len(X)) != 7))
    for seed in range(4):  # row 8 is among those that train, or among those put aside
        with pytest.raises(ValueError, match=r"no number in row 8(?s:.*)set missing to mean"):
            clone(model).set_params(random_state=seed).fit(rough, y)
    model.set_params(constraints="error <= 0.4")
    with pytest.raises(ValueError, match="pass no sample_weight"):
        model.fit(X, y, sample_weight=np.ones(len(y)))
    compared = "error <= 1.2 * of(unconstrained, error) + 0.1"
    held = RateConstrainedClassifier(
        constraints=compared, safety={"delta": 0.2}, random_state=0
    ).fit(X, y)
    assert [each["constraint"] for each in held.certificates_] == ["rule_1"] * len(held.variants_)


def test_errors_show_their_position(loans):
    X, y = loans
    wrong = RateConstrainedClassifier(constraints=["tpr <= 0.9", "tpr[sex = female] >= 0.8"])
    with pytest.raises(ValueError, match=r"constraints\[1\]:1:5") as caught:
        wrong.fit(X, y)
    *_, line, carets, help_text = str(caught.value).splitlines()
    assert line == " 1 | tpr[sex = female] >= 0.8"
    assert carets == "   |     ^^^^^^^^^^^^"
    assert help_text == "   = help: did you mean 'Female'? values: Female, Male"
    assert [fault.code for fault in caught.value.faults] == ["E206"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"solver": "mixtur"}, "did you mean 'mixture'"),
        ({"solver_options": {"gap": -1}}, "'gap' must be greater than 0.0"),
        ({"groups": {"women": "sex == Female"}}, r"groups\.women:1:5"),
        ({"constraints": {"good": "acuracy >= 0.5"}}, r"constraints\.good:1:1"),
        ({"constraints": ["error <= 2"]}, r"always holds(?s:.*)constraints\[0\]:1:1"),
        ({"objective": "mse"}, r"objective:1:1\n.*\n 1 \| mse\n.* \^\^\^\n"),
        ({"solver": "thresholded", "holds": "new_rows"}, "'holds' of 'thresholded' has no effect"),
        ({"solver": "seldonian"}, "'seldonian' trains for a safety test, but there is none"),
        ({"safety": {"delt": 0.05}}, r"safety:1:\d+\n[^~]*did you mean 'delta'"),
        ({"constraints": [7]}, r"E103(?s:.*)constraints\[0\]"),
        ({"drop": ["sexx"]}, "did you mean 'sex'"),
        ({"deployed": "old"}, "there is no column 'old'"),
        ({"variant": "stochastically"}, "returned: deterministic"),
        ({"pos_label": "maybe"}, "the labels are"),
        ({"l2": "much"}, "l2:1:"),
        ({"constraints": ["error <= of(majorize, error)"]}, "majorize"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_value_errors(options, told, loans):
    with pytest.raises(ValueError, match=told):
        RateConstrainedClassifier(**options).fit(*loans)


ODD = ["", " ", "\0", "\x85error <= 0.3 <", "error\u2028<= 0.3 +", "a: b", "- error:", "|-",
       "# error", "'", '"', "{", "&a *a", "!!python/object:os.system", "error <= 0.3 \ud83d", "(" * 3000,
       "constraints:\n  c: error <= 0.1\nobjective: 1"]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_value_errors(text, loans):
    X, y = loans
    for options in (
        {"constraints": {"odd": text}},
        {"constraints": {text: "error <= 0.5"}},
        {"objective": text},
        {"groups": {"odd": text}},
        {"groups": {text: "sex = Female"}},
        {"solver_options": {text: 1}},
        {"solver_options": {"oracle": text}},
        {"parameters": {text: 1.0}},
        {"deployed": text or "?"},
        {"solver": text or "?"},
        {"l2": text},
    ):
        with pytest.raises(ValueError, match=r"error\[E"):
            RateConstrainedClassifier(**options).fit(X, y)


def test_dropped_columns_are_not_features(loans):
    X, y = loans
    model = RateConstrainedClassifier(constraints=RULE, drop=["sex"]).fit(X, y)
    other = X.assign(sex=np.where(X["sex"] == "Male", "Female", "Male"))
    assert (model.predict(X) == model.predict(other)).all()
    assert (model.predict(X) == model.predict(X.drop(columns="sex"))).all()
    assert model.violations_[RULE] <= 1e-6
    beside = RateConstrainedClassifier(constraints=RULE)
    beside.fit(X.drop(columns="sex"), y, sensitive_features=X["sex"])
    assert (model.predict(X) == beside.predict(X.drop(columns="sex"))).all()


def test_arrays_with_sensitive_features(loans):
    X, y = loans
    numbers = X[NUMBERS].to_numpy()
    scaled = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    sensitive = X[["sex"]]
    array = RateConstrainedClassifier(constraints=RULE).fit(scaled, y, sensitive_features=sensitive)
    frame, table = RateConstrainedClassifier(constraints=RULE, encode=True), X[NUMBERS]
    frame.fit(table, y, sensitive_features={"sex": list(X["sex"])})
    assert array.objective_ == pytest.approx(frame.objective_)
    assert (array.predict(scaled) == frame.predict(table)).all()
    cut = pd.cut(numbers[:, 0], np.quantile(numbers[:, 0], [0, 0.5, 1]), include_lowest=True)
    ages = RateConstrainedClassifier(constraints="max_gap(tpr, by=age) <= 0.1", holds="train")
    ages.fit(scaled, y, sensitive_features={"age": cut})
    assert max(ages.violations_.values()) <= 1e-6
    with pytest.raises(ValueError, match="pass a cut column: pandas"):
        ages.fit(scaled, y, sensitive_features={"age": numbers[:, 0]})
    alone = RateConstrainedClassifier(constraints=RULE.replace("sex", "sensitive"))
    alone.fit(scaled, y, sensitive_features=X["sex"].to_numpy())
    assert (alone.predict(scaled) == array.predict(scaled)).all()
    named = RateConstrainedClassifier(constraints="positive_rate[x0 > 0] <= 0.5").fit(scaled, y)
    assert named.predict_proba(scaled)[scaled[:, 0] > 0, 1].mean() <= 0.5
    with pytest.raises(ValueError, match="599 rows, and X has 600"):
        alone.fit(scaled, y, sensitive_features=X["sex"][1:])


def test_numbers_are_used_unchanged(loans):
    X, y = loans
    numbers = X[NUMBERS]
    frame = RateConstrainedClassifier(solver="majorize").fit(numbers, y)
    array = clone(frame).fit(numbers.to_numpy(), y)
    np.testing.assert_array_equal(
        frame.decision_function(numbers), array.decision_function(numbers.to_numpy())
    )
    with pytest.raises(ValueError, match="'debt' has no number in row 1"):
        frame.predict(numbers.head(2).assign(debt=[np.nan, 1.0]))
    with pytest.raises(ValueError, match="holds text, which cannot be used unchanged"):
        RateConstrainedClassifier(encode=False).fit(X, y)


CALLS = {
    "fit": lambda X, y, s: RateConstrainedClassifier().fit(X, y, sensitive_features=s),
    "predict": lambda X, y, s: fitted(X, y).predict(X, sensitive_features=s),
    "scorer": lambda X, y, s: rate_scorer("error").score(fitted(X, y), X, y, sensitive_features=s),
    "rate_score": lambda _, y, s: rate_score("error", y, y, sensitive_features=s),
    "filter": lambda X, y, s: BalancedFilter().fit_resample(X, y, sensitive_features=s),
    "safety test": lambda X, y, s: SafetyTest(LogisticRegression(), "error <= 0.9").fit(
        X, y, sensitive_features=s
    ),
}


def fitted(X, y):
    """A classifier that was fitted to the rows by position."""
    return RateConstrainedClassifier().fit(X, y.set_axis(X.index))


@pytest.mark.filterwarnings("ignore::ratecli.RatecliWarning")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_sensitive_features_of_other_rows_are_errors(loans, call):
    X, y = loans[0][["income", "debt"]].assign(age=(loans[0]["age"] > 40).astype(int)), loans[1]
    X, y = (each.set_axis(np.arange(len(X)) + 7) for each in (X, y))
    age = X["age"]
    call(X, y, age)
    call(X, y, age.to_numpy())
    for other in (age[::-1], age.to_frame()[::-1], {"age": age[::-1]}, age.reset_index(drop=True)):
        with pytest.raises(ValueError, match=r"different indices.*reset_index"):
            call(X, y, other)
    if call is not CALLS["rate_score"]:  # which takes no X
        for other in (age + 1, {"age": ["old"] * len(X)}):
            with pytest.raises(ValueError, match="both have a column 'age', with different values"):
                call(X, y, other)


@pytest.mark.parametrize(
    "call",
    [
        lambda X, y: RateConstrainedClassifier().fit(X, y[::-1]),
        lambda X, y: RateConstrainedClassifier().fit(X, y, np.abs(X["age"])[::-1]),
        lambda X, y: fitted(X, y).score(X, y[::-1]),
        lambda X, y: fitted(X, y).score(X, y, np.abs(X["age"])[::-1]),
        lambda X, y: rate_scorer("error").score(fitted(X, y), X, y[::-1]),
        lambda _, y: rate_score("error", y, y[::-1]),
        lambda X, y: BalancedFilter("sex").fit_resample(X, y[::-1]),
        lambda X, y: SafetyTest(LogisticRegression(), "error <= 0.9").fit(X[["age"]], y[::-1]),
    ],
)
def test_different_indices_of_labels_and_weights_are_errors(loans, call):
    with pytest.raises(ValueError, match="have different indices"):
        call(*loans)


def test_a_dropped_column_may_be_given_beside_x_later(loans):
    X, y = loans
    model = RateConstrainedClassifier(constraints=RULE, solver="post_shift", drop=["sex"])
    said = model.fit(X, y).predict(X)
    bare = X.drop(columns="sex")
    np.testing.assert_array_equal(model.predict(bare, sensitive_features=X["sex"]), said)
    with pytest.raises(ValueError, match="there is no column 'sex'"):
        model.predict(bare)


@pytest.mark.parametrize("labels", [(0, 1), (-1, 1), ("bad", "good"), (False, True), (2.0, 7.0)])
def test_any_two_labels(labels, loans):
    X, y = loans
    given = np.asarray(labels)[(y == "yes").to_numpy().astype(int)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = RateConstrainedClassifier(constraints=RULE).fit(X, given)
    told = ["'good' is the positive label; pos_label can name the other"] * (labels[1] == "good")
    assert [str(each.message) for each in caught] == told
    assert list(model.classes_) == list(labels)
    words = RateConstrainedClassifier(constraints=RULE).fit(X, y)
    assert ((model.predict(X) == labels[1]) == (words.predict(X) == "yes")).all()


def test_pos_label(loans):
    X, y = loans
    model = RateConstrainedClassifier(constraints="positive_rate <= 0.2", pos_label="no").fit(X, y)
    said = model.predict(X)
    assert (said == "no").mean() <= 0.2
    assert (np.where(model.decision_function(X) > 0, "yes", "no") == said).all()
    assert (model.classes_[model.predict_proba(X).argmax(axis=1)] == said).all()


def test_churn_against_a_column_of_decisions(loans):
    X, y = loans
    X = X.assign(now=(X["income"] > 46).astype(int))
    model = RateConstrainedClassifier(constraints="churn <= 5%", deployed="now").fit(X, y)
    changed = (model.predict(X) == "yes") != (X["now"] == 1)
    assert changed.mean() <= 0.05
    assert (model.predict(X.drop(columns="now")) == model.predict(X)).all()


def test_entries_of_mappings_are_parameters():
    given = {"kappa": 0.8}
    model = RateConstrainedClassifier(parameters=given, solver_options={"gap": 1e-3})
    assert model.get_params()["parameters__kappa"] == 0.8
    assert "parameters__kappa" not in model.get_params(deep=False)
    model.set_params(parameters__kappa=0.5, solver_options__calls=9, l2=0.1)
    assert (model.parameters, given) == ({"kappa": 0.5}, {"kappa": 0.8})
    assert model.solver_options == {"gap": 1e-3, "calls": 9}
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(nothing__kappa=1)


def test_new_values_are_warnings(loans):
    X, y = loans
    model = RateConstrainedClassifier().fit(X, y)
    new = X.head(3).assign(region=["moon", "east", "west"], debt=[1.0, np.nan, 2.0])
    with pytest.warns(RatecliWarning) as caught:
        model.predict(new)
    assert {str(each.message)[:4] for each in caught} == {"W404", "W405"}
    assert all(each.filename == __file__ for each in caught)
    with pytest.raises(ValueError, match=r"'debt' has no number in row 2 \(1 such rows in total"):
        RateConstrainedClassifier().fit(new, ["no", "yes", "no"])


def test_missing_numbers_are_replaced_by_means(loans):
    X, y = loans
    numbers = X[["income", "debt"]].assign(debt=X["debt"].where(X["debt"] < X["debt"].median()))
    beside = numbers[["debt"]].assign(sex=X["sex"].where(X["age"] > 30, None))  # equal, too
    model = RateConstrainedClassifier(missing="mean")
    encoder = model.fit(numbers, y, sensitive_features=beside)._reader.encoding.encoder
    assert encoder.names == ("income", "debt", "debt=(missing)")
    assert encoder.blocks[1].mean == pytest.approx(numbers["debt"].mean())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(numbers)


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({"missing": "mean"}, np.asarray, "X is an array"),
        ({"encode": True}, np.asarray, "X is an array"),
        ({"missing": "mean", "encode": False}, pd.DataFrame, "encode is False"),
        ({"missing": "median"}, pd.DataFrame, "missing='median' cannot be used"),
    ],
)
def test_conflicting_options_of_features(loans, options, columns, message):
    with pytest.raises(ValueError, match=message):
        RateConstrainedClassifier(**options).fit(columns(loans[0][["income", "debt"]]), loans[1])


def test_categories_stay_categories(loans):
    X, y = loans
    codes = {"east": 1, "north": 2, "south": 3, "west": 4}
    coded = X.assign(region=pd.Categorical(X["region"].map(codes)))
    model = RateConstrainedClassifier().fit(coded, y)
    plain = RateConstrainedClassifier().fit(X, y)
    assert {"region=1", "region=2"} < set(model._reader.encoding.encoder.names)
    assert (model.predict(coded) == plain.predict(X)).all()


WEIGHTS = {"repeats": np.arange(400) % 3, "any": np.random.default_rng(0).uniform(0.5, 2, 400)}
SOLVERS = {
    "mixture": {},
    "unconstrained": {},
    "majorize": {"iterations": 2},
    "three_player": {"steps": 100},
}


@pytest.mark.parametrize(("kind", "solver"), one_in(3, itertools.product(WEIGHTS, SOLVERS)))
@pytest.mark.filterwarnings("ignore::ratecli.RatecliWarning")
def test_a_constant_factor_of_weights_has_no_effect(loans, solver, kind):
    X, y = (part[:400] for part in loans)
    weights, options = WEIGHTS[kind], SOLVERS[solver]
    model = RateConstrainedClassifier(
        "error", "positive_rate <= 0.6", solver=solver, solver_options=options, random_state=0
    )
    first, *others = (
        model.fit(X, y, sample_weight=factor * weights).classifier_
        for factor in (1.0, 0.1, 1e300, 1e160, 1e-300)
    )
    for other in others:
        np.testing.assert_array_equal(other.weights, first.weights)
        assert other.bias == first.bias


@pytest.mark.parametrize("tune", [{}, {"l2": ["100/n"]}], ids=["fixed", "tuned"])
def test_weights_count_as_repetitions_in_the_penalty(loans, tune):
    X, y = (part[:200] for part in loans)
    model = RateConstrainedClassifier(solver="unconstrained", l2="100/n", random_state=0)
    model.set_params(solver_options={"tune": tune} if tune else {})
    times = np.arange(len(y)) % 3 + 1
    weighted = model.fit(X, y, sample_weight=times).decision_function(X)
    repeated = model.fit(X.loc[X.index.repeat(times)], y.repeat(times)).decision_function(X)
    np.testing.assert_allclose(weighted, repeated, atol=0.1)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.0], "non-zero number|is zero for all rows"),  # the message of scikit-learn or ratecli
        ([-1.0], "Negative values"),
        ([np.nan], "contains NaN"),
        ([np.inf], "contains infinity"),
        ([1e-300, 1e300], r"ranges from 1e-300 to 1e\+300: the largest weight may be"),
        ([1e-16], "sample_weight ranges from 1e-16 to 1: the largest weight may be"),
    ],
)
def test_invalid_weights(loans, weights, message):
    X, y = loans
    given = np.resize(np.r_[weights, 1.0] if any(weights) else weights, len(X))
    with pytest.raises(ValueError, match=message):
        RateConstrainedClassifier().fit(X, y, given)
    with pytest.raises(ValueError, match=message):
        rate_score("error", y, y, sample_weight=given)


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_columns_of_extreme_scale_are_refused(loans, unit):
    X, y = loans[0][["income", "debt"]], loans[1]
    other = X.assign(debt=X["debt"] * unit)
    with pytest.raises(ValueError, match=r"E407.*column 'debt' are too (small|large)"):
        RateConstrainedClassifier(encode=True).fit(other, y)
    for name, x in (("debt", other), ("x1", other.to_numpy()), ("x1", sparse.csr_array(other))):
        with pytest.raises(ValueError, match=f"E407.*column '{name}', up to .*e[+-]\\d+, cannot"):
            RateConstrainedClassifier().fit(x, y)


@pytest.mark.parametrize("solver", ["post_shift", "three_player", "mixture"])
def test_an_estimator_may_set_parameters_that_its_library_calls_otherwise(loans, solver, capfd):
    lightgbm = pytest.importorskip("lightgbm")
    plain, quiet = (
        lightgbm.LGBMClassifier(n_estimators=12, num_leaves=4, **more)
        for more in ({}, {"verbosity": -1})
    )
    found = [violations(loans, solver=solver, solver_options={"model": m}) for m in (plain, quiet)]
    assert found[0] == found[1]
    assert not any(capfd.readouterr())


def test_an_estimator_that_no_file_could_name_has_the_settings_of_its_library(loans):
    lightgbm = pytest.importorskip("lightgbm")
    plain, other = (
        lightgbm.LGBMClassifier(n_estimators=8, **{name: 0.5}, subsample_freq=1, random_state=0)
        for name in ("colsample_bytree", "feature_fraction")
    )
    found = [
        violations(loans, solver="unconstrained", solver_options={"model": m})
        for m in (plain, other)
    ]
    assert found[0] == found[1]
    model = make_estimator(named_estimators(other), {}, np.random.default_rng(0))
    assert (model.n_jobs, model.get_params()["deterministic"]) == (1, True)


def missing_as_none(values):
    return [None if value == "gone" else value for value in values]


CONTAINERS = {
    "array of text": lambda values: np.array(["nan" if v == "gone" else v for v in values]),
    "None as text": lambda values: np.array(missing_as_none(values)).astype(str),
    "objects": lambda values: np.array([np.nan if v == "gone" else v for v in values], object),
    "list": missing_as_none,
    "series": lambda values: pd.Series(missing_as_none(values)),
    "string": lambda values: pd.Series(missing_as_none(values), dtype="string"),
    "categorical": lambda values: pd.Series(missing_as_none(values), dtype="category"),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_missing_values_mean_the_same_in_all_containers(container):
    make, rng = CONTAINERS[container], np.random.default_rng(3)
    X, groups = rng.normal(size=(200, 2)), rng.choice(["a", "b", "gone"], 200)
    y = np.where(X[:, 0] + (groups == "a") > 0.5, "yes", "no")
    passed = {"sensitive_features": {"g": make(groups)}}
    rate = "max_gap(positive_rate, by=g)"
    model = RateConstrainedClassifier(constraints=f"{rate} <= 0.1", random_state=0)
    with pytest.warns(RatecliWarning, match="W401: 'g' is empty in"):
        assert model.fit(X, y, **passed).violations_[f"{rate} <= 0.1"] <= 1e-6
    gap = abs(np.mean(y[groups == "a"] == "yes") - np.mean(y[groups == "b"] == "yes"))
    with pytest.warns(RatecliWarning, match="W401: 'g' is empty in"):
        assert rate_score(rate, y, y, **passed) == pytest.approx(gap)
    with pytest.warns(RatecliWarning, match="W401: 'g' is empty in"):
        rate_scorer(rate).score(model, X, y, **passed)
    gone = make(["gone", *y[1:]])
    with pytest.raises(ValueError, match="y has no label in row 1"):
        model.fit(X, gone, **passed)
    with pytest.raises(ValueError, match="y_pred has no label in row 1"):
        rate_score(rate, y, gone, **passed)


def test_empty_and_constant_columns_of_a_frame_are_left_out_and_named():
    X = pd.DataFrame({"x": np.arange(40.0), "same": 1.5, "nan": np.nan, "none": None})
    with pytest.warns(RatecliWarning, match=r"W411: .* 'same' \(1.5\), 'nan' \(empty\), 'none'"):
        model = RateConstrainedClassifier().fit(X, X["x"] > 20)
    assert (model.predict(X) == model.predict(X.assign(same=7.0, nan=1.0, none="b"))).all()


def test_ids_of_rows_as_features_are_a_warning():
    X, y = people(600)
    X["id"] = [f"row {k}" for k in range(len(X))]
    with pytest.warns(
        RatecliWarning, match="W406: the feature 'id' has 600 different texts in 600"
    ):
        RateConstrainedClassifier(solver="unconstrained").fit(X, y)


def test_codes_are_categories_and_large_integers_are_not_merged():
    large = 2**53 + np.arange(4)
    X = pd.DataFrame(
        {"x": np.arange(40.0), "zip": ["0123", "123"] * 20, "id": np.repeat(large, 10)}
    )
    y = (X["zip"] == "123") | (X["x"] < 5)
    rates = [
        rate_score(f"positive_rate[id = {each}]", y, y, sensitive_features=X) for each in large
    ]
    assert rates == [y[X["id"] == each].mean() for each in large]
    model = RateConstrainedClassifier(encode=True).fit(X, y)
    with pytest.warns(RatecliWarning, match="W404: column 'zip': 40 rows with a value"):
        model.predict(X.assign(zip="124"))


def test_numbers_that_pandas_did_not_recognize_are_no_categories():
    X, y = people(300)
    words = X.assign(income=X["income"].map("{:.1f}".format).str.replace(".", ","))
    with pytest.raises(ValueError, match=r"pandas.read_csv\(FILE, decimal=','\)"):
        RateConstrainedClassifier().fit(words, y)
    with pytest.warns(RatecliWarning, match="W406: the feature 'income' has 201 different texts"):
        RateConstrainedClassifier().fit(words.astype({"income": "category"}), y)


@pytest.mark.parametrize(
    ("constraint", "label", "message"),
    [
        ("max_gap(tpr, by=g) <= 0.1", "a b", "'g' has 1 value, 'max_gap' takes 2 to "),
        ("tpr[g = b] >= 0.5", "a b", "'b' is not a value of 'g'"),
        ("error <= 1", "a a", "y must have two labels, not 1 class"),
    ],
)
def test_rows_with_weight_0_do_not_count(constraint, label, message):
    groups = np.array(["a", "b"] * 20)
    first, other = label.split()
    y = np.where(np.arange(40) % 4 < 2, first, other) if first != other else groups
    with pytest.raises(ValueError, match="20 of 40 rows have weight 0 and do not count") as caught:
        RateConstrainedClassifier(constraints=constraint, pos_label="a").fit(
            np.eye(40), y, sample_weight=groups == "a", sensitive_features={"g": groups}
        )
    assert message in str(caught.value)
