"""The optima of the tiny problems, against grids of decisions whose rates are counted here."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from ratecli.conformance import problems as tiny
from ratecli.runner.trial import training_problem
from ratecli.solvers.problem import Problem

STEPS = np.linspace(0, 1, 21)
GOALS = {goals.name: goals for goals in tiny.TINY_PROBLEM_GOALS}


def counted(p, y, a):
    """Return rates of decisions p on rows with labels y, of which some are in group a."""
    error, tp = np.where(y, 1 - p, p), np.where(y, p, 0)
    rates = {"error": error.mean(), "all": p.mean(), "a": p[a].mean(), "b": p[~a].mean()}
    rates |= {"tpr": p[y].mean(), "tpr_a": p[y & a].mean(), "fpr": p[~y].mean()}
    for name, group in (("f1", y | True), ("f1_a", a), ("f1_b", ~a)):
        rates[name] = 2 * tp[group].sum() / (2 * tp + error)[group].sum()
    return rates


def divergence(share, rate):
    pairs = ((share, rate), (1 - share, 1 - rate))
    return sum(x * math.log(x / y) if y > 0 else math.inf for x, y in pairs)


MEASURES = {
    "least error": lambda r: (r["error"], 0),
    "parity": lambda r: (r["error"], 0.9 * r["b"] - r["a"]),
    "recall": lambda r: (r["error"], max(0.6 - r["tpr_a"], r["all"] - 0.3)),
    "equal errors": lambda r: (math.hypot(r["fpr"], 1 - r["tpr"]) / 2**0.5, r["all"] - 0.4),
    "a divergence": lambda r: (r["error"], divergence(0.6, r["a"]) - 0.01),
    "f1": lambda r: (1 - r["f1"], r["all"] - 0.3),
    "two ratios": lambda r: (r["error"], 0.9 * r["f1_b"] - r["f1_a"]),
    "out of reach": lambda r: (r["error"], max(0.95 - r["tpr"], r["all"] - 0.1)),
}
"""Objective and violation of each problem whose optimum is known."""


def problem_of(name: str, rows: pd.DataFrame) -> Problem:
    return training_problem(tiny.trial_data(rows), *GOALS[name].read(), 0.01)


@pytest.fixture(scope="module")
def grid():
    """The table, the cells of its rows, and the rates of all decisions of a grid."""
    rows = tiny.training_table()
    cells = tiny.indistinguishable_rows(np.clip(rows.x0, -1, 1))
    ways = map(np.array, itertools.product(STEPS, repeat=3))
    return (
        rows,
        cells,
        [counted(way[cells], rows.label.to_numpy() == 1, rows.g.to_numpy() == "a") for way in ways],
    )


@pytest.mark.parametrize("name", MEASURES)
def test_the_optimum_is_that_of_a_grid(name, grid):
    rows, cells, rates = grid
    values = [value for value, missed in map(MEASURES[name], rates) if missed <= 1e-12]
    nearest = min(values, default=math.inf)
    best = tiny.best_objective(problem_of(name, rows), cells)
    assert best <= nearest + 1e-7
    assert nearest - best < 0.03 or nearest == best


@pytest.mark.parametrize("name", MEASURES)
def test_optima_are_lower_with_more_inputs_or_slack_and_equal_with_repeated_rows(name):
    rows = tiny.training_table()
    problem = problem_of(name, rows)
    cells = tiny.indistinguishable_rows(problem.X)
    best = tiny.best_objective(problem, cells)
    assert math.isfinite(best) == GOALS[name].possible
    seeing = tiny.best_objective(problem, tiny.indistinguishable_rows(problem.X, rows.g == "a"))
    assert seeing <= best + 1e-9
    assert tiny.best_objective(problem, cells, 0.05) <= best + 1e-9
    one, other = (
        tiny.best_objective(problem_of(name, each), tiny.indistinguishable_rows(each[["x0", "x1"]]))
        for each in (tiny.weighted_table(), tiny.repeat_rows(tiny.weighted_table()))
    )
    assert one == pytest.approx(other, abs=1e-7)


def test_goals_without_a_known_optimum_have_none():
    (name,) = GOALS.keys() - MEASURES
    problem = problem_of(name, tiny.training_table())
    assert math.isnan(tiny.best_objective(problem, tiny.indistinguishable_rows(problem.X)))
