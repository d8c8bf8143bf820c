from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_strategies import expression

from ratecli.rates import expression as ex
from ratecli.rates.matrix import RateMatrix, RowKinds, build_rate_matrix
from ratecli.rates.sample import Sample

RATES = "error + positive_rate[g=a] + tpr[g=b] + churn + base_rate + true_positives[g=c]"


def matrix(seed: int, weights: str = "one", n: int = 60) -> RateMatrix:
    rng = np.random.default_rng(seed)
    label = rng.integers(2, size=n).astype(float)
    label[rng.random(n) < 0.2] = np.nan
    weight = np.ones(n) if weights == "one" else rng.integers(1, 4, size=n) / 3
    group = rng.choice(np.array(["a", "b", "c"], dtype=object), n)
    deployed = rng.integers(2, size=n).astype(float)
    names = (np.full(n, "d"), np.full(n, "train"))
    sample = Sample({"g": group}, label, *names, weight, deployed)
    return build_rate_matrix(ex.leaves(expression(RATES)), sample, "train")


@given(st.integers(0, 2**32 - 1), st.sampled_from(["one", "thirds"]))
@settings(max_examples=40, deadline=None)
def test_sums_over_kinds_give_the_rates(seed: int, weights: str) -> None:
    found = matrix(seed, weights)
    kinds = RowKinds.by(found)
    p = np.random.default_rng(seed).random((60, 3))
    yes = np.stack([kinds.yes(each) for each in p.T], axis=1)
    expected = np.stack([found.A @ each + found.c for each in p.T], axis=1)
    np.testing.assert_allclose(kinds.rates(yes), expected, atol=1e-12)
    np.testing.assert_allclose(kinds.rates(yes[:, 0]), expected[:, 0], atol=1e-12)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_a_rows_price_is_what_its_yes_adds(seed: int) -> None:
    found = matrix(seed, "thirds")
    prices = np.random.default_rng(seed).normal(size=len(found.leaves))
    np.testing.assert_allclose(RowKinds.by(found).prices(prices), found.A.T @ prices, atol=1e-12)


def test_rows_are_of_one_kind_if_they_count_alike_whatever_their_weight() -> None:
    found = matrix(0, "thirds", n=5000)
    kinds = RowKinds.by(found)
    dense = found.sums.toarray()
    assert kinds.count == len(np.unique(np.sign(dense), axis=1).T)
    assert kinds.count <= 3 * 3 * 2  # groups, labels (one is none), deployed decisions
    np.testing.assert_array_equal(kinds.patterns[:, kinds.of] * kinds.weight, dense)
    assert kinds.totals.sum() == pytest.approx(kinds.weight.sum())


def test_decisions_of_whole_weight_give_exact_rates() -> None:
    found = matrix(3)
    p = np.random.default_rng(3).integers(2, size=60).astype(float)
    np.testing.assert_array_equal(
        RowKinds.by(found).rates(RowKinds.by(found).yes(p)), found.rates(p)
    )
