"""Generated episodes in two environments with known returns: a gridworld and a valley.

The gridworld is that of the Seldonian Toolkit, 3 x 3, logged by a uniform policy. In the valley, a
car must swing up a hill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

if TYPE_CHECKING:
    from ratecli.models.policy import SoftmaxPolicy

Floats = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True)
class Environment:
    """S states in which one of A actions is taken, with an effect that depends on one of G gusts.

    Attributes
    ----------
    after, ended
        (S, A, G) the next state, and whether the episode ends.
    gusts
        (G,) the chance of each gust.
    gains
        (S, A) the expected gain of each outcome.
    starts
        The states in which episodes start, equally often.
    """

    after: Places
    ended: NDArray[np.bool_]
    gusts: Floats
    gains: Mapping[str, Floats]
    starts: Places
    horizon: int
    discount: float

    def expected_returns(self, chances: Floats) -> dict[str, float]:
        """Return the expected discounted returns of a policy, given its chances (S, A)."""
        found = {}
        for outcome, gain in self.gains.items():
            values = np.zeros(len(chances))
            for _ in range(self.horizon):
                later = (~self.ended * values[self.after]) @ self.gusts
                values = (chances * (gain + self.discount * later)).sum(axis=1)
            found[outcome] = float(values[self.starts].mean())
        return found

    def episodes(
        self,
        state: Places,
        choose: Callable[[Places], tuple[Places, Any]],
        columns: Callable[[Places, Places, Places], Mapping[str, Any]],
    ) -> pd.DataFrame:
        """Return the steps of an episode from each state.

        `choose` samples actions and gusts in some states; `columns` describes steps, given states,
        actions and next states.
        """
        episode, steps = np.arange(len(state)), []
        for step in range(self.horizon):
            action, gust = choose(state)
            entered, ended = (each[state, action, gust] for each in (self.after, self.ended))
            told = {"episode": episode, "step": step, **columns(state, action, entered)}
            steps.append(pd.DataFrame(told))
            episode, state = episode[~ended], entered[~ended]
        return pd.concat(steps)


SIDE, GOAL, TRAP = 3, 8, 7
MOVES = {"down": (1, 0), "left": (0, -1), "right": (0, 1), "up": (-1, 0)}
"""Rows and columns of each action, in alphabetical order."""
REWARDS = np.where(np.arange(SIDE**2) == GOAL, 1.0, np.where(np.arange(SIDE**2) == TRAP, -1.0, 0.0))
"""The reward of entering each cell."""


def gridworld() -> Environment:
    rows, columns = np.divmod(np.arange(SIDE**2), SIDE)
    moved = [
        np.clip(rows + down, 0, SIDE - 1) * SIDE + np.clip(columns + right, 0, SIDE - 1)
        for down, right in MOVES.values()
    ]
    after = np.stack(moved, axis=1)
    gains, start = {"reward": REWARDS[after]}, np.zeros(1, dtype=np.intp)
    ended = after[:, :, None] == GOAL
    return Environment(after[:, :, None], ended, np.ones(1), gains, start, 50, 0.9)


def gridworld_returns(policy: SoftmaxPolicy) -> dict[str, float]:
    """Return the expected return of a policy of the generated episodes."""
    chances = policy.chances(np.eye(GOAL))
    # no action in the goal
    return gridworld().expected_returns(np.vstack([chances, chances[:1]]))


def prepare_gridworld(raw: Raw) -> Table:
    """Return episodes in the gridworld."""
    count, rng = raw.options["rows"], np.random.default_rng(raw.options["seed"])
    names = np.array(list(MOVES), dtype=object)

    def columns(state: Places, action: Places, entered: Places) -> dict[str, Any]:
        told = {"action": names[action], "chance": 1 / len(MOVES), "reward": REWARDS[entered]}
        return told | {f"cell_{k}": state == k for k in range(GOAL)}

    def choose(state: Places) -> tuple[Places, Any]:
        return rng.integers(len(MOVES), size=len(state)), 0

    steps = gridworld().episodes(np.zeros(count, dtype=np.intp), choose, columns)
    return raw.episodes(steps, [f"cell_{k}" for k in range(GOAL)])


HILL, BOTTOM, TOP_SPEED = 16, 7, 3
STARTS = range(5, 10)
PUSHES = {"coast": 0, "left": -1, "right": 1}
"""The change of velocity by each action, in alphabetical order."""
GUSTS = {-1: 0.2, 0: 0.6, 1: 0.2}
"""The chance of each change of velocity by a gust."""
WIDTH = 2 * TOP_SPEED + 1
"""A state is numbered `position * WIDTH + velocity + TOP_SPEED`."""


def valley_states() -> Floats:
    """Return (S, 2) position and velocity of each state."""
    number = np.arange((HILL + 1) * WIDTH)
    return np.column_stack([number // WIDTH, number % WIDTH - TOP_SPEED]).astype(float)


def valley() -> Environment:
    position, velocity = (column[:, None, None] for column in valley_states().T)
    pull = -np.trunc((position - BOTTOM) / 3)
    change = np.add.outer(list(PUSHES.values()), list(GUSTS))
    velocity = np.clip(velocity + pull + change, -TOP_SPEED, TOP_SPEED)
    position = np.clip(position + velocity, 0, HILL)
    velocity = np.where(position == 0, 0, velocity)
    after = np.asarray(position * WIDTH + velocity + TOP_SPEED, dtype=np.intp)
    ended, gusts = after >= HILL * WIDTH, np.array(list(GUSTS.values()))
    cost = np.broadcast_to(np.abs(list(PUSHES.values())), after.shape[:2])
    starts = np.array(STARTS) * WIDTH + TOP_SPEED
    return Environment(
        after, ended, gusts, {"reward": ended @ gusts, "cost": cost}, starts, 30, 0.95
    )


def valley_returns(policy: SoftmaxPolicy) -> dict[str, float]:
    """Return the expected returns of a policy of the generated episodes."""
    return valley().expected_returns(policy.chances(valley_states()))


def prepare_valley(raw: Raw) -> Table:
    """Return episodes in the valley, logged by a policy that mostly pushes onward."""
    count, rng = raw.options["rows"], np.random.default_rng(raw.options["seed"])
    onward = np.where(valley_states()[:, 1] < 0, 1, 2)
    chances = 0.1 + 0.35 * np.eye(3)[2] + 0.35 * np.eye(3)[onward]
    names, ends = np.array(list(PUSHES), dtype=object), np.cumsum(list(GUSTS.values()))[:-1]
    push = np.abs(list(PUSHES.values()))

    def choose(state: Places) -> tuple[Places, Any]:
        drawn = rng.random((2, len(state)))
        action = (drawn[0][:, None] > chances[state].cumsum(axis=1)[:, :-1]).sum(axis=1)
        return action, np.searchsorted(ends, drawn[1])

    def columns(state: Places, action: Places, entered: Places) -> dict[str, Any]:
        position, velocity = valley_states()[state].T
        return {
            "position": position,
            "velocity": velocity,
            "push": names[action],
            "push_chance": chances[state, action],
            "reward": (entered >= HILL * WIDTH).astype(float),
            "cost": push[action].astype(float),
        }

    start = rng.choice(STARTS, size=count) * WIDTH + TOP_SPEED
    return raw.episodes(valley().episodes(start, choose, columns), ["position", "velocity"])
