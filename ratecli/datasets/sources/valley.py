"""Episodes of a car in a valley that must swing up a hill, with known returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

if TYPE_CHECKING:
    from ratecli.models.policy import SoftmaxPolicy

GOAL, BOTTOM, TOP_SPEED = 16, 7, 3
STARTS = range(5, 10)
HORIZON, DISCOUNT = 30, 0.95
PUSHES = {"coast": 0, "left": -1, "right": 1}
"""The change of velocity by each action, in alphabetical order."""
GUSTS = {-1: 0.2, 0: 0.6, 1: 0.2}
"""The chance of each change of velocity by a gust."""
WIDTH = 2 * TOP_SPEED + 1
"""A state is numbered `position * WIDTH + velocity + TOP_SPEED`."""


def states() -> NDArray[np.float64]:
    """Return (S, 2) position and velocity of each state."""
    number = np.arange((GOAL + 1) * WIDTH)
    return np.column_stack([number // WIDTH, number % WIDTH - TOP_SPEED]).astype(float)


def next_states() -> NDArray[np.intp]:
    """Return (S, 3, 3) the state after each action and gust."""
    position, velocity = (column[:, None, None] for column in states().T)
    pull = -np.trunc((position - BOTTOM) / 3)
    change = np.add.outer(list(PUSHES.values()), list(GUSTS))
    velocity = np.clip(velocity + pull + change, -TOP_SPEED, TOP_SPEED)
    position = np.clip(position + velocity, 0, GOAL)
    velocity = np.where(position == 0, 0, velocity)
    return np.asarray(position * WIDTH + velocity + TOP_SPEED, dtype=np.intp)


def logged_chances() -> NDArray[np.float64]:
    """Return (S, 3) chances of the actions of the log's policy."""
    onward = np.where(states()[:, 1] < 0, 1, 2)
    return np.asarray(0.1 + 0.35 * np.eye(3)[2] + 0.35 * np.eye(3)[onward])


def expected_returns(chances: NDArray[np.float64]) -> dict[str, float]:
    """Return the expected discounted returns of a policy, given its chances (S, 3) of actions."""
    after, gusts = next_states(), np.array(list(GUSTS.values()))
    ended = after >= GOAL * WIDTH
    gains = {
        "reward": ended @ gusts,
        "cost": np.broadcast_to(np.abs(list(PUSHES.values())), chances.shape),
    }
    found = {}
    for outcome, gain in gains.items():
        values = np.zeros(len(chances))
        for _ in range(HORIZON):
            later = (~ended * values[after]) @ gusts
            values = (chances * (gain + DISCOUNT * later)).sum(axis=1)
        found[outcome] = float(values[[x * WIDTH + TOP_SPEED for x in STARTS]].mean())
    return found


def true_returns(policy: SoftmaxPolicy) -> dict[str, float]:
    """Return the expected return of a policy of the generated episodes."""
    return expected_returns(policy.chances(states()))


def prepare(raw: Raw) -> Table:
    count, rng = raw.options["rows"], np.random.default_rng(raw.options["seed"])
    after, chances, names = next_states(), logged_chances(), np.array(list(PUSHES), dtype=object)
    push, gusts = np.abs(list(PUSHES.values())), np.cumsum(list(GUSTS.values()))
    episode, steps = np.arange(count), []
    state = rng.choice(STARTS, size=count) * WIDTH + TOP_SPEED
    for step in range(HORIZON):
        drawn = rng.random((2, len(state)))
        action = (drawn[0][:, None] > chances[state].cumsum(axis=1)[:, :-1]).sum(axis=1)
        gust = np.searchsorted(gusts[:-1], drawn[1])
        entered = after[state, action, gust]
        ended = entered >= GOAL * WIDTH
        position, velocity = states()[state].T
        columns = {
            "episode": episode,
            "step": step,
            "position": position,
            "velocity": velocity,
            "push": names[action],
            "push_chance": chances[state, action],
            "reward": ended.astype(float),
            "cost": push[action].astype(float),
        }
        steps.append(pd.DataFrame(columns))
        episode, state = episode[~ended], entered[~ended]
    return raw.episodes(pd.concat(steps), ["position", "velocity"])
