"""Predictions of classifiers as columns."""

import numpy as np
import pytest

from ratecli.apply.predict import prediction_columns
from ratecli.errors import FaultError
from ratecli.ledger.records import random_stream
from ratecli.models.composed import MixtureClassifier
from ratecli.models.linear import LinearRegressor, Logistic, RandomizedLogistic, Threshold
from ratecli.models.proxies import ProxyFilter, SampledFilter, SplitTree
from ratecli.models.trees import LEAF

X = np.array([[-2.0], [0.0], [0.5], [3.0]])
ONE = np.ones(1)


def test_deterministic_classifiers():
    """The chance of a decision of plain logistic regression is 0 or 1."""
    for kind in (Threshold, Logistic):
        found = prediction_columns(kind(ONE), X, seed=5)
        assert list(found.columns) == ["score", "chance", "decision"]
        assert found.columns["score"].tolist() == [-2, 0, 0.5, 3]
        assert found.columns["chance"].tolist() == [0, 0, 1, 1]
        assert found.columns["decision"].tolist() == [0, 0, 1, 1]
        assert found.summary == "2 positive, 2 negative"


def test_randomized_classifiers():
    rows = np.repeat(X, 5000, axis=0)
    found = prediction_columns(RandomizedLogistic(ONE), rows, seed=1)
    chances = 1 / (1 + np.exp(-X[:, 0]))
    shares = found.columns["decision"].reshape(4, 5000).mean(axis=1)
    assert np.abs(shares - chances).max() < 4 * 0.5 / np.sqrt(5000)
    assert found.summary.endswith("; 20000 of them random, sampled with --seed 1")
    again = prediction_columns(RandomizedLogistic(ONE), rows[:7], seed=1).columns["decision"]
    assert again.tolist() == found.columns["decision"][:7].tolist()
    other = prediction_columns(RandomizedLogistic(ONE), rows, seed=2).columns["decision"]
    assert 0.1 < (other != found.columns["decision"]).mean() < 0.5


def test_random_numbers_do_not_depend_on_the_classifier():
    """A classifier with higher chances is positive wherever one with lower chances is."""
    rows = np.zeros((1000, 1))
    low, high = (
        prediction_columns(RandomizedLogistic(ONE, bias), rows, 0).columns["decision"]
        for bias in (-0.5, 0.5)
    )
    assert (high >= low).all()
    assert (high > low).any()


@pytest.mark.parametrize("many", [False, True])
def test_regressors(many):
    model = LinearRegressor(ONE, range=(-1.0, 2.5))
    found = prediction_columns(MixtureClassifier((model,), ONE) if many else model, X, 0)
    assert {name: column.tolist() for name, column in found.columns.items()} == {
        "estimate": [-1, 0, 0.5, 2.5]
    }
    assert found.summary == "estimates from -1 to 2.5"


CHILDREN = np.array([[1, 2], [LEAF, LEAF], [LEAF, LEAF]])


def test_filters():
    """The second value has a logistic probability and is always kept."""
    model = ProxyFilter(SplitTree(1, CHILDREN, (RandomizedLogistic(ONE),)), np.array([0.25, 1.0]))
    found = prediction_columns(model, X, seed=1)
    assert list(found.columns) == ["chance", "value", "kept"]
    second = 1 / (1 + np.exp(-X[:, 0]))
    assert found.columns["chance"] == pytest.approx(0.25 + 0.75 * second)
    value, kept = model.sample_rows(X, random_stream(1, "predict"))
    assert found.columns["value"].tolist() == value.tolist()
    assert found.columns["kept"].tolist() == kept.tolist()
    assert found.summary == f"{kept.sum()} of them kept, sampled with --seed 1"
    hashed = SampledFilter(model.proxy, model.keep, salt=3)
    rows = np.linspace(-3, 3, 200)[:, None]
    found, other = (prediction_columns(hashed, rows, seed=k) for k in (1, 2))
    assert list(found.columns) == ["chance", "kept"]
    assert found.columns["kept"].tolist() == hashed.decide(rows).tolist()
    assert found.columns["kept"].tolist() == other.columns["kept"].tolist()
    assert found.columns["chance"].tolist() == model.decide(rows).tolist()
    assert found.summary.endswith(" of them kept, by a hash of each")


@pytest.mark.parametrize("model", [Threshold, RandomizedLogistic, LinearRegressor])
def test_scores_that_are_not_finite_are_errors(model):
    with pytest.raises(FaultError, match="E404: the model gives row 3 a score that is not finite"):
        prediction_columns(model(ONE), np.array([[1.0], [2.0], [np.inf], [np.nan]]), 0)
