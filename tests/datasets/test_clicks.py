from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from entries import assign_split_parts, load_entry_table, table_digest
from scipy.special import expit
from scipy.stats import kurtosis, skew
from sklearn.svm import LinearSVC

from ratecli.datasets.sources import clicks
from ratecli.datasets.table import Table


def made(rows: int, seed: int = 0) -> Table:
    return load_entry_table({"source": "clicks", "rows": rows, "seed": seed}, Path(), offline=True)


def rows_of(table: Table, name: str) -> np.ndarray:
    return (table.frame["set"] == name).to_numpy()


@pytest.fixture(scope="module")
def some() -> Table:
    return made(24_000)


@pytest.fixture(scope="module")
def crowd() -> tuple[np.ndarray, np.ndarray]:
    """z of 200,000 of the present population, and P(y = 1 | z)."""
    population, _ = clicks.build_populations()
    z = population.draw(200_000, np.random.default_rng(3))
    return z, expit(population.log_odds(z))


def test_table_stacks_three_sets_in_the_sizes_of_the_paper():
    assert clicks.set_sizes(254_609) == [131_840, 53_877, 68_892]
    table = made(600)
    assert table.frame["set"].tolist() == ["d1"] * 311 + ["d2"] * 127 + ["d3"] * 162
    assert (np.isnan(table.label) == rows_of(table, "d3")).all()
    meaning = pd.Series(table.label).map({0.0: "no", 1.0: "yes"}).astype(object)
    assert table.frame["clicked"].equals(meaning.where(meaning.notna(), None))
    assert set(table.frame["deployed"]) == {0, 1}
    assert (table.frame["deployed"] == (table.frame["deployed_score"] > 0)).all()
    assert table.digest == table_digest({"source": "clicks", "rows": 600}, Path())


def test_seed_changes_the_rows_only():
    first, again, other = made(600, 1), made(600, 1), made(600, 2)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert (first.matrix != again.matrix).nnz == 0
    assert not first.frame["f01"].equals(other.frame["f01"])
    assert first.digest == again.digest != other.digest


def test_features_are_bins_of_the_columns(some: Table):
    columns = some.frame[list(clicks.FEATURES)].to_numpy()
    bins = clicks.train_deployed_model().bins(columns)
    assert some.matrix.shape == (24_000, 30_008)
    np.testing.assert_allclose(some.matrix.data, 1 / 496)
    assert ((some.matrix > 0) != (clicks.feature_map().features(bins) > 0)).nnz == 0
    np.testing.assert_allclose(
        clicks.train_deployed_model().score(bins), some.frame["deployed_score"]
    )
    iid = bins[~rows_of(some, "d1")]
    shares = np.array([np.bincount(column, minlength=8) for column in iid.T]) / len(iid)
    assert np.abs(shares - 1 / 8).max() < 0.03


def test_columns_are_correlated_skewed_and_heavy_tailed(crowd):
    columns = clicks.observed_columns(crowd[0])
    np.testing.assert_allclose(crowd[0].std(axis=0), 1, atol=0.02)
    assert (skew(columns[:, 1::3]) > 2).all()
    assert (kurtosis(columns[:, 2::3]) > 10).all()
    correlation = np.abs(np.corrcoef(crowd[0].T)) - np.eye(31)
    assert correlation.max() > 0.4


def test_labels_have_their_probability(crowd):
    z, eta = crowd
    assert eta.mean() == pytest.approx(0.282, abs=0.003)
    assert np.minimum(eta, 1 - eta).mean() == pytest.approx(0.128, abs=0.002)
    y = clicks.build_populations()[0].labels(z, np.random.default_rng(4))
    bins = (eta * 10).astype(int)
    gap = np.bincount(bins, y - eta) / np.bincount(bins)
    assert np.abs(gap).max() < 5 * 0.5 / np.sqrt(np.bincount(bins).min())


def test_d1_is_near_the_boundary_of_the_deployed_model(some: Table):
    """Thinned by exp(-|score| / 3), the independent rows have d1's distribution of |score|."""
    distance = some.frame["deployed_score"].abs().to_numpy()
    d1, iid = distance[rows_of(some, "d1")], distance[~rows_of(some, "d1")]
    for limit in (0.5, 1.0, 2.0, 4.0):
        expected = np.average(iid < limit, weights=np.exp(-iid / 3))
        assert np.mean(d1 < limit) == pytest.approx(expected, abs=0.02)


@pytest.mark.slow
def test_new_svm_improves_on_the_deployed_model_a_little():
    table = load_entry_table({"source": "clicks"}, Path(), offline=True)
    assert table.frame["set"].value_counts().to_dict() == clicks.SET_SIZES
    assert table.matrix.nnz == 254_609 * 496
    assert table.matrix.indices.dtype == np.int32
    part = assign_split_parts(table, {"test": 0.2, "stratify": ["set"]}, np.random.default_rng(0))
    labelled, test = ~rows_of(table, "d3"), part == "test"
    train, X = labelled & ~test, 496 * table.matrix
    svm = LinearSVC(C=3e-4, loss="hinge", random_state=0, tol=1e-2)
    decided = svm.fit(X[train], table.label[train]).predict(X)
    deployed = table.frame["deployed"].to_numpy()
    new, old = (np.mean((d != table.label)[labelled & test]) for d in (decided, deployed))
    assert old - 0.01 < new < old
    assert 0.18 < new < 0.22
    assert np.mean((decided != deployed)[test & ~labelled]) == pytest.approx(0.053, abs=0.01)
