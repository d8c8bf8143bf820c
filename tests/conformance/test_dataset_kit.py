"""Checks of data sets: some of ratecli's own pass, and each error fails its check."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ratecli_example import applicants
from ratecli_example.housing import HOUSING

from ratecli.conformance import check_dataset
from ratecli.datasets.source import Option, RemoteFile, Source
from ratecli.datasets.sources import SOURCES
from ratecli.datasets.table import Table

CONTENT = b"age,town,paid\n" + b"".join(
    f"{20 + k % 40},{'old' if k % 3 else 'new'},{(k * k) % 7 % 2}\n".encode() for k in range(90)
)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = RemoteFile("people.csv", "https://example.org/people.csv", SHA256, len(CONTENT))
PEOPLE = Source(
    name="people",
    summary="people of two towns",
    preparations={"plain": f"{__name__}:prepare"},
    rows=90,
    label="paid = 1",
    sensitive=("town",),
    licence="none",
    notes="age in years, town old or new",
    files=(FILE,),
)


def table(raw):
    frame = pd.read_csv(raw.paths["people.csv"]).astype({"town": object})
    label = frame["paid"].to_numpy(dtype=float)
    return Table(frame, ("age", "town"), label, digest=raw.digest)


def prepare(raw):
    return table(raw)


@pytest.fixture(autouse=True)
def mirror(tmp_path, monkeypatch):
    """A mirror with the file, and an empty data folder."""
    there = tmp_path / "mirror" / "people"
    there.mkdir(parents=True)
    (there / "people.csv").write_bytes(CONTENT)
    monkeypatch.setenv("RATECLI_DATA_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setenv("RATECLI_DATA", str(tmp_path / "data"))
    return tmp_path


def failing(source):
    return {check.name: check.reason for check in check_dataset(source, offline=True).failed}


@pytest.mark.parametrize(
    "source",
    [PEOPLE, HOUSING, SOURCES["loans"], pytest.param(SOURCES["clicks"], marks=pytest.mark.slow)],
    ids=lambda each: each.name,
)
def test_correct_sources_pass(source):
    check_dataset(source, offline=True).require()


def test_without_the_files_other_checks_are_skipped(mirror):
    file = mirror / "mirror" / "people" / "people.csv"
    file.write_bytes(CONTENT + b"1,old,1\n")
    assert "E403" in failing(PEOPLE)["can be fetched"]
    file.unlink()
    report = check_dataset(PEOPLE, offline=True)
    assert [check.name for check in report.failed] == ["can be fetched"]
    assert "E401" in report.failed[0].reason
    assert sum(check.state == "skipped" for check in report.checks) == 5


@pytest.mark.parametrize(
    ("change", "check", "reason"),
    [
        ({"notes": " "}, "is declared", "'notes' is empty"),
        ({"options": {"size": Option(1, 1, 9)}}, "is declared", "cannot set the option 'size'"),
        ({"files": (replace(FILE, sha256=""),)}, "can be fetched", "E403"),
        ({"files": (replace(FILE, size=0, sha256=""),)}, "can be fetched", "has no size"),
        ({"rows": 91}, "can be read", "it has 90 rows, but `rows` is 91"),
        ({"preparations": {"plain": "nowhere_at_all:prepare"}}, "can be read", "nowhere_at_all"),
        ({"sensitive": ("sex",)}, "has valid columns", "'sex'"),
        ({"numbers": {"plain": (0.0, 1.0)}}, "has labels", "not (0.0, 1.0)"),
    ],
)
def test_wrong_declarations_fail(change, check, reason):
    assert reason in failing(replace(PEOPLE, **change))[check]


def test_what_a_source_prints_is_kept_from_reports(monkeypatch, capsys):
    def prepared(raw):
        sys.stdout.write("reading")
        return table(raw)

    monkeypatch.setitem(globals(), "prepare", prepared)
    check_dataset(PEOPLE, offline=True).require()
    assert capsys.readouterr().out == ""


def _with(**changes):
    return lambda raw: replace(table(raw), **changes)


def _frame(change):
    def prepared(raw):
        found = table(raw)
        return replace(found, frame=change(found.frame.copy()))

    return prepared


def _noise(raw):
    found = table(raw)
    ages = found.frame["age"] + np.random.default_rng().normal(size=len(found))
    return replace(found, frame=found.frame.assign(age=ages))


@pytest.mark.parametrize(
    ("wrong", "check", "reason"),
    [
        (_with(digest="mine"), "can be read", "does not pass on the digest"),
        (lambda raw: table(raw).frame, "can be read", "returns DataFrame, not a Table"),
        (_with(label=np.ones(3)), "can be read", "'label' has 3 rows"),
        (_with(label=np.full(90, 2.0)), "has labels", "is 2 to 2, not 0 or 1"),
        (_with(label=np.ones(90)), "has labels", "only one class"),
        (_with(label=np.zeros(90, dtype=int)), "has labels", "int64, not float64"),
        (_with(label_range=(0.0, 1.0)), "has labels", "the range (0.0, 1.0), not None"),
        (_with(features=("age", "paid")), "has valid columns", "'paid' is the label"),
        (_with(features=("age", "height")), "has valid columns", "there is no column 'height'"),
        (_with(part=np.full(90, "holdout")), "has valid columns", "'part' has other values"),
        (_with(weight=np.zeros(90)), "has valid columns", "not all positive numbers"),
        (_frame(lambda f: f.set_index(f.index + 1)), "has valid columns", "not numbered from 0"),
        (_frame(lambda f: f.assign(town=[b"x"] * 90)), "has valid columns", "'town' mixes text"),
        (_frame(lambda f: f.assign(age=np.inf)), "has valid columns", "infinite numbers"),
        (
            _with(features=(), matrix=np.full((90, 2), np.inf)),
            "has valid columns",
            "not all of them are finite",
        ),
        (_frame(lambda f: f.assign(town="old")), "has groups", "'town' has only one value"),
        (_noise, "is reproducible", "a second call returns other rows"),
    ],
)
def test_wrong_tables_fail(wrong, check, reason, monkeypatch):
    monkeypatch.setitem(globals(), "prepare", wrong)
    assert reason in failing(PEOPLE)[check]


def test_a_seed_without_effect_fails():
    still = replace(HOUSING, preparations={"plain": f"{__name__}:seedless"})
    assert "another seed" in failing(still)["is reproducible"]


def seedless(raw):
    return applicants.prepare(replace(raw, options={**raw.options, "seed": 0}))


def test_an_undocumented_column_gets_a_warning():
    report = check_dataset(replace(PEOPLE, notes="people"), offline=True)
    assert report.holds
    assert [check.name for check in report.checks if check.state == "warning"] == ["has groups"]
