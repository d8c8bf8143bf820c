"""A small experiment for the commands, their results, and the command line as a process."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

from ratecli.errors import FaultError
from ratecli.ledger.store import LedgerStore

SMALL = """\
# a small experiment
name: small
datasets:
  loans: {source: loans, rows: 200}
groups:
  women: sex = Female
  men: sex = Male
objective: error
constraints:
  parity: positive_rate[women] >= kappa * positive_rate[men]
sweep: {kappa: [0.6, 0.9]}
algorithms:
  - unconstrained
  - majorize: {iterations: 2}
seeds: 2
metrics:
  ratio: positive_rate[women] / positive_rate[men]
  error: error
report:
  plots: [{kind: tradeoff, x: ratio, y: error, file: tradeoff}]
"""
PLAIN = SMALL.partition("report:")[0].replace("metrics:", "report: {plots: []}\nmetrics:")
"""The same without a plot, which takes longer than the trials."""
TRIALS = 8


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def stored(ledger: Path) -> int:
    """Return the number of trials in a ledger, which a run may still be writing."""
    if not ledger.is_file():
        return 0
    try:
        with LedgerStore(ledger, readonly=True) as store:
            return len(store.known())
    except FaultError:  # being created
        return 0


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ratecli", *map(str, arguments)]


def process(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, timeout=600, **options
    )


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, **changes}


def quickstart() -> Path:
    return Path(__file__).parents[2] / "experiments" / "quickstart.yaml"
