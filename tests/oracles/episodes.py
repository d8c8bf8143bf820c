"""Generated episodes of four steps between two places."""

import numpy as np
import pandas as pd

from ratecli.config.dataset import LoggedSpec
from ratecli.datasets.logged import episode_table
from ratecli.models.policy import Episodes

STEPS = 4
LOGGED = LoggedSpec(
    action="action",
    propensity="chance",
    outcomes={"reward": (0.0, 1.0), "cost": (0.0, 1.0)},
    episode="episode",
    step="step",
    horizon=STEPS,
)
UNIFORM = np.full((2, 2), 0.5)


def simulate(count: int, rng: np.random.Generator, chances: np.ndarray = UNIFORM) -> pd.DataFrame:
    """Steps of episodes that begin in place 0, by a policy with chances (2, 2) of actions.

    Action a leads to place a. Action 1 has a reward of 1/2, and staying a cost of 1.
    """
    place, steps = np.zeros(count, dtype=int), []
    for step in range(STEPS):
        action = (rng.random(count) < chances[place, 1]).astype(int)
        content = {"place": place, "action": action, "chance": chances[place, action]}
        outcomes = {"reward": 0.5 * action, "cost": (action == place).astype(float)}
        steps.append(
            pd.DataFrame({"episode": np.arange(count), "step": step, **content, **outcomes})
        )
        place = action
    return pd.concat(steps, ignore_index=True)


def episodes_of(frame: pd.DataFrame) -> Episodes:
    table = episode_table(frame, ["place"], LOGGED, digest="")
    return Episodes.of(table.matrix, table.episodes)
