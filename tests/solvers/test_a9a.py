"""Adult as in figure 2 of Goh et al. 2016; numbers of the protocols, 2.4.4."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from oracles.a9a import MEN, NEEDS_A9A, error_and_ratio, rows
from oracles.goals import BOTH, Rules, problem, run, shown

from ratecli.models.linear import Threshold
from ratecli.solvers.base import Solution
from ratecli.solvers.baselines.options import PostShift, Thresholded, Unconstrained, Zafar
from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE
from ratecli.solvers.majorize.options import Majorize

pytestmark = NEEDS_A9A
EDUCATED = 39
"""The column that the paper's own code takes for men: education-num of 13 and more."""

REFERENCE = [
    (MEN, 3, 0.1524, 0.1544, 0.1497),
    (MEN, 2, 0.1563, 0.1578, 0.1530),
    (MEN, 1.25, 0.1643, 0.1663, 0.1637),
    (MEN, 1, 0.1700, 0.1729, 0.1711),
    (EDUCATED, 5, 0.1523, 0.1538, 0.1495),
    (EDUCATED, 4, 0.1555, 0.1557, 0.1512),
    (EDUCATED, 3, 0.1575, 0.1610, 0.1566),
    (EDUCATED, 2, 0.1701, 0.1733, 0.1698),
    (EDUCATED, 1.25, 0.1848, 0.1882, 0.1870),
    (EDUCATED, 1, 0.1944, 0.1950, 0.1936),
]
"""Column, target; test error of the sign and of the ramp, training error of the ramp, all at T = 8
with LIBLINEAR inside.
"""


def fit_ratio(target: float, column: int = MEN, iterations: int = 8) -> Solution:
    rule = f"positive_rate[g=Male] <= {target} * positive_rate[g=Female]"
    goals = problem(rows("a9a", column), Rules({"ratio": rule}))
    return run(Majorize(iterations, **BOTH), goals)


def test_unconstrained_on_adult():
    solution = run(Unconstrained(), problem(rows("a9a"), Rules()))
    error, ratio = error_and_ratio(rows("a9a.t"), solution.variants["deterministic"])
    assert error == pytest.approx(0.1502, abs=0.0005)
    assert ratio == pytest.approx(3.46, abs=0.02)


def test_the_first_step_on_adult_favours_women_by_far():
    """All rates are hinges, which saturate nowhere."""
    first = fit_ratio(1, iterations=1)
    error, ratio = error_and_ratio(rows("a9a"), first.variants["stochastic"])
    assert error == pytest.approx(0.2080, abs=0.0005)
    assert ratio < 0.8
    assert error_and_ratio(rows("a9a"), first.variants["deterministic"])[0] < error


def test_later_steps_on_adult_use_the_slack_of_the_first():
    solution = fit_ratio(1)
    assert solution.status == "solved"
    assert max(row["violation"] for row in solution.trace) <= FEASIBILITY_TOLERANCE
    assert (np.diff([row["objective"] for row in solution.trace]) <= 0).all()
    *_, last = solution.trace
    assert last["gap"] <= 1e-4 * last["bound"]
    for before, row in pairwise(solution.trace):
        progress = before["objective"] - row["bound"]
        assert 0 <= row["gap"] <= max(1e-4 * row["bound"], 0.002 * progress)
    error, ratio = error_and_ratio(rows("a9a"), solution.variants["stochastic"])
    assert error == pytest.approx(0.1711, abs=0.001)
    assert ratio == pytest.approx(1, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("reference", REFERENCE, ids=lambda row: f"{row[0]} at {row[1]}")
def test_ratio_targets_on_adult(reference):
    column, target, hard, random, trained = reference
    solution = fit_ratio(target, column)
    assert solution.status == "solved"
    train, test = rows("a9a", column), rows("a9a.t", column)
    ramp = solution.variants["stochastic"]
    error, ratio = error_and_ratio(train, ramp)
    # 5e-5 are of the listed digits. As much depends on the gap: the eighth step still gains 3e-4,
    # and column 39 at 5 ends at .14957, .14952 and .14956 with gaps of 1e-4, 1e-5 and 1e-6
    assert error <= trained + 1e-4
    assert 0.995 * target <= ratio <= target * (1 + 1e-6)
    assert error_and_ratio(test, ramp)[0] == pytest.approx(random, abs=5e-4)
    sign = Threshold(ramp.weights, ramp.bias)
    assert error_and_ratio(test, sign)[0] == pytest.approx(hard, abs=1.2e-3)


RATIO = Rules({"ratio": "positive_rate[g=Male] <= 1.25 * positive_rate[g=Female]"})


def fit(column: int, covariance: float) -> Solution:
    """The figure's numbers are not printed. Those here are of solutions with a certified gap of 1e-6; at
    c = 0 LIBLINEAR on features projected off the difference of means has the same value. The protocols
    (2.4.4) have larger errors and smaller ratios, such as .1632 and 1.65 at c = 0, or .347 at c = .1:
    LIBLINEAR with one heavy row for the covariance, which is far from converged after 1000 passes (at a
    covariance of .50 its objective is .3673, the least one .3605).
    """
    goals = problem(rows("a9a", column), RATIO)
    found = run(Zafar(covariance), goals)
    assert found.status == "solved"
    assert covariance - 5e-5 <= found.trace[0]["covariance"] <= covariance + 1e-6
    assert found.trace[0]["gap"] <= 1e-5 * found.trace[0]["objective"]
    return found


@pytest.mark.parametrize(
    ("column", "covariance", "error", "ratio"),
    [
        (MEN, 0.0, 0.1570, 1.80),
        (EDUCATED, 0.0, 0.1862, 1.50),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in [
                (MEN, 0.6, 0.1519, 2.57),
                (MEN, 0.4, 0.1531, 2.27),
                (MEN, 0.2, 0.1553, 2.00),
                (MEN, 0.1, 0.1562, 1.90),
                (EDUCATED, 0.8, 0.1628, 3.31),
                (EDUCATED, 0.5, 0.1724, 2.55),
                (EDUCATED, 0.1, 0.1831, 1.67),
            ]
        ),
    ],
)
def test_covariances_on_adult(column, covariance, error, ratio):
    """At c = 0 the value is LIBLINEAR's on projected features, to 2e-6 after 20 000 passes."""
    found = fit(column, covariance)
    if covariance == 0:
        least = {MEN: 0.378038, EDUCATED: 0.435899}[column]
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
    found = run(PostShift(**BOTH), problem(rows("a9a", MEN), RATIO))
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
    """One group has one threshold; the released code has .7065 on two thirds of the rows."""
    goals = problem(rows("a9a", MEN), Rules({}, "1 - f1"))
    one, two = (run(solver, goals) for solver in (Thresholded(loss="logistic"), PostShift(**BOTH)))
    assert one.trace[-1]["objective"] == pytest.approx(1 - 0.6912, abs=5e-4)
    assert two.trace[-1]["objective"] == pytest.approx(one.trace[-1]["objective"], abs=1e-9)
    assert len(two.variants["stochastic"].members) == 1
