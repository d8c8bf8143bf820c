"""The files under experiments/ are valid, agree with their data, and can be run.

Those of `goals` are run one by one in test_goal_examples.py; those of `comparison*` need a plugin,
whose tests check them.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from entries import load_entry_table
from small import read_rows

from experiments import COMPARISON, EXPERIMENTS, SHIPPED
from ratecli.config.experiment import load_experiment
from ratecli.datasets.sources import clicks
from ratecli.experiment.prepare import check_file, list_missing_files

MIRROR = os.environ.get("RATECLI_DATA_MIRROR", "")
PAPER = EXPERIMENTS / "goh2016"
CLICKS = PAPER / "figure3-clicks.yaml"

LIGHT = [path for path in SHIPPED if path != CLICKS and "goals" not in path.parts]
"""All except the largest, which is run on a few rows instead."""
ONE_EACH = {path.parent: path for path in LIGHT}.values()
BY_FILE = pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] * (path not in ONE_EACH)) for path in LIGHT],
    ids=[path.stem for path in LIGHT],
)
"""One of each folder, and all in the slow tests."""
LAMBDA = 1e-7
"""The value of Goh et al. 2016, section 4.2, for ramp rates."""


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Return a data folder that all tests share."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def with_data(cli, monkeypatch, store) -> Callable[[Path], None]:
    """Return a function that fetches the data of a file, or skips the test without a mirror."""
    monkeypatch.setenv("RATECLI_DATA", str(store))

    def bring(path: Path) -> None:
        absent = list_missing_files(check_file(path))
        if absent and not MIRROR:
            pytest.skip(f"RATECLI_DATA_MIRROR names no folder that holds {', '.join(absent)}")
        monkeypatch.setenv("RATECLI_DATA_MIRROR", MIRROR)
        assert not absent or cli("fetch", path).code == 0

    return bring


def test_names_of_experiments_are_unique():
    names = [load_experiment(path)[0].name for path in EXPERIMENTS.rglob("*.yaml")]
    assert len(names) == len(set(names)) > 3


@pytest.mark.parametrize("folder", ["comparison", "comparison-other-python"])
def test_files_of_a_comparison_differ_in_their_data_only(folder):
    texts = [path.read_text("utf-8") for path in COMPARISON if path.parent.name == folder]
    same = {
        re.sub(r".*\n(?=# From here on)|# mean proc.*", "", text, flags=re.DOTALL) for text in texts
    }
    assert len(texts) == 7
    assert len(same) == 1


def test_packages_with_another_interpreter_get_the_same_rows_and_rules():
    keys = {"datasets", "groups", "constraints", "objective", "sweep", "seeds", "limits"}
    given = [load_experiment(path)[0].model_dump(include=keys) for path in COMPARISON]
    assert given[:7] == given[7:]


@pytest.mark.parametrize("path", ONE_EACH, ids=lambda path: path.stem)
def test_one_experiment_of_each_folder_is_valid_without_data(cli, path):
    answer = cli("validate", path)
    assert (answer.code, answer.err) == (0, "")
    assert f"{path}: no errors" in answer.out


@BY_FILE
def test_every_experiment_is_valid_with_its_data(cli, with_data, path):
    with_data(path)
    answer = cli("validate", path)
    assert (answer.code, answer.err) == (0, "")
    assert re.search(r"no errors, \d+ trials", answer.out)


@pytest.mark.parametrize(("name", "last"), [("figure2", 3.5), ("figure2-column39", 6.5)])
def test_both_panels_of_figure_2_are_plotted(name, last):
    experiment = load_experiment(PAPER / f"{name}.yaml")[0]
    labels = [entry.label for entry in experiment.algorithms]
    assert labels == ["unconstrained", "majorize", "zafar"]
    (target,) = experiment.algorithms[1].sweep.axes.values()
    assert list(target) == pytest.approx([1 + (last - 1) * k / 95 for k in range(96)])
    axes = {(plot.x, plot.y, split) for plot in experiment.report.plots for split in plot.split}
    assert {("ratio", "error", "test"), ("target", "ratio", "test")} < axes


def weights(path: Path) -> list[int]:
    """Return the counts in the objective of a figure 3: of D1, D2 and both."""
    form = r"\((\d+) \* error\[d1\] \+ (\d+) \* false_positives\[d2\]\) / (\d+)"
    found = re.fullmatch(form, load_experiment(path)[0].objective)
    assert found is not None
    return [int(count) for count in found.groups()]


@pytest.mark.parametrize("source", ["adult", "bank"])
def test_counts_in_figure_3_are_those_of_the_data(with_data, source):
    path = PAPER / f"figure3-{source}.yaml"
    with_data(path)
    entry = {"source": source, "preparation": "churn"}
    sets = load_entry_table(entry, EXPERIMENTS, offline=True).frame["set"].value_counts()
    counts = {name: int(sets[name]) for name in ("d1", "d2", "d3")}
    assert weights(path) == [counts["d1"], counts["d2"], counts["d1"] + counts["d2"]]
    text = load_experiment(path)[0].description
    for name, count in counts.items():
        assert f"{name.upper()} ({count:,} " in text


def test_counts_and_penalty_of_figure_3_are_those_of_the_paper():
    sizes = clicks.SET_SIZES
    assert sizes == {"d1": 131_840, "d2": 53_877, "d3": 68_892}
    assert weights(CLICKS) == [sizes["d1"], sizes["d2"], sizes["d1"] + sizes["d2"]]
    experiment = load_experiment(CLICKS)[0]
    for name, count in sizes.items():
        assert f"{name.upper()} ({count:,} " in experiment.description
    # beside a hinge of margin 1, which is twice that of a ramp's 1/2
    assert experiment.regularization.l2 == LAMBDA / 2


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_figure_3_on_a_few_rows(cli):
    """majorize satisfies the constraints in training; the shifted SVM satisfies recall only."""
    few = ("datasets.clicks.rows=600", "seeds=1", "algorithms.0.majorize.iterations=1",
           "algorithms.0.majorize.gap=0.01",
           "algorithms.0.majorize.sweep.target=[0.03, 0.06]")  # fmt: skip
    settings = [part for each in few for part in ("--set", each)]
    answer = cli("run", CLICKS, *settings, "--executor", "serial", "--quiet")
    assert answer.code == 0, answer.err
    results = Path("results") / "goh2016-figure3-clicks"
    names = {f"figure3-{side}{rows}.svg" for side in ("left", "right") for rows in ("", "-train")}
    assert names <= {path.name for path in (results / "figures").iterdir()}
    number = {
        (row["algorithm"], row["variant"], float(row["target"]), row["metric"]): float(row["value"])
        for row in read_rows(results / "metrics.csv")
        if row["split"] == "train"
    }
    for target in (0.03, 0.06):
        promised = ("majorize", "stochastic", target)
        assert number[*promised, "violation.recall"] <= 1e-6
        assert number[*promised, "violation.churn"] <= 1e-6
        assert number[*promised, "churn"] == pytest.approx(target, abs=2e-3)
        assert number["majorize", "deterministic", target, "churn"] <= target
    shifted = ("thresholded", "deterministic", 0.06)
    assert number[*shifted, "violation.recall"] <= 1e-12
    assert number[*shifted, "violation.churn"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpa-classification", "gpa-regression"])
def test_the_toolkit_tutorials_give_the_expected_results(name, cli, with_data, tmp_path):
    path = EXPERIMENTS / "seldonian2019" / f"{name}.yaml"
    with_data(path)
    assert cli("run", path, "--output", tmp_path).code == 0
    text = (tmp_path / f"seldonian2019-{name}" / "summary.md").read_text()
    _, _, judged = text.partition("## Expected and measured values")
    rows = [line for line in judged.partition("\n## ")[0].splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 6
    assert all("| holds" in row for row in rows)
