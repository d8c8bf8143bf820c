"""Courses of algorithms from their traces, and how they are drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from synthetic_ledger import measured, planned

from ratecli.ledger.view import Ledger
from ratecli.report.plots.convergence import (
    MAX_BINS,
    AxisScales,
    ConvergencePlotOptions,
    align_traces,
    convergence_curves,
    draw_convergence,
    read_convergence,
    spans_decades,
)
from ratecli.report.plots.draw import draw_plots

NOTHING = {("main", "test"): {"error": 0.1}}


def rows(*values, start=1, step=1):
    """A trace of (objective, violation) that takes a quarter of a second each."""
    return tuple(
        {"iteration": start + k * step, "objective": y, "violation": v, "seconds": 0.25 * (k + 1)}
        for k, (y, v) in enumerate(values)
    )


def ledger_of(trials, plots=({"kind": "convergence"},), **experiment) -> Ledger:
    """Rows of label, seed, sweep point, trace, status."""
    plan = [planned(label, seed, **point) for label, seed, point, *_ in trials]
    results = {
        trial.key: measured(trial, NOTHING, trace=trace, status=status)
        for trial, (*_, trace, status) in zip(plan, trials, strict=True)
    }
    said = {"constraints": {"parity": "..."}, "report": {"plots": list(plots)}, **experiment}
    return Ledger(plan, results, {"experiment": said})


FALLING = rows((0.5, 0.2), (0.3, 0.1), (0.2, 1e-9))


def test_seeds_are_a_mean_and_a_range_and_who_has_ended_stays():
    short = rows((0.7, 0.0), (0.5, 0.3))
    found = align_traces([FALLING, short], "iteration", "objective").ribbon(logarithmic=False)
    assert found.places.tolist() == [1, 2, 3]
    assert found.mean == pytest.approx([0.6, 0.4, 0.35])
    assert found.low.tolist() == [0.5, 0.3, 0.2]
    assert found.high.tolist() == [0.7, 0.5, 0.5]


def test_it_begins_where_all_seeds_have_begun():
    late = rows((0.9, 0.0), start=2)
    found = align_traces([FALLING, late], "iteration", "objective").ribbon(logarithmic=False)
    assert found.places.tolist() == [2, 3]
    assert found.mean == pytest.approx([0.6, 0.55])


def test_what_is_not_finite_is_left_out():
    one = rows((float("inf"), 0.0), (0.4, 0.0), (float("nan"), 0.0))
    found = align_traces([FALLING, one], "iteration", "objective").ribbon(logarithmic=False)
    assert found.mean == pytest.approx([0.5, 0.35, 0.2])
    alone = align_traces([one], "iteration", "objective").ribbon(logarithmic=False)
    np.testing.assert_array_equal(alone.mean, [np.nan, 0.4, np.nan])
    np.testing.assert_array_equal(alone.low, [np.nan, 0.4, np.nan])


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_long_course_is_told_in_pieces(logarithmic):
    """Up and down between 0 and 1: a piece of many iterates has the mean 1/2 and the range [0, 1]."""
    trace = rows(*((k % 2, 0.0) for k in range(1001)), start=0, step=10)
    found = align_traces([trace], "iteration", "objective").ribbon(logarithmic=logarithmic)
    assert len(found.places) <= MAX_BINS
    assert found.places[-1] == 10_000
    assert found.mean[-1] == pytest.approx(0.5, abs=0.05)
    assert (found.low[-1], found.high[-1]) == (0.0, 1.0)
    # a log scale has room for single iterates at its beginning, and none for 0
    assert found.places[0] == (10 if logarithmic else pytest.approx(160, abs=10))


def test_one_course_for_each_algorithm_and_point_that_left_a_trace():
    trials = [
        ("plain", 0, {"kappa": 1}, (), "ok"),
        *(("fit", seed, {"kappa": k}, FALLING, "ok") for k in (1, 2) for seed in (0, 1)),
        ("broken", 0, {"kappa": 1}, FALLING, "diverged"),
    ]
    found = convergence_curves(ledger_of(trials), ConvergencePlotOptions("p", ""))
    assert [(each.label, each.algorithm, each.seeds) for each in found] == [("fit", 1, 2)] * 2
    # what rounding leaves of a violation is none
    assert found[0].violation.numbers[0].tolist() == [0.2, 0.1, 0.0]


def test_a_trace_without_this_x_is_not_drawn():
    bare = tuple(
        {"iteration": row["iteration"], "objective": 1.0, "violation": 0.0} for row in FALLING
    )
    ledger = ledger_of([("bare", 0, {}, bare, "ok"), ("fit", 0, {}, FALLING, "ok")])
    assert [
        each.label
        for each in convergence_curves(ledger, ConvergencePlotOptions("p", "", "seconds"))
    ] == ["fit"]
    assert len(convergence_curves(ledger, ConvergencePlotOptions("p", ""))) == 2


def test_scales_follow_the_numbers():
    def of(*traces):
        trials = [(f"a{k}", 0, {}, trace, "ok") for k, trace in enumerate(traces)]
        return AxisScales.of(convergence_curves(ledger_of(trials), ConvergencePlotOptions("p", "")))

    steep = rows((10.0, 0.0), (0.1, 0.0))
    assert of(FALLING) == AxisScales(along=False, objective=False)
    assert of(FALLING, rows((0.5, 0.0), (0.4, 0.0), start=10, step=990)).along
    assert of(steep) == AxisScales(along=False, objective=True)
    assert not of(steep, rows((0.0, 0.0))).objective
    assert (spans_decades([1, 99]), spans_decades([0, 1, 100]), spans_decades([])) == (
        False,
        True,
        False,
    )


def test_panels_are_the_values_of_the_name():
    trials = [("fit", 0, {"dataset": d}, FALLING, "ok") for d in ("adult", "law")]
    trials.append(("everywhere", 0, {}, FALLING, "ok"))
    ledger = ledger_of(trials, [{"kind": "convergence", "by": "dataset", "x": "seconds"}])
    plot = read_convergence(ledger, 0)
    assert (plot.name, plot.panels) == ("convergence-seconds", ("adult", "law"))
    drawn = [[each.label for each in convergence_curves(ledger, part)] for part in plot.parts()]
    assert drawn == [["fit", "everywhere"]] * 2
    svg = draw_convergence(ledger, plot).svg.decode()
    for text in ("dataset = adult", "dataset = law", "seconds", "objective (train)", "everywhere"):
        assert f"<!-- {text} -->" in svg


def test_the_drawing_says_what_it_shows():
    trials = [("fit", seed, {"kappa": k}, FALLING, "ok") for k in (1, 2) for seed in (0, 1)]
    trials.append(("slow", 0, {"kappa": 1}, rows((9.0, 0.0), (0.01, 0.0), step=1000), "ok"))
    ledger = ledger_of(trials, [{"kind": "convergence"}, {"kind": "convergence", "title": "$x_{$"}])
    first, second = draw_plots(ledger)
    assert (first.name, second.name) == ("convergence", "convergence-2")
    assert (first.caption, second.caption) == (
        "Objective and worst violation by iteration (train)",
        "$x_{$",
    )
    svg = first.svg.decode()
    ET.fromstring(svg)
    texts = ("iteration", "worst violation (train)", "1000", "0.01", "fit, kappa = 2", "slow")
    for text in texts:
        assert f"<!-- {text} -->" in svg
    assert "mean and range of 1 to 2 seeds" in svg
    assert "mathdefault" not in svg


def test_without_constraints_there_is_no_violation():
    ledger = ledger_of([("fit", 0, {}, FALLING, "ok")], constraints={})
    (picture,) = draw_plots(ledger)
    assert b"worst violation" not in picture.svg
    assert b"one seed" in picture.svg


def test_nothing_to_draw_says_so():
    (picture,) = draw_plots(ledger_of([("plain", 0, {}, (), "ok")]))
    assert b"no trial gave these numbers" in picture.svg
