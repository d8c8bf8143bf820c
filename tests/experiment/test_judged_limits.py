"""What a goal is held to where validation rows judge it: what the other algorithm reaches there."""

import numpy as np
import pandas as pd
import pytest

from experiments import measured_values, run_file, write

FILE = """
name: judged
datasets: {few: {path: few.csv, label: y, split: {train: 0.2, validation: 0.4, test: 0.4}}}
groups: {women: sex = F}
objective: positive_rate
constraints: {price: 'error <= 1.1 * of(unconstrained, error)'}
algorithms:
  - unconstrained
  - mixture: {holds: validation}
metrics: {error: error}
"""


@pytest.fixture
def few(tmp_path):
    """Rows of so many features that 60 of them are fitted without an error, and others are not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 30))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    table = pd.DataFrame(X, columns=[f"x{k}" for k in range(30)])
    table.assign(y=y, sex=rng.choice(["F", "M"], 300)).to_csv(tmp_path / "few.csv", index=False)
    return tmp_path


def test_validation_limit_is_the_other_algorithms_validation_error(few):
    """On training rows that is next to nothing, which no classifier keeps on others.

    The status is that of the rows where constraints have to hold.
    """
    outcome, store = run_file(write(few, FILE))
    assert outcome.counts == {"ok": 2}
    errors = {}
    for trial in store.plan():
        errors[trial.label] = measured_values(trial, store.result(trial.key))
    plain, held = errors["unconstrained"], errors["mixture"]
    limit = 1.1 * plain["error", "validation"] + 1e-4
    assert 1.5 * plain["error", "train"] < held["error", "validation"] < limit
