"""What a grid of filters costs: `make bench`.

One seed's whole grid of 21 budgets, from the command to the report on two cores, for the paper's tree and
for ours; the paper prints 20 minutes to 2 hours for Adult and about 3 hours for Bank. Then, in the same run
and on one core, some budgets by Algorithms 3 and 4 as they are written (`filtering_peer.py`), at 100 rounds
of the game, five runs in turn: median seconds, the imbalance in training at the end, and the median and
range of the ratios.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from common import in_turn, ratio_text
from filtering_peer import Peer

from ratecli.errors import FaultError
from ratecli.experiment.plan import TrialSpec
from ratecli.experiment.prepare import prepare
from ratecli.runner.trial import run_trial
from ratecli.runner.workers import limit_to_one_thread
from ratecli.sampling.rows import load_trial_data
from ratecli.solvers.filtering.target import FilterTarget  # noqa: F401  imported before the clock starts

GROUPS = {"bank": "job", "adult": "race"}
PRINTED = {"bank": "about 3 h", "adult": "20 min to 2 h"}
BUDGETS = (0.1, 0.2, 0.5)
ROUNDS = 100
TREES = {
    "alpha_beta": "{split: progress, oracle: regression, gamma: 0.1, stop: 0.1, kept: 0, child: 0}",
    "nearest": "{}",
}
GRID = "'linspace(0, 1, 21)'"


def file_of(name: str, tree: str, alphas: str) -> str:
    column = GROUPS[name]
    return f"""
name: {name}
datasets: {{{name}: {{source: {name}, split: {{test: 1/3}}}}}}
objective: imbalance(by={column})
constraints: {{secret: disclosivity(by={column}) <= alpha}}
sweep: {{alpha: {alphas}}}
algorithms: [balanced_tree: {TREES[tree]}]
metrics: {{disclosivity: disclosivity(by={column}), imbalance: imbalance(by={column})}}
"""


def grid_seconds(name: str, tree: str) -> float:
    """Of `ratecli run` of the whole grid, one seed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.yaml")
        path.write_text(file_of(name, tree, GRID), encoding="utf-8")
        command = [
            "-m",
            "ratecli",
            "run",
            str(path),
            "-o",
            folder,
            "--jobs",
            "2",
            "--quiet",
            "--offline",
        ]
        begun = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        return time.perf_counter() - begun


def imbalance_of_trial(spec: TrialSpec) -> float:
    """The expected filter's, in training."""
    found = {
        v.metric: v.value
        for v in run_trial(spec, {}).values
        if (v.variant, v.split) == ("expected", "train")
    }
    return next(
        value for metric, value in found.items() if "disclosivity" not in metric and "rms" in metric
    )


def imbalance_of_peer(X: np.ndarray, groups: np.ndarray, alpha: float) -> float:
    return Peer(X, groups, alpha, ROUNDS).imbalance()


def compared(name: str) -> None:
    """Some budgets by ours and, in turn, by the algorithms as they are written."""
    with tempfile.TemporaryDirectory() as folder:
        for alpha in BUDGETS:
            works: dict[str, Callable[[], float]] = {}
            for tree in TREES:
                path = Path(folder, f"{tree}.yaml")
                path.write_text(file_of(name, tree, f"[{alpha}]"), encoding="utf-8")
                (task,) = prepare(path, offline=True).plan.tasks
                works[tree] = partial(imbalance_of_trial, task.payload)
            rows = load_trial_data(task.payload.data, 0, None, task.payload.case.sampling)
            train = np.flatnonzero(rows.sample.part == "train")
            X = rows.X[train] if isinstance(rows.X, np.ndarray) else rows.X[train].toarray()
            groups = np.unique(rows.sample.columns[GROUPS[name]][train], return_inverse=True)[1]
            works["as written"] = partial(imbalance_of_peer, X, groups, alpha)
            times = in_turn(works)
            shown = [
                f"{each} {np.median(times[each]):.2f} s, {works[each]():.4f};" for each in works
            ]
            ratio = ratio_text(times["as written"], times["nearest"])
            print(f"{name:5} alpha {alpha}:", *shown, f"{ratio} times `nearest`", flush=True)


def main() -> None:
    for name in GROUPS:
        try:
            for tree in TREES:
                seconds = grid_seconds(name, tree)
                print(
                    f"{name:5} 21 budgets, {tree}: {seconds:.1f} s (printed: {PRINTED[name]})",
                    flush=True,
                )
            with limit_to_one_thread():
                compared(name)
        except (FaultError, subprocess.CalledProcessError) as error:
            print(f"{name} left out: {getattr(error, 'stderr', error)}")


if __name__ == "__main__":
    main()
