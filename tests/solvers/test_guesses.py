from __future__ import annotations

import numpy as np
import pytest
from oracles.filters import counted, filtering, kept_shares, people
from oracles.goals import Rows, Rules, problem_of, run

from ratecli.models.proxies import ClassifierProxy
from ratecli.solvers.filtering.solvers import GuessedGroup
from ratecli.solvers.filtering.target import optimal_sampling_weights

TREE = {"DecisionTreeClassifier": {"max_depth": 6}}


def solved(given, **options) -> dict:
    solver = GuessedGroup(**{"classifier": TREE} | options)
    return dict(run(solver, given).variants)


def test_naive_proxy_keeps_equally_many_rows_of_each_prediction():
    rows = people(2, n=900)
    found = solved(filtering(rows), weights="naive")["expected"]
    _, sizes, _ = counted(rows, found)
    assert found.keep * sizes == pytest.approx(np.full(len(sizes), sizes.min()))


@pytest.mark.parametrize("weighted", [False, True])
def test_qp_weights_are_those_of_algorithm_1(weighted):
    rows = people(3, n=900, weighted=weighted)
    found = solved(filtering(rows))["expected"]
    A, sizes, _ = counted(rows, found)
    best = optimal_sampling_weights(A, sizes, np.full(4, 0.25))
    assert kept_shares(rows, found) == pytest.approx(best.induced, abs=1e-6)
    naive = solved(filtering(rows), weights="naive")["expected"]
    off = np.linalg.norm(kept_shares(rows, naive) - 0.25)
    assert best.imbalance <= off


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_noise_matches_the_closed_form(noise):
    """Protocol 4.2: sizes (1 - e) r + e / L, rows of A ((1 - e) r A + e / L base) / size."""
    rows = people(4, n=900)
    plain = solved(filtering(rows))["expected"]
    found = solved(filtering(rows), noise=noise)["expected"]
    A, sizes, base = counted(rows, plain)
    blurred, shares, _ = counted(rows, found)
    L = len(sizes)
    assert found.keep == pytest.approx(plain.keep)
    assert shares == pytest.approx((1 - noise) * sizes + noise / L)
    mass = (1 - noise) * sizes[:, None] * A + noise / L * base
    assert blurred == pytest.approx(mass / shares[:, None])
    if noise == 1:
        assert kept_shares(rows, found) == pytest.approx(base)


def test_group_never_predicted_is_not_a_value():
    rows = people(7, n=300, groups=6)
    model = solved(filtering(rows), classifier={"DecisionTreeClassifier": {"max_depth": 1}})
    found = model["expected"]
    assert isinstance(found.proxy, ClassifierProxy)
    assert found.proxy.values == 2
    assert set(np.unique(found.memberships(rows.X))) == {0.0, 1.0}


@pytest.mark.parametrize("weights", ["naive", "qp"])
def test_group_predicted_only_for_zero_weight_rows_is_not_a_value(weights):
    """The third group lies next to rows that do not count, and is outvoted where rows do."""
    X = np.repeat([[-2.0], [2.0], [-5.0], [-9.0]], [25, 30, 15, 10], axis=0)
    group = np.repeat(np.array(["a", "b", "c", "a", "a"], dtype=object), [25, 30, 5, 10, 10])
    weight = np.repeat([1.0, 0.0], [70, 10])
    rows = Rows(np.hstack([X, X**2]), np.zeros(80), group, weight=weight)
    found = solved(filtering(rows), weights=weights, classifier="LogisticRegression")["expected"]
    assert isinstance(found.proxy, ClassifierProxy)
    assert found.proxy.chances.probabilities(rows.X)[-1].argmax() == 2
    assert found.proxy.values == 2
    assert found.keep.max() == 1


def test_combination_of_intersecting_groups_is_predicted():
    rows = people(5, n=1200, groups=2)
    rng = np.random.default_rng(1)
    old = np.where(rows.X[:, 1] + rng.normal(size=1200) > 0.5, "old", "young").astype(object)
    given = problem_of(rows, Rules({}, "imbalance(by=(g, age))"), {"g": rows.group, "age": old})
    found = solved(given)["expected"]
    assert isinstance(found.proxy, ClassifierProxy)
    assert found.proxy.chances.classes == 4
    kept = found.decide(rows.X)
    shares = [np.average(column == value, weights=kept)
              for column, value in ((rows.group, "a"), (old, "old"))]  # fmt: skip
    before = [(rows.group == "a").mean(), (old == "old").mean()]
    off = [np.linalg.norm(np.subtract(each, 0.5)) for each in (shares, before)]
    assert off[0] < 0.2 * off[1]
