"""Oracles that a file names: run, stored, shown, and read again as a deployed model."""

from __future__ import annotations

import csv
import re

import pytest
import yaml

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


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_runs_and_its_models_are_read_again(folder, cli):
    (folder / "first.yaml").write_text(FIRST)
    assert cli("run", "first.yaml", "-q", "-j", 1).code == 0
    found = rows(folder / "results" / "first" / "metrics.csv")
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
                  for row in rows(folder / "results" / "second" / "metrics.csv") if row["metric"] == "theirs"}  # fmt: skip
        assert theirs["train"] == pytest.approx(error[label, "deterministic", "3"], abs=1e-12)


def test_an_oracle_is_part_of_the_key_and_of_the_record(folder, cli):
    text = f"name: first\n{HEAD}algorithms:\n  - mixture: {{calls: 3, oracle: ORACLE}}\n"
    for oracle, stored in (("GaussianNB", 0), ("{GaussianNB: {var_smoothing: 0.1}}", 0),
                           ("GaussianNB", 1)):  # fmt: skip
        (folder / "first.yaml").write_text(text.replace("ORACLE", oracle))
        shown = cli("plan", "first.yaml").out
        assert re.search(rf"^all +1 +{stored} ", shown, re.MULTILINE)
        assert cli("run", "first.yaml", "-q", "-j", 1).code == 0
    resolved = yaml.safe_load((folder / "results" / "first" / "resolved.yaml").read_text())
    assert resolved["algorithms"][0]["mixture"]["oracle"] == "GaussianNB"


def test_show_says_what_an_oracle_may_be(cli):
    out = cli("show", "mixture").out
    assert "any scikit-learn classifier whose fit takes sample weights" in out
    assert "text | mapping" in out


def test_what_only_the_rows_tell_is_a_failed_trial(folder, cli):
    text = f"name: first\n{HEAD}algorithms:\n  - mixture: {{oracle: MultinomialNB}}\n"
    (folder / "first.yaml").write_text(text)
    answer = cli("run", "first.yaml", "-j", 1)
    assert answer.code == 1
    assert "MultinomialNB cannot be fitted: Negative values in data" in answer.out + answer.err
    assert "Traceback" not in answer.out + answer.err
