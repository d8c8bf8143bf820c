from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.goals import Rows, Rules, problem

from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull import best as search
from ratecli.solvers.hull.best import HullOptimum, optimize_over_hull
from ratecli.solvers.hull.bilinear import BilinearProgram
from ratecli.solvers.hull.forms import RatePoints, RateProgram
from ratecli.solvers.hull.relaxation import Relaxation

GAP = 1e-5
GOALS = {
    "affine": Rules({"p": "positive_rate[g=a] <= 1.2 * positive_rate[g=b]", "r": "recall >= 0.4"}),
    "kl": Rules(
        {"e": "error <= 0.45"},
        "kl(base_rate, positive_rate[g=a]) + kl(base_rate, positive_rate[g=b])",
    ),
    "g-mean": Rules({"p": "positive_rate <= 0.5"}, "1 - g_mean"),
    "h-mean within": Rules({"h": "h_mean >= 0.3"}, "error"),
    "q-mean": Rules({}, "1 - q_mean"),
    "f1": Rules({"p": "positive_rate <= 0.6"}, "1 - f1"),
    "f1 parity": Rules({"f": "max_gap(f1, by=g) <= 0.1"}, "1 - f1"),
    "precision parity": Rules({"f": "max_gap(precision, by=g) <= 0.1"}),
    "f1 and error": Rules({"f": "max_gap(f1, by=g) <= 0.2"}, "error - f1[g=a] - f1[g=b]"),
    "ratio and curve": Rules({"k": "kl(0.5, positive_rate) <= 0.2"}, "1 - f1"),
    "ratios and rates": Rules({"r": "f1[g=a] + recall <= precision[g=b] + 0.4"}, "1 - f1"),
    "one ratio twice": Rules({"f": "f1 >= 0.4", "a": "f1[g=a] >= f1 - 0.05"}, "1 - f1"),
}
THREE = {
    "f1 parity": Rules({"f": "max_gap(f1, by=g) <= 0.05"}, "1 - f1"),
    "precision parity": Rules({"f": "max_gap(precision, by=g) <= 0.05"}),
    "both": Rules({"f": "max_gap(f1, by=g) <= 0.1", "p": "max_gap(precision, by=g) <= 0.2"}),
    "a chain": Rules({"b": "f1[g=b] >= f1[g=a] - 0.1", "c": "f1[g=c] >= f1[g=b]"}),
    "a sum": Rules({}, "error - f1[g=a] - f1[g=b] - f1[g=c]"),
}


def given_rules(seed: int, rules: Rules, groups: str):
    """A problem of 60 rows, and a generator for more."""
    rng = np.random.default_rng(seed)
    group = np.array([*groups], dtype=object)[rng.integers(len(groups), size=60)]
    label = (rng.random(60) < np.where(group == "a", 0.6, 0.3)).astype(float)
    return problem(Rows(np.zeros((60, 1)), label, group), rules), rng


def instance(seed: int, rules: Rules, count: int, groups: str = "ab"):
    """A program, and rates (K, count) of random decisions of 60 rows in groups."""
    given, rng = given_rules(seed, rules, groups)
    decisions = (rng.random((count, 60)) < rng.random((count, 1))).astype(float)
    return RateProgram.of(given), np.stack([given.rates.rates(p) for p in decisions], axis=1)


def on_grid(program: RateProgram, rates: np.ndarray, steps: int) -> float:
    """The least objective of the mixtures whose chances are multiples of 1 / steps."""
    count = rates.shape[1]
    cuts = itertools.combinations(range(steps + count - 1), count - 1)
    bars = np.array([(-1, *cut, steps + count - 1) for cut in cuts])
    mixtures = (rates @ ((np.diff(bars, axis=1) - 1) / steps).T).T
    values = program.value(program.objective, mixtures.T)
    return float(min(values[program.excess(mixtures.T) <= 1e-9], default=np.inf))


CASES = [(name, "ab") for name in GOALS] + [(name, "abc") for name in THREE]


def best_mixture(program: RateProgram, rates: np.ndarray, gap: float = GAP) -> HullOptimum:
    return optimize_over_hull(program, RatePoints.classifiers(rates), gap)


@pytest.mark.parametrize(("name", "groups"), CASES)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=8, deadline=None)
def test_optimum_is_at_least_as_good_as_mixtures_on_a_grid(name, groups, seed):
    program, rates = instance(seed, (GOALS if groups == "ab" else THREE)[name], 4, groups)
    found, grid = best_mixture(program, rates), on_grid(program, rates, 24)
    if not found.feasible:
        assert grid == np.inf
        return
    assert found.value <= grid + GAP
    assert program.excess(found.rates) <= 5e-7
    assert found.value == pytest.approx(program.value(program.objective, found.rates), abs=1e-9)
    assert found.bound <= min(found.value, grid) + 1e-9
    if found.value < 2:  # otherwise a rate is 0, where no tangent touches kl
        assert found.bound >= found.value - 5 * GAP  # levels have errors when a box is dropped
    assert found.rates == pytest.approx(rates @ found.weights)
    assert found.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", THREE)
@pytest.mark.parametrize("seed", range(2))
def test_bound_is_close_to_the_optimum_of_many_points(name, seed):
    program, rates = instance(seed, THREE[name], 20, "abc")
    found = best_mixture(program, rates)
    assert found.value - 5 * GAP <= found.bound <= found.value
    assert (program.excess(found.rates) <= 5e-7) == found.feasible
    assert found.feasible or found.bound > 0


@pytest.mark.parametrize(
    ("rules", "groups", "levels"),
    [
        (Rules({"f": "f1[g=a] - f1[g=b] <= 0.02"}, "1 - f1"), "ab", 1),
        (THREE["f1 parity"], "abc", 1),
        (THREE["precision parity"], "abcde", 1),
        (THREE["both"], "abc", 2),
        (THREE["a chain"], "abc", 1),
        (THREE["a sum"], "abc", 3),
        (Rules({"f": "f1 >= 0.4", "p": "precision[g=a] >= 0.1"}, "1 - f1"), "ab", 0),
    ],
)
def test_fractions_need_few_levels(rules, groups, levels):
    program, rates = instance(0, rules, 5, groups)
    for elastic in (False, True):
        bilinear = BilinearProgram(program, RatePoints.classifiers(rates), elastic=elastic)
        assert len(bilinear.boxes) <= levels + elastic


@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("blocks", ["one", "many"])
def test_relaxation_is_a_lower_bound_in_every_box(name, blocks):
    """Also in the box of the optimum, after it was split twelve times."""
    given, _ = given_rules(0, GOALS[name], "ab")
    program, rates = instance(0, GOALS[name], 6)
    hull = (
        RatePoints.classifiers(rates)
        if blocks == "one"
        else RatePoints.decisions(RowKinds.by(given.rates))
    )
    relaxation = Relaxation(program, hull)
    found = optimize_over_hull(program, hull, GAP)
    if not found.feasible:
        return
    boxes = relaxation.boxes
    for _ in range(12):
        inside = relaxation.solve(boxes)
        assert inside.value <= found.value + 1e-8
        if not len(boxes):
            break
        p = int(np.argmax(boxes[:, 1] - boxes[:, 0]))
        parts = np.repeat(boxes[None], 2, axis=0)
        parts[0, p, 1] = parts[1, p, 0] = boxes[p].mean()
        solved = [relaxation.solve(part) for part in parts]
        values = [np.inf if part is None else part.value for part in solved]
        assert min(values) >= inside.value - 1e-8  # a part allows no more
        boxes = parts[int(np.argmin(values))]


@pytest.mark.parametrize("seed", range(4))
def test_interrupted_search_still_finds_a_feasible_point(seed, monkeypatch):
    rules = Rules({"f": "max_gap(f1, by=g) <= 0.01", "p": "max_gap(precision, by=g) <= 0.3"})
    program, rates = instance(seed, rules, 30, "abc")
    gap = 1e-3
    whole = best_mixture(program, rates, gap)
    candidates = search._candidate_points
    monkeypatch.setattr(search, "MAX_NODES", 60)
    monkeypatch.setattr(  # find no point in the first search
        search, "_candidate_points", lambda of, node: candidates(of, node) if of.elastic else []
    )
    found = best_mixture(program, rates, gap)
    assert found.feasible == whole.feasible
    if found.feasible:
        assert program.excess(found.rates) <= 5e-7
        assert found.bound <= whole.value + 1e-6  # a constraint may be violated by MAX_EXCESS
        assert found.value >= whole.bound - 1e-6


UNSATISFIABLE = {
    "affine": Rules({"p": "positive_rate[g=a] <= positive_rate[g=b] - 2"}),
    "log": Rules({"k": "log(positive_rate) >= 2"}),
    "f1 gap": Rules({"f": "f1[g=a] - f1[g=b] <= -2"}),
}


@pytest.mark.parametrize("name", UNSATISFIABLE)
@pytest.mark.parametrize("seed", range(3))
def test_prices_of_the_least_violation_are_its_slopes(name, seed):
    """Otherwise column generation would not look for classifiers that reduce the violation."""
    program, rates = instance(seed, UNSATISFIABLE[name], 6)
    found = best_mixture(program, rates, 1e-6)
    steps = 1e-6 * np.eye(len(rates))
    moved = [program.excess(found.rates + s) - program.excess(found.rates - s) for s in steps]
    np.testing.assert_allclose(found.prices, np.array(moved) / 2e-6, atol=1e-4)
    assert np.abs(found.prices).max() > 0.1
    assert found.multipliers.sum() == pytest.approx(1.0)
    assert not found.feasible
