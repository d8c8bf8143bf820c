"""Generated environments: their episodes, and the known returns of policies."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from entries import load_entry_table

from ratecli.datasets.sources import environments
from ratecli.models.policy import Episodes, SoftmaxPolicy
from ratecli.rates.table import return_key

WORLDS = {
    "gridworld": environments.gridworld_returns,
    "valley": environments.valley_returns,
}


def episodes(world: str, rows: int, seed: int = 0):
    options = {"source": world, "rows": rows, "seed": seed}
    table = load_entry_table(options, Path(), offline=True)
    return table, Episodes.of(table.matrix, table.episodes)


def random_policy(layout, spread: float) -> SoftmaxPolicy:
    """Return a policy around the uniform one; in the valley, around one that pushes right."""
    shape = layout.basis_size, len(layout.actions)
    weights = spread * np.random.default_rng(5).normal(size=shape)
    if len(layout.actions) == 4:
        return SoftmaxPolicy(weights, np.zeros(8), np.ones(8), layout)
    weights[0] += np.log([0.1, 0.2, 0.7])  # of the constant of the Fourier basis
    return SoftmaxPolicy(weights, np.array([0, -3]), np.array([16, 3]), layout)


def grid_steps(cell, action):
    """(chance, next state, reward, whether the episode ends), by the rules of the docstring."""
    row, column = divmod(cell, 3)
    match action:
        case "down":
            row = min(row + 1, 2)
        case "up":
            row = max(row - 1, 0)
        case "right":
            column = min(column + 1, 2)
        case "left":
            column = max(column - 1, 0)
    cell = 3 * row + column
    yield 1.0, cell, {8: 1.0, 7: -1.0}.get(cell, 0.0), 0.0, cell == 8


def valley_steps(state, action):
    """(chance, next state, reward, cost, whether the episode ends)."""
    position, velocity = state
    for gust, chance in ((-1, 0.2), (0, 0.6), (1, 0.2)):
        pull = abs(position - 7) // 3 * (1 if position < 7 else -1)
        push = {"coast": 0, "left": -1, "right": 1}[action]
        new = max(-3, min(3, velocity + pull + push + gust))
        place = max(0, min(16, position + new))
        new = 0 if place == 0 else new
        yield chance, (place, new), float(place == 16), float(push != 0), place == 16


RULES = {
    # steps, starts, discount, horizon, actions in alphabetical order
    "gridworld": (grid_steps, [0], 0.9, 50, ("down", "left", "right", "up")),
    "valley": (
        valley_steps,
        [(x, 0) for x in range(5, 10)],
        0.95,
        30,
        ("coast", "left", "right"),
    ),
}


def exact_returns(world: str, chances) -> list[float]:
    """Return the expected returns of all outcomes, if a state has these chances of actions."""
    steps, starts, discount, horizon, actions = RULES[world]

    @cache
    def value(state, left: int):
        total = np.zeros(2)
        if left:
            for action, taken in zip(actions, chances(state), strict=True):
                for chance, new, *gains, ended in steps(state, action):
                    later = 0.0 if ended else discount * value(new, left - 1)
                    total = total + taken * chance * (np.array(gains) + later)
        return total

    return list(np.mean([value(start, horizon) for start in starts], axis=0))


def features(world: str, state):
    return np.eye(8)[[state]] if world == "gridworld" else np.array([state], dtype=float)


@pytest.mark.parametrize("world", WORLDS)
def test_true_returns_are_those_of_the_rules(world: str):
    policy = random_policy(episodes(world, 2)[0].episodes, 1.0)
    found = WORLDS[world](policy)
    expected = exact_returns(world, lambda state: policy.chances(features(world, state))[0])
    assert list(found.values()) == pytest.approx(expected[: len(found)], abs=1e-12)


@pytest.mark.parametrize("world", WORLDS)
def test_logged_returns_are_those_of_the_logged_policy(world: str):
    def logged(state):
        if world == "gridworld":
            return [1 / 4] * 4
        _, velocity = state
        return (0.1, 0.45, 0.45) if velocity < 0 else (0.1, 0.1, 0.8)

    table, found = episodes(world, 10_000)
    returns = np.einsum("ntr,t->nr", found.outcomes, table.episodes.discounts)
    errors = returns.std(axis=0) / np.sqrt(len(returns))
    expected = exact_returns(world, logged)[: returns.shape[1]]
    assert (np.abs(returns.mean(axis=0) - expected) < 4 * errors).all()
    chances = np.array([
        logged(int(np.argmax(state)) if world == "gridworld" else state)
        for state in found.distinct[0]
    ])  # fmt: skip
    propensity = found.propensity[found.present]
    np.testing.assert_allclose(propensity, chances.ravel()[found.cells])
    assert propensity.min() >= 0.1 - 1e-12
    expected_counts = chances * np.bincount(found.distinct[1])[:, None]
    counts = np.bincount(found.cells, minlength=chances.size).reshape(chances.shape)
    assert (np.abs(counts - expected_counts) < 5 * np.sqrt(expected_counts + 1)).all()


@pytest.mark.parametrize("world", WORLDS)
def test_weighted_returns_agree_with_true_returns(world: str):
    table, _ = episodes(world, 10_000, seed=1)
    policy = random_policy(table.episodes, 0.1)
    returns = policy.returns(table.matrix)
    for outcome, expected in WORLDS[world](policy).items():
        found = returns[return_key("return", outcome)]
        error = found.std() / np.sqrt(len(found))
        assert found.mean() == pytest.approx(expected, abs=4 * error)
        assert error < 0.02 * (1 + abs(expected))


def test_best_return_in_the_gridworld_is_that_of_four_steps_past_the_trap():
    best = np.zeros((9, 4))
    best[:, 2], best[[2, 5], 2], best[[2, 5], 0] = 1, 0, 1  # right, right, down, down
    found = environments.gridworld().expected_returns(best)
    assert found["reward"] == pytest.approx(0.9**3)


@pytest.mark.parametrize(("world", "steps"), [("gridworld", 1083), ("valley", 933)])
def test_seed_changes_the_rows_only(world: str, steps: int):
    (first, found), (again, _), (other, _) = (episodes(world, 50, seed) for seed in (3, 3, 4))
    assert found.present.sum() == steps  # stored trials depend on the rows of a seed
    assert np.array_equal(first.matrix, again.matrix)
    assert not np.array_equal(first.matrix, other.matrix)
    assert first.digest == again.digest != other.digest
    assert len(first) == len(other) == 50
