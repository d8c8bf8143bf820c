"""The option `model`: which classifiers files may name, their fits, and scores of unseen rows."""

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import metadata
from multiprocessing import get_context

import numpy as np
import pytest
from oracles.goals import Rows, Rules, problem, run
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, zero_one_loss
from sklearn.model_selection import ParameterGrid
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from slow_fit import NUMBERS, fit_slowly, spend
from thinned import one_in

from ratecli.errors import FaultError, InvalidValueError
from ratecli.experiment.entries import make_settings, make_solver
from ratecli.models.base import Array
from ratecli.models.layout import ColumnLayout
from ratecli.models.storage import dumps, loads
from ratecli.rates.matrix import RowKinds
from ratecli.solvers import fit_cache
from ratecli.solvers.baselines.label_model import fit_model
from ratecli.solvers.baselines.options import PostShift, Thresholded, Unconstrained
from ratecli.solvers.baselines.thresholded import score_rows
from ratecli.solvers.fit_cache import FitCache, shared_fits
from ratecli.solvers.margin import MarginSpec
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import check_model, model_versions
from ratecli.solvers.oracles.estimators import fit_booster, make_estimator
from ratecli.solvers.oracles.unseen import folds_by_label
from ratecli.solvers.problem import Problem
from ratecli.solvers.tuned import solve_tuned

LIGHTGBM = {"lightgbm": {"n_estimators": 8, "min_child_samples": 5}}
RULES = Rules({"r": "recall >= 0.8"}, "1 - precision")


def rows_with_columns(seed: int, n: int = 300) -> tuple[Rows, ColumnLayout]:
    """Return a number, a category of 3 levels one-hot, and a number with missing values."""
    rng = np.random.default_rng(seed)
    level, missing = rng.integers(-1, 3, size=n), rng.random(n) < 0.2
    number, other = rng.normal(size=(2, n))
    X = np.column_stack(
        [number, *(level == k for k in range(3)), np.where(missing, 0, other), missing]
    ).astype(float)
    chance = 1 / (1 + np.exp(-number - (level == 1) + missing))
    label = (rng.random(n) < chance).astype(float)
    group = np.array(["a", "b"], dtype=object)[rng.integers(2, size=n)]
    return Rows(X, label, group), ColumnLayout(np.array([0, 3, -1]))


def table(seed: int = 0, rules: Rules = RULES, n: int = 300, trial_seed: int = 0) -> Problem:
    rows, layout = rows_with_columns(seed, n)
    return replace(problem(rows, rules), column_layout=layout, seed=trial_seed)


def fit_peer(name: str, given: Problem) -> tuple[dict, Array]:
    """Return an option, and the probabilities of the library's own fit to the same columns."""
    columns, labels = given.layout.columns(given.X), (given.label > 0).astype(int)
    if name == "lightgbm":
        lightgbm = pytest.importorskip(name)
        settings = {"n_estimators": 8, "min_child_samples": 5}
        peer = lightgbm.LGBMClassifier(**settings, random_state=0, verbosity=-1, n_jobs=1)
        peer.fit(columns, labels, categorical_feature=[1])
    elif name == "xgboost":
        xgboost = pytest.importorskip(name)
        settings = {"n_estimators": 8, "max_depth": 3}
        more = {"enable_categorical": True, "feature_types": ["q", "c", "q"]}
        peer = xgboost.XGBClassifier(**settings, **more, random_state=0, n_jobs=1)
        peer.fit(columns, labels)
    elif name == "catboost":
        catboost = pytest.importorskip(name)
        columns, settings = given.X, {"n_estimators": 8, "max_depth": 3}
        silent = {"verbose": False, "allow_writing_files": False, "thread_count": 1}
        peer = catboost.CatBoostClassifier(**settings, **silent, random_state=0)
        peer.fit(columns, labels, sample_weight=np.ones(len(labels)))
    else:
        settings = {"max_iter": 8}
        peer = HistGradientBoostingClassifier(
            **settings, random_state=0, categorical_features=[1]
        ).fit(columns, labels)
    return {name: {**settings, "random_state": 0}}, peer.predict_proba(columns)[:, 1]


@pytest.mark.parametrize(
    "name", ["lightgbm", "xgboost", "catboost", "HistGradientBoostingClassifier"]
)
def test_boosted_trees_see_columns_and_decide_as_their_library(name):
    given = table()
    model, chances = fit_peer(name, given)
    found = run(Unconstrained(model=check_model(model)), given).variants["deterministic"]
    np.testing.assert_allclose(found.estimate(given.X), chances, atol=1e-6)
    np.testing.assert_array_equal(found.decide(given.X), chances > 0.5)
    again = loads(dumps(found))
    np.testing.assert_array_equal(again.score(given.X), found.score(given.X))


@pytest.mark.parametrize(
    "options",
    one_in(
        2,
        [
            {"n_estimators": 150},
            {"boosting_type": "dart", "drop_rate": 0.5},
            {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1},
            {"scale_pos_weight": 3.0, "min_child_samples": 1, "path_smooth": 1.0},
            {"n_estimators": 40, "early_stopping_round": 2},
        ],
    ),
)
def test_stored_trees_score_as_lightgbm_to_the_last_bit(options):
    pytest.importorskip("lightgbm")
    given, other = table(), table(seed=1, n=1000)
    given = replace(given, validation=table(seed=2))
    found = run(Unconstrained(model={"lightgbm": options}), given).variants["deterministic"]
    stored = loads(dumps(found))
    for X in (given.X, other.X, sparse.csr_array(other.X), other.X[:0]):
        np.testing.assert_array_equal(found.score(X), stored.score(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).score(other.X), found.score(other.X))  # fmt: skip


@pytest.mark.parametrize("name", ["lightgbm", "xgboost", "HistGradientBoostingClassifier"])
def test_zeros_of_sparse_features_are_numbers(name):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((400, 5)) < 0.6, 0.0, rng.normal(size=(400, 5)))
    X = np.abs(X) * [1, 1, -1, 1, -1]  # a zero is an end of the numbers, as if it were missing
    classes = (X[:, 0] - X[:, 1] > -0.1).astype(int)
    models = [make_estimator(name, {"random_state": 0}, rng) for _ in range(2)]
    dense, kept = (
        fit_booster(model, FitRows(each, ColumnLayout.numbers(5), classes, np.ones(400)), None)
        for model, each in zip(models, (X, sparse.csr_array(X)), strict=True)
    )
    assert kept is not None
    np.testing.assert_array_equal(kept.probabilities(X), dense.probabilities(X))
    np.testing.assert_allclose(kept.probabilities(X), models[0].predict_proba(X), atol=1e-6)


def test_xgboost_takes_no_other_missing_value():
    with pytest.raises(FaultError, match="must be NaN"):
        run(Unconstrained(model={"xgboost": {"missing": 0.0}}), table())


def test_other_classifiers_see_features():
    given = table()
    model = {"RandomForestClassifier": {"n_estimators": 5, "random_state": 3}}
    found = run(Unconstrained(model=model), given).variants["deterministic"]
    peer = RandomForestClassifier(n_estimators=5, random_state=3)
    peer.fit(given.X, given.label, sample_weight=np.ones(len(given.label)))
    np.testing.assert_allclose(found.estimate(given.X), peer.predict_proba(given.X)[:, 1])


@pytest.mark.parametrize("model", ["logistic", "LogisticRegression", "LinearSVC", "GaussianNB"])
def test_every_kind_of_classifier_is_thresholded_exactly(model):
    """The chosen threshold is the best of all on the scores, by brute force."""
    given = table(rules=Rules({"p": "positive_rate <= 0.3"}))
    found = run(Thresholded(model=model, scores="in_sample"), given).variants["deterministic"]
    plain = run(Unconstrained(model=model), given).variants["deterministic"]
    scores, labels = plain.score(given.X), given.label > 0
    cuts = [*scores, scores.min() - 1]
    ways = [(np.mean((scores > cut) != labels), np.mean(scores > cut)) for cut in cuts]
    best = min(error for error, rate in ways if rate <= 0.3)
    decisions = found.decide(given.X) > 0
    assert decisions.mean() <= 0.3
    assert np.mean(decisions != labels) == pytest.approx(best, abs=1e-12)


def test_fold_scores_are_those_of_models_that_have_not_seen_the_row():
    given = table()
    options = Thresholded(
        model={"DecisionTreeClassifier": {"random_state": 0}}, scores={"folds": 3}
    )
    scored = score_rows(options, given)
    kinds = RowKinds.by(given.rates).of
    # a fully grown tree knows the label of each row that it was fitted to
    own = (scored.classifier.score(given.X) > 0) == (given.label > 0)
    assert own.all()
    assert 0.5 < np.mean((scored.scores > 0) == (given.label > 0)) < 0.9
    assert len(scored.scores) == len(kinds)


def test_held_out_rows_are_a_stratified_share_and_judge_the_constraint():
    given = table()
    options = PostShift(model=LIGHTGBM, scores={"held_out": 0.25})
    scored = score_rows(options, given)
    labels = given.label > 0
    share = len(scored.scores) / len(labels)
    assert share == pytest.approx(0.25, abs=0.01)
    assert np.mean(scored.problem.label > 0) == pytest.approx(labels.mean(), abs=0.01)
    found = run(options, given)
    rates = scored.problem.rates.rates(scored.problem.decisions(found.variants["deterministic"]))
    assert scored.problem.worst_violation(rates) <= 1e-9
    assert found.judged is not None
    assert found.judged.violations()["r"] <= 1e-9


def noisy(n, rng):
    X = rng.normal(size=(n, 4))
    label = (X[:, 0] + 1.5 * rng.normal(size=n) > 0).astype(float)
    return Rows(X, label, np.array(["a"] * n, dtype=object))


def test_thresholds_of_a_tree_are_not_those_of_the_trees_of_folds():
    rules, rng = Rules({"r": "positive_rate <= 0.3"}), np.random.default_rng(0)
    new, missed = problem(noisy(10000, rng), rules), {}
    model = {"DecisionTreeClassifier": {"max_depth": 4, "random_state": 0}}
    for given in [problem(noisy(2000, rng), rules) for _ in range(10)]:
        for scores in (None, {"folds": 5}):
            found = run(Thresholded(model=model, scores=scores), given)
            violation = new.violation(found.variants["deterministic"])
            missed.setdefault(str(scores), []).append(violation)
    assert np.mean(missed["None"]) < 0.005
    assert np.mean(missed["{'folds': 5}"]) > 0.015


def test_algorithms_of_a_trial_share_a_fit():
    options = Unconstrained(model=LIGHTGBM), PostShift(model=LIGHTGBM, scores="in_sample")
    one, other = (fit_model(each, table())[0] for each in options)
    assert one.chances is other.chances
    options = Unconstrained(loss="logistic"), PostShift(), Thresholded(loss="logistic")
    first, *others = (fit_model(each, table())[0] for each in options)
    assert all(each is first for each in others)


def test_validation_rows_stop_boosting():
    pytest.importorskip("lightgbm")
    rows, layout = rows_with_columns(0)
    held = problem(rows_with_columns(1)[0], RULES)
    given = replace(problem(rows, RULES), column_layout=layout)
    validation = replace(held, column_layout=layout)
    model = {"lightgbm": {"n_estimators": 300, "early_stopping_round": 5, "min_child_samples": 5}}
    solver = Unconstrained(model=model)
    assert solver.chooses_by == "model"
    stopped = run(solver, replace(given, validation=validation)).variants["deterministic"]
    assert len(stopped.chances.roots) < 100


TUNE = {"max_depth": [1, 2, 4], "min_samples_leaf": [10, 30]}


def tuned(name, model, tune, given):
    settings = make_settings(name, {"model": model}, tune, ["r"])
    return solve_tuned(settings, MarginSpec(), given, lambda: np.random.default_rng(0))


@pytest.mark.parametrize(
    ("kind", "tune"),
    [(DecisionTreeClassifier, TUNE)]
    + [(kind, {"C": [1e-4, 1.0]}) for kind in (LinearSVC, LogisticRegression)],
)
@pytest.mark.parametrize("held", [False, True])
def test_tuning_chooses_the_setting_with_the_smallest_loss_on_unseen_rows(kind, tune, held):
    """The losses are those of scikit-learn's own fits."""
    given, chances = table(n=200), hasattr(kind, "predict_proba")
    validation = table(seed=1) if held else None
    own, name = {"random_state": 0}, kind.__name__
    measure = log_loss if chances else zero_one_loss
    found = tuned("unconstrained", {name: own}, tune, replace(given, validation=validation))
    losses, label = {}, given.label > 0
    for setting in ParameterGrid(tune):

        def outputs(train, rows, setting=setting):
            fitted = kind(**own, **setting).fit(given.X[train], label[train])
            return fitted.predict_proba(rows)[:, 1] if chances else fitted.predict(rows)

        if held:
            loss = measure(validation.label > 0, outputs(slice(None), validation.X))
        else:
            fold, unseen = folds_by_label(given, 5), np.empty(200, dtype=float if chances else bool)
            for k in range(5):
                unseen[fold == k] = outputs(fold != k, given.X[fold == k])
            loss = measure(label, unseen)
        losses[repr(sorted(setting.items()))] = loss
    shown = {repr(sorted(row["setting"].items())): row["loss"] for row in found.trace}
    assert shown == pytest.approx(losses)
    (chosen,) = (row for row in found.trace if row["chosen"])
    assert chosen["loss"] == min(row["loss"] for row in found.trace)
    plain = Unconstrained(model={name: {**own, **chosen["setting"]}})
    expected = run(plain, given).variants["deterministic"].decide(given.X)
    np.testing.assert_array_equal(found.variants["deterministic"].decide(given.X), expected)


def test_algorithms_and_goals_choose_the_same_setting():
    rules = RULES, Rules({"p": "positive_rate[g=a] <= positive_rate[g=b]"})

    def losses(name, given):
        found = tuned(name, "DecisionTreeClassifier", TUNE, given)
        return tuple(row["loss"] for row in found.trace if "setting" in row)

    names = ("unconstrained", "thresholded", "post_shift")
    (one,) = {losses(name, table(rules=each)) for name in names for each in rules}
    assert one not in {losses(names[0], table(**{key: 1})) for key in ("seed", "trial_seed")}


@pytest.mark.parametrize("name", ["thresholded", "post_shift"])
def test_thresholds_are_those_of_the_tuned_model(name):
    given = table()
    found = tuned(name, LIGHTGBM, {"num_leaves": [4, 8]}, given)
    (chosen,) = (row["setting"] for row in found.trace if row.get("chosen"))
    model = {"lightgbm": {**LIGHTGBM["lightgbm"], **chosen}}
    plain = run(make_solver(name, {"model": model}, ["r"]), given)
    assert found.judged.violations() == plain.judged.violations()
    decided = (given.decisions(each.variants["deterministic"]) for each in (found, plain))
    np.testing.assert_array_equal(*decided)


@pytest.mark.parametrize(
    ("model", "tune", "code", "loc", "message"),
    [
        ("linear", {"C": [1]}, "E101", "tune.C", "'C' is neither an option of"),
        ("GaussianNB", {"depth": [1]}, "E101", "tune.depth", "'depth' is neither an option of"),
        ("lightgbm", {"num_leaves": [7, -3]}, "E104", "tune.num_leaves.1", "num_leaves"),
        ({"lightgbm": {"num_leaves": 7}}, {"num_leaves": [8]}, "E104", "tune.num_leaves",
         "'num_leaves' is set in 'lightgbm' and tuned"),
    ],
)  # fmt: skip
def test_invalid_tuned_parameters_are_reported_at_their_location(model, tune, code, loc, message):
    with pytest.raises(FaultError, match=message) as caught:
        make_settings("unconstrained", {"model": model}, tune, [])
    (fault,) = caught.value.faults
    assert (fault.code, ".".join(map(str, fault.loc))) == (code, loc)


@pytest.mark.parametrize(
    ("model", "code", "loc", "message"),
    [
        ("lightgmb", "E104", "", "there is no classifier 'lightgmb'"),
        ({"linear": {"C": 3}}, "E101", "linear.C", "no option 'C'"),
        ({"lightgbm": {"num_leafs": 3}}, "E101", "lightgbm.num_leafs", "no option 'num_leafs'"),
        ({"lightgbm": {"num_leaves": -3}}, "E104", "lightgbm.num_leaves", "num_leaves"),
        ("os:system", "E104", "", "'os' is not a package whose classes a file may name"),
        ("sklearn.svm:SVR", "E104", "", "it is not a classifier class"),
        ("sklearn.neighbors:KNeighborsClassifier", "E104", "", "takes no sample weights"),
        ("sklearn.svm:Nothing", "E104", "", "no attribute 'Nothing'"),
        (7, "E103", "", "not a model"),
        *(
            (name, "E104", "", "is not the path of a class")
            for name in (":", "sklearn:svm.SVC", "../a:B")
        ),
    ],
)
def test_invalid_models_are_reported_at_their_location(model, code, loc, message):
    with pytest.raises(FaultError, match=message) as caught:
        check_model(model)
    (fault,) = caught.value.faults
    assert (fault.code, ".".join(map(str, fault.loc))) == (code, loc)


@pytest.mark.parametrize(
    "code",
    [
        "raise RuntimeError('no')",
        (
            "class Model:\n    _estimator_type = 'classifier'\n    def __init__(self, k): ...\n"
            "    def fit(self, X, y, sample_weight): ..."
        ),
    ],
)
def test_errors_of_a_trusted_module_are_reported(code, tmp_path, monkeypatch):
    (tmp_path / "broken_models.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RATECLI_TRUST", "broken_models")
    with pytest.raises(FaultError, match="E104: 'broken_models:Model' cannot be used"):
        check_model("broken_models:Model")
    sys.modules.pop("broken_models", None)


def test_a_file_cannot_import_what_is_not_trusted(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"
        "from sklearn.tree import DecisionTreeClassifier\n"
        "class Stump(DecisionTreeClassifier):\n"
        "    def __init__(self, max_depth=1):\n        super().__init__(max_depth=max_depth)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(FaultError, match="whose classes a file may name"):
        check_model("own_models:Stump")
    assert not (tmp_path / "own_models.ran").exists()
    monkeypatch.setenv("RATECLI_TRUST", "own_models")
    assert check_model("own_models:Stump") == "own_models:Stump"
    assert (tmp_path / "own_models.ran").exists()
    sys.modules.pop("own_models")


@pytest.mark.parametrize(
    "scores",
    [
        *({"folds": 1}, {"folds": 2.5}, {"folds": float("inf")}, {"folds": True}, {"fold": 3}),
        *({"held_out": 1.0}, {"held_out": float("nan")}, {"folds": 3, "held_out": 0.2}),
        *("all", 3, {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("solver", ["post_shift", "three_player", "mixture"])
def test_impossible_ways_to_score_are_refused(solver, scores):
    with pytest.raises(FaultError) as refused:
        make_solver(solver, {"scores": scores, "model": LIGHTGBM}, [])
    (fault,) = refused.value.faults
    assert (fault.code, fault.loc) == ("E104", ("scores",))


STOPPED = {"lightgbm": {"early_stopping_round": 5}}


@pytest.mark.parametrize(
    ("solver", "options", "loc"),
    [
        ("mixture", {"model": STOPPED}, ("model",)),
        ("mixture", {"model": {"plugin": {"probabilities": STOPPED}}},
         ("model", "plugin", "probabilities")),
        ("three_player", {"oracle": STOPPED}, ("oracle",)),
        ("naive_proxy", {"model": STOPPED}, ("model",)),
    ],
)  # fmt: skip
def test_early_stopping_is_refused_where_validation_rows_cannot_decide(solver, options, loc):
    with pytest.raises(FaultError, match="'early_stopping_round' is not possible here") as refused:
        make_solver(solver, options, [])
    assert refused.value.faults[0].loc == (*loc, "lightgbm", "early_stopping_round")


@pytest.mark.parametrize(
    ("solver", "options", "package"),
    [
        ("unconstrained", {}, None),
        ("unconstrained", {"model": "RandomForestClassifier"}, None),
        ("unconstrained", {"model": {"score": "old"}}, None),
        ("zafar", {}, None),
        ("three_player", {"model": LIGHTGBM}, "lightgbm"),
        ("three_player", {"oracle": "lightgbm:LGBMClassifier"}, "lightgbm"),
        ("mixture", {"model": {"plugin": {"probabilities": LIGHTGBM}}}, "lightgbm"),
    ],
)
def test_keys_of_trials_have_versions_of_the_packages_of_models(solver, options, package):
    versions = model_versions(make_solver(solver, options, []))
    assert versions == ({package: metadata.version(package)} if package else {})


@pytest.mark.parametrize(
    "parameters",
    [
        {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1},  # valid only together
        {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1, "n_estimators": 3},
    ],
)
def test_parameters_that_are_valid_together_are_accepted(parameters):
    assert check_model({"lightgbm": parameters})


def test_libraries_do_not_write_to_stdout(capfd):
    pytest.importorskip("catboost")
    loud = {"catboost": {"learning_rate": 7, "n_estimators": 3}}  # warns
    run(make_solver("unconstrained", {"model": loud}, []), table(n=80))
    assert capfd.readouterr().out == ""


def test_a_rejected_parameter_is_reported_once_and_without_lines_of_c(capfd):
    pytest.importorskip("lightgbm")
    with pytest.raises(FaultError) as caught:
        check_model({"lightgbm": {"num_leaves": -3}})
    assert caught.value.faults[0].message == "Check failed: (num_leaves) > (1)"
    assert not any(capfd.readouterr())


@pytest.mark.parametrize("quiet", [{"silent": True}, {"logging_level": "Silent"}])
def test_catboost_may_be_quiet_in_other_words(quiet):
    pytest.importorskip("catboost")
    found = run(
        make_solver("unconstrained", {"model": {"catboost": {"iterations": 3, **quiet}}}, []),
        table(n=80),
    )
    assert found.status == "solved"


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("mixture", {"model": "logistic"}),
        ("mixture", {"model": {"plugin": {"probabilities": {"logistic": {"C": 2}}}}}),
        ("three_player", {"oracle": "logistic", "steps": 4}),
    ],
)
def test_logistic_is_a_model_of_every_algorithm(solver, options):
    given = table()
    text = json.dumps(options).replace("logistic", "LogisticRegression")
    pair = [make_solver(solver, each, []) for each in (options, json.loads(text))]
    blobs = [[dumps(each) for each in run(made, given).variants.values()] for made in pair]
    assert blobs[0] == blobs[1]


@pytest.mark.parametrize(
    ("solver", "hint"),
    [("seldonian", "give 'post_shift' the model"), ("audit", "unconstrained: {model: {score")],
)
def test_algorithms_without_models_name_one_that_has_them(solver, hint):
    with pytest.raises(FaultError) as caught:
        make_solver(solver, {"model": "lightgbm"}, [])
    (fault,) = caught.value.faults
    assert fault.code == "E101"
    assert hint in str(fault.help)


def test_a_booster_in_place_of_the_oracle_of_coco_is_explained():
    pytest.importorskip("lightgbm")
    with pytest.raises(FaultError, match="'coco' has"):
        make_solver("coco", {"model": "lightgbm"}, [])


@pytest.mark.parametrize("key", ["train_dir", "output_borders", "snapshot_file", "roc_file"])
def test_no_option_lets_catboost_write_files(key, tmp_path):
    pytest.importorskip("catboost")
    with pytest.raises(InvalidValueError, match=f"no option '{key}'"):
        check_model({"catboost": {key: str(tmp_path / "file")}})


def test_stored_fits_are_used_by_other_processes_and_computed_once(tmp_path):
    with get_context("spawn").Pool(2) as pool:
        found = pool.map(fit_slowly, [tmp_path / "fits"] * 4)
    assert (tmp_path / "calls").read_text() == "x"
    assert {tuple(each) for each in found} == {(1.0, 2.0)}


def adjusted_and_real_seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Return by how much the adjusted time and the clock advance while a function runs."""
    real, begun = time.perf_counter(), fit_cache.cache_adjusted_time()
    call()
    adjusted = fit_cache.cache_adjusted_time() - begun
    return adjusted, time.perf_counter() - real


def test_time_counts_a_stored_fit_as_long_as_it_took(tmp_path):
    first, _ = adjusted_and_real_seconds(lambda: fit_slowly(tmp_path / "fits"))
    again, real = adjusted_and_real_seconds(lambda: fit_slowly(tmp_path / "fits"))
    assert 0.2 <= again <= first + real


def test_time_counts_a_fit_once_in_a_trial():
    cache = FitCache[None](2)

    def slow() -> None:
        spend(0.1)

    def twice() -> None:
        with shared_fits(None):
            for _ in range(2):
                cache.get(b"key", slow)

    for _ in range(2):  # computed by the trial, and cached before it
        adjusted, _ = adjusted_and_real_seconds(twice)
        assert 0.1 <= adjusted < 0.2


def test_time_counts_results_that_are_made_of_cached_ones():
    inner, outer = FitCache[float](2), FitCache[float](2)

    def slow() -> float:
        spend(0.1)
        return 1.0

    def seconds(key: bytes) -> tuple[float, float]:
        make = partial(inner.get, b"inner", slow)
        return adjusted_and_real_seconds(lambda: outer.get(key, make))

    (first, _), *others = (seconds(key) for key in (b"a", b"b", b"a", b"b"))
    assert first >= 0.1
    assert all(0.1 <= adjusted <= first + real for adjusted, real in others)


def test_damaged_fits_are_computed_again_and_old_ones_deleted(tmp_path, monkeypatch):
    folder = tmp_path / "fits"
    fit_slowly(folder)
    (path,) = folder.glob("*.fit")
    path.write_bytes(b"damaged")
    assert fit_slowly(folder) == [1.0, 2.0]
    assert (tmp_path / "calls").read_text() == "xx"
    monkeypatch.setattr(fit_cache, "MAX_FOLDER_BYTES", 60)
    kept = []
    with shared_fits(folder):
        for k in (0, 64, 1, 128):  # 1 has another lock, whose fits do not check the size
            FitCache(2, NUMBERS).get(bytes([k]), lambda k=k: np.full(2, float(k)))
            kept.append(len(list(folder.glob("*.fit"))))
    assert kept == [2, 2, 3, 2]


def test_time_counts_processes_that_have_ended():
    code = "import time\nwhile time.process_time() < 0.2: pass"
    command = [sys.executable, "-c", code]
    adjusted, _ = adjusted_and_real_seconds(lambda: subprocess.run(command, check=True))
    assert adjusted >= 0.2
