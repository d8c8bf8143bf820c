"""A small experiment for the commands, and the command line as a process of its own."""

from __future__ import annotations

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
PLAIN = SMALL.partition("report:")[0]
"""The same without a plot: to draw takes longer than the trials."""
TRIALS = 8


def stored(ledger: Path) -> int:
    """How many trials a ledger has, of a run that may still be at it."""
    if not ledger.is_file():
        return 0
    try:
        with LedgerStore(ledger, readonly=True) as store:
            return len(store.known())
    except FaultError:  # it is only being made
        return 0


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ratecli", *map(str, arguments)]


def process(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, timeout=120, **options
    )


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, **changes}


def quickstart() -> Path:
    return Path(__file__).parents[2] / "experiments" / "quickstart.yaml"
