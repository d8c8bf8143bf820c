"""Trials that diverge have a status and no numbers."""

from __future__ import annotations

import re

from small import read_rows

FILE = """\
name: long
datasets: {loans: {source: loans, rows: 300, split: {validation: 1/3}}}
groups: {women: sex = Female}
objective: kl(base_rate, positive_rate[women])
constraints: {a: error <= 0.3}
algorithms:
  - three_player: {as: steps, steps: 60, optimizer: sgd, rates: surrogate, learning_rate: 1e+10}
  - three_player: {as: prices, steps: 60, multipliers: swap_regret, multiplier_rate: 1e+10}
  - three_player: {as: oracle, steps: 20, oracle: linear, multipliers: swap_regret,
      multiplier_rate: 1e+10}
  - three_player: {as: grid, steps: 60, optimizer: sgd, rates: surrogate,
      tune: {learning_rate: [0.1, 1e+10]}}
report: {tables: [{rows: [algorithm, variant], columns: [objective]}]}
"""


def test_a_diverged_trial_has_no_numbers(folder, cli):
    (folder / "long.yaml").write_text(FILE)
    answer = cli("run", "long.yaml", "-j", 1)
    assert answer.code == 0
    written = folder / "results" / "long"
    rows = read_rows(written / "metrics.csv")
    assert {row["algorithm"] for row in rows} == {"grid"}
    assert all(re.fullmatch(r"-?\d.*", row["value"]) for row in rows)
    summary = (written / "summary.md").read_text()
    assert "nan" not in summary
    for label in ("steps", "prices", "oracle"):
        assert re.search(rf"\| {label} .*\| diverged 1 *\|", summary)
    assert "lower multiplier_rate" in (written / "report.html").read_text()
