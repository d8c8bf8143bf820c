"""The plug-in of known groups, and the game in which it best-responds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import Rows, Rules, problem, run, smooth_rows

from ratecli.experiment.options import make_solver
from ratecli.models.composed import GroupThreshold
from ratecli.models.storage import dumps, loads
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.baselines.solvers import PostShift
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.solver import Mixture
from ratecli.solvers.oracles.choice import make_oracle, make_oracle_rows
from ratecli.solvers.problem import ERROR_RATE, Problem

GROUPS = {"plugin": {"groups": True}}
SPREAD = "kl(base_rate, positive_rate[g=a]) + kl(base_rate, positive_rate[g=b])"


def plug_in(given: Problem):
    rows = make_oracle_rows(GROUPS, given, RowKinds.by(given.rates))
    return make_oracle(GROUPS, rows, given.l2, np.random.default_rng(0)), rows


def prices(given: Problem, wanted: dict[str, float]) -> np.ndarray:
    return np.array([wanted.get(str(leaf), 0.0) for leaf in given.rates.leaves])


def halves(n: int = 400) -> Rows:
    """Equally many rows of group a and of group b."""
    rows = smooth_rows(0, n=n)
    return replace(rows, group=np.array(["a", "b"], dtype=object)[np.arange(n) % 2])


def thresholds(answer: GroupThreshold) -> dict[str, float]:
    """Thresholds on probabilities, by the slice of the group."""
    names = [" ".join(np.array(answer.slices)[group]) for group in answer.groups]
    return dict(zip(names, (answer.thresholds + 1) / 2, strict=True))


def test_thresholds_equal_the_value_in_the_protocols():
    """Base rate .3, selection rate .2, a group of half the rows, a multiplier of 2 on the error."""
    given = problem(halves(), Rules({"e": "error <= 0.4"}, SPREAD))
    slope = -0.3 / 0.2 + 0.7 / 0.8
    found, _ = plug_in(given)
    answer = found.answer(prices(given, {"positive_rate[g = a]": slope, "error": 2.0}), None)
    assert thresholds(answer) == pytest.approx({"g = a": 0.1875, "g = b": 0.5})


@pytest.mark.parametrize(("slope", "decided"), [(-0.4, 1.0), (0.4, 0.0)])
def test_groups_get_one_decision_if_errors_have_no_price(slope, decided):
    given = problem(halves(), Rules({"e": "error <= 0.4"}, SPREAD))
    found, _ = plug_in(given)
    answer = found.answer(prices(given, {"positive_rate[g = a]": slope}), None)
    decisions = given.decisions(answer)
    assert set(decisions[given.slices["g = a"]]) == {decided}
    assert set(decisions[given.slices["g = b"]]) == {0.0}


@pytest.mark.parametrize("seed", range(5))
def test_decisions_have_the_least_expected_cost(seed):
    """Checked row by row, with unlabelled rows, three groups and overlapping slices."""
    rows = smooth_rows(seed, n=150)
    rows = replace(rows, label=np.where(np.arange(150) % 7 == 0, np.nan, rows.label))
    rules = Rules({"c": "positive_rate[g=a] <= 0.3", "t": "tpr[g=b] >= 0.5", "f": "fpr <= 0.2"})
    given = problem(rows, rules)
    rng = np.random.default_rng(seed)
    costs = np.abs(rng.normal(size=4))
    wanted = {
        "positive_rate[g = a]": rng.normal(),
        "tpr[g = b]": -costs[1],
        "fpr": costs[2],
        "error": costs[3],
    }
    own_prices = prices(given, wanted)
    found, oracle_rows = plug_in(given)
    answer = found.answer(own_prices, None)
    chance = (answer.scorer.score(given.X) + 1) / 2
    each = RowKinds.by(given.rates).prices(own_prices)  # cost of a positive decision
    for group in "abc":
        own = rows.group == group
        known = own & ~np.isnan(rows.label)
        spread = each[own & np.isnan(rows.label)].sum() / known.sum()
        a, b = (each[known & (rows.label == label)].mean() + spread for label in (1, 0))
        assert b > a
        expected = chance[own] * a + (1 - chance[own]) * b
        np.testing.assert_array_equal(given.decisions(answer)[own], expected < 0)
    np.testing.assert_array_equal(
        oracle_rows.decide(answer), answer.decide(oracle_rows.X), err_msg="cached scores"
    )


def test_coco_and_mixture_reach_the_best_thresholds_of_groups():
    """The group is a feature, so probabilities are calibrated in each group. Thresholds chosen by
    counting fit the noise of 6000 labels, thresholds on probabilities do not.
    """
    rng, n = np.random.default_rng(3), 6000
    group = np.array(["a", "b"], dtype=object)[rng.integers(2, size=n)]
    X = np.column_stack([rng.normal(size=(n, 3)), group == "a"]).astype(float)
    label = (X @ [1.0, 0.5, 0.5, 2.5] + 0.5 * rng.logistic(size=n) > 1.2).astype(float)
    given = problem(Rows(X, label, group), Rules({"e": "error <= 0.2"}, SPREAD))
    program = RateProgram.of(given)

    def reached(made):
        found = run(made, given)
        assert found.status == "solved"
        main = loads(dumps(found.variants["stochastic"]))
        rates = given.rates.rates(given.decisions(main))
        assert program.excess(rates) <= 1e-6
        return float(program.value(program.objective, rates))

    best = reached(PostShift())
    assert best > 0.01
    assert best - 1e-5 <= reached(make_solver("coco", {}, [])) <= 1.05 * best
    assert best - 1e-5 <= reached(Mixture(oracle=GROUPS)) <= 1.05 * best


def test_rows_of_one_label_need_no_fit():
    rows = halves(40)
    given = problem(replace(rows, label=np.ones(40)), Rules({"c": "positive_rate[g=a] <= 0.5"}))
    found = run(Mixture(oracle=GROUPS), given)
    assert found.status == "solved"
    rates = given.rates.rates(given.decisions(found.variants["stochastic"]))
    assert rates[given.rates.index()[ERROR_RATE]] == pytest.approx(0.25)
