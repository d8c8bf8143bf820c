"""Mutated files and rules are accepted or refused without side effects, and tests of the guard.

The suite checks a few examples, always the same ones; `make fuzz` checks 100,000 new ones.
"""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import mutations
import pytest
from guard import TooLongError, check, look, watched
from hypothesis import given, settings
from hypothesis import strategies as st

from ratecli.config.document import Document
from ratecli.config.experiment import read_experiment
from ratecli.errors import FaultError

MANY = 200
EXAMPLES = int(os.environ.get("RATECLI_FUZZ", "0"))
fixed = settings(derandomize=not EXAMPLES, database=None, max_examples=EXAMPLES or 60)
"""A suite that finds something new each day cannot be trusted."""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """Tables that the files name, and no data, mirror or network."""
    place = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("RATECLI_DATA", str(place / "data"))
        patch.delenv("RATECLI_DATA_MIRROR", raising=False)
        patch.setattr(sys, "dont_write_bytecode", True)
        for name, text in mutations.TABLES.items():
            (place / name).write_text(text, encoding="utf-8")
        yield place


def _look(path: Path, raw: bytes) -> str:
    path.write_bytes(raw)
    return look(path)


@fixed
@given(st.randoms(use_true_random=False))
def test_files_are_accepted_or_refused_without_side_effects(chance):
    _look(Path("exp.yaml"), mutations.mutated_file(chance))


@fixed
@given(st.randoms(use_true_random=False))
def test_rules_are_accepted_or_refused_without_side_effects(chance):
    _look(Path("exp.yaml"), mutations.file_with(chance, mutations.mutated_rule(chance)))


def test_texts_give_an_experiment_or_located_diagnostics():
    codes = set()
    files = (mutations.mutated_file(Random(f"text/{number}")) for number in range(MANY))
    twice = b"name: a\nname: b\n"  # a key that stands twice is rare among mutated files
    for file in (twice, *files):
        text = file.decode("utf-8", "replace")
        if len(text) > 50_000:
            continue
        try:
            read_experiment(Document.of_text(text))
        except FaultError as error:
            for fault in error.faults:
                check(fault, Path("experiment.yaml"), text)
                codes.add(fault.code)
    assert {"E001", "E002", "E004", "E101", "E102", "E103", "E104", "E105"} <= codes


@pytest.mark.parametrize(
    "act",
    [
        lambda: Path("new.txt").write_text("x"),
        lambda: Path("new").mkdir(),
        lambda: Path("people.csv").rename("other.csv"),
        lambda: subprocess.run(["true"], check=True),
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: __import__("sqlite3").connect("x.sqlite"),
    ],
)
def test_the_guard_records_side_effects(folder, act):
    with watched(60) as done, suppress(OSError):
        act()
    assert done
    (folder / "people.csv").write_text(mutations.TABLES["people.csv"])
    with watched(60) as done:
        Path("people.csv").read_text()
    assert not done


def test_the_guard_ends_an_endless_loop():
    def forever():
        while True:
            pass

    with pytest.raises(TooLongError), watched(0.05):
        forever()


LOANS = "name: x\ndatasets: {d: {source: loans, rows: 200}}\nalgorithms: [majorize]\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (LOANS.replace("majorize", "mixture: {model: null}"), "E103"),
        ('name: "a\\0b"', "E005"),
        ('name: x\nalgorithms: "\\ud800"', "E005"),
        (LOANS.replace("source: loans, rows: 200", f"path: {'a' * 4000}.csv, label: y"), "E405"),
        ("{" + ", ".join(f"k{k}: {'v' * 60}" for k in range(1500)) + "}", "E101"),
        (LOANS + "sweep: {k: 'linspace(0, 1, 100000)'}", "E105"),
        (LOANS + "sweep: {k: 'linspace(0, 1, 9999)'}\nseeds: 10000", "E105"),
    ],
    ids=["null", "nul", "surrogate", "long path", "thousands of errors", "points", "trials"],
)
def test_former_failures_are_refused(folder, text, code):
    assert code in _look(folder / "exp.yaml", text.encode()).split()
