from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ratecli.solvers.majorize.cutting_plane import (
    UpperModel,
    center_of_mass,
    model_maximizer,
    solve_master,
)

TENT = np.array([[0.0, 0.5], [0.25, -0.25]])
"""h(v) = min(v / 4, 1/2 - v / 4), highest at v = 1: vector 9.3 of the protocols of Goh et al. 2016."""


def model(columns: np.ndarray, lower: float, ceiling: float = 10.0) -> UpperModel:
    plan = solve_master(columns, ceiling)
    return UpperModel(columns, ceiling, lower, plan.multipliers)


def random_model(seed: int, m: int) -> UpperModel:
    """Cuts through random points above 0 in the box [0, 1]^m."""
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=(m, 4))
    at, height = rng.random((4, m)), rng.uniform(0.2, 1.0, size=4)
    values = height - np.einsum("sm,ms->s", at, slopes)
    return model(np.vstack([values, slopes]), 0.0, 1.0)


def inside(given: UpperModel, count: int, seed: int = 0) -> np.ndarray:
    """Points (v, t), (k, m + 1), uniform in the body, by rejection."""
    rng = np.random.default_rng(seed)
    m = len(given.maximizer)
    top = float((given.columns[0] + given.maximizer @ given.columns[1:]).min())
    if top <= given.lower:
        return np.zeros((0, m + 1))
    v = rng.uniform(0, given.ceiling, size=(count, m))
    t = rng.uniform(given.lower, top, size=count)
    below = t <= (given.columns[0] + v @ given.columns[1:]).min(axis=1)
    return np.hstack([v, t[:, None]])[below]


@pytest.mark.parametrize("lower", [0.0, 0.125, 0.2])
def test_the_center_of_a_triangle_with_both_sides_alike_is_under_its_top(lower):
    assert center_of_mass(model(TENT, lower)) == pytest.approx([1.0])
    assert model_maximizer(model(TENT, lower)) == pytest.approx([1.0])


def test_the_center_of_a_triangle_is_the_mean_of_its_corners():
    """h(v) = min(v, 1.5 - v / 2), at least 0 from v = 0 to 3 and highest at 1."""
    columns = np.array([[0.0, 1.5], [1.0, -0.5]])
    assert center_of_mass(model(columns, 0.0)) == pytest.approx([(0 + 3 + 1) / 3])
    assert model_maximizer(model(columns, 0.0)) == pytest.approx([1.0])


def test_the_center_of_a_trapezoid_that_the_box_cuts_off():
    """h(v) = v on [0, 2], above 1: a triangle with corners (1, 1), (2, 1), (2, 2)."""
    columns = np.array([[0.0], [1.0]])
    assert center_of_mass(model(columns, 1.0, ceiling=2.0)) == pytest.approx([5 / 3])


def test_a_body_without_inside_is_cut_at_the_maximizer():
    for lower in (0.25, 0.3):
        assert center_of_mass(model(TENT, lower)) == pytest.approx([1.0])
    thin = model(np.array([[0.0, 0.5], [0.25, -0.25]]) * 1e-12, 0.0)
    assert 0 <= center_of_mass(thin)[0] <= 10


@given(st.integers(0, 10_000), st.integers(1, 4))
@settings(max_examples=15)
def test_the_center_is_the_mean_of_points_inside(seed, m):
    given = random_model(seed, m)
    points = inside(given, 40_000)
    assume(len(points) >= 2000)
    spread = points.std(axis=0)[:-1] / np.sqrt(len(points))
    assert (np.abs(center_of_mass(given) - points.mean(axis=0)[:-1]) <= 5 * spread).all()


@pytest.mark.parametrize("m", [1, 2, 3])
def test_each_side_of_a_cut_through_the_center_is_a_1_e_part_or_more(m):
    """Gruenbaum 1960: of the multipliers, here; the height of the body counts as its weight."""
    for seed in range(3):
        given = random_model(seed, m)
        points, center = inside(given, 100_000)[:, :-1], center_of_mass(given)
        assert len(points) > 500
        for direction in np.random.default_rng(seed).normal(size=(20, m)):
            part = ((points - center) @ direction > 0).mean()
            assert min(part, 1 - part) >= 1 / np.e - 0.03


def test_with_many_multipliers_the_center_of_the_largest_ball_is_inside():
    given = random_model(3, 5)
    center = center_of_mass(given)
    height = (given.columns[0] + center @ given.columns[1:]).min()
    assert given.lower < height
    assert (center > 0).all()
    assert (center < given.ceiling).all()
