"""The peer of gridworld.py: the Seldonian Toolkit (engine 0.8.11) on logged episodes of its gridworld.

Run by an interpreter that has the package, and needs nothing of ratecli: `python gridworld_peer.py
EPISODES.npz`, where EPISODES.npz holds state, action and reward (S,) of all steps, length (n,) of the episodes,
constraint in the toolkit's language, iterations and step. It writes its answer beside it, EPISODES.toolkit.npz:
processor seconds of candidate selection and safety test on one thread, whether the test passed, and the policy's
weights (9, 4), NaN if no candidate was found.

All else is as the tutorial has it: a softmax policy with a weight for each state and action, which starts
uniform; ordinary importance sampling as the objective; Student's t; the last 60 % of the episodes for the
test.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from seldonian.dataset import Episode, RLDataSet, RLMetaData
from seldonian.RL.Agents.Policies.Softmax import DiscreteSoftmax
from seldonian.RL.Env_Description.Env_Description import Env_Description
from seldonian.RL.Env_Description.Spaces import Discrete_Space
from seldonian.seldonian_algorithm import SeldonianAlgorithm
from seldonian.spec import RLSpec, createRLSpec

STATES, ACTIONS, DISCOUNT = 9, 4, 0.9


def spec_of(given: Mapping[str, Any]) -> RLSpec:
    ends = np.cumsum(given["length"])[:-1]
    parts = zip(
        *(np.split(given[name], ends) for name in ("state", "action", "reward")), strict=True
    )
    episodes = [Episode(s, a, r, np.full(len(a), 1 / ACTIONS)) for s, a, r in parts]
    spaces = Env_Description(Discrete_Space(0, STATES - 1), Discrete_Space(0, ACTIONS - 1))
    spec = createRLSpec(
        dataset=RLDataSet(episodes, RLMetaData(["episode_index", "O", "A", "R", "pi_b"])),
        policy=DiscreteSoftmax({}, spaces),
        constraint_strs=[str(given["constraint"])],
        deltas=[0.05],
        env_kwargs={"gamma": DISCOUNT},
    )
    step = float(given["step"])
    hyper = {"num_iters": int(given["iterations"]), "alpha_theta": step, "alpha_lamb": step}
    spec.optimization_hyperparams.update(hyper)
    return spec


def answer(given: Mapping[str, Any]) -> dict[str, Any]:
    spec = spec_of(given)
    begun = time.process_time()
    passed, _ = (algorithm := SeldonianAlgorithm(spec)).run()
    seconds = time.process_time() - begun
    found = algorithm.get_cs_result()["candidate_solution"]
    none = np.full((STATES, ACTIONS), np.nan)
    return {
        "seconds": seconds,
        "passed": passed,
        "weights": none if isinstance(found, str) else found,
    }


if __name__ == "__main__":
    path = Path(sys.argv[1])
    with np.load(path) as rows:
        np.savez(path.with_suffix(".toolkit.npz"), **answer(dict(rows)))
