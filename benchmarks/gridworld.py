"""Policies of logged episodes, beside the Seldonian Toolkit in the same run: `make bench`.

The toolkit's tutorial on reinforcement learning: 1,000 episodes of its gridworld, the last 60 % of them for
the test, Student's t, a return of at least -0.25. For each data set: the expected return in the gridworld of the
returned policy, whether one passed the test, and processor seconds on one thread, ours of a whole trial with all
measurements, the toolkit's of candidate selection and test. The best policy has a return of 0.729.

The toolkit takes 10 steps of 0.01 in its tutorial. On the first data sets it gets per-decision importance
sampling in the constraint, as ours, and 30 steps of 0.1, as well. It runs by the interpreter that
SELDONIAN_PYTHON names (see seldonian.py).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml
from scipy.special import softmax

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets.load import load_entry_table
from ratecli.datasets.sources import environments
from ratecli.experiment.prepare import prepare
from ratecli.models.policy import Episodes
from ratecli.models.storage import loads
from ratecli.runner.trial import run_trial
from ratecli.runner.workers import THREAD_VARIABLES, limit_to_one_thread
from ratecli.sampling.rows import load_trial_data

EPISODES, LEAST = 1000, -0.25
TUTORIAL, LONGER = (10, 0.01), (30, 0.1)
"""Numbers of steps, and their size."""
OURS = {
    "student_t, inflation 2": {"bound": "student_t"},
    "exact": {"bound": "auto"},
}
Found = tuple[float, float]
"""Expected return of the policy, NaN if none was returned, and processor seconds."""


def experiment(seed: int, bound: dict[str, str]) -> dict[str, object]:
    world = {"source": "gridworld", "rows": EPISODES, "seed": seed, "split": {"train": 1}}
    return {
        "name": "bench",
        "datasets": {"world": world},
        "objective": "-return(reward)",
        "constraints": {"safe": f"return(reward) >= {LEAST}"},
        "safety": {"delta": 0.05, "fraction": 0.6, "order": "positional"} | bound,
        "algorithms": [{"seldonian": {"inflation": 2}}],
        "metrics": {"true": "return_true(reward)"},
    }


def ours(seed: int, bound: dict[str, str]) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.yaml"
        path.write_text(yaml.safe_dump(experiment(seed, bound)), "utf-8")
        ((job),) = (task.payload for task in prepare(path, offline=True).plan.tasks)
        load_trial_data(job.data, job.seed, None, job.case.sampling)  # reads the rows
        begun = time.process_time()
        result = run_trial(job, {})
        seconds = time.process_time() - begun
    returned = [environments.gridworld_returns(loads(text)) for text in result.models.values()]
    return returned[0]["reward"] if returned else np.nan, seconds


def toolkit(seed: int, weights: str, steps: tuple[int, float], python: str) -> Found:
    options = {"source": "gridworld", "rows": EPISODES, "seed": seed}
    table = load_entry_table(DatasetSpec.model_validate(options), Path.cwd(), offline=True)
    assert table.episodes is not None
    episodes = Episodes.of(table.matrix, table.episodes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.npz"
        np.savez(
            path,
            state=episodes.states.argmax(axis=1),
            action=episodes.action[episodes.present].astype(int),
            reward=episodes.outcomes[episodes.present][:, 0],
            length=episodes.present.sum(axis=1),
            constraint=f"J_pi_new_{weights} >= {LEAST}",
            iterations=steps[0],
            step=steps[1],
        )
        script = Path(__file__).with_name("gridworld_peer.py")
        done = subprocess.run(
            [python, "-I", str(script), str(path)],
            cwd=folder,
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, "1"),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"the toolkit failed by {python}:\n{done.stderr}")
        found = dict(np.load(path.with_suffix(".toolkit.npz")))
    value = environments.gridworld().expected_returns(softmax(found["weights"], axis=1))["reward"]
    return value if found["passed"] else np.nan, float(found["seconds"])


def line(name: str, found: list[Found]) -> None:
    values = np.array([value for value, _ in found if np.isfinite(value)])
    within = 2 * values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    mean = values.mean() if len(values) else np.nan
    seconds = np.mean([each for _, each in found])
    print(f"  {name:36}{mean:8.3f} ±{within:6.3f}{len(values):6} of {len(found):<4}{seconds:10.2f}",
          flush=True)  # fmt: skip


def compare(count: int, python: str | None) -> Iterator[tuple[str, list[Found]]]:
    """Yield each method with what it found on the data sets."""
    for name, bound in OURS.items():
        yield f"ours, {name}", [ours(seed, bound) for seed in range(count)]
    if python is not None:
        few = max(1, count // 3)
        for weights, steps, sets in (("IS", TUTORIAL, count), ("PDIS", TUTORIAL, few),
                                     ("IS", LONGER, few)):  # fmt: skip
            found = [toolkit(seed, weights, steps, python) for seed in range(sets)]
            yield f"toolkit, {weights}, {steps[0]} steps of {steps[1]}", found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-sets", type=int, default=10)
    count, python = parser.parse_args().data_sets, os.environ.get("SELDONIAN_PYTHON")
    if python is None:
        print("the toolkit is not here: SELDONIAN_PYTHON names no interpreter")
    print(f"{EPISODES} episodes of the gridworld, return of at least {LEAST}, {count} data sets")
    print(f"  {'':36}{'true return':>16}{'passed':>10}{'seconds':>15}")
    first: list[Found] = []
    with limit_to_one_thread():
        ours(0, OURS["exact"])  # imports
        for name, found in compare(count, python):
            line(name, found)
            first = first or found
            if name.startswith("toolkit"):
                ratio = np.mean(found, axis=0)[1] / np.mean(first, axis=0)[1]
                print(f"    {ratio:.0f} times as long as ours with student_t")


if __name__ == "__main__":
    main()
