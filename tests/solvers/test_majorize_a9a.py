"""Adult as in figure 2 of Goh et al. 2016; numbers of the protocols, 2.4.4."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from oracles.a9a import MEN, NEEDS_A9A, error_and_ratio, load
from oracles.goals import Rows, Rules, problem, run

from ratecli.solvers.base import Solution
from ratecli.solvers.baselines.solvers import Unconstrained
from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE
from ratecli.solvers.majorize.solver import Majorize

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


@cache
def rows(name: str, column: int = MEN) -> Rows:
    return load(name, column)


def fit(target: float, column: int = MEN, iterations: int = 8) -> Solution:
    rule = f"positive_rate[g=Male] <= {target} * positive_rate[g=Female]"
    goals = problem(rows("a9a", column), Rules({"ratio": rule}))
    return run(Majorize(iterations), goals)


def test_unconstrained_on_adult():
    solution = run(Unconstrained(), problem(rows("a9a"), Rules()))
    error, ratio = error_and_ratio(rows("a9a.t"), solution.variants["deterministic"])
    assert error == pytest.approx(0.1502, abs=0.0005)
    assert ratio == pytest.approx(3.46, abs=0.02)


def test_the_first_step_on_adult_favours_women_by_far():
    """All rates are hinges, which saturate nowhere."""
    first = fit(1, iterations=1)
    error, ratio = error_and_ratio(rows("a9a"), first.variants["stochastic"])
    assert error == pytest.approx(0.2080, abs=0.0005)
    assert ratio < 0.8
    _, ratio = error_and_ratio(rows("a9a"), first.variants["deterministic"])
    assert ratio == pytest.approx(0.64, abs=0.01)


def test_later_steps_on_adult_use_the_slack_of_the_first():
    solution = fit(1)
    assert solution.status == "solved"
    assert max(row["violation"] for row in solution.trace) <= FEASIBILITY_TOLERANCE
    assert (np.diff([row["objective"] for row in solution.trace]) <= 0).all()
    for row in solution.trace:
        assert 0 <= row["gap"] <= 1e-4 * row["bound"]
    error, ratio = error_and_ratio(rows("a9a"), solution.variants["stochastic"])
    assert error == pytest.approx(0.1711, abs=0.001)
    assert ratio == pytest.approx(1, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("reference", REFERENCE, ids=lambda row: f"{row[0]} at {row[1]}")
def test_ratio_targets_on_adult(reference, record_testsuite_property):
    column, target, hard, random, trained = reference
    solution = fit(target, column)
    assert solution.status == "solved"
    train, test = rows("a9a", column), rows("a9a.t", column)
    reached = {
        (name, part): error_and_ratio(data, variant)
        for name, variant in solution.variants.items()
        for part, data in (("train", train), ("test", test))
    }
    for key, value in reached.items():
        record_testsuite_property(f"{column} {target} {' '.join(key)}", value)
    error, ratio = reached["stochastic", "train"]
    # 5e-5 are of the listed digits. As much depends on the gap: the eighth step still gains 3e-4,
    # and column 39 at 5 ends at .14957, .14952 and .14956 with gaps of 1e-4, 1e-5 and 1e-6
    assert error <= trained + 1e-4
    assert 0.995 * target <= ratio <= target * (1 + 1e-6)
    assert reached["stochastic", "test"][0] == pytest.approx(random, abs=5e-4)
    assert reached["deterministic", "test"][0] == pytest.approx(hard, abs=1.2e-3)
