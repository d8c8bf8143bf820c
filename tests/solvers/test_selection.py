from __future__ import annotations

import numpy as np
import pytest
from oracles.goals import Rows, Rules, problem

from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.players.training import best_iterate, shrink_by_metrics, shrink_mixture


def test_best_iterate_has_the_smallest_worse_rank():
    """Vector 9.11."""
    assert best_iterate(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.3, 0.1, 0, 0])) == 1
    violations = np.array([0.05, -0.1, 0.02, -0.02])
    assert best_iterate(np.array([0.10, 0.15, 0.12, 0.12]), violations) == 3
    assert best_iterate(np.array([0.2, 0.2]), np.array([0.0, 0.0])) == 1  # the later of equals


@pytest.mark.parametrize(
    ("objectives", "violations", "chances", "allowed"),
    [
        ([0.1, 0.3], [[0.1, -0.1]], [0.5, 0.5], 0),
        ([0.1, 0.2, 0.3], [[0.3, 0.05, -0.1]], [0, 2 / 3, 1 / 3], 0),
        ([0.1, 0.2], [[0.3, 0.1]], [0, 1], 0.1),
        # iterates with an undefined metric are skipped; if all have one, the last is taken
        ([np.inf, 0.1, 0.3, 0.0], [[-1, 0.1, -0.1, np.inf]], [0, 0.5, 0.5, 0], 0),
        ([np.inf, np.inf], [[-1.0, 0.0]], [0, 1], np.inf),
    ],
)
def test_mixtures_of_metrics(objectives, violations, chances, allowed):
    """Vector 9.10."""
    found = shrink_by_metrics(np.array(objectives), np.array(violations))
    np.testing.assert_allclose(found.chances, chances, atol=1e-4)
    assert found.allowed == pytest.approx(allowed, abs=1e-5)


def test_vertex_solutions_have_at_most_one_iterate_more_than_constraints():
    """Vector 9.10, the last."""
    rows = np.array([[0.2, -0.1, 0.1, -0.2], [0.2, 0.1, -0.1, -0.2]])
    objectives = np.array([0, 0.2, 0.2, 0.5])
    found = shrink_by_metrics(objectives, rows)
    assert objectives @ found.chances == pytest.approx(0.2, abs=1e-6)
    assert (found.chances > 1e-9).sum() <= 3


def test_ratio_of_a_mixture_is_computed_from_its_counts():
    """Vector 9.6: half of (TP, FP, FN) = (3, 1, 2) and half of (0, 0, 5) on 10 rows have F1 = 3 / 7, not
    the mean 1 / 3. With a limit of .4, the means allow mixtures that violate it.
    """
    label = np.repeat([1.0, 0.0], 5)
    decisions = np.array([[1, 1, 1, 0, 0, 1, 0, 0, 0, 0], np.zeros(10)], dtype=float)
    group = np.full(10, "a", dtype=object)
    given = problem(Rows(np.zeros((10, 1)), label, group), Rules({"f": "f1 <= 0.4"}, "-tpr"))
    rates = np.stack([given.rates.rates(p) for p in decisions], axis=1)
    program = RateProgram.of(given)
    found = shrink_mixture(program, rates)
    assert program.excess(rates @ found.chances) <= 1e-6
    averaged = shrink_by_metrics(
        program.value(program.objective, rates), np.array([[2 / 3 - 0.4, -0.4]])
    )
    assert averaged.chances[0] == pytest.approx(0.6, abs=1e-5)
    mixed = rates @ averaged.chances
    tp, fp, fn = 0.6 * 3, 0.6 * 1, 5 - 0.6 * 3
    assert 2 * tp / (2 * tp + fp + fn) > 0.45
    assert program.excess(mixed) > 0.01
    assert found.chances[0] < 0.55


def test_last_iterate_is_taken_if_all_leave_a_ratio_undefined():
    """Without positive decisions, precision is undefined."""
    rows = Rows(np.zeros((4, 1)), np.array([1.0, 0, 1, 0]), np.array(list("aabb"), dtype=object))
    given = problem(rows, Rules({"p": "precision[g=a] - precision[g=b] <= 0.1"}))
    rates = np.stack([given.rates.rates(np.zeros(4))] * 3, axis=1)
    found = shrink_mixture(RateProgram.of(given), rates)
    assert found.chances.tolist() == [0, 0, 1]
    assert found.allowed == np.inf
