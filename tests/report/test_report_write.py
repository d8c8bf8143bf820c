"""Files of a report: tables and figures, classifiers and their folders, and their removal."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
from synthetic_ledger import METRICS, PLOT, certificate, leaf, ledger_of_known_rates, store

from ratecli.config.report import GuaranteePlot
from ratecli.errors import FaultError
from ratecli.ledger.locks import REPORT_LOCK_FILE
from ratecli.ledger.records import PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.report.plots.canvas import Canvas, PlotRequest, draw_image
from ratecli.report.plots.lines import draw_guarantee
from ratecli.report.write import MAX_FOLDER_NAME, trial_folders, write_models, write_report

FIGURE = "figures/tradeoff-ratio-error"
FILES = (
    *(
        "metrics.csv",
        "trials.csv",
        "summary.csv",
        "answers.json",
        "summary.md",
        "tables/errors.md",
        "tables/errors.tex",
    ),
    *(f"{FIGURE}.svg", f"{FIGURE}.png", f"{FIGURE}-2.svg", f"{FIGURE}-2.png"),
    "report.html",
)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in FILES}


def test_the_files_are_written_and_nothing_else(reported):
    found = {str(path.relative_to(reported)) for path in reported.rglob("*") if path.is_file()}
    assert found == {*FILES, "trials.sqlite", REPORT_LOCK_FILE}


def test_the_order_in_which_trials_ended_has_no_effect(reported, example, tmp_path):
    other = store(tmp_path / "other", example, reversed(example.plan))
    assert write_report(other)[1] == [other / name for name in FILES]
    assert contents(other) == contents(reported)


KILLED = """
import os, signal, sys
from pathlib import Path
from ratecli.report.write import write_report
from ratecli import files
synced, before = os.fsync, int(sys.argv[2])

def sync(file):
    global before
    before -= 1
    if before < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    synced(file)

files.os.fsync = sync
write_report(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_the_next_report_removes_remains_of_a_killed_one(reported, tmp_path):
    written = len(FILES) - 3
    shutil.copy(reported / "trials.sqlite", tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path, str(written)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.rglob("*.tmp")
    assert left.parent == tmp_path / "figures"
    unwritten = tmp_path / "models" / left.name
    unwritten.parent.mkdir()
    shutil.copy(left, unwritten)
    for path in (left, unwritten):
        os.utime(path, (0, 0))
    new = left.with_name(".unfinished-0.tmp")
    new.touch()
    write_report(tmp_path)
    assert list(tmp_path.rglob("*.tmp")) == [new]
    assert contents(tmp_path) == contents(reported)


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(reported, tmp_path):
    shutil.copy(reported / "trials.sqlite", tmp_path)
    subprocess.run([sys.executable, "-W", "error", "-c", KILLED, tmp_path, "99"], check=True)
    other, own = contents(tmp_path), contents(reported)
    bitmaps = {name for name in FILES if name.endswith(".png")}  # which the fixture leaves out
    assert {name for name in FILES if other[name] != own[name]} <= bitmaps


@pytest.mark.usefixtures("images")
def test_a_plot_with_a_file_is_a_pdf_in_the_width_of_a_column():
    ledger = ledger_of_known_rates()
    plot = PlotRequest(GuaranteePlot.model_construct(**PLOT, file="x"), "x")
    first, again = (draw_image(draw_guarantee, ledger, plot).pdf for _ in range(2))
    assert first == again
    assert b"/MediaBox [ 0 0 234 " in first  # 3.25 inches
    assert b"/FontFile2" in first, "fonts are embedded as TrueType"
    unnamed = replace(plot, options=GuaranteePlot.model_construct(**PLOT))
    assert not draw_image(draw_guarantee, ledger, unnamed).pdf


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize(("panels", "most", "width"), [(3, 2, 234), (4, 2, 486), (6, 3, 234)])
def test_a_pdf_of_two_rows_of_two_panels_is_as_wide_as_two_columns(panels, most, width):
    def draw(_, plot: PlotRequest) -> Canvas:
        return Canvas(plot, "", "", panels, most)

    plot = PlotRequest(GuaranteePlot.model_construct(**PLOT, file="x"), "x")
    assert f"/MediaBox [ 0 0 {width} ".encode() in draw_image(draw, None, plot).pdf


def test_texts_of_the_summary(reported):
    text = (reported / "summary.md").read_text(encoding="utf-8")
    assert text.startswith(
        "# quickstart\n\na model is expected or confirmed to hold on new rows at 6 of 6 values of kappa"
    )
    assert "\n|   0.5 | majorize (stochastic)  " in text
    for title in ("Table 1 (test)", "errors (train)", "Satisfied constraints"):
        assert f"\n## {title}\n" in text


def trial(label, key, seed=0, **point):
    return PlannedTrial(key, label, label, {}, point, seed, METRICS)


def write(folder, trials, models, status="ok", *, info=None, meta=None, encoding=""):
    """Return the files that `write_models` leaves below `folder`, by path; `models` are by key."""
    results = {
        key: TrialResult(key, status, info=info or {}, models=models[key], encoding=encoding)
        for key in models
    }
    folder.mkdir(exist_ok=True)
    with LedgerStore(folder / "trials.sqlite") as store:
        store.begin(trials, {})
        for result in results.values():
            store.put(result)
        count = write_models(folder / "models", Ledger(trials, results, meta or {}), store)
    found = files_below(folder / "models")
    assert count == sum(data != b"mine" for data in found.values())
    return found


def files_below(place):
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }


def test_folder_names_identify_trials():
    trials = [
        trial("majorize", "a", target=1.25, n=3),
        trial("majorize", "b", seed=1, target=1e20, n=True),
        trial("plain", "c", seed=2**70),
    ]
    assert {name: found.key for name, found in trial_folders(trials).items()} == {
        "majorize-target=1.25-n=3-seed=0": "a",
        "majorize-target=1e+20-n=true-seed=1": "b",
        "plain-seed=1180591620717411303424": "c",
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"label": "A"}, {"label": "a"}),  # one folder to some file systems
        ({"x": 1}, {"x": "1"}),
        ({"x": "../../b"}, {"x": "..\\..\\b"}),
        ({"x": "é"}, {"x": "ü"}),
        ({"x": "n" * 500 + "1"}, {"x": "n" * 500 + "2"}),
    ],
)
def test_no_two_models_share_a_folder(one, other):
    first, second = (
        trial(point.pop("label", "a"), key * 64, **point)
        for key, point in (("1", dict(one)), ("2", dict(other)))
    )
    found = trial_folders([first, second])
    assert [each.key for each in found.values()] == [first.key, second.key]
    assert trial_folders([second, first]) == found
    assert len({name.casefold() for name in found}) == 2
    for name, owner in found.items():
        assert len(name) <= MAX_FOLDER_NAME + 13
        assert name.endswith(f"-{owner.key[:12]}")
        assert not set(name) & set("/\\: ,;\"'*?<>|&$\n")


def test_each_planned_trial_has_a_folder_with_safe_file_names(tmp_path):
    trials = [trial("a", "k"), trial("b", "k"), trial("a", "k", x="1"), trial("a", "k", x=1)]
    folders = ("a-seed=0", "b-seed=0", "a-x=1-seed=0")
    models = {"main": b"1", "a/b": b"2", "a b": b"3", "..": b"4"}
    names = ("main", "a-b", "a-b-2", "unnamed")
    assert write(tmp_path, trials, {"k": models}) == {
        f"{folder}/{name}.npz": data
        for folder in folders
        for name, data in zip(names, models.values(), strict=True)
    }


ENCODING = json.dumps({"blocks": [{"column": "é", "levels": ["ü"]}], "others": {}, "levels": 1})


@pytest.mark.parametrize("status", ["infeasible", "no_solution_found", "diverged", "error"])
def test_a_trial_without_a_solution_has_no_files(tmp_path, status):
    models = {"k": {"v": b"1"}}
    assert write(tmp_path, [trial("a", "k")], models, status, encoding=ENCODING) == {}
    assert not (tmp_path / "models").exists()


def test_models_of_unplanned_trials_are_removed_and_other_files_kept(tmp_path):
    before = [trial("a", "k1", x=1), trial("a", "k2", x=2), trial("b", "k3")]
    models = {"k1": {"v": b"1", "w": b"1"}, "k2": {"v": b"2"}, "k3": {"v": b"3"}}
    write(tmp_path, before, models)
    place = tmp_path / "models"
    (place / "a-x=2-seed=0" / "notes.txt").write_bytes(b"mine")
    (place / "mine.npz").write_bytes(b"mine")
    killed = place / "a-x=1-seed=0" / ".v.npz.0a1b.tmp"
    killed.write_bytes(b"half")
    (place / "linked").symlink_to(tmp_path)
    after = [trial("a", "k4", x=1), trial("c", "k3")]
    assert write(tmp_path, after, {"k4": {"v": b"4"}, "k3": models["k3"]}) == {
        "a-x=1-seed=0/v.npz": b"4",
        "a-x=2-seed=0/notes.txt": b"mine",
        "c-seed=0/v.npz": b"3",
        "mine.npz": b"mine",
    }
    folders = {path.name for path in place.iterdir() if path.is_dir()}
    assert folders == {"a-x=1-seed=0", "a-x=2-seed=0", "c-seed=0", "linked"}


TESTED = {
    "rows": {"train": 10, "safety": 7},
    "certificates": [
        certificate(leaf("tpr[women]", -1, 1, interval=["-inf", "inf"]), "inf", variant="a b"),
        certificate(leaf("tpr[men]", -1, 0), -0.25, passed=True, variant="c", estimate="nan"),
    ],
}
RULES = {"experiment": {"constraints": {"parity": "tpr[women] >= kappa"}}}


strict = partial(json.loads, parse_constant=pytest.fail)
"""Parse JSON that has no NaN or infinity."""


def test_certificates_are_beside_their_models(tmp_path):
    models = {"k": {"a b": b"1"}}
    found = write(tmp_path, [trial("a", "k", 3, kappa=0.5)], models, info=TESTED, meta=RULES)
    assert set(found) == {"a-kappa=0.5-seed=3/a-b.npz", "a-kappa=0.5-seed=3/certificates.json"}
    content = strict(found["a-kappa=0.5-seed=3/certificates.json"])
    first, second = content.pop("certificates")
    assert content == {
        "key": "k", "algorithm": "a", "point": {"kappa": 0.5}, "status": "ok", "reason": ""
    }  # fmt: skip
    assert [each["model"] for each in (first, second)] == ["a-b.npz", None]
    about = {"rule": "tpr[women] >= kappa", "violation": METRICS["violation.parity"],
             "seed": 3, "safety_rows": 7}  # fmt: skip
    for shown, stored in zip((first, second), TESTED["certificates"], strict=True):
        assert stored.items() <= shown.items()
        assert about.items() <= shown.items()


def test_a_tested_trial_without_a_solution_has_certificates_alone(tmp_path):
    status = "no_solution_found"
    trials = [trial("a", "k"), trial("a", "l", seed=1)]
    found = write(tmp_path, trials[:1], {"k": {"v": b"1"}}, status, info=TESTED, meta=RULES)
    assert set(found) == {"a-seed=0/certificates.json"}
    assert strict(found["a-seed=0/certificates.json"])["certificates"][0]["model"] is None
    # and they go with the plan, or with the test
    assert set(write(tmp_path, trials[1:], {"l": {"v": b"1"}})) == {"a-seed=1/v.npz"}


def test_the_encoder_is_beside_the_models(tmp_path):
    models = {"main/x": b"1", "other": b"2"}
    trials = [trial("a", "k", 3, kappa=0.5)]
    found = write(tmp_path, trials, {"k": models}, encoding=ENCODING)
    place = "a-kappa=0.5-seed=3/"
    assert set(found) == {f"{place}main-x.npz", f"{place}other.npz", f"{place}encoder.json"}
    content = strict(found[f"{place}encoder.json"])
    files = zip(models.items(), ("main-x.npz", "other.npz"), strict=True)
    about = {"key": "k", "algorithm": "a", "point": {"kappa": 0.5}, "seed": 3}
    about["predicts"] = ""
    assert len(content.pop("sha256")) == 64
    assert content == json.loads(ENCODING) | about | {
        "models": [
            {
                "variant": variant,
                "file": file,
                "sha256": hashlib.sha256(data).hexdigest(),
                "violations": {},
            }
            for (variant, data), file in files
        ]
    }
    assert "é" in found[f"{place}encoder.json"].decode()
    # and it goes with the plan
    assert set(write(tmp_path, [trial("b", "l")], {"l": {"v": b"1"}})) == {"b-seed=0/v.npz"}


def test_only_changed_files_are_written(tmp_path):
    trials = [trial("a", "k"), trial("a", "l", seed=1)]
    models = {"k": {"v": b"1"}, "l": {"v": b"2"}}
    write(tmp_path, trials, models)
    files = sorted((tmp_path / "models").rglob("*.npz"))
    files[1].write_bytes(b"half")
    for path in files:
        os.utime(path, (1000, 1000))
    assert set(write(tmp_path, trials, models).values()) == {b"1", b"2"}
    assert [path.stat().st_mtime == 1000 for path in files] == [True, False]


def test_what_cannot_be_read_or_written_is_an_error(tmp_path):
    with pytest.raises(FaultError, match="E503"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a-seed=0").touch()
    with pytest.raises(FaultError, match=r"E505: cannot write to '.*a-seed=0': File exists"):
        write(tmp_path, [trial("a", "k")], {"k": {"v": b"1"}})
