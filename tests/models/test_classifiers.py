from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse

from ratecli.models.base import Classifier
from ratecli.models.composed import (
    GroupThreshold,
    HashedMixture,
    HashedRamp,
    MajorityVote,
    MixtureClassifier,
)
from ratecli.models.linear import (
    LinearRegressor,
    Logistic,
    Ramp,
    RandomizedLogistic,
    Threshold,
    ramp,
)

NUMBERS = st.floats(-1e6, 1e6)
SCORES = arrays.arrays(np.float64, 5, elements=NUMBERS)
LINE = np.array([1.0])
"""Weights that make the score of a row of one feature that feature."""


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, None]


# the ramp (vectors 9.1)


@given(SCORES)
@settings(max_examples=50)
def test_ramp_is_monotone_and_symmetric(z: np.ndarray) -> None:
    np.testing.assert_allclose(ramp(z) + ramp(-z), 1, atol=1e-9)
    assert (np.diff(ramp(np.sort(z))) >= 0).all()


# classifiers


def test_threshold_is_positive_above_0_and_negative_in_a_tie() -> None:
    model = Threshold(LINE)
    assert model.decide(column(-2, 0, 1e-12, 3)).tolist() == [0, 0, 1, 1]
    assert model.estimate(column(-2, 3)).tolist() == [0, 1]
    assert Threshold(2 * LINE, -1.0).score(column(0.25, 1)).tolist() == [-0.5, 1]


def test_a_logistic_decides_by_threshold_and_estimates_by_chance() -> None:
    model = Logistic(LINE)
    assert model.decide(column(-1, 0, 1)).tolist() == [0, 0, 1]
    odds = np.log([1 / 3, 1, 4])
    np.testing.assert_allclose(model.estimate(odds[:, None]), [0.25, 0.5, 0.8])
    assert model.estimate(column(-1e4, 1e4)).tolist() == [0, 1]


def test_ramp_is_random_within_its_margin() -> None:
    model = Ramp(LINE, 0.1)
    np.testing.assert_allclose(model.decide(column(-1, -0.1, 0.2, 1)), [0, 0.5, 0.8, 1])
    np.testing.assert_allclose(model.estimate(column(0.2)), [0.8])
    np.testing.assert_allclose(model.score(column(0.2)), [0.3])


def test_mixture_returns_the_mean_of_its_members() -> None:
    X = column(-1, 0.2, 1)
    mixture = MixtureClassifier(
        (Threshold(LINE), Ramp(-LINE), Logistic(2 * LINE)), np.array([0.5, 0.3, 0.2])
    )
    for answer in ("decide", "score", "estimate"):
        parts = [getattr(member, answer)(X) for member in mixture.members]
        expected = 0.5 * parts[0] + 0.3 * parts[1] + 0.2 * parts[2]
        np.testing.assert_allclose(getattr(mixture, answer)(X), expected)
    np.testing.assert_allclose(mixture.decide(X), [0.3, 0.5 + 0.3 * 0.3 + 0.2, 0.5 + 0.2])


@pytest.mark.parametrize(
    "chances", [[1.0], [0.5, 0.4], [1.5, -0.5], [np.nan, 1.0], [np.inf, 0.0], [[0.5], [0.5]]]
)
def test_mixture_rejects_invalid_probabilities(chances: list[float]) -> None:
    with pytest.raises(ValueError, match="not a distribution over 2 members"):
        MixtureClassifier((Threshold(LINE), Threshold(LINE)), np.array(chances))


def test_majority_vote_follows_the_mixture() -> None:
    members = (Threshold(LINE), Threshold(LINE, -0.5), Threshold(-LINE))
    X = column(-1, 0.2, 1)
    np.testing.assert_allclose(
        MixtureClassifier(members, np.array([0.3, 0.3, 0.4])).decide(X), [0.4, 0.3, 0.6]
    )
    assert MajorityVote(members, np.array([0.3, 0.3, 0.4])).decide(X).tolist() == [0, 0, 1]
    assert MajorityVote(members[:2], np.array([0.5, 0.5])).decide(X).tolist() == [
        0,
        0,
        1,
    ]  # a tie is a no


def some_models(seed: int, width: int) -> list[Classifier]:
    rng = np.random.default_rng(seed)
    kinds = (Threshold, Logistic, Ramp, HashedRamp)
    plain = [kind(rng.normal(size=width), rng.normal()) for kind in kinds]
    mixture = MixtureClassifier(tuple(plain), rng.dirichlet(np.ones(4)))
    others = [
        kind((mixture, plain[0]), np.array([0.25, 0.75]))
        for kind in (MixtureClassifier, MajorityVote, HashedMixture)
    ]
    return [*plain, mixture, *others]


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_decisions_are_probabilities_and_storage_does_not_matter(seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(12, 4)).round(1)
    X[X < 0] = 0
    for model in some_models(seed, 4):
        chances = model.decide(X)
        assert chances.shape == (12,)
        assert ((chances >= 0) & (chances <= 1)).all()
        for answer in ("decide", "score", "estimate"):
            dense, thin = getattr(model, answer)(X), getattr(model, answer)(sparse.csr_array(X))
            assert isinstance(thin, np.ndarray)
            np.testing.assert_allclose(thin, dense, atol=1e-12)


def test_empty_features_give_empty_decisions() -> None:
    for model in some_models(0, 4):
        assert model.width == 4
        assert model.decide(np.empty((0, 4))).shape == (0,)


def test_randomized_logistic_estimates_its_decision() -> None:
    model = RandomizedLogistic(LINE, 1.0)
    odds = np.log([1 / 3, 1, 4]) - 1
    np.testing.assert_allclose(model.decide(odds[:, None]), [0.25, 0.5, 0.8])
    assert (
        model.estimate(column(-1e4, 0, 1e4)).tolist() == model.decide(column(-1e4, 0, 1e4)).tolist()
    )


def test_regressor_clips_estimates_and_makes_no_decisions() -> None:
    model = LinearRegressor(LINE, 0.5, (0.0, 4.0))
    assert model.estimate(column(-3, 1, 9)).tolist() == [0, 1.5, 4]
    assert model.score(column(9)).tolist() == [9.5]
    assert np.isnan(model.decide(column(-3, 1))).all()
    assert LinearRegressor(LINE).estimate(column(-1e9, 1e9)).tolist() == [-1e9, 1e9]


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


def test_rows_use_the_threshold_of_their_group():
    for X in (ROWS, sparse.csr_array(ROWS)):
        np.testing.assert_allclose(MODEL.score(X), [0.5, 1.5, 0.1, -0.1, 0.3])
        assert MODEL.decide(X).tolist() == MODEL.estimate(X).tolist() == [1, 1, 1, 0, 1]
    assert MODEL.width == 2
    assert MODEL.decide(np.empty((0, 4))).shape == (0,)


def test_group_threshold_without_slices_has_one_group():
    lone = GroupThreshold(Threshold(np.ones(1)), (), np.zeros((1, 0), dtype=bool), np.array([2.0]))
    for X in (np.array([[1.9], [2.1]]), sparse.csr_array([[1.9], [2.1]])):
        assert lone.decide(X).tolist() == [0, 1]


def test_mixture_has_the_slices_of_its_members():
    other = GroupThreshold(MODEL.scorer, MODEL.slices, PATTERNS, np.array([2.0, 0.0, -2.0]))
    mixed = MixtureClassifier((MODEL, other), np.array([0.25, 0.75]))
    assert mixed.slices == MODEL.slices
    assert mixed.width == 2
    np.testing.assert_allclose(mixed.decide(ROWS), [0.25, 1, 1, 0, 1])
    hashed = HashedMixture((MODEL, other), np.array([0.25, 0.75]), 3)
    assert (hashed.decide(ROWS) == hashed.decide(sparse.csr_array(ROWS))).all()
    with pytest.raises(ValueError, match="use different slices"):
        MixtureClassifier((MODEL, Threshold(np.ones(2))), np.array([0.5, 0.5]))


def test_group_threshold_rejects_bad_scorers_and_rows():
    with pytest.raises(ValueError):
        GroupThreshold(MODEL, (), np.zeros((1, 0), dtype=bool), np.zeros(1))
    with pytest.raises(ValueError, match="3 columns, not 2 and 2 slices"):
        MODEL.score(ROWS[:, :3])
