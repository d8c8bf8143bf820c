"""`missing: mean`: missing numbers as features, in memory and in streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from entries import load_entry_table, split_streamed_table, table_digest, write
from sklearn.impute import SimpleImputer
from test_encode import dense

from ratecli.datasets.encode import Encoder, NumericBlock, constant_features, encode_new_rows
from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError
from ratecli.streaming.cells import feature_coding

OPTIONS = {"label": "y", "missing": "mean", "drop": ["part"], "split": {"by": "part"}}


def frame(rows: int = 500) -> pd.DataFrame:
    """Numbers without gaps, with gaps everywhere, in training rows only and in test rows only."""
    rng = np.random.default_rng(7)
    part = rng.choice(["train", "test"], rows)
    found = pd.DataFrame({
        "x": rng.normal(size=rows), "gaps": rng.normal(size=rows) * 9 + 1e4,
        "y": rng.integers(0, 2, rows),
        "learned": rng.random(rows), "job": rng.choice(["a", "b"], rows), "late": rng.random(rows),
        "part": part,
    })  # fmt: skip
    found["gaps"] = found["gaps"].where(rng.random(rows) < 0.7 - 0.4 * (part == "test"))
    found["learned"] = found["learned"].where((rng.random(rows) < 0.8) | (part == "test"))
    found["late"] = found["late"].where((rng.random(rows) < 0.5) | (part == "train"))
    return found


def fit(table: Table) -> Encoder:
    return Encoder.fit([table], [np.flatnonzero(table.frame["part"] == "train")])


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_features_equal_those_of_scikit_learns_imputer(tmp_path: Path, name: str):
    found = frame()
    write(found, tmp_path / name)
    table = load_entry_table(OPTIONS | {"path": name}, tmp_path)
    encoder = fit(table)
    assert encoder.names == (
        "x", "gaps", "gaps=(missing)", "learned", "learned=(missing)", "job=a", "job=b", "late",
    )  # fmt: skip
    numbers, train = ["x", "gaps", "learned", "late"], found["part"] == "train"
    known = found.loc[train, numbers]
    imputer = SimpleImputer(add_indicator=True).fit(known)
    X = pd.DataFrame(dense(encoder.transform(table)), columns=encoder.names)
    Y = imputer.transform(found[numbers])
    scaled = (Y[:, :4] - known.mean().to_numpy()) / known.std(ddof=0).to_numpy()
    np.testing.assert_allclose(X[numbers], scaled, atol=1e-9)
    np.testing.assert_array_equal(X[["gaps=(missing)", "learned=(missing)"]], Y[:, 4:])
    assert (X.loc[found["gaps"].isna(), "gaps"] == 0).all()


@pytest.mark.parametrize("drop", [["part"], ["part", "job"]])
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_streamed_features_equal_those_in_memory(tmp_path: Path, name: str, drop: list[str]):
    found = frame()
    write(found, tmp_path / name)
    options = OPTIONS | {"path": name, "drop": drop}
    streamed, _, rows, encoder = split_streamed_table(options, tmp_path)
    table = load_entry_table(options, tmp_path)
    known, there = fit(table), rows.read_runs(range(rows.runs()))
    assert encoder.names == known.names
    X = dense(known.transform(table))
    np.testing.assert_allclose(dense(there.X), X, atol=1e-9)
    train = (found["part"] == "train").to_numpy()
    ones = np.flatnonzero(["=" in each for each in known.names])
    gaps = known.names.index("gaps")
    np.testing.assert_allclose(rows.coding.shares[ones], X[train][:, ones].mean(axis=0))
    assert rows.coding.shares[gaps] == found.loc[train, "gaps"].notna().mean()
    alike = replace(there, coding=feature_coding(streamed, known, rows.coding.shares))
    np.testing.assert_array_equal(dense(alike.X), X)  # to the last bit


def faults(options: dict[str, Any], folder: Path) -> list[Diagnostic]:
    """Of a table in memory and streamed: one each, and the same."""
    told = []
    for look in (
        lambda: fit(load_entry_table(options, folder)),
        lambda: split_streamed_table(options, folder),
    ):
        with pytest.raises(FaultError) as caught:
            look()
        told.append(caught.value.faults[0])
    assert len({(each.code, each.message, each.help) for each in told}) == 1
    return told


@pytest.mark.parametrize("more", [{}, {"missing": "error"}])
def test_missing_numbers_are_an_error_by_default(tmp_path: Path, more: dict[str, str]):
    write(frame(), tmp_path / "t.csv")
    options = {key: OPTIONS[key] for key in ("label", "drop", "split")} | more
    (fault, _) = faults(options | {"path": "t.csv"}, tmp_path)
    assert (fault.code, fault.message[:27]) == ("E407", "column 'gaps' has no number")
    assert fault.help.startswith("set missing to mean")


def test_column_without_training_numbers_is_an_error(tmp_path: Path):
    found = frame()
    found.loc[found["part"] == "train", "gaps"] = np.nan
    write(found, tmp_path / "t.csv")
    (fault, _) = faults(OPTIONS | {"path": "t.csv"}, tmp_path)
    assert fault.code == "E407"
    assert "column 'gaps' has no number in the training rows" in fault.message


@pytest.mark.parametrize("name", ["t.csv", "text.parquet", "number.parquet"])
def test_words_for_missing_values_empty_and_constant_columns_in_all_formats(
    tmp_path: Path, name: str
):
    found = frame().drop(columns=["part", "gaps", "learned", "late"]).astype({"job": object})
    gaps = dict(enumerate(["NA", "nan", "None", "?", "<NA>", "", " null "]))
    found["job"] = [gaps.get(k, job) for k, job in enumerate(found["job"])]
    empty = np.nan if name == "number.parquet" else pd.array([None] * 500, "string")
    found = found.assign(empty=empty, same=1.5, word="w")
    write(found, tmp_path / name)
    options = {"path": name, "label": "y"}
    table = load_entry_table(options, tmp_path)
    assert table.frame["job"].isna().tolist() == [k in gaps for k in range(500)]
    assert constant_features([table]) == {"empty": "", "same": "1.5", "word": "w"}
    encoder = Encoder.fit([table], [np.arange(500)])
    assert encoder.names == ("x", "job=(missing)", "job=a", "job=b")
    streamed, _, _, learned = split_streamed_table(options, tmp_path)
    assert learned.names == encoder.names
    assert streamed.constants == constant_features([table])


def test_infinite_numbers_weights_and_labels(tmp_path: Path):
    found = frame()
    found.loc[40:41, "gaps"] = np.inf
    write(found, tmp_path / "t.csv")
    (fault, _) = faults(OPTIONS | {"path": "t.csv"}, tmp_path)
    assert fault.message == "column 'gaps' has an infinite value in row 41 (2 such rows in total)"
    assert "missing" not in fault.help
    options = OPTIONS | {"path": "t.csv", "drop": ["part", "gaps"]}
    weighted = options | {"drop": ["part"], "weight": "gaps"}
    for read in (load_entry_table, split_streamed_table):
        with pytest.raises(FaultError, match="E411: weight column 'gaps'"):
            read(weighted, tmp_path)
    write(found.assign(y=found["y"].where(found["x"] > 0)), tmp_path / "t.csv")
    np.testing.assert_array_equal(
        np.isnan(load_entry_table(options, tmp_path).label), found["x"] <= 0
    )


def test_digest_depends_on_the_option(tmp_path: Path):
    (tmp_path / "t.csv").write_text("x,y\n1,0\n2,1\n")
    options = {"path": "t.csv", "label": "y"}
    for more in ({}, {"stream": True}):
        plain = table_digest(options | more, tmp_path)
        assert table_digest(options | more | {"missing": "mean"}, tmp_path) != plain


def table(gaps: list[float], *, missing: bool) -> Table:
    found = pd.DataFrame({"n": gaps})
    return Table(found, ("n",), np.zeros(len(gaps)), "", missing=missing)


def test_tables_with_and_without_missing_numbers_share_an_encoder_that_is_restored():
    tables = [table([1.0, np.nan], missing=True), table([3.0, 5.0], missing=False)]
    encoder = Encoder.fit(tables, [np.arange(2)] * 2)
    assert encoder.blocks == (NumericBlock("n", 3.0, np.std([1, 3, 5]), True),)
    with_none = Encoder.fit([table([1.0, np.nan], missing=False)], [np.arange(2)])
    assert with_none.names == ("n",)  # of registered sources
    content = encoder.as_json()
    assert content["blocks"][0]["missing"] is True
    assert Encoder.from_json(content) == encoder


def test_missing_numbers_in_new_rows(tmp_path: Path):
    write(frame(), tmp_path / "t.csv")
    encoder = fit(load_entry_table(OPTIONS | {"path": "t.csv"}, tmp_path))
    row = {"x": [0.5], "gaps": [np.nan], "learned": [0.5], "job": ["a"], "late": [np.nan]}
    X, (fault,) = encode_new_rows(encoder, pd.DataFrame(row))
    of = dict(zip(encoder.names, dense(X)[0], strict=True))
    assert (of["gaps"], of["gaps=(missing)"], of["learned=(missing)"], of["late"]) == (0, 1, 0, 0)
    # training rows lacked none of `late`
    assert (fault.code, fault.message[:13]) == ("W405", "column 'late'")
