from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from oracles.games import GOALS, features, game_of
from oracles.goals import KL, Rules, by_kind, problem, smooth_rows
from thinned import one_in

from ratecli.models.storage import dumps
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.players.lagrangian import NEGATIVE_RATIO, RATIO
from ratecli.solvers.players.options import ThreePlayer
from ratecli.solvers.players.rows import LaneRows


class PlainAdam:
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
    """Scores, positively decided weight (Q, B) and slopes (d + 1, B), in plain NumPy."""
    scores = np.asarray(X @ W[:-1].astype(float) + W[-1])
    yes = by_kind(kinds, scores > 0)
    down, up = sides[: kinds.count][kinds.of], sides[kinds.count :][kinds.of]
    pull = kinds.weight[:, None] * (down * (scores > -1) - up * (scores < 1))
    return scores, yes, np.vstack([X.T @ pull, pull.sum(axis=0)])


@pytest.mark.parametrize("lanes", [3, 16, 17])
@pytest.mark.parametrize("storage", ["one-hot", "dense", "sparse"])
def test_pass_counts_decisions_and_sums_slopes(storage, lanes):
    kinds = RowKinds.by(problem(smooth_rows(0, n=3000), GOALS["kl"]).rates)
    X = features(storage, 3000)
    rows = LaneRows(X, kinds)
    assert (rows.merged.parts is not None) == (storage == "one-hot")
    rng = np.random.default_rng(0)
    W = rng.normal(size=(X.shape[1] + 1, lanes)).astype(np.float32)
    sides = rng.random((2 * kinds.count, lanes))
    found = rows.run(W, sides)
    scores, yes, slopes = hinged(X, kinds, W, sides)
    np.testing.assert_allclose(found[0], yes, rtol=1e-6)
    np.testing.assert_allclose(found[1], slopes, atol=0.005)
    above, below = rows.hinges(W)
    for each, sign in ((above, 1), (below, -1)):
        total = by_kind(kinds, np.maximum(1 + sign * scores, 0))
        np.testing.assert_allclose(each, total, rtol=1e-6)
    # a score that is not a number is a negative decision without a gradient
    W[-1, 0], W[:, 1] = np.nan, 2.0 * (np.arange(len(W)) == len(W) - 1)
    yes, slopes = rows.run(W, sides)
    assert not yes[:, 0].any()
    assert not slopes[:, 0].any()
    np.testing.assert_allclose(yes[:, 1], kinds.totals)


@pytest.mark.parametrize("name", GOALS)
def test_steps_agree_with_plain_numpy(name):
    """A step in double precision, written out atom by atom and lane by lane."""
    rows = smooth_rows(3, n=800)
    given = problem(replace(rows, X=features("one-hot", 800)), GOALS[name])
    kinds = RowKinds.by(given.rates)
    rates = [0.02, 0.1, 0.3]
    grid = [{"learning_rate": a, "multiplier_rate": b} for a in rates for b in rates]
    game = game_of(given, grid)
    form, count = game.form, 1 + game.form.constraints
    slopes, constants = form.slopes[0], form.constants
    added = (slopes @ kinds.slopes).T
    sides = np.concatenate([np.maximum(added, 0), np.maximum(-added, 0)])
    learning, raising = (np.array([each[key] for each in grid]) for key in grid[0])
    descending, ascending = PlainAdam(learning), PlainAdam(raising)
    ends = np.cumsum([0, *(len(each.lines) for each in form.atoms)])
    atoms = [(each.atom, slice(*ends[a : a + 2]), each.owner) for a, each in enumerate(form.atoms)]
    own = [atom.kind for atom, _, _ in atoms]
    follow = [NEGATIVE_RATIO in own and kind in {RATIO, NEGATIVE_RATIO} for kind in own]
    total = game.slacks.copy()
    for step in range(12):
        prices, slacks = game.prices.copy(), game.slacks.copy()
        W = game.player.W.astype(float)
        _, seen_rates = game.step()
        _, yes, pull = hinged(given.X, kinds, W, sides @ prices)
        np.testing.assert_allclose(seen_rates, kinds.rates(yes), atol=1e-6)
        moved = W - descending.step(pull)
        far = np.abs(descending.first) > 1e-5  # smaller gradients are rounding errors
        off = np.abs(game.player.W - moved) / learning
        assert off[far].max() < 3e-3
        signed = form.signs * prices[count:]
        broken = np.zeros((count, len(grid)))
        seen = slopes @ seen_rates + constants
        total += form.signs * seen[count:]
        for (atom, span, owner), follows in zip(atoms, follow, strict=True):
            if follows:
                slacks[span] = atom.boxed(total[span, None] / (step + 2))[:, 0]
            elif atom.kind.respond is not None:
                slacks[span] = atom.respond(prices[[owner]], signed[span, None])[:, 0]
            broken[owner] += atom.value(slacks[span, None])[0]
        broken = broken[1:] + seen[1:count]
        slopes_of_prices = np.concatenate([broken, seen[count:] - form.signs * slacks])
        risen = np.maximum(prices[1:] + ascending.step(slopes_of_prices), 0)
        for (atom, span, owner), follows in zip(atoms, follow, strict=True):
            if follows:
                down = form.signs[span] * atom.slopes(slacks[span, None])[:, 0]
                risen[count - 1 :][span] = risen[owner - 1] * down
        np.testing.assert_allclose(game.prices[1:], risen, atol=1e-9)
        for (atom, span, owner), follows in zip(atoms, follow, strict=True):
            if atom.kind.respond is None and not follows:
                down = prices[owner] * atom.slopes(slacks[span, None])[:, 0] - signed[span]
                slacks[span] = atom.boxed((slacks[span] - learning * down)[:, None])[:, 0]
        np.testing.assert_allclose(game.slacks, slacks, atol=1e-9)


def draws(n: int, size: int, count: int, seed: int = 0):
    """The rows in memory, and each batch with the indices of its rows."""
    rows = smooth_rows(0, n=n)
    kinds = RowKinds.by(problem(rows, GOALS["kl"]).rates)
    lanes = LaneRows(np.column_stack([rows.X, np.arange(n)]), kinds)
    batch = lanes.batches(size, np.random.default_rng(seed))
    found = [next(batch) for _ in range(count)]
    return lanes, [(some, some.X[:, -1].astype(int)) for some in found]


def test_batches_have_a_share_of_each_kind_and_no_row_twice():
    lanes, found = draws(1000, 100, 5)
    kinds = lanes.kinds
    per_kind = np.bincount(kinds.of, minlength=kinds.count)
    for some, rows in found:
        np.testing.assert_allclose(np.diff(some.starts), per_kind / 10, atol=0.5)
        assert len(set(rows)) == len(rows)
        for q in range(kinds.count):
            own = slice(some.starts[q], some.starts[q + 1])
            assert some.weight[own].sum() == pytest.approx(kinds.totals[q], rel=1e-6)
            assert (kinds.of[rows[own]] == q).all()
    assert any((found[0][1] != other).any() for _, other in found[1:])
    lanes, ((some, _),) = draws(200, 1, 1)  # small ones have one row of each kind
    assert np.diff(some.starts).tolist() == [1] * lanes.kinds.count
    np.testing.assert_allclose(some.weight, lanes.kinds.totals)


def test_each_row_is_sampled_equally_often():
    lanes, found = draws(100, 25, 4000)
    often = np.bincount(np.concatenate([rows for _, rows in found]), minlength=100)
    share = np.diff(found[0][0].starts) / np.diff(lanes.merged.starts)
    assert np.abs(often - 4000 * share[lanes.kinds.of]).max() < 5 * np.sqrt(4000) / 2


@pytest.mark.parametrize("storage", ["one-hot", "dense", "sparse"])
def test_batches_of_all_rows_train_as_no_batches(storage):
    given = problem(replace(smooth_rows(1), X=features(storage, 400)), GOALS["g-mean"])
    grid = [{"learning_rate": 0.1, "multiplier_rate": 0.1}] * 2
    games = [
        game_of(given, grid, batch=batch, optimizer="sgd", rates=rates)
        for batch in (None, 400, 10**6)
        for rates in ("true", "surrogate")
    ]
    played = [game.play(30, 10) for game in games]
    for one, other in ((0, 2), (0, 4), (1, 3), (1, 5)):
        for a, b in zip(played[one], played[other], strict=True):
            np.testing.assert_allclose(a.answer, b.answer, atol=1e-5)
            np.testing.assert_allclose(a.rates, b.rates, atol=2 / 400)  # a score of 0 is rounded
            np.testing.assert_allclose(a.prices, b.prices, atol=0.1)


def test_kept_iterates_are_measured_on_all_rows():
    given = problem(smooth_rows(1), GOALS["kl"])
    grid = [{"learning_rate": 0.1, "multiplier_rate": 0.1}] * 3
    game = game_of(given, grid, batch=20)
    for kept in game.play(20, 10):
        for lane in range(3):
            decided = game.player.classifier(kept.answer, lane).decide(given.X)
            np.testing.assert_allclose(kept.rates[:, lane], given.rates.rates(decided), atol=1e-9)


def test_oracles_take_no_batch():
    with pytest.raises(ValueError, match="sees all rows"):
        ThreePlayer(oracle="linear", batch=10)


SWEEPS = {
    "kl": lambda t: Rules({"e": f"error <= {0.3 + t}"}, KL),
    "f1 parity": lambda t: Rules({"f": f"max_gap(f1, by=g) <= {t}"}, "1 - f1"),
    "ratio": lambda t: Rules({"p": f"positive_rate[g=a] <= {1 + t} * positive_rate[g=b]"}),
    "smooth": lambda t: Rules({"x": f"exp(positive_rate) + exp(fpr) <= {2.3 + t}"}),
    "other atoms": lambda t: Rules({}, "1 - g_mean" if t > 0.1 else "1 - h_mean"),
}


STORED = [*((name, "one-hot") for name in SWEEPS), ("ratio", "dense"), ("ratio", "sparse")]
LANES = [
    {},
    {"optimizer": "sgd", "tune": {"learning_rate": (0.01, 0.1, 1.0)}, "variants": ("hashed",)},
    {"multipliers": "leader", "radius": 2.0},
    {"multipliers": "swap_regret"},
    {"rates": "surrogate"},
    {"batch": 80},
]


@pytest.mark.parametrize(
    ("name", "storage", "options"),
    one_in(7, ((*stored, options) for stored in STORED for options in LANES)),
)
def test_problems_solved_together_have_the_same_solutions_as_alone(name, storage, options):
    rows = replace(smooth_rows(3, n=400), X=features(storage, 400))
    problems = [problem(rows, SWEEPS[name](limit)) for limit in (0.02, 0.05, 0.1, 0.2, 0.3)]
    solver = ThreePlayer(steps=60, **options)
    rng = partial(np.random.default_rng, 0)
    together = solver.solve_together(problems, rng(), lambda _: None)
    assert [found is None for found in together] == [
        name == "other atoms" and k > 2 for k in range(5)
    ]
    for given, finish in zip(problems, filter(None, together), strict=False):
        found = finish()
        alone = solver.solve(given, rng(), lambda _: None)
        variants = (
            {name: dumps(each) for name, each in s.variants.items()} for s in (found, alone)
        )
        assert next(variants) == next(variants)
        assert (found.status, found.reason) == (alone.status, alone.reason)
        assert found.multipliers == alone.multipliers
