"""Adult as in figure 2 of Goh et al. 2016; numbers of the protocols, 2.4.4."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.a9a import NEEDS_A9A, error_and_ratio, load
from oracles.goals import Rows, Rules, problem

from ratecli.solvers.base import Solution
from ratecli.solvers.baselines.unconstrained import Unconstrained
from ratecli.solvers.majorize.solver import Majorize

pytestmark = NEEDS_A9A


@pytest.fixture(scope="module")
def train() -> Rows:
    return load("a9a")


@pytest.fixture(scope="module")
def test() -> Rows:
    return load("a9a.t")


def fit(rows: Rows, target: float, iterations: int = 8) -> Solution:
    rule = f"positive_rate[g=Male] <= {target} * positive_rate[g=Female]"
    goals = problem(rows, Rules({"ratio": rule}))
    return Majorize(iterations).solve(goals, np.random.default_rng(0), lambda _: None)


def test_unconstrained_on_adult(train, test):
    solution = Unconstrained().solve(
        problem(train, Rules()), np.random.default_rng(0), lambda _: None
    )
    error, ratio = error_and_ratio(test, solution.variants["deterministic"])
    assert error == pytest.approx(0.1502, abs=0.0005)
    assert ratio == pytest.approx(3.46, abs=0.02)


def test_the_first_step_on_adult_favours_women_by_far(train):
    """All rates are hinges, which saturate nowhere."""
    first = fit(train, 1, iterations=1)
    error, ratio = error_and_ratio(train, first.variants["stochastic"])
    assert error == pytest.approx(0.2080, abs=0.0005)
    assert ratio < 0.8
    _, ratio = error_and_ratio(train, first.variants["deterministic"])
    assert ratio == pytest.approx(0.64, abs=0.01)


def test_later_steps_on_adult_use_up_that_slack(train, test):
    solution = fit(train, 1)
    assert solution.status == "solved"
    assert max(row["violation"] for row in solution.trace) <= 1e-8
    assert (np.diff([row["objective"] for row in solution.trace]) <= 1e-9).all()
    error, ratio = error_and_ratio(train, solution.variants["stochastic"])
    assert error == pytest.approx(0.1711, abs=0.001)
    assert ratio == pytest.approx(1, abs=0.01)
    error, ratio = error_and_ratio(test, solution.variants["deterministic"])
    assert error <= 0.173
    assert ratio == pytest.approx(1, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "most"), [(1.25, 0.166), (2.0, 0.158), (3.0, 0.1535)])
def test_ratio_targets_on_adult(train, test, target, most):
    solution = fit(train, target)
    _, ratio = error_and_ratio(train, solution.variants["stochastic"])
    assert ratio == pytest.approx(target, rel=0.01)
    error, ratio = error_and_ratio(test, solution.variants["deterministic"])
    assert error <= most
    assert ratio == pytest.approx(target, rel=0.05)
