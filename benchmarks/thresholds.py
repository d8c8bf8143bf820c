"""Thresholds of groups by ratecli and by other packages: processor time and error on training rows.

    pip install ./plugins/ratecli-peers                  # fairlearn and OxonFair
    pip install './plugins/ratecli-peers[error-parity]'  # requires NumPy 1
    python benchmarks/thresholds.py --rows 4000 40000

All get the same generated rows (`loans`) and the same logistic regression, which is fitted once.
The time is that of an algorithm less that of `unconstrained`, in one thread: the median of some
runs that alternate.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from ratecli.experiment.prepare import prepare
from ratecli.runner.trial import run_trial
from ratecli.runner.workers import limit_to_one_thread
from ratecli.solvers.base import Solver
from ratecli.solvers.registry import all_algorithms

FILE = """
name: thresholds
datasets: {{loans: {{source: loans, rows: {rows}, split: {{train: 0.99, test: 0.01}}}}}}
groups: {{women: sex = Female, men: sex = Male}}
constraints:
  ratio: demographic_parity_ratio(by=sex) >= 0.8
  tpr: max_gap(tpr, by=sex) <= 0.05
  odds: equalized_odds_difference(by=sex) <= 0.05
  recall: min(tpr[women], tpr[men]) >= 0.8
sweep: {{constraint: [ratio, tpr, odds, recall]}}
algorithms:
  - unconstrained: {{loss: logistic}}
  - post_shift
"""
PEERS = {
    "oxonfair": "oxonfair",
    "threshold_optimizer": "threshold_optimizer: {sweep: {constraint: [ratio, tpr, odds]}}",
    "error_parity": "error_parity: {sweep: {constraint: [ratio, tpr, odds]}}",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[4000, 40_000])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[*PEERS])
    options = parser.parse_args()
    peers = [name for name in options.peers if name in all_algorithms()]
    print("| rows | rule | algorithm | ms | times post_shift | training error |")
    print("|---|---|---|--:|--:|--:|")
    for rows in options.rows:
        text = FILE.format(rows=rows) + "".join(f"  - {PEERS[name]}\n" for name in peers)
        with tempfile.TemporaryDirectory() as folder, limit_to_one_thread():
            path = Path(folder) / "thresholds.yaml"
            path.write_text(text)
            measure(path, rows, options.runs)


def measure(path: Path, rows: int, runs: int) -> None:
    """Print a row for each rule and algorithm."""
    prepared, seconds, spent = prepare(path), defaultdict[Any, list[float]](list), [0.0]
    errors, solution = dict[Any, float](), Solver.solution

    def timed(*given: Any, **named: Any) -> Any:
        begun = time.process_time()
        found = solution(*given, **named)
        spent[0] = time.process_time() - begun
        return found

    tasks = {task.key: task.payload for task in prepared.plan.tasks}
    with patch.object(Solver, "solution", timed):
        for _ in range(runs):
            for trial in prepared.plan.planned:
                result, place = (
                    run_trial(tasks[trial.key], {}),
                    (trial.point["constraint"], trial.label),
                )
                seconds[place].append(spent[0])
                errors[place] = next(each.value for each in result.values if each.split == "train")
    for (rule, label), found in sorted(seconds.items()):
        if label == "unconstrained":
            continue
        fit, base = median(seconds[rule, "unconstrained"]), median(seconds[rule, "post_shift"])
        own, base = median(found) - fit, base - fit
        shown = f"{1000 * own:.1f} | {own / base:.1f} | {errors[rule, label]:.4f}"
        print(f"| {rows:,} | {rule} | `{label}` | {shown} |")


if __name__ == "__main__":
    main()
