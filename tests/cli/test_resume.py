"""Which changes of a file make its trials run again."""

from __future__ import annotations

import re
import shutil

import pytest
import yaml
from small import SMALL, TRIALS

from ratecli.cli.app import main
from ratecli.sampling import rows as world

PEOPLE = "sex,x,y\n" + "".join(
    f"{'FM'[k % 2]},{(k * 37 + k // 2 % 2 * 40) % 101},{k // 2 % 2}\n" for k in range(160)
)
OWN = SMALL.replace("loans: {source: loans, rows: 200}", "people: {path: people.csv, label: y}")
OWN = OWN.partition("report:")[0].replace("Female", "F").replace("Male", "M")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Run `OWN` once; return the folder."""
    place = tmp_path_factory.mktemp("done")
    (place / "people.csv").write_text(PEOPLE)
    (place / "exp.yaml").write_text(OWN)
    results = str(place / "results")
    assert main(["run", str(place / "exp.yaml"), "-q", "-o", results, "--executor", "serial"]) == 0
    return place


@pytest.fixture
def run(folder, cli, done):
    """Return a function that runs a text after `OWN` and returns the number of trials run."""
    shutil.copytree(done, folder, dirs_exist_ok=True)
    # each run is a process of its own: forget the tables of the earlier one
    world._read_table.cache_clear()
    world.load_trial_data.cache_clear()

    def call(text: str, name: str = "exp.yaml") -> int:
        (folder / name).write_text(text)
        answer = cli("run", name, "--executor", "serial")
        assert answer.code == 0
        if "nothing to run" in answer.out:
            return 0
        return int(answer.out.split("run now)")[0].rsplit("(", 1)[1])

    return call


def reordered(text):
    """Return the same keys in the opposite order and in another style."""
    content = yaml.safe_load(text)
    return yaml.safe_dump(dict(reversed(content.items())), sort_keys=False)


RATIO = re.compile(r"\bratio\b")
SAME = {
    "order of the file": reordered,
    "comments": lambda text: text.replace("# a small experiment", "# something else\n\n"),
    "description": lambda text: text + "description: why\n",
    "order of groups": lambda text: text.replace(
        "  women: sex = F\n  men: sex = M\n", "  men: sex = M\n  women: sex = F\n"
    ),
    "name of a group": lambda text: text.replace("women", "ladies"),
    "group spelt out": lambda text: text.replace("[men]", "[sex = M]"),
    "name of a constraint": lambda text: text.replace("parity", "fair"),
    "name of a metric": lambda text: RATIO.sub("quotient", text),
    "order of metrics": lambda text: text.replace("  error: error\n", "").replace(
        "metrics:\n", "metrics:\n  error: error\n"
    ),
    "name of a sweep": lambda text: text.replace("kappa", "k"),
    "order of a sweep": lambda text: text.replace("[0.6, 0.9]", "[0.9, 0.6]"),
    "number spelt otherwise": lambda text: text.replace("[0.6, 0.9]", "[6e-1, 0.90]"),
    "order of algorithms": lambda text: text.replace("  - unconstrained\n", "").replace(
        "seeds:", "  - unconstrained\nseeds:"
    ),
    "label": lambda text: text.replace("{iterations: 2}", "{iterations: 2, as: ours}"),
    "default said": lambda text: text.replace("{iterations: 2}", "{iterations: 2, cuts: 100}"),
    "fewer seeds": lambda text: text.replace("seeds: 2", "seeds: [1]"),
    "report": lambda text: text + "report: {tables: [{rows: [kappa], columns: [error]}]}\n",
    "synonym": lambda text: text.replace("positive_rate", "selection_rate"),
    "side of the rule": lambda text: text.replace(
        "positive_rate[women] >= kappa * positive_rate[men]",
        "kappa * positive_rate[men] <= positive_rate[women]",
    ),
}
OTHER = {
    "option": (lambda text: text.replace("iterations: 2", "iterations: 3"), 4),
    "metric": (lambda text: text.replace("  error: error", "  error: error\n  t: tpr"), TRIALS),
    "l2": (lambda text: text + "regularization: {l2: 2/n}\n", TRIALS),
    "constraint": (lambda text: text.replace(">= kappa", ">= 0.1 + kappa"), TRIALS),
    "sweep": (lambda text: text.replace("[0.6, 0.9]", "[0.6, 0.8]"), 4),
    "seeds": (lambda text: text.replace("seeds: 2", "seeds: 3"), 4),
    "split": (lambda text: text.replace("label: y", "label: y, split: {test: 1/4}"), TRIALS),
    "features": (lambda text: text.replace("label: y", "label: y, drop: [sex]"), TRIALS),
    "meaning of a group": (lambda text: text.replace("men: sex = M", "men: sex != F", 1), TRIALS),
}


@pytest.mark.parametrize("change", SAME)
def test_changes_without_effect_run_nothing(run, change):
    assert SAME[change](OWN) != OWN
    assert run(SAME[change](OWN)) == 0


@pytest.mark.parametrize("change", OTHER)
def test_changes_with_effect_run_again(run, change):
    text, count = OTHER[change]
    assert text(OWN) != OWN
    assert run(text(OWN)) == count
    assert run(OWN) == 0


def test_a_renamed_file_runs_nothing(run):
    assert run(OWN, "renamed.yaml") == 0


def test_other_rows_run_all_again(run, folder):
    (folder / "people.csv").write_text(PEOPLE + "F,3,1\n")
    assert run(OWN) == TRIALS


def test_a_renamed_metric_keeps_its_numbers(run, folder):
    before = (folder / "results/small/metrics.csv").read_text()
    run(RATIO.sub("quotient", OWN))
    after = (folder / "results/small/metrics.csv").read_text()
    assert sorted(after.splitlines()) == sorted(RATIO.sub("quotient", before).splitlines())
