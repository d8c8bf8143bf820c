from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import kstest

from ratecli.models.composed import HashedMixture, HashedRamp, MixtureClassifier, row_uniforms
from ratecli.models.linear import Ramp, Threshold
from ratecli.models.storage import dumps, loads


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


KINDS = ["binary", "one feature", "nearly equal", "normal"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("salt", [0, 1, 2**64 - 1])
def test_distinct_rows_have_uniform_hashes(kind: str, salt: int) -> None:
    found = chances_of(some_rows(kind), salt)
    assert (found >= 0).all()
    assert (found < 1).all()
    assert len(np.unique(found)) == 4096
    assert kstest(found, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_hashes_are_uniform_over_salts_and_independent(
    kind: str,
) -> None:
    X = some_rows(kind)[:2]
    pairs = np.array([chances_of(X, salt) for salt in range(1500)])
    assert kstest(pairs[:, 0], "uniform").pvalue > 1e-3
    assert kstest(pairs[:, 1], "uniform").pvalue > 1e-3
    assert kstest((pairs[:, 0] - pairs[:, 1]) % 1, "uniform").pvalue > 1e-3


def test_hashed_ramp_averages_to_the_ramp() -> None:
    """Hoeffding: 500 rows and 400 salts miss their mean by 0.007 with a chance under 1e-8."""
    X = np.random.default_rng(1).normal(size=(500, 6))
    w = np.linspace(-0.2, 0.3, 6)
    expected = Ramp(w, 0.05).decide(X)
    decisions = np.stack([HashedRamp(w, 0.05, salt).decide(X) for salt in range(400)])
    assert set(np.unique(decisions)) == {0.0, 1.0}
    assert abs(decisions.mean() - expected.mean()) < 0.007
    # a row: 4.5 standard deviations of a share of 400
    bound = 4.5 * np.sqrt(expected * (1 - expected) / 400)
    assert (abs(decisions.mean(axis=0) - expected) <= bound).all()


def test_hashed_ramp_is_deterministic_outside_the_margin() -> None:
    model = HashedRamp(np.ones(1), salt=5)
    assert model.decide(np.full((2000, 1), -0.5)).sum() == 0
    assert model.decide(np.linspace(0.5, 9, 2000)[:, None]).all()


@given(st.integers(0, 10**6), st.integers(0, 2**64 - 1))
@settings(max_examples=25)
def test_equal_rows_get_equal_decisions_in_any_place_and_storage(seed: int, salt: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 7)).round(1) * (rng.random((40, 7)) < 0.5)
    model = HashedRamp(rng.normal(size=7) / 4, 0.1, salt)
    expected = model.decide(X)
    order = rng.permutation(40)
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
    messy = sparse.csr_array(
        (np.concatenate(data * 20), np.concatenate(rows * 20), starts), shape=dense.shape
    )
    before = messy.copy()
    for salt in range(50):
        model = HashedRamp(np.array([0.2, 0.5, 1.0]), 0.05, salt)
        expected = model.decide(dense)
        assert (model.decide(messy) == expected).all()
        assert (expected[0::3] == expected[2::3]).all()
    assert (messy.indices == before.indices).all()
    assert (messy.data == before.data).all()


def test_blocks_do_not_change_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(3).normal(size=(50, 5)).round(1)
    model = HashedRamp(np.ones(5) / 8, salt=9)
    expected = model.decide(X)
    monkeypatch.setattr("ratecli.models.composed.BLOCK_ENTRIES", 23)
    assert (model.decide(X) == expected).all()
    assert (model.decide(sparse.csr_array(X)) == expected).all()


def test_hashes_match_stored_values() -> None:
    """Stored classifiers are read by later versions."""
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-2.5, 0.125]])
    assert chances_of(X, 12).tolist() == pytest.approx(TOMORROW, abs=0)
    model = HashedRamp(np.array([0.1, -0.2]), 0.05, 12)
    assert (loads(dumps(model)).decide(X) == model.decide(X)).all()


TOMORROW = [0.7911117786538407, 0.7076984365531295, 0.2930137053335037, 0.06001242539505114]
"""Computed with whole numbers of plain Python, by the formula of `row_uniforms`."""


@pytest.mark.parametrize("salt", [-1, 2**64])
def test_salt_outside_64_bits_is_rejected(salt: int) -> None:
    with pytest.raises(ValueError, match="is not from 0 to"):
        HashedRamp(np.ones(1), salt=salt)
    with pytest.raises(ValueError, match="is not from 0 to"):
        HashedMixture((Threshold(np.ones(1)),), np.ones(1), salt)


def test_hashed_mixture_averages_to_the_mixture() -> None:
    """Bounds as above; each decision is one member's."""
    X = np.random.default_rng(2).normal(size=(300, 3))
    members = tuple(Threshold(w) for w in np.random.default_rng(3).normal(size=(4, 3)))
    chances = np.array([0.1, 0.2, 0.3, 0.4])
    expected = MixtureClassifier(members, chances).decide(X)
    decisions = np.stack([HashedMixture(members, chances, salt).decide(X) for salt in range(400)])
    assert set(np.unique(decisions)) == {0.0, 1.0}
    bound = 4.5 * np.sqrt(expected * (1 - expected) / 400)
    assert (abs(decisions.mean(axis=0) - expected) <= bound + 1e-12).all()


def test_hashed_mixture_selects_one_member_for_equal_rows() -> None:
    members = tuple(Threshold(w) for w in np.random.default_rng(3).normal(size=(4, 3)))
    model = HashedMixture(members, np.full(4, 0.25), 7)
    X = np.random.default_rng(0).integers(2, size=(200, 3)).astype(float)
    _, member = np.unique(X, axis=0, return_inverse=True)
    found = model.decide(X)
    assert all(len(set(found[member == k])) == 1 for k in range(8))
    np.testing.assert_array_equal(
        loads(dumps(model)).decide(sparse.csr_array(X[::-1])), found[::-1]
    )
