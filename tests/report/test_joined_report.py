"""The page over several experiments."""

from __future__ import annotations

import re
from dataclasses import replace

import synthetic_ledger

from ratecli.ledger.view import Ledger
from ratecli.report.html import render_joined, write_joined

WHO = {"algorithm": "majorize", "variant": "stochastic", "metric": "error"}
EXPECT = [
    WHO | {"kappa": 0.5, "paper": 0.5},
    WHO | {"kappa": 0.6, "paper": 0.12, "within": 0.1, "source": "Table 2"},
    WHO | {"kappa": 0.7, "metric": "objective", "paper": 0.4, "within": 0.01},
    WHO | {"kappa": 0.8, "paper": 0.9, "within": "1%"},
    WHO | {"kappa": 0.9, "split": "validation", "paper": 0.1, "within": 0.1},
    WHO | {"kappa": 1.0, "at_least": 0.1},
]


def stored(folder, name, **more) -> Ledger:
    known = synthetic_ledger.example()
    found = replace(known, meta={"experiment": {**known.experiment, "name": name, **more}})
    folder.mkdir(parents=True)
    synthetic_ledger.store(folder, found, found.plan)
    return found


def rows(page: str, title: str) -> list[list[str]]:
    """The texts of a table's rows."""
    (body,) = re.findall(rf">{title}</h2>.*?<tbody>(.*?)</tbody>", page, re.DOTALL)
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]
        for row in body.split("<tr")[1:]
    ]


def test_differences_come_first_and_figures_without_a_verdict_last(tmp_path):
    stored(tmp_path / "a", "a", expect=EXPECT)
    page = render_joined([tmp_path / "a"], tmp_path / "report.html")
    found = rows(page, "Paper figures and measured values")
    assert [(row[2], row[7]) for row in found] == [
        ("paper 0.9", "differs"),
        ("paper 0.1", "not measured: no such number"),
        ("paper 0.4", "better"),
        ("paper 0.12", "holds"),
        ("paper 0.5", "not judged"),
    ]
    figure, _, value, interval, *_, source = found[3][1:]
    assert (figure, source) == ("error of majorize (stochastic), kappa = 0.6, test", "Table 2")
    low, high = map(float, interval.split(" to "))
    assert low < float(value) < high
    assert [row[2] for row in rows(page, "Other expectations")] == ["≥ 0.1"]


def test_each_row_links_to_the_experiments_report(tmp_path):
    for name in ("a b", "c"):
        stored(tmp_path / "deep" / name, name)
    (tmp_path / "deep" / "a b" / "report.html").write_text("")
    folders = [tmp_path / "deep" / name for name in ("a b", "c", "never", "c")]
    place = write_joined(folders, tmp_path / "pages" / "all.html")
    page = place.read_text("utf-8")
    assert re.findall(r'<a href="([^"]*)">', page) == ["../deep/a%20b/report.html"]
    assert [row[0] for row in rows(page, "Experiments")] == ["a b", "c", "never"]
    assert rows(page, "Experiments")[-1][3] == "not_run"
    assert "<h1>3 experiments</h1>" in page
    assert "figures of papers" not in page


def test_statuses_and_shares_of_satisfied_constraints(tmp_path):
    ledger = stored(tmp_path / "a", "a")
    (row,) = rows(render_joined([tmp_path / "a"], tmp_path / "x.html"), "Experiments")
    assert row[2:4] == ["90", "ok 54, not_met 30, no_solution_found 5, error 1"]
    kept, measured = map(int, row[4].removeprefix("✗ ").split(" of "))
    numbers = [
        found["test", "violation.parity"]
        for trial in ledger.plan
        for found in ledger.numbers(trial).values()
    ]
    assert (kept, measured) == (sum(each <= 1e-6 for each in numbers), len(numbers))


def test_an_unreadable_ledger_is_named_beside_the_others(tmp_path):
    stored(tmp_path / "a", "a", expect=EXPECT)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "trials.sqlite").write_bytes(b"not a database" * 100)
    page = write_joined([tmp_path / n for n in "bac"], tmp_path / "report.html").read_text("utf-8")
    assert [row[0] for row in rows(page, "Experiments")] == ["b", "a", "c"]
    assert [row[3] for row in rows(page, "Experiments")][::2] == ["cannot be read", "not_run"]
    assert "Not run: c." in page
    fault = f"E502: &#39;{tmp_path}/b/trials.sqlite&#39; is not a ledger of ratecli."
    assert f"b cannot be read: {fault}" in page
    assert len(rows(page, "Paper figures and measured values")) == 5
