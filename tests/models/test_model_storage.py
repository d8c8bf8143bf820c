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
from ratecli.models.storage import dumps, loads
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
@settings(max_examples=25)
def test_stored_classifier_round_trips_exactly(model: Classifier) -> None:
    assert same(loads(dumps(model)), model)
    with zipfile.ZipFile(io.BytesIO(dumps(model))) as stored:
        assert {entry.date_time for entry in stored.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def archive(model: object, /, **numbers: object) -> bytes:
    """A file with a model as JSON, and with the numbers 1, 2, ... for its arrays."""
    buffer = io.BytesIO()
    text = np.asarray(json.dumps(model).encode())
    np.savez(buffer, **{"model": text, "float64": np.arange(1.0, 7.0)} | numbers)  # type: ignore[arg-type]
    return buffer.getvalue()


ONES = np.ones(2)
RAMP = {"kind": "Ramp", "weights": [0, 2], "bias": 0.0}
ESTIMATE = {"kind": "LinearRegressor", "weights": [0, 2], "bias": 0.0}
MIXTURE = {"kind": "MixtureClassifier", "chances": [0, 1]}


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"some text",
        pickle.dumps(RAMP),
        archive(None),
        archive("Ramp"),
        archive({}),
        *(archive({k: v for k, v in RAMP.items() if k != gone}) for gone in RAMP),
        archive(RAMP | {"kind": "forest"}),
        archive(RAMP | {"kind": "ColumnLayout", "levels": [0, 0]}),
        archive(RAMP, model=np.array([RAMP], dtype=object)),
        archive(RAMP, float64=np.array([object(), object()])),
        archive(RAMP, float64=1j * ONES),
        archive(RAMP, float64=np.ones((2, 1))),
        archive(RAMP, float64=np.ones(1)),
        archive(RAMP | {"weights": [-1, 2]}),
        archive(RAMP | {"weights": [0.0, 2]}),
        archive(RAMP | {"weights": 0}),
        archive(RAMP | {"bias": "1"}),
        archive(RAMP | {"bias": True}),
        archive(RAMP | {"bias": float("nan")}),
        archive(ESTIMATE),
        archive(ESTIMATE | {"range": [1.0, 2.0, 3.0]}),
        archive(ESTIMATE | {"range": [1.0, 0.0]}),
        archive(ESTIMATE | {"range": [float("nan"), 0.0]}),
        archive(RAMP | {"kind": "HashedRamp", "salt": 1.0}),
        archive(MIXTURE | {"members": RAMP}),
        archive(MIXTURE | {"members": [RAMP], "chances": [1, 1]}),
        archive(MIXTURE | {"members": [RAMP, RAMP]}),
        archive(MIXTURE | {"members": [RAMP, RAMP | {"weights": [0, 3]}], "chances": [4, 2]}),
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


def changed(model: Classifier, path: str, value: object) -> bytes:
    """The stored model with another value in its JSON; an array is stored at the end."""
    with np.load(io.BytesIO(dumps(model))) as stored:
        numbers = {"float64": np.zeros(0)} | dict(stored)
    text = json.loads(numbers.pop("model").item())
    *inside, last = (int(key) if key.isdigit() else key for key in path.split("."))
    at = text
    for key in inside:
        at = at[key]
    if isinstance(value, np.ndarray):
        before = numbers.get(value.dtype.name, value[:0].ravel())
        numbers[value.dtype.name] = np.append(before, value)
        value = [len(before), *value.shape]
    assert at[last] != value
    at[last] = value
    return archive(text, **numbers)


@pytest.mark.parametrize(
    ("model", "path", "value"),
    [
        (GROUPS, "groups", GROUPS.groups[:2]),
        (GROUPS, "slices", [1.0, 2.0]),
        (GROUPS, "slices", "sex"),
        (GROUPS, "slices", ["sex = F"]),
        (GROUPS, "thresholds", np.array([1.0, 2.0])),
        (GROUPS, "scorer.kind", "forest"),
        (GROUPS, "scorer.kind", "GroupThreshold"),
        (BY_TREE, "chances.kind", "Threshold"),
        (BY_TREE, "chances.column", np.full(3, 2**40)),
        (BY_TREE, "chances.layout.levels", np.ones((2, 1), dtype=int)),
        (BY_TREE, "chances.rounded", 1),
        (BY_TREE, "costs", np.ones(3)),
        (BY_TREE, "cut", "0"),
        (BY_GUESS, "proxy.groups", np.array([[0, 1], [1, 2], [0, 2]])),
        (BY_GUESS, "proxy.groups", np.array([0, 0])),
        (BY_GUESS, "proxy.noise", 2.0),
        (BY_SPLITS, "proxy.width", -4),
        (BY_SPLITS, "proxy.children", np.full((5, 2), 2**62)),
        (BY_SPLITS, "proxy.kind", "oracle"),
        (BY_SPLITS, "proxy.splits.0.chances", np.array([0.5, np.nan])),
        (BY_SPLITS, "keep", np.array([0.1])),
    ],
)
def test_inconsistent_parts_raise_value_error(model, path, value) -> None:
    with pytest.raises(ValueError):
        loads(changed(model, path, value))


def test_handmade_archive_is_read() -> None:
    ramp = {"kind": "Ramp", "weights": [1, 2], "bias": -1}
    model = loads(archive(MIXTURE | {"members": [ramp]}))
    assert same(model, MixtureClassifier((Ramp(np.array([2.0, 3.0]), -1.0),), np.ones(1)))


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


def test_embedded_pickle_is_not_loaded() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive(RAMP))) as old, zipfile.ZipFile(buffer, "w") as file:
        file.writestr("model.npy", old.read("model.npy"))
        file.writestr("float64.npy", pickle.dumps(_Trap()))
    objects = archive(RAMP, float64=np.array([_Trap()], dtype=object))
    for blob in (pickle.dumps(_Trap()), buffer.getvalue(), objects):
        with pytest.raises(ValueError):
            loads(blob)


INNER = MixtureClassifier((Threshold(ONES), Logistic(ONES)), np.array([0.25, 0.75]))
BLOB = dumps(MixtureClassifier((Ramp(np.arange(2.0)), INNER), np.array([0.5, 0.5])))
PLACES = st.integers(0, len(BLOB) - 1)


@given(st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=6), PLACES)
@settings(max_examples=40)
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
    fitted = {"kind": "SklearnModel", "model": [0, len(blob)]}
    model = {"kind": "CostSensitiveClassifier", "costs": [0, 2], "cut": 0.0, "chances": fitted}
    return archive(model, float64=ARGMAX_COSTS, uint8=np.frombuffer(blob, dtype=np.uint8))


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
    for other in (GaussianNB(), {"a": 1}):
        with pytest.raises(ValueError, match="not a fitted classifier"):
            loads(stored_skops(dump_skops(other)))
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
