"""Thresholds of small groups, and one threshold for rows whose group is unknown."""

import numpy as np
import pytest
from oracles.goals import BOTH, Rows, Rules, problem, problem_of, rates_of, run, values

from ratecli.errors import FaultError
from ratecli.solvers.baselines.options import PostShift
from ratecli.solvers.curve import RateCurve
from ratecli.solvers.problem import Problem

CELLS = {("F", "B"): (8, 4), ("F", "W"): (60, 5), ("M", "B"): (40, 20), ("M", "W"): (90, 40)}
"""Rows of each cell and how many of them have a positive label."""
RULES = Rules({"a": "positive_rate[sex=F, race=B] >= 0.3", "b": "positive_rate[sex=M] <= 0.5"})
TPR = Rules({"a": "tpr[sex=F, race=B] >= 0.3", "b": "tpr[sex=F, race=W] >= 0.5"}, "fpr[sex=F]")


def crossed(rules: Rules) -> Problem:
    """Rows of two sexes and two races."""
    rng = np.random.default_rng(0)
    cells = np.repeat(np.array(list(CELLS), dtype=object), [n for n, _ in CELLS.values()], axis=0)
    label = np.concatenate([np.arange(n) < positive for n, positive in CELLS.values()])
    X = rng.normal(size=(len(label), 2)) + label[:, None]
    rows = Rows(X, label.astype(float), cells[:, 0])
    return problem_of(rows, rules, {"sex": cells[:, 0], "race": cells[:, 1]})


def shared(given: Problem, **options) -> set[frozenset[str]]:
    """The groups that have the same threshold, each named by its slices."""
    single = run(PostShift(**options, **BOTH), given).variants["deterministic"]
    names = np.array([text.replace(" = ", "=") for text in single.slices])
    found = {}
    for group, threshold in zip(single.groups, single.thresholds, strict=True):
        found.setdefault(threshold, set()).add("; ".join(names[group]))
    return {frozenset(each) for each in found.values()}


@pytest.mark.parametrize(
    ("rules", "least", "pools"),
    [
        # slices: sex=F with race=B, and sex=M; other women are in neither of them
        (RULES, 8, [{"race=B, sex=F"}, {""}, {"sex=M"}]),
        (RULES, 9, [{"race=B, sex=F", ""}, {"sex=M"}]),
        (RULES, 68, [{"race=B, sex=F", ""}, {"sex=M"}]),
        (RULES, 69, [{"race=B, sex=F", "", "sex=M"}]),
        # of women only those with a positive label count for tpr, here 4 and 5
        (TPR, 4, [{"race=B, sex=F; sex=F"}, {"race=W, sex=F; sex=F"}, {""}]),
        (TPR, 5, [{"race=B, sex=F; sex=F", "race=W, sex=F; sex=F"}, {""}]),
    ],
)
def test_groups_below_the_minimum_support_share_a_threshold(rules, least, pools):
    assert shared(crossed(rules), min_support=least) == {frozenset(each) for each in pools}


def test_nearest_group_is_the_largest_of_those_that_differ_least():
    sizes = {"a": 30, "b": 50, "c": 5}
    group = np.repeat(np.array(list(sizes), dtype=object), list(sizes.values()))
    rng = np.random.default_rng(1)
    label = rng.integers(2, size=len(group)).astype(float)
    rows = Rows(rng.normal(size=(len(group), 1)) + label[:, None], label, group)
    rules = Rules({"p": "max_gap(positive_rate, by=g) <= 0.1"})
    found = shared(problem(rows, rules), min_support=20)
    assert found == {frozenset({"g=a"}), frozenset({"g=b", "g=c"})}


def test_small_groups_are_refused_if_asked():
    given = crossed(RULES)
    assert run(PostShift(min_support=8, small_groups="refuse", **BOTH), given).status == "solved"
    with pytest.raises(FaultError) as caught:
        run(PostShift(min_support=9, small_groups="refuse", **BOTH), given)
    (fault,) = caught.value.faults
    assert fault.code == "E408"
    assert fault.message == (
        "the group 'race = B, sex = F' has 8 rows that a goal averages over, and min_support is 9"
    )


def test_pooled_groups_are_counted_and_the_trace_is_exact():
    row = run(PostShift(min_support=9, **BOTH), crossed(RULES)).trace[-1]
    assert (row["pooled"], row["exact"]) == (1, True)
    assert "pooled" not in run(PostShift(**BOTH), crossed(RULES)).trace[-1]


@pytest.mark.parametrize("rules", [RULES, TPR, Rules({"r": "recall[sex=F] >= 0.7"}, "1 - f1")])
def test_unknown_groups_share_the_best_threshold(rules):
    """The single one is the best of all; the random choice is a mixture of single ones."""
    given = crossed(rules)
    solution = run(PostShift(groups="unknown", **BOTH), given)
    single, mixed = (solution.variants[name] for name in ("deterministic", "stochastic"))
    assert single.slices == mixed.slices == ()
    scores, index = single.scorer.score(given.X), given.rates.index()
    levels = RateCurve.of(scores).thresholds
    rates = np.stack([given.rates.rates((scores > level).astype(float)) for level in levels], 1)
    pieces = [piece for goal in given.constraints for piece in goal.pieces]
    excess = np.max([values(piece, rates, index) for piece in pieces], axis=0)
    costs = values(given.objective.expression, rates, index)
    best = np.nanmin(costs[excess <= 1e-12])
    own, random = (rates_of(given, each)[:, None] for each in (single, mixed))
    assert values(given.objective.expression, own, index)[0] == pytest.approx(best, abs=1e-9)
    assert max(values(piece, own, index)[0] for piece in pieces) <= 1e-12
    assert max(values(piece, random, index)[0] for piece in pieces) <= 1e-6
    assert values(given.objective.expression, random, index)[0] <= best + 1e-5
