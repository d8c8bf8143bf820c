"""fairlearn's exponentiated gradient on our goals, measured by our rates."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from oracles.goals import BOTH, Rules, problem, rates_of, run, smooth_rows
from sklearn.tree import DecisionTreeClassifier
from thinned import one_in

from ratecli.errors import FaultError
from ratecli.experiment.entries import make_solver
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import Linear
from ratecli.models.storage import dumps, loads
from ratecli.solvers.base import Solution
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.problem import ERROR_RATE, Problem

reductions = pytest.importorskip("fairlearn.reductions", reason="fairlearn is not installed")
from ratecli_peers.fairlearn_reductions import ExponentiatedGradient  # noqa: E402
from ratecli_peers.reductions import AffineRowsMoment  # noqa: E402  needs fairlearn

BOUND = 0.05
GROUPS = ("a", "b", "c")


def parity(rate: str) -> Rules:
    """Return limits on the difference between each group and all rows."""
    sides = [(g, sign) for g in GROUPS for sign in ("", "-")]
    return Rules({f"{g}{s}": f"{s}({rate}[g={g}] - {rate}) <= {BOUND}" for g, s in sides})


def solved(given: Problem, **options) -> Solution:
    return run(ExponentiatedGradient(**options, **BOTH), given)


AFFINE = [
    Rules({"p": "positive_rate[g=a] >= 0.9 * positive_rate[g=c]"}),
    Rules({"o": "max_gap(tpr, by=g) <= 0.05"}),
    Rules({"o": "max_gap(tpr, by=g) <= 0.05", "f": "max_gap(fpr, by=g) <= 0.05"}),
    Rules({"e": "max_gap(error, by=g) <= 0.03"}),
    Rules({"r": "recall >= 0.9"}, "positive_rate"),
]


@pytest.mark.parametrize(
    "rules", one_in(2, AFFINE), ids=lambda rules: "; ".join(rules.constraints.values())
)
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
        best = run(Mixture(), given)
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


@pytest.mark.parametrize(
    ("rate", "moment"),
    [
        ("positive_rate", "DemographicParity"),
        ("tpr", "TruePositiveRateParity"),
        ("fpr", "FalsePositiveRateParity"),
    ],
)
def test_on_fairlearns_own_goal_it_finds_what_fairlearn_finds(rate, moment):
    """Parity as fairlearn means it: each group against all rows."""
    rows = smooth_rows(1)
    given = problem(rows, parity(rate))
    gap = 0.002
    ours = solved(given, gap=gap)
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    bound = getattr(reductions, moment)(difference_bound=BOUND)
    learner = LogisticRegression(solver="liblinear")
    theirs = reductions.ExponentiatedGradient(learner, bound, nu=gap)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs.fit(rows.X, rows.label.astype(int), sensitive_features=rows.group.astype(str))
    decisions = theirs._pmf_predict(rows.X)[:, 1]
    program = RateProgram.of(given)
    for chances in (decisions, ours.variants["stochastic"].decide(given.X)):
        assert program.excess(given.rates.rates(chances)) <= 2 * gap
    error = float(np.mean(np.abs(decisions - rows.label)))
    assert ours.trace[0]["objective"] == pytest.approx(error, abs=3 * gap)


def test_any_classifier_gives_the_mixture_that_fairlearn_finds_with_it():
    given = problem(smooth_rows(3), AFFINE[0])
    tree = {"max_depth": 3, "random_state": 0}
    found = solved(given, model={"DecisionTreeClassifier": tree}, gap=0.002)
    mixture = found.variants["stochastic"]
    theirs = reductions.ExponentiatedGradient(
        DecisionTreeClassifier(**tree),
        AffineRowsMoment(*given.rows(*given.constraints)),
        objective=AffineRowsMoment(*given.rows(given.objective)),
        nu=0.002,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs.fit(given.X, given.label.astype(int))
    used = theirs.weights_[theirs.weights_ > 0]
    assert len(used) > 1
    np.testing.assert_allclose(mixture.chances, used)
    for member, k in zip(mixture.members, used.index, strict=True):
        np.testing.assert_array_equal(
            member.decide(given.X), theirs.predictors_[k].predict(given.X)
        )
    np.testing.assert_array_equal(loads(dumps(mixture)).decide(given.X), mixture.decide(given.X))
    rates = rates_of(given, mixture)
    assert found.trace[0]["violation"] == pytest.approx(given.worst_violation(rates))


def test_boosted_trees_meet_the_goals_and_see_columns():
    pytest.importorskip("lightgbm")
    rows = smooth_rows(3)
    levels = np.eye(3)[np.random.default_rng(0).integers(3, size=len(rows))]
    given = problem(replace(rows, X=np.hstack([rows.X, levels])), AFFINE[0])
    layout = ColumnLayout(np.array([0] * rows.X.shape[1] + [3]))
    model = {"lightgbm": {"n_estimators": 5}}
    found = solved(replace(given, column_layout=layout), model=model, gap=0.01)
    members = found.variants["stochastic"].members
    assert {len(member.chances.layout.levels) for member in members} == {rows.X.shape[1] + 1}
    assert found.trace[0]["violation"] <= 2 * found.trace[0]["gap"] + 1e-9


def test_an_existing_score_cannot_be_fitted():
    with pytest.raises(FaultError, match="an existing score cannot be"):
        make_solver("exponentiated_gradient", {"model": {"score": "s"}}, [])


def test_early_stopping_is_refused():
    model = {"lightgbm": {"early_stopping_round": 5}}
    with pytest.raises(FaultError, match="'early_stopping_round' is not possible here"):
        make_solver("exponentiated_gradient", {"model": model}, [])


def test_by_default_it_is_deterministic_and_nearly_as_good():
    rules = {"p": "positive_rate[g=a] >= 0.9 * positive_rate[g=b]", "r": "min(tpr, by=g) >= 0.6"}
    given = problem(smooth_rows(0, n=400), Rules(rules))
    found, both = run(ExponentiatedGradient(), given), solved(given)
    assert list(found.variants) == ["deterministic"]
    decided = given.decisions(found.main)
    assert set(np.unique(decided)) <= {0.0, 1.0}
    assert found.trace[-1]["objective"] == pytest.approx(given.value_of(decided))
    assert found.trace[-1]["objective"] <= both.trace[-1]["objective"] + 0.01


def test_too_few_steps_are_a_limit():
    found = solved(problem(smooth_rows(1), parity("positive_rate")), iterations=2, gap=1e-6)
    assert found.status == "iteration_limit"
    assert found.reason.startswith("after 2 steps a gap of ")
