"""Exported models decide as ratecli's own, on rows with missing and unknown values."""

import json
import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC, LinearSVC

from ratecli.apply import export
from ratecli.apply.export import FORMATS
from ratecli.apply.predict import StoredModel
from ratecli.datasets.encode import Encoder, NumericBlock, OneHotBlock
from ratecli.errors import FaultError
from ratecli.models.composed import (
    ARGMAX_COSTS,
    CostSensitiveClassifier,
    GroupThreshold,
    HashedRamp,
    MajorityVote,
    MixtureClassifier,
    ModelRegressor,
    ProbabilityThreshold,
)
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import LinearRegressor, Logistic, Ramp, Threshold
from ratecli.models.probabilities import FactoredModel, SklearnModel
from ratecli.models.proxies import ProxyFilter, SplitTree
from ratecli.models.tree_formats.scikit_learn import convert_sklearn_trees
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble
from ratecli.sampling.encoding import Encoding

RNG = np.random.default_rng(7)
CODES = tuple(f"{k:03}" for k in range(90))
ENCODER = Encoder.of(
    [
        NumericBlock("age, years", 41.3, 9.7),
        NumericBlock("debt", -0.1, 2.9, missing=True),
        OneHotBlock("job", ("(missing)", "clerk", 'it\'s "x"', "smith")),
        OneHotBlock("code", CODES),
        NumericBlock("decision", 0.0, 1.0),
    ]
)
ENCODING = Encoding(ENCODER, {"sex": "text", "district": "number"})
WIDTH = len(ENCODER.names)
WEIGHTS = RNG.normal(size=WIDTH)
LINE = Threshold(WEIGHTS, 0.1)


def table(n: int = 600) -> pd.DataFrame:
    """Rows with missing numbers and texts, and with texts that no training row had."""
    rng = np.random.default_rng(n)
    columns = {
        "age, years": rng.normal(41, 10, n),
        "debt": rng.normal(0, 3, n),
        "job": rng.choice(["clerk", "smith", 'it\'s "x"', "baker"], n).astype(object),
        "code": rng.choice([*CODES, "new"], n).astype(object),
        "decision": rng.normal(size=n),
        "sex": rng.choice(["Female", "Male", "X"], n).astype(object),
        "district": rng.integers(1, 5, n).astype(float),
    }
    frame = pd.DataFrame(columns)
    for name in ("debt", "job", "sex", "district", "age, years"):
        frame.loc[rng.random(n) < 0.1, name] = np.nan
    return frame


FRAME = table()


def inputs(classifier, frame=FRAME):
    return ENCODING.inputs_for(classifier, frame, list(frame))[0]


X = sparse.csr_array(inputs(LINE)).toarray()
Y = (X @ WEIGHTS + RNG.normal(size=len(X)) > 0).astype(int)


def fitted(model):
    return SklearnModel(model.fit(X, Y))


def on_features(model, classes=Y):
    return convert_sklearn_trees(model.fit(X, classes), ColumnLayout.numbers(WIDTH))


def on_columns(model):
    """Trees with sets of levels, and missing values of their own."""
    return convert_sklearn_trees(model.fit(ENCODER.layout.columns(X), Y), ENCODER.layout)


def by_group(scorer, slices, groups, thresholds):
    return GroupThreshold(scorer, slices, np.array(groups, dtype=bool), np.array(thresholds))


SEX = ("sex = Female", "sex = Male")
ONE_COLUMN = ([[1, 0], [0, 1], [0, 0]], [0.7, -0.3, 0.2])
OTHERS = ("district = (1, 3), sex != Male", '"age, years" >= 40', "district >= 3 or sex != Male")
FOREST = RandomForestClassifier(5, max_depth=6, random_state=0)
BOOSTED = HistGradientBoostingClassifier(
    max_iter=8, categorical_features=ENCODER.layout.categories, min_samples_leaf=5, random_state=0
)
CLASSIFIERS = {
    "threshold": lambda: LINE,
    "logistic": lambda: Logistic(WEIGHTS, -0.4),
    "one column": lambda: by_group(LINE, SEX, *ONE_COLUMN),
    "one number": lambda: by_group(
        LINE, ("district = 2", "district = (1, 4)"), [[1, 0], [0, 1]], [1.0, -1]
    ),
    "no group": lambda: by_group(LINE, SEX, np.zeros((0, 2)), []),
    "columns": lambda: by_group(LINE, OTHERS, [[1, 0, 0], [1, 1, 1], [0, 1, 0]], [0.5, -1.0, 0.25]),
    "bayes": lambda: ProbabilityThreshold(fitted(GaussianNB(var_smoothing=0.1)), 0.37),
    "network": lambda: ProbabilityThreshold(
        fitted(MLPClassifier((3,), "tanh", learning_rate_init=0.1, tol=0.01, random_state=0))
    ),
    "neighbours": lambda: ProbabilityThreshold(fitted(KNeighborsClassifier(3))),
    "costs": lambda: CostSensitiveClassifier(
        fitted(GaussianNB(var_smoothing=0.1)), np.array([1.0, -0.3]), -0.2
    ),
    "calibrated": lambda: ProbabilityThreshold(fitted(CalibratedClassifierCV(LinearSVC(), cv=2))),
    "forest": lambda: ProbabilityThreshold(on_features(FOREST), 0.4),
    "votes of trees": lambda: CostSensitiveClassifier(
        on_features(AdaBoostClassifier(n_estimators=4, random_state=0)), ARGMAX_COSTS
    ),
    "sets": lambda: ProbabilityThreshold(on_columns(BOOSTED)),
    "groups of sets": lambda: by_group(ProbabilityThreshold(on_columns(BOOSTED)), SEX, *ONE_COLUMN),
    "vote": lambda: MajorityVote(
        (LINE, ProbabilityThreshold(on_features(FOREST)), Threshold(-WEIGHTS)),
        np.array([0.3, 0.4, 0.3]),
    ),
    "labels and groups": lambda: CostSensitiveClassifier(
        FactoredModel(
            on_features(FOREST),
            (on_features(FOREST, RNG.integers(3, size=len(X))),),
            label=np.array([0, 0, 0, 1]),
            column=np.array([1, 2, 3, 0]),
        ),
        np.array([0.7, 0.1, 0.4, -0.5]),
    ),
    "svm": lambda: CostSensitiveClassifier(fitted(SVC()), ARGMAX_COSTS),
}


@cache
def classifier_of(name):
    return CLASSIFIERS[name]()


BY_SKLEARN = "threshold logistic one-column one-number no-group bayes network neighbours costs calibrated svm"
BY_JSON = "threshold logistic one-column one-number no-group columns"


def stored(classifier) -> StoredModel:
    return StoredModel("models/mine-seed=0/x.npz", classifier, ENCODING, "deterministic")


def named(words):
    return [word.replace("-", " ") for word in words.split()]


def onnx_outputs(content, frame):
    from onnxruntime import InferenceSession  # noqa: PLC0415

    session = InferenceSession(content, providers=["CPUExecutionProvider"])
    given = {
        each.name: frame[[each.name]].fillna("").to_numpy(dtype=object)
        if each.type == "tensor(string)"
        else frame[[each.name]].to_numpy(dtype=np.float64)
        for each in session.get_inputs()
    }
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name != "svm"])
def test_onnx(name):
    pytest.importorskip("skl2onnx")
    classifier = classifier_of(name)
    found = onnx_outputs(FORMATS["onnx"][1](stored(classifier)), FRAME)
    # a column has the name of an output
    assert list(found) == ["decision_", "score"]
    own = inputs(classifier)
    assert 20 < classifier.decide(own).sum() < len(FRAME) - 20
    assert found["score"] == pytest.approx(classifier.score(own), abs=1e-9)
    assert (found["decision_"] == classifier.decide(own)).all()


def test_onnx_of_trees_without_splits():
    pytest.importorskip("onnx")
    leaves = TreeEnsemble(
        layout=ENCODER.layout,
        roots=np.arange(2),
        column=np.full(2, LEAF),
        threshold=np.zeros(2),
        children=np.zeros((2, 2), dtype=np.intp),
        missing_second=np.zeros(2, dtype=bool),
        set_at=np.full(2, NO_SET),
        sets=np.zeros(0, dtype=bool),
        values=np.array([[0.25, 0.25], [0.125, 0.375]]),
        start=np.zeros(2),
    )
    content = FORMATS["onnx"][1](stored(ProbabilityThreshold(leaves, 0.5)))
    assert (onnx_outputs(content, FRAME)["score"] == 0.125).all()


def test_members_of_a_vote_share_a_model_in_onnx():
    pytest.importorskip("onnx")
    forest = on_features(FOREST)

    def size(count):
        members = (ProbabilityThreshold(forest, 0.4), ProbabilityThreshold(forest, 0.5))[:count]
        vote = MajorityVote(members, np.full(count, 1 / count))
        return len(FORMATS["onnx"][1](stored(vote)))

    assert size(2) < 1.1 * size(1)


@pytest.mark.parametrize("name", named(BY_SKLEARN))
def test_sklearn(name):
    from skops.io import get_untrusted_types, loads  # noqa: PLC0415

    content = FORMATS["sklearn"][1](stored(classifier_of(name)))
    types = get_untrusted_types(data=content)
    assert not any("ratecli" in each for each in types)
    classifier = classifier_of(name)
    with pytest.warns(UserWarning, match="unknown categories"):
        found = loads(content, trusted=types).predict(FRAME[FRAME.columns[::-1]])
    assert (found == classifier.decide(inputs(classifier))).all()


@pytest.mark.filterwarnings("ignore:Found unknown categories")
def test_sklearn_has_the_estimates_of_logistic_regression():
    from skops.io import loads  # noqa: PLC0415

    classifier = classifier_of("logistic")
    model = loads(FORMATS["sklearn"][1](stored(classifier)), trusted=["numpy.dtype"])
    known = classifier.estimate(inputs(classifier))
    assert model.predict_proba(FRAME)[:, 1] == pytest.approx(known, abs=1e-12)


def json_outputs(content, frame):
    """Return the decisions or estimates of rows as the file's `how` says."""
    found = []
    for row in frame.to_dict("records"):
        score = content["intercept"]
        for column in content["columns"]:
            value = row[column["column"]]
            if column["kind"] == "text":
                value = "(missing)" if pd.isna(value) else value
                score += column["weights"].get(value, 0)
            elif np.isnan(value):
                score += column["missing"]
            else:
                score += column["weight"] * (value - column["mean"]) / column["scale"]
        if "estimate" in content["how"]:
            low, high = content.get("range", [None, None])
            found.append(min(max(score, low), high) if "range" in content else score)
            continue
        own = {
            name for name, parts in content.get("slices", {}).items() if all(map(holds(row), parts))
        }
        groups = [each for each in content.get("groups", []) if set(each["slices"]) == own]
        found.append(int(score > (groups[0]["threshold"] if groups else 0)))
    return np.array(found)


def holds(row):
    def check(condition):
        if "any" in condition:
            return any(map(check, condition["any"]))
        value, values = row[condition["column"]], condition["values"]
        compare = {
            "=": lambda: value in values,
            "!=": lambda: value not in values,
            ">=": lambda: value >= values[0],
        }
        return not pd.isna(value) and compare[condition["is"]]()

    return check


@pytest.mark.parametrize("name", named(BY_JSON))
def test_json(name):
    classifier = classifier_of(name)
    content = json.loads(FORMATS["json"][1](stored(classifier)))
    assert content["model"] == "mine-seed=0, variant deterministic"
    assert (json_outputs(content, FRAME) == classifier.decide(inputs(classifier))).all()


@pytest.mark.filterwarnings("ignore:Found unknown categories")
@pytest.mark.parametrize("limits", [(-np.inf, np.inf), (-1.0, 2.5)])
def test_regressors(limits):
    pytest.importorskip("onnx")
    from skops.io import loads  # noqa: PLC0415

    model = LinearRegressor(WEIGHTS, 0.5, limits)
    known = pytest.approx(model.estimate(inputs(model)), abs=1e-12)
    assert json_outputs(json.loads(FORMATS["json"][1](stored(model))), FRAME) == known
    outputs = onnx_outputs(FORMATS["onnx"][1](stored(model)), FRAME)
    assert outputs == {"estimate": known}
    if np.isfinite(limits[0]):
        with pytest.raises(FaultError, match="a regression whose estimates have limits"):
            FORMATS["sklearn"][1](stored(model))
    else:
        found = loads(FORMATS["sklearn"][1](stored(model)), trusted=["numpy.dtype"])
        assert found.predict(FRAME) == known


def test_onnx_of_the_mean_of_regressors():
    pytest.importorskip("onnx")
    target = X @ WEIGHTS
    members = [
        ModelRegressor(
            convert_sklearn_trees(model.fit(X, target), ColumnLayout.numbers(WIDTH)), (-1.0, np.inf)
        )
        for model in (
            RandomForestRegressor(3, max_depth=4, random_state=0),
            HistGradientBoostingRegressor(max_iter=3, random_state=0),
        )
    ]
    mean = MixtureClassifier((*members, LinearRegressor(WEIGHTS, 0.5)), np.array([0.2, 0.5, 0.3]))
    found = onnx_outputs(FORMATS["onnx"][1](stored(mean)), FRAME)
    known = mean.estimate(inputs(mean))
    assert np.std(known) > 0.4
    assert found == {"estimate": pytest.approx(known, abs=1e-9)}


FILTER = ProxyFilter(SplitTree(WIDTH, np.full((1, 2), LEAF), ()), np.ones(1))
RANDOM = {
    "ramp": Ramp(WEIGHTS),
    "mixture": MixtureClassifier((LINE,), np.ones(1)),
    "hashed": HashedRamp(WEIGHTS),
    "filter": ProxyFilter(SplitTree(WIDTH, np.full((1, 2), LEAF), ()), np.ones(1)),
    "dates": by_group(LINE, ("sex > 2024-05",), [[1], [0]], [0.5, 0.0]),
}
REFUSED = [
    (
        "ramp",
        "json sklearn onnx",
        "represent random decisions. use `ratecli predict`; `randomize: false`",
    ),
    ("mixture", "json sklearn onnx", "random decisions"),
    ("hashed", "json sklearn onnx", "decisions by a hash of each row"),
    ("filter", "json sklearn onnx", "a filter"),
    ("vote", "json sklearn", "a vote of 3 models. json is for linear models"),
    ("forest", "json sklearn", "trees"),
    ("groups of sets", "json sklearn", "trees with a threshold for each group"),
    ("labels and groups", "json sklearn", "a model of labels and groups together"),
    ("bayes", "json", "a GaussianNB"),
    ("columns", "sklearn", "thresholds of groups of several columns or of ranges"),
    ("dates", "onnx", "a comparison of dates or codes"),
    ("svm", "onnx", "a SVC, which skl2onnx does not convert exactly"),
]


@pytest.mark.parametrize(("name", "forms", "message"), REFUSED)
def test_what_a_format_cannot_represent_is_refused(name, forms, message):
    pytest.importorskip("skl2onnx")
    classifier = RANDOM.get(name) or classifier_of(name)
    for form in forms.split():
        with pytest.raises(FaultError) as error:
            FORMATS[form][1](stored(classifier))
        (fault,) = error.value.faults
        assert fault.code == "E104"
        assert f"{fault.message}. {fault.help}".startswith(f"--format {form} cannot represent ")
        assert message in f"{fault.message}. {fault.help}"


@pytest.mark.parametrize("package", ["onnx", "skl2onnx"])
def test_a_missing_package_is_named(package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(export, "load_applicable_model", lambda *_: stored(classifier_of("bayes")))
    with pytest.raises(FaultError, match=f"E202: ONNX files need {package}, which is not inst"):
        export.export_model(tmp_path, "onnx")
