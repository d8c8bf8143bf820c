"""The real files, from a mirror; counts are those that the sources and papers state."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from entries import assign_split_parts, load_entry_table, missing_entry_files, table_digest

from ratecli.datasets.encode import Encoder
from ratecli.datasets.sources import SOURCES, adult
from ratecli.datasets.split import SPLIT_NAMES
from ratecli.datasets.table import Table

MIRROR = os.environ.get("RATECLI_DATA_MIRROR", "")

pytestmark = pytest.mark.skipif(
    not MIRROR, reason="needs the real files: set RATECLI_DATA_MIRROR to a folder that holds them"
)

REAL = [source.name for source in SOURCES.values() if source.files and source.name != "wiki"]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory):
    """Reads each source once, from a data folder that starts empty."""
    folder = tmp_path_factory.mktemp("data")
    tables: dict[str, Table] = {}

    def read_one(name: str, **options: str) -> Table:
        entry = {"source": name, **options}
        key = str(entry)
        if key not in tables:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RATECLI_DATA", str(folder))
                patch.setenv("RATECLI_DATA_MIRROR", MIRROR)
                tables[key] = load_entry_table(entry, Path(), offline="://" not in MIRROR)
                assert missing_entry_files(entry, Path()) == []
        return tables[key]

    return read_one


def positives(table: Table, part: str | None = None) -> int:
    rows = slice(None) if part is None else table.part == part
    return int(table.label[rows].sum())


def sizes(table: Table, spec: dict[str, str]) -> tuple[int, int, int]:
    part = assign_split_parts(table, spec, np.random.default_rng(0))
    return tuple(int((part == name).sum()) for name in SPLIT_NAMES)


@pytest.mark.parametrize("name", REAL)
def test_tables_are_as_promised(read, name: str):
    table, source = read(name), SOURCES[name]
    assert len(table) == source.rows
    assert set(np.unique(table.label)) == {0, 1}
    assert set(source.sensitive) <= set(table.frame.columns)
    assert set(table.features) <= set(table.frame.columns)
    assert list(table.frame.index) == list(range(source.rows))
    assert table.digest == table_digest({"source": name}, Path())
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


def test_communities(read):
    table = read("communities")
    assert positives(table) == 583
    high = (table.frame["black_share"] == "high").to_numpy()
    assert high.sum() == 970
    assert table.frame["racepctblack"][high].min() > table.frame["racepctblack"][~high].max()
    gaps = table.frame.isna().sum()
    assert sorted(gaps[gaps > 0]) == [1, *[1675] * 22]
    assert len(table.features) == 122 + 1
    others = {"state", "county", "community", "communityname", "fold", "ViolentCrimesPerPop"}
    assert not others & set(table.features)
    assert sizes(table, {"validation": "2/9", "test": "1/3"}) == (886, 443, 665)


def test_law(read):
    table = read("law")
    assert positives(table) == 21886
    black = (table.frame["race"] == "black").to_numpy()
    assert (black.sum(), table.label[black].sum()) == (1368, 1062)
    assert (table.frame["race"] == "white").sum() == 19285
    assert set(table.frame["race"]) == {"asian", "black", "hisp", "other", "white"}
    assert set(table.frame["sex"]) == {"female", "male", None}
    assert table.frame["dob_yr"].mean() == pytest.approx(65.4, abs=0.05)
    assert not {"race", "pass_bar"} & set(table.features)
    leaking = {"bar", "bar1", "bar2", "bar1_yr", "bar2_yr", "grad", "zgpa", "age"}
    assert not leaking & set(table.frame.columns)


def test_gpa(read):
    table, numbers = read("gpa"), read("gpa", preparation="regression")
    assert positives(table) == 20263
    assert table.label_range is None
    assert numbers.label_range == (0, 4) == SOURCES["gpa"].numbers["regression"]
    np.testing.assert_array_equal(numbers.label >= 3.0, table.label == 1)
    np.testing.assert_array_equal(numbers.label, numbers.frame["GPA"])
    assert (numbers.label.min(), numbers.label.max()) == (0, 4)
    men = (table.frame["sex"] == "Male").to_numpy()
    assert (men.sum(), (~men).sum()) == (22335, 20968)
    np.testing.assert_array_equal(table.frame["M"] == 1, men)
    np.testing.assert_array_equal(table.frame["F"] == 1, ~men)
    first = [622.6, 491.56, 439.93, 707.64, 663.65, 557.09, 711.37, 731.31, 509.8]
    assert table.frame.loc[0, list(table.features)].tolist() == first
    assert (table.frame.loc[0, "sex"], table.frame.loc[0, "GPA"]) == ("Female", 1.33333)
    assert table.digest != numbers.digest


@pytest.mark.parametrize(
    ("name", "fit_to_stay", "with_term", "fit_with_term"),
    [("wiki_standin", 1244, 160, 64), ("madlibs", 38282, 1514, 757)],
)
def test_stand_ins_for_wiki(read, name: str, fit_to_stay: int, with_term: int, fit_with_term: int):
    table = read(name)
    assert positives(table) == fit_to_stay
    group = (table.frame["mentions_gay"] == "yes").to_numpy()
    assert (group.sum(), table.label[group].sum()) == (with_term, fit_with_term)
    assert table.counts
    assert (table.matrix.sum(axis=1) > 0).all()


def test_adult_for_three_players(read):
    table, plain = read("adult", preparation="narasimhan2019"), read("adult")
    assert table.matrix.shape == (48842, 122)
    assert set(np.unique(table.matrix.data)) == {1.0}
    assert set(plain.frame.columns) == set(table.frame.columns)
    np.testing.assert_array_equal(table.label, plain.label)
    no_bin = table.matrix[:, :4].sum(axis=1) == 0
    np.testing.assert_array_equal(no_bin, table.frame["age"] == 17)
    assert [no_bin[table.part == part].sum() for part in ("train", "test")] == [395, 200]
    np.testing.assert_array_equal(table.matrix.sum(axis=1), 13 - no_bin)
    edges = np.quantile(table.frame["age"][table.part == "train"], [0, 0.25, 0.5, 0.75, 1])
    assert tuple(edges) == adult.NARASIMHAN2019_BINS["age"]
    assert sizes(table, {"validation": "1/3"}) == (21707, 10854, 16281)


def test_adult_as_published_trains_on_test_rows(read):
    table = read("adult", preparation="narasimhan2019_as_published")
    test = read("adult", preparation="narasimhan2019")
    rows = test.part == "test"
    for part in ("train", "test"):
        half = table.part == part
        assert (table.matrix[half] != test.matrix[rows]).nnz == 0
        np.testing.assert_array_equal(table.label[half], test.label[rows])
        assert table.frame["age"][half].tolist() == test.frame["age"][rows].tolist()
    assert sizes(table, {"validation": "1/3"}) == (10854, 5427, 16281)


def test_compas_for_three_players(read):
    table, plain = read("compas", preparation="narasimhan2019"), read("compas")
    assert table.matrix.shape == (6172, 31)
    np.testing.assert_array_equal(table.label, plain.label)
    np.testing.assert_array_equal(table.matrix[:, 0], plain.frame["days_b_screening_arrest"])
    ages, decile, priors = table.matrix[:, 14:20], table.matrix[:, 20:26], table.matrix[:, 26:]
    assert (ages.sum(axis=1) == 1).all()
    assert (decile[:, 0] == 1).all()
    np.testing.assert_array_equal(decile.sum(axis=1) == 6, plain.frame["decile_score"] == 10)
    np.testing.assert_array_equal(priors.sum(axis=1) == 0, plain.frame["priors_count"] == 0)
    np.testing.assert_array_equal(table.matrix[:, 12], plain.frame["sex"] == "Female")
    np.testing.assert_array_equal(table.matrix[:, 13], plain.frame["sex"] == "Male")
    for part in (ages, table.matrix[:, 1:3], table.matrix[:, 3:9], table.matrix[:, 9:12]):
        assert (part.sum(axis=1) == 1).all()
    assert sizes(table, {"validation": "1372/6172", "test": "2058/6172"}) == (2742, 1372, 2058)


@pytest.mark.parametrize("name", REAL)
def test_they_encode(read, name: str):
    table = read(name)
    part = assign_split_parts(table, {}, np.random.default_rng(0))
    encoder = Encoder.fit([table], [np.flatnonzero(part == "train")])
    X = encoder.transform(table)
    assert X.shape == (len(table), len(encoder.names))
    assert np.isfinite(X.data if hasattr(X, "tocsr") else X).all()
    widths = {
        "adult": 107,
        "a9a": 123,
        "compas": 15,
        "bank": 39,
        "communities": 124,
        "law": 20,
        "gpa": 9,
    }
    assert X.shape[1] == widths.get(name, 2**14)
    assert hasattr(X, "tocsr") == (name in {"adult", "a9a", "wiki_standin", "madlibs"})
