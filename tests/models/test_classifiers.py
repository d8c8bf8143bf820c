from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse
from scipy.stats import kstest

from ratecli.models.base import Classifier
from ratecli.models.composed import (
    GroupThreshold,
    HashedMixture,
    HashedRamp,
    MajorityVote,
    MixtureClassifier,
    all_outputs,
    row_uniforms,
    rows_without_group,
)
from ratecli.models.linear import (
    LinearRegressor,
    Logistic,
    Ramp,
    RandomizedLogistic,
    Threshold,
    ramp,
)
from ratecli.models.storage import dumps, loads

LINE = np.array([1.0])
"""Weights that make the score of a row of one feature that feature."""


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, None]


@given(arrays.arrays(np.float64, 5, elements=st.floats(-1e6, 1e6)))
@settings(max_examples=50)
def test_ramp_is_monotone_and_symmetric(z: np.ndarray) -> None:
    np.testing.assert_allclose(ramp(z) + ramp(-z), 1, atol=1e-9)
    assert (np.diff(ramp(np.sort(z))) >= 0).all()


ODDS = np.log([1 / 3, 1, 4])
NO_DECISIONS = [np.nan] * 3


@pytest.mark.parametrize(
    ("model", "rows", "decisions", "estimates"),
    [
        (Threshold(LINE), (-2, 0, 1e-12), [0, 0, 1], [0, 0, 1]),
        (Logistic(LINE), ODDS, [0, 0, 1], [0.25, 0.5, 0.8]),
        (Logistic(LINE), (-1e4, 0, 1e4), [0, 0, 1], [0, 0.5, 1]),
        (Ramp(LINE, 0.1), (-1, -0.1, 0.2), [0, 0.5, 0.8], [0, 0.5, 0.8]),
        (RandomizedLogistic(LINE, 1.0), ODDS - 1, [0.25, 0.5, 0.8], [0.25, 0.5, 0.8]),
        (RandomizedLogistic(LINE), (-1e4, 0, 1e4), [0, 0.5, 1], [0, 0.5, 1]),
        (LinearRegressor(LINE, 0.5, (0.0, 4.0)), (-3, 1, 9), NO_DECISIONS, [0, 1.5, 4]),
        (LinearRegressor(LINE), (-1e9, 0, 1e9), NO_DECISIONS, [-1e9, 0, 1e9]),
    ],
)
def test_decisions_and_estimates_of_linear_classifiers(model, rows, decisions, estimates):
    X = column(*rows)
    np.testing.assert_allclose(model.decide(X), decisions)
    np.testing.assert_allclose(model.estimate(X), estimates)
    np.testing.assert_allclose(model.score(X), np.array(rows) + model.bias)


def test_mixture_returns_the_mean_of_its_members() -> None:
    X = column(-1, 0.2, 1)
    members = Threshold(LINE), Ramp(-LINE), Logistic(2 * LINE)
    mixture = MixtureClassifier(members, np.array([0.5, 0.3, 0.2]))
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
    chances = np.array([0.3, 0.3, 0.4])
    np.testing.assert_allclose(MixtureClassifier(members, chances).decide(X), [0.4, 0.3, 0.6])
    assert MajorityVote(members, chances).decide(X).tolist() == [0, 0, 1]
    tie = MajorityVote(members[:2], np.array([0.5, 0.5]))
    assert tie.decide(X).tolist() == [0, 0, 1]


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
        assert model.width == 4
        assert model.decide(X[:0]).shape == (0,)
        chances = model.decide(X)
        assert chances.shape == (12,)
        assert ((chances >= 0) & (chances <= 1)).all()
        for answer in ("decide", "score", "estimate"):
            dense, thin = getattr(model, answer)(X), getattr(model, answer)(sparse.csr_array(X))
            assert isinstance(thin, np.ndarray)
            np.testing.assert_allclose(thin, dense, atol=1e-12)


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


@pytest.mark.parametrize("kind", [MixtureClassifier, MajorityVote])
def test_all_outputs_are_those_of_each_method(kind):
    other = GroupThreshold(MODEL.scorer, MODEL.slices, PATTERNS, np.array([2.0, 0.0, -2.0]))
    for model in (MODEL, kind((MODEL, other), np.array([0.25, 0.75]))):
        each = model.decide(ROWS), model.score(ROWS), model.estimate(ROWS)
        np.testing.assert_array_equal(all_outputs(model, ROWS), each)


def test_group_threshold_rejects_scorers_with_slices():
    with pytest.raises(ValueError):
        GroupThreshold(MODEL, (), np.zeros((1, 0), dtype=bool), np.zeros(1))


def chances_of(X: np.ndarray, salt: int) -> np.ndarray:
    return row_uniforms(sparse.csr_array(X), salt)


def some_rows(kind: str) -> np.ndarray:
    """4096 distinct rows of 12 features."""
    rng = np.random.default_rng(7)
    if kind == "binary":
        return ((np.arange(4096)[:, None] >> np.arange(12)) & 1).astype(float)
    if kind == "one feature":
        return np.hstack([np.arange(4096.0)[:, None], np.zeros((4096, 11))])
    if kind == "nearly equal":
        return 1.0 + np.arange(4096)[:, None] * np.eye(12)[3] * 2.0**-52
    return rng.normal(size=(4096, 12))


@pytest.mark.parametrize("kind", ["binary", "one feature", "nearly equal", "normal"])
@pytest.mark.parametrize("salt", [0, -1])
def test_distinct_rows_have_uniform_hashes(kind: str, salt: int) -> None:
    found = chances_of(some_rows(kind), salt)
    assert (found >= 0).all()
    assert (found < 1).all()
    assert len(np.unique(found)) == 4096
    assert kstest(found, "uniform").pvalue > 1e-3


def average_decisions(models: Iterable[Classifier], X: np.ndarray, expected: np.ndarray) -> None:
    """Check deterministic models of 400 salts: 4.5 standard deviations of a share of 400."""
    decisions = np.stack([model.decide(X) for model in models])
    assert set(np.unique(decisions)) == {0.0, 1.0}
    bound = 4.5 * np.sqrt(expected * (1 - expected) / 400) + 1e-12
    assert (abs(decisions.mean(axis=0) - expected) <= bound).all()
    assert abs(decisions.mean() - expected.mean()) < 0.007


def test_hashed_models_average_to_the_randomized_ones() -> None:
    """Hoeffding: 500 rows and 400 salts miss their mean by 0.007 with a chance under 1e-8."""
    X = np.random.default_rng(1).normal(size=(500, 6))
    w = np.linspace(-0.2, 0.3, 6)
    hashed = (HashedRamp(w, 0.05, salt) for salt in range(400))
    average_decisions(hashed, X, Ramp(w, 0.05).decide(X))
    members = tuple(Threshold(w) for w in np.random.default_rng(3).normal(size=(4, 6)))
    chances = np.array([0.1, 0.2, 0.3, 0.4])
    hashed = (HashedMixture(members, chances, salt) for salt in range(400))
    average_decisions(hashed, X, MixtureClassifier(members, chances).decide(X))


@given(st.integers(0, 10**6), st.integers(0, 2**64 - 1), st.sampled_from([2**18, 23]))
@settings(max_examples=25)
def test_equal_rows_get_equal_decisions_in_any_place_storage_and_block(seed, salt, block):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 7)).round(1) * (rng.random((40, 7)) < 0.5)
    model = HashedRamp(rng.normal(size=7) / 4, 0.1, salt)
    expected = model.decide(X)
    order = rng.permutation(40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratecli.models.composed.BLOCK_ENTRIES", block)
        assert (model.decide(X[order]) == expected[order]).all()
        assert (model.decide(np.where(X == 0, -0.0, X)) == expected).all()
        assert (model.decide(sparse.csr_array(X)) == expected).all()
        assert [model.decide(X[[i]])[0] for i in range(40)] == expected.tolist()
        assert (model.decide(np.tile(X, (3, 1))) == np.tile(expected, 3)).all()


def test_explicit_zeros_unsorted_columns_and_split_entries_change_nothing() -> None:
    dense = np.array([[1.5, 0.0, -0.3], [0.0, 0.0, 0.0], [1.5, 0.0, -0.3]] * 20)
    rows = ([2, 1, 0, 1], [1], [0, 1, 2, 0])
    data = ([-0.3, 0.0, 1.5, -0.0], [0.0], [1.0, 0.0, -0.3, 0.5])
    starts = np.cumsum([0, *([4, 1, 4] * 20)])
    entries, places = np.concatenate(data * 20), np.concatenate(rows * 20)
    messy = sparse.csr_array((entries, places, starts), shape=dense.shape)
    before = messy.copy()
    for salt in range(50):
        model = HashedRamp(np.array([0.2, 0.5, 1.0]), 0.05, salt)
        expected = model.decide(dense)
        assert (model.decide(messy) == expected).all()
        assert (expected[0::3] == expected[2::3]).all()
    assert (messy.indices == before.indices).all()
    assert (messy.data == before.data).all()


def test_hashes_match_stored_values() -> None:
    """Stored classifiers are read by later versions."""
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-2.5, 0.125]])
    assert chances_of(X, 12).tolist() == pytest.approx(TOMORROW, abs=0)
    model = HashedRamp(np.array([0.1, -0.2]), 0.05, 12)
    assert (loads(dumps(model)).decide(X) == model.decide(X)).all()


TOMORROW = [0.7911117786538407, 0.7076984365531295, 0.2930137053335037, 0.06001242539505114]
"""Computed with whole numbers of plain Python, by the formula of `row_uniforms`."""


def test_hashed_mixture_selects_one_member_for_equal_rows() -> None:
    members = tuple(Threshold(w) for w in np.random.default_rng(3).normal(size=(4, 3)))
    model = HashedMixture(members, np.full(4, 0.25), 7)
    X = np.random.default_rng(0).integers(2, size=(200, 3)).astype(float)
    _, member = np.unique(X, axis=0, return_inverse=True)
    found = model.decide(X)
    assert all(len(set(found[member == k])) == 1 for k in range(8))
    stored = loads(dumps(model))
    np.testing.assert_array_equal(stored.decide(sparse.csr_array(X[::-1])), found[::-1])


def test_constant_members_of_a_mixture_have_no_groups_to_miss():
    nobody = replace(MODEL, groups=np.zeros((0, 2), bool), thresholds=np.zeros(0))
    members = np.array([*PATTERNS, [False, True]], dtype=float)
    for order in ((nobody, MODEL), (MODEL, nobody)):
        mixture = MixtureClassifier.of(order, np.array([0.5, 0.5]))
        found, alone = (rows_without_group(each, members) for each in (mixture, MODEL))
        np.testing.assert_array_equal(found, alone)
    assert not rows_without_group(nobody, members).any()
