"""`ratecli pin` and `ratecli check` on real results, stored once for all tests here."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from small import PLAIN

from ratecli.cli.app import main
from ratecli.config.experiment import load_experiment
from ratecli.report.regression.reference import read_reference, reference_text

FILE = PLAIN.replace("seeds: 2", "seeds: 5").replace("[0.6, 0.9]", "[0.6]")
TRIALS = 10
REFERENCE = Path("results/reference/small.json")
EXPECT = "expect:\n  - {algorithm: majorize, metric: error, at_most: 0.9}\n"
HOSTILE = "<b a='1'>&\\n::error::%0A\\u0007]]>"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of results of `FILE`."""
    place = tmp_path_factory.mktemp("ran")
    (place / "small.yaml").write_text(FILE)
    options = ("-q", "-o", str(place / "results"), "--executor", "serial")
    assert main(["run", str(place / "small.yaml"), *options]) == 0
    return place / "results" / "small"


@pytest.fixture
def stored(folder, ran):
    """Those results and their file in the working folder."""
    shutil.copytree(ran, folder / "results" / "small")
    (folder / "small.yaml").write_text(FILE)
    return folder / "results" / "small" / "trials.sqlite"


@pytest.fixture
def pinned(stored, cli):
    assert cli("pin", "small.yaml").code == 0
    return stored


def change(ledger, statement, *values):
    with sqlite3.connect(ledger) as db:
        db.execute("PRAGMA foreign_keys = ON")
        changed = db.execute(statement, values).rowcount
    db.close()
    assert changed


def plant(ledger, loss, metric="error", split="test"):
    """A loss in one metric of all trials."""
    change(
        ledger,
        "UPDATE numbers SET value = value + ? WHERE measure IN"
        " (SELECT id FROM measures WHERE metric = ? AND split = ?)",
        loss,
        metric,
        split,
    )


@pytest.mark.usefixtures("pinned")
def test_what_was_pinned_holds_and_pinning_again_gives_the_same_bytes(cli, listing):
    before = listing()
    answer = cli("check", "small.yaml")
    assert (answer.code, answer.err) == (0, "")
    assert re.fullmatch(
        r"small: 20 comparisons with results/reference/small.json: 20 same\n", answer.out
    )
    again = cli("pin", "small.yaml")
    assert again.out == f"pinned {TRIALS} trials in {REFERENCE}; commit it with the file\n"
    assert listing() == before
    assert "/" not in REFERENCE.read_text()
    assert len(REFERENCE.read_bytes()) < 400 * TRIALS


def test_half_a_point_of_error_trips(pinned, cli):
    plant(pinned, 0.005)
    answer = cli("check", "small.yaml")
    assert (answer.code, answer.err) == (3, "")
    rows = [line for line in answer.out.splitlines() if line.startswith("regressed")]
    assert len(rows) == 3
    assert all("+0.0050 [+0.0050, +0.0050]  paired over 5 seeds" in row for row in rows)
    assert answer.out.startswith("small: 20 comparisons with results/reference/small.json: 3 regr")


def test_what_gets_better_is_told_and_does_not_fail(pinned, cli):
    plant(pinned, -0.005)
    answer = cli("check", "small.yaml")
    assert answer.code == 0
    assert answer.out.count("improved") == 4


def test_the_tolerance_is_the_users(pinned, cli):
    plant(pinned, 0.0005)
    assert cli("check", "small.yaml").code == 0
    assert cli("check", "small.yaml", "--tolerance", "0.0001").code == 3
    for wrong in ("-1", "nan", "inf"):
        assert cli("check", "small.yaml", "--tolerance", wrong).code == 2


def test_nothing_stored(folder, cli):
    (folder / "small.yaml").write_text(FILE)
    answer = cli("check", "small.yaml")
    assert answer.code == 3
    assert "error[E509]: nothing is stored in 'results/small'\n  --> small.yaml:2:1" in answer.err
    assert "help: `ratecli run small.yaml` first" in answer.err
    answer = cli("pin", "small.yaml")
    assert answer.code == 2
    assert "error[E507]: 'small' cannot be pinned: nothing is stored" in answer.err
    assert not (folder / "results").exists()


@pytest.mark.usefixtures("stored")
def test_nothing_to_compare_with(folder, cli):
    answer = cli("check", "small.yaml")
    assert answer.code == 3
    assert "error[E509]: there is nothing to compare with: no reference at " in answer.err
    (folder / "small.yaml").write_text(FILE + EXPECT)
    answer = cli("check", "small.yaml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "small: 2 comparisons with `expect`: 2 holds\n"


@pytest.mark.usefixtures("pinned")
def test_what_is_expected_and_is_not_so(folder, cli):
    (folder / "small.yaml").write_text(FILE + EXPECT.replace("0.9", "0.01, source: Table 3"))
    answer = cli("check", "small.yaml", "--format", "github")
    assert answer.code == 3
    lines = answer.out.splitlines()
    assert len(lines) == 3
    at = FILE.count("\n") + 2
    place = rf"::error file=small\.yaml,line={at},endLine={at},col=\d+,endColumn=\d+,title=E508::"
    assert all(re.match(place, line) for line in lines[:2])
    assert "expected ≤ 0.01 (Table 3)" in lines[0]


def test_missing_and_failed_trials_fail(pinned, cli):
    change(pinned, "DELETE FROM trials WHERE id = 1")
    change(pinned, "UPDATE trials SET status = 'error', reason = 'E501: <x>' WHERE id = 3")
    first = cli("check", "small.yaml").err
    assert "--> small.yaml:13:5\n" in first
    for command, code, said in (("check", 3, "E509"), ("pin", 2, "E507")):
        answer = cli(command, "small.yaml")
        assert answer.code == code
        assert f"error[{said}]" in answer.err
        missing = (
            "unconstrained: 1 of 5 trials are not stored for the file, its data and the code as"
        )
        assert f"{missing} they are now, the first at kappa = 0.6, seed " in answer.err
        assert " trials ended as error (E501: <x>), the first at kappa = 0.6, seed " in answer.err
        assert answer.err.count("error[") == 2
        assert "Traceback" not in answer.err


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize(
    ("old", "new"), [("rows: 200", "rows: 201"), ("objective: error", "objective: fnr")]
)
def test_results_of_another_file_are_none_of_this_one(folder, cli, old, new):
    (folder / "small.yaml").write_text(FILE.replace(old, new))
    for command, code in (("check", 3), ("pin", 2)):
        answer = cli(command, "small.yaml")
        assert answer.code == code
        told = "no trial of the file as it is now: the file, its data or the code changed since"
        assert told in answer.err


@pytest.mark.usefixtures("pinned")
def test_a_file_that_asks_for_more_than_is_pinned(folder, cli):
    (folder / "small.yaml").write_text(FILE.replace("error: error", "wrong: error"))
    answer = cli("check", "small.yaml")
    assert answer.code == 3
    assert "'wrong' of majorize" in answer.err or "'wrong' of unconstrained" in answer.err
    assert "it is pinned and no longer measured" in answer.err
    assert cli("pin", "small.yaml").code == 0
    assert cli("check", "small.yaml").code == 0


@pytest.mark.usefixtures("pinned")
def test_fewer_seeds_than_pinned_are_told(folder, cli):
    (folder / "small.yaml").write_text(FILE.replace("seeds: 5", "seeds: 3"))
    line = FILE.splitlines().index("seeds: 5") + 1
    told = "3 of 5 seeds that are pinned are compared; no longer in the file: 3, 4"
    answer = cli("check", "small.yaml")
    assert answer.code == 0
    assert answer.err.startswith(f"warning[W502]: {told}\n   --> small.yaml:{line}:1\n")
    annotation = cli("check", "small.yaml", "--format", "github").out
    assert annotation.startswith(f"::warning file=small.yaml,line={line},")
    (file,) = json.loads(cli("check", "small.yaml", "--format", "json").out)["files"]
    assert [note["told"] for note in file["notes"]] == [told]
    assert {each["seeds"] for each in file["comparisons"]} == {3}


def test_other_seeds_than_pinned_are_two_samples_on_all_rows_too(pinned, cli):
    REFERENCE.write_text(REFERENCE.read_text().replace("[0, 1, 2, 3, 4]", "[5, 6, 7, 8, 9]"))
    answer = cli("check", "small.yaml")
    assert answer.code == 0
    assert (
        "warning[W502]: none of 5 seeds are pinned: 5 and 5 are compared as two samples"
        in answer.err
    )
    told = r"half a point of 'error' of \w+ \(.*\) takes about (\d+) seeds .*, and there are 5\n"
    needed = re.search(told, answer.err)
    assert needed, answer.err
    assert int(needed[1]) > 5
    for split in ("train", "test"):
        plant(pinned, 0.2, split=split)
    answer = cli("check", "small.yaml")
    assert answer.code == 3
    assert re.search("^regressed  majorize .* train \\+ test  error ", answer.out, re.MULTILINE)


@pytest.mark.usefixtures("pinned")
def test_seeds_of_the_file_that_are_not_stored_fail(folder, cli):
    """Though all that is pinned is there."""
    (folder / "small.yaml").write_text(FILE.replace("seeds: 5", "seeds: 6"))
    answer = cli("check", "small.yaml")
    assert answer.code == 3
    assert "1 of 6 trials are not stored" in answer.err
    assert "warning[W502]: 5 of 5 seeds that are pinned are compared; not pinned: 5" in answer.err


@pytest.mark.usefixtures("pinned")
def test_other_data_than_was_pinned(cli):
    text = REFERENCE.read_text()
    REFERENCE.write_text(re.sub('"loans": "..', '"loans": "zz', text))
    answer = cli("check", "small.yaml")
    assert answer.code == 3
    assert "data set 'loans' is not what was pinned: its file or its options are" in answer.err
    assert "pin again: `ratecli pin small.yaml`" in answer.err
    assert "--> small.yaml:4:3" in answer.err


def test_versions_are_told_only_where_something_fails(pinned, cli):
    text = REFERENCE.read_text()
    REFERENCE.write_text(re.sub('"numpy": "[^"]*"', '"numpy": "1.0"', text))
    assert "numpy" not in cli("check", "small.yaml").out
    plant(pinned, 0.01)
    assert "pinned with numpy 1.0 (here " in cli("check", "small.yaml").out


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize("content", ["", "<<<<<<< HEAD\n{}", "[]", '{"format": 2}'])
def test_a_reference_that_cannot_be_read(cli, content):
    REFERENCE.write_text(content)
    answer = cli("check", "small.yaml", "--junit", "out.xml")
    assert answer.code == 3
    assert answer.err.count("error[") == 1
    assert f"error[E506]: '{REFERENCE}' is no reference that can be read: " in answer.err
    assert ET.parse("out.xml").getroot().get("errors") == "1"
    assert cli("pin", "small.yaml").code == 0
    assert cli("check", "small.yaml").code == 0


@pytest.mark.usefixtures("pinned")
def test_a_reference_of_another_name(cli):
    REFERENCE.write_text(REFERENCE.read_text().replace('"name": "small"', '"name": "other"'))
    answer = cli("check", "small.yaml")
    assert answer.code == 3
    assert "the reference is one of 'other'" in answer.err


@pytest.mark.usefixtures("stored")
def test_a_place_that_cannot_be_written(folder, cli):
    (folder / "results" / "reference").write_text("")
    assert "error[E505]" in cli("pin", "small.yaml", "--reference", "results/reference/x").err
    assert cli("pin", "small.yaml").code == 2
    (folder / "taken").write_text("")
    answer = cli("check", "small.yaml", "--junit", "taken/out.xml", "--reference", "elsewhere")
    assert answer.code == 2
    assert "error[E505]" in answer.err


def test_junit_says_what_the_text_says(pinned, cli):
    plant(pinned, 0.005)
    change(pinned, "DELETE FROM trials WHERE id = 1")
    assert cli("check", "small.yaml", "--junit", "deep/er/out.xml").code == 3
    root = ET.parse("deep/er/out.xml").getroot()
    (suite,) = root
    cases = suite.findall("testcase")
    assert root.tag == "testsuites"
    assert int(root.get("tests")) == int(suite.get("tests")) == len(cases)
    failed = [case for case in cases if case.find("failure") is not None]
    errors = [case for case in cases if case.find("error") is not None]
    assert (len(failed), len(errors)) == (int(root.get("failures")), int(root.get("errors")))
    assert len(errors) == 1
    assert failed
    assert {case.find("failure").get("type") for case in failed} == {"regressed"}
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(set(names)) == len(names)
    assert {name.partition(".")[0] for name, _ in names} == {"small"}


def test_json_has_the_same_keys_for_every_comparison(pinned, folder, cli):
    (folder / "small.yaml").write_text(FILE + EXPECT)
    plant(pinned, 0.005)
    answer = cli("check", "small.yaml", "--format", "json")
    assert answer.code == 3
    document = json.loads(answer.out)
    assert list(document) == ["holds", "files"]
    (file,) = document["files"]
    assert list(file) == [
        "file",
        "name",
        "holds",
        "reference",
        "versions",
        "notes",
        "counts",
        "comparisons",
    ]
    assert sum(file["counts"].values()) == len(file["comparisons"]) == 22
    (keys,) = {tuple(each) for each in file["comparisons"]}
    assert keys == (
        "verdict", "good", "against", "algorithm", "variant", "point", "split", "metric",
        "was", "now", "difference", "low", "high", "seeds", "left_out", "needed", "told", "way_out",
    )  # fmt: skip
    bad = [each for each in file["comparisons"] if not each["good"]]
    assert {(each["metric"], each["split"], each["verdict"]) for each in bad} == {
        ("error", "test", "regressed")
    }
    assert [each["difference"] for each in bad] == pytest.approx([0.005] * 3)
    assert {each["against"] for each in file["comparisons"]} == {"reference", "expect"}


@pytest.mark.usefixtures("pinned")
def test_hostile_names_are_text_and_nothing_else(folder, cli):
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
    text = cli("check", "small.yaml")
    assert "\x07" not in text.err
    assert json.loads(cli("check", "small.yaml", "--format", "json").out)["holds"] is False


@pytest.mark.usefixtures("pinned")
def test_several_files_are_one_answer(folder, cli):
    (folder / "other.yaml").write_text(FILE.replace("name: small", "name: other"))
    answer = cli("check", "small.yaml", "other.yaml")
    assert answer.code == 3
    assert "small: 20 comparisons" in answer.out
    assert "other: 1 comparison: 1 not compared" in answer.out
    assert "nothing is stored in 'results/other'" in answer.err


def test_the_workflow_for_readers_does_what_it_says(stored, folder, cli):
    text = (Path(__file__).parents[2] / "docs" / "examples" / "ratecli.yml").read_text("utf-8")
    steps = yaml.safe_load(text)["jobs"]["check"]["steps"]
    said = [step["run"].split() for step in steps if step.get("run", "").startswith("ratecli ")]
    (file,) = {Path(words[2]) for words in said}
    file.parent.mkdir()
    shutil.copy("small.yaml", file)
    before, after = said
    assert cli(*before[1:], "-q").code == 0
    assert cli("pin", file).code == 0
    assert cli(*after[1:]).code == 0
    plant(stored, 0.005)
    answer = cli(*after[1:])
    assert answer.code == 3
    assert answer.out.count(f"::error file={file},") == 3
    paths = next(
        step["with"]["path"] for step in steps if "with" in step and "path" in step["with"]
    )
    assert all(any(folder.glob(pattern)) for pattern in paths.split())


def test_what_is_pinned_here_is_pinned_whole():
    """The project's own references are read, named after their experiments, and small."""
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
@pytest.mark.parametrize("command", ["pin", "check"])
def test_two_files_of_one_name_would_share_a_reference(folder, cli, command):
    shutil.copy(folder / "small.yaml", folder / "again.yaml")
    answer = cli(command, "small.yaml", "again.yaml")
    assert answer.code == 2
    assert "'small.yaml' and 'again.yaml' have the same name" in " ".join(answer.err.split())
    assert not REFERENCE.exists()
