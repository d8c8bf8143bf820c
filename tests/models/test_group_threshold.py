from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ratecli.models.composed import GroupThreshold, MixtureClassifier
from ratecli.models.hashed import HashedMixture
from ratecli.models.linear import Logistic, Threshold

PATTERNS = np.array([[False, False], [True, False], [True, True]])
"""Men; women; women of 60 and more."""
MODEL = GroupThreshold(
    Logistic(np.array([1.0, 2.0]), 0.5),
    ("sex = F", "age >= 60, sex = F"),
    PATTERNS,
    np.array([1.0, 0.0, -2.0]),
)
ROWS = np.array([
    [0.2, 0.4, 0, 0],
    [0.2, 0.4, 1, 0],
    [-1.0, -0.7, 1, 1],
    [-1.0, -0.8, 1, 1],
    [-0.4, 0.1, 0, 1],
])  # fmt: skip
"""Scores 1.5, 1.5, -1.9, -2.1 and 0.3; the last row is of no known group."""


def test_a_row_is_held_to_the_threshold_of_its_group():
    for X in (ROWS, sparse.csr_array(ROWS)):
        np.testing.assert_allclose(MODEL.score(X), [0.5, 1.5, 0.1, -0.1, 0.3])
        assert MODEL.decide(X).tolist() == MODEL.estimate(X).tolist() == [1, 1, 1, 0, 1]
    assert MODEL.width == 2
    assert MODEL.decide(np.empty((0, 4))).shape == (0,)


def test_without_slices_all_rows_are_one_group():
    lone = GroupThreshold(Threshold(np.ones(1)), (), np.zeros((1, 0), dtype=bool), np.array([2.0]))
    for X in (np.array([[1.9], [2.1]]), sparse.csr_array([[1.9], [2.1]])):
        assert lone.decide(X).tolist() == [0, 1]


def test_mixtures_of_it_look_at_its_slices():
    other = GroupThreshold(MODEL.scorer, MODEL.slices, PATTERNS, np.array([2.0, 0.0, -2.0]))
    mixed = MixtureClassifier((MODEL, other), np.array([0.25, 0.75]))
    assert mixed.slices == MODEL.slices
    assert mixed.width == 2
    np.testing.assert_allclose(mixed.decide(ROWS), [0.25, 1, 1, 0, 1])
    hashed = HashedMixture((MODEL, other), np.array([0.25, 0.75]), 3)
    assert (hashed.decide(ROWS) == hashed.decide(sparse.csr_array(ROWS))).all()
    with pytest.raises(ValueError, match="use different slices"):
        MixtureClassifier((MODEL, Threshold(np.ones(2))), np.array([0.5, 0.5]))


def test_a_scorer_that_looks_at_slices_itself_and_rows_that_lack_some():
    with pytest.raises(ValueError):
        GroupThreshold(MODEL, (), np.zeros((1, 0), dtype=bool), np.zeros(1))
    with pytest.raises(ValueError, match="3 columns, not 2 and 2 slices"):
        MODEL.score(ROWS[:, :3])
