"""The model is deterministic by default, and status, trace and judged rows are about it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from oracles.goals import BOTH, Rows, Rules, problem, rates_of, run, smooth_rows

from ratecli.models.composed import MixtureClassifier
from ratecli.models.storage import dumps
from ratecli.solvers.baselines.options import PostShift
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.majorize.options import Majorize
from ratecli.solvers.players.options import ThreePlayer

RULES = Rules({"p": "positive_rate[g=a] >= 0.9 * positive_rate[g=b]", "r": "min(tpr, by=g) >= 0.6"})
TREES = {"RandomForestClassifier": {"n_estimators": 5, "max_depth": 4}}
SOLVERS = {
    "post_shift": PostShift,
    "mixture": Mixture,
    "plugin": lambda **more: Mixture(model="plugin", **more),
    "groups": lambda **more: Mixture(model={"plugin": {"groups": True}}, **more),
    "forest": lambda **more: Mixture(model=TREES, **more),
    "trees": lambda **more: Mixture(model={"DecisionTreeClassifier": {"max_depth": 4}}, **more),
    "majorize": Majorize,
    "three_player": lambda **more: ThreePlayer(steps=300, **more),
    "responses": lambda **more: ThreePlayer(oracle="linear", steps=30, **more),
}


@pytest.fixture(scope="module")
def given():
    return problem(smooth_rows(0, n=400), RULES)


@pytest.fixture(scope="module")
def single(given):
    """Return a function that returns the solution of a solver of `SOLVERS`."""
    return cache(lambda name: run(SOLVERS[name](), given))


@pytest.mark.parametrize("name", SOLVERS)
def test_the_only_classifier_is_deterministic_and_the_solution_is_about_it(given, single, name):
    found = single(name)
    assert list(found.variants) == ["deterministic"]
    judged = found.judged or (given, given.decisions(found.main))
    decided = given.decisions(found.main)
    assert set(np.unique(decided)) <= {0.0, 1.0}
    assert set(np.unique(judged[1])) <= {0.0, 1.0}
    rates = judged[0].measured(judged[1])
    violation = judged[0].worst_violation(rates)
    assert violation <= 1e-6 or found.status != "solved"
    assert found.trace[-1]["violation"] == pytest.approx(violation, abs=1e-9)
    assert found.trace[-1]["objective"] == pytest.approx(judged[0].value_of(judged[1]), abs=1e-9)


@pytest.mark.parametrize("name", SOLVERS)
def test_the_randomized_model_has_nearly_the_same_objective(given, single, name):
    random = run(SOLVERS[name](**BOTH), given)
    assert list(random.variants) == ["stochastic", "deterministic"]
    alone = run(SOLVERS[name](randomize=True), given)
    assert dumps(alone.main) == dumps(random.main)
    if name != "trees":  # whose scores have few values
        one = single(name)
        rows = (one.judged or [given])[0]
        values = (
            rows.value_of((each.judged or (rows, rows.decisions(each.main)))[1])
            for each in (one, random)
        )
        assert next(values) <= next(values) + 0.01


def test_costs_between_those_of_members_are_tried(given):
    """The best single vector of costs is none of the members' of the mixture."""
    found = run(Mixture(model="plugin", **BOTH), given)
    mixture, single = found.variants.values()
    assert isinstance(mixture, MixtureClassifier)
    assert all(each.costs is not single.costs for each in mixture.members)
    (scores,) = {id(each.chances) for each in (*mixture.members, single) if hasattr(each, "costs")}
    assert scores == id(single.chances)


@pytest.mark.parametrize("name", ["mixture", "post_shift", "majorize", "three_player"])
def test_without_a_feasible_threshold_the_status_says_so(name):
    """Three kinds of rows: a share of positive decisions between .4 and .6 needs a coin."""
    X = np.repeat([[0.0], [1.0]], [35, 65], axis=0)
    rows = Rows(X, (np.arange(100) % 10 < 3 + 4 * X[:, 0]).astype(float), np.array(["a"] * 100))
    rules = Rules({"s": "positive_rate >= 0.4", "t": "positive_rate <= 0.6"})
    found = run(SOLVERS[name](), problem(rows, rules))
    assert found.status == "iteration_limit"
    assert "`randomize: true` allows random decisions" in found.reason
    assert found.trace[-1]["violation"] > 0
    random = run(SOLVERS[name](randomize=True), problem(rows, rules))
    assert random.status in {"solved", "iteration_limit"}
    assert problem(rows, rules).violation(random.main) <= 1e-6


def test_a_later_search_starts_from_the_mixture():
    given = problem(smooth_rows(0, n=600), RULES)
    found = run(Mixture(), given)
    assert isinstance(found.near, MixtureClassifier)
    again = run(Mixture(calls=1), replace(given, near=found.near))
    assert given.violation(again.main) <= 1e-6
    assert given.value(again.main) <= given.value(found.main) + 0.005


@pytest.mark.parametrize(
    ("solver", "name"), [(PostShift, "voted"), (Majorize, "last"), (Mixture, "uniform")]
)
def test_variants_that_an_algorithm_does_not_have_are_refused(solver, name):
    with pytest.raises(ValueError, match=f"'{name}' is none of deterministic, stochastic"):
        solver(variants=(name,))


def test_group_thresholds_are_moved_together(given):
    """Of mixtures of group thresholds, the single ones are better than the members."""
    found = run(Mixture(model={"plugin": {"groups": True}}, **BOTH), given)
    single = found.variants["deterministic"]
    for member in found.variants["stochastic"].members:
        if not given.violation(member):
            assert given.value(single) <= given.value(member)
    assert given.violation(single) <= 1e-6
    assert rates_of(given, single).shape == (len(given.rates.leaves),)
