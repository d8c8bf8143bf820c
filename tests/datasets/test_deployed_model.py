from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from entries import load_entry_table, table_digest

from ratecli.datasets.deployed_model import add_deployed_model
from ratecli.datasets.sources import adult, bank
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
    ("module", "label", "d2", "d3", "width"),
    [(adult, "income", 7815, 11722, 1921), (bank, "y", 7234, 10851, 2235)],
)
def test_deployed_models_of_real_data(module: ModuleType, label: str, d2: int, d3: int, width: int):
    name, chosen = module.SOURCE.name, {*module.DEPLOYED_FEATURES, *module.CROSSED_FEATURES}
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
