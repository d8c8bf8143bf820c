from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from entries import load_entry_table, table_digest
from hypothesis import given
from hypothesis import strategies as st

from ratecli.datasets.deployed_model import (
    CrossedBins,
    add_deployed_model,
    bin_values,
    quantile_cuts,
)
from ratecli.datasets.sources import published
from ratecli.datasets.table import Table


@pytest.fixture(scope="module")
def people() -> Table:
    """x decides, mostly; y says nothing, and `town` has rare values and gaps."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=8000), rng.integers(3, size=8000)
    towns = np.array(["A", "B", "C", "tiny", None], dtype=object)
    frame = pd.DataFrame(
        {
            "x": x,
            "town": rng.choice(towns, 8000, p=[0.5, 0.3, 0.1, 0.005, 0.095]),
            "y": y,
            "row": np.arange(8000),
        }
    )
    label = (rng.random(8000) < 1 / (1 + np.exp(-2 * x))).astype(float)
    frame["paid"] = np.where(label == 1, "yes", "no").astype(object)
    part = np.repeat(["train", "test"], 4000)
    return Table(frame, ("x", "town", "y"), label, "digest", part=part)


@pytest.fixture(scope="module")
def dealt(people: Table) -> Table:
    return add_deployed_model(people, label="paid", known=("x", "town"), crossed=("town", "x", "y"))


def in_set(table: Table, name: str) -> np.ndarray:
    return (table.frame["set"] == name).to_numpy()


def test_sets_are_disjoint_shares_without_older_rows(people: Table, dealt: Table):
    assert dealt.frame["row"].is_unique
    assert in_set(dealt, "d2").sum() == 0.16 * 8000
    assert in_set(dealt, "d3").sum() == 0.24 * 8000
    assert 0 < in_set(dealt, "d1").sum() < 0.4 * 8000
    assert list(dealt.frame.index) == list(range(len(dealt)))
    assert (dealt.part, dealt.features, dealt.digest) == (None, (), "digest")
    rows = dealt.frame["row"].to_numpy()
    seen = ~in_set(dealt, "d3")
    np.testing.assert_array_equal(dealt.label[seen], people.label[rows[seen]])
    assert np.isnan(dealt.label[~seen]).all()
    assert (dealt.frame["paid"].isna().to_numpy() == ~seen).all()
    assert {type(value) for value in dealt.frame["paid"]} == {str, type(None)}


def test_deployed_model_uses_its_features_only(dealt: Table):
    frame = dealt.frame
    assert (frame["deployed"] == (frame["deployed_score"] > 0)).all()
    log_odds = 2 * frame["x"]
    assert np.corrcoef(frame["deployed_score"], log_odds)[0, 1] > 0.9
    bins = dealt.matrix[:, :20].toarray()  # of x (16) and of town (4)
    assert len(np.unique(frame["deployed_score"])) == len(np.unique(bins, axis=0))


def test_d1_is_sampled_near_the_boundary(dealt: Table):
    distance = dealt.frame["deployed_score"].abs().to_numpy()
    d1, iid = distance[in_set(dealt, "d1")], distance[~in_set(dealt, "d1")]
    assert len(d1) == pytest.approx(0.4 * 8000 * np.exp(-iid).mean(), rel=0.1)
    for limit in (0.5, 1.0, 2.0):
        expected = np.average(iid < limit, weights=np.exp(-iid))
        assert np.mean(d1 < limit) == pytest.approx(expected, abs=0.04)


def test_features_are_bins_and_pairs_of_bins(dealt: Table):
    """x: 16 bins; town: A, B, C, (missing), and the tiny one among "others"; y: 3. Shares."""
    has = dealt.matrix.toarray() > 0
    town = has[:, 16:21]
    given = dealt.frame["town"].fillna("(missing)").to_numpy()
    for k, level in enumerate(("tiny", "(missing)", "A", "B", "C")):
        np.testing.assert_array_equal(town[:, k], given == level)
    assert dealt.matrix.shape[1] == (16 + 5 + 3) + (16 * 5 + 16 * 3 + 5 * 3)
    assert set(has.sum(axis=1)) == {6}
    assert set(dealt.matrix.data) == {1 / 6}


@pytest.mark.skipif(
    not os.environ.get("RATECLI_DATA_MIRROR"),
    reason="needs the real files: set RATECLI_DATA_MIRROR to a folder that holds them",
)
@pytest.mark.parametrize(
    ("name", "label", "d2", "d3", "width"),
    [("adult", "income", 7815, 11722, 1921), ("bank", "y", 7234, 10851, 2235)],
)
def test_deployed_models_of_real_data(name: str, label: str, d2: int, d3: int, width: int):
    parts = (f"{name.upper()}_{part}_FEATURES" for part in ("DEPLOYED", "CROSSED"))
    chosen = {feature for part in parts for feature in getattr(published, part)}
    options = {"source": name, "preparation": "churn"}
    table, plain = (load_entry_table(o, Path(), offline=True) for o in (options, {"source": name}))
    assert table.digest == table_digest(options, Path()) != plain.digest
    assert {label, *chosen} <= set(table.frame.columns)
    assert chosen <= set(plain.features)
    counts = table.frame["set"].value_counts()
    assert (counts["d2"], counts["d3"]) == (d2, d3)
    assert table.matrix.shape == (len(table), width)
    np.testing.assert_allclose(table.matrix.sum(axis=1), 1)
    rows, known = in_set(table, "d2"), ~np.isnan(table.label)
    assert (known == ~in_set(table, "d3")).all()
    assert table.label[rows].mean() == pytest.approx(plain.label.mean(), abs=0.01)
    wrong = table.frame["deployed"].to_numpy() != table.label
    assert wrong[rows].mean() < plain.label.mean()
    assert wrong[in_set(table, "d1")].mean() > 1.5 * wrong[rows].mean()


def naive(crosses: CrossedBins, bins: np.ndarray) -> np.ndarray:
    """One row and one feature at a time."""
    rows = []
    for row in bins:
        pairs = zip(row, crosses.levels, strict=True)
        features = [[float(b == own) for b in range(n)] for own, n in pairs]
        crossed = [
            float(a == row[i] and b == row[j])
            for i, j in crosses.pairs
            for a in range(crosses.levels[i])
            for b in range(crosses.levels[j])
        ]
        rows.append([value for each in features for value in each] + crossed)
    return np.array(rows).reshape(len(bins), crosses.width)


@st.composite
def tables(draw: st.DrawFn) -> tuple[CrossedBins, np.ndarray]:
    levels = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    every = list(combinations(range(len(levels)), 2))
    pairs = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    row = st.tuples(*(st.integers(0, n - 1) for n in levels))
    rows = draw(st.lists(row, max_size=6))
    return CrossedBins(levels, tuple(pairs)), np.array(rows, dtype=np.int64).reshape(
        -1, len(levels)
    )


@given(tables())
def test_features_equal_those_of_a_plain_loop(drawn: tuple[CrossedBins, np.ndarray]):
    crosses, bins = drawn
    matrix, shares = crosses.features(bins), crosses.shares(bins).toarray()
    assert matrix.shape == (len(bins), crosses.width)
    np.testing.assert_array_equal(matrix.toarray(), naive(crosses, bins))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(shares > 0, matrix.toarray() == 1)


def test_crossing_31_columns_of_8_bins():
    crosses = CrossedBins((8,) * 31, tuple(combinations(range(31), 2)))
    matrix = crosses.features(np.random.default_rng(0).integers(0, 8, (50, 31), dtype=np.int8))
    assert crosses.width == matrix.shape[1] == 30_008
    assert set(np.diff(matrix.indptr)) == {496}
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    assert (np.diff(matrix.indices.reshape(50, 496), axis=1) > 0).all()
    assert set(matrix.data) == {1.0}


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.integers(2, 9))
def test_ties_leave_no_bin_empty(values: list[int], bins: int):
    column = np.array(values, dtype=float)
    cuts = quantile_cuts(column, bins)
    assert (np.diff(cuts) > 0).all()
    assert len(cuts) < bins
    assert (np.bincount(bin_values(column, cuts), minlength=len(cuts) + 1) > 0).all()


def test_cuts_are_quantiles_and_belong_to_the_lower_bin():
    values = np.random.default_rng(1).permutation(800) / 7
    assert np.bincount(bin_values(values, quantile_cuts(values, 8))).tolist() == [100] * 8
    values, cuts = np.array([-9.0, 0.0, 0.1, 2.0, 3.0]), np.array([0.0, 2.0])
    assert bin_values(values, cuts).tolist() == [0, 0, 1, 1, 2]
