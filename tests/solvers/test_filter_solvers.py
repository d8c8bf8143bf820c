from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.filters import counted, filtering, kept_shares, lines, people
from oracles.goals import Rows, Rules, problem_of, run
from scipy.optimize import linprog, nnls
from thinned import one_in

from ratecli.errors import FaultError
from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.models.proxies import ProxyFilter
from ratecli.models.storage import dumps, loads
from ratecli.rates.matrix import disclosivity
from ratecli.solvers.filtering.filters import (
    DISCLOSURE_TOLERANCE,
    FilterTreeBuilder,
    nearest_split,
    progress_split,
    required_progress,
)
from ratecli.solvers.filtering.options import BalancedTree, GuessedGroup
from ratecli.solvers.filtering.target import (
    FilterTarget,
    maximize_kept_rows,
    optimal_sampling_weights,
)
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.oracles.estimators import make_estimator


def solved(rows: Rows, alpha: float | None, **options) -> tuple[ProxyFilter, tuple]:
    found = run(BalancedTree(**options), filtering(rows, alpha))
    return found.variants["expected"], found.trace


def imbalance(shares: Array) -> float:
    return float(np.linalg.norm(shares - 1 / len(shares)))


SPLITS = {
    "nearest": {"split": "nearest"},
    "progress": {"split": "progress", "gamma": 0.1, "kept": 0.0, "child": 0.0},
    "both": {"split": "progress", "offset": "both", "kept": 0.0},
    "relaxed": {"split": "progress", "relaxed": True, "gamma": 0.05, "kept": 0.0},
    "regression": {"oracle": "regression", "kept": 0.02},
    "lines": {"oracle": "linear", "depth": 2},
    "trees": {"oracle": {"DecisionTreeClassifier": {"max_depth": 2}}, "depth": 2},
    "trees' progress": {"split": "progress", "kept": 0.0, "depth": 2,
                        "oracle": {"DecisionTreeClassifier": {"max_depth": 2}}},
    "first": {"split": "nearest", "order": "first", "kept": 0.05, "child": 0.02},
}  # fmt: skip


CASES = st.integers(0, 10**6), st.integers(2, 6), st.floats(0.0, 0.6)


@given(*CASES, st.sampled_from(sorted(SPLITS)), st.booleans())
@settings(max_examples=8, deadline=None)
def test_every_split_satisfies_disclosivity_and_reduces_imbalance(
    seed, groups, alpha, name, weighted
):
    rows = people(seed, n=300, groups=groups, weighted=weighted)
    options = SPLITS[name]
    found, trace = solved(rows, alpha, calls=15, **options)
    assert max(row["violation"] for row in trace) <= DISCLOSURE_TOLERANCE
    A, sizes, base = counted(rows, found)
    assert np.abs(A - base).max() <= alpha + 2 * DISCLOSURE_TOLERANCE
    steps = np.array([row["objective"] for row in trace])
    shrink = 1 - options.get("gamma", 0.01)
    assert (steps[1:] <= shrink * steps[:-1] + 1e-9).all()
    assert imbalance(kept_shares(rows, found)) == pytest.approx(steps[-1], abs=1e-6)
    assert found.keep @ sizes >= options.get("kept", 0.005) - 1e-6
    assert sizes.min() >= options.get("child", 0.001) * (1 - 1e-6)


@dataclass(frozen=True)
class Exact:
    """Answers prices with the cheapest of given classifiers."""

    ground: OracleRows
    known: list[Classifier]
    starts = False

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        costs = self.ground.costs(prices)
        return min(self.known, key=lambda each: float(costs @ each.decide(self.ground.X)))


def plane(seed: int) -> tuple[Rows, list[Threshold]]:
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, size=(40, 2)).astype(float)
    code = (X[:, 0] + rng.normal(scale=1.5, size=40) > 1).astype(int) + (rng.random(40) < 0.15)
    code[:3] = [0, 1, 2]
    rows = Rows(X, np.zeros(40), np.array(["a", "b", "c"], dtype=object)[code])
    return rows, lines(X)


def grown(
    rows: Rows, alpha: float, known: list[Threshold], options: BalancedTree
) -> FilterTreeBuilder:
    target = FilterTarget(filtering(rows, alpha))
    return FilterTreeBuilder(target, options, lambda ground: Exact(ground, list(known)))


def masses_of(growth: FilterTreeBuilder, known: list[Threshold]) -> Array:
    return np.stack([growth.target.mass(each.decide(growth.target.X)) for each in known])


BUDGETS = (0.05, 0.1), (0.15, 0.1), (0.6, 0.3), (0.6, 0.05)


@pytest.mark.parametrize(
    ("seed", "alpha", "kept"),
    one_in(3, ((seed, *budget) for seed in range(4) for budget in BUDGETS)),
)
def test_nearest_split_is_optimal_over_mixtures_of_lines(seed, alpha, kept):
    """Against all mixtures of all lines: shares of groups that a child can have are the quotients of a
    polytope, and which of two directions comes nearer is asked of a linear program (Frank and Wolfe).
    """
    rows, known = plane(seed)
    options = BalancedTree(kept=kept, child=0.0, gap=1e-5, calls=400)
    growth = grown(rows, alpha, known, options)
    split = nearest_split(growth.target, options, growth.leaves, 0)
    yes = growth.target.mass(split.classifier.decide(rows.X))
    whole, table = growth.leaves[0].mass, masses_of(growth, known)
    children = np.stack([whole - yes, yes])
    shares = children[:, growth.target.balanced] / children[:, -1:]
    found = optimal_sampling_weights(shares, children[:, -1], growth.target.target, kept=kept)
    assert growth.target.excess_disclosure(children) <= DISCLOSURE_TOLERANCE
    assert found.imbalance == pytest.approx(split.distance, abs=1e-4)
    # the optimum p* has <p - p*, p* - U> >= 0 for all p that another mixture could keep
    slope = found.induced - growth.target.target
    best = least_over_mixtures(growth, table, slope, kept)
    gain = float(found.induced @ slope) - best
    assert gain <= 2 * found.imbalance * split.gap + 1e-5


def disclosure_limits(aim: FilterTarget, whole: Array, table: Array) -> Array:
    """Rows of mixtures of splits that must not be positive."""
    limits = []
    for part in (table, whole - table):
        shift = part[:, aim.secret].T - np.outer(aim.base, part[:, -1])
        room = np.outer(aim.alpha, part[:, -1])
        limits += [shift - room, -shift - room]
    return np.vstack(limits)


def least_over_mixtures(
    growth: FilterTreeBuilder, table: Array, slope: Array, kept: float
) -> float:
    """The least `<p, slope>` of what can be kept: columns are the leaf as it is and all lines."""
    aim, whole = growth.target, growth.leaves[0].mass
    columns = np.vstack([whole, table])
    limits = disclosure_limits(aim, whole, table)
    A = np.hstack([np.zeros((len(limits), 1)), limits])
    A = np.vstack([A, kept - columns[:, -1]])
    costs = columns[:, aim.balanced] @ slope
    solved = linprog(costs, A, np.zeros(len(A)), columns[:, -1:].T, [1.0], bounds=(0, None))
    assert solved.success
    return float(solved.fun)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_progress_split_is_the_optimum_of_a_linear_program(seed, alpha):
    rows, known = plane(seed)
    options = BalancedTree(kept=0.0, child=0.0, gap=1e-6, calls=200, gamma=0.1)
    growth = grown(rows, alpha, known, options)
    split = progress_split(growth.target, options, growth.leaves, 0)
    aim, whole = growth.target, growth.leaves[0].mass
    table = np.vstack([masses_of(growth, known), np.zeros(len(whole)), whole])
    base = whole[aim.balanced]
    away = base - aim.target
    costs = table[:, aim.balanced] @ away - float(base @ away) * table[:, -1]
    limits = disclosure_limits(aim, whole, table)
    solved = linprog(costs, limits, np.zeros(12), np.ones((1, len(table))), [1.0])
    yes = aim.mass(split.classifier.decide(rows.X))
    reached = float(yes[aim.balanced] @ away) - float(base @ away) * yes[-1]
    assert reached == pytest.approx(solved.fun, abs=1e-5)
    assert aim.excess_disclosure(np.stack([whole - yes, yes])) <= DISCLOSURE_TOLERANCE


def test_required_progress_matches_vectors_of_lemma_3():
    found = [required_progress(0.1, off) for off in (0, 0.25, 0.5, 0.7358)]
    assert found == pytest.approx([0.6164, 0.6991, 0.7559, 0.7898], abs=5e-5)


@pytest.mark.parametrize("seed", range(20))
def test_lemma_4_with_its_sign_corrected(seed):
    """`sum of w h (-Q + (U' - U)_z) <= 0` just where the child has made the progress asked for."""
    rng = np.random.default_rng(seed)
    n, K, gamma = 50, 4, 0.1
    z, w, h = rng.integers(K, size=n), rng.random(n), rng.random(n) * (rng.random(n) < 0.5)
    U, near = np.full(K, 1 / K), rng.dirichlet(np.ones(K))
    away = near - U
    parent = np.bincount(z, w, K) / w.sum()
    child = np.bincount(z, w * h, K) / (w * h).sum()
    f = required_progress(gamma, float(np.linalg.norm(parent - near)))
    for factor in (0.0, 0.1, 1.0):  # with f as it is the condition almost never holds
        Q = float(w @ away[z]) / w.sum() - np.linalg.norm(away) * f * factor
        progress = (child - parent) @ -away / np.linalg.norm(away)
        assert (float((w * h) @ (away[z] - Q)) <= 0) == (progress >= f * factor)


def test_the_literal_offset_makes_no_split_where_zero_does():
    rows = people(3, groups=5)
    options = {"split": "progress", "gamma": 0.1, "kept": 0.0}
    literal, zero = (solved(rows, 0.3, offset=x, **options)[0] for x in ("literal", "zero"))
    assert literal.proxy.values == 1 < zero.proxy.values
    with pytest.raises(ValueError, match="kept: 0"):  # of relaxed weights
        BalancedTree(relaxed=True)


def test_larger_alpha_balances_better():
    rows = people(11, n=3000, groups=3)
    found = [imbalance(kept_shares(rows, solved(rows, alpha)[0])) for alpha in (0, 0.05, 0.1, 0.3)]
    assert (np.diff(found) < 0).all()
    assert found[-1] < 0.01
    assert found[0] == pytest.approx(imbalance(counted(rows, solved(rows, 0.0)[0])[2]))


def test_growth_stops_at_depth_and_at_stop():
    rows = people(4, n=2000, groups=5)
    shallow, _ = solved(rows, 0.1, depth=1, kept=0.0)
    assert shallow.proxy.values == 2
    _, trace = solved(rows, 0.5, stop=0.1, gamma=0.0)
    assert trace[-1]["objective"] <= 0.1 < trace[-2]["objective"]


def test_secret_and_balanced_columns_may_differ():
    """Ages are balanced; of the place, which features tell too, little may be said."""
    rng = np.random.default_rng(2)
    rows = people(5, n=1500, groups=3)
    place = np.where(rows.X[:, 0] + rng.normal(size=1500) > 0, "north", "south").astype(object)
    goals = Rules({"secret": "disclosivity(by=place) <= 0.03"}, "imbalance(by=g)")
    given = problem_of(rows, goals, {"g": rows.group, "place": place})
    found = BalancedTree().solve(given, rng, lambda _: None).variants["expected"]
    chances = found.proxy.memberships(rows.X)
    north = chances[place == "north"].sum(axis=0) / chances.sum(axis=0)
    assert np.abs(north - (place == "north").mean()).max() <= 0.03 + 1e-6
    assert imbalance(kept_shares(rows, found)) < imbalance(counted(rows, found)[2])


@pytest.mark.parametrize("split", ["nearest", "progress"])
def test_secret_may_concern_more_rows_than_the_balance(split):
    """People of one town are balanced, those of both keep their secret."""
    rng = np.random.default_rng(6)
    rows = people(5, n=1500, groups=3)
    town = np.where(rng.random(1500) < 0.4, "here", "there")
    moved = Rows(rows.X + (town == "there")[:, None], rows.label, rows.group)
    goals = Rules({"secret": "disclosivity(by=g) <= 0.1"}, "imbalance(by=g)[here]")
    given = problem_of(moved, goals, {"g": rows.group}, dataset=town)
    solver = BalancedTree(split=split, kept=0.0)
    found = solver.solve(given, rng, lambda _: None).variants["expected"]
    A, _, base = counted(moved, found)
    assert np.abs(A - base).max() <= 0.1 + 1e-6
    kept = [np.average(rows.group[town == "here"] == name, weights=found.decide(moved.X)[town == "here"])
            for name in "abc"]  # fmt: skip
    before = [(rows.group[town == "here"] == name).mean() for name in "abc"]
    assert imbalance(np.array(kept)) < 0.6 * imbalance(np.array(before))


def test_no_rows_with_known_groups_is_an_error():
    """Of those in the other town the age is not known, and age is what is balanced."""
    rows = people(5, n=300, groups=2)
    town = np.where(np.arange(300) % 2, "here", "there")
    age = np.where(rows.X[:, 0] > 0, "old", "young").astype(object)
    age[town == "there"] = None
    goals = Rules({"secret": "disclosivity(by=g)[there] <= 0.1"}, "imbalance(by=age)[here]")
    given = problem_of(rows, goals, {"g": rows.group, "age": age}, dataset=town)
    with pytest.raises(FaultError, match="no training row has a value of every column"):
        run(BalancedTree(missing="leave_out"), given)


@pytest.mark.parametrize("seed", range(5))
def test_kept_and_dropped_rows_disclose_no_more_than_leaves(seed):
    """As the language measures it: kept and dropped rows are mixtures of leaves."""
    rows = people(seed, groups=4)
    found, _ = solved(rows, 0.15, oracle="regression", kept=0.1)
    assert found.proxy.values > 1
    groups = np.stack([rows.group == name for name in sorted(set(rows.group.tolist()))], axis=1)
    kept = found.decide(rows.X)
    told, weight = np.stack([kept, 1 - kept], axis=1), np.ones(len(rows))
    of_leaves = disclosivity(found.proxy.memberships(rows.X), groups.astype(float), weight)
    assert disclosivity(told, groups.astype(float), weight) <= of_leaves + 1e-12
    assert 0.05 < of_leaves <= 0.15 + DISCLOSURE_TOLERANCE


@pytest.mark.parametrize("child", [0.4, 0.45])
def test_minimum_child_size_is_enforced(child):
    """Against the program without the limit: it binds, and the split is no farther than it must be."""
    rows = people(12, n=800, groups=3)
    (found, trace), (free, _) = (
        solved(rows, 0.3, child=least, depth=1, kept=0.0) for least in (child, 0.0)
    )
    sizes = counted(rows, found)[1]
    assert len(sizes) == 2
    assert counted(rows, free)[1].min() < child <= sizes.min() + 1e-6
    assert trace[-1]["objective"] < 0.9 * trace[0]["objective"]


HALF = np.array([0.5, 0.5])
VECTORS = {
    "two": ([[0.8, 0.2], [0.4, 0.6]], [0.5, 0.5], [0.25, 0.75], [1 / 3, 1.0], 0.0),
    "rare": ([[0.8, 0.2], [0.4, 0.6]], [0.75, 0.25], [0.25, 0.75], [1 / 9, 1.0], 0.0),
    "out": ([[0.9, 0.1], [0.7, 0.3]], [0.5, 0.5], [0, 1], [0, 1], 0.28284),
    "three": ([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]], [1 / 3] * 3,
              [17 / 42, 13 / 42, 12 / 42], [1.0, 13 / 17, 12 / 17], 0.0),
    "far": ([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]], [0.5, 0.5], [0, 1], [0, 1], 0.29439),
}  # fmt: skip


def uniform(A):
    return np.full(np.shape(A)[1], 1 / np.shape(A)[1])


def instance(seed: int, rows: int, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.full(groups, 0.7), size=rows)
    return A, rng.dirichlet(np.ones(rows)), rng.dirichlet(np.full(groups, 3.0))


SIZES = st.tuples(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 7))


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_algorithm_1(name):
    A, shares, mix, keep, imbalance = VECTORS[name]
    found = optimal_sampling_weights(np.array(A), np.array(shares), uniform(A))
    assert found.mix == pytest.approx(mix, abs=1e-5)
    assert found.imbalance == pytest.approx(imbalance, abs=1e-5)
    assert found.keep == pytest.approx(keep, abs=1e-9)


@pytest.mark.parametrize(("name", "residual"), [("out", 0.26261), ("far", 0.26227), ("two", 0.0)])
def test_relaxed_weights_have_a_nearer_point_but_the_same_imbalance(name, residual):
    A, shares, _, _, imbalance = VECTORS[name]
    found = optimal_sampling_weights(np.array(A), np.array(shares), uniform(A), relaxed=True)
    assert found.imbalance == pytest.approx(imbalance, abs=1e-5)
    assert np.linalg.norm(found.nearest - uniform(A)) == pytest.approx(residual, abs=1e-5)


@example((8900, 5, 5), 0.0, False)  # an active set of SciPy stops too early
@given(SIZES, st.just(0.0) | st.floats(0.05, 1.0), st.booleans())
@settings(max_examples=200, deadline=None)
def test_weights_are_optimal(size, kept, intersecting):
    A, shares, target = instance(*size)
    if intersecting:  # appendix A.2: groups of two columns side by side, each adding up to 1
        A, target = np.hstack([A, A[::-1]]), np.append(target, target[::-1])
    found = optimal_sampling_weights(A, shares, target, kept=kept)
    slopes = A @ (found.mix @ A - target)
    assert found.mix.min() >= 0
    assert found.mix.sum() == pytest.approx(1.0)
    assert found.keep @ shares >= kept - 1e-6
    assert found.keep.max() == 1.0
    assert np.linalg.norm(found.mix @ A - target) == pytest.approx(found.imbalance, abs=1e-9)
    assert (found.keep * shares) @ A / (found.keep @ shares) == pytest.approx(found.induced)
    # Karush, Kuhn, Tucker on the simplex with a most for each value: what could be more is of no
    # more use than what could be less
    if not kept:
        assert found.mix @ slopes - slopes.min() <= 1e-8
        return
    free, used = found.mix < shares / kept - 1e-7, found.mix > 1e-7
    if free.any() and used.any():
        assert slopes[used].max() - slopes[free].min() <= 1e-5


@given(SIZES, st.booleans())
@settings(max_examples=60, deadline=None)
def test_maximize_kept_rows_preserves_shares_and_keeps_more(size, relaxed):
    A, shares, target = instance(*size)
    some = optimal_sampling_weights(A, shares, target, relaxed=relaxed)
    keep = maximize_kept_rows(A, shares, some)
    mix = keep * shares / (keep @ shares)
    assert mix @ A == pytest.approx(some.induced, abs=1e-7)
    assert keep @ shares >= some.keep @ shares - 1e-7
    assert keep.max() == 1.0
    assert keep.min() >= 0.0
    if relaxed:
        q, residual = nnls(A.T, target)
        assert np.linalg.norm(some.nearest - target) == pytest.approx(residual, abs=1e-8)
        assert some.nearest == pytest.approx(q @ A, abs=1e-6)


def test_equivalent_values_are_all_kept():
    """Two values that are alike: one of them alone would do, and half of the rows would be lost."""
    A, shares = np.array([[0.5, 0.5], [0.5, 0.5], [0.9, 0.1]]), np.array([0.3, 0.3, 0.4])
    found = maximize_kept_rows(A, shares, optimal_sampling_weights(A, shares, HALF))
    assert found == pytest.approx([1.0, 1.0, 0.0], abs=1e-7)


@pytest.mark.parametrize("seed", range(40))
def test_rare_values_do_not_reduce_the_kept_share(seed):
    A, _, target = instance(seed, 4, 3)
    shares = 10 ** np.random.default_rng(seed).uniform(-6, 0, size=4)
    shares /= shares.sum()
    some = optimal_sampling_weights(A, shares, target, kept=1.0)
    assert maximize_kept_rows(A, shares, some) @ shares >= some.keep @ shares


def test_value_without_rows_is_never_kept():
    found = optimal_sampling_weights(np.array([[0.8, 0.2], [np.nan, np.nan], [0.4, 0.6]]),
                     np.array([0.5, 0.0, 0.5]), HALF)  # fmt: skip
    assert found.keep == pytest.approx([1 / 3, 0, 1])
    assert found.induced == pytest.approx(HALF)


TREE = {"DecisionTreeClassifier": {"max_depth": 6}}


def guessed(given, **options) -> dict:
    solver = GuessedGroup(**{"model": TREE} | options)
    return dict(run(solver, given).variants)


@pytest.mark.parametrize("weighted", [False, True])
def test_qp_weights_are_those_of_algorithm_1(weighted):
    rows = people(3, n=900, weighted=weighted)
    found = guessed(filtering(rows))["expected"]
    A, sizes, _ = counted(rows, found)
    best = optimal_sampling_weights(A, sizes, np.full(4, 0.25))
    assert kept_shares(rows, found) == pytest.approx(best.induced, abs=1e-6)
    naive = guessed(filtering(rows), weights="naive")["expected"]
    assert best.imbalance <= np.linalg.norm(kept_shares(rows, naive) - 0.25)
    A, sizes, _ = counted(rows, naive)  # equally many rows of each prediction are kept
    assert naive.keep * sizes == pytest.approx(np.full(len(sizes), sizes.min()))


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_noise_matches_the_closed_form(noise):
    """Protocol 4.2: sizes (1 - e) r + e / L, rows of A ((1 - e) r A + e / L base) / size."""
    rows = people(4, n=900)
    plain = guessed(filtering(rows))["expected"]
    found = guessed(filtering(rows), noise=noise)["expected"]
    A, sizes, base = counted(rows, plain)
    blurred, shares, _ = counted(rows, found)
    L = len(sizes)
    assert found.keep == pytest.approx(plain.keep)
    assert shares == pytest.approx((1 - noise) * sizes + noise / L)
    mass = (1 - noise) * sizes[:, None] * A + noise / L * base
    assert blurred == pytest.approx(mass / shares[:, None])
    if noise == 1:
        assert kept_shares(rows, found) == pytest.approx(base)


def test_group_never_predicted_is_not_a_value():
    rows = people(7, n=300, groups=6)
    model = guessed(filtering(rows), model={"DecisionTreeClassifier": {"max_depth": 1}})
    found = model["expected"]
    assert found.proxy.values == 2
    assert set(np.unique(found.proxy.memberships(rows.X))) == {0.0, 1.0}


@pytest.mark.parametrize("weights", ["naive", "qp"])
def test_group_predicted_only_for_zero_weight_rows_is_not_a_value(weights):
    """The third group lies next to rows that do not count, and is outvoted where rows do."""
    X = np.repeat([[-2.0], [2.0], [-5.0], [-9.0]], [25, 30, 15, 10], axis=0)
    group = np.repeat(np.array(["a", "b", "c", "a", "a"], dtype=object), [25, 30, 5, 10, 10])
    weight = np.repeat([1.0, 0.0], [70, 10])
    rows = Rows(np.hstack([X, X**2]), np.zeros(80), group, weight=weight)
    found = guessed(filtering(rows), weights=weights, model="LogisticRegression")["expected"]
    assert found.proxy.chances.probabilities(rows.X)[-1].argmax() == 2
    assert found.proxy.values == 2
    assert found.keep.max() == 1


BOOSTERS = {
    "lightgbm": {"n_estimators": 5, "random_state": 0},
    "xgboost": {"n_estimators": 5, "random_state": 0},
    "catboost": {"n_estimators": 5, "random_state": 0},
}


@pytest.mark.parametrize("name", BOOSTERS)
def test_boosted_trees_guess_groups_as_their_library(name):
    pytest.importorskip(name)
    rows = people(3)
    found = guessed(filtering(rows), model={name: BOOSTERS[name]})["expected"]
    peer = make_estimator(name, BOOSTERS[name], np.random.default_rng(0))
    peer.fit(rows.X, np.unique(rows.group.astype(str), return_inverse=True)[1])
    expected = peer.predict_proba(rows.X)
    np.testing.assert_allclose(found.proxy.chances.probabilities(rows.X), expected, atol=1e-6)
    again = loads(dumps(found))
    np.testing.assert_array_equal(again.keep_probability(rows.X), found.keep_probability(rows.X))


@pytest.mark.slow
@pytest.mark.parametrize("name", BOOSTERS)
def test_boosted_trees_split_leaves(name):
    pytest.importorskip(name)
    found, trace = solved(people(3), 0.5, oracle={name: BOOSTERS[name]}, depth=1, calls=3)
    assert found.proxy.values == 2
    assert trace[-1]["objective"] < trace[0]["objective"]


def test_combination_of_intersecting_groups_is_predicted():
    rows = people(5, n=1200, groups=2)
    rng = np.random.default_rng(1)
    old = np.where(rows.X[:, 1] + rng.normal(size=1200) > 0.5, "old", "young").astype(object)
    given = problem_of(rows, Rules({}, "imbalance(by=(g, age))"), {"g": rows.group, "age": old})
    found = guessed(given)["expected"]
    assert found.proxy.chances.classes == 4
    kept = found.decide(rows.X)
    shares = [np.average(column == value, weights=kept)
              for column, value in ((rows.group, "a"), (old, "old"))]  # fmt: skip
    before = [(rows.group == "a").mean(), (old == "old").mean()]
    off = [np.linalg.norm(np.subtract(each, 0.5)) for each in (shares, before)]
    assert off[0] < 0.2 * off[1]
