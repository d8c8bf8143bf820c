"""Adult as in figure 2 of Goh et al. 2016: the covariance baseline, and thresholds.

The figure's numbers are not printed. Those here are of solutions with a certified gap of 1e-6; at
c = 0 LIBLINEAR on features projected off the difference of means has the same value. The protocols
(2.4.4) have larger errors and smaller ratios, such as .1632 and 1.65 at c = 0, or .347 at c = .1:
LIBLINEAR with one heavy row for the covariance, which is far from converged after 1000 passes (at a
covariance of .50 its objective is .3673, the least one .3605).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from oracles.a9a import MEN, NEEDS_A9A, error_and_ratio, load
from oracles.goals import Rows, Rules, problem, run, shown

from ratecli.solvers.base import Solution
from ratecli.solvers.baselines.solvers import PostShift, Thresholded, Zafar

pytestmark = NEEDS_A9A

EDUCATED = 39
"""The column that the paper's own code takes for men: education-num of 13 and more."""

RATIO = Rules({"ratio": "positive_rate[g=Male] <= 1.25 * positive_rate[g=Female]"})


@cache
def rows(name: str, column: int) -> Rows:
    return load(name, column)


def fit(column: int, covariance: float) -> Solution:
    goals = problem(rows("a9a", column), RATIO)
    found = run(Zafar(covariance), goals)
    assert found.status == "solved"
    assert covariance - 5e-5 <= found.trace[0]["covariance"] <= covariance + 1e-6
    assert found.trace[0]["gap"] <= 1e-5 * found.trace[0]["objective"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "covariance", "error", "ratio"),
    [
        (MEN, 0.6, 0.1519, 2.57),
        (MEN, 0.4, 0.1531, 2.27),
        (MEN, 0.2, 0.1553, 2.00),
        (MEN, 0.1, 0.1562, 1.90),
        (EDUCATED, 0.8, 0.1628, 3.31),
        (EDUCATED, 0.5, 0.1724, 2.55),
        (EDUCATED, 0.1, 0.1831, 1.67),
    ],
)
def test_covariances_on_adult(column, covariance, error, ratio):
    found = fit(column, covariance)
    reached = error_and_ratio(rows("a9a.t", column), found.variants["deterministic"])
    assert reached == (pytest.approx(error, abs=0.001), pytest.approx(ratio, abs=0.03))


@pytest.mark.parametrize(
    ("column", "least", "error", "ratio"),
    [(MEN, 0.378038, 0.1570, 1.80), (EDUCATED, 0.435899, 0.1862, 1.50)],
)
def test_no_covariance_on_adult(column, least, error, ratio):
    """Value, error and ratio of LIBLINEAR on projected features, to 2e-6 after 20 000 passes."""
    found = fit(column, 0.0)
    assert found.trace[0]["objective"] == pytest.approx(least, abs=3e-6)
    reached = error_and_ratio(rows("a9a.t", column), found.variants["deterministic"])
    assert reached == (pytest.approx(error, abs=0.001), pytest.approx(ratio, abs=0.03))


def test_a_threshold_on_adult_meets_recall_and_no_more():
    """The SVM's own recall is .60; errors grow as the threshold falls."""
    train = rows("a9a", MEN)
    goals = problem(train, Rules({"r": "recall >= 0.75"}))
    found = run(Thresholded(), goals)
    decisions = found.variants["deterministic"].decide(train.X)
    hits, positives = int((decisions * train.label).sum()), int(train.label.sum())
    assert 0 <= hits - 0.75 * positives < 10
    assert found.trace[0]["shift"] > 0.1
    assert found.trace[0]["objective"] == pytest.approx(np.abs(decisions - train.label).mean())


def test_thresholds_of_men_and_women_on_adult():
    """Enumerated on another logistic regression: train .1621 at a ratio of 1.247, test .1648 at 1.249."""
    found = run(PostShift(), problem(rows("a9a", MEN), RATIO))
    assert found.status == "solved"
    assert found.trace[-1]["exact"]
    assert len(found.variants["stochastic"].members) == 2
    for name, error, ratio in (("a9a", 0.1621, 1.247), ("a9a.t", 0.1648, 1.249)):
        for variant, exact in (("deterministic", 0.002), ("stochastic", 0.01)):
            classifier = found.variants[variant]
            seen = replace(rows(name, MEN), X=shown(rows(name, MEN), classifier))
            assert error_and_ratio(seen, classifier) == (
                pytest.approx(error, abs=3e-4),
                pytest.approx(ratio, abs=exact),
            )


def test_the_plug_in_classifier_for_f1_on_adult():
    """One group, so one threshold; the released code has .7065 on two thirds of these rows, in other
    features.
    """
    goals = problem(rows("a9a", MEN), Rules({}, "1 - f1"))
    one, two = (run(solver, goals) for solver in (Thresholded(loss="logistic"), PostShift()))
    assert one.trace[-1]["objective"] == pytest.approx(1 - 0.6912, abs=5e-4)
    assert two.trace[-1]["objective"] == pytest.approx(one.trace[-1]["objective"], abs=1e-9)
    assert len(two.variants["stochastic"].members) == 1
