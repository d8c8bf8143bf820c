"""The real files, from a mirror; counts are those that the sources and papers state."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from entries import assign_split_parts, load_entry_table, table_digest

from ratecli.datasets.encode import Encoder
from ratecli.datasets.files import missing_source_files
from ratecli.datasets.registry import find_source
from ratecli.datasets.sources import SOURCES, published
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
                assert missing_source_files(find_source(name)) == []
        return tables[key]

    return read_one


def sizes(table: Table, spec: dict[str, str]) -> tuple[int, int, int]:
    part = assign_split_parts(table, spec, np.random.default_rng(0))
    return tuple(int((part == name).sum()) for name in SPLIT_NAMES)


@pytest.mark.parametrize("name", REAL)
def test_table_agrees_with_its_source_and_can_be_encoded(read, name: str):
    table, source = read(name), SOURCES[name]
    assert len(table) == source.rows
    assert set(np.unique(table.label)) == {0, 1} or (np.isnan(table.label).all() and table.logged)
    assert set(source.sensitive) <= set(table.frame.columns)
    assert set(table.features) <= set(table.frame.columns)
    assert list(table.frame.index) == list(range(source.rows))
    assert table.digest == table_digest({"source": name}, Path())
    assert [n for n, _ in table.files] == [file.name for file in source.files]
    for column in table.frame.columns:
        values = table.frame[column]
        kinds = {type(value) for value in values.tolist()}
        assert kinds <= ({str, type(None)} if values.dtype == object else {int, float})
    part = assign_split_parts(table, {}, np.random.default_rng(0))
    encoder = Encoder.fit([table], [np.flatnonzero(part == "train")])
    X = encoder.transform(table)
    assert X.shape == (len(table), len(encoder.names))
    assert np.isfinite(X.data if hasattr(X, "tocsr") else X).all()
    widths = {"adult": 107, "a9a": 123, "compas": 15, "bank": 39, "communities": 124, "law": 20}
    widths |= {"campaign": 38, "german": 59}
    assert X.shape[1] == widths.get(name, 9 if name == "gpa" else 2**14)
    assert hasattr(X, "tocsr") == (name in {"adult", "a9a", "wiki_standin", "madlibs"})
    assert table.counts == (name in {"wiki_standin", "madlibs"})


FACTS = [
    ("adult", "train", 32561, 7841),
    ("adult", "test", 16281, 3846),
    ("adult", "age >= 0", 48842, 11687),
    ("a9a", "sex == 'Male' and part == 'train'", 21790, 6662),
    ("a9a", "sex == 'Male' and part == 'test'", 10860, None),
    ("a9a", "sex == 'Female' and part == 'train'", 10771, 1179),
    ("a9a", "education_top == 'yes' and part == 'train'", 8067, 3909),
    ("compas", "age >= 0", 6172, 2809),
    ("compas", "race == 'African-American'", 3175, None),
    ("compas", "race == 'Caucasian'", 2103, None),
    ("compas", "sex == 'Female'", 1175, 413),
    ("bank", "age >= 0", 45211, 5289),
    ("bank", "job == 'unknown'", 288, None),
    ("communities", "fold >= 0", 1994, 583),
    ("communities", "black_share == 'high'", 970, None),
    ("law", "lsat >= 0 or lsat != lsat", 23086, 21886),
    ("law", "race == 'black'", 1368, 1062),
    ("law", "race == 'white'", 19285, None),
    ("german", "age > 0", 1000, 700),
    ("german", "sex == 'female'", 310, 201),
    ("german", "age <= 25", 190, 110),
    ("german", "foreign_worker == 'no'", 37, 33),
    ("german", "checking_account == 'none'", 394, 348),
    ("german", "purpose == 'others'", 12, 7),
    ("gpa", "GPA >= 0", 43303, 20263),
    ("gpa", "sex == 'Male' and M == 1 and F == 0", 22335, None),
    ("gpa", "sex == 'Female' and M == 0 and F == 1", 20968, None),
    ("wiki_standin", "rev_id >= 0", 1492, 1244),
    ("wiki_standin", "mentions_gay == 'yes'", 160, 64),
    ("madlibs", "toxic == toxic", 76564, 38282),
    ("madlibs", "mentions_gay == 'yes'", 1514, 757),
]
"""Conditions with the numbers of rows and of positive rows that sources and papers state."""


@pytest.mark.parametrize(("name", "where", "rows", "positive"), FACTS)
def test_counts_are_those_of_the_publications(
    read, name: str, where: str, rows: int, positive: int | None
):
    table = read(name)
    found = table.frame.assign(label=table.label, part="" if table.part is None else table.part)
    some = found.query(f"part == '{where}'" if where in SPLIT_NAMES else where)
    assert len(some) == rows
    assert positive is None or some["label"].sum() == positive


def test_values_of_columns(read):
    adult, law = read("adult").frame, read("law").frame
    assert set(adult["income"]) == {">50K", "<=50K"}
    assert set(adult["sex"]) == {"Female", "Male"}
    complete = adult.notna().all(axis=1).to_numpy()
    part = read("adult").part
    assert [complete[part == name].sum() for name in ("train", "test")] == [30162, 15060]
    assert not read("compas").frame.isna().any().any()
    assert read("bank").frame["job"].nunique() == 12
    assert set(law["race"]) == {"asian", "black", "hisp", "other", "white"}
    assert set(law["sex"]) == {"female", "male", None}
    assert law["dob_yr"].mean() == pytest.approx(65.4, abs=0.05)
    leaking = {"bar", "bar1", "bar2", "bar1_yr", "bar2_yr", "grad", "zgpa", "age"}
    assert not leaking & set(law.columns)


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


def test_communities_have_gaps_and_a_group(read):
    table = read("communities")
    high = table.frame["black_share"] == "high"
    assert table.frame["racepctblack"][high].min() > table.frame["racepctblack"][~high].max()
    gaps = table.frame.isna().sum()
    assert sorted(gaps[gaps > 0]) == [1, *[1675] * 22]
    assert len(table.features) == 122 + 1
    assert not {"county", "community"} & set(table.frame.columns)
    assert sizes(table, {"validation": "2/9", "test": "1/3"}) == (886, 443, 665)


def test_gpa_as_a_number(read):
    table, numbers = read("gpa"), read("gpa", preparation="regression")
    assert table.label_range is None
    assert numbers.label_range == (0, 4) == SOURCES["gpa"].numbers["regression"]
    np.testing.assert_array_equal(numbers.label >= 3.0, table.label == 1)
    np.testing.assert_array_equal(numbers.label, numbers.frame["GPA"])
    assert (numbers.label.min(), numbers.label.max()) == (0, 4)
    first = [622.6, 491.56, 439.93, 707.64, 663.65, 557.09, 711.37, 731.31, 509.8]
    assert table.frame.loc[0, list(table.features)].tolist() == first
    assert (table.frame.loc[0, "sex"], table.frame.loc[0, "GPA"]) == ("Female", 1.33333)
    assert table.digest != numbers.digest


def test_adult_of_narasimhan_2019(read):
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
    assert tuple(edges) == published.ADULT_NARASIMHAN2019_BINS["age"]
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


def test_compas_of_narasimhan_2019(read):
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
