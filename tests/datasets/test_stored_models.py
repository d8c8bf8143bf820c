"""Stored models of other libraries score a table's rows as their library does."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from entries import load_entry_table, table_digest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_selection import SelectFromModel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from skops.io import dump

from ratecli.errors import FaultError

ENTRY = {"path": "t.csv", "label": "y", "missing": "mean"}
NAMES = ["a", "two words", "code", "level", "b"]


def table(n: int = 400) -> pd.DataFrame:
    """Numbers with gaps, a category of words with gaps, one of numbers, an ordered one."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=n).round(2), rng.integers(5, size=n)
    words = rng.choice(np.array(["x", "ü", "z z", None], dtype=object), n)
    code, level = rng.choice([3, 7, 9], n), rng.choice(["high", "low", "mid"], n)
    chance = 1 / (1 + np.exp(-a - (words == "ü") + (code == 7) - (level == "low")))
    y = (rng.random(n) < chance).astype(int)
    a[rng.random(n) < 0.1] = np.nan
    columns = dict(zip(NAMES, (a, words, code, level, b), strict=True))
    return pd.DataFrame(columns | {"y": y})


def as_trained(ordered: bool = True) -> pd.DataFrame:
    """Return the features with categories as pandas has them."""
    frame = table()[NAMES]
    frame["two words"] = pd.Categorical(frame["two words"])
    frame["code"] = pd.Categorical(frame["code"])
    frame["level"] = pd.Categorical(frame["level"], ["low", "mid", "high"], ordered=ordered)
    return frame


def write_lightgbm(path: Path, **options: Any) -> np.ndarray:
    frame = as_trained(options.pop("ordered", True))
    model = lightgbm.LGBMClassifier(n_estimators=9, min_child_samples=5, verbosity=-1, n_jobs=1)
    model.set_params(**options).fit(frame, table().y)
    model.booster_.save_model(path)
    return model.predict_proba(frame)[:, 1]


def write_xgboost(path: Path, **options: Any) -> np.ndarray:
    frame = as_trained(ordered=False)
    model = xgboost.XGBClassifier(n_estimators=9, max_depth=4, enable_categorical=True, n_jobs=1)
    model.set_params(**options).fit(frame, table().y)
    model.save_model(path)
    return model.predict_proba(frame)[:, 1]


def write_skops(path: Path, last: Any, *, alone: bool = False) -> np.ndarray:
    rows = table()
    steps = [
        (SimpleImputer(), ["a", "b"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["two words", "level"]),
    ]
    model = last if alone else make_pipeline(make_column_transformer(*steps), last)
    frame = rows[["b", "code"] if alone else NAMES]
    model.fit(frame, np.where(rows.y == 1, "yes", "no"))
    dump(model, path)
    return model.predict_proba(frame)[:, 1]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    table().to_csv(tmp_path / "t.csv", index=False)
    return tmp_path


def scores(base: Path, file: str, **more: Any) -> np.ndarray:
    frame = load_entry_table({**ENTRY, "scores": {"s": file}, **more}, base).frame
    return frame["s"].to_numpy()


@pytest.mark.parametrize(
    "options",
    [{}, {"ordered": False}, {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}],
)
def test_lightgbm(base, options):
    wanted = write_lightgbm(base / "m.txt", **options)
    np.testing.assert_allclose(scores(base, "m.txt"), wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "options", [{}, {"booster": "dart", "rate_drop": 0.3}, {"max_cat_to_onehot": 1}]
)
def test_xgboost(base, options):
    wanted = write_xgboost(base / "m.json", **options)
    np.testing.assert_allclose(scores(base, "m.json"), wanted, rtol=0, atol=1e-6)


def test_lightgbm_takes_new_and_missing_categories_as_it_does(base):
    """Its library takes categories not seen in training as missing."""
    write_lightgbm(base / "m.txt", ordered=False)
    rows = table()
    rows.loc[::3, "two words"], rows.loc[::4, "code"] = "new", 8
    rows.to_csv(base / "t.csv", index=False)
    given = as_trained(ordered=False)
    for name in ("two words", "code"):
        known = given[name].cat.categories
        given[name] = pd.Categorical(rows[name].where(rows[name].isin(known)), known)
    wanted = lightgbm.Booster(model_file=base / "m.txt").predict(given)
    np.testing.assert_allclose(scores(base, "m.txt"), wanted, rtol=0, atol=1e-14)


def test_lightgbm_takes_codes_of_categories(base):
    """Without pandas there are no words for categories; codes it does not know are missing."""
    frame = table()[["code", "b"]]
    model = lightgbm.LGBMClassifier(n_estimators=9, min_child_samples=5, verbosity=-1, n_jobs=1)
    names = {"feature_name": ["code", "b"], "categorical_feature": [0, 1]}
    model.fit(frame.to_numpy(), table().y, **names)
    model.booster_.save_model(base / "m.txt")
    rows = table().assign(code=table().code.where(table().index % 3 > 0, 70))
    rows.to_csv(base / "t.csv", index=False)
    wanted = model.booster_.predict(rows[["code", "b"]].to_numpy())
    np.testing.assert_allclose(scores(base, "m.txt"), wanted, rtol=0, atol=1e-14)


def test_xgboost_takes_codes_of_categories(base):
    """Before 3.1, files do not say what the codes of categories stand for."""
    frame, kinds = table()[["code", "b"]], ["c", "c"]
    model = xgboost.XGBClassifier(n_estimators=9, enable_categorical=True, feature_types=kinds)
    model.fit(frame.to_numpy(), table().y)
    model.get_booster().feature_names = ["code", "b"]
    model.save_model(base / "m.json")
    rows = table().assign(code=table().code.where(table().index % 3 > 0, 70))
    rows.to_csv(base / "t.csv", index=False)
    wanted = model.predict_proba(rows[["code", "b"]].to_numpy())[:, 1]
    np.testing.assert_allclose(scores(base, "m.json"), wanted, rtol=0, atol=1e-6)


def test_leading_zeros_tell_categories_apart(base):
    code = np.where(table().code == 3, "01", "1")
    rows = table().assign(code=code, y=lambda own: np.where(own.index % 5, code == "01", own.y))
    rows.to_csv(base / "t.csv", index=False)
    model = lightgbm.LGBMClassifier(n_estimators=5, verbosity=-1, min_data_per_group=1)
    given = pd.DataFrame({"code": pd.Categorical(code), "b": rows.b})
    model.fit(given, rows.y).booster_.save_model(base / "m.txt")
    wanted = model.predict_proba(given)[:, 1]
    found = scores(base, "m.txt", categorical=["code"])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)
    assert len(set(found[rows.b == 1])) == 2


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    "last",
    [
        LogisticRegression(),
        MLPClassifier(max_iter=300, tol=1e-2),
        DecisionTreeClassifier(max_depth=5),
        ExtraTreesClassifier(9, max_depth=5),
        HistGradientBoostingClassifier(max_iter=9),
        RandomForestClassifier(9, max_depth=5),
    ],
    ids=lambda model: type(model).__name__,
)
def test_skops(base, last, alone):
    wanted = write_skops(base / "m.skops", clone(last), alone=alone)
    np.testing.assert_allclose(scores(base, "m.skops"), wanted, rtol=0, atol=1e-12)


def test_skops_of_other_models(base):
    write_skops(base / "m.skops", GradientBoostingClassifier(n_estimators=2))
    assert "trees of GradientBoostingClassifier cannot be checked" in fault(base, "m.skops")
    selected = SelectFromModel(DecisionTreeClassifier())
    write_skops(base / "m.skops", make_pipeline(selected, RandomForestClassifier(2)))
    assert "trees of Pipeline cannot be checked" in fault(base, "m.skops")
    dump(
        make_pipeline(selected, RandomForestClassifier(2)).fit(table()[["b"]], table().y),
        base / "m.skops",
    )
    assert "not trusted: sklearn.tree._tree.Tree" in fault(base, "m.skops")
    dump(LogisticRegression().fit(table()[["b"]], table().level), base / "m.skops")
    assert "it has 3 classes, not two" in fault(base, "m.skops")
    dump(LogisticRegression().fit(table()[["b"]].to_numpy(), table().y), base / "m.skops")
    assert "its columns have no names" in fault(base, "m.skops")
    dump(LinearSVC().fit(table()[["b"]], table().y), base / "m.skops")
    assert "does not return probabilities" in fault(base, "m.skops")
    dump(LinearRegression().fit(table()[["b"]], table().y), base / "m.skops")
    assert "no classifier of scikit-learn" in fault(base, "m.skops")
    write_skops(base / "m.skops", LogisticRegression())
    table().drop(columns="b").to_csv(base / "t.csv", index=False)
    assert fault(base, "m.skops").startswith("E205 the model needs a column 'b'")
    table().assign(b="w").to_csv(base / "t.csv", index=False)
    assert "it does not accept the table" in fault(base, "m.skops")
    (base / "m.skops").write_bytes(b"PK")
    assert fault(base, "m.skops").startswith("E404")


def test_the_digest_changes_with_the_model(base):
    write_lightgbm(base / "m.txt")
    options = {**ENTRY, "scores": {"s": "m.txt"}}
    read = load_entry_table(options, base)
    assert read.digest == table_digest(options, base)
    assert "s" not in read.features
    assert [name for name, _ in read.files] == ["t.csv", "m.txt"]
    write_lightgbm(base / "m.txt", n_estimators=3)
    assert read.digest != table_digest(options, base)


def fault(base: Path, file: str, **more: Any) -> str:
    with pytest.raises(FaultError) as caught:
        scores(base, file, **more)
    (found,) = caught.value.faults
    assert found.loc == ("scores", "s")
    assert found.help
    return f"{found.code} {found.message}"


def test_columns_and_values_that_a_model_does_not_take(base):
    write_lightgbm(base / "m.txt")
    write_xgboost(base / "m.json")
    rows = table()
    rows.drop(columns="b").to_csv(base / "t.csv", index=False)
    for file in ("m.txt", "m.json"):
        assert fault(base, file).startswith("E205 the model needs a column 'b'")
    rows.assign(level="huge").to_csv(base / "t.csv", index=False)
    assert fault(base, "m.json").startswith("E411 the model knows no category 'huge' of column 'le")
    rows.assign(b="w").to_csv(base / "t.csv", index=False)
    assert fault(base, "m.txt").startswith("E404 'm.txt' has no model that can be evaluated: ")
    assert fault(base, "m.json").startswith("E411 the model takes numbers in column 'b', not text")


def test_models_that_are_no_classifiers_of_two_classes(base):
    write_lightgbm(base / "m.txt", objective="regression")
    assert "it predicts numbers" in fault(base, "m.txt")
    frame = as_trained()
    model = lightgbm.LGBMClassifier(n_estimators=2, verbosity=-1, n_jobs=1).fit(frame, table().b)
    model.booster_.save_model(base / "m.txt")
    assert fault(base, "m.txt") == (
        "E404 'm.txt' has no model that can be evaluated: it has 5 classes, not two"
    )


def changed_json(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    def write(content: bytes) -> bytes:
        model = json.loads(content)
        change(model["learner"])
        return json.dumps(model).encode()

    return write


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("m.txt", lambda content: content[:900]),
        ("m.txt", lambda content: content.replace(b"feature_infos=", b"feature_infos=1:x ")),
        ("m.txt", lambda content: content.replace(b" -1:", b" -1:99999999999:")),
        (
            "m.txt",
            lambda content: content.replace(b"pandas_categorical:[", b"pandas_categorical:[[],"),
        ),
        (
            "m.txt",
            lambda content: content.replace(b"pandas_categorical:[", b"pandas_categorical:{["),
        ),
        ("m.txt", lambda _: b"tree\n" + b"\xff" * 9),
        ("m.json", lambda content: content[:-9]),
        ("m.json", lambda _: b"[" * 10**5),
        ("m.json", lambda _: b"[3]"),
        ("m.json", changed_json(lambda learner: learner.update(feature_names=[]))),
        ("m.json", changed_json(lambda learner: learner.update(feature_names=[[]] * 5))),
        ("m.json", changed_json(lambda learner: learner.update(feature_types=["c"]))),
    ],
)
def test_broken_files_are_one_message(base, file, change):
    write_lightgbm(base / "m.txt")
    write_xgboost(base / "m.json")
    content = (base / file).read_bytes()
    (base / file).write_bytes(change(content))
    assert (base / file).read_bytes() != content
    assert fault(base, file).startswith(f"E404 '{file}' has no model that can be evaluated: ")


def plain_table(base: Path) -> pd.DataFrame:
    """Write and return numbers and words without gaps."""
    rng = np.random.default_rng(0)
    a, b, word = rng.normal(size=300), rng.integers(5, size=300), rng.choice(["x", "y y"], 300)
    y = (rng.random(300) < 1 / (1 + np.exp(-a - (word == "x")))).astype(int)
    rows = pd.DataFrame({"a": a, "b": b, "word": word, "y": y})
    rows.to_csv(base / "t.csv", index=False)
    return rows


def write_onnx(base: Path, model: Any, inputs: list[tuple[str, str, int]], *, zipmap: bool) -> None:
    pytest.importorskip("onnxruntime")
    skl2onnx = pytest.importorskip("skl2onnx")
    types = skl2onnx.common.data_types
    named = [
        (name, getattr(types, f"{kind}TensorType")([None, width])) for name, kind, width in inputs
    ]
    options = {id(model): {"zipmap": zipmap}}
    found = skl2onnx.to_onnx(model, initial_types=named, options=options)
    (base / "m.onnx").write_bytes(found.SerializeToString())


@pytest.mark.parametrize("zipmap", [False, True])
def test_onnx_with_an_input_for_each_column(base, zipmap):
    rows = plain_table(base)
    columns = [(OneHotEncoder(), ["word"]), (StandardScaler(), ["a"]), (StandardScaler(), ["b"])]
    model = make_pipeline(make_column_transformer(*columns), LogisticRegression())
    model.fit(rows, rows.y)
    inputs = [("word", "String", 1), ("b", "Int64", 1), ("a", "Float", 1)]
    write_onnx(base, model, inputs, zipmap=zipmap)
    wanted = model.predict_proba(rows)[:, 1]
    np.testing.assert_allclose(scores(base, "m.onnx"), wanted, rtol=0, atol=1e-6)
    for name in ("b", "word"):
        gaps = rows.assign(**{name: rows[name].where(rows.index != 4)})
        gaps.to_csv(base / "t.csv", index=False)
        found = fault(base, "m.onnx")
        assert found.startswith(f"E407 column '{name}' has no value in row 5")
    rows.drop(columns="a").to_csv(base / "t.csv", index=False)
    assert fault(base, "m.onnx").startswith("E205 the model needs a column 'a'")
    rows.assign(a="w").to_csv(base / "t.csv", index=False)
    assert "it takes numbers in column 'a', which holds text" in fault(base, "m.onnx")


def test_onnx_with_one_input_for_all_features(base):
    rows = plain_table(base)
    model = LogisticRegression().fit(rows[["b", "a"]].to_numpy(), rows.y)
    write_onnx(base, model, [("X", "Float", 2)], zipmap=False)
    wanted = model.predict_proba(rows[["b", "a"]].to_numpy())[:, 1]
    found = scores(base, "m.onnx", features=["b", "a"])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    assert "it takes 2 columns without names, not 3" in fault(base, "m.onnx")


def test_onnx_files_that_are_no_classifiers(base):
    rows = plain_table(base)
    model = LogisticRegression().fit(rows[["a", "b"]].to_numpy(), rows.b)
    write_onnx(base, model, [("X", "Float", 2)], zipmap=False)
    assert "not the probabilities of two classes" in fault(base, "m.onnx", features=["b", "a"])
    (base / "m.onnx").write_bytes(b"onnx")
    assert "E404 'm.onnx' has no model that can be evaluated: it is no ONNX model" in fault(
        base, "m.onnx"
    )


def test_onnxruntime_is_optional(base, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (base / "m.onnx").write_bytes(b"onnx")
    assert fault(base, "m.onnx") == "E202 ONNX models need onnxruntime, which is not installed"
