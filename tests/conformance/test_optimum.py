"""The exact optima of the tiny problems, against grids and against every subset of points."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

from ratecli.conformance.problems import (
    FEATURE_POINTS,
    TINY_PROBLEM_GOALS,
    TinyTable,
    indistinguishable_rows,
    linear_decisions,
    plain_table,
    repeat_rows,
    weighted_table,
)

STEPS = np.linspace(0, 1, 21)
EXACT = [goals for goals in TINY_PROBLEM_GOALS if goals.formula is not None]


def three_point_table() -> TinyTable:
    """Return the plain table with the first feature clipped to three values."""
    rows = plain_table().training
    place = np.clip(rows.X[:, 0], -1, 1)
    return TinyTable(place[:, None], rows.label, rows.group, rows.weight, rows.part)


@pytest.mark.parametrize("goals", EXACT, ids=lambda goals: goals.name)
def test_the_optimum_is_that_of_a_grid(goals):
    rows = three_point_table()
    exact, cells = goals.exact(rows), indistinguishable_rows(rows.X)
    values = [
        exact.value(p)
        for way in itertools.product(STEPS, repeat=3)
        if exact.violation(p := np.array(way)[cells]) <= 1e-12
    ]
    nearest = min((value for value in values if not math.isnan(value)), default=math.inf)
    best = exact.best(cells)
    assert best <= nearest + 1e-7
    assert nearest - best < 0.03 or nearest == best


@pytest.mark.parametrize("goals", EXACT, ids=lambda goals: goals.name)
def test_optima_are_lower_with_more_inputs_more_slack_or_nonlinear_rules(goals):
    rows = plain_table().training
    exact, group = goals.exact(rows), (rows.group == "a").astype(float)
    blind, seeing = (
        exact.best(indistinguishable_rows(rows.X)),
        exact.best(indistinguishable_rows(rows.X, group)),
    )
    assert seeing <= blind + 1e-9
    assert exact.best(indistinguishable_rows(rows.X), 0.05) <= blind + 1e-9
    line = exact.best_line(linear_decisions(rows))
    assert math.isnan(line) == (not goals.possible)
    assert goals.possible == math.isfinite(blind)
    if goals.possible:
        assert blind <= line + 1e-9


def test_a_weight_equals_repeated_rows():
    rows = weighted_table()
    many = repeat_rows(rows)
    for goals in EXACT:
        one, other = (
            goals.exact(each).best(indistinguishable_rows(each.X)) for each in (rows, many)
        )
        assert one == pytest.approx(other, abs=1e-9)


def test_linear_decisions_are_all_separable_subsets():
    places = FEATURE_POINTS[:6]
    rows = TinyTable(places, np.zeros(6), np.full(6, "a"), np.ones(6), np.full(6, "train"))
    found = {tuple(mask.tolist()) for mask in linear_decisions(rows)}
    parted = set()
    for mask in itertools.product([False, True], repeat=6):
        side = np.where(mask, 1.0, -1.0)
        table = -side[:, None] * np.column_stack([places, np.ones(6)])
        answer = linprog(np.zeros(3), table, -np.ones(6), bounds=[(None, None)] * 3)
        if answer.status == 0:
            parted.add(mask)
    assert found == parted


def test_constraints_raise_the_optimum():
    rows = plain_table().training
    free = TINY_PROBLEM_GOALS[0].exact(rows).best(indistinguishable_rows(rows.X))
    for goals in EXACT[1:3]:
        assert goals.exact(rows).best(indistinguishable_rows(rows.X)) > free + 0.02
