"""Converted trees give the probabilities of the library that fitted them."""

import copy
import json
import re

import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from ratecli.models.composed import ARGMAX_COSTS, CostSensitiveClassifier, ModelRegressor
from ratecli.models.layout import NUMBER, NUMBER_OR_MISSING, ColumnLayout
from ratecli.models.storage import dumps, loads
from ratecli.models.tree_formats.catboost import read_catboost
from ratecli.models.tree_formats.lightgbm import read_lightgbm
from ratecli.models.tree_formats.scikit_learn import TREE_CONVERTERS, convert_sklearn_trees
from ratecli.models.tree_formats.xgboost import read_xgboost

LEVELS = np.array([NUMBER, NUMBER_OR_MISSING, 3, 70, NUMBER])
LAYOUT = ColumnLayout(LEVELS)
PLAIN = ColumnLayout.numbers(LAYOUT.width)


def features(codes: np.ndarray) -> np.ndarray:
    """The features of columns: each number or level one-hot, no level where it is NaN."""
    parts = []
    for column, levels in zip(codes.T, LEVELS, strict=True):
        if levels == NUMBER_OR_MISSING:
            parts += [np.nan_to_num(column), np.isnan(column)]
        elif levels == NUMBER:
            parts.append(column)
        else:
            parts += list((column[:, None] == np.arange(levels)).T)
    return np.column_stack(parts).astype(float)


def sample(n: int, seed: int, levels: int = 70) -> np.ndarray:
    """Columns (n, 5); level 2 of the first category and the last ones of the second may be unseen."""
    rng = np.random.default_rng(seed)
    codes = np.column_stack(
        [
            rng.normal(size=n).round(1),
            rng.normal(size=n).round(2),
            rng.integers(3 if levels == 70 else 2, size=n),
            rng.integers(levels, size=n),
            np.where(rng.random(n) < 0.5, 0.0, rng.normal(size=n)),
        ]
    )
    for column in (1, 2, 3):
        codes[rng.random(n) < 0.1, column] = np.nan
    return codes


TRAIN, TEST = sample(500, 0, levels=66), sample(800, 1)
SCORES = (
    TRAIN[:, 0] + np.nan_to_num(TRAIN[:, 1], nan=1.0) + np.isin(TRAIN[:, 3], range(0, 70, 3))
) * np.where(TRAIN[:, 2] == 1, -1, 1) + TRAIN[:, 4]
BINARY = (SCORES > 0.3).astype(int)
LABELS = {2: BINARY, 3: BINARY + (SCORES > 1.2)}
COSTS = {2: ARGMAX_COSTS, 3: np.array([1.0, -1.0, 0.3])}
WEIGHTS = np.random.default_rng(2).random(500)


def check_equal(trees, codes: np.ndarray, expected: np.ndarray, tolerance: float = 1e-12) -> None:
    """Probabilities are equal, and decisions after storage, except within 1e-6 of a tie."""
    X, costs = features(codes), COSTS[expected.shape[1]]
    np.testing.assert_allclose(trees.probabilities(X), expected, rtol=0, atol=tolerance)
    model = CostSensitiveClassifier(trees, costs)
    again = loads(dumps(model))
    assert dumps(again) == dumps(model)
    np.testing.assert_array_equal(again.score(X), model.score(X))
    wanted = expected @ -costs
    apart = np.ones(len(X), bool) if tolerance <= 1e-12 else np.abs(wanted) > 1e-6
    np.testing.assert_array_equal(again.decide(X)[apart], (wanted > 0)[apart])


ON_FEATURES = [
    AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=9, random_state=0),
    BaggingClassifier(n_estimators=5, max_features=0.5, random_state=0),
    DecisionTreeClassifier(min_samples_leaf=5),
    DecisionTreeClassifier(max_depth=1, min_samples_leaf=400),
    ExtraTreeClassifier(random_state=0),
    ExtraTreesClassifier(n_estimators=7, random_state=0),
    GradientBoostingClassifier(n_estimators=12),
    GradientBoostingClassifier(n_estimators=12, init="zero"),
    HistGradientBoostingClassifier(max_iter=12),
    RandomForestClassifier(n_estimators=7, max_depth=5, random_state=0),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", ON_FEATURES, ids=lambda model: type(model).__name__)
def test_scikit_learn_trees_on_features(model, classes):
    model.fit(features(TRAIN), LABELS[classes], sample_weight=WEIGHTS)
    trees = convert_sklearn_trees(model, PLAIN)
    check_equal(trees, TEST, model.predict_proba(features(TEST)))


def test_exponential_loss():
    model = GradientBoostingClassifier(n_estimators=12, loss="exponential")
    model.fit(features(TRAIN), BINARY)
    check_equal(convert_sklearn_trees(model, PLAIN), TEST, model.predict_proba(features(TEST)))


REGRESSORS = [
    DecisionTreeRegressor(min_samples_leaf=5),
    ExtraTreeRegressor(random_state=0),
    ExtraTreesRegressor(n_estimators=7, random_state=0),
    GradientBoostingRegressor(n_estimators=12),
    GradientBoostingRegressor(n_estimators=12, init="zero"),
    HistGradientBoostingRegressor(max_iter=12, categorical_features=[2, 3]),
    RandomForestRegressor(n_estimators=7, max_depth=5, random_state=0),
]


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda model: type(model).__name__)
def test_scikit_learn_regressors(model):
    rows = {True: TRAIN, False: np.nan_to_num(TRAIN)}  # gradient boosting takes no missing numbers
    takes_missing = not isinstance(model, GradientBoostingRegressor)
    model.fit(rows[takes_missing], SCORES, sample_weight=WEIGHTS)
    trees = convert_sklearn_trees(model, LAYOUT if takes_missing else ColumnLayout.numbers(5))
    codes = TEST if takes_missing else np.nan_to_num(TEST)
    X = features(codes) if takes_missing else codes
    np.testing.assert_allclose(trees.probabilities(X)[:, 0], model.predict(codes), atol=1e-12)
    assert dumps(loads(dumps(ModelRegressor(trees)))) == dumps(ModelRegressor(trees))


def test_a_regressor_whose_loss_has_a_link_is_refused():
    model = HistGradientBoostingRegressor(max_iter=2, loss="poisson").fit(TRAIN, np.exp(SCORES))
    with pytest.raises(ValueError, match="trees of the loss 'poisson' cannot be stored"):
        convert_sklearn_trees(model, LAYOUT)


ON_COLUMNS = [
    BaggingClassifier(n_estimators=5, random_state=0),
    DecisionTreeClassifier(min_samples_leaf=5),
    ExtraTreesClassifier(n_estimators=7, random_state=0),
    HistGradientBoostingClassifier(max_iter=12),
    HistGradientBoostingClassifier(max_iter=12, categorical_features=[2, 3]),
    HistGradientBoostingClassifier(max_iter=12, categorical_features=[3], max_leaf_nodes=4),
    HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=400, categorical_features=[2, 3]),
    RandomForestClassifier(n_estimators=7, random_state=0),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", ON_COLUMNS, ids=lambda model: type(model).__name__)
def test_scikit_learn_trees_on_columns(model, classes):
    model.fit(TRAIN, LABELS[classes], sample_weight=WEIGHTS)
    trees = convert_sklearn_trees(model, LAYOUT)
    check_equal(trees, TEST, model.predict_proba(TEST))


def test_sums_of_histogram_boosting_are_exact():
    model = HistGradientBoostingClassifier(max_iter=20, categorical_features=[2, 3])
    model.fit(TRAIN, BINARY)
    trees = convert_sklearn_trees(model, LAYOUT)
    assert trees.sets.any()
    scores = model.decision_function(TEST)
    np.testing.assert_array_equal(trees.sums(features(TEST))[:, 1], scores)


def test_all_converted_classes_are_tested():
    models = {type(model).__name__ for model in (*ON_FEATURES, *REGRESSORS)}
    assert models == set(TREE_CONVERTERS)


@pytest.mark.parametrize(
    ("model", "layout", "message"),
    [
        (DecisionTreeClassifier(), PLAIN, "fitted on 5 of 77 columns"),
        (
            HistGradientBoostingClassifier(max_iter=2, categorical_features=[3]),
            ColumnLayout.numbers(5),
            "sets of numbers",
        ),
        (AdaBoostClassifier(GaussianNB(), n_estimators=2), LAYOUT, "not a tree, but GaussianNB"),
        (
            BaggingClassifier(CalibratedClassifierCV(GaussianNB()), n_estimators=2),
            LAYOUT,
            "not a tree, but CalibratedClassifierCV",
        ),
    ],
)
def test_trees_that_cannot_be_converted(model, layout, message):
    model.fit(np.nan_to_num(TRAIN), BINARY)
    with pytest.raises(ValueError, match=message):
        convert_sklearn_trees(model, layout)


def lightgbm_booster(
    rounds: int, classes: int = 2, sets: tuple[int, ...] = (2, 3), **options
) -> lightgbm.Booster:
    fixed = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "objective": "binary"}
    if classes > 2:
        fixed |= {"objective": "multiclass", "num_class": classes}
    data = lightgbm.Dataset(TRAIN, LABELS[classes], weight=WEIGHTS, categorical_feature=list(sets))
    return lightgbm.train(fixed | options, data, rounds)


def lightgbm_probabilities(booster: lightgbm.Booster) -> np.ndarray:
    found = np.asarray(booster.predict(TEST, num_threads=1))
    return found if found.ndim == 2 else np.column_stack([1 - found, found])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sets": ()},
        {"sets": (3,), "max_cat_to_onehot": 100},
        {"use_missing": False},
        {"min_data_in_leaf": 300},  # trees of one leaf
        {"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1},
        {"boosting": "dart"},
        {"max_bin": 5, "num_leaves": 3},
    ],
    ids=str,
)
def test_lightgbm_gives_equal_probabilities(options, classes):
    booster = lightgbm_booster(12, classes, **options)
    trees = read_lightgbm(booster.model_to_string(), LAYOUT)
    check_equal(trees, TEST, lightgbm_probabilities(booster))


@pytest.mark.parametrize("options", [{"sigmoid": 2.0}, {"objective": "cross_entropy"}], ids=str)
def test_lightgbm_binary_objectives(options):
    booster = lightgbm_booster(8, **options)
    trees = read_lightgbm(booster.model_to_string(), LAYOUT)
    check_equal(trees, TEST, lightgbm_probabilities(booster))


def test_lightgbm_sums_are_exact():
    booster = lightgbm_booster(20)
    found = read_lightgbm(booster.model_to_string(), LAYOUT).sums(features(TEST))
    np.testing.assert_array_equal(found[:, 1], booster.predict(TEST, raw_score=True))


@pytest.mark.parametrize("classes", [1, 3])
def test_lightgbm_without_objective_gives_log_odds(classes):
    def gradient(_scores, _data):
        shape = (len(TRAIN), classes) if classes > 1 else len(TRAIN)
        slopes = np.random.default_rng(3).normal(size=shape)
        return slopes, np.ones(shape)

    booster = lightgbm_booster(5, objective=gradient, num_class=classes)
    scores = np.asarray(booster.predict(TEST)).reshape(len(TEST), -1)
    found = read_lightgbm(booster.model_to_string(), LAYOUT).sums(features(TEST))
    np.testing.assert_array_equal(found[:, -classes:], scores)


TEXT = lightgbm_booster(3).model_to_string()


def changed(pattern: str, new: str, text: str = TEXT) -> str:
    found, count = re.subn(pattern, new, text, count=1, flags=re.MULTILINE)
    assert count
    return found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "incomplete|tree_sizes"),
        (TEXT[: len(TEXT) // 2], "incomplete"),
        (changed("^end of trees$", ""), "incomplete"),
        (changed("^objective=.*", "objective=poisson"), "objective is 'poisson'"),
        (changed("^objective=.*", "objective=multiclassova num_class:3"), "multiclassova"),
        (changed("^max_feature_idx=4", "max_feature_idx=3"), "4 columns instead of 5"),
        (changed("^max_feature_idx=4", "max_feature_idx=five"), "invalid literal"),
        (changed("^num_tree_per_iteration=1", "num_tree_per_iteration=0"), "in each round"),
        (changed("^num_tree_per_iteration=1", "num_tree_per_iteration=2"), "in each round"),
        (changed("^num_leaves=", "num_leaves=1"), "without leaves"),
        (changed("^leaf_value=", "leaf_value=0 "), "without leaves"),
        (changed("^leaf_value=", "leaves="), "no 'leaf_value'"),
        (changed(r"^leaf_value=\S+", "leaf_value=nan"), "no finite value"),
        (changed(r"^threshold=\S+", "threshold=nan"), "not a number"),
        (changed(r"^split_feature=\d+", "split_feature=5"), "column does not exist"),
        (changed(r"^split_feature=\d+", "split_feature=-1"), "column does not exist"),
        (changed(r"^split_feature=\d+", "split_feature=" + 30 * "9"), "LightGBM"),
        (changed(r"^left_child=\S+", "left_child=0"), "not trees"),
        (changed(r"^left_child=\S+", "left_child=99"), "child does not exist"),
        (changed(r"^left_child=\S+", "left_child=-99"), "child does not exist"),
        (changed(r"^left_child=\S+", "left_child="), "tree of other size"),
        (changed(r"^is_linear=0", "is_linear=1"), "linear models"),
        (changed(r"^cat_boundaries=0", "cat_boundaries=9"), "no order"),
        (changed(r"^cat_boundaries=0", "cat_boundaries=-1"), "no order"),
        (changed(r"^cat_threshold=\S+", "cat_threshold=-1"), "32-bit words"),
        (changed(r"^cat_threshold=", "cat_threshold=1 "), "size"),
        (
            changed(r"^decision_type=.*", lambda m: re.sub(r"\d+", "4", m[0])),
            "zeros for missing values",
        ),
        (changed(r"^decision_type=.*", lambda m: re.sub(r"\d+", "1", m[0])), "set|not exist"),
    ],
)
def test_other_lightgbm_texts_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_lightgbm(text, LAYOUT)


def test_lightgbm_sets_need_categories():
    with pytest.raises(ValueError, match="categorical split of a numeric column"):
        read_lightgbm(TEXT, ColumnLayout.numbers(5))


@pytest.mark.parametrize("seed", range(5))
def test_damaged_lightgbm_texts_raise_value_error_or_give_numbers(seed):
    rng = np.random.default_rng(seed)
    body = TEXT[: TEXT.index("feature_importances")]
    for _ in range(40):
        damaged = list(body)
        for at in rng.integers(len(body), size=rng.integers(1, 5)):
            damaged[at] = rng.choice(list("0123456789-. \n="))
        try:
            trees = read_lightgbm("".join(damaged), LAYOUT)
        except ValueError:
            continue
        assert trees.probabilities(features(TEST[:20])).shape == (20, 2)


SINGLE = 2e-6
"""Tolerance of sums of 32-bit floats."""
XGBOOST_TYPES = ["q", "q", "c", "c", "q"]


def xgboost_data(codes: np.ndarray, labels=None, types=XGBOOST_TYPES, **more) -> xgboost.DMatrix:
    return xgboost.DMatrix(codes, labels, feature_types=types, enable_categorical=True, **more)


def xgboost_booster(
    rounds: int, classes: int = 2, types=XGBOOST_TYPES, **options
) -> xgboost.Booster:
    fixed = {"objective": "binary:logistic", "nthread": 1, "max_depth": 4, "seed": 0}
    if classes > 2:
        fixed |= {"objective": "multi:softprob", "num_class": classes}
    data = xgboost_data(TRAIN, LABELS[classes], types, weight=WEIGHTS)
    return xgboost.train(fixed | options, data, rounds)


def xgboost_probabilities(booster: xgboost.Booster, types=XGBOOST_TYPES) -> np.ndarray:
    found = booster.predict(xgboost_data(TEST, types=types)).astype(float)
    return found if found.ndim == 2 else np.column_stack([1 - found, found])


@pytest.mark.filterwarnings("ignore:.*booster=dart")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"types": ["q"] * 5},
        {"max_cat_to_onehot": 100},
        {"max_cat_to_onehot": 1, "max_leaves": 6, "grow_policy": "lossguide"},
        {"gamma": 3.0, "tree_method": "approx"},  # prunes nodes
        {"gamma": 5.0, "tree_method": "exact", "types": ["q"] * 5},
        {"gamma": 1e6},  # trees of one leaf
        {"base_score": 0.3},
        {"num_parallel_tree": 3, "subsample": 0.5},
        {"booster": "dart", "rate_drop": 0.5},
    ],
    ids=str,
)
def test_xgboost_gives_equal_probabilities(options, classes):
    booster, types = xgboost_booster(12, classes, **options), options.get("types", XGBOOST_TYPES)
    trees = read_xgboost(booster.save_raw("json"), LAYOUT)
    check_equal(trees, TEST, xgboost_probabilities(booster, types), SINGLE)


def test_xgboost_reaches_the_same_leaves():
    """Also where a number equals a threshold, or does so only as a 32-bit float."""
    booster = xgboost_booster(1, types=["q"] * 5, max_depth=8, min_child_weight=0)
    trees = read_xgboost(booster.save_raw("json"), ColumnLayout.numbers(5))
    cuts = np.unique(trees.threshold[trees.column == 1])
    beside = np.nextafter(cuts.astype(np.float32), np.float32(np.inf)).astype(float)
    values = np.concatenate([cuts, beside, np.nextafter(beside, -1), cuts + 1e-12])
    rows = np.repeat(TEST[:40], len(values), axis=0)
    rows[:, 1] = np.tile(values, 40)
    scores = booster.predict(xgboost_data(rows, types=["q"] * 5), output_margin=True)
    np.testing.assert_allclose(trees.sums(rows)[:, 1], scores, rtol=0, atol=1e-6)


@pytest.mark.parametrize("objective", ["binary:logitraw", "multi:softmax"])
def test_xgboost_objectives_without_probabilities(objective):
    classes = 2 if objective.startswith("binary") else 3
    booster = xgboost_booster(5, classes, objective=objective)
    trees = read_xgboost(booster.save_raw("json"), LAYOUT)
    scores = booster.predict(xgboost_data(TEST), output_margin=True).reshape(len(TEST), -1)
    found = trees.sums(features(TEST))[:, -scores.shape[1] :]
    np.testing.assert_allclose(found, scores, rtol=0, atol=1e-5)


XGBOOST = json.loads(xgboost_booster(2).save_raw("json"))


@pytest.mark.parametrize(
    ("base", "score"), [("2.5E-1", np.log(1 / 3)), ("[2.5E-1]", np.log(1 / 3))]
)
def test_xgboost_initial_scores_of_all_versions(base, score):
    changed = copy.deepcopy(XGBOOST)
    changed["learner"]["learner_model_param"]["base_score"] = base
    found = read_xgboost(json.dumps(changed).encode(), LAYOUT)
    np.testing.assert_allclose(found.start, [0, score], rtol=1e-6)


def places(value, path=()):
    """The path of every value in JSON."""
    yield path
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))


def replaced(value, path, new):
    """A copy of JSON with another value at a path."""
    found = copy.deepcopy(value)
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return found


TREE = ("learner", "gradient_booster", "model", "trees", 0)
LINE = XGBOOST["learner"]["gradient_booster"]["model"]["trees"][0]["split_type"].index(0)
"""A node without a set."""


@pytest.mark.parametrize(
    ("path", "new", "message"),
    [
        ((*TREE, "split_indices", 0), -1, "column does not exist"),
        ((*TREE, "split_indices", 0), 5, "column does not exist"),
        ((*TREE, "split_indices", 0), 1.5, "not integers"),
        ((*TREE, "left_children", 0), 0, "not a tree"),
        ((*TREE, "left_children", 0), 2, "not a tree"),
        ((*TREE, "left_children", 0), -2, "child does not exist"),
        ((*TREE, "right_children", 0), 10**6, "child does not exist"),
        ((*TREE, "right_children", 0), 10**30, "not integers"),
        ((*TREE, "right_children"), [], "differ in length"),
        ((*TREE, "split_type", 0), 2, "unknown kind"),
        ((*TREE, "split_type"), [0], "differ in length"),
        ((*TREE, "split_conditions", LINE), float("nan"), "not a number"),
        ((*TREE, "categories_nodes"), [], "zip|no "),
        ((*TREE, "categories_sizes", 0), 10**9, "set does not exist"),
        ((*TREE, "categories_segments", 0), -1, "set does not exist"),
        ((*TREE, "categories", 0), -1, "level is negative"),
        ((*TREE, "tree_param", "size_leaf_vector"), "3", "several values"),
        (("learner", "gradient_booster", "name"), "gblinear", "'gblinear'"),
        (("learner", "gradient_booster", "model", "tree_info", 0), 1, "no class"),
        (("learner", "gradient_booster", "model", "tree_info"), [0], "differ in length"),
        (("learner", "gradient_booster", "model", "trees"), [], "differ in length"),
        (("learner", "gradient_booster", "model", "bias"), [1], r"meaning of \['bias'\]"),
        (("learner", "objective", "name"), "rank:ndcg", "'rank:ndcg'"),
        (("learner", "learner_model_param", "base_score"), "[1E0]", "not in"),
        (("learner", "learner_model_param", "base_score"), "[1E-1,2E-1]", "more than one"),
        (("learner", "learner_model_param", "num_feature"), "6", "6 columns instead of 5"),
        (("learner", "learner_model_param", "num_target"), "2", "several targets"),
        (("learner",), [], "XGBoost"),
    ],
)
def test_other_xgboost_models_are_refused(path, new, message):
    content = json.dumps(replaced(XGBOOST, path, new)).encode()
    with pytest.raises(ValueError, match=message):
        read_xgboost(content, LAYOUT)


def catboost_model(classes: int = 2, columns: np.ndarray = TRAIN, **options):
    """A fitted model and its JSON."""
    catboost = pytest.importorskip("catboost", reason="its wheel takes 100 MB")
    fixed = {"iterations": 12, "thread_count": 1, "random_seed": 0, "depth": 4}
    fixed |= {"verbose": 0, "allow_writing_files": False}
    model = catboost.CatBoostClassifier(**fixed | options)
    return model.fit(columns, LABELS[classes], sample_weight=WEIGHTS)


def catboost_json(model, folder) -> bytes:
    model.save_model(str(folder / "model.json"), format="json")
    return (folder / "model.json").read_bytes()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"nan_mode": "Max"}, {"depth": 1}, {"iterations": 1}], ids=str
)
def test_catboost_gives_equal_probabilities(options, classes, tmp_path):
    model = catboost_model(classes, **options)
    trees = read_catboost(catboost_json(model, tmp_path), LAYOUT)
    check_equal(trees, TEST, model.predict_proba(TEST))


def test_catboost_on_features(tmp_path):
    model = catboost_model(columns=features(TRAIN))
    trees = read_catboost(catboost_json(model, tmp_path), PLAIN)
    check_equal(trees, TEST, model.predict_proba(features(TEST)))


def test_catboost_scale_and_bias(tmp_path):
    model = catboost_model()
    model.set_scale_and_bias(0.5, 0.25)
    trees = read_catboost(catboost_json(model, tmp_path), LAYOUT)
    check_equal(trees, TEST, model.predict_proba(TEST))


@pytest.mark.parametrize(
    ("path", "new", "message"),
    [
        (("oblivious_trees", 0, "splits", 0, "float_feature_index"), -1, "does not exist"),
        (("oblivious_trees", 0, "splits", 0, "float_feature_index"), 9, "does not exist"),
        (("oblivious_trees", 0, "splits", 0, "border"), None, "not numbers"),
        (("oblivious_trees", 0, "splits", 0, "border"), float("nan"), "not a number"),
        (("oblivious_trees", 0, "splits", 0, "split_type"), "OnlineCtr", "categories"),
        (("oblivious_trees", 0, "splits"), [], "other number"),
        (("oblivious_trees", 0, "splits"), [{}] * 70, "other number"),
        (("oblivious_trees", 0, "leaf_values"), [1.0], "other number"),
        (("oblivious_trees", 0, "leaf_values", 0), float("inf"), "no finite value"),
        (("oblivious_trees",), [], "no trees"),
        (("features_info", "float_features", 0, "flat_feature_index"), -1, "does not exist"),
        (("features_info", "float_features", 0, "flat_feature_index"), 5, "does not exist"),
        (("model_info", "params", "loss_function", "type"), "RMSE", "'RMSE'"),
        (("model_info", "params", "loss_function", "type"), "MultiClass", "other size"),
        (("scale_and_bias", 1), [0, 0], "other size"),
        (("scale_and_bias",), [1], "unpack"),
    ],
)
def test_other_catboost_models_are_refused(path, new, message, tmp_path):
    content = json.loads(catboost_json(catboost_model(), tmp_path))
    with pytest.raises(ValueError, match=message):
        read_catboost(json.dumps(replaced(content, path, new)).encode(), LAYOUT)


def test_catboost_trees_of_other_shapes_are_refused(tmp_path):
    model = catboost_model(grow_policy="Lossguide")
    with pytest.raises(ValueError, match="not oblivious"):
        read_catboost(catboost_json(model, tmp_path), LAYOUT)


VALUES = [-1, 0, 1, 3, 10**9, 2**63, 10**30, 0.5, 1e300, float("nan"), "", "7", None, [], {}, [[1]]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("library", ["xgboost", "catboost"])
def test_damaged_json_raises_value_error_or_gives_numbers(library, seed, tmp_path):
    if library == "xgboost":
        model, read = XGBOOST, read_xgboost
    else:
        model, read = json.loads(catboost_json(catboost_model(), tmp_path)), read_catboost
    rng, every = np.random.default_rng(seed), list(places(model))[1:]
    for at in rng.integers(len(every), size=60):
        new = VALUES[rng.integers(len(VALUES))]
        content = json.dumps(replaced(model, every[at], new)).encode()
        try:
            trees = read(content, LAYOUT)
        except ValueError:
            continue
        with np.errstate(all="ignore"):
            assert trees.probabilities(features(TEST[:20])).shape == (20, 2)


@pytest.mark.parametrize("read", [read_xgboost, read_catboost])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"1", b"null"])
def test_other_json_is_refused(read, content):
    with pytest.raises(ValueError, match="is not a model of"):
        read(content, LAYOUT)
