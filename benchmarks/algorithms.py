"""Seconds of a trial of each algorithm on 1,000, 100,000 and 10 million generated rows.

The task is the same for all algorithms that can do it: the smallest error with a ratio of selection
rates of at least 0.8 (docs/generate.py has the results). Filters limit disclosivity;
`least_squares` limits the mean errors of two groups in a table of numbers, read from Parquet files. Each trial runs in a process
of its own with one thread, and is stopped after `--limit` seconds. Printed are processor seconds of
loading the rows, training and measuring, and the peak memory of the process:

    python benchmarks/algorithms.py --rows 1000 100000 --algorithms post_shift mixture
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from ratecli.experiment.prepare import prepare
from ratecli.runner.trial import run_trial
from ratecli.runner.workers import limit_to_one_thread
from ratecli.solvers.registry import ranked_algorithms

ROWS = (1_000, 100_000, 10_000_000)
MOST_ROWS = 5_000_000
"""Rows of one generated data set; more rows are several data sets."""
FILTERS = ("balanced_tree", "qp_proxy", "naive_proxy")
SAFETY = {"safety": {"delta": 0.05}}


def experiment(algorithm: str, rows: int) -> dict[str, Any]:
    """Return the content of an experiment file with one trial."""
    sizes = [min(MOST_ROWS, rows - start) for start in range(0, rows, MOST_ROWS)]
    options = SAFETY if algorithm in {"seldonian", "audit"} else {}
    content: dict[str, Any] = {
        "name": "timed",
        "datasets": {
            f"d{k}": {"source": "loans", "rows": size, "seed": k} for k, size in enumerate(sizes)
        },
        "constraints": {"parity": "demographic_parity_ratio(by=sex) >= 0.8"},
        "algorithms": [{algorithm: options}],
        "seeds": 2 if rows < MOST_ROWS else 1,  # the first trial loads compiled code
    }
    if algorithm in FILTERS:
        content |= {
            "objective": "imbalance(by=sex)",
            "constraints": {"disclosed": "disclosivity(by=sex) <= 0.2"},
        }
    if algorithm == "audit":
        for each in content["datasets"].values():
            each["preparation"] = "deployed"
        content["deployed"] = {"column": "approved"}
    if algorithm == "least_squares":
        content |= {
            "datasets": {
                name: {"path": f"{name}.parquet", "label": "y", "target": "number"}
                | {"features": [f"x{j}" for j in range(10)]}
                for name in content["datasets"]
            },
            "objective": "mse",
            "constraints": {
                "women": "abs(mean_error[sex = Female]) <= 0.1",
                "men": "abs(mean_error[sex = Male]) <= 0.1",
            },
        }
    return content


def write_numbers(folder: Path, rows: int) -> None:
    """Write the tables of `least_squares`: ten features, a group and a label that is a number."""
    for k, start in enumerate(range(0, rows, MOST_ROWS)):
        rng = np.random.default_rng(k)
        X = rng.normal(size=(min(MOST_ROWS, rows - start), 10))
        female = rng.random(len(X)) < 0.45
        label = X @ np.linspace(-1, 1, 10) + female + rng.normal(size=len(X))
        table = pd.DataFrame(X, columns=[f"x{j}" for j in range(10)])
        table = table.assign(sex=np.where(female, "Female", "Male"), y=label)
        table.to_parquet(folder / f"d{k}.parquet")


def run(path: Path) -> None:
    """Train and measure the last trial of a file; print its processor seconds and status."""
    *before, task = prepare(path, offline=True).plan.tasks
    with limit_to_one_thread():
        results = {each.payload.key: run_trial(each.payload, {}) for each in before}
        begun = time.process_time()
        result = run_trial(task.payload, results)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{time.process_time() - begun:10.2f} s  {memory:6.2f} GiB  {result.status}")


def measured(algorithm: str, rows: int, limit: float) -> str:
    """Return what a process prints about a trial, or why there is nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timed.yaml"
        path.write_text(yaml.safe_dump(experiment(algorithm, rows)))
        if algorithm == "least_squares":
            write_numbers(path.parent, rows)
        command = [sys.executable, __file__, "--file", str(path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return f"stopped after {limit:g} s"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[-1] if lines else f"ended with {done.returncode} (-9: the memory was not enough)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument(
        "--algorithms", nargs="+", default=[each.name for each in ranked_algorithms()]
    )
    parser.add_argument("--limit", type=float, default=900.0)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.file:
        run(asked.file)
        return
    for algorithm in asked.algorithms:
        for rows in asked.rows:
            print(
                f"{algorithm:24}{rows:>12,}  {measured(algorithm, rows, asked.limit)}", flush=True
            )


if __name__ == "__main__":
    main()
