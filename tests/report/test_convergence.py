"""Convergence plots: curves from the traces of trials, and how they are drawn."""

import numpy as np
import pytest
from synthetic_ledger import measured, planned

from ratecli.ledger.view import Ledger
from ratecli.report.plots import canvas, draw_plots
from ratecli.report.plots.convergence import (
    MAX_BINS,
    align_traces,
    convergence_curves,
    curve_band,
    logarithmic_axes,
)

ALL = canvas.PlotSelection()


def band(*traces, logarithmic=False):
    """Position, mean, minimum and maximum of the objective."""
    found = curve_band(align_traces(traces, "iteration", "objective"), logarithmic=logarithmic)
    return found.reset_index().to_numpy().T


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
    said = {"constraints": {"parity": "gap <= 0"}, "report": {"plots": list(plots)}, **experiment}
    return Ledger(plan, results, {"experiment": said})


FALLING = rows((0.5, 0.2), (0.3, 0.1), (0.2, 1e-9))


def test_seeds_have_a_mean_and_a_range_and_keep_their_last_value():
    found = band(FALLING, rows((0.7, 0.0), (0.5, 0.3)))
    expected = [[1, 2, 3], [0.6, 0.4, 0.35], [0.5, 0.3, 0.2], [0.7, 0.5, 0.5]]
    np.testing.assert_allclose(found, expected)


def test_a_curve_starts_where_all_seeds_have_values():
    positions, mean, *_ = band(FALLING, rows((0.9, 0.0), start=2))
    assert positions.tolist() == [2, 3]
    assert mean == pytest.approx([0.6, 0.55])


def test_values_that_are_not_finite_are_left_out():
    one = rows((float("inf"), 0.0), (0.4, 0.0), (float("nan"), 0.0))
    assert band(FALLING, one)[1] == pytest.approx([0.5, 0.35, 0.2])
    np.testing.assert_array_equal(band(one)[1:3], [[np.nan, 0.4, np.nan]] * 2)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_long_trace_is_summarized_in_bins(logarithmic):
    """A trace that jumps between 0 and 1: a bin has the mean 1/2 and the range [0, 1]."""
    trace = rows(*((k % 2, 0.0) for k in range(1001)), start=0, step=10)
    positions, mean, low, high = band(trace, logarithmic=logarithmic)
    assert len(positions) <= MAX_BINS
    assert positions[-1] == 10_000
    assert mean[-1] == pytest.approx(0.5, abs=0.05)
    assert (low[-1], high[-1]) == (0.0, 1.0)
    # a log scale has space for single iterations at its beginning, and none for 0
    assert positions[0] == (10 if logarithmic else pytest.approx(160, abs=10))


def test_a_curve_for_each_algorithm_and_point_with_a_trace():
    trials = [
        ("plain", 0, {"kappa": 1}, (), "ok"),
        *(("fit", seed, {"kappa": k}, FALLING, "ok") for k in (1, 2) for seed in (0, 1)),
        ("broken", 0, {"kappa": 1}, FALLING, "diverged"),
    ]
    found = convergence_curves(ledger_of(trials), "iteration", ALL)
    assert [(each.label, each.algorithm) for each in found] == [
        ("fit, kappa = 1", 1), ("fit, kappa = 2", 1),
    ]  # fmt: skip
    assert [each.objective.shape for each in found] == [(3, 2)] * 2
    # rounding is no violation
    assert found[0].violation[0].tolist() == [0.2, 0.1, 0.0]


def test_a_trace_without_this_x_is_not_drawn():
    bare = tuple({key: row[key] for key in row if key != "seconds"} for row in FALLING)
    ledger = ledger_of([("bare", 0, {}, bare, "ok"), ("fit", 0, {}, FALLING, "ok")])
    assert [each.label for each in convergence_curves(ledger, "seconds", ALL)] == ["fit"]
    assert len(convergence_curves(ledger, "iteration", ALL)) == 2


def test_scales_depend_on_the_values():
    def of(*traces):
        trials = [(f"a{k}", 0, {}, trace, "ok") for k, trace in enumerate(traces)]
        return logarithmic_axes(convergence_curves(ledger_of(trials), "iteration", ALL))

    steep = rows((10.0, 0.0), (0.1, 0.0))
    assert of(FALLING) == (False, False)
    assert of(FALLING, rows((0.5, 0.0), (0.4, 0.0), start=10, step=990)) == (True, False)
    assert of(steep) == (False, True)
    assert of(steep, rows((0.0, 0.0))) == (False, False)
    values = [1, 99], [0, 1, 100], []
    assert list(map(canvas.spans_decades, values)) == [False, True, False]


def test_panels_are_the_values_of_by():
    trials = [("fit", 0, {"dataset": d}, FALLING, "ok") for d in ("adult", "law")]
    trials.append(("everywhere", 0, {}, FALLING, "ok"))
    ledger = ledger_of(trials, [{"kind": "convergence", "by": "dataset", "x": "seconds"}])
    (plot,) = canvas.requested_plots(ledger)
    drawn = {
        selection.title: [each.label for each in convergence_curves(ledger, "seconds", selection)]
        for selection in canvas.panel_selections(ledger, plot.options)
    }
    assert drawn == {f"dataset = {d}": ["fit", "everywhere"] for d in ("adult", "law")}
    (image,) = draw_plots(ledger)
    assert image.name == "convergence-seconds"
    for text in (*drawn, "seconds", "objective (train)", "everywhere"):
        assert f"<!-- {text} -->".encode() in image.svg


def test_texts_of_a_plot():
    trials = [("fit", seed, {"kappa": k}, FALLING, "ok") for k in (1, 2) for seed in (0, 1)]
    trials.append(("slow", 0, {"kappa": 1}, rows((9.0, 0.0), (0.01, 0.0), step=1000), "ok"))
    ledger = ledger_of(trials, [{"kind": "convergence"}, {"kind": "convergence", "title": "$x_{$"}])
    first, second = draw_plots(ledger)
    assert first.caption == "Objective and worst violation by iteration (train)"
    assert second.caption == "$x_{$"
    svg = first.svg.decode()
    for text in ("iteration", "worst violation (train)", "1000", "0.01", "fit, kappa = 2", "slow"):
        assert f"<!-- {text} -->" in svg
    assert "mean and range over 1 to 2 seeds" in svg
    assert "mathdefault" not in svg


def test_without_constraints_there_is_no_violation_and_without_traces_a_note():
    (image,) = draw_plots(ledger_of([("fit", 0, {}, FALLING, "ok")], constraints={}))
    assert b"worst violation" not in image.svg
    assert b"over 1 seed," in image.svg
    (image,) = draw_plots(ledger_of([("plain", 0, {}, (), "ok")]))
    assert canvas.NO_NUMBERS.encode() in image.svg
