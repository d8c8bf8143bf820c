"""Oracles named in a file: run, stored, and read again as a deployed model."""

from __future__ import annotations

import pytest
from small import read_rows

HEAD = """\
datasets: {loans: {source: loans, rows: 300}}
groups: {women: sex = Female, men: sex = Male}
constraints: {parity: 'positive_rate[women] >= 0.8 * positive_rate[men]'}
"""
ORACLES = {
    "tree": "{DecisionTreeClassifier: {max_depth: depth}}",
    "boosting": "{HistGradientBoostingClassifier: {max_iter: 5, max_depth: depth}}",
    "bayes": "GaussianNB",
    "logistic": "LogisticRegression",
    "weighed": "{plugin: {probabilities: GaussianNB}}",
    "groups": "{plugin: {groups: true}}",
}
FIRST = f"name: first\n{HEAD}sweep: {{depth: [1, 3]}}\nalgorithms:\n" + "".join(
    f"  - mixture: {{as: {label}, calls: 4, oracle: {oracle}}}\n"
    for label, oracle in ORACLES.items()
)
SECOND = f"""\
name: second
{HEAD}
algorithms: [unconstrained]
deployed: {{model: results/first/models/LABEL-depth=3-seed=0/VARIANT.npz}}
metrics: {{churn: churn, theirs: 'of(deployed, error)'}}
"""


def test_each_oracle_runs_and_its_models_can_be_deployed(folder, cli):
    (folder / "first.yaml").write_text(FIRST)
    assert cli("run", "first.yaml", "-q", "-j", 1).code == 0
    found = read_rows(folder / "results" / "first" / "metrics.csv")
    error = {
        (row["algorithm"], row["variant"], row["depth"]): float(row["value"])
        for row in found
        if (row["metric"], row["split"]) == ("objective", "train")
    }
    assert {label for label, _, _ in error} == set(ORACLES)
    assert max(error[label, "stochastic", "3"] for label in ORACLES) < 0.45
    assert error["tree", "stochastic", "1"] > error["tree", "stochastic", "3"]
    missed = [float(row["value"]) for row in found
              if (row["metric"], row["split"], row["variant"]) == ("violation.parity", "train", "stochastic")]  # fmt: skip
    assert max(missed) <= 1e-6
    for label in ("tree", "boosting", "weighed", "groups"):
        text = SECOND.replace("LABEL", label).replace("VARIANT", "deterministic")
        (folder / "second.yaml").write_text(text)
        assert cli("run", "second.yaml", "-q", "-j", 1).code == 0
        theirs = {row["split"]: float(row["value"])
                  for row in read_rows(folder / "results" / "second" / "metrics.csv") if row["metric"] == "theirs"}  # fmt: skip
        assert theirs["train"] == pytest.approx(error[label, "deterministic", "3"], abs=1e-12)
