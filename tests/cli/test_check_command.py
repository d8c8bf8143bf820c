"""`ratecli pin` and `ratecli check` on real results, stored once for all tests here."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from resealed import change_ledger
from small import PLAIN

from ratecli.cli.app import main
from ratecli.config.experiment import load_experiment
from ratecli.report.check.reference import read_reference, reference_text

FILE = (
    PLAIN.replace("seeds: 2", "seeds: 5")
    .replace("[0.6, 0.9]", "[0.6]")
    .replace("majorize: {", "majorize: {randomize: true, variants: [deterministic], ")
)
TRIALS = 10
REFERENCE = Path("results/reference/small.json")
EXPECT = "expect:\n  - {algorithm: majorize, metric: error, at_most: 0.9}\n"
HOSTILE = "<b a='1'>&\\n::error::%0A\\u0007]]>"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return the results folder of `FILE`."""
    place = tmp_path_factory.mktemp("ran")
    (place / "small.yaml").write_text(FILE)
    options = ("-q", "-o", str(place / "results"), "--executor", "serial")
    assert main(["run", str(place / "small.yaml"), *options]) == 0
    return place / "results" / "small"


@pytest.fixture
def stored(folder, ran):
    """Copy the results and their file to the working folder."""
    shutil.copytree(ran, folder / "results" / "small")
    (folder / "small.yaml").write_text(FILE)
    return folder / "results" / "small" / "trials.sqlite"


@pytest.fixture
def pinned(stored, cli):
    assert cli("pin", "small.yaml").code == 0
    return stored


def plant(ledger, loss):
    """Add a loss to the error of all trials on the test set."""

    def change(trial):
        for each in trial["values"]:
            each["value"] += loss * (each["metric"] == "error" and each["split"] == "test")

    change_ledger(ledger, trial=change)


def execute(ledger, statement):
    with closing(sqlite3.connect(ledger)) as db, db:
        db.execute(statement)


@pytest.mark.usefixtures("pinned")
def test_pinned_results_pass_and_pinning_again_changes_nothing(cli, listing):
    before = listing()
    answer = cli("check", "small.yaml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"small: 20 comparisons with {REFERENCE}: 20 same\n"
    again = cli("pin", "small.yaml")
    assert again.out == f"pinned {TRIALS} trials in {REFERENCE}; commit it with the file\n"
    assert listing() == before
    assert "/" not in REFERENCE.read_text().replace("1/n", "").replace(" / ", ""), "no paths"
    assert len(REFERENCE.read_bytes()) < 400 * TRIALS


def test_half_a_point_of_error_fails_and_names_changed_versions(pinned, cli):
    text = REFERENCE.read_text()
    REFERENCE.write_text(re.sub('"numpy": "[^"]*"', '"numpy": "1.0"', text))
    assert "numpy" not in cli("check", "small.yaml").out
    plant(pinned, 0.005)
    answer = cli("check", "small.yaml")
    assert (answer.code, answer.err) == (3, "")
    (row,) = [line for line in answer.out.splitlines() if line.startswith("regressed")]
    assert row.startswith("regressed  majorize   stochastic ")
    assert row.endswith("+0.0050 [+0.0050, +0.0050]  deterministic")
    assert "(paired over 5 seeds)\nchanges that are not listed: 1 of unconstrained\n" in answer.out
    assert "help: if this change is intended, pin again: `ratecli pin small.yaml`" in answer.out
    assert answer.out.startswith(f"small: 20 comparisons with {REFERENCE}: 3 regressed")
    assert "pinned with numpy 1.0 (now " in answer.out


def test_a_goal_that_is_no_longer_met_is_named_with_its_pinned_model(pinned, cli):
    known = json.loads(REFERENCE.read_text())
    (model,) = known["answers"]
    assert not model["qualifies"]
    known["answers"] = [
        model | {"algorithm": "unconstrained", "variant": "deterministic", "qualifies": True}
    ]
    REFERENCE.write_text(json.dumps(known))
    plant(pinned, 0.005)
    lines = cli("check", "small.yaml").out.splitlines()
    assert lines[1] == "best model when pinned: unconstrained (kappa = 0.6); 1 comparison failed"
    assert lines[2].startswith(
        "best model now: no model qualifies; the closest is majorize (stochastic), error "
    )
    assert [line.split()[1] for line in lines if line.startswith("regressed")] == [
        "unconstrained",
        "majorize",
    ]
    assert lines[-1].startswith("help: the goal is no longer met: undo the change")


def test_the_tolerance_is_an_option(pinned, cli):
    plant(pinned, 0.0005)
    assert cli("check", "small.yaml").code == 0
    assert cli("check", "small.yaml", "--tolerance", "0.0001").code == 3
    assert {cli("check", "small.yaml", "--tolerance", x).code for x in ("-1", "nan", "inf")} == {2}


def test_without_results_the_check_fails(folder, cli):
    (folder / "small.yaml").write_text(FILE)
    nothing = "nothing is stored in 'results/small'"
    for command, code, error in (("check", 3, "E509"), ("pin", 2, "E507")):
        answer = cli(command, "small.yaml")
        assert (answer.code, answer.err.split(": ")[0]) == (code, f"error[{error}]")
        assert nothing in answer.err
    assert not (folder / "results").exists()


@pytest.mark.usefixtures("stored")
def test_a_check_needs_a_reference_or_expectations(folder, cli):
    answer = cli("check", "small.yaml")
    assert answer.code == 3
    assert "error[E509]: there is nothing to compare with: no reference at " in answer.err
    assert answer.out == ""
    (folder / "small.yaml").write_text(FILE + EXPECT)
    answer = cli("check", "small.yaml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "small: 2 comparisons with `expect`: 2 holds\n"


@pytest.mark.usefixtures("pinned")
def test_an_unmet_expectation_is_located_in_the_file(folder, cli):
    (folder / "small.yaml").write_text(FILE + EXPECT.replace("0.9", "0.01, source: Table 3"))
    answer = cli("check", "small.yaml", "--format", "github")
    assert answer.code == 3
    annotation, *_ = answer.out.splitlines()
    at = FILE.count("\n") + 2
    place = rf"::error file=small\.yaml,line={at},endLine={at},col=\d+,endColumn=\d+,title=E508::"
    assert re.match(place, annotation)
    assert "by +0.2463, expected ≤ 0.01 (Table 3) (1 more like it)%0Ahelp: " in annotation
    assert answer.out.count("::") == 2


def test_missing_and_failed_trials_fail(pinned, cli):
    execute(pinned, "DELETE FROM trials WHERE id = 1")
    failed = []

    def fail(trial):
        failed.append(trial["key"])
        if len(failed) == 2:
            trial.update(status="error", reason="E501: <x>")

    change_ledger(pinned, trial=fail)
    assert "--> small.yaml:13:5\n" in cli("check", "small.yaml").err
    missing = "1 of 5 trials are not stored for the current file, data and code"
    for command, code, expected in (("check", 3, "E509"), ("pin", 2, "E507")):
        answer = cli(command, "small.yaml")
        assert answer.code == code
        assert f"unconstrained: {missing}, the first at kappa = 0.6, seed " in answer.err
        assert " trials ended as error (E501: <x>), the first at kappa = 0.6, seed " in answer.err
        assert answer.err.count(f"error[{expected}]") == answer.err.count("error[") == 2
        assert "Traceback" not in answer.err


CHANGED = "no trial of the file in its current form (the file, its data or the code has changed)"


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("rows: 200", "rows: 201", 3, CHANGED),
        ("objective: error", "objective: fnr", 3, CHANGED),
        ("error: error", "wrong: error", 3, "it is pinned but no longer measured"),
        ("seeds: 5", "seeds: 6", 3, "1 of 6 trials are not stored"),
        ("seeds: 5", "seeds: 3", 0, "warning[W502]: 3 of 5 pinned seeds are among the file's 3"),
    ],
)
def test_a_file_that_changed_since_it_was_pinned(cli, old, new, code, message):
    Path("small.yaml").write_text(FILE.replace(old, new))
    answer = cli("check", "small.yaml")
    assert answer.code == code
    assert message in answer.err
    if code == 0:
        line = FILE.splitlines().index("seeds: 5") + 1
        annotation = cli("check", "small.yaml", "--format", "github").out
        assert annotation.startswith(f"::warning file=small.yaml,line={line},")
        (file,) = json.loads(cli("check", "small.yaml", "--format", "json").out)["files"]
        assert [note["told"] in answer.err for note in file["notes"]] == [True]
    assert cli("pin", "small.yaml").code == (2 if "trial" in answer.err else 0)


@pytest.mark.usefixtures("pinned")
def test_a_reference_of_another_experiment_is_an_error_and_one_of_other_data_is_flagged(cli):
    pinned_text = REFERENCE.read_text()
    REFERENCE.write_text(pinned_text.replace('"name": "small"', '"name": "other"'))
    assert "the reference belongs to the experiment 'other'" in cli("check", "small.yaml").err
    REFERENCE.write_text(re.sub('"loans": "..', '"loans": "zz', pinned_text))
    answer = cli("check", "small.yaml")
    assert answer.code == 0
    assert "warning[W503]: data set 'loans' changed since the results were pinned" in answer.err
    assert "--> small.yaml:4:3" in answer.err
    assert "20 same" in answer.out


OWN = """\
name: small
datasets:
  people: {path: people.csv, label: good, positive: 1, features: [a, b], split: {seed: 0}}
groups: {women: sex = f}
constraints: {some: 'positive_rate[women] >= 0.2'}
algorithms:
  - unconstrained
  - majorize: {iterations: 2, randomize: true}
seeds: 5
report: {plots: []}
"""


def own_table(rows=120):
    """Return a table in which `b` tells the label and `a` does not."""
    lines = [f"{k % 7},{(k * 37) % 10},{'fm'[k % 2]},{int((k * 37) % 10 > 4)}" for k in range(rows)]
    return "\n".join(["a,b,sex,good", *lines]) + "\n"


@pytest.fixture(scope="module")
def own_results(tmp_path_factory):
    """Return a folder with results of `OWN` and their reference."""
    place = tmp_path_factory.mktemp("own")
    (place / "people.csv").write_text(own_table())
    (place / "small.yaml").write_text(OWN)
    options = ("-o", str(place / "results"))
    assert main(["run", str(place / "small.yaml"), "-q", *options, "--executor", "serial"]) == 0
    reference = ("--reference", str(place / "results" / "reference"))
    assert main(["pin", str(place / "small.yaml"), *options, *reference]) == 0
    return place


@pytest.mark.parametrize(
    ("change", "code", "warning", "detail"),
    [
        (
            ("features: [a, b]", "features: [a]"),
            3,
            "'datasets.people.features' changed since the results were pinned: a, b -> a",
            "paired over 5 seeds",
        ),
        (
            ("iterations: 2", "iterations: 3"),
            0,
            "'algorithms.majorize.iterations' changed since the results were pinned: 2 -> 3",
            "",
        ),
        (
            (
                "majorize: {iterations: 2, randomize: true}",
                "unconstrained: {as: majorize, loss: logistic}",
            ),
            3,
            "'algorithms.majorize.algorithm' changed since the results were pinned: majorize -> ",
            "it is pinned but no longer measured",
        ),
        ((">= 0.2", ">= 0.1"), 0, "'constraints.some' changed since the results were pinned: ", ""),
        (("seeds: 5", "seeds: 5\ndescription: x"), 0, "", ""),
        (("people.csv", "more.csv"), 0, "data set 'people' changed since", ""),
    ],
)
def test_results_of_changed_settings_are_compared_and_flagged(
    folder, cli, own_results, *, change, code, warning, detail
):
    shutil.copytree(own_results, folder, dirs_exist_ok=True)
    (folder / "more.csv").write_text(own_table(240))
    Path("small.yaml").write_text(OWN.replace(*change))
    assert cli("run", "small.yaml", "-q", "--executor", "serial").code == 0
    answer = cli("check", "small.yaml")
    assert answer.code == code
    assert answer.err.count("W503") == ("changed" in warning)
    assert warning in answer.err
    assert detail in answer.out + answer.err
    assert code or "not compared" not in answer.out
    (file,) = json.loads(cli("check", "small.yaml", "--format", "json").out)["files"]
    assert len(file["comparisons"]) >= 8
    assert len(file["notes"]) == answer.err.count("W503")


def test_results_on_other_rows_are_compared_and_flagged(folder, cli, own_results):
    shutil.copytree(own_results, folder, dirs_exist_ok=True)
    (folder / "people.csv").write_text(own_table(240))
    assert cli("check", "small.yaml").code == 3  # not run yet
    assert cli("run", "small.yaml", "-q", "--executor", "serial").code == 0
    answer = cli("check", "small.yaml")
    assert answer.code == 0
    assert answer.err.startswith("warning[W503]: data set 'people' changed since")
    assert "comparisons with results/reference/small.json" in answer.out


@pytest.mark.usefixtures("pinned")
def test_an_unreadable_reference_is_one_error(cli):
    REFERENCE.write_text("<<<<<<< HEAD\n{}")
    answer = cli("check", "small.yaml", "--junit", "out.xml")
    assert answer.code == 3
    assert answer.err.count("error[") == 1
    assert f"error[E506]: '{REFERENCE}' is not a valid reference: " in answer.err
    assert ET.parse("out.xml").getroot().get("errors") == "1"
    assert cli("pin", "small.yaml").code == 0
    assert cli("check", "small.yaml").code == 0


@pytest.mark.usefixtures("stored")
def test_files_that_cannot_be_written_are_an_error(folder, cli):
    (folder / "taken").write_text("")
    elsewhere = ("check", "--junit", "taken/out.xml", "--reference", "elsewhere")
    for arguments in (("pin", "--reference", "taken/x"), elsewhere):
        answer = cli(*arguments, "small.yaml")
        assert answer.code == 2
        assert "error[E505]" in answer.err


def test_junit_has_a_case_for_each_comparison(pinned, cli):
    plant(pinned, 0.005)
    execute(pinned, "DELETE FROM trials WHERE id = 1")
    assert cli("check", "small.yaml", "--junit", "deep/er/out.xml").code == 3
    root = ET.parse("deep/er/out.xml").getroot()
    (suite,) = root
    cases = suite.findall("testcase")
    for element in (root, suite):
        counts = [int(element.get(name)) for name in ("tests", "failures", "errors")]
        assert counts == [len(cases), len(suite.findall(".//failure")), 1]
    assert {each.get("type") for each in suite.iter("failure")} == {"regressed"}
    names = {(case.get("classname"), case.get("name")) for case in cases}
    assert len(names) == len(cases)


def test_json_has_the_same_keys_for_every_comparison(pinned, folder, cli):
    (folder / "small.yaml").write_text(FILE + EXPECT)
    plant(pinned, 0.005)
    document = json.loads(cli("check", "small.yaml", "--format", "json").out)
    assert list(document) == ["holds", "files"]
    (file,) = document["files"]
    assert " ".join(file) == "file name holds reference versions notes counts comparisons"
    assert sum(file["counts"].values()) == len(file["comparisons"]) == 22
    (keys,) = {" ".join(each) for each in file["comparisons"]}
    assert keys == (
        "verdict good against algorithm variant point split metric "
        "was now difference low high seeds left_out needed told way_out"
    )
    bad = [each for each in file["comparisons"] if not each["good"]]
    assert {(each["metric"], each["verdict"]) for each in bad} == {("error", "regressed")}
    assert [each["difference"] for each in bad] == pytest.approx([0.005] * 3)
    assert {each["against"] for each in file["comparisons"]} == {"reference", "expect"}


@pytest.mark.usefixtures("pinned")
def test_names_are_escaped_in_every_format(folder, cli):
    entry = f'{{algorithm: majorize, variant: "{HOSTILE}", metric: error, at_most: 1}}'
    (folder / "small.yaml").write_text(f"{FILE}expect:\n  - {entry}\n")
    answer = cli("check", "small.yaml", "--junit", "out.xml", "--format", "github")
    assert answer.code == 3
    annotations = [line for line in answer.out.splitlines() if line.startswith("::")]
    assert len(annotations) == 1
    assert " ::error::%250A" in annotations[0]
    (case,) = [c for c in ET.parse("out.xml").iter("testcase") if c.find("error") is not None]
    assert "<b a='1'>&" in case.find("error").get("message")
    assert "\ufffd]]>" in case.find("error").text
    assert "\x07" not in cli("check", "small.yaml").err
    assert json.loads(cli("check", "small.yaml", "--format", "json").out)["holds"] is False


def test_the_example_workflow_detects_a_loss(stored, folder, cli):
    text = (Path(__file__).parents[2] / "docs" / "examples" / "ratecli.yml").read_text("utf-8")
    steps = yaml.safe_load(text)["jobs"]["check"]["steps"]
    commands = [step["run"].split() for step in steps if step.get("run", "").startswith("ratecli ")]
    (file,) = {Path(words[2]) for words in commands}
    file.parent.mkdir()
    shutil.copy("small.yaml", file)
    before, after = commands
    assert cli(*before[1:], "-q").code == 0
    assert cli("pin", file).code == 0
    assert cli(*after[1:]).code == 0
    plant(stored, 0.005)
    answer = cli(*after[1:])
    assert answer.code == 3
    assert answer.out.count(f"::error file={file},") == 1
    paths = next(step["with"]["path"] for step in steps if "path" in step.get("with", {}))
    assert all(any(folder.glob(pattern)) for pattern in paths.split())


def test_the_references_of_the_project_are_valid():
    root = Path(__file__).parents[2]
    names = {load_experiment(path)[0].name for path in (root / "experiments").rglob("*.yaml")}
    found = sorted((root / "results" / "reference").glob("*.json"))
    assert {path.stem for path in found} >= {"quickstart", "adult-check"}
    for path in found:
        assert read_reference(path).name == path.stem
        assert path.stem in names
        assert path.read_text("utf-8") == reference_text(read_reference(path))
        assert path.stat().st_size < 20_000


@pytest.mark.usefixtures("stored")
def test_several_files_are_checked_together_unless_their_names_are_equal(folder, cli):
    (folder / "again.yaml").write_text(FILE)
    for command in ("pin", "check"):
        answer = cli(command, "small.yaml", "again.yaml")
        assert answer.code == 2
        assert "'small.yaml' and 'again.yaml' have the same name" in " ".join(answer.err.split())
        assert not REFERENCE.exists()
    (folder / "again.yaml").write_text(FILE.replace("name: small", "name: other"))
    assert cli("pin", "small.yaml").code == 0
    answer = cli("check", "small.yaml", "again.yaml")
    assert answer.code == 3
    assert "small: 20 comparisons" in answer.out
    assert answer.err.startswith("error[E509]: nothing is stored in 'results/other'")


def test_results_of_changed_values_are_pinned_and_checked_with_the_same_changes(folder, cli):
    (folder / "my exp.yaml").write_text(FILE.replace("seeds: 5", "seeds: [8]"))
    to, changed = ("-o", "my results"), ("my exp.yaml", "--set", "seeds=[3]")
    ran = cli("run", *changed, *to, "-j", 1)
    assert "fit      ratecli fit 'my exp.yaml' --set 'seeds=[3]' -o 'my results'" in ran.out
    plain = cli("pin", "my exp.yaml", *to)
    assert plain.code == 2
    assert "`ratecli run 'my exp.yaml' -o 'my results'` first. If it was run with" in plain.err
    assert cli("pin", *changed, *to).code == 0
    assert cli("check", *changed, *to).code == 0
    wider = cli("check", *changed, "--set", "seeds=[3, 4]", *to)
    assert wider.code == 3
    again = "'my exp.yaml' --set 'seeds=[3]' --set 'seeds=[3, 4]' -o 'my results'"
    assert f"`ratecli run {again}` runs missing trials" in wider.err
