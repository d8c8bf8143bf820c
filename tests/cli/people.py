"""A table of people, experiments on it, and what a run of them leaves."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
from small import read_rows

DATA = "path: people.csv, drop: [part, sex], categorical: [zip], split: {by: part}"
EXPERIMENTS = {
    "first": f"""\
name: first
datasets: {{people: {{label: y, {DATA}}}}}
groups: {{women: sex=F, men: sex = M, low: x<0}}
constraints: {{parity: 'positive_rate[women] >= 0.95 * positive_rate[men]'}}
algorithms:
  - unconstrained
  - majorize: {{iterations: 2}}
  - post_shift
  - mixture: {{model: {{DecisionTreeClassifier: {{max_depth: 2}}}}}}
  - majorize: {{as: ramp, iterations: 2, randomize: true, variants: [deterministic]}}
metrics: {{error: error, women: 'positive_rate[women]', auc: roc_auc}}
""",
    "numbers": f"""\
name: numbers
datasets: {{people: {{label: z, target: number, {DATA}}}}}
algorithms: [unconstrained: {{loss: squared}}]
metrics: {{mse: mse}}
""",
    "levels": f"""\
name: levels
datasets: {{people: {{label: y, levels: 3, {DATA}}}}}
algorithms: [unconstrained]
""",
    "clicks": """\
name: clicks
datasets: {clicks: {source: clicks, rows: 600}}
algorithms: [unconstrained]
""",
}


def people() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 240
    sex, job = rng.choice(["F", "M"], n), rng.choice(["smith", "clerk, junior", ""], n)
    x, z = rng.normal(size=n) + 1.2 * (sex == "M"), 5 + 2 * rng.normal(size=n)
    y = (x + 0.5 * (z - 5) + 0.3 * (job == "smith") + 0.7 * rng.normal(size=n) > 0.6).astype(int)
    part = np.where(np.arange(n) % 3 == 0, "test", "train")
    code = rng.choice(["01", "02", "3a"], n)
    return pd.DataFrame({"sex": sex, "x": x, "z": z, "job": job, "zip": code, "y": y, "part": part})


def trial(algorithm: str, experiment: str = "first") -> str:
    return f"results/{experiment}/models/{algorithm}-seed=0"


def read(text: str) -> pd.DataFrame:
    """Return the table that a command printed."""
    return pd.read_csv(io.StringIO(text), keep_default_na=False, dtype={"zip": str})


def measured(experiment: str, algorithm: str, variant: str) -> dict[tuple[str, str], float]:
    """Return the metrics of the run in the working folder, by name and split."""
    return {
        (row["metric"], row["split"]): float(row["value"])
        for row in read_rows(Path("results") / experiment / "metrics.csv")
        if (row["algorithm"], row["variant"]) == (algorithm, variant)
    }
