"""Lines of constraints in trade-off plots."""

from __future__ import annotations

import pytest

from ratecli.experiment.meta import report_metadata
from ratecli.experiment.prepare import prepare

FILE = """\
name: x
datasets: {d: {source: loans, rows: 200}}
groups: {women: sex = Female, men: sex = Male}
constraints:
  parity: positive_rate[women] >= kappa * positive_rate[men]
  cover: positive_rate <= 0.4
sweep: {kappa: [0.5, 0.8]}
algorithms: [majorize]
metrics: {ratio: 'positive_rate[women] / positive_rate[men]', cover: positive_rate}
report: {plots: [%s]}
"""
LIMIT = {"value": 0.0, "label": "limit"}
COVER = {"value": 0.4, "label": "cover: 0.4"}


def parity(kappa, **more):
    return {"value": kappa, "label": f"parity: {kappa:g}"} | more


@pytest.mark.parametrize(
    ("plot", "levels", "heights"),
    [
        ("{kind: tradeoff, x: ratio, y: cover}", [parity(0.5), parity(0.8)], [COVER]),
        (
            "{kind: tradeoff, x: ratio, y: objective, by: kappa}",
            [parity(0.5, panel=0.5), parity(0.8, panel=0.8)],
            [],
        ),
        ("{kind: tradeoff, x: violation.parity, y: violation.cover, by: kappa}", [LIMIT], [LIMIT]),
        # along what is swept a limit of y would be another one at each place
        ("{kind: tradeoff, x: kappa, y: ratio}", [], []),
        ("{kind: tradeoff, x: kappa, y: violation.parity}", [], [LIMIT]),
    ],
)
def test_lines_of_a_tradeoff(tmp_path, plot, levels, heights):
    path = tmp_path / "exp.yaml"
    path.write_text(FILE % f"{plot}, {{kind: convergence}}")
    lines = {"levels": levels, "heights": heights}
    assert report_metadata(prepare(path))["plots"] == [lines, {}]
