"""Trade-offs in panels, and the lines of limits."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from synthetic_ledger import measured, planned

from ratecli.ledger.view import Ledger
from ratecli.report.plots.draw import draw_tradeoff
from ratecli.report.plots.series import collect_series
from ratecli.report.plots.style import panel_columns, panel_rows
from ratecli.report.plots.tradeoff import ConstraintLevel, read_tradeoff

PLOT = {"kind": "tradeoff", "x": "violation.parity", "y": "error", "by": "dataset"}
LIMIT = {"value": 0.0, "label": "limit"}


def ledger_of(*trials, plot=PLOT, **lines) -> Ledger:
    """Rows of label, point, violation, two seeds each; the error is half of the violation."""
    plan = [planned(label, seed, **point) for label, point, _ in trials for seed in (0, 1)]
    numbers = [violation + seed / 10 for *_, violation in trials for seed in (0, 1)]
    results = {
        trial.key: measured(trial, {("main", "test"): {"violation.parity": v, "error": v / 2}})
        for trial, v in zip(plan, numbers, strict=True)
    }
    return Ledger(plan, results, {"experiment": {"report": {"plots": [plot]}}, "plots": [lines]})


TWO = (
    ("plain", {}, 0.4),
    ("fit", {"dataset": "adult"}, 0.0),
    ("fit", {"dataset": "law"}, 0.2),
    ("late", {"dataset": "law"}, 0.3),
)


def test_a_panel_has_its_own_points_and_those_of_no_panel():
    ledger = ledger_of(*TWO)
    plot = read_tradeoff(ledger, 0)
    assert plot.panels == ("adult", "law")
    shown = [
        {series.name: [point.place for point in series.lines[0]] for series in found}
        for part in plot.parts()
        if (found := collect_series(ledger, part.plane, part.choice))
    ]
    plain, fit, late = ([(pytest.approx(v), pytest.approx(v / 2))] for v in (0.45, 0.25, 0.35))
    assert shown[0] == {"plain": plain, "fit": [(pytest.approx(0.05), pytest.approx(0.025))]}
    assert shown[1] == {"plain": plain, "fit": fit, "late": late}


def test_colours_are_the_same_in_all_panels():
    ledger = ledger_of(*TWO)
    positions = [
        {
            series.name: series.algorithm
            for series in collect_series(ledger, part.plane, part.choice)
        }
        for part in read_tradeoff(ledger, 0).parts()
    ]
    assert positions == [{"plain": 0, "fit": 1}, {"plain": 0, "fit": 1, "late": 2}]


def test_only_algorithms_that_are_drawn_make_panels():
    ledger = ledger_of(
        *TWO, ("other", {"dataset": "wiki"}, 0.1), plot=PLOT | {"algorithms": ["fit"]}
    )
    assert read_tradeoff(ledger, 0).panels == ("adult", "law")


def test_1_and_true_are_two_panels():
    ledger = ledger_of(("fit", {"dataset": 1}, 0.1), ("fit", {"dataset": True}, 0.2))
    parts = read_tradeoff(ledger, 0).parts()
    assert [part.title for part in parts] == ["dataset = 1", "dataset = true"]
    lines = [collect_series(ledger, part.plane, part.choice)[0].lines for part in parts]
    assert [len(line) for line in lines] == [1, 1]


def test_a_level_of_one_panel_is_drawn_there_only():
    levels = [LIMIT, {"value": 0.3, "label": "parity: 0.3", "panel": "law"}]
    ledger = ledger_of(*TWO, levels=levels, heights=[LIMIT])
    adult, law = read_tradeoff(ledger, 0).parts()
    assert adult.levels == (ConstraintLevel(0.0, "limit"),)
    assert law.levels == (ConstraintLevel(0.0, "limit"), ConstraintLevel(0.3, "parity: 0.3", "law"))
    assert adult.heights == law.heights == (ConstraintLevel(0.0, "limit"),)


def test_the_drawing_has_a_title_a_legend_and_labels_at_the_edges():
    plot = read_tradeoff(ledger_of(*TWO, levels=[LIMIT]), 0)
    svg = draw_tradeoff(ledger_of(*TWO), plot).svg.decode()
    ET.fromstring(svg)
    counts = {"dataset = adult": 1, "dataset = law": 1, "limit": 2, "error (test)": 1,
              "violation.parity (test)": 2, "fit": 1, "late": 1}  # fmt: skip
    assert {text: svg.count(f"<!-- {text} -->") for text in counts} == counts
    assert svg.count('id="legend_') == 1


def test_a_panel_without_numbers_says_so():
    ledger = ledger_of(*TWO[1:])
    trial = ledger.plan[0]
    gone = {key: each for key, each in ledger.results.items() if "adult" not in key}
    assert "adult" in trial.key
    svg = draw_tradeoff(replace(ledger, results=gone), read_tradeoff(ledger, 0)).svg.decode()
    assert svg.count("no trial gave these numbers") == 1


def test_a_limit_of_y_is_a_horizontal_line():
    plot = {"kind": "tradeoff", "x": "error", "y": "violation.parity"}
    ledger = ledger_of(*TWO, plot=plot, heights=[LIMIT])
    found = read_tradeoff(ledger, 0)
    assert found.heights == (ConstraintLevel(0.0, "limit"),)
    with_line, without = (
        draw_tradeoff(ledger, found),
        draw_tradeoff(ledger, replace(found, heights=())),
    )
    assert b"<!-- limit -->" in with_line.svg
    assert b"<!-- limit -->" not in without.svg


@pytest.mark.parametrize(
    ("panels", "wide", "high"), [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 2, 2), (5, 3, 2), (12, 3, 4)]
)
def test_panels_stand_in_rows(panels, wide, high):
    assert (panel_columns(panels), panel_rows(panels)) == (wide, high)


SPLITS = {"kind": "tradeoff", "x": "ratio", "y": "error", "split": ["train", "test"]}


def split_ledger(plot, alphas=(0.2, 0.1)) -> Ledger:
    """On test rows everything is 1 more."""
    plan = [planned("fit", 0, data=d, alpha=a) for d in ("u", "v") for a in alphas]
    results = {}
    for trial in plan:
        a = trial.point["alpha"]
        found = {
            ("main", split): {"ratio": a + more, "error": 2 * a + more}
            for split, more in (("train", 0), ("test", 1))
        }
        results[trial.key] = measured(trial, found)
    return Ledger(plan, results, {"experiment": {"report": {"plots": [plot]}}})


def test_splits_stand_side_by_side():
    ledger = split_ledger(SPLITS)
    plot = read_tradeoff(ledger, 0)
    assert plot.caption == "error against ratio (train and test)"
    train, test = plot.parts()
    assert (train.title, test.title) == ("train", "test")
    (first,) = collect_series(ledger, train.plane, train.choice)
    (second,) = collect_series(ledger, test.plane, test.choice)
    assert [point.place for point in first.lines[0]] == [(0.1, 0.2), (0.2, 0.4)]
    assert [point.place for point in second.lines[0]] == [(1.1, 1.2), (1.2, 1.4)]
    svg = draw_tradeoff(ledger, plot).svg.decode()
    assert svg.count("<!-- train -->") == svg.count("<!-- test -->") == 1
    assert (svg.count("<!-- ratio -->"), svg.count("<!-- error -->")) == (2, 1)
    assert "ratio (t" not in svg


def test_splits_of_one_value_stand_in_a_row():
    plot = read_tradeoff(split_ledger(SPLITS | {"by": "data"}), 0)
    assert [part.title for part in plot.parts()] == [
        "data = u (train)",
        "data = u (test)",
        "data = v (train)",
        "data = v (test)",
    ]
    assert [part.plane.split for part in plot.parts()] == ["train", "test"] * 2


def test_a_list_of_one_split_is_that_split():
    ledger = split_ledger(SPLITS | {"split": ["train"]})
    assert read_tradeoff(ledger, 0) == read_tradeoff(split_ledger(SPLITS | {"split": "train"}), 0)
    assert b"<!-- ratio (train) -->" in draw_tradeoff(ledger, read_tradeoff(ledger, 0)).svg
