"""Small experiments on tables that a test writes itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.prepare import prepare
from ratecli.files import LEDGER_FILE
from ratecli.ledger.records import PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.runner.executors import Executor
from ratecli.runner.run import RunOutcome, RunRequest, run_experiments

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
COMPARISON = sorted(EXPERIMENTS.glob("comparison*/*.yaml"))
"""Files with algorithms of plugins/ratecli-peers, whose tests check them."""
SHIPPED = sorted(
    {*EXPERIMENTS.rglob("*.yaml")} - {*EXPERIMENTS.rglob("comparison*.yaml"), *COMPARISON}
)


def people(rows: int, seed: int) -> pd.DataFrame:
    """Return two groups, two informative features, and a deployed model that uses one."""
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
    """Run a file serially in its folder; return the outcome and the open ledger."""
    folder = path.parent / "results"
    outcomes, request = [], RunRequest(prepare(path, overrides), folder)
    run_experiments([request], Executor(), outcomes.append, quiet=True)
    return outcomes[0], LedgerStore(folder / LEDGER_FILE, readonly=True)


def faults(path: Path, *overrides: str) -> list[Diagnostic]:
    """Return the errors of a file that cannot be prepared."""
    with pytest.raises(FaultError) as caught:
        prepare(path, overrides)
    return list(caught.value.faults)


def measured_values(
    planned: PlannedTrial, result: TrialResult, variant: str = ""
) -> dict[tuple[str, str], float]:
    """Return the values of a variant (default: the main one) by metric and split."""
    variant = variant or result.values[0].variant
    return {
        (name, value.split): value.value
        for name, metric in planned.metrics.items()
        for value in result.values
        if (value.variant, value.metric) == (variant, metric)
    }
