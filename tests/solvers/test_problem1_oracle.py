"""The oracles against each other and against what is known of them."""

import numpy as np
import pytest
from oracles import problem1
from oracles.goals import Rules, forms, grid_rows, problem

RULES = {
    "none": {},
    "parity": {"p": "positive_rate[g=b] >= 0.8 * positive_rate[g=a]"},
    "recall and fpr": {"r": "recall >= 0.8", "f": "fpr <= 0.4"},
    "coverage": {"c": "positive_rate <= 0.3"},
    "odds": {"o": "max_gap(tpr, by=g) <= 0.1"},
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", RULES)
def test_milp_and_enumeration_find_the_same_optimum(name, seed):
    rows = grid_rows(seed, n=24)
    goals = forms(problem(rows, Rules(RULES[name])))
    listed, solved = (problem1.by_enumeration(rows.X, *goals), problem1.by_milp(rows.X, *goals))
    assert solved == pytest.approx(listed, abs=1e-9)


def test_milp_with_its_margin_separates_whatever_a_line_separates():
    points = np.array([[0, 0], [0, 3], [1, 3], [1, 0], [2, -3], [3, -3], [-3, 2]], dtype=float)
    for decisions in problem1.dichotomies(points):
        coefficients = (1 - 2 * decisions)[None, :]
        constant = np.array([decisions.sum()])
        assert problem1.by_milp(points, coefficients, constant) == pytest.approx(0, abs=1e-6)


def test_lines_make_as_many_dichotomies_as_cover_counted():
    """n^2 - n + 2 for n points of the plane in general position; 2 n on a line."""
    parabola = np.array([[x, x * x] for x in range(-4, 5)], dtype=float)
    assert len(problem1.dichotomies(parabola)) == 9 * 8 + 2
    assert len(problem1.dichotomies(np.arange(7.0)[:, None])) == 2 * 7
