from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.games import GOALS, features, game_of, solved
from oracles.goals import problem, smooth_rows

from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.mixture.solver import Mixture
from ratecli.solvers.players.atoms import RatioAtom
from ratecli.solvers.players.lagrangian import OBJECTIVE_OWNER
from ratecli.solvers.players.lanes import pack_lanes, unpack_lanes
from ratecli.solvers.players.rows import BatchSampler, LaneRows
from ratecli.solvers.players.solver import ThreePlayer


class Plain:
    """Adam as in the paper."""

    def __init__(self, rates):
        self.rates, self.taken, self.first, self.second = rates, 0, 0.0, 0.0

    def step(self, slopes):
        self.taken += 1
        self.first = 0.9 * self.first + 0.1 * slopes
        self.second = 0.999 * self.second + 0.001 * slopes**2
        mean = self.first / (1 - 0.9**self.taken)
        size = np.sqrt(self.second / (1 - 0.999**self.taken))
        return self.rates * mean / (size + 1e-8)


def hinged(X, kinds, W, sides):
    """Weight decided yes (Q, B) and slopes (d + 1, B), in plain NumPy; prices (2 Q, B) of hinges."""
    scores = np.asarray(X @ W[:-1].astype(float) + W[-1])
    yes = np.stack([kinds.yes(1.0 * (f > 0)) for f in scores.T], axis=1)
    down, up = sides[: kinds.count][kinds.of], sides[kinds.count :][kinds.of]
    pull = kinds.weight[:, None] * (down * (scores > -1) - up * (scores < 1))
    return scores, yes, np.vstack([X.T @ pull, pull.sum(axis=0)])


@pytest.mark.parametrize("lanes", [3, 16, 17])
@pytest.mark.parametrize("storage", ["one-hot", "dense", "sparse"])
def test_a_pass_counts_decisions_and_gathers_slopes(storage, lanes):
    kinds = RowKinds.by(problem(smooth_rows(0, n=3000), GOALS["kl"]).rates)
    X = features(storage, 3000)
    rows = LaneRows(X, kinds)
    assert (rows._parts is not None) == (storage == "one-hot")
    rng = np.random.default_rng(0)
    W = rng.normal(size=(X.shape[1] + 1, lanes)).astype(np.float32)
    sides = rng.random((2 * kinds.count, lanes))
    found = rows.run(pack_lanes(W), pack_lanes(sides))
    scores, yes, slopes = hinged(X, kinds, W, sides)
    np.testing.assert_allclose(unpack_lanes(found.yes, lanes), yes, rtol=1e-6)
    np.testing.assert_allclose(unpack_lanes(found.slopes, lanes), slopes, atol=0.005)
    above, below = (unpack_lanes(each, lanes) for each in rows.hinges(pack_lanes(W)))
    for each, sign in ((above, 1), (below, -1)):
        total = np.stack([kinds.yes(f) for f in np.maximum(1 + sign * scores, 0).T], axis=1)
        np.testing.assert_allclose(each, total, rtol=1e-6)


@pytest.mark.parametrize("storage", ["one-hot", "dense", "sparse"])
def test_scores_that_are_no_numbers_count_as_no_and_pull_nothing(storage):
    kinds = RowKinds.by(problem(smooth_rows(0, n=300), GOALS["kl"]).rates)
    X = features(storage, 300)
    W = np.zeros((X.shape[1] + 1, 2))
    W[-1] = np.nan, 2.0
    rows = LaneRows(X, kinds)
    found = rows.run(pack_lanes(W), pack_lanes(np.ones((2 * kinds.count, 2))))
    yes = unpack_lanes(found.yes, 2)
    np.testing.assert_array_equal(yes[:, 0], 0.0)
    np.testing.assert_allclose(yes[:, 1], kinds.totals)
    assert not unpack_lanes(found.slopes, 2)[:, 0].any()


@pytest.mark.parametrize("name", GOALS)
def test_a_step_is_that_of_plain_numpy(name):
    """All of a step, written out for one lane after another in double precision, atom by atom."""
    rows = smooth_rows(3, n=800)
    given = problem(replace(rows, X=features("one-hot", 800)), GOALS[name])
    kinds = RowKinds.by(given.rates)
    rates = [0.02, 0.1, 0.3]
    grid = [{"learning_rate": a, "multiplier_rate": b} for a in rates for b in rates]
    game = game_of(given, grid)
    form, count = game.form, 1 + len(game.form.constraints)
    slopes, constants = form.sides
    added = (slopes @ kinds.slopes).T
    sides = np.concatenate([np.maximum(added, 0), np.maximum(-added, 0)])
    learning, raising = (np.array([each[key] for each in grid]) for key in grid[0])
    descending, ascending = Plain(learning), Plain(raising)
    for _ in range(12):
        prices, slacks = game.prices.copy(), game.slacks.copy()
        W = unpack_lanes(game.player.W, len(grid))
        _, seen_rates = game.step()
        _, yes, pull = hinged(given.X, kinds, W, sides @ prices)
        np.testing.assert_allclose(seen_rates, kinds.rates(yes), atol=1e-6)
        moved = W - descending.step(pull)
        far = np.abs(descending.first) > 1e-5  # else rounding is all that Adam takes a step of
        off = np.abs(unpack_lanes(game.player.W, len(grid)) - moved) / learning
        assert off[far].max() < 3e-3
        signed = form.signs * prices[count:]
        broken = np.zeros((count - 1, len(grid)))
        for atom, span, owner in zip(form.atoms, form.spans, form.owners, strict=True):
            if not isinstance(atom, RatioAtom):
                slacks[span] = atom.respond(prices[owner + 1], signed[span])
            if owner != OBJECTIVE_OWNER:
                broken[owner] += atom.value(slacks[span])
        seen = slopes @ seen_rates + constants
        broken += seen[1:count]
        risen = prices[1:] + ascending.step(
            np.concatenate([broken, seen[count:] - form.signs * slacks])
        )
        np.testing.assert_allclose(game.prices[1:], np.maximum(risen, 0), atol=1e-9)
        for atom, span, owner in zip(form.atoms, form.spans, form.owners, strict=True):
            if isinstance(atom, RatioAtom):
                down = prices[owner + 1] * atom.slopes(slacks[span]) - signed[span]
                slacks[span] = atom.boxed(slacks[span] - learning * down)
        np.testing.assert_allclose(game.slacks, slacks, atol=1e-9)


def draws(n: int, size: int, count: int, seed: int = 0):
    rows = smooth_rows(0, n=n)
    kinds = RowKinds.by(problem(rows, GOALS["kl"]).rates)
    lanes = LaneRows(rows.X, kinds)
    batch = BatchSampler.of(lanes, size, np.random.default_rng(seed))
    return lanes, [batch.draw() for _ in range(count)]


def test_a_batch_has_of_each_kind_its_share_and_no_row_twice():
    lanes, found = draws(1000, 100, 5)
    per_kind = np.bincount(lanes.kinds.of, minlength=lanes.kinds.count)
    for some in found:
        np.testing.assert_allclose(np.diff(some.starts), per_kind / 10, atol=0.5)
        for q in range(lanes.kinds.count):
            own = slice(some.starts[q], some.starts[q + 1])
            assert some.weight[own].sum() == pytest.approx(lanes.kinds.totals[q], rel=1e-6)
            begin, end = lanes.all.starts[q : q + 2]
            assert ((some.rows[own] >= begin) & (some.rows[own] < end)).all()
            assert len(set(some.rows[own])) == own.stop - own.start  # no two rows are equal here
    assert any((found[0].rows != other.rows).any() for other in found[1:])


def test_each_row_is_drawn_as_often_as_others():
    lanes, found = draws(100, 25, 4000)
    often = np.bincount(np.concatenate([some.rows for some in found]), minlength=100)
    share = np.diff(found[0].starts) / np.diff(lanes.all.starts)
    expected = 4000 * np.repeat(share, np.diff(lanes.all.starts))
    assert np.abs(often - expected).max() < 5 * np.sqrt(4000) / 2


def test_a_small_batch_has_one_row_of_each_kind():
    lanes, (some,) = draws(200, 1, 1)
    assert np.diff(some.starts).tolist() == [1] * lanes.kinds.count
    np.testing.assert_allclose(some.weight, lanes.kinds.totals)


@pytest.mark.parametrize("storage", ["one-hot", "dense", "sparse"])
def test_a_batch_of_all_rows_is_all_rows(storage):
    given = problem(replace(smooth_rows(1), X=features(storage, 400)), GOALS["g-mean"])
    grid = [{"learning_rate": 0.1, "multiplier_rate": 0.1}] * 2
    games = [
        game_of(given, grid, batch=batch, optimizer="sgd", rates=rates)
        for batch in (None, 400, 10**6)
        for rates in ("true", "surrogate")
    ]
    played = [game.play(30, 10) for game in games]
    for one, other in ((0, 2), (0, 4), (1, 3), (1, 5)):
        for a, b in zip(played[one].answers, played[other].answers, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
        for a, b in zip(played[one].rates, played[other].rates, strict=True):
            np.testing.assert_allclose(a, b, atol=2 / 400)  # of a score of 0 rounding decides
        for a, b in zip(played[one].prices, played[other].prices, strict=True):
            np.testing.assert_allclose(a, b, atol=0.1)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("kl", {}),
        ("g-mean", {}),
        ("f1 parity", {}),
        ("affine", {"optimizer": "sgd", "learning_rate": 0.5}),
        ("kl", {"multipliers": "leader"}),
        ("kl", {"multipliers": "swap_regret"}),
        ("kl", {"rates": "surrogate"}),
    ],
)
def test_with_batches_the_best_is_nearly_reached(name, setting):
    """Within .1 of the best mixture's objective, as with all rows, and feasible on all rows."""
    given = problem(smooth_rows(1), GOALS[name])
    program = RateProgram.of(given)
    options = {"steps": 1000, "learning_rate": 0.1, "multiplier_rate": 0.05, "batch": 80}
    found = solved(given, **(options | setting))
    assert found.status == "solved"
    rates = given.rates.rates(found.variants["stochastic"].decide(given.X))
    assert program.excess(rates) <= 1e-6
    best = Mixture().solve(given, np.random.default_rng(0), lambda _: None).trace[-1]["objective"]
    assert best - 1e-3 <= program.value(program.objective, rates) <= best + 0.1


def test_checkpoints_of_batches_are_measured_on_all_rows():
    given = problem(smooth_rows(1), GOALS["kl"])
    grid = [{"learning_rate": 0.1, "multiplier_rate": 0.1}] * 3
    game = game_of(given, grid, batch=20)
    played = game.play(20, 10)
    for answer, rates in zip(played.answers, played.rates, strict=True):
        for lane in range(3):
            decided = game.player.classifier(answer, lane).decide(given.X)
            np.testing.assert_allclose(rates[:, lane], given.rates.rates(decided), atol=1e-9)


def test_batches_are_the_same_by_seed():
    given = problem(smooth_rows(1), GOALS["kl"])
    solver = ThreePlayer(batch=40, steps=50)
    first, again, other = (
        solver.solve(given, np.random.default_rng(seed), lambda _: None).variants["last"].weights
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_an_oracle_takes_no_batch():
    with pytest.raises(ValueError, match="sees all rows"):
        ThreePlayer(oracle="linear", batch=10)
