"""What stands in for other data says so wherever its numbers are."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from small import SMALL

from ratecli.datasets.sources import SOURCES

WHAT = "a stand-in for real loans; results are not comparable with those on them"
SAID = f"The data set loans is {WHAT}."


@pytest.fixture
def one_trial(small):
    text = SMALL.replace("  - majorize: {iterations: 2}\n", "").replace("[0.6, 0.9]", "[0.6]")
    text = text.replace("seeds: 2", "seeds: 1").partition("report:")[0]
    table = "{rows: [algorithm], columns: [error], file: errors}"
    small.write_text(f"{text}report: {{tables: [{table}]}}\n")
    return small


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setitem(SOURCES, "loans", replace(SOURCES["loans"], stand_in=WHAT))


@pytest.mark.usefixtures("stand_in")
def test_results_on_a_stand_in_say_so(cli, folder, one_trial):
    assert cli("run", one_trial, "-j", 1).code == 0
    results = folder / "results" / "small"
    for name in ("summary.md", "tables/errors.md"):
        assert SAID in (results / name).read_text()
    page = (results / "report.html").read_text()
    assert page.index(SAID) < page.index("Setup<")
    manifest = json.loads((results / "manifest.json").read_text())
    assert manifest["data"]["loans"]["stand_in"] == WHAT


@pytest.mark.usefixtures("stand_in")
def test_show_says_so(cli):
    assert WHAT in cli("show", "loans").out


def test_other_data_says_nothing(cli, folder, one_trial):
    assert cli("run", one_trial, "-j", 1).code == 0
    for name in ("summary.md", "report.html"):
        assert "The data set" not in (folder / "results" / "small" / name).read_text()
    assert "stand_in" not in cli("show", "loans").out


def test_listing_shows_what_has_no_known_size(cli):
    row = next(line for line in cli("ls", "datasets").out.splitlines() if line.startswith("wiki "))
    assert row.split()[1] == "159686"
    rows = {row["name"]: row for row in json.loads(cli("ls", "datasets", "--json").out)}
    assert rows["wiki"]["bytes"] is None
