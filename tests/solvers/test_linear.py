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
    """A random degenerate program with repeated columns and rows, and boxes of its levels."""
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


def entries(program: LevelLp, columns: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return (m + 1, N) the columns at levels (N, P), the cost first."""
    found = program.fixed[:, columns].copy()
    for (p, i), row in zip(program.places, program.times, strict=True):
        found[i] += levels[:, p] * row[columns]
    return found


@pytest.mark.parametrize("levels", [0, 1, 2])
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_optimum_equals_that_of_a_program_with_all_corners(levels, seed):
    """Also that of the fallback, and its duals are feasible at any levels, so they give a bound."""
    program, boxes = instance(seed, levels)
    every, equal = np.arange(program.fixed.shape[1]), program.equal
    corners = [np.tile(corner, (len(every), 1)) for corner in itertools.product(*boxes)]
    cost, *rows = np.hstack([entries(program, every, corner) for corner in corners])
    rows, right = np.array(rows), np.eye(len(rows))[0]
    expected = linprog(cost, rows[equal:], right[equal:], rows[:equal], right[:equal])
    assume(expected.status in {0, 2})  # HiGHS fails occasionally
    for found in (program.solve(boxes), program._by_highs(boxes)):
        assert (found is None) == (expected.status == 2)
        if found is None:
            continue
        assert found.duals[1] == pytest.approx(expected.fun, abs=1e-6, rel=1e-6)
        used = entries(program, found.columns, found.levels)
        assert used[0] @ found.x == pytest.approx(expected.fun, abs=1e-6, rel=1e-6)
        off = (used[1:] @ found.x - right) / (1 + np.abs(rows).max(axis=1))
        assert (np.abs(off[:equal]) <= 1e-7).all()
        assert (off[equal:] <= 1e-7).all()
        assert (found.x >= 0).all()
    if found is None:
        return
    duals, rng = program.solve(boxes).duals, np.random.default_rng(seed)
    assert (duals[1 + equal :] <= 1e-9).all()
    for _ in range(20):
        at = boxes[:, 0] + rng.random((len(every), levels)) * (boxes[:, 1] - boxes[:, 0])
        assert (-duals @ entries(program, every, at)).min() >= -1e-7


def test_degenerate_program_with_thousands_of_columns():
    """The optimum is all of the first column by construction, and costs nothing."""
    rng = np.random.default_rng(0)
    fixed = rng.normal(size=(40, 5000))
    fixed[0], fixed[1:, 0] = 1.0, 0.0
    cost = np.append(0.0, rng.random(4999)) - rng.random(39) @ fixed[1:]
    table = np.vstack([cost, fixed])
    program = LevelLp(table, np.zeros((0, 5000)), np.zeros((0, 2), dtype=np.int64), 1)
    found = program.solve(np.zeros((0, 2)))
    assert found.duals[1] == pytest.approx(0.0, abs=1e-9)
    assert found.x[found.columns == 0] == pytest.approx([1.0])
    assert (-found.duals @ table).min() >= -1e-8


def test_too_many_corners_for_highs_are_rejected_before_they_are_listed(monkeypatch):
    monkeypatch.setattr(linear, "run_simplex", lambda *_: False)
    many, boxes = instance(0, levels=18)
    tracemalloc.start()
    with pytest.raises(ArithmeticError, match="many levels"):
        many.solve(boxes)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**22
