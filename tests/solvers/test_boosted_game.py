import itertools
from dataclasses import replace

import numpy as np
import pytest
from oracles.games import GOALS, solved
from oracles.goals import Rows, Rules, problem, smooth_rows
from scipy import sparse

from ratecli.errors import FaultError, InvalidValueError
from ratecli.models.layout import NUMBER, NUMBER_OR_MISSING, ColumnLayout
from ratecli.models.storage import dumps, loads
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.master import MAX_EXCESS
from ratecli.solvers.oracles import estimators
from ratecli.solvers.players import boosting
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.mixtures import SHRINK_GAP
from ratecli.solvers.players.options import ThreePlayer, check_boosted_model
from ratecli.solvers.problem import Problem

lightgbm = pytest.importorskip("lightgbm", reason="an optional package")

SMALL = {"lightgbm": {"n_estimators": 30, "num_leaves": 7, "min_child_samples": 5}}
HELD_OUT = {"held_out": 0.25}
PARITY = Rules({"p": "abs(positive_rate[g=a] - positive_rate[g=c]) <= 0.02"})


def mixed_rows(seed: int, n: int = 500) -> tuple[Rows, ColumnLayout]:
    """Rows with two numbers, a number that may be missing, and a category that may be."""
    rng = np.random.default_rng(seed)
    plain, level = smooth_rows(seed, n, 3), rng.integers(6, size=n)
    missing = rng.random(n) < 0.2
    third = np.where(missing, 0.0, plain.X[:, 2])
    one_hot = (level[:, None] == np.arange(5)).astype(float)  # level 5 is unknown
    X = np.column_stack([plain.X[:, :2], third, missing, one_hot])
    label = np.where(level == 1, 1.0, plain.label)
    layout = ColumnLayout(np.array([NUMBER, NUMBER, NUMBER_OR_MISSING, 5]))
    return replace(plain, X=X, label=label), layout


def mixed_problem(seed: int, rules: Rules) -> Problem:
    rows, layout = mixed_rows(seed)
    return replace(problem(rows, rules), column_layout=layout)


def player_of(given: Problem, scores: object) -> tuple[boosting.BoostingPlayer, np.ndarray]:
    """A player before its first tree, and prices at which its decisions are those of plain error."""
    rows = boosting.split_rows(given, scores)
    form = ProgramLagrangian(RateProgram.of(given), rows[1].kinds)
    ascent = boosting.RowWeightAscent.of(form, rows[0].kinds)
    prices = ascent.next(rows[1].rates(np.full(len(rows[1].rows), 0.5)), moving=False)
    parameters = boosting.booster_parameters(SMALL, np.random.default_rng(0))
    return boosting.BoostingPlayer(form, rows, ascent.effects, parameters, prices), prices


@pytest.mark.parametrize("scores", ["in_sample", HELD_OUT])
@pytest.mark.parametrize("name", GOALS)
def test_constraints_hold_on_judged_rows_or_the_status_says_not(name, scores):
    given = problem(smooth_rows(3), GOALS[name])
    found = solved(given, model=SMALL, scores=scores)
    main = found.variants["stochastic"]
    broken = (
        [given.violation(main)] if scores == "in_sample" else found.judged.violations().values()
    )
    assert found.status in {"solved", "iteration_limit"}
    assert (max(broken, default=0.0) <= MAX_EXCESS) == (found.status == "solved")
    assert (found.judged is None) == (scores == "in_sample")
    for each in found.variants.values():
        again = loads(dumps(each))
        np.testing.assert_array_equal(again.decide(given.X), each.decide(given.X))


@pytest.mark.parametrize("name", GOALS)
def test_no_feasible_constant_is_better(name):
    given = problem(smooth_rows(5), GOALS[name])
    program = RateProgram.of(given)
    found = solved(given, model=SMALL, scores="in_sample")
    decisions = np.stack(
        [np.zeros(400), np.ones(400), found.variants["stochastic"].decide(given.X)]
    )
    rates = np.stack([given.rates.rates(each) for each in decisions], axis=1)
    cost, missed = program.cost(rates), program.missed(rates)
    for k in range(2):
        assert missed[k] > MAX_EXCESS or cost[2] <= cost[k] + SHRINK_GAP


@pytest.mark.parametrize("scores", ["in_sample", HELD_OUT])
def test_rates_in_the_game_are_those_of_the_stored_trees(scores):
    given = mixed_problem(1, PARITY)
    player, prices = player_of(given, scores)
    steps = [player.move(prices) for _ in range(12)]
    judged = player.judged
    X = given.X[judged.rows]
    for answer, rates in steps:
        classifier = player.classifier(answer, 0)
        np.testing.assert_array_equal(judged.rates(classifier.decide(X)), rates)
    for each in player.constants(prices):
        decided = player.classifier(each.answer, 0).decide(X)
        np.testing.assert_array_equal(judged.rates(decided), each.rates)


def test_without_constraints_the_trees_are_those_of_a_plain_fit():
    given = mixed_problem(2, Rules())
    found = solved(given, model=SMALL, scores="in_sample")
    rows, layout = mixed_rows(2)
    plain = lightgbm.LGBMClassifier(n_jobs=1, verbosity=-1, **SMALL["lightgbm"])
    columns = layout.columns(rows.X)
    plain.fit(columns, rows.label, categorical_feature=layout.categories)
    scores = found.variants["last"].score(rows.X)
    expected = plain.predict_proba(columns) @ [-1, 1]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_held_out_rows_are_a_stratified_share_that_trees_do_not_see():
    given = mixed_problem(3, PARITY)
    trained, judged = boosting.split_rows(given, HELD_OUT)
    assert not set(trained.rows) & set(judged.rows)
    assert len(trained.rows) + len(judged.rows) == 500
    every, share = np.bincount(trained.kinds.of), np.bincount(judged.kinds.of)
    np.testing.assert_allclose(share, (every + share) / 4, atol=1)


def test_parity_costs_error_and_is_reached():
    rows = smooth_rows(7, n=2000)
    free = solved(problem(rows, Rules()), model=SMALL, scores="in_sample").variants["last"]
    given = problem(rows, PARITY)
    bound = solved(given, model=SMALL, scores="in_sample")
    assert bound.status == "solved"
    assert given.violation(free) > 0.1
    assert given.value(free) < given.value(bound.variants["stochastic"])
    assert given.violation(bound.variants["last"]) < 0.02
    assert bound.multipliers["p"] > 0


@pytest.mark.parametrize("scores", ["in_sample", HELD_OUT])
def test_tiny_groups_do_not_diverge(scores):
    rng = np.random.default_rng(0)
    sizes = [1500, 300, 30, 12, 8]
    group = np.repeat(np.array([*"vwxyz"], dtype=object), sizes)
    X = rng.normal(size=(len(group), 5))
    label = (X[:, 0] + 0.5 * rng.normal(size=len(group)) > 0.5).astype(float)
    label[-8:] = [0, 1] * 4
    pairs = itertools.permutations("vwxyz", 2)
    rules = {
        f"{m}{i}{j}": f"{m}[g={i}] - {m}[g={j}] <= 0.05" for i, j in pairs for m in ("tpr", "fpr")
    }
    given = problem(Rows(X, label, group), Rules(rules))
    found = solved(given, model=SMALL, scores=scores)
    errors = {name: given.value(each) for name, each in found.variants.items()}
    assert errors["last"] < 0.2
    assert max(errors.values()) <= min(label.mean(), 1 - label.mean()) + 0.01
    assert np.isfinite([*found.multipliers.values()]).all()


def test_a_constraint_gives_no_row_more_than_its_largest_weight():
    given = problem(smooth_rows(1), Rules({"p": "positive_rate[g=a] <= 0.0001"}))
    player, _ = player_of(given, "in_sample")
    ascent = boosting.RowWeightAscent.of(player.form, player.trained.kinds)
    for _ in range(50):
        prices = ascent.next(np.ones((len(given.rates.leaves), 1)))
    rows = 400 * prices[1:, 0] @ ascent.effects[..., 1:].max(axis=(0, 1))
    assert rows == pytest.approx(boosting.MAX_ROW_WEIGHT)


def test_sparse_features_give_the_same_trees():
    rows = smooth_rows(4)
    sparse_rows = replace(rows, X=sparse.csr_array(rows.X))
    dense, other = (
        solved(problem(each, PARITY), model=SMALL, scores=HELD_OUT).variants["last"]
        for each in (rows, sparse_rows)
    )
    np.testing.assert_allclose(dense.score(rows.X), other.score(sparse_rows.X), atol=1e-9)


def test_too_many_columns_are_refused(monkeypatch):
    monkeypatch.setattr(estimators, "MAX_DENSE_ENTRIES", 1000)
    with pytest.raises(FaultError, match="lightgbm cannot be trained: it needs a dense matrix"):
        solved(mixed_problem(0, PARITY), model=SMALL)


def test_rows_without_differences_are_refused():
    rows = smooth_rows(0)
    with pytest.raises(FaultError, match="lightgbm cannot be trained: no column has two values"):
        solved(problem(replace(rows, X=0.0 * rows.X), PARITY), model=SMALL)


def test_a_few_rows_give_a_constant():
    given = problem(smooth_rows(1, n=12), Rules())
    main = solved(given, model="lightgbm", scores="in_sample").variants["stochastic"]
    assert len({*main.decide(given.X)}) == 1


def test_equal_seeds_give_equal_trees():
    given = problem(smooth_rows(2), PARITY)
    first, second = (solved(given, model=SMALL, scores=HELD_OUT) for _ in range(2))
    assert [*first.variants] == ["stochastic", "deterministic", "last", "uniform"]
    assert [dumps(each) for each in first.variants.values()] == [
        dumps(each) for each in second.variants.values()
    ]


def test_a_group_without_held_out_rows_is_refused():
    rows = smooth_rows(0)
    group = rows.group.copy()
    group[:2] = "z"
    label = rows.label.copy()
    label[:2] = 1.0
    given = problem(replace(rows, group=group, label=label), Rules({"t": "tpr[g=z] >= 0.1"}))
    with pytest.raises(FaultError, match="the held-out rows have none that"):
        solved(given, model=SMALL, scores={"held_out": 0.01})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("logistic", "trains 'linear' and 'lightgbm'"),
        ("RandomForestClassifier", "trains 'linear' and 'lightgbm'"),
        ({"lightgbm": {"objective": "binary"}}, "'objective' has no effect"),
        ({"lightgbm": {"leaves": 3}}, "'lightgbm' has no option 'leaves'"),
    ],
)
def test_other_models_are_refused(model, message):
    with pytest.raises(InvalidValueError, match=message):
        check_boosted_model(model)


def test_options_without_effect_are_named():
    boosted = ThreePlayer(model=SMALL)
    assert (boosted.steps, boosted.every, boosted.scores) == (30, 2, {"held_out": 0.2})
    assert {"steps", "tune", "batch"} <= boosted.idle.keys()
    assert not boosted.learns("streams")
    assert ThreePlayer().idle.keys() == {"scores"}
    with pytest.raises(ValueError, match="oracle"):
        ThreePlayer(model="lightgbm", oracle="linear")
