from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import Rows, Rules, grid_rows, problem, run, smooth_rows
from scipy import sparse
from scipy.optimize import minimize

from ratecli.errors import FaultError
from ratecli.models.base import Array
from ratecli.solvers.base import Solution
from ratecli.solvers.baselines import linear as zafar
from ratecli.solvers.baselines.linear import group_contrasts
from ratecli.solvers.baselines.solvers import Unconstrained, Zafar
from ratecli.solvers.design_matrix import add_ones_column
from ratecli.solvers.majorize import augmented
from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE
from ratecli.solvers.problem import Problem

GAP = 2 * zafar.ZAFAR_GAP
"""In units of the SVM, where the loss is twice that of rates."""
MET = 2 * FEASIBILITY_TOLERANCE
"""By what a bound may be passed."""

RATIO = Rules({"p": "positive_rate[g=a] <= 1.25 * positive_rate[g=b]"})


def solved(goals: Problem, covariance: float) -> Solution:
    return run(Zafar(covariance), goals)


def weights(found: Solution) -> Array:
    classifier = found.variants["deterministic"]
    return np.append(classifier.weights, classifier.bias)


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
    A = np.vstack([
        np.hstack([signed, np.eye(n)]),
        np.hstack([-means, np.zeros((len(means), n + 1))]),
    ])  # fmt: skip
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


TWO_SIDED = Rules({"o": "max_gap(positive_rate, by=g) <= 0.1"})


@pytest.mark.parametrize("covariance", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("l2", [0.02, 0.3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_zafar_reaches_the_optimum_of_slsqp(seed, l2, covariance):
    rows = grid_rows(seed, n=40, d=3)
    goals = problem(rows, RATIO, l2)
    means = (mean(rows, "a") - mean(rows, "b"))[None, :]
    found = solved(goals, covariance)
    w, least = weights(found), by_slsqp(goals, means, covariance)
    assert found.status == "solved"
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
    goals = problem(rows, TWO_SIDED, 0.1)
    pairs = [(a, b) for a in "abc" for b in "abc" if a != b]
    means = np.array([mean(rows, a) - mean(rows, b) for a, b in pairs])
    found = solved(goals, 0.1)
    w = weights(found)
    assert found.status == "solved"
    assert (np.abs(means @ w[:-1]) <= 0.1 + MET).all()
    assert svm_value(goals, w) == pytest.approx(by_slsqp(goals, means, 0.1), abs=1e-6)
    assert list(found.multipliers) == ["o"]


def test_contrasts_of_groups_are_differences_of_means_whatever_the_limits():
    rows = smooth_rows(0, n=90)
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


def test_means_use_row_weights_and_unlabelled_rows():
    rows = smooth_rows(1, n=60)
    weight = np.random.default_rng(1).uniform(0.5, 2, size=60)
    label = np.where(np.arange(60) % 3 == 0, np.nan, rows.label)
    rows = replace(rows, weight=weight, label=label)
    _, means = group_contrasts(problem(rows, RATIO))
    one, two = (np.average(rows.X[own], axis=0, weights=weight[own])
                for own in (rows.group == "a", rows.group == "b"))  # fmt: skip
    np.testing.assert_allclose(means[0, :-1], one - two, atol=1e-12)
    assert solved(problem(rows, RATIO, 0.1), 0.1).status == "solved"


def test_loose_bound_gives_the_plain_svm():
    rows = smooth_rows(2, n=150)
    goals = problem(rows, RATIO, 0.01)
    svm = run(Unconstrained(), goals)
    _, means = group_contrasts(goals)
    reach = float(np.abs(means @ weights(svm)).max())
    found = solved(goals, reach + 0.1)
    np.testing.assert_allclose(weights(found), weights(svm), atol=2e-2)
    assert svm_value(goals, weights(found)) <= svm_value(goals, weights(svm)) + GAP
    assert found.multipliers["p"] == pytest.approx(0, abs=1e-6)
    free = solved(problem(rows, Rules(), 0.01), 0.0)
    assert free.trace[0]["objective"] == pytest.approx(found.trace[0]["objective"], abs=GAP)


def test_the_multiplier_is_what_a_unit_of_covariance_is_worth():
    rules = Rules({"p": "positive_rate[g=c] <= positive_rate[g=a]"})
    goals = problem(smooth_rows(3, n=150), rules, 0.01)
    values = [solved(goals, c).trace[0]["objective"] for c in (0.0, 0.1, 0.2)]
    multiplier = solved(goals, 0.1).multipliers["p"]
    assert (values[0] - values[1]) / 0.1 >= multiplier - 1e-4
    assert multiplier + 1e-4 >= (values[1] - values[2]) / 0.1 > 0.01


def test_iteration_limit_is_reported(monkeypatch):
    monkeypatch.setattr(augmented, "MAX_ROUNDS", 2)
    found = solved(problem(grid_rows(0, n=40, d=3), RATIO, 0.02), 0.0)
    assert found.status == "iteration_limit"
    assert re.match(r"stopped after \d+ Newton steps with a gap of ", found.reason)
    assert found.trace[0]["gap"] > GAP


@pytest.mark.parametrize(
    ("rule", "way"),
    [("positive_rate <= 0.3", "up"), ("recall >= 0.9", "down"), ("fpr[g=a] <= 0.1", "up")],
)
def test_constraint_on_one_group_is_an_error(rule, way):
    goals = problem(smooth_rows(4), Rules({"p": RATIO.constraints["p"], "one": rule}))
    with pytest.raises(FaultError) as caught:
        solved(goals, 0.1)
    (fault,) = caught.value.faults
    assert fault.code == "E308"
    assert fault.message.startswith(f"'one' pushes no row {way}: ")


def test_dense_and_sparse_rows_agree():
    rows = smooth_rows(0, n=100)
    thin = replace(rows, X=sparse.csr_array(rows.X))
    one, two = (weights(solved(problem(each, RATIO, 0.05), 0.1)) for each in (rows, thin))
    np.testing.assert_allclose(one, two, atol=1e-5)
