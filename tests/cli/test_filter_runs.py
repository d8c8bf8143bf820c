"""Runs with a filter before training, by the command line: what they leave and say."""

from __future__ import annotations

import pandas as pd

LOANS = """\
name: filtered
datasets: {loans: {source: loans, rows: 1500}}
groups: {women: sex = Female, men: sex = Male}
filter: {balance: sex, disclosivity: alpha}
sweep: {alpha: [0.05, 0.3], kappa: [0.8]}
constraints: {parity: 'positive_rate[women] >= kappa * positive_rate[men]'}
algorithms:
  - unconstrained
  - unconstrained: {as: all_rows, filter: false}
seeds: 2
metrics: {error: error, ratio: 'positive_rate[women] / positive_rate[men]'}
"""
REPORT = """\
report:
  tables:
    - {rows: [algorithm, alpha], columns: [error, ratio], file: errors}
    - {rows: [alpha], columns: [filter.kept, filter.least_share], file: kept}
  plots:
    - {kind: tradeoff, x: alpha, y: filter.disclosivity, file: secret}
    - {kind: tradeoff, x: ratio, y: error, file: errors}
    - {kind: convergence, file: course}
    - {kind: group_shares, at: {alpha: [0.3]}, file: kept}
expect:
  - {algorithm: filter, metric: filter.kept, split: train, at_least: 0.05}
  - {algorithm: filter, metric: violation.disclosivity, split: train, at_most: 0.000001}
"""


def test_metrics_models_and_tables_of_a_run(folder, cli):
    (folder / "exp.yaml").write_text(LOANS)
    answer = cli("run", "exp.yaml", "--jobs", "1")
    assert answer.code == 0, answer.err
    results = folder / "results" / "filtered"
    metrics = pd.read_csv(results / "metrics.csv")
    own = metrics[metrics.algorithm == "filter"]
    assert set(own.metric) == {
        "filter.imbalance",
        "filter.disclosivity",
        "filter.kept",
        "filter.least_share",
        "violation.disclosivity",
    }
    others = metrics[metrics.algorithm != "filter"]
    assert set(others.metric) == {"objective", "error", "ratio", "violation.parity"}
    assert own.kappa.notna().all()  # a name that all users have in common
    least = own[(own.metric == "filter.least_share") & (own.split == "train")]
    assert least.value.min() > 0.45
    models = {path.name for path in (results / "models").iterdir()}
    assert {"filter-alpha=0.05-kappa=0.8-seed=0", "filter-alpha=0.3-kappa=0.8-seed=1"} <= models
    assert "filter: {balance: sex" in (results / "experiment.yaml").read_text()
    assert "  take: weights" in (results / "resolved.yaml").read_text()

    text = (results / "summary.md").read_text()
    first, *stage, promises = text.split("\n## ")[1:]
    assert first.startswith("Table 1 (test)")
    assert "| filter " not in first
    assert "filter." not in first
    assert [part.splitlines()[0] for part in stage] == [
        "The filter before training (train)",
        "The filter before training (test)",
    ]
    for part in stage:
        head, _, *rows = (line for line in part.splitlines() if line.startswith("|"))
        assert [cell.strip() for cell in head.strip("|").split("|")] == [
            "algorithm", "variant", "alpha", "kappa", "filter.imbalance", "filter.disclosivity",
            "filter.kept", "filter.least_share", "n", "status",
        ]  # fmt: skip
        assert len(rows) == 2
        assert all("ok 2" in row and "|  |" not in row for row in rows)
    assert "| filter " not in promises


def test_plots_tables_and_expectations_of_a_filter(folder, cli):
    (folder / "exp.yaml").write_text(LOANS + REPORT)
    answer = cli("run", "exp.yaml", "--jobs", "1")
    assert answer.code == 0, answer.err
    results = folder / "results" / "filtered"
    errors, kept = ((results / "tables" / f"{name}.md").read_text() for name in ("errors", "kept"))
    assert "| filter" not in errors
    rows = [line for line in kept.splitlines() if line.startswith("|")]
    assert len(rows) == 4  # a head, a line, and a row for each alpha
    svg = (results / "figures" / "secret.svg").read_text()
    assert "filter" in svg
    assert "all_rows" not in svg
    assert "uniform share" in (results / "figures" / "kept.svg").read_text()
    assert "filter" not in (results / "figures" / "course.svg").read_text()
    summary = pd.read_csv(results / "summary.csv")
    expected = summary[summary.expect.notna()]
    assert set(expected.verdict) == {"holds"}
    assert len(expected) == 4
    page = (results / "report.html").read_text()
    assert "The filter before training (test)" in page


def test_a_report_about_a_filter_needs_one(folder, cli):
    plain = LOANS.replace("filter: {balance: sex, disclosivity: alpha}\n", "") + REPORT
    (folder / "exp.yaml").write_text(plain)
    answer = cli("validate", "exp.yaml")
    assert answer.code == 2
    assert answer.err.count("error[E208]") == 6
    assert "there is no 'filter' here" in answer.err


def test_validate_plan_and_explain(folder, cli):
    (folder / "exp.yaml").write_text(LOANS)
    assert cli("validate", "exp.yaml").out == "exp.yaml: no errors, 12 trials\n"
    answer = cli("plan", "exp.yaml")
    assert "filter" in answer.out
    assert not (folder / "results").exists()
    shown = cli("explain", "exp.yaml").out
    assert "  training rows count by the chance that they are kept\n" in shown
    assert "    subject to  disclosivity(by=sex) <= 0.05\n" in shown
