"""Episodes in the gridworld of the Seldonian Toolkit, 3 x 3, logged by a uniform policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

if TYPE_CHECKING:
    from ratecli.models.policy import SoftmaxPolicy

SIDE, HORIZON, DISCOUNT = 3, 50, 0.9
GOAL, TRAP = 8, 7
MOVES = {"down": (1, 0), "left": (0, -1), "right": (0, 1), "up": (-1, 0)}
"""Rows and columns of each action, in alphabetical order."""


def next_states() -> NDArray[np.intp]:
    """Return (9, 4) the state after each action."""
    cells = np.arange(SIDE * SIDE)
    rows, columns = np.divmod(cells, SIDE)
    moved = [
        np.clip(rows + down, 0, SIDE - 1) * SIDE + np.clip(columns + right, 0, SIDE - 1)
        for down, right in MOVES.values()
    ]
    return np.stack(moved, axis=1)


def rewards() -> NDArray[np.float64]:
    """Return (9,) the reward of entering each state."""
    cells = np.arange(SIDE * SIDE)
    return np.where(cells == GOAL, 1.0, np.where(cells == TRAP, -1.0, 0.0))


def expected_return(chances: NDArray[np.float64]) -> float:
    """Return the expected discounted return of a policy, given its chances (9, 4) of actions."""
    after = next_states()
    gains, going = rewards()[after], (after != GOAL).astype(float)
    values = np.zeros(SIDE * SIDE)
    for _ in range(HORIZON):
        values = (chances * (gains + DISCOUNT * going * values[after])).sum(axis=1)
    return float(values[0])


def true_returns(policy: SoftmaxPolicy) -> dict[str, float]:
    """Return the expected return of a policy of the generated episodes."""
    chances = policy.chances(np.eye(GOAL))
    return {"reward": expected_return(np.vstack([chances, chances[:1]]))}  # no action in the goal


def prepare(raw: Raw) -> Table:
    count, rng = raw.options["rows"], np.random.default_rng(raw.options["seed"])
    after, names = next_states(), np.array(list(MOVES), dtype=object)
    episode, state, steps = np.arange(count), np.zeros(count, dtype=np.intp), []
    for step in range(HORIZON):
        action = rng.integers(len(MOVES), size=len(state))
        entered = after[state, action]
        steps.append(
            pd.DataFrame(
                {
                    "episode": episode,
                    "step": step,
                    "action": names[action],
                    "chance": 1 / len(MOVES),
                    "reward": rewards()[entered],
                }
                | {f"cell_{k}": state == k for k in range(GOAL)}
            )
        )
        going = entered != GOAL
        episode, state = episode[going], entered[going]
    return raw.episodes(pd.concat(steps), [f"cell_{k}" for k in range(GOAL)])
