"""Defects of the Seldonian Toolkit in candidate selection that no other test names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import smooth_rows
from oracles.promised import GAP, promised

from ratecli.models.linear import RandomizedLogistic
from ratecli.solvers.seldonian.solver import Seldonian

RULES = {"gap": GAP, "recall": "tpr >= 0.4"}


def chance(problem, **options):
    solution = Seldonian(**options).solve(problem, np.random.default_rng(0), lambda _: None)
    assert solution.status == "solved"
    model = solution.variants["stochastic"]
    assert isinstance(model, RandomizedLogistic)
    return model, solution


def test_multipliers_of_two_goals_may_be_whole_numbers():
    """Defect 10: theirs has one multiplier unless told otherwise, and 1 is refused for 1.0."""
    problem = promised(smooth_rows(1, d=2), RULES, tests=20_000)
    options = {"optimizer": "lagrangian", "iterations": 60, "step": 0.1, "inflation": 1}
    (one, ended), (other, _) = (chance(problem, multiplier=m, **options) for m in (1, 1.0))
    assert ended.multipliers.keys() == RULES.keys()
    np.testing.assert_array_equal(one.weights, other.weights)


@pytest.mark.parametrize(("optimizer", "near"), [("sequential", 1e-4), ("lagrangian", 1e-3)])
def test_exam_scores_are_no_worse_features_than_deviations(optimizer, near):
    """Defect 13: theirs leaves all that is useful in its first step where features are large."""
    rows = smooth_rows(1, d=2)
    exams = replace(rows, X=575 + 80 * rows.X)
    options = {"optimizer": optimizer, "iterations": 600, "step": 0.1, "inflation": 1}
    plain, raw = (
        chance(promised(each, RULES, l2=0.0, tests=20_000), **options)[0] for each in (rows, exams)
    )
    np.testing.assert_allclose(raw.score(exams.X), plain.score(rows.X), atol=near)


@pytest.mark.parametrize(("optimizer", "iterations"), [("lagrangian", 100), ("cma", 20)])
def test_nothing_is_printed_and_no_argument_is_changed(optimizer, iterations, capfd):
    """Defect 14: theirs prints, and changes the weights that it starts from."""
    rows = smooth_rows(1, d=2)
    problem = promised(rows, RULES, tests=20_000)
    before = problem.X.copy(), problem.label.copy()
    chance(problem, optimizer=optimizer, iterations=iterations, step=0.1, inflation=1)
    assert capfd.readouterr() == ("", "")
    np.testing.assert_array_equal(problem.X, before[0])
    np.testing.assert_array_equal(problem.label, before[1])
