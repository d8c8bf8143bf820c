import re
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from oracles.goals import Rows, Rules, grid_rows, problem, run, smooth_rows
from oracles.problem3 import least
from scipy import sparse
from scipy.optimize import minimize

from ratecli.errors import FaultError
from ratecli.models.base import Array
from ratecli.solvers.base import Solution
from ratecli.solvers.baselines import label_model, svm
from ratecli.solvers.baselines.options import PostShift, Thresholded, Unconstrained, Zafar
from ratecli.solvers.baselines.svm import ZAFAR_GAP, group_contrasts
from ratecli.solvers.design_matrix import DesignMatrix, add_ones_column
from ratecli.solvers.fit_cache import FitCache
from ratecli.solvers.liblinear import fit_liblinear
from ratecli.solvers.majorize import augmented
from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE, ConvexProblem, RampProblem
from ratecli.solvers.problem import Problem


def test_missing_labels_are_an_error():
    """Not sklearn's sentence, nor a division by zero: churn alone needs no labels, these do."""
    rows = smooth_rows(0, n=40)
    goals = problem(replace(rows, label=np.full(40, np.nan)), Rules({"c": "churn <= 0.1"}, "churn"))
    for solver in (Unconstrained(), Unconstrained(loss="logistic"), Thresholded(), Zafar()):
        with pytest.raises(FaultError) as caught:
            run(solver, goals)
        assert str(caught.value) == "E306: no training row has a label"


LOSSES = pytest.mark.parametrize("loss", ["hinge", "logistic"])


def weights_of(found: Solution) -> Array:
    assert found.status == "solved"
    classifier = found.variants["deterministic"]
    return np.append(classifier.weights, classifier.bias)


def weights(rows: Rows, loss: str = "hinge", l2: float | None = None) -> Array:
    return weights_of(run(Unconstrained(loss=loss), problem(rows, Rules(), l2)))


def weighted(seed: int, n: int = 60) -> Rows:
    rows = smooth_rows(seed, n=n, d=3)
    return replace(rows, weight=np.random.default_rng(seed).uniform(0.2, 3.0, size=n))


def first(rows: Rows, keep: np.ndarray) -> Rows:
    return Rows(rows.X[keep], rows.label[keep], rows.group[keep])


@pytest.mark.parametrize(("seed", "l2"), [(0, 0.01), (1, 0.3)])
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
    assert 2 * optimum[0] - 1e-8 <= value <= 2 * optimum[0] + 1e-4


@pytest.mark.parametrize(("seed", "l2"), [(0, 0.01), (1, 0.3)])
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
def test_unlabelled_rows_change_nothing(loss):
    rows = smooth_rows(1, n=80, d=3)
    hidden = replace(rows, label=np.where(np.arange(80) % 4 == 0, np.nan, rows.label))
    seen = first(rows, np.flatnonzero(np.arange(80) % 4))
    np.testing.assert_array_equal(weights(hidden, loss, 0.05), weights(seen, loss, 0.05))


@LOSSES
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_rows_of_one_label_get_that_label(loss, label):
    rows = replace(smooth_rows(4, n=40, d=3), label=np.full(40, label))
    w = weights(rows, loss)
    assert ((rows.X @ w[:-1] + w[-1] > 0) == label).all()


@pytest.mark.parametrize(
    ("solver", "reason"),
    [
        (Unconstrained(), r"stopped after \d+ Newton steps with a gap of"),
        (Unconstrained(loss="logistic"), "1 passes"),
        (PostShift(), "1 passes"),
        (Zafar(covariance=0.0), r"stopped after \d+ Newton steps with a gap of"),
    ],
)
def test_iteration_limit_is_reported(solver, reason, monkeypatch):
    monkeypatch.setattr(label_model, "MAX_ITERATIONS", 1)
    monkeypatch.setattr(augmented, "MAX_ROUNDS", 1)
    rules = Rules({"p": "positive_rate[g=a] <= 1.25 * positive_rate[g=b]"})
    solution = run(solver, problem(smooth_rows(0), rules, 1e-6))
    assert solution.status == "iteration_limit"
    assert re.search(reason, solution.reason)
    assert "deterministic" in solution.variants


def test_repeated_svm_fits_are_cached(monkeypatch):
    """Sweep points of a seed ask for it again, and baselines that start from it; nothing else gets it."""
    fits = Mock(side_effect=RampProblem.of)
    monkeypatch.setattr(RampProblem, "of", fits)
    monkeypatch.setattr(svm, "_svm_cache", FitCache(2))
    rows, other = weighted(0), weighted(1)
    once = weights(rows)
    assert (weights(rows) == once).all()
    assert fits.call_count == 1
    assert (weights(rows, l2=0.3) != once).all()
    assert (weights(replace(rows, weight=other.weight)) != once).all()
    assert (weights(replace(rows, X=other.X)) != once).all()
    assert fits.call_count == 4
    assert (weights(rows) == once).all(), "fitted anew, since two are kept"
    assert fits.call_count == 5


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
    (dense, converged), (thin, _), (long, _) = (
        fit_liblinear(loss, rows, signs, costs, seed=1, tolerance=1e-6, iterations=10_000)
        for rows in (X, sparse.csr_array(X), wide(X))
    )
    assert converged
    np.testing.assert_allclose(thin, dense, atol=1e-6)
    np.testing.assert_array_equal(long, thin)


GAP = 2 * ZAFAR_GAP
"""In units of the SVM, where the loss is twice that of rates."""
MET = 2 * FEASIBILITY_TOLERANCE
"""By what a bound may be passed."""

RATIO = Rules({"p": "positive_rate[g=a] <= 1.25 * positive_rate[g=b]"})


def zafar_solution(goals: Problem, covariance: float) -> Solution:
    return run(Zafar(covariance), goals)


def mean(rows: Rows, *names: str) -> Array:
    return rows.X[np.isin(rows.group, names)].mean(axis=0)


def svm_value(goals: Problem, w: Array) -> float:
    signs, share = goals.labels()
    scores = np.asarray(add_ones_column(goals.X) @ w)
    return float(share @ np.maximum(0, 1 - signs * scores) + goals.l2 / 2 * (w @ w))


def by_slsqp(goals: Problem, means: Array, covariance: float) -> float:
    """The least value as a smooth program, a slack for each row: <w, mean> is a constraint as it is."""
    signs, share = goals.labels()
    n, d = add_ones_column(goals.X).shape
    signed = signs[:, None] * add_ones_column(goals.X)
    A = np.block([[signed, np.eye(n)], [-means, np.zeros((len(means), n + 1))]])
    b = np.append(np.full(n, -1.0), np.full(len(means), covariance))

    def objective(x: Array) -> tuple[float, Array]:
        slope = np.append(goals.l2 * x[:d], share)
        return float(goals.l2 / 2 * x[:d] @ x[:d] + share @ x[d:]), slope

    found = minimize(
        objective, np.append(np.zeros(d), np.ones(n)), jac=True, method="SLSQP",
        bounds=[(None, None)] * d + [(0, None)] * n,
        constraints={"type": "ineq", "fun": lambda x: A @ x + b, "jac": lambda _: A},
        options={"maxiter": 500, "ftol": 1e-13},
    )  # fmt: skip
    w = found.x[:d]
    assert (means @ w[:-1] <= covariance + 1e-8).all()
    return svm_value(goals, w)


@pytest.mark.parametrize("covariance", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("l2", [0.02, 0.3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_zafar_reaches_the_optimum_of_slsqp(seed, l2, covariance):
    rows = grid_rows(seed, n=40, d=3)
    goals = problem(rows, RATIO, l2)
    means = (mean(rows, "a") - mean(rows, "b"))[None, :]
    thin = problem(replace(rows, X=sparse.csr_array(rows.X)), RATIO, l2)
    found = zafar_solution(thin if seed else goals, covariance)
    w, least = weights_of(found), by_slsqp(goals, means, covariance)
    assert means[0] @ w[:-1] <= covariance + MET
    assert least - 1e-7 <= svm_value(goals, w) <= least + 1e-6
    (row,) = found.trace
    assert row["objective"] == pytest.approx(svm_value(goals, w), abs=1e-12)
    assert row["objective"] - row["gap"] <= least + 1e-9
    assert row["gap"] <= GAP
    assert row["covariance"] == pytest.approx(means[0] @ w[:-1], abs=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_two_sided_gap_bounds_every_pair_of_groups(seed):
    rows = grid_rows(seed, n=40, d=2)
    goals = problem(rows, Rules({"o": "max_gap(positive_rate, by=g) <= 0.1"}), 0.1)
    pairs = [(a, b) for a in "abc" for b in "abc" if a != b]
    means = np.array([mean(rows, a) - mean(rows, b) for a, b in pairs])
    found = zafar_solution(goals, 0.1)
    w = weights_of(found)
    assert (np.abs(means @ w[:-1]) <= 0.1 + MET).all()
    assert svm_value(goals, w) == pytest.approx(by_slsqp(goals, means, 0.1), abs=1e-6)
    assert list(found.multipliers) == ["o"]


def test_contrasts_of_groups_are_differences_of_means_whatever_the_limits():
    rows, rng = smooth_rows(0, n=90), np.random.default_rng(1)
    rules = {
        "a": "positive_rate[g=a] <= 3 * positive_rate[g=b]",
        "b": "positive_rate[g=b] >= 0.2 * positive_rate[g=a]",
        "c": "negative_rate[g=a] >= negative_rate[g=b] - 0.1",
        "d": "abs(positive_rate[g=a] - positive_rate[g=b]) <= 0.1",
        "e": "positive_rate[g=a] <= 0.8 * positive_rate[g!=a]",
        "f": "tpr[g=b] >= tpr[g=a]",
    }
    names, means = group_contrasts(problem(rows, Rules(rules)))
    difference = mean(rows, "a") - mean(rows, "b")
    good = replace(rows, X=rows.X[rows.label == 1], group=rows.group[rows.label == 1])
    wanted = [
        *[difference] * 4, -difference, mean(rows, "a") - mean(rows, "b", "c"),
        mean(good, "a") - mean(good, "b"),
    ]  # fmt: skip
    assert names == ["a", "b", "c", "d", "d", "e", "f"]
    np.testing.assert_allclose(means[:, :-1], wanted, atol=1e-12)
    assert not means[:, -1].any()
    # weighted, with rows that have no label
    weight, label = rng.uniform(0.5, 2, size=90), np.where(np.arange(90) % 3 == 0, np.nan, 1.0)
    _, means = group_contrasts(problem(replace(rows, weight=weight, label=label), RATIO))
    one, two = (np.average(rows.X[own], axis=0, weights=weight[own])
                for own in (rows.group == "a", rows.group == "b"))  # fmt: skip
    np.testing.assert_allclose(means[0, :-1], one - two, atol=1e-12)


def test_loose_bound_gives_the_plain_svm():
    rows = smooth_rows(2, n=150)
    goals = problem(rows, RATIO, 0.01)
    svm = run(Unconstrained(), goals)
    _, means = group_contrasts(goals)
    reach = float(np.abs(means @ weights_of(svm)).max())
    found = zafar_solution(goals, reach + 0.1)
    np.testing.assert_allclose(weights_of(found), weights_of(svm), atol=2e-2)
    assert svm_value(goals, weights_of(found)) <= svm_value(goals, weights_of(svm)) + GAP
    assert found.multipliers["p"] == pytest.approx(0, abs=1e-6)
    free = zafar_solution(problem(rows, Rules(), 0.01), 0.0)
    assert free.trace[0]["objective"] == pytest.approx(found.trace[0]["objective"], abs=GAP)


def test_the_multiplier_is_what_a_unit_of_covariance_is_worth():
    rules = Rules({"p": "positive_rate[g=c] <= positive_rate[g=a]"})
    goals = problem(smooth_rows(3, n=150), rules, 0.01)
    values = [zafar_solution(goals, c).trace[0]["objective"] for c in (0.0, 0.1, 0.2)]
    multiplier = zafar_solution(goals, 0.1).multipliers["p"]
    assert (values[0] - values[1]) / 0.1 >= multiplier - 1e-4
    assert multiplier + 1e-4 >= (values[1] - values[2]) / 0.1 > 0.01
