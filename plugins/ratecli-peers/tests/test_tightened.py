"""With `holds: validation`, limits of packages are tightened until the rule holds there."""

from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import Rules, problem, smooth_rows
from peers import CLASSES, solver_of
from ratecli_peers.rules import GroupRule, KnownRules, tightened_rules

from ratecli.errors import FaultError
from ratecli.rates import expression as ex
from ratecli.solvers.base import Solution
from ratecli.solvers.judges import MAX_IGNORED_SHORTFALL, NormalJudge
from ratecli.solvers.margin import MarginSpec, solve_with_margin

CASES = [
    (name, *rule)
    for name, solver in CLASSES.items()
    if issubclass(solver, KnownRules)
    for rule in solver.accepts
]
RATIOS = {"positive_rate": 0.85, "tpr": 0.93, "fpr": 0.55, "tnr": 0.93, "accuracy": 0.95}
FLOORS = {"positive_rate": 0.5, "tpr": 0.88, "tnr": 0.85, "accuracy": 0.85}
JUDGE = NormalJudge(level=0.9)


def posed(text, count=6000):
    """Return the problem of a rule on half of the rows, of two groups, and on the other half."""
    rows = smooth_rows(3, n=count)
    rows = replace(rows, group=np.where(rows.group == "a", "a", "b").astype(object))
    parts = slice(0, count // 2), slice(count // 2, None)
    halves = (replace(rows, X=rows.X[s], label=rows.label[s], group=rows.group[s]) for s in parts)
    given, validation = (problem(half, Rules({"r": text})) for half in halves)
    return replace(given, validation=validation)


SLOW = {"reject_option", "fairgbm", "seldonian_toolkit", "tfco"}
BEYOND = {
    ("reject_option", "equalized_odds"): "it limits the mean of both differences",
    ("fairgbm", "equalized_odds"): "it limits a proxy, whose rates are equal on training rows",
    ("fairgbm", "tpr"): "likewise",
}


@pytest.mark.parametrize(
    ("name", "kind", "rate"),
    [pytest.param(*each, marks=[pytest.mark.slow] * (each[0] in SLOW)) for each in CASES],
)
def test_a_tightened_rule_holds_on_validation_rows_or_nearly(name, kind, rate):
    solver, text = solver_of(name), f"max_gap({rate}, by=g) <= 0.06"
    if rate == "equalized_odds":
        text = "equalized_odds_difference(by=g) <= 0.07"
    elif kind != "difference":
        shape, limits = ("min_ratio", RATIOS) if kind == "ratio" else ("min", FLOORS)
        text = f"{shape}({rate}, by=g) >= {limits.get(rate, 0.7)}"
    given = posed(text)
    plain, tuned = (
        solve_with_margin(solver, guard, given, np.random.default_rng(0))
        for guard in (MarginSpec(), MarginSpec("validation", JUDGE.level))
    )
    if not tuned.variants:
        assert tuned.status == "no_solution_found"
        assert not plain.variants or (name, rate) in BEYOND
        return
    before, after = (missed(given.validation, each) for each in (plain, tuned))
    assert after <= MAX_IGNORED_SHORTFALL or after < before


def missed(rows, solution: Solution) -> float:
    return float(JUDGE(rows, rows.decisions(solution.main)).max())


def rules_of(text, by):
    """Return the rules of a constraint whose pieces are tightened by amounts."""
    given = posed(text, count=600)
    (goal,) = given.constraints
    pieces = tuple(ex.add(p, ex.Constant(a)) for p, a in zip(goal.pieces, by, strict=True))
    return given, tightened_rules(replace(given, constraints=(replace(goal, pieces=pieces),)))


@pytest.mark.parametrize(
    ("text", "by", "bound"),
    [
        ("max_gap(tpr, by=g) <= 0.1", (0.03, 0.0), 0.07),
        ("min(tpr, by=g) >= 0.8", (0.03, 0.05), 0.85),
    ],
)
def test_the_strictest_amount_counts(text, by, bound):
    _, (rule,) = rules_of(text, by)
    assert rule.bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("max_gap(tpr, by=g) <= 0.1", (0.12, -0.05)),
        ("min_ratio(tpr, by=g) >= 0.9", (0.2, 0.0)),
    ],
)
def test_limits_below_0_and_above_1_are_refused(text, by):
    with pytest.raises(FaultError, match="no package takes"):
        rules_of(text, by)


def test_a_tightened_ratio_is_one_at_the_larger_rate():
    """It is the rate by the share of positive labels before there is a model."""
    given, (rule,) = rules_of("min_ratio(positive_rate, by=g) >= 0.8", (0.02, 0.02))
    limit = pytest.approx(0.8 + 0.02 / given.label.mean())
    assert rule == GroupRule("ratio", "positive_rate", limit, ("g = a", "g = b"))
