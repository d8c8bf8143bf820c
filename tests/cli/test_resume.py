"""Which changes of a file give its trials other keys, so that they run again."""

import re
import sqlite3
from contextlib import closing
from functools import partial

import pytest
import yaml
from small import PLAIN, TRIALS

from ratecli.api.runs import load_results
from ratecli.experiment.prepare import prepare
from ratecli.files import LEDGER_FILE
from ratecli.sampling import rows as world

PEOPLE = "sex,x,y\n" + "".join(
    f"{'FM'[k % 2]},{(k * 37 + k // 2 % 2 * 40) % 101},{k // 2 % 2}\n" for k in range(160)
)
OWN = PLAIN.replace("loans: {source: loans, rows: 200}", "people: {path: people.csv, label: y}")
OWN = OWN.replace("Female", "F").replace("Male", "M")
RATIO = re.compile(r"\bratio\b")
WOMEN, MEN = "  women: sex = F\n", "  men: sex = M\n"
ERROR, FIRST = "  error: error\n", "  - unconstrained\n"
RULE = "positive_rate[women] >= kappa * positive_rate[men]"


def keys_in(folder, text: str) -> set[str]:
    """Return the keys of the trials of a text about the table of a folder."""
    # each command is a process of its own: forget the tables of the earlier one
    world._read_table.cache_clear()
    world.load_trial_data.cache_clear()
    (folder / "exp.yaml").write_text(text)
    return {task.key for task in prepare(folder / "exp.yaml").plan.tasks}


@pytest.fixture
def keys(folder):
    (folder / "people.csv").write_text(PEOPLE)
    return partial(keys_in, folder)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The keys of `OWN`, in another folder."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "people.csv").write_text(PEOPLE)
    return keys_in(folder, OWN)


SAME = {
    "order and style of the file": (OWN, yaml.safe_dump(yaml.safe_load(OWN), sort_keys=True)),
    "comments": ("# a small experiment", "# something else\n\n"),
    "name and description": ("name: small", "name: other\ndescription: why"),
    "order of groups": (WOMEN + MEN, MEN + WOMEN),
    "name of a group": ("women", "ladies"),
    "group spelt out": ("[men]", "[sex = M]"),
    "name of a constraint": ("parity", "fair"),
    "name of a metric": (" ratio:", " quotient:"),
    "order of metrics": (OWN, OWN.replace(ERROR, "").replace("metrics:\n", "metrics:\n" + ERROR)),
    "name of a sweep": ("kappa", "k"),
    "order of a sweep": ("[0.6, 0.9]", "[0.9, 0.6]"),
    "number spelt otherwise": ("[0.6, 0.9]", "[6e-1, 0.90]"),
    "order of algorithms": (OWN, OWN.replace(FIRST, "").replace("seeds:", FIRST + "seeds:")),
    "label": ("{iterations: 2}", "{iterations: 2, as: ours}"),
    "default said": ("{iterations: 2}", "{iterations: 2, cuts: 100}"),
    "report": ("plots: []", "plots: [], tables: [{rows: [kappa], columns: [error]}]"),
    "limits": ("seeds: 2", "seeds: 2\nlimits: {time: 90 s, memory: 2 GiB}"),
    "synonym": ("positive_rate", "selection_rate"),
    "side of the rule": (RULE, "kappa * positive_rate[men] <= positive_rate[women]"),
}
OTHER = {
    "option": ("iterations: 2", "iterations: 3", 4),
    "metric": (ERROR, ERROR + "  t: tpr\n", TRIALS),
    "l2": ("seeds: 2", "seeds: 2\nregularization: {l2: 2/n}", TRIALS),
    "constraint": (">= kappa", ">= 0.1 + kappa", TRIALS),
    "sweep": ("[0.6, 0.9]", "[0.6, 0.8]", 4),
    "more seeds": ("seeds: 2", "seeds: 3", 4),
    "fewer seeds": ("seeds: 2", "seeds: [1]", 0),
    "split": ("label: y", "label: y, split: {test: 1/4}", TRIALS),
    "features": ("label: y", "label: y, drop: [sex]", TRIALS),
    "meaning of a group": ("men: sex = M", "men: sex != F", TRIALS),
}


@pytest.mark.parametrize(("old", "new"), SAME.values(), ids=SAME)
def test_changes_without_effect_run_nothing(keys, own, old, new):
    assert old in OWN
    assert keys(OWN.replace(old, new)) == own


@pytest.mark.parametrize(("old", "new", "count"), OTHER.values(), ids=OTHER)
def test_changes_with_effect_run_again(keys, own, old, new, count):
    assert old in OWN
    assert len(keys(OWN.replace(old, new)) - own) == count


def test_other_rows_run_all_again(keys, own, folder):
    (folder / "people.csv").write_text(PEOPLE + "F,3,1\n")
    assert keys(OWN).isdisjoint(own)


def test_a_renamed_metric_keeps_its_numbers(folder, cli):
    (folder / "people.csv").write_text(PEOPLE)
    written = []
    for text in (OWN, RATIO.sub("quotient", OWN)):
        (folder / "exp.yaml").write_text(text)
        answer = cli("run", "exp.yaml", "--executor", "serial")
        written.append((folder / "results/small/metrics.csv").read_text())
    assert "nothing to run" in answer.out
    assert sorted(written[1].splitlines()) == sorted(RATIO.sub("quotient", written[0]).splitlines())


def test_every_command_refuses_a_damaged_trial_and_run_repeats_it_alone(folder, cli):
    text = PLAIN.replace("[0.6, 0.9]", "[0.6]").replace("seeds: 2", "seeds: [3]")
    (folder / "exp.yaml").write_text(text)
    assert cli("run", "exp.yaml", "-q", "-j", 1).code == 0
    results = folder / "results" / "small"
    before, ledger = (results / "metrics.csv").read_bytes(), results / LEDGER_FILE
    with closing(sqlite3.connect(ledger)) as db:
        db.execute("UPDATE trials SET content = replace(content, ': 0.', ': 1.') WHERE id = 2")
        db.commit()
    models = next((results / "models").glob("majorize*"))
    for command in (("report", "exp.yaml"), ("check", "exp.yaml"), ("pin", "exp.yaml")):
        answer = cli(*command)
        assert answer.code != 0
        assert "is damaged: what it has of majorize kappa=0.6 seed=3 is not" in answer.err
    answer = cli("export", models, "--format", "card")
    assert (answer.code, "is damaged" in answer.err) == (2, True), answer
    with pytest.raises(ValueError, match="is damaged: what it has of majorize"):
        load_results(results)
    again = cli("run", "exp.yaml", "-j", 1)
    assert again.code == 0
    assert "warning[W504]" in again.err
    assert "small: 2 trials: 2 ok (1 run now)\n" in again.out
    assert (results / "metrics.csv").read_bytes() == before
    assert "W504" not in cli("run", "exp.yaml").err
