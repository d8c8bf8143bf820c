"""Algorithms that maximize values of logged decisions, compared with exact optima."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import BOTH, Rows, Rules, forms, problem, run
from scipy.optimize import linprog

from ratecli.errors import FaultError
from ratecli.rates.matrix import RowKinds
from ratecli.rates.sample import Logs
from ratecli.solvers.baselines.options import PostShift, Unconstrained
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.majorize.options import Majorize
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.players.options import ThreePlayer
from ratecli.solvers.problem import Problem

CELLS = 6
RULES = Rules(
    {
        "budget": "positive_rate <= 0.4",
        "alike": "positive_rate[g=a] >= 0.8 * positive_rate[g=b]",
        "harm": "value(harm)[g=b] <= 0.2",
    },
    "-value(gain)",
)
EXISTING = PostShift(model={"score": "s"})


def logged_rows(seed: int, n: int = 300) -> Rows:
    """Return unlabelled rows of six cells, three a group, with logged decisions."""
    rng = np.random.default_rng(seed)
    cell = np.arange(n) % CELLS
    chance = rng.uniform(0.3, 0.7, CELLS)[cell]
    action = (rng.random(n) < chance).astype(float)
    gain = action * (rng.normal(size=CELLS)[cell] + 0.3 * rng.normal(size=n))
    weight = 1 / np.where(action == 1, chance, 1 - chance)
    logs = Logs(action, weight, {"gain": gain, "harm": 0.5 * action})
    group = np.where(cell < CELLS // 2, "a", "b").astype(object)
    return Rows(np.eye(CELLS)[cell], np.full(n, np.nan), group, logs=logs)


def best_value(given: Problem) -> float:
    """Return the least objective of random decisions that depend on the cell only."""
    coefficients, constants = forms(given)
    by_cell = coefficients @ given.X
    found = linprog(by_cell[0], by_cell[1:], -constants[1:], bounds=(0, 1))
    assert found.status == 0
    return float(found.fun + constants[0])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("solver", "tolerance"),
    [(Mixture(**BOTH), 1e-3), (Majorize(**BOTH), 0.03), (ThreePlayer(**BOTH), 0.03)],
    ids=["mixture", "majorize", "three_player"],
)
def test_random_decisions_reach_the_linear_program(solver, tolerance, seed):
    given = problem(logged_rows(seed), RULES, 1e-6)
    best = best_value(given)
    assert best < -0.1
    chosen = run(solver, given).variants["stochastic"]
    assert given.violation(chosen) <= tolerance / 10 + 1e-6
    assert given.value(chosen) == pytest.approx(best, abs=tolerance)


@pytest.mark.parametrize("seed", range(4))
def test_thresholds_of_groups_are_the_best_of_all(seed):
    rows = logged_rows(seed, 24)
    scores = np.random.default_rng(seed).integers(6, size=24).astype(float)
    rows = replace(rows, X=scores[:, None])
    given = problem(
        rows, Rules({"budget": "positive_rate <= 0.4"}, "-value(gain)[g=a] - value(gain)")
    )
    a, best = rows.group == "a", 0.0
    for cuts in itertools.product(np.append(np.unique(scores), np.inf), repeat=2):
        decisions = (scores >= np.where(a, *cuts)).astype(float)
        if given.worst_violation(given.rates.rates(decisions)) <= 1e-12:
            best = min(best, given.value_of(decisions))
    chosen = run(EXISTING, given).variants["deterministic"]
    assert given.violation(chosen) <= 1e-12
    assert given.value(chosen) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("model", ["linear", "HistGradientBoostingClassifier"])
def test_without_labels_a_model_is_trained_for_the_objective(model):
    rows = logged_rows(0, 3000)
    given = problem(rows, Rules({}, "-value(gain)"), 1e-6)
    (slopes, *_), _ = forms(given)
    best = (slopes @ rows.X < 0).astype(float)[rows.X.argmax(axis=1)]
    (found,) = run(Unconstrained(model=model), given).variants.values()
    assert given.decisions(found).tolist() == best.tolist()


def test_labels_come_first():
    rows = logged_rows(0)
    label = (rows.X.argmax(axis=1) % 2).astype(float)
    given = problem(replace(rows, label=label), Rules({}, "-value(gain)"), 1e-6)
    (found,) = run(Unconstrained(), given).variants.values()
    assert given.decisions(found).tolist() == label.tolist()


@pytest.mark.parametrize("objective", ["-value_logged(gain)", "positive_rate"])
def test_an_objective_without_values_trains_no_model(objective):
    given = problem(logged_rows(0), Rules({}, objective))
    with pytest.raises(FaultError) as caught:
        run(Unconstrained(), given)
    assert str(caught.value) == "E306: no training row has a label"


@pytest.mark.parametrize("seed", range(5))
def test_kinds_of_rows_with_several_factors_give_the_rates(seed):
    rng = np.random.default_rng(seed)
    rows = logged_rows(seed, 60)
    rows = replace(rows, label=rng.choice([0.0, 1.0, np.nan], 60), weight=rng.uniform(0.5, 2, 60))
    more = {
        "h": "value(harm)[g=a] + importance_weight <= 9",
        "s": "squared_importance_weight <= 99",
    }
    given = problem(rows, Rules(RULES.constraints | more, "error - value(gain)"))
    kinds = RowKinds.by(given.rates)
    assert len({leaf.rate.factor for leaf in given.rates.leaves}) == 5
    assert len(kinds.of) == 5 * 60
    decisions = rng.random((60, 4))
    expected = np.stack([given.rates.rates(each) for each in decisions.T], axis=1)
    assert kinds.rates_of(decisions) == pytest.approx(expected)
    some = np.flatnonzero(rng.random(60) < 0.5)
    part = kinds.on(some)
    assert part.shares.toarray() == pytest.approx(kinds.shares.toarray()[:, some])
    merged = OracleRows.of(given.X, kinds)
    by_cell = rng.random(CELLS)
    found = kinds.rates(merged.shares @ (merged.X @ by_cell))
    assert found == pytest.approx(given.rates.rates(given.X @ by_cell))
