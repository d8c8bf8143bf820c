"""A goal compares two algorithms on the same rows, wherever it is measured."""

import numpy as np
import pandas as pd
import pytest

from experiments import measured_values, run_file, write
from ratecli.ledger.records import NEW_DATA_KEY

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


def test_an_algorithm_never_exceeds_a_multiple_of_its_own_error(few):
    """Its violation is a tenth of its error; paired rows make the standard error small, too."""
    _, store = run_file(write(few, FILE))
    trial = next(each for each in store.plan() if each.label == "unconstrained")
    result = store.result(trial.key)
    plain, test = measured_values(trial, result), result.info["rows"]["test"]
    for split in ("train", "validation", "test"):
        assert plain["violation.price", split] == pytest.approx(-0.1 * plain["error", split])
    ((value, error),) = result.info[NEW_DATA_KEY]["pieces"]["deterministic"].popitem()[1]
    p = plain["error", "test"]
    assert value == pytest.approx(-0.1 * p)
    assert error < 0.2 * np.sqrt(p * (1 - p) / test)


def test_an_algorithm_has_exactly_its_own_error(few):
    """Both algorithms decide all rows alike, so the difference has no sampling error."""
    _, store = run_file(write(few, FILE.replace("1.1 * ", "")))
    trial = next(each for each in store.plan() if each.label == "unconstrained")
    (pieces,) = store.result(trial.key).info[NEW_DATA_KEY]["pieces"]["deterministic"].values()
    assert pieces == [[0.0, pytest.approx(0.0, abs=1e-12)]]
