"""`run --smoke`: a trial of each algorithm, which is the trial that the whole run would have."""

from __future__ import annotations

import pandas as pd

TWO = """
name: two
datasets:
  a: {source: loans, rows: 200}
  b: {source: loans, rows: 300}
groups: {women: sex = Female, men: sex = Male}
objective: error
constraints: {close: 'error <= slack * of(unconstrained, error)'}
sweep: {dataset: [a, b], slack: [1.1, 1.2]}
algorithms:
  - unconstrained
  - thresholded
report: {plots: []}
"""


def test_smoke_runs_one_trial_of_each_algorithm_and_data_set(folder, cli):
    (folder / "two.yaml").write_text(TWO)
    answer = cli("run", "two.yaml", "--smoke", "--executor", "serial")
    assert answer.code == 0
    said = "two: 4 trials: 4 ok (4 run now)\n4 more trials planned: run without --smoke"
    assert said in answer.out
    few = pd.read_csv("results/two/metrics.csv")
    ran = few[["algorithm", "dataset", "slack", "seed"]].drop_duplicates().to_numpy().tolist()
    both = [
        [name, dataset, 1.1, 0] for name in ("thresholded", "unconstrained") for dataset in "ab"
    ]
    assert sorted(ran) == both
    assert cli("check", "two.yaml").code == 3
    assert cli("pin", "two.yaml").code == 2

    answer = cli("run", "two.yaml", "--executor", "serial")
    assert "8 trials: 8 ok (4 run now)" in answer.out
    assert "--smoke" not in answer.out
    both = few.merge(pd.read_csv("results/two/metrics.csv"), how="inner")
    assert len(both) == len(few)
