import io
import json
import pickle
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import sklearn
import skops.io
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from ratecli.models.base import Classifier
from ratecli.models.composed import (
    ARGMAX_COSTS,
    CostSensitiveClassifier,
    GroupThreshold,
    HashedMixture,
    HashedRamp,
    MajorityVote,
    MixtureClassifier,
)
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import LinearRegressor, Logistic, Ramp, RandomizedLogistic, Threshold
from ratecli.models.probabilities import SklearnModel, dump_skops, load_skops
from ratecli.models.proxies import ClassifierProxy, ProxyFilter, SampledFilter, SplitTree
from ratecli.models.storage import dumps, loads, model_arrays
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble

ANY = st.floats(allow_nan=False, allow_infinity=False)


def _plain(width: int) -> st.SearchStrategy[Classifier]:
    weights = arrays.arrays(np.float64, width, elements=ANY)
    kinds = st.sampled_from([Threshold, Logistic, Ramp, RandomizedLogistic])
    plain = st.builds(lambda kind, weights, bias: kind(weights, bias), kinds, weights, ANY)
    ends = st.tuples(ANY, ANY).map(lambda pair: (min(pair), max(pair)))
    numbers = st.builds(LinearRegressor, weights, ANY, ends | st.just((-np.inf, np.inf)))
    return plain | numbers | st.builds(HashedRamp, weights, ANY, st.integers(0, 2**64 - 1))


def _mixed(parts: st.SearchStrategy[Classifier]) -> st.SearchStrategy[Classifier]:
    def even(members: list[Classifier], kind: type[MixtureClassifier]) -> MixtureClassifier:
        return kind(tuple(members), np.full(len(members), 1 / len(members)))

    kinds = st.sampled_from([MixtureClassifier, MajorityVote, HashedMixture])
    return st.builds(even, st.lists(parts, min_size=1, max_size=12), kinds)


MODELS = st.integers(0, 4).flatmap(lambda width: st.recursive(_plain(width), _mixed, max_leaves=15))


def same(one: Classifier, other: Classifier) -> bool:
    return type(one) is type(other) and dumps(one) == dumps(other)


@given(MODELS)
@settings(max_examples=60)
def test_stored_classifier_round_trips_exactly(model: Classifier) -> None:
    arrays, again = model_arrays(model), model_arrays(loads(dumps(model)))
    assert list(arrays) == list(again)
    assert all(each.tobytes() == again[name].tobytes() for name, each in arrays.items())
    assert same(loads(dumps(model)), model)
    with zipfile.ZipFile(io.BytesIO(dumps(model))) as stored:
        assert {entry.date_time for entry in stored.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def archive(**members: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **members)  # type: ignore[arg-type]
    return buffer.getvalue()


ONES = np.ones(2)
MEMBER = {"0.kind": "ramp", "0.weights": ONES, "0.bias": 0.0}
STACK = {
    "stacked.kind": ["ramp", "threshold"],
    "stacked.weights": np.ones((2, 3)),
    "stacked.bias": np.arange(2.0),
}
WIDER = {"1.kind": "ramp", "1.weights": np.ones(3), "1.bias": 0.0}


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"some text",
        pickle.dumps({"kind": "ramp"}),
        archive(),
        archive(weights=ONES, bias=0.0),
        archive(kind="ramp", bias=0.0),
        archive(kind="ramp", weights=ONES),
        archive(kind="forest", weights=ONES, bias=0.0),
        archive(kind="ramp", weights=np.array([object()]), bias=0.0),
        archive(kind=np.array({"a": print}), weights=ONES, bias=0.0),
        archive(kind="ramp", weights=np.ones((2, 2)), bias=0.0),
        archive(kind="ramp", weights=np.array(["1"]), bias=0.0),
        archive(kind="ramp", weights=1j * ONES, bias=0.0),
        archive(kind="ramp", weights=ONES, bias=ONES),
        archive(kind="estimate", weights=ONES, bias=0.0),
        archive(kind="estimate", weights=ONES, bias=0.0, range=np.ones(3)),
        archive(kind="estimate", weights=ONES, bias=0.0, range=np.array([1.0, 0.0])),
        archive(kind="estimate", weights=ONES, bias=0.0, range=np.array([np.nan, 0.0])),
        archive(kind="hashed_ramp", weights=ONES, bias=0.0, salt=1.0),
        archive(kind="mixture", chances=1.0, **MEMBER),
        archive(kind="mixture", chances=np.array([0.5]), **MEMBER),
        archive(kind="mixture", chances=np.array([0.5, 0.5]), **MEMBER),
        archive(kind="mixture", chances=np.array([0.5, 0.5]), **MEMBER, **WIDER),
        archive(
            kind="mixture", chances=np.array([0.5, 0.5]), **STACK | {"stacked.bias": np.ones(3)}
        ),
        archive(kind="mixture", chances=np.array([0.5, 0.5]), **STACK | {"stacked.bias": 0.0}),
        archive(kind="mixture", chances=np.ones(1), **STACK),
    ],
)
def test_invalid_files_raise_value_error(blob: bytes) -> None:
    with pytest.raises(ValueError):
        loads(blob)


WIDTH = 3
ROWS = np.random.default_rng(5).normal(size=(60, WIDTH + 2))
ROWS[:, WIDTH:] = ROWS[:, WIDTH:] > 0
LABELS = (ROWS[:, 0] > 0).astype(int)
LINE = np.array([1.0, -1.0, 0.5])
GROUPS = GroupThreshold(
    Logistic(LINE, 0.5),
    ("sex = F", "age >= 60, sex = F"),
    np.array([[False, False], [True, False], [True, True]]),
    np.array([1.0, 0.0, -2.0]),
)
ONE_GROUP = GroupThreshold(Threshold(LINE), (), np.zeros((1, 0), dtype=bool), np.zeros(1))
TREE = TreeEnsemble(
    layout=ColumnLayout.numbers(WIDTH),
    roots=np.array([0]),
    column=np.array([0, LEAF, LEAF]),
    threshold=np.zeros(3),
    children=np.array([[1, 2], [0, 0], [0, 0]]),
    missing_second=np.zeros(3, dtype=bool),
    set_at=np.full(3, NO_SET),
    sets=np.zeros(0, dtype=bool),
    values=np.array([[0.0, 0.0], [0.8, 0.2], [0.1, 0.9]]),
    start=np.zeros(2),
)
BY_TREE = CostSensitiveClassifier(TREE, np.array([1.0, -1.0]), 0.5)
FITTED = SklearnModel(GaussianNB().fit(ROWS[:, :WIDTH], LABELS))
SPLITS = SplitTree(
    WIDTH,
    np.array([[1, 2], [LEAF, LEAF], [3, 4], [LEAF, LEAF], [LEAF, LEAF]]),
    (MixtureClassifier((Threshold(LINE), Ramp(LINE)), np.array([0.25, 0.75])), Threshold(LINE)),
)
GUESS = ClassifierProxy(TREE, np.array([0, 1]), 0.25)
BY_SPLITS = ProxyFilter(SPLITS, np.array([0.1, 0.0, 1.0]))
BY_GUESS = ProxyFilter(GUESS, np.array([0.1, 1.0]))


@pytest.mark.parametrize(
    "model",
    [
        GROUPS,
        ONE_GROUP,
        MixtureClassifier((GROUPS, GROUPS), np.array([0.25, 0.75])),
        BY_TREE,
        CostSensitiveClassifier(FITTED, np.array([1.0, -1.0])),
        BY_SPLITS,
        BY_GUESS,
        SampledFilter(GUESS, np.array([0.1, 1.0]), salt=7),
    ],
)
def test_composed_models_round_trip(model) -> None:
    again = loads(dumps(model))
    assert type(again) is type(model)
    assert dumps(again) == dumps(model)
    assert (again.width, again.slices) == (model.width, model.slices)
    X = ROWS[:, : model.width + len(model.slices)]
    np.testing.assert_array_equal(again.score(X), model.score(X))
    np.testing.assert_array_equal(again.decide(X), model.decide(X))


@pytest.mark.parametrize(
    ("model", "changed"),
    [
        (GROUPS, {"groups": GROUPS.groups[:2]}),
        (GROUPS, {"groups": GROUPS.groups[:, :1]}),
        (GROUPS, {"groups": GROUPS.groups.astype(float)}),
        (GROUPS, {"slices": np.array([1.0, 2.0])}),
        (GROUPS, {"slices": np.array([["sex = F", "sex = M"]])}),
        (GROUPS, {"thresholds": np.array(["1", "2", "3"])}),
        (GROUPS, {"scorer.kind": np.asarray("forest")}),
        (GROUPS, {"scorer.kind": np.asarray("group_threshold")}),
        (BY_TREE, {"chances.kind": np.array("forest")}),
        (BY_TREE, {"chances.kind": np.array("trees")}),
        (BY_TREE, {"chances.column": np.zeros(3)}),
        (BY_TREE, {"chances.layout.levels": np.ones(2)}),
        (BY_TREE, {"costs": np.ones(3)}),
        (BY_TREE, {"cut": np.ones(1)}),
        (BY_GUESS, {"proxy.groups": np.array([[0, 1], [1, 2], [0, 2]])}),
        (BY_GUESS, {"proxy.groups": np.array([0, 0])}),
        (BY_GUESS, {"proxy.groups": np.array([0, 2**64 - 1], dtype=np.uint64)}),
        (BY_GUESS, {"proxy.groups": np.zeros((0,), dtype=int), "keep": np.zeros(0)}),
        (BY_GUESS, {"proxy.noise": np.array(1j)}),
        (BY_GUESS, {"proxy.chances.start": np.zeros((3, 2))}),
        (BY_GUESS, {"proxy.chances.roots": np.zeros((1, 1), dtype=int)}),
        (BY_SPLITS, {"proxy.children": np.full((1, 2), LEAF), "proxy.width": np.array(-4)}),
        (BY_SPLITS, {"proxy.children": np.zeros((3, 0), dtype=int)}),
        (BY_SPLITS, {"proxy.children": np.full((5, 2), 2**62)}),
        (BY_SPLITS, {"proxy.kind": np.array("oracle")}),
        (BY_SPLITS, {"proxy.0.chances": np.array([0.5, np.nan])}),
        (BY_SPLITS, {"keep": np.array([0.1])}),
    ],
)
def test_inconsistent_arrays_raise_value_error(model, changed) -> None:
    arrays = model_arrays(model)
    assert dumps(loads(archive(**arrays))) == dumps(model)
    with pytest.raises(ValueError):
        loads(archive(**arrays | changed))
    with pytest.raises(ValueError):
        loads(archive(**{name: each for name, each in arrays.items() if name not in changed}))


def test_handmade_archive_is_read() -> None:
    model = loads(archive(kind="mixture", chances=np.array([1.0]), **MEMBER))
    assert same(model, MixtureClassifier((Ramp(np.ones(2), 0.0),), np.array([1.0])))
    ramp, threshold = loads(archive(kind="vote", chances=np.full(2, 0.5), **STACK)).members
    assert same(ramp, Ramp(np.ones(3), 0.0))
    assert same(threshold, Threshold(np.ones(3), 1.0))


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


def test_embedded_pickle_is_not_loaded() -> None:
    buffer = io.BytesIO(archive(kind="ramp", bias=0.0))
    with zipfile.ZipFile(buffer, "a") as file:
        file.writestr("weights.npy", pickle.dumps(_Trap()))
    objects = archive(kind="ramp", bias=0.0, weights=np.array([_Trap()], dtype=object))
    for blob in (pickle.dumps(_Trap()), buffer.getvalue(), objects):
        with pytest.raises(ValueError):
            loads(blob)


INNER = MixtureClassifier((Threshold(ONES), Logistic(ONES)), np.array([0.25, 0.75]))
BLOB = dumps(MixtureClassifier((Ramp(np.arange(2.0)), INNER), np.array([0.5, 0.5])))
PLACES = st.integers(0, len(BLOB) - 1)


@given(st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=6), PLACES)
@settings(max_examples=80)
def test_corrupt_bytes_raise_only_value_error(changes: list[tuple[int, int]], length: int) -> None:
    with pytest.raises(ValueError):
        loads(BLOB[:length])
    broken = bytearray(BLOB)
    for at, byte in changes:
        broken[at] = byte
    try:
        found = loads(bytes(broken))
    except ValueError:
        return
    assert same(found, loads(BLOB))


X = np.random.default_rng(0).normal(size=(60, 3)).round(1)
Y = (X[:, 0] * X[:, 1] > 0).astype(int)


def test_skops_bytes_do_not_depend_on_memory_addresses():
    models = (SklearnModel(GaussianNB().fit(X.copy(), Y.copy())) for _ in range(2))
    one, other = (dumps(CostSensitiveClassifier(model, ARGMAX_COSTS)) for model in models)
    assert one == other


def stored_skops(blob: bytes) -> bytes:
    arrays = {"kind": "weighed", "costs": ARGMAX_COSTS, "cut": 0.0, "chances.kind": "fitted"}
    return archive(**arrays, **{"chances.skops": np.frombuffer(blob, dtype=np.uint8)})


def rewritten(blob: bytes, change) -> bytes:
    """A skops file with another schema."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(blob)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data.decode()) if name == "schema.json" else data)
    return buffer.getvalue()


def test_untrusted_types_are_rejected():
    tree = DecisionTreeClassifier().fit(X, Y)
    with pytest.raises(ValueError, match=r"not trusted: sklearn.tree._tree.Tree"):
        dump_skops(tree)
    with pytest.raises(ValueError, match="not trusted"):
        load_skops(skops.io.dumps(tree))
    bayes = dump_skops(GaussianNB().fit(X, Y))
    trap = rewritten(bayes, lambda text: text.replace('"GaussianNB"', '"Popen"', 1).replace(
        '"sklearn.naive_bayes"', '"subprocess"', 1))  # fmt: skip
    with pytest.raises(ValueError, match=r"not trusted: subprocess.Popen"):
        load_skops(trap)
    with pytest.raises(ValueError, match="not trusted"):
        loads(stored_skops(trap))


def test_non_classifiers_and_other_versions_are_rejected():
    blob = dump_skops(GaussianNB().fit(X, Y))
    with pytest.raises(ValueError, match="not a fitted classifier"):
        load_skops(dump_skops(GaussianNB()))
    with pytest.raises(ValueError, match="not a fitted classifier"):
        load_skops(dump_skops({"a": 1}))
    version = json.dumps(json.dumps(sklearn.__version__))
    old = rewritten(blob, lambda text: text.replace(version, '"\\"0.1\\""'))
    with pytest.raises(ValueError, match=r"stored by scikit-learn 0\.1, but"):
        load_skops(old)


@pytest.mark.parametrize("seed", range(40))
def test_corrupt_schema_raises_only_value_error(seed):
    rng = np.random.default_rng(seed)

    def broken(text: str) -> str:
        letters = list(text)
        for _ in range(2):
            letters[rng.integers(len(letters))] = rng.choice(list('0123456789"{}[]:,aN'))
        return "".join(letters)

    with suppress(ValueError):
        loads(stored_skops(rewritten(dump_skops(GaussianNB().fit(X, Y)), broken)))


def test_equal_parts_are_loaded_once():
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1])
    bayes, other = SklearnModel(GaussianNB().fit(X, y)), SklearnModel(GaussianNB().fit(-X, y))
    members = tuple(
        CostSensitiveClassifier(chances, ARGMAX_COSTS * scale)
        for chances, scale in ((bayes, 1.0), (bayes, 2.0), (other, 1.0))
    )
    one, two, three = loads(dumps(MajorityVote(members, np.full(3, 1 / 3)))).members
    assert one.chances is two.chances
    assert one.chances is not three.chances
