"""The real files, from a mirror; counts are those that the sources and papers state."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ratecli.datasets.encode import Encoder
from ratecli.datasets.load import identity, load, missing
from ratecli.datasets.sources import SOURCES
from ratecli.datasets.split import split
from ratecli.datasets.table import Table

MIRROR = os.environ.get("RATECLI_DATA_MIRROR", "")

pytestmark = pytest.mark.skipif(
    not MIRROR, reason="needs the real files: set RATECLI_DATA_MIRROR to a folder that holds them"
)

REAL = [source.name for source in SOURCES.values() if source.files]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory):
    """Reads each source once, from a data folder that starts empty."""
    folder = tmp_path_factory.mktemp("data")
    tables: dict[str, Table] = {}

    def read_one(name: str) -> Table:
        if name not in tables:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RATECLI_DATA", str(folder))
                patch.setenv("RATECLI_DATA_MIRROR", MIRROR)
                tables[name] = load({"source": name}, Path(), offline="://" not in MIRROR)
                assert missing({"source": name}, Path()) == []
        return tables[name]

    return read_one


def positives(table: Table, part: str | None = None) -> int:
    rows = slice(None) if part is None else table.part == part
    return int(table.label[rows].sum())


@pytest.mark.parametrize("name", REAL)
def test_tables_are_as_promised(read, name: str):
    table, source = read(name), SOURCES[name]
    assert len(table) == source.rows
    assert set(np.unique(table.label)) == {0, 1}
    assert set(source.sensitive) <= set(table.frame.columns)
    assert set(table.features) <= set(table.frame.columns)
    assert list(table.frame.index) == list(range(source.rows))
    assert table.digest == identity({"source": name}, Path())
    assert [n for n, _ in table.files] == [file.name for file in source.files]
    for column in table.frame.columns:
        values = table.frame[column]
        kinds = {type(value) for value in values.tolist()}
        assert kinds <= ({str, type(None)} if values.dtype == object else {int, float})


def test_adult(read):
    table = read("adult")
    assert (table.part == "train").sum() == 32561
    assert (table.part == "test").sum() == 16281
    assert (positives(table, "train"), positives(table, "test")) == (7841, 3846)
    complete = table.frame.notna().all(axis=1).to_numpy()
    assert complete[table.part == "train"].sum() == 30162
    assert complete[table.part == "test"].sum() == 15060
    assert set(table.frame["income"]) == {">50K", "<=50K"}
    assert set(table.frame["sex"]) == {"Female", "Male"}
    assert "fnlwgt" not in table.features


def test_a9a_is_adult(read):
    table, adult = read("a9a"), read("adult")
    assert table.matrix is not None
    assert table.matrix.shape == (48842, 123)
    assert set(np.unique(table.matrix.data)) == {1.0}
    np.testing.assert_array_equal(table.label, adult.label)
    np.testing.assert_array_equal(table.part, adult.part)
    for column in ("sex", "race"):
        assert table.frame[column].tolist() == adult.frame[column].tolist()
    top = adult.frame["education_num"] >= 13
    assert ((table.frame["education_top"] == "yes") == top).all()
    low, high = (table.frame["age_bucket"].str.split("-").str[end].astype(int) for end in (0, 1))
    assert adult.frame["age"].between(low, high).all()


def test_a9a_counts(read):
    table = read("a9a")
    train, men = table.part == "train", (table.frame["sex"] == "Male").to_numpy()
    top = (table.frame["education_top"] == "yes").to_numpy()
    assert men[train].sum() == 21790
    assert men[~train].sum() == 10860
    assert table.label[train & men].sum() == 6662
    assert table.label[train & ~men].sum() == 1179
    assert top[train].sum() == 8067
    assert table.label[train & top].sum() == 3909


def test_compas(read):
    table = read("compas")
    assert positives(table) == 2809
    races = table.frame["race"].value_counts()
    assert (races["African-American"], races["Caucasian"]) == (3175, 2103)
    women = (table.frame["sex"] == "Female").to_numpy()
    assert women.sum() == 1175
    assert table.label[women].mean() == pytest.approx(0.3515, abs=5e-5)
    assert not table.frame.isna().any().any()
    assert not {"decile_score", "score_text", "two_year_recid"} & set(table.features)


def test_bank(read):
    table = read("bank")
    assert positives(table) == 5289
    assert table.frame["job"].nunique() == 12
    assert (table.frame["job"] == "unknown").mean() == pytest.approx(0.0064, abs=5e-5)
    assert not {"job", "y"} & set(table.features)


@pytest.mark.parametrize("name", REAL)
def test_they_encode(read, name: str):
    table = read(name)
    part = split(table, {}, np.random.default_rng(0))
    encoder = Encoder.fit([table], [part == "train"])
    X = encoder.transform(table)
    assert X.shape == (len(table), len(encoder.names))
    assert np.isfinite(X.data if hasattr(X, "tocsr") else X).all()
    widths = {"adult": 107, "a9a": 123, "compas": 15, "bank": 39}
    assert X.shape[1] == widths[name]
    assert hasattr(X, "tocsr") == (name in {"adult", "a9a"})
