"""Small experiments on tables that a test writes itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ratecli.experiment.prepare import prepare
from ratecli.files import LEDGER_FILE
from ratecli.ledger.store import LedgerStore
from ratecli.runner.executors import SerialExecutor
from ratecli.runner.run import RunOutcome, run_experiment


def people(rows: int, seed: int) -> pd.DataFrame:
    """Two groups, two features that tell something, a deployed model that only knows one of them."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], rows)
    x = rng.normal(size=rows) + 0.8 * (sex == "M")
    z = rng.normal(size=rows)
    y = (x + z + 0.7 * rng.normal(size=rows) > 0.4).astype(int)
    deployed = (x > 0.3).astype(int)
    return pd.DataFrame({"sex": sex, "x": x, "z": z, "y": y, "old": deployed})


def write(folder: Path, text: str, name: str = "exp.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def run_file(path: Path, *overrides: str) -> tuple[RunOutcome, LedgerStore]:
    """The outcome and the open ledger of a serial run in the file's folder."""
    folder = path.parent / "results"
    outcome = run_experiment(prepare(path, overrides), folder, SerialExecutor(), quiet=True)
    return outcome, LedgerStore(folder / LEDGER_FILE, readonly=True)
