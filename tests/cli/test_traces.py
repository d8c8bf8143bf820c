"""Traces of all algorithms have the same columns, for plots of convergence."""

from __future__ import annotations

import math

import pytest

from ratecli.ledger.records import CONSTRAINT_TOLERANCE
from ratecli.ledger.view import Ledger

TEXT = """\
name: traces
datasets: {d: {source: loans, rows: 300, split: {validation: 0.2}}}
groups: {women: sex = Female, men: sex = Male}
constraints: {parity: 'positive_rate[women] >= 0.8 * positive_rate[men]'}
algorithms:
  - unconstrained
  - thresholded
  - thresholded: {as: plug_in, free: true}
  - zafar
  - post_shift
  - majorize: {iterations: 3}
  - mixture
  - three_player: {steps: 40, tune: {learning_rate: [0.01, 0.1]}}
  - exponentiated_gradient: {iterations: 5}
"""


def test_columns_of_traces(folder, cli):
    pytest.importorskip("fairlearn")
    (folder / "traces.yaml").write_text(TEXT)
    answer = cli("run", "traces.yaml", "-q", "--executor", "serial")
    assert answer.code == 0, answer.err
    ledger = Ledger.read(folder / "results" / "traces" / "trials.sqlite")
    traces = {trial.label: ledger.results[trial.key].trace for trial in ledger.plan}
    assert {label for label, trace in traces.items() if not trace} == {"unconstrained"}
    for label, trace in traces.items():
        rows = [[row[key] for key in ("iteration", "seconds")] for row in trace]
        assert rows == sorted(rows), label
        assert all(row["violation"] >= 0 for row in trace), label
        assert all(not math.isnan(row["objective"]) for row in trace), label
    found = {
        (each.trial.label, each.split, each.metric): each.value for each in ledger.measurements()
    }
    for label in ("thresholded", "plug_in", "zafar"):
        measured = found[label, "train", "violation.parity"]
        assert traces[label][0]["violation"] == pytest.approx(max(measured, 0.0), abs=1e-9), label
    assert traces["plug_in"][0]["violation"] > CONSTRAINT_TOLERANCE
    assert [row["iteration"] for row in traces["three_player"]] == [0, 10, 20, 30, 40]
    assert traces["mixture"][-1]["violation"] <= CONSTRAINT_TOLERANCE
