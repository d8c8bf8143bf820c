from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import Rows, Rules, problem, run, smooth_rows
from oracles.problem3 import least
from scipy import sparse
from scipy.optimize import minimize

from ratecli.errors import FaultError
from ratecli.solvers.baselines import linear as plain
from ratecli.solvers.baselines.solvers import Thresholded, Unconstrained, Zafar
from ratecli.solvers.design_matrix import DesignMatrix, add_ones_column
from ratecli.solvers.fit_cache import FitCache
from ratecli.solvers.liblinear import fit_liblinear
from ratecli.solvers.majorize import augmented
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem


def test_missing_labels_are_an_error():
    """Not sklearn's sentence, nor a division by zero: churn alone needs no labels, these do."""
    rows = smooth_rows(0, n=40)
    goals = problem(replace(rows, label=np.full(40, np.nan)), Rules({"c": "churn <= 0.1"}, "churn"))
    for solver in (Unconstrained(), Unconstrained(loss="logistic"), Thresholded(), Zafar()):
        with pytest.raises(FaultError) as caught:
            run(solver, goals)
        assert str(caught.value) == "E306: no training row has a label"


LOSSES = pytest.mark.parametrize("loss", ["hinge", "logistic"])


def weights(rows: Rows, loss: str = "hinge", l2: float | None = None) -> np.ndarray:
    solution = run(Unconstrained(loss=loss), problem(rows, Rules(), l2))
    assert solution.status == "solved"
    classifier = solution.variants["deterministic"]
    return np.append(classifier.weights, classifier.bias)


def weighted(seed: int, n: int = 60) -> Rows:
    rows = smooth_rows(seed, n=n, d=3)
    return replace(rows, weight=np.random.default_rng(seed).uniform(0.2, 3.0, size=n))


def first(rows: Rows, keep: np.ndarray) -> Rows:
    return Rows(rows.X[keep], rows.label[keep], rows.group[keep])


@pytest.mark.parametrize("l2", [0.01, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_hinge_has_no_duality_gap(seed, l2):
    """Mean of max(0, 1 - y z) + l2 / 2 |w|^2: twice the half-margin hinge of scores z / 2."""
    rows = weighted(seed)
    share = rows.weight / rows.weight.sum()
    signs = 2 * rows.label - 1
    w = weights(rows, l2=l2)
    value = share @ np.maximum(0, 1 - signs * (add_ones_column(rows.X) @ w)) + l2 / 2 * (w @ w)
    halves = RampProblem.of(
        DesignMatrix(rows.X), -(signs * share)[None, :], np.array([share @ rows.label]), 2 * l2
    )
    optimum = least(ConvexProblem.tight_at(halves, np.zeros(len(rows))))
    assert optimum
    assert 2 * optimum[0] - 1e-8 <= value <= 2 * optimum[0] + 1e-4


@pytest.mark.parametrize("l2", [0.01, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_logistic_is_where_the_gradient_vanishes(seed, l2):
    rows = weighted(seed)
    share = rows.weight / rows.weight.sum()
    signed = (2 * rows.label - 1)[:, None] * add_ones_column(rows.X)

    def objective(w: np.ndarray) -> float:
        return float(share @ np.logaddexp(0, -signed @ w) + l2 / 2 * (w @ w))

    w = weights(rows, "logistic", l2)
    assert objective(w) <= minimize(objective, np.zeros(4), method="BFGS").fun + 1e-6
    chance = 1 / (1 + np.exp(signed @ w))
    np.testing.assert_allclose(l2 * w, (share * chance) @ signed, atol=1e-3)


@LOSSES
def test_row_of_weight_two_equals_two_rows(loss):
    rows = first(smooth_rows(0, n=50, d=3), np.arange(50))
    twice = np.concatenate([np.arange(50), [3, 17]])
    heavy = replace(rows, weight=np.where(np.isin(np.arange(50), [3, 17]), 2.0, 1.0))
    one, two = weights(heavy, loss, 0.1), weights(first(rows, twice), loss, 0.1)
    np.testing.assert_allclose(one, two, atol=2e-3)


@LOSSES
def test_unlabelled_rows_change_nothing(loss):
    rows = smooth_rows(1, n=80, d=3)
    hidden = replace(rows, label=np.where(np.arange(80) % 4 == 0, np.nan, rows.label))
    seen = first(rows, np.flatnonzero(np.arange(80) % 4))
    np.testing.assert_array_equal(weights(hidden, loss, 0.05), weights(seen, loss, 0.05))


@LOSSES
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_rows_of_one_label_get_that_label(loss, label):
    rows = smooth_rows(4, n=40, d=3)
    same = replace(rows, label=np.full(40, label))
    solution = run(Unconstrained(loss=loss), problem(same, Rules()))
    decisions = solution.variants["deterministic"].decide(rows.X)
    assert (decisions == label).all()


@pytest.mark.parametrize(("loss", "says"), [("hinge", "with a gap of"), ("logistic", "1 passes")])
def test_iteration_limit_is_reported(loss, says, monkeypatch):
    monkeypatch.setattr(plain, "MAX_ITERATIONS", 1)
    monkeypatch.setattr(augmented, "MAX_ROUNDS", 1)
    solution = run(Unconstrained(loss=loss), problem(smooth_rows(0), Rules(), 1e-6))
    assert solution.status == "iteration_limit"
    assert says in solution.reason
    assert "deterministic" in solution.variants


def test_repeated_svm_fits_are_cached(monkeypatch):
    """Sweep points of a seed ask for it again, and baselines that start from it; nothing else gets it."""
    fits = []

    def counted(*given, **more):
        fits.append(given)
        return fitted(*given, **more)

    fitted = RampProblem.of
    monkeypatch.setattr(RampProblem, "of", counted)
    monkeypatch.setattr(plain, "_svm_cache", FitCache(2))
    rows, other = weighted(0), weighted(1)
    once = weights(rows)
    assert (weights(rows) == once).all()
    assert len(fits) == 1
    assert (weights(rows, l2=0.3) != once).all()
    assert (weights(replace(rows, weight=other.weight)) != once).all()
    assert (weights(replace(rows, X=other.X)) != once).all()
    assert len(fits) == 4
    assert (weights(rows) == once).all(), "fitted anew, since two are kept"
    assert len(fits) == 5


X = np.random.default_rng(0).normal(size=(30, 3))
SIGNS = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1.0, -1.0)


def wide(X: np.ndarray) -> sparse.csr_array:
    """With 64-bit indices, as read from a file."""
    narrow = sparse.csr_array(X)
    indices, starts = narrow.indices.astype(np.int64), narrow.indptr.astype(np.int64)
    return sparse.csr_array((narrow.data, indices, starts), shape=X.shape)


@LOSSES
@pytest.mark.parametrize("signs", [SIGNS, np.ones(30), -np.ones(30)], ids=["both", "up", "down"])
def test_storage_formats_give_the_same_weights(loss, signs):
    costs = np.linspace(0.1, 2, 30)
    dense, thin, long = (
        fit_liblinear(loss, rows, signs, costs, seed=1, tolerance=1e-6, iterations=10_000)
        for rows in (X, sparse.csr_array(X), wide(X))
    )
    assert dense.converged
    np.testing.assert_allclose(thin.weights, dense.weights, atol=1e-6)
    np.testing.assert_array_equal(long.weights, thin.weights)


@LOSSES
def test_sample_weights_are_costs_not_shares(loss):
    """Rows that cost nothing change nothing; larger costs fit closer."""
    costs = np.where(np.arange(30) < 20, 1.0, 0.0)
    options = {"seed": 0, "tolerance": 1e-8, "iterations": 100_000}
    some = fit_liblinear(loss, X, SIGNS, costs, **options)
    fewer = fit_liblinear(loss, X[:20], SIGNS[:20], costs[:20], **options)
    np.testing.assert_allclose(some.weights, fewer.weights, atol=1e-4)
    larger = fit_liblinear(loss, X, SIGNS, 9 * costs, **options)
    assert np.linalg.norm(larger.weights) > np.linalg.norm(some.weights)
