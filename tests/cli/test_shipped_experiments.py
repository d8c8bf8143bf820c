"""The files under experiments/ are what the language takes, without their data too."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratecli.spec.experiment import load_experiment

FOLDER = Path(__file__).parents[2] / "experiments"
FILES = sorted(FOLDER.rglob("*.yaml"))
FIGURE_2 = [FOLDER / "goh2016" / name for name in ("figure2.yaml", "figure2-column39.yaml")]


def test_every_experiment_has_a_name_of_its_own():
    names = [load_experiment(path)[0].name for path in FILES]
    assert len(names) == len(set(names)) > 3


@pytest.mark.parametrize("path", FIGURE_2, ids=lambda path: path.stem)
def test_both_panels_of_figure_2_are_asked_for(cli, path):
    answer = cli("validate", path)
    assert (answer.code, answer.err) == (0, "")
    labels = [entry.label for entry in load_experiment(path)[0].algorithms]
    assert labels == ["unconstrained", "majorize", "zafar"]
    (target,) = load_experiment(path)[0].algorithms[1].sweep.axes.values()
    assert target.endswith(", 96)")
    axes = {(plot.x, plot.y, plot.split) for plot in load_experiment(path)[0].report.plots}
    assert {("ratio", "error", "test"), ("target", "ratio", "test")} < axes
