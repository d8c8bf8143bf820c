"""Runs with a filter before training, by the command line: what they leave and say."""

import pandas as pd

STAGE = "filter: {balance: sex, disclosivity: alpha}\n"
LOANS = f"""\
name: filtered
datasets: {{loans: {{source: loans, rows: 1500}}}}
groups: {{women: sex = Female, men: sex = Male}}
{STAGE}sweep: {{alpha: [0.05, 0.3], kappa: [0.8]}}
constraints: {{parity: 'positive_rate[women] >= kappa * positive_rate[men]'}}
algorithms:
  - unconstrained
  - unconstrained: {{as: all_rows, filter: false}}
seeds: 2
metrics: {{error: error, ratio: 'positive_rate[women] / positive_rate[men]'}}
report:
  tables:
    - {{rows: [algorithm, alpha], columns: [error, ratio], file: errors}}
    - {{rows: [alpha], columns: [filter.kept, filter.least_share], file: kept}}
  plots:
    - {{kind: tradeoff, x: alpha, y: filter.disclosivity, file: secret}}
    - {{kind: convergence, file: course}}
    - {{kind: group_shares, at: {{alpha: [0.3]}}, file: kept}}
expect:
  - {{algorithm: filter, metric: filter.kept, split: train, at_least: 0.05}}
  - {{algorithm: filter, metric: violation.disclosivity, split: train, at_most: 0.000001}}
"""
METRICS = {"filter.imbalance", "filter.disclosivity", "filter.kept", "filter.least_share"}


def test_files_of_a_run_with_a_filter(folder, cli):
    (folder / "exp.yaml").write_text(LOANS)
    answer = cli("run", "exp.yaml", "--jobs", "1")
    assert answer.code == 0, answer.err
    results = folder / "results" / "filtered"
    metrics = pd.read_csv(results / "metrics.csv")
    own, others = (metrics[(metrics.algorithm == "filter") == is_own] for is_own in (True, False))
    assert set(own.metric) == {*METRICS, "violation.disclosivity"}
    assert set(others.metric) == {"objective", "error", "ratio", "violation.parity"}
    assert own.kappa.notna().all()  # a name that all users have in common
    least = own[(own.metric == "filter.least_share") & (own.split == "train")]
    assert least.value.min() > 0.45
    assert (results / "models" / "filter-alpha=0.05-kappa=0.8-seed=0").is_dir()
    _, *parts = (results / "summary.md").read_text().split("\n## ")
    stage = [part for part in parts if part.startswith("The filter before training (")]
    assert len(stage) == 2  # of training and of test rows
    for part in stage:
        head, _, *rows = (line for line in part.splitlines() if line.startswith("|"))
        assert {cell.strip() for cell in head.split("|")} >= {"alpha", "kappa", *METRICS}
        assert ["ok 2" in row for row in rows] == [True, True]
    assert not any("| filter " in part for part in parts if part.startswith("Table"))
    assert (results / "tables" / "kept.md").read_text().count("\n|") >= 3
    secret, shares, course = (
        (results / "figures" / f"{name}.svg").read_text() for name in ("secret", "kept", "course")
    )
    assert "filter" in secret
    assert "all_rows" not in secret
    assert "uniform share" in shares
    assert "filter" not in course
    summary = pd.read_csv(results / "summary.csv")
    assert summary.verdict.dropna().tolist() == ["holds"] * 4
    assert "The filter before training (test)" in (results / "report.html").read_text()


def test_a_report_about_a_filter_needs_one(folder, cli):
    (folder / "exp.yaml").write_text(LOANS.replace(STAGE, ""))
    answer = cli("validate", "exp.yaml")
    assert answer.code == 2
    assert answer.err.count("error[E208]") == 7
    assert "there is no 'filter' here" in answer.err


def test_validate_plan_and_explain(folder, cli):
    (folder / "exp.yaml").write_text(LOANS)
    assert cli("validate", "exp.yaml").out == "exp.yaml: no errors, 12 trials\n"
    assert "filter" in cli("plan", "exp.yaml").out
    shown = cli("explain", "exp.yaml").out
    assert "  each training row is weighted by the probability that it is kept\n" in shown
    assert "    subject to  disclosivity(by=sex) <= 0.05\n" in shown


def test_a_group_that_the_filter_empties_names_the_filter(folder, cli):
    """All women in the north have x = 0, which the filter drops."""
    rows = [
        f"{s},south,{x},{y}" for s, x in (("F", 1), ("M", 1)) for y in (0, 1) for _ in range(60)
    ]
    rows += [f"M,south,0,{y}" for y in (0, 1) for _ in range(1500)]
    rows += [f"M,north,1,{y}" for y in (0, 1) for _ in range(60)]
    rows += [f"F,north,0,{y}" for y in (0, 1) for _ in range(60)]
    (folder / "t.csv").write_text("\n".join(["sex,region,x,y", *rows]) + "\n")
    (folder / "exp.yaml").write_text(
        "name: empty\n"
        "datasets: {t: {path: t.csv, label: y, positive: 1, drop: [sex, region]}}\n"
        "filter: {balance: sex}\n"
        "constraints: {fair: 'max_gap(positive_rate, by=[sex, region]) <= 0.1'}\n"
        "algorithms: [mixture]\n"
    )
    answer = cli("run", "exp.yaml", "--jobs", "1")
    assert "[W412]: 'filter' keeps only" in answer.err
    reason = pd.read_csv(folder / "results" / "empty" / "trials.csv").reason.dropna().item()
    assert "is a mean over no rows" in reason
    assert "the filter is the cause" in reason
