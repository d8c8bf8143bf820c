"""Problems with a safety test, on small data."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from oracles.goals import Rows, Rules, problem, smooth_rows

from ratecli.certify.trees import SafetyMethod, SafetyTestSpec
from ratecli.solvers.problem import Problem

GAP = "abs(positive_rate[g = a] - positive_rate[g = c]) <= 0.1"
RATIO = "min_ratio(positive_rate, by=g) >= 0.7"


def promised(
    rows: Rows,
    rules: Mapping[str, str],
    objective: str = "error",
    *,
    l2: float = 1e-3,
    bound: str = "student_t",
    method: SafetyMethod = "leaves",
    tests: int = 600,
) -> Problem:
    """Return a problem with a delta of 0.05 for each constraint, tested on `tests` rows."""
    made = problem(rows, Rules(rules, objective), l2)
    spec = SafetyTestSpec(dict.fromkeys(rules, 0.05), tests, bound, method)
    return replace(made, label=rows.label, safety_test=spec)


def numbers(seed: int, n: int = 300, d: int = 3) -> Rows:
    """Return rows with numeric labels between -3 and 3, which are higher in one group."""
    rows = smooth_rows(seed, n=n, d=d)
    rng = np.random.default_rng(seed)
    label = rows.X @ np.linspace(0.2, 0.5, d) + 0.3 * (rows.group == "a") + 0.4 * rng.normal(size=n)
    return replace(rows, label=np.clip(label, -3, 3))


def numeric(
    rows: Rows, rules: Mapping[str, str], objective: str = "mse", **more: object
) -> Problem:
    return replace(promised(rows, rules, objective, **more), label_range=(-3.0, 3.0))  # type: ignore[arg-type]
