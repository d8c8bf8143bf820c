"""Sums and rates along sorted scores, and scores by models that have not seen the rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ratecli.solvers.curve import RateCurve
from ratecli.solvers.oracles.unseen import UnseenScores


@pytest.mark.parametrize("seed", range(20))
def test_cheapest_threshold_matches_brute_force(seed):
    rng = np.random.default_rng(seed)
    scores, costs = rng.integers(6, size=12) / 2.0, rng.normal(size=12)
    found = RateCurve.of(scores).cheapest(costs)
    cheapest = min(costs @ (scores > cut) for cut in np.append(np.unique(scores), -1.0))
    assert costs @ (scores > found) == pytest.approx(cheapest)
    assert np.abs(scores - found).min() > 0.1


@pytest.mark.parametrize("scores", [9, 300, 10**6])
@pytest.mark.parametrize("rows", [1, 2, 1000, 150_000])
def test_rows_of_equal_scores_keep_their_order(rows, scores):
    drawn = np.random.default_rng(rows).integers(scores, size=rows) - 4.0
    expected = np.argsort(-drawn, kind="stable")
    np.testing.assert_array_equal(RateCurve.of(drawn).order, expected)


def test_sums_above_thresholds():
    cuts = RateCurve.of(np.array([2.0, 5.0, 2.0, 3.0]))
    assert cuts.thresholds.tolist() == [6.0, 4.0, 2.5, 1.0]
    assert cuts.sums(np.array([1.0, 2.0, 3.0, 4.0])).tolist() == [0, 2, 6, 10]
    table = np.array([[0.0, 1.0, 0.0, 2.0], [1.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(cuts.sums(sparse.csr_array(table)), cuts.sums(table))


def test_own_threshold_is_kept_unless_it_is_a_score():
    assert RateCurve.of(np.array([1.0, -3.0]), keep_zero=True).thresholds.tolist() == [2, 0, -4]
    assert RateCurve.of(np.array([1.0, 0.0]), keep_zero=True).thresholds.tolist() == [2, 0.5, -1]


def test_rows_of_a_fold_are_scored_by_models_of_the_others():
    unseen = UnseenScores.in_folds(np.array([0, 1, 0, 1]), np.array([2, 4, 6, 8]))
    model, scores = unseen.fit_and_score(lambda rows: rows.sum(), lambda m, rows: m - rows)
    assert model == 20
    assert scores.tolist() == [10, 4, 6, 0]
    held = UnseenScores(np.array([0, 3]), np.array([1]), ((np.array([0, 3]), np.array([1])),))
    assert held.fit_and_score(lambda rows: rows.sum(), lambda m, rows: m - rows)[1].tolist() == [2]
