from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ratecli.solvers.hull import linear
from ratecli.solvers.hull.linear import LevelLp


def instance(seed: int, levels: int) -> tuple[LevelLp, np.ndarray]:
    """A random program, degenerate, with columns and rows that stand twice, and boxes of its levels."""
    rng = np.random.default_rng(seed)
    m, n, equal = rng.integers(2, 9), rng.integers(1, 40), rng.integers(1, 4)
    fixed = rng.normal(size=(m, n)).round(1) * 10.0 ** rng.integers(-4, 4, size=(m, 1))
    fixed[0] = rng.choice([1.0, 0.3]) + 0.2 * rng.random(n) * rng.integers(2)
    fixed[1] = fixed[-1] if rng.random() < 0.2 else fixed[1]
    fixed = np.repeat(fixed, 2, axis=1)
    places = [(p, i) for p in range(levels) for i in range(1, m) if rng.random() < 0.5]
    times = np.abs(rng.normal(size=(len(places), 2 * n)))
    low = rng.normal(size=levels)
    boxes = np.stack([low, low + rng.choice([0.0, 1e-7, 1.0], size=levels)], axis=1)
    cost, cost_times = rng.normal(size=2 * n).round(1), rng.normal(size=(levels, 2 * n))
    places = [(p, 0) for p in range(levels)] + [(p, 1 + i) for p, i in places]
    found = LevelLp(
        np.vstack([cost, fixed]),
        np.vstack([cost_times, times]),
        np.array(places, dtype=np.int64).reshape(-1, 2),
        min(int(equal), int(m)),
    )
    return found, boxes


def entries(linear: LevelLp, columns: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(m + 1, N) of columns at levels (N, P), the cost first."""
    found = linear.fixed[:, columns].copy()
    for (p, i), row in zip(linear.places, linear.times, strict=True):
        found[i] += levels[:, p] * row[columns]
    return found


def at_corners(linear: LevelLp, boxes: np.ndarray) -> np.ndarray:
    every = np.arange(linear.fixed.shape[1])
    corners = [np.tile(corner, (len(every), 1)) for corner in itertools.product(*boxes)]
    return np.hstack([entries(linear, every, corner) for corner in corners])


@pytest.mark.parametrize("levels", [0, 1, 2])
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_it_finds_what_a_list_of_all_corners_gives(levels, seed):
    linear, boxes = instance(seed, levels)
    table, equal = at_corners(linear, boxes), linear.equal
    rows, right = table[1:], np.eye(len(table) - 1)[0]
    cold = linprog(
        table[0], rows[equal:], right[equal:], rows[:equal], right[:equal], method="highs"
    )
    assume(cold.status in {0, 2})  # now and then HiGHS does not know
    found = linear.solve(boxes)
    assert (found is None) == (cold.status == 2)
    if found is None:
        return
    assert found.duals[1] == pytest.approx(cold.fun, abs=1e-6, rel=1e-6)
    used = entries(linear, found.columns, found.levels)
    assert used[0] @ found.x == pytest.approx(cold.fun, abs=1e-6, rel=1e-6)
    sizes = np.abs(rows).max(axis=1)
    off = used[1:] @ found.x - right
    assert (np.abs(off[:equal]) <= 1e-7 * (1 + sizes[:equal])).all()
    assert (off[equal:] <= 1e-7 * (1 + sizes[equal:])).all()
    assert (found.x >= 0).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_no_column_is_cheaper_at_the_duals_at_any_levels(seed):
    """What makes their first one a bound, whatever the basis."""
    linear, boxes = instance(seed, 2)
    found = linear.solve(boxes)
    if found is None:
        return
    rng, every = np.random.default_rng(seed), np.arange(linear.fixed.shape[1])
    for _ in range(20):
        levels = boxes[:, 0] + rng.random((len(every), 2)) * (boxes[:, 1] - boxes[:, 0])
        table = entries(linear, every, levels)
        assert (-found.duals @ table).min() >= -1e-7
    assert (found.duals[1 + linear.equal :] <= 1e-9).all()


@pytest.mark.parametrize("levels", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_highs_stands_in(seed, levels):
    linear, boxes = instance(seed, levels)
    found, other = linear.solve(boxes), linear._by_highs(boxes)
    assert (found is None) == (other is None)
    if found is not None:
        assert other.duals[1] == pytest.approx(found.duals[1], abs=1e-7)
        used = entries(linear, other.columns, other.levels)
        assert used[0] @ other.x == pytest.approx(found.duals[1], abs=1e-7)


def test_thousands_of_columns_and_rows_that_all_pass_through_one_point():
    """By its making the optimum is all of the first column, and costs nothing."""
    rng = np.random.default_rng(0)
    fixed = rng.normal(size=(40, 5000))
    fixed[0], fixed[1:, 0] = 1.0, 0.0
    cost = np.append(0.0, rng.random(4999)) - rng.random(39) @ fixed[1:]
    table = np.vstack([cost, fixed])
    linear = LevelLp(table, np.zeros((0, 5000)), np.zeros((0, 2), dtype=np.int64), 1)
    found = linear.solve(np.zeros((0, 2)))
    assert found.duals[1] == pytest.approx(0.0, abs=1e-9)
    assert found.x[found.columns == 0] == pytest.approx([1.0])
    assert (-found.duals @ table).min() >= -1e-8


def test_a_box_of_too_many_corners_for_highs_is_refused_before_they_are_listed(monkeypatch):
    monkeypatch.setattr(linear, "run_simplex", lambda *_: False)
    many, boxes = instance(0, levels=18)
    tracemalloc.start()
    with pytest.raises(ArithmeticError, match="many levels"):
        many.solve(boxes)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**22
