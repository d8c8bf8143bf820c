"""ONNX models score a table's rows as the model that they were made of does."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from entries import load_entry_table
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ratecli.errors import FaultError

ENTRY = {"path": "t.csv", "label": "y", "scores": {"s": "m.onnx"}}


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, b, word = rng.normal(size=300), rng.integers(5, size=300), rng.choice(["x", "y y"], 300)
    y = (rng.random(300) < 1 / (1 + np.exp(-a - (word == "x")))).astype(int)
    rows = pd.DataFrame({"a": a, "b": b, "word": word, "y": y})
    rows.to_csv(tmp_path / "t.csv", index=False)
    return rows


def scores(base: Path, **more: Any) -> np.ndarray:
    return load_entry_table({**ENTRY, **more}, base).frame["s"].to_numpy()


def fault(base: Path, **more: Any) -> str:
    with pytest.raises(FaultError) as caught:
        scores(base, **more)
    (found,) = caught.value.faults
    assert found.loc == ("scores", "s")
    return f"{found.code} {found.message}"


def write(base: Path, model: Any, inputs: list[tuple[str, str, int]], *, zipmap: bool) -> None:
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
def test_an_input_for_each_column(tmp_path, table, zipmap):
    columns = [(OneHotEncoder(), ["word"]), (StandardScaler(), ["a"]), (StandardScaler(), ["b"])]
    model = make_pipeline(make_column_transformer(*columns), LogisticRegression())
    model.fit(table, table.y)
    inputs = [("word", "String", 1), ("b", "Int64", 1), ("a", "Float", 1)]
    write(tmp_path, model, inputs, zipmap=zipmap)
    wanted = model.predict_proba(table)[:, 1]
    np.testing.assert_allclose(scores(tmp_path), wanted, rtol=0, atol=1e-6)
    for name in ("b", "word"):
        gaps = table.assign(**{name: table[name].where(table.index != 4)})
        gaps.to_csv(tmp_path / "t.csv", index=False)
        found = fault(tmp_path, missing="mean")
        assert found.startswith(f"E407 column '{name}' has no value in row 5")
    table.drop(columns="a").to_csv(tmp_path / "t.csv", index=False)
    assert fault(tmp_path).startswith("E205 the model needs a column 'a'")
    table.assign(a="w").to_csv(tmp_path / "t.csv", index=False)
    assert "it takes numbers in column 'a', which holds text" in fault(tmp_path)


def test_one_input_for_all_features(tmp_path, table):
    model = LogisticRegression().fit(table[["b", "a"]].to_numpy(), table.y)
    write(tmp_path, model, [("X", "Float", 2)], zipmap=False)
    wanted = model.predict_proba(table[["b", "a"]].to_numpy())[:, 1]
    found = scores(tmp_path, features=["b", "a"])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    assert "it takes 2 columns without names, not 3" in fault(tmp_path)


def test_files_that_are_no_classifiers(tmp_path, table):
    model = LogisticRegression().fit(table[["a", "b"]].to_numpy(), table.b)
    write(tmp_path, model, [("X", "Float", 2)], zipmap=False)
    assert "not the probabilities of two classes" in fault(tmp_path, features=["b", "a"])
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    assert "E404 'm.onnx' has no model that can be evaluated: it is no ONNX model" in fault(
        tmp_path
    )


@pytest.mark.usefixtures("table")
def test_onnxruntime_is_optional(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    assert fault(tmp_path) == "E202 ONNX models need onnxruntime, which is not installed"
