"""fairlearn's exponentiated gradient on our goals, measured by our rates."""

import warnings

import numpy as np
import pytest
from oracles.goals import Rules, problem, rates_of, run, smooth_rows

from ratecli.models.linear import Linear
from ratecli.solvers.base import Solution
from ratecli.solvers.baselines.solvers import ExponentiatedGradient
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.solver import Mixture
from ratecli.solvers.problem import ERROR_RATE, Problem

reductions = pytest.importorskip("fairlearn.reductions", reason="the extra 'fairlearn' is missing")
BOUND = 0.05
GROUPS = ("a", "b", "c")
PARITY = Rules(
    {f"{g}{sign}": f"{sign}(positive_rate[g={g}] - positive_rate) <= {BOUND}"
     for g in GROUPS for sign in ("", "-")}
)  # fmt: skip


def solved(given: Problem, **options) -> Solution:
    return run(ExponentiatedGradient(**options), given)


AFFINE = [
    Rules({"p": "positive_rate[g=a] >= 0.9 * positive_rate[g=c]"}),
    Rules({"o": "max_gap(tpr, by=g) <= 0.05"}),
    Rules({"o": "max_gap(tpr, by=g) <= 0.05", "f": "max_gap(fpr, by=g) <= 0.05"}),
    Rules({"e": "max_gap(error, by=g) <= 0.03"}),
    Rules({"r": "recall >= 0.9"}, "positive_rate"),
]


@pytest.mark.parametrize("rules", AFFINE, ids=lambda rules: "; ".join(rules.constraints.values()))
def test_it_meets_affine_goals_and_is_no_better_than_the_best_mixture(rules):
    given = problem(smooth_rows(3), rules)
    program = RateProgram.of(given)
    found = solved(given, gap=0.002)
    rates = rates_of(given, found.variants["stochastic"])
    value = float(program.value(program.objective, rates))
    assert program.excess(rates) <= 2 * found.trace[0]["gap"] + 1e-9
    assert found.trace[0]["objective"] == pytest.approx(value)
    assert found.trace[0]["violation"] == pytest.approx(max(float(program.excess(rates)), 0.0))
    if program.excess(rates) <= 1e-9:
        best = run(Mixture(sweeps=3), given)
        assert value >= best.trace[-1]["objective"] - 1e-3
    assert all(isinstance(member, Linear) for member in found.variants["stochastic"].members)


def test_without_constraints_it_is_the_plain_logistic_regression():
    given = problem(smooth_rows(3), Rules({}))
    found = solved(given)
    (only,) = found.variants["stochastic"].members
    assert found.status == "solved"
    error = rates_of(given, only)[given.rates.index()[ERROR_RATE]]
    assert found.trace[0]["objective"] == pytest.approx(error)
    assert error < 0.25


def test_on_fairlearns_own_goal_it_finds_what_fairlearn_finds():
    """Demographic parity as fairlearn means it: each group against all rows."""
    rows = smooth_rows(1)
    given = problem(rows, PARITY)
    gap = 0.002
    ours = solved(given, gap=gap)
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    parity = reductions.DemographicParity(difference_bound=BOUND)
    learner = LogisticRegression(solver="liblinear")
    theirs = reductions.ExponentiatedGradient(learner, parity, nu=gap)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs.fit(rows.X, rows.label.astype(int), sensitive_features=rows.group.astype(str))
    decisions = theirs._pmf_predict(rows.X)[:, 1]
    program = RateProgram.of(given)
    for chances in (decisions, ours.variants["stochastic"].decide(given.X)):
        assert program.excess(given.rates.rates(chances)) <= 2 * gap
    error = float(np.mean(np.abs(decisions - rows.label)))
    assert ours.trace[0]["objective"] == pytest.approx(error, abs=3 * gap)


def test_too_few_steps_are_a_limit():
    found = solved(problem(smooth_rows(1), PARITY), iterations=2, gap=1e-6)
    assert found.status == "iteration_limit"
    assert found.reason.startswith("after 2 steps a gap of ")
