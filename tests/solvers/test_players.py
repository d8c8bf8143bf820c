import itertools
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.games import GOALS, game_of, solved
from oracles.goals import Rows, Rules, grid_rows, problem, run, smooth_rows
from thinned import one_in

from ratecli.models.linear import Threshold
from ratecli.rates.analysis import find_two_sided_rate
from ratecli.rates.expression import Leaf
from ratecli.rates.matrix import RowKinds
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.scope import Scope
from ratecli.rates.table import RATES
from ratecli.solvers.gradient_steps import Stepper
from ratecli.solvers.hull.forms import UNDEFINED_RATIO_REASON, RatePoints, RateProgram
from ratecli.solvers.hull.master import best_in_hull
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.players import game as game_module
from ratecli.solvers.players import lagrangian as atoms
from ratecli.solvers.players.lagrangian import Atom
from ratecli.solvers.players.mixtures import best_iterate, shrink_by_metrics, shrink_mixture
from ratecli.solvers.players.options import ThreePlayer
from ratecli.solvers.problem import Problem


def slacks_of(*values: float) -> np.ndarray:
    """Slacks (n, 1, 1) of one atom in one lane."""
    return np.array(values, dtype=float)[:, None, None]


def lagrangian_of(given: Problem) -> atoms.ProgramLagrangian:
    return atoms.ProgramLagrangian(RateProgram.of(given), RowKinds.by(given.rates))


def terms_of(form: atoms.ProgramLagrangian, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The affine parts of the goals (1 + J, T) and the arguments (S, T) at rates (K, T)."""
    terms = form.terms(rates)
    return terms[: 1 + form.constraints], form.signs * terms[1 + form.constraints :]


def test_best_responses_of_logarithms():
    """Vector 9.7."""
    log, ones = Atom.of(atoms.NEGATIVE_LOG, 0.3), np.ones((1, 5))
    multipliers = np.array([[[0.2, 0.3, 0.6, 1.5, 3.0]]])
    np.testing.assert_allclose(log.respond(ones, -multipliers)[0], [[1, 1, 0.5, 0.2, 0.1]])
    assert log.respond(ones[:, :1], slacks_of(0.0)) == 1.0
    assert Atom.of(atoms.NEGATIVE_LOG, 0.7).respond(ones[:, :1], slacks_of(-0.7)) == 1.0
    # stationary at a rate of .2
    np.testing.assert_allclose(-log.slopes(slacks_of(0.2)), 1.5)
    np.testing.assert_allclose(-Atom.of(atoms.NEGATIVE_LOG, 0.7).slopes(slacks_of(0.8)), 0.875)


def test_best_responses_of_the_geometric_mean():
    """Vector 9.8."""
    mean = Atom.of(atoms.NEGATIVE_GEOMETRIC_MEAN, 1.0)
    pulls = -np.array([[[0.3, 1.0]], [[0.6, 1.0]]])
    slacks = mean.respond(np.ones((1, 2)), pulls)
    np.testing.assert_allclose(slacks[:, 0], [[1, 0], [0.69444, 0]], atol=1e-5)
    worth = mean.value(slacks) - (pulls * slacks).sum(axis=0)
    np.testing.assert_allclose(worth, [[-0.116667, 0]], atol=1e-6)


def smooth_atom(text: str, **signs: int) -> Atom:
    named = {Leaf(RATES[name]): sign for name, sign in signs.items()}
    return atoms.smooth_atom(resolve(parse_expression(text), Scope()), named)


CLOSED_FORMS = {
    "log": Atom.of(atoms.NEGATIVE_LOG, 0.4),
    "geometric": Atom.of(atoms.NEGATIVE_GEOMETRIC_MEAN, 0.7),
    "harmonic": Atom.of(atoms.NEGATIVE_HARMONIC_MEAN, 0.7),
    "quadratic": Atom.of(atoms.QUADRATIC_MEAN, 1.3),
}
ATOMS = CLOSED_FORMS | {
    "ratio": Atom.of(atoms.RATIO),
    "negative ratio": Atom.of(atoms.NEGATIVE_RATIO),
    "exponential": smooth_atom("exp(tpr + 2 * fpr)", tpr=1, fpr=1),
    "logarithm": smooth_atom("-log(0.2 * tpr + 0.1 * tnr)", tpr=-1, tnr=-1),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
@given(st.lists(st.floats(0, 3), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_no_slacks_on_a_grid_are_better_responses(name, chosen):
    atom = CLOSED_FORMS[name]
    weight = np.array([[0.1 + chosen[0]]])
    pull = slacks_of(*atom.kind.signs) * slacks_of(*chosen[1:])[: len(atom.kind.signs)]
    ends = np.linspace(0.001, 1, 60)
    grid = np.array(list(itertools.product(ends, repeat=len(pull)))).T[:, None]
    found = atom.respond(weight, pull)

    def worth(slacks):
        return weight * atom.value(slacks) - (pull * slacks).sum(axis=0)

    assert worth(found).item() <= worth(grid).min() + 1e-9
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("name", ATOMS)
def test_slopes_of_atoms_are_difference_quotients(name):
    atom = ATOMS[name]
    at = np.array([[[0.3, 0.7]], [[0.8, 0.4]]])[: len(atom.kind.signs)]
    for i in range(len(at)):
        step = 1e-6 * slacks_of(*np.eye(len(at))[i])
        rise = (atom.value(at + step) - atom.value(at - step)) / 2e-6
        np.testing.assert_allclose(atom.slopes(at)[i], rise, rtol=1e-5)
    assert (slacks_of(*atom.kind.signs) * atom.slopes(at) >= 0).all()


@pytest.mark.parametrize("name", ["ratio", "negative ratio", "exponential", "logarithm"])
def test_atoms_without_a_best_response_are_finite_on_their_box(name):
    """Descending slacks are projected onto the box, also from far outside."""
    atom = ATOMS[name]
    for far in itertools.product((-9.0, 9.0), repeat=2):
        slacks = atom.boxed(slacks_of(*far))
        assert ((slacks >= 0) & (slacks <= 1)).all()
        assert np.isfinite(atom.value(slacks)).all()
        assert np.isfinite(atom.slopes(slacks)).all()


@pytest.mark.parametrize("name", GOALS)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_lagrangian_equals_the_program_if_slacks_are_the_arguments(name, seed):
    given = problem(grid_rows(seed % 7, n=60), GOALS[name])
    form, program = lagrangian_of(given), RateProgram.of(given)
    rates = given.rates.rates(np.random.default_rng(seed).uniform(0.1, 0.9, len(given.X)))
    values, slacks = terms_of(form, rates[:, None])
    values[1:] += form.values(slacks)
    for bundle in form.bundles:
        own = bundle.atom.value(slacks[bundle.slots])
        values[atoms.OBJECTIVE_ROW] += own[bundle.owners == atoms.OBJECTIVE_ROW].sum()
    expected = [program.value(goal, rates) for goal in (program.objective, *program.constraints)]
    np.testing.assert_allclose(values[:, 0], expected)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_numerators_and_denominators_of_ratios_are_never_negative(seed):
    given = problem(grid_rows(seed % 7, n=60), GOALS["f1 parity"])
    decisions = np.random.default_rng(seed).integers(2, size=(20, 60)).astype(float)
    rates = np.stack([given.rates.rates(p) for p in decisions], axis=1)
    _, arguments = terms_of(lagrangian_of(given), rates)
    assert arguments.min() >= -1e-12


ONE_SIDED = {
    "error + kl(base_rate, positive_rate[g=a])": True,
    "kl(0.5 * base_rate, 0.5 * positive_rate[g=a] + 0.5 * fpr)": True,
    "1 - g_mean + exp(fpr - tpr)": True,
    "max(fpr, fnr) + exp(fpr)": True,
    "rms(fpr, fnr[g=a], 1 - tpr[g=b])": True,
    "1 - geo_mean(1 + tpr - fpr, 1)": True,
    "error + abs(tpr[g=a] - tpr[g=b])": False,
    "kl(tpr, fpr)": False,
    "rms(tpr[g=a] - tpr[g=b], fpr)": False,
    "0.5 * exp(abs(fpr - 0.2))": False,
    "(tpr - fpr) * (tpr - fpr) + error": False,
}


@pytest.mark.parametrize(("text", "accepted"), ONE_SIDED.items())
def test_goals_must_be_monotone_in_each_rate(text, accepted):
    """The analysis of goals and the Lagrangian agree."""
    given = problem(grid_rows(0), Rules({}, text))
    assert given.objective.shape in ThreePlayer.objectives
    assert (find_two_sided_rate(given.objective.expression) is None) == accepted
    with nullcontext() if accepted else pytest.raises(AssertionError):
        lagrangian_of(given)


@pytest.mark.parametrize(
    ("text", "kind"), [("fpr, fnr", "+1 rms"), ("2 * fpr, 2 * fnr", "rms(2 * fpr, 2 * fnr)")]
)
def test_means_beyond_1_have_no_closed_form(text, kind):
    """Slacks of a closed form are at most 1."""
    form = lagrangian_of(problem(grid_rows(0), Rules({}, f"rms({text})")))
    assert [each.atom.kind.name for each in form.atoms] == [kind]


def test_projection_of_multipliers():
    """Vector 9.9; other lanes have no influence."""
    for point, radius, expected in (
        ([3.0, 1.0, -2.0], 2.0, [2, 0, 0]),
        ([0.5, 0.2, 0.0], 1.0, [0.5, 0.2, 0]),
        ([2.0, 2.0, 1.0], 3.0, [4 / 3, 4 / 3, 1 / 3]),
    ):
        lanes = np.column_stack([point, [0.1, -0.1, 0.2]])
        found = game_module.project_onto_simplex_cap(lanes, radius)
        np.testing.assert_allclose(found.T, [expected, [0.1, 0, 0.2]], atol=1e-12)


def test_swap_regret():
    """Vector 9.12, and stationary distributions in several lanes."""
    player, none = game_module.SwapRegret(2, np.ones(1)), np.zeros((0, 1))
    prices = player.next(np.full((2, 1), 0.5), np.array([[0.4]]), none)
    np.testing.assert_allclose(player.matrix[0], [[0.450166] * 2, [0.549834] * 2], atol=1e-6)
    np.testing.assert_allclose(prices[:, 0], [0.450166, 0.549834], atol=1e-6)
    matrix = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 4)).transpose(0, 2, 1)
    found = game_module.stationary_distributions(matrix)
    np.testing.assert_allclose(found.sum(axis=0), 1)
    np.testing.assert_allclose(np.einsum("bij,jb->ib", matrix, found), found, atol=1e-12)


@pytest.mark.parametrize("name", GOALS)
def test_hinges_are_upper_bounds_of_the_terms(name):
    given = problem(smooth_rows(2), GOALS[name])
    setting = {"learning_rate": 0.1, "multiplier_rate": 0.1}
    game = game_of(given, [setting], rates="surrogate")
    for _ in range(20):
        answer, rates = game.step()
        hinges = game.player.terms(answer, rates)
        assert (hinges >= game.form.terms(rates) - 1e-5).all()


BEST = {"learning_rate": 0.1, "multiplier_rate": 0.1, "steps": 500}
RESPONSE = {"oracle": "linear", "steps": 60, "multiplier_rate": 0.1, "optimizer": "sgd"}
BATCH = {"learning_rate": 0.1, "multiplier_rate": 0.05, "steps": 1000, "batch": 80}


def compared(name: str) -> Problem:
    return problem(smooth_rows(1), (GOALS | {"error": Rules({})})[name])


@cache
def best_mixture(name: str, model: str) -> float:
    """The objective of the best mixture, which takes longer than what is compared with it."""
    rows = run(Mixture(model=model), compared(name)).trace
    return [row["objective"] for row in rows if "gap" in row][-1]  # the last one is deterministic


@pytest.mark.parametrize(
    ("name", "options", "tolerance"),
    one_in(4, [
        *((name, BEST, 0.1) for name in GOALS),
        ("g-mean", {"multipliers": "leader"}, 0.1),
        ("g-mean", {"multipliers": "leader", "rates": "surrogate"}, 0.1),
        ("g-mean", {"rates": "surrogate"}, 0.1),
        ("g-mean", {"multipliers": "swap_regret"}, 0.1),
        ("g-mean", {"optimizer": "sgd", "radius": 5.0}, 0.1),
        ("g-mean", {"shrink": "metrics"}, 0.1),
        ("g-mean", RESPONSE, 0.03),
        ("g-mean", RESPONSE | {"multipliers": "leader"}, 0.03),
        ("g-mean", RESPONSE | {"oracle": "DecisionTreeClassifier"}, 0.03),
        ("smooth", RESPONSE, 0.03),
        ("affine", RESPONSE | {"steps": 150, "multiplier_rate": 0.5}, 0.005),
        ("error", {"steps": 200}, 0.02),
        ("error", {"oracle": "linear", "steps": 50}, 0.02),
        ("error", {"steps": 200, "optimizer": "sgd", "batch": 50}, 0.02),
        ("kl", BATCH, 0.1),
        ("g-mean", BATCH, 0.1),
        ("f1 parity", BATCH, 0.1),
        ("affine", BATCH | {"optimizer": "sgd", "learning_rate": 0.5}, 0.1),
        ("kl", BATCH | {"multipliers": "leader"}, 0.1),
        ("kl", BATCH | {"multipliers": "swap_regret"}, 0.1),
        ("kl", BATCH | {"rates": "surrogate"}, 0.1),
    ]),
    ids=str,
)  # fmt: skip
def test_objective_is_near_that_of_the_best_mixture_and_constraints_hold(name, options, tolerance):
    """For all goals, relatives of the algorithm, oracles and batches; on all rows."""
    given = compared(name)
    program = RateProgram.of(given)
    usual = {"steps": 600, "learning_rate": 0.1, "multiplier_rate": 0.05}
    found = solved(given, **(usual | options))
    assert found.status == "solved"
    main = found.variants["stochastic"]
    rates = given.rates.rates(main.decide(given.X))
    assert program.excess(rates) <= 1e-6
    best = best_mixture(name, options.get("oracle", "linear"))
    value = float(program.value(program.objective, rates))
    assert best - 0.03 <= value <= best + tolerance
    assert len(main.members) <= len(given.rates.leaves) + 1
    assert set(np.unique(found.variants["deterministic"].decide(given.X))) <= {0.0, 1.0}
    if options is BEST:
        assert [row["iteration"] for row in found.trace] == list(range(0, 501, 10))
    if name == "affine" and "oracle" in options:  # the theory is about the uniform mixture
        uniform = given.rates.rates(found.variants["uniform"].decide(given.X))
        assert program.excess(uniform) <= 0.03


@pytest.mark.parametrize(
    "rules",
    [
        GOALS["kl"],
        # deciding negatively everywhere has the better objective, and as good a rank
        Rules({"r": "recall >= 0.7"}, "positive_rate"),
    ],
)
def test_tuning_takes_the_better_setting_among_those_that_satisfy_constraints(rules):
    given, tune = problem(smooth_rows(0), rules), {"learning_rate": (1e-6, 0.1)}
    found = solved(replace(given, validation=given), steps=300, tune=tune)
    assert found.reason.startswith("chosen on validation rows: learning_rate 0.1")


def test_overflow_of_weights_is_reported_as_divergence():
    given = problem(smooth_rows(1), GOALS["kl"])
    found = solved(given, steps=50, learning_rate=1e40, optimizer="sgd")
    assert found.status == "diverged"
    assert not found.variants


def test_best_iterate_has_the_smallest_worse_rank():
    """Vector 9.11."""
    assert best_iterate(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.3, 0.1, 0, 0])) == 1
    violations = np.array([0.05, -0.1, 0.02, -0.02])
    assert best_iterate(np.array([0.10, 0.15, 0.12, 0.12]), violations) == 3
    assert best_iterate(np.array([0.2, 0.2]), np.array([0.0, 0.0])) == 1  # the later of equals


@pytest.mark.parametrize(
    ("objectives", "violations", "chances", "allowed"),
    [
        ([0.1, 0.3], [[0.1, -0.1]], [0.5, 0.5], 0),
        ([0.1, 0.2, 0.3], [[0.3, 0.05, -0.1]], [0, 2 / 3, 1 / 3], 0),
        ([0.1, 0.2], [[0.3, 0.1]], [0, 1], 0.1),
        # iterates with an undefined metric are skipped; if all have one, the last is taken
        ([np.inf, 0.1, 0.3, 0.0], [[-1, 0.1, -0.1, np.inf]], [0, 0.5, 0.5, 0], 0),
        ([np.inf, np.inf], [[-1.0, 0.0]], [0, 1], np.inf),
    ],
)
def test_mixtures_of_metrics(objectives, violations, chances, allowed):
    """Vector 9.10."""
    found, needed = shrink_by_metrics(np.array(objectives), np.array(violations))
    np.testing.assert_allclose(found, chances, atol=1e-4)
    assert needed == pytest.approx(allowed, abs=1e-5)


def test_vertex_solutions_have_at_most_one_iterate_more_than_constraints():
    """Vector 9.10, the last."""
    rows, objectives = np.array([[2, -1, 1, -2], [2, 1, -1, -2]]) / 10, np.array([0, 0.2, 0.2, 0.5])
    found, _ = shrink_by_metrics(objectives, rows)
    assert objectives @ found == pytest.approx(0.2, abs=1e-6)
    assert (found > 1e-9).sum() <= 3


def test_ratio_of_a_mixture_is_computed_from_its_counts():
    """Vector 9.6: half of (TP, FP, FN) = (3, 1, 2) and half of (0, 0, 5) on 10 rows have F1 = 3 / 7, not
    the mean 1 / 3. With a limit of .4, the means allow mixtures that violate it.
    """
    label = np.repeat([1.0, 0.0], 5)
    decisions = np.array([[1, 1, 1, 0, 0, 1, 0, 0, 0, 0], np.zeros(10)], dtype=float)
    group = np.full(10, "a", dtype=object)
    given = problem(Rows(np.zeros((10, 1)), label, group), Rules({"f": "f1 <= 0.4"}, "-tpr"))
    rates = np.stack([given.rates.rates(p) for p in decisions], axis=1)
    program = RateProgram.of(given)
    found, _ = shrink_mixture(program, rates)
    assert program.excess(rates @ found) <= 1e-6
    objectives = program.value(program.objective, rates)
    averaged, _ = shrink_by_metrics(objectives, np.array([[2 / 3 - 0.4, -0.4]]))
    assert averaged[0] == pytest.approx(0.6, abs=1e-5)
    mixed = rates @ averaged
    tp, fp, fn = 0.6 * 3, 0.6 * 1, 5 - 0.6 * 3
    assert 2 * tp / (2 * tp + fp + fn) > 0.45
    assert program.excess(mixed) > 0.01
    assert found[0] < 0.55


def test_last_iterate_is_taken_if_all_leave_a_ratio_undefined():
    """Without positive decisions, precision is undefined."""
    rows = Rows(np.zeros((4, 1)), np.array([1.0, 0, 1, 0]), np.array(list("aabb"), dtype=object))
    given = problem(rows, Rules({"p": "precision[g=a] - precision[g=b] <= 0.1"}))
    rates = np.stack([given.rates.rates(np.zeros(4))] * 3, axis=1)
    found, allowed = shrink_mixture(RateProgram.of(given), rates)
    assert (found.tolist(), allowed) == ([0, 0, 1], np.inf)


RULES = Rules({"p": "positive_rate[g=a] <= 0.8 * positive_rate[g=b]", "r": "recall >= 0.75"})
RADIUS = 4.0


class EnumeratedPlayer(game_module.ClassifierPlayer):
    """Best responses among classifiers whose rates (K, T) are known."""

    def __init__(self, form, rates):
        self.form, self.rates = form, rates

    def move(self, prices):
        answers = np.argmin(self.form.costs(prices).T @ self.rates, axis=1)
        return answers, self.rates[:, answers]

    def classifier(self, answer, lane):
        raise NotImplementedError


def enumerated(given):
    """Rates of lines in many directions at many thresholds."""
    rng = np.random.default_rng(0)
    normals = rng.normal(size=(60, given.X.shape[1]))
    scores = given.X @ normals.T
    cuts = np.quantile(scores, np.linspace(0, 1, 21), axis=0)
    lines = [Threshold(w, -cut) for k, w in enumerate(normals) for cut in cuts[:, k]]
    return np.stack([given.rates.rates(line.decide(given.X)) for line in lines], axis=1)


@pytest.mark.parametrize("seed", range(2))
def test_duality_gap_is_not_negative_and_falls_as_the_theory_says(seed):
    """The gap of the players' means: the multipliers' best response minus the classifier's."""
    given = problem(smooth_rows(seed), RULES)
    program, kinds = RateProgram.of(given), RowKinds.by(given.rates)
    rates = enumerated(given)
    form = atoms.ProgramLagrangian(program, kinds)
    sides = form.terms(rates)
    optimum = best_in_hull(program, RatePoints.classifiers(rates), 1e-7)
    length = np.linalg.norm(sides[1:], axis=0).max()
    gaps = []
    for steps in (100, 900, 8_100):
        rate = np.array([RADIUS / (length * np.sqrt(2 * steps))])
        ascent = game_module.GradientAscent(Stepper("sgd", rate), RADIUS)
        game = game_module.ThreePlayerGame(form, EnumeratedPlayer(form, rates), ascent, rate)
        played = game.play(steps, 1)
        mean, prices = (
            np.mean(np.hstack(column), axis=1)
            for column in zip(*((each.rates, each.prices) for each in played), strict=True)
        )
        upper = program.value(program.objective, mean) + RADIUS * max(program.excess(mean), 0.0)
        lower = float((prices @ sides).min())
        gaps.append(float(upper) - lower)
        assert -1e-9 <= gaps[-1] <= RADIUS * length * np.sqrt(2 / steps)
        assert lower <= optimum.value + 1e-7
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] <= gaps[0] / 2


def test_a_mixture_that_leaves_a_ratio_undefined_is_said_to_do_so():
    """Selecting nobody is best and satisfies the rule times its denominator, which is 0."""
    rows = smooth_rows(0)
    rare = replace(rows, label=rows.label * (np.arange(len(rows.label)) % 8 == 0))
    found = solved(problem(rare, Rules({"p": "tpr[g=a] / tpr[g=b] >= 0.8"})), steps=200)
    assert not found.variants["stochastic"].decide(rare.X).any()
    assert (found.status, found.reason) == ("iteration_limit", UNDEFINED_RATIO_REASON)
