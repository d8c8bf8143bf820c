"""Tooltips of plots, compared with what Matplotlib drew: positions, series and values."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from synthetic_ledger import ledger_of_known_rates, measured, planned

from ratecli.ledger.view import Ledger
from ratecli.report.plots import draw_plots
from ratecli.report.plots.canvas import Canvas

XLINK = "{http://www.w3.org/1999/xlink}href"


def groups_of(drawn, start: str) -> list[ET.Element]:
    root = ET.fromstring(drawn.svg)
    return [part for part in root.iter() if part.get("id", "").startswith(start)]


def markers(drawn, series: int) -> list[tuple[float, float]]:
    """Shares of the figure at which a series has its markers."""
    root = ET.fromstring(drawn.svg)
    width, height = (float(each) for each in root.get("viewBox").split()[2:])
    return [
        (float(use.get("x")) / width, float(use.get("y")) / height)
        for group in groups_of(drawn, f"series-{series}-")
        for use in group.iter()
        if use.get(XLINK) and use.get("x")
    ]


def marked(drawn, series: int) -> list[tuple[float, float]]:
    return [(mark.x, mark.y) for mark in drawn.marks if mark.series == series]


def test_marks_are_where_the_markers_are(images):
    panels = draw_plots(ledger_of_known_rates())
    for shown in (*images, *panels):
        for number, name in enumerate(shown.series):
            if name != "best possible":
                drawn = np.array(sorted(markers(shown, number)))
                np.testing.assert_allclose(sorted(marked(shown, number)), drawn, atol=1e-5)
    assert {name for mark in panels[0].marks for name, _ in mark.facts} == {
        "amount", "n", "error (test)", "solution rate", "failure rate (any constraint, test)",
    }  # fmt: skip


def test_ids_are_unique_and_each_legend_entry_is_a_series(images):
    root = ET.fromstring(images[0].svg)
    ids = [part.get("id") for part in root.iter() if part.get("id")]
    assert len(ids) == len(set(ids))
    entries = {part.get("id").split("-")[1] for part in groups_of(images[0], "legend-")}
    assert entries == {str(number) for number in range(len(images[0].series))}


def test_each_point_of_a_trace_has_a_mark():
    trial = planned("fit", 0)
    trace = tuple({"iteration": k, "objective": 1.0 / k, "violation": 0.5} for k in (1, 2, 3))
    result = measured(trial, {("main", "test"): {"error": 0.1}}, trace=trace)
    plots = {"report": {"plots": [{"kind": "convergence"}]}, "constraints": {"parity": "gap <= 0"}}
    (shown,) = draw_plots(Ledger([trial], {trial.key: result}, {"experiment": plots}))
    assert shown.series == ("fit",)
    assert [dict(mark.facts) for mark in shown.marks[:3]] == [
        {"iteration": str(k), "objective (train)": f"{1 / k:.4f}", "n": "1"} for k in (1, 2, 3)
    ]
    assert len(shown.marks) == 6


def test_a_box_is_where_the_bar_is():
    canvas = Canvas("c")
    axes = canvas.panel()
    canvas.add_series("bars", axes.barh([0, 1], [2.0, 4.0], height=0.5))
    for y, value in enumerate((2.0, 4.0)):
        canvas.add_mark(axes, (0.0, value), (y - 0.25, y + 0.25), (("y", str(y)),), "bars")
    shown = canvas.image("p")
    root = ET.fromstring(shown.svg)
    width, height = (float(each) for each in root.get("viewBox").split()[2:])
    groups = groups_of(shown, "series-0-")
    assert len(groups) == 2
    for mark, group in zip(shown.marks, groups, strict=True):
        numbers = [float(each) for each in group[0].get("d").split() if each not in "MLz"]
        for values, centre, size in (
            (numbers[::2], mark.x * width, mark.width * width),
            (numbers[1::2], mark.y * height, mark.height * height),
        ):
            ends = centre - size / 2, centre + size / 2
            assert (min(values), max(values)) == pytest.approx(ends, abs=1e-3)


def test_marks_are_inside_the_axes():
    canvas = Canvas("c")
    axes = canvas.panel()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    for place in [(0.5, 0.5), (1.5, 0.5), (0.5, -0.2), (float("nan"), 0.5), (1.0, 0.0)]:
        canvas.add_mark(axes, *place, (), "a")
    assert len(canvas.image("p").marks) == 2
