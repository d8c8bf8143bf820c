"""A classifier's answers as columns."""

from __future__ import annotations

import numpy as np
import pytest

from ratecli.faults import FaultError
from ratecli.models.linear import Chance, Estimate, Logistic, Threshold
from ratecli.models.mixture import Mixture
from ratecli.runner.answers import answers

X = np.array([[-2.0], [0.0], [0.5], [3.0]])
ONE = np.ones(1)


def test_of_who_is_certain():
    """A chance is that of the decision: of a logistic regression that decides at 1/2, 0 or 1."""
    for kind in (Threshold, Logistic):
        found = answers(kind(ONE), X, seed=5)
        assert list(found.columns) == ["score", "chance", "decision"]
        assert found.columns["score"].tolist() == [-2, 0, 0.5, 3]
        assert found.columns["chance"].tolist() == [0, 0, 1, 1]
        assert found.columns["decision"].tolist() == [0, 0, 1, 1]
        assert found.told == "2 yes, 2 no"


def test_of_who_is_not():
    rows = np.repeat(X, 5000, axis=0)
    found = answers(Chance(ONE), rows, seed=1)
    chances = 1 / (1 + np.exp(-X[:, 0]))
    shares = found.columns["decision"].reshape(4, 5000).mean(axis=1)
    assert np.abs(shares - chances).max() < 4 * 0.5 / np.sqrt(5000)
    assert found.told.endswith("; 20000 of them by chance, drawn with --seed 1")
    again = answers(Chance(ONE), rows[:7], seed=1).columns["decision"]
    assert again.tolist() == found.columns["decision"][:7].tolist()
    other = answers(Chance(ONE), rows, seed=2).columns["decision"]
    assert 0.1 < (other != found.columns["decision"]).mean() < 0.5


def test_draws_do_not_depend_on_the_classifier():
    """Whoever gives every row at least the chance that another gives it says yes wherever that does."""
    rows = np.zeros((1000, 1))
    low, high = (answers(Chance(ONE, bias), rows, 0).columns["decision"] for bias in (-0.5, 0.5))
    assert (high >= low).all()
    assert (high > low).any()


@pytest.mark.parametrize("many", [False, True])
def test_of_who_estimates_numbers(many):
    model = Estimate(ONE, range=(-1.0, 2.5))
    found = answers(Mixture((model,), ONE) if many else model, X, 0)
    assert {name: column.tolist() for name, column in found.columns.items()} == {
        "estimate": [-1, 0, 0.5, 2.5]
    }
    assert found.told == "estimates from -1 to 2.5"


@pytest.mark.parametrize("model", [Threshold, Chance, Estimate])
def test_scores_that_are_not_finite(model):
    with pytest.raises(FaultError, match="E404: the model gives row 3 a score that is not finite"):
        answers(model(ONE), np.array([[1.0], [2.0], [np.inf], [np.nan]]), 0)
