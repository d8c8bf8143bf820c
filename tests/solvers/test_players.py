from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.games import GOALS, game_of, solved
from oracles.goals import Rules, grid_rows, problem, smooth_rows

from ratecli.errors import FaultError
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import LinearTerm, RateProgram
from ratecli.solvers.mixture.solver import Mixture
from ratecli.solvers.players.atoms import (
    NegativeGeometricMean,
    NegativeHarmonicMean,
    NegativeLog,
    QuadraticMean,
)
from ratecli.solvers.players.game import (
    StepObservation,
    SwapRegret,
    project_onto_simplex_cap,
    stationary_distributions,
)
from ratecli.solvers.players.lagrangian import OBJECTIVE_OWNER, ProgramLagrangian
from ratecli.solvers.players.lanes import unpack_lanes
from ratecli.solvers.problem import Problem

LINES = (LinearTerm(np.array([1.0, 0.0]), 0.0), LinearTerm(np.array([0.0, 1.0]), 0.0))


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def form_of(given: Problem):
    kinds = RowKinds.by(given.rates)
    return ProgramLagrangian(RateProgram.of(given), kinds), kinds


def test_responses_of_logarithms():
    """Vector 9.7."""
    log = NegativeLog(LINES[:1], 0.3)
    multipliers = np.array([[0.2, 0.3, 0.6, 1.5, 3.0]])
    found = log.respond(np.ones(5), -multipliers)
    np.testing.assert_allclose(found, [[1, 1, 0.5, 0.2, 0.1]])
    assert log.respond(np.ones(1), -column(0.0)) == 1.0
    assert NegativeLog(LINES[:1], 0.7).respond(np.ones(1), -column(0.7)) == 1.0
    # stationary at a rate of .2
    np.testing.assert_allclose(-log.slopes(column(0.2)), 1.5)
    np.testing.assert_allclose(-NegativeLog(LINES[:1], 0.7).slopes(column(0.8)), 0.875)


def test_responses_of_the_geometric_mean():
    """Vector 9.8; of what is minimized there the mean has no weight but 1."""
    mean = NegativeGeometricMean(LINES, 1.0)
    pulls = -np.array([[0.3, 1.0], [0.6, 1.0]])
    slacks = mean.respond(np.ones(2), pulls)
    np.testing.assert_allclose(slacks[:, 0], [1, 0.69444], atol=1e-5)
    np.testing.assert_allclose(slacks[:, 1], 0)
    worth = mean.value(slacks) - (pulls * slacks).sum(axis=0)
    np.testing.assert_allclose(worth, [-0.116667, 0], atol=1e-6)


ATOMS = {
    "log": NegativeLog(LINES[:1], 0.4),
    "geometric": NegativeGeometricMean(LINES, 0.7),
    "harmonic": NegativeHarmonicMean(LINES, 0.7),
    "quadratic": QuadraticMean(LINES, 1.3),
}


@pytest.mark.parametrize("name", ATOMS)
@given(st.lists(st.floats(0, 3), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_no_slacks_on_a_grid_are_better_responses(name, chosen):
    atom = ATOMS[name]
    weight = np.array([0.1 + chosen[0]])
    pull = np.array(atom.signs)[:, None] * np.array(chosen[1:])[: len(atom.signs), None]
    ends = np.linspace(0.001, 1, 60)
    grid = np.array(list(itertools.product(ends, repeat=len(pull)))).T
    found = atom.respond(weight, pull)

    def worth(slacks):
        return weight * atom.value(slacks) - (pull * slacks).sum(axis=0)

    assert worth(found)[0] <= worth(grid).min() + 1e-9
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("name", ATOMS)
def test_slopes_of_atoms_are_difference_quotients(name):
    atom = ATOMS[name]
    at = np.array([[0.3, 0.7], [0.8, 0.4]])[: len(atom.signs)]
    for i in range(len(at)):
        step = 1e-6 * np.eye(len(at))[:, [i]]
        rise = (atom.value(at + step) - atom.value(at - step)) / 2e-6
        np.testing.assert_allclose(atom.slopes(at)[i], rise, rtol=1e-5)
    signs = np.array(atom.signs)[:, None]
    assert (signs * atom.slopes(at) >= 0).all()


@pytest.mark.parametrize("name", GOALS)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_a_lagrangian_whose_slacks_are_its_arguments_is_the_program(name, seed):
    """At any decisions, and at no multipliers of slacks but what cancels."""
    given = problem(grid_rows(seed % 7, n=60), GOALS[name])
    form, _ = form_of(given)
    program = RateProgram.of(given)
    p = np.random.default_rng(seed).uniform(0.1, 0.9, len(given.X))
    rates = given.rates.rates(p)[:, None]
    slopes, constants = form.sides
    sides = slopes @ rates + constants
    count = 1 + len(form.constraints)
    slacks = form.signs * sides[count:]
    broken = sides[1:count] + form.values(slacks)
    for j, constraint in enumerate(program.constraints):
        assert broken[j, 0] == pytest.approx(float(program.value(constraint, rates[:, 0])))
    own = sum(
        atom.value(slacks[span])[0]
        for atom, span, owner in zip(form.atoms, form.spans, form.owners, strict=True)
        if owner == OBJECTIVE_OWNER
    )
    assert sides[0, 0] + own == pytest.approx(float(program.value(program.objective, rates[:, 0])))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_tops_and_bottoms_of_ratios_are_never_negative(seed):
    given = problem(grid_rows(seed % 7, n=60), GOALS["f1 parity"])
    form, _ = form_of(given)
    decisions = np.random.default_rng(seed).integers(2, size=(20, 60)).astype(float)
    rates = np.stack([given.rates.rates(p) for p in decisions], axis=1)
    slopes, constants = form.sides
    arguments = form.signs * (slopes @ rates + constants)[1 + len(form.constraints) :]
    assert arguments.min() >= -1e-12


def test_what_is_not_monotone_is_refused():
    rules = Rules({}, "(tpr - fpr) * (tpr - fpr)")
    with pytest.raises(FaultError, match="neither grows nor falls in 'tpr'"):
        form_of(problem(grid_rows(0), rules))


def test_projection():
    """Vector 9.9."""
    points = np.array([[3.0, 0.5, 2.0], [1.0, 0.2, 2.0], [-2.0, 0.0, 1.0]])
    found = [
        project_onto_simplex_cap(points[:, [i]], r)[:, 0] for i, r in enumerate((2.0, 1.0, 3.0))
    ]
    np.testing.assert_allclose(found[0], [2, 0, 0])
    np.testing.assert_allclose(found[1], [0.5, 0.2, 0])
    np.testing.assert_allclose(found[2], [4 / 3, 4 / 3, 1 / 3])
    both = project_onto_simplex_cap(points, 2.0)
    np.testing.assert_allclose(both[:, 0], [2, 0, 0])
    np.testing.assert_allclose(both[:, 1], [0.5, 0.2, 0])


def test_swap_regret():
    """Vector 9.12."""
    player = SwapRegret.even(2, np.ones(1))
    prices = player.next(
        np.full((2, 1), 0.5), StepObservation(column(0.4), np.zeros((0, 1)), np.zeros((0, 1)))
    )
    np.testing.assert_allclose(player.matrix[0], [[0.450166] * 2, [0.549834] * 2], atol=1e-6)
    np.testing.assert_allclose(prices[:, 0], [0.450166, 0.549834], atol=1e-6)


def test_stationary_distributions():
    matrix = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 4)).transpose(0, 2, 1)
    found = stationary_distributions(matrix)
    np.testing.assert_allclose(found.sum(axis=0), 1)
    for lane in range(3):
        np.testing.assert_allclose(matrix[lane] @ found[:, lane], found[:, lane], atol=1e-12)


@pytest.mark.parametrize("name", GOALS)
def test_hinges_are_nowhere_below_what_is_counted(name):
    given = problem(smooth_rows(2), GOALS[name])
    game = game_of(given, [{"learning_rate": 0.1, "multiplier_rate": 0.1}])
    slopes, constants = game.form.sides
    for _ in range(20):
        answer, rates = game.step()
        assert (game.player.bounds(answer) >= slopes @ rates + constants - 1e-5).all()


@pytest.mark.parametrize("name", GOALS)
def test_stochastic_classifiers_meet_constraints_and_are_near_the_best(name):
    given = problem(smooth_rows(1), GOALS[name])
    program = RateProgram.of(given)
    found = solved(given, steps=500, learning_rate=0.1, multiplier_rate=0.1)
    assert found.status == "solved"
    rates = {k: given.rates.rates(c.decide(given.X)) for k, c in found.variants.items()}
    assert program.excess(rates["stochastic"]) <= 1e-6
    best = Mixture().solve(given, np.random.default_rng(0), lambda _: None).trace[-1]["objective"]
    value = float(program.value(program.objective, rates["stochastic"]))
    assert best - 1e-3 <= value <= best + 0.1
    assert len(found.variants["stochastic"].members) <= len(given.rates.leaves) + 1
    assert set(np.unique(found.variants["deterministic"].decide(given.X))) <= {0.0, 1.0}
    assert [row["iteration"] for row in found.trace] == list(range(0, 501, 10))


@pytest.mark.parametrize(
    "setting",
    [
        {"multipliers": "leader"},
        {"multipliers": "leader", "rates": "surrogate"},
        {"rates": "surrogate"},
        {"multipliers": "swap_regret"},
        {"optimizer": "sgd", "radius": 5.0},
        {"shrink": "metrics"},
    ],
)
def test_relatives_are_settings(setting):
    given = problem(smooth_rows(1), GOALS["g-mean"])
    program = RateProgram.of(given)
    found = solved(given, steps=600, learning_rate=0.1, multiplier_rate=0.05, **setting)
    assert found.status == "solved"
    rates = given.rates.rates(found.variants["stochastic"].decide(given.X))
    assert program.excess(rates) <= 1e-6
    assert program.value(program.objective, rates) <= 0.5


@pytest.mark.parametrize(
    "setting", [{}, {"multipliers": "leader"}, {"oracle": "DecisionTreeClassifier"}]
)
def test_an_oracle_best_responds(setting):
    """Algorithm 1, Frank-Wolfe, and Algorithm 1 with trees, of which a deep one errs on few rows."""
    given = problem(smooth_rows(1), GOALS["g-mean"])
    program = RateProgram.of(given)
    options = {
        "oracle": "linear",
        "steps": 60,
        "every": 1,
        "multiplier_rate": 0.1,
        "optimizer": "sgd",
    }
    found = solved(given, **(options | setting))
    rates = given.rates.rates(found.variants["stochastic"].decide(given.X))
    assert program.excess(rates) <= 1e-6
    best = Mixture(oracle=setting.get("oracle", "linear")).solve(
        given, np.random.default_rng(0), lambda _: None
    )
    value = float(program.value(program.objective, rates))
    assert value <= best.trace[-1]["objective"] + 0.03


def test_algorithm_1_reaches_the_value_of_the_fully_corrective_mixture_with_linear_goals():
    given = problem(smooth_rows(1), GOALS["affine"])
    program = RateProgram.of(given)
    options = {"oracle": "linear", "every": 1, "optimizer": "sgd"}
    found = solved(given, steps=150, multiplier_rate=0.5, **options)
    rates = given.rates.rates(found.variants["stochastic"].decide(given.X))
    best = Mixture().solve(given, np.random.default_rng(0), lambda _: None)
    assert program.excess(rates) <= 1e-6
    assert program.value(program.objective, rates) <= best.trace[-1]["objective"] + 0.005
    # the uniform mixture, which the theory is about
    uniform = given.rates.rates(found.variants["uniform"].decide(given.X))
    assert program.excess(uniform) <= 0.03


def test_settings_played_together_are_as_if_played_alone():
    given = problem(smooth_rows(1), GOALS["kl"])
    values = [(0.01, 0.1), (0.1, 0.01), (1.0, 1.0)]
    grid = [{"learning_rate": a, "multiplier_rate": b} for a, b in values]
    together = game_of(given, grid).play(50, 10)
    for lane, setting in enumerate(grid):
        alone = game_of(given, [setting]).play(50, 10)
        for one, many in zip(alone.answers, together.answers, strict=True):
            np.testing.assert_allclose(
                unpack_lanes(many, 3)[:, lane], unpack_lanes(one, 1)[:, 0], atol=1e-3
            )


def test_settings_that_miss_a_constraint_in_training_are_not_chosen():
    """Saying no to all has the better objective, and as good a rank."""
    given = problem(smooth_rows(0), Rules({"r": "recall >= 0.7"}, "positive_rate"))
    held_out = replace(given, validation=given)
    found = solved(held_out, steps=300, tune={"learning_rate": (1e-6, 0.1)})
    assert found.reason.startswith("chosen on validation rows: learning_rate 0.1")


def test_tuning_needs_validation_rows_and_takes_the_better_setting():
    given = problem(smooth_rows(1), GOALS["kl"])
    tune = {"learning_rate": (1e-6, 0.1)}
    with pytest.raises(FaultError, match="there are none"):
        solved(given, steps=50, tune=tune)

    held_out = replace(given, validation=problem(smooth_rows(1), GOALS["kl"]))
    found = solved(held_out, steps=300, tune=tune)
    assert "learning_rate 0.1" in found.reason


@pytest.mark.parametrize(
    "setting", [{}, {"oracle": "linear", "steps": 50}, {"optimizer": "sgd", "batch": 50}]
)
def test_nothing_but_error_is_a_game_of_one(setting):
    given = problem(smooth_rows(1), Rules({}))
    found = solved(given, **({"steps": 200} | setting))
    error = given.rates.rates(found.variants["stochastic"].decide(given.X))[-1]
    best = Mixture().solve(given, np.random.default_rng(0), lambda _: None).trace[-1]["objective"]
    assert best - 1e-9 <= error <= best + 0.02


def test_weights_beyond_all_numbers_are_a_divergence():
    found = solved(
        problem(smooth_rows(1), GOALS["kl"]), steps=50, learning_rate=1e40, optimizer="sgd"
    )
    assert found.status == "diverged"
    assert not found.variants
