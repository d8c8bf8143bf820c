"""Data that stands in for other data is marked wherever its numbers are shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from small import PLAIN

from ratecli.datasets.sources import SOURCES

WHAT = "a stand-in for real loans; results are not comparable with those on them"
SAID = f"The data set loans is {WHAT}."


@pytest.mark.parametrize("stand_in", ["", WHAT])
def test_results_and_show_say_that_data_is_a_stand_in(cli, folder, small, monkeypatch, stand_in):
    monkeypatch.setitem(SOURCES, "loans", replace(SOURCES["loans"], stand_in=stand_in))
    table = "{rows: [algorithm], columns: [error], file: errors}"
    few = ("algorithms=[unconstrained]", "sweep.kappa=[0.6]", "seeds=1")
    small.write_text(f"{PLAIN}report: {{tables: [{table}]}}\n")
    changes = [part for each in few for part in ("--set", each)]
    assert cli("run", small, "-j", 1, *changes).code == 0
    results = folder / "results" / "small"
    for name in ("summary.md", "tables/errors.md", "report.html"):
        assert (SAID in (results / name).read_text()) == bool(stand_in)
    manifest = json.loads((results / "manifest.json").read_text())
    assert manifest["data"]["loans"].get("stand_in", "") == stand_in
    assert (WHAT in cli("show", "loans").out) == bool(stand_in)
