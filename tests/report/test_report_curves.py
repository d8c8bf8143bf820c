"""Plots along a swept name, horizontal lines, diagonals, and plots of a part of what ran."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_ledger import measured, planned

from ratecli.ledger.view import Ledger
from ratecli.report.plots.draw import draw_tradeoff
from ratecli.report.plots.series import (
    PlotAxes,
    PlotSelection,
    collect_series,
    missing_variants,
    swept_range,
)
from ratecli.report.plots.tradeoff import TradeoffPlotOptions, read_tradeoffs

ALONG = PlotAxes("target", "ratio", "test", swept=True)
ACROSS = PlotAxes("ratio", "error", "test")
BOTH = ("deterministic", "stochastic")


def ledger_of(trials, plots=()) -> Ledger:
    """Rows of label, seed, sweep point, ratio by variant; an error is a tenth of its ratio."""
    plan = [planned(label, seed, **point) for label, seed, point, _ in trials]
    results = {
        trial.key: measured(
            trial,
            {(v, "test"): {"ratio": ratio, "error": ratio / 10} for v, ratio in ratios.items()},
            status="ok" if ratios else "error",
        )
        for trial, (*_, ratios) in zip(plan, trials, strict=True)
    }
    return Ledger(plan, results, {"experiment": {"report": {"plots": list(plots)}}})


def curve(targets=(3.0, 1.0, 2.0), seeds=1):
    """An algorithm that keeps just below its targets, in two variants."""
    return [
        ("majorize", seed, {"target": t}, {"deterministic": t - 0.1, "stochastic": t - 0.2})
        for t in targets
        for seed in range(seeds)
    ]


def plain(point, *ratios):
    """A baseline at a point, one seed for each ratio."""
    return [("plain", seed, point, {"deterministic": ratio}) for seed, ratio in enumerate(ratios)]


def places(series):
    return [[point.place for point in line] for line in series.lines]


def heights(series):
    assert series.flat
    return [point.y.mean for (point,) in series.lines]


def test_along_a_sweep_x_is_the_swept_value():
    first, second = collect_series(ledger_of(curve()), ALONG)
    assert (first.name, second.name) == ("majorize (deterministic)", "majorize (stochastic)")
    assert places(first) == [[(1.0, 0.9), (2.0, 1.9), (3.0, 2.9)]]
    assert all(point.x.half is None for point in first.lines[0])
    assert not first.flat


def test_another_swept_name_makes_lines_of_its_own():
    """Also when it varies faster than the name along the axis."""
    trials = [("a", 0, {"target": t, "cost": c}, {"main": t + c}) for t in (1, 2) for c in (10, 20)]
    (series,) = collect_series(ledger_of(trials), ALONG)
    assert places(series) == [[(1, 11), (2, 12)], [(1, 21), (2, 22)]]


def test_without_the_swept_name_an_algorithm_is_a_horizontal_line():
    found = collect_series(ledger_of([*plain({}, 3.0, 5.0), *curve(seeds=2)]), ALONG)
    flat = [series for series in found if series.flat]
    assert [series.name for series in flat] == ["plain"]
    assert heights(flat[0]) == [4.0]
    # two seeds, s = sqrt(2): the half width is t(1) = 12.706...
    ((point,),) = flat[0].lines
    assert point.y.half == pytest.approx(12.7062047)
    assert point.place is None


def test_what_the_sweep_does_not_move_is_a_horizontal_line():
    unmoved = [trial for t in (1, 2, 3) for trial in plain({"target": t}, 3.46, 3.5)]
    (series,) = collect_series(ledger_of(unmoved), ALONG)
    assert heights(series) == [pytest.approx(3.48)]


@pytest.mark.parametrize("ratios", [(3.46, 3.46, 3.47), (3.46, 3.46, None), (3.46, None, None)])
def test_what_moves_or_failed_somewhere_is_no_horizontal_line(ratios):
    trials = [
        ("a", 0, {"target": t}, {} if ratio is None else {"main": ratio})
        for t, ratio in enumerate(ratios)
    ]
    (series,) = collect_series(ledger_of(trials), ALONG)
    assert not series.flat
    assert [x for x, _ in places(series)[0]] == [t for t, y in enumerate(ratios) if y is not None]


def test_unequal_intervals_are_no_horizontal_line():
    moved = [*plain({"target": 1}, 1.0, 3.0), *plain({"target": 2}, 0.0, 4.0)]
    (series,) = collect_series(ledger_of(moved), ALONG)
    assert not series.flat


def test_a_line_that_is_asked_for_keeps_its_place_among_metrics():
    ledger = ledger_of([*plain({"target": 1}, 3.4), *curve()])
    flat, *rest = collect_series(ledger, ACROSS, PlotSelection(lines=("plain",)))
    assert heights(flat) == [pytest.approx(0.34)]
    assert places(flat) == [[(3.4, pytest.approx(0.34))]]
    assert [series.flat for series in rest] == [False, False]
    assert not any(series.flat for series in collect_series(ledger, ACROSS))


def test_a_line_that_is_asked_for_has_no_place_along_a_sweep():
    """Its one target is where it happened to be measured, and none of its own."""
    ledger = ledger_of([*plain({"target": 9}, 3.4), *curve()])
    choice = PlotSelection(lines=("plain",))
    flat = collect_series(ledger, ALONG, choice)[0]
    assert (heights(flat), places(flat)) == ([3.4], [[None]])
    assert swept_range(ledger, ALONG, choice) == (1.0, 3.0)
    assert swept_range(ledger, ALONG) == (1.0, 9.0)
    assert swept_range(ledger, ACROSS) is None


def test_a_line_needs_no_x():
    trials = plain({}, float("nan"))
    (trial,) = ledger_of(trials).plan
    numbers = {("main", "test"): {"ratio": float("nan"), "error": 0.2}}
    ledger = Ledger([trial], {trial.key: measured(trial, numbers)}, {})
    (flat,) = collect_series(ledger, ACROSS, PlotSelection(lines=("plain",)))
    assert heights(flat) == [0.2]
    assert collect_series(ledger, ACROSS) == []


def test_the_reach_has_the_targets_at_which_all_failed():
    ledger = ledger_of([*curve((1.0, 2.0)), ("majorize", 0, {"target": 4.0}, {})])
    assert swept_range(ledger, ALONG) == (1.0, 4.0)


def test_a_plot_of_some_algorithms_and_their_lines():
    ledger = ledger_of([*plain({}, 3.4), *curve(), ("other", 0, {"target": 1}, {"main": 1.0})])
    choice = PlotSelection(algorithms=("majorize",), lines=("plain",))
    found = collect_series(ledger, ALONG, choice)
    assert [series.name for series in found] == [
        "plain",
        "majorize (deterministic)",
        "majorize (stochastic)",
    ]
    # colours and markers are those of a plot of everything
    everything = collect_series(ledger, ALONG)
    assert [series.algorithm for series in found] == [s.algorithm for s in everything[:3]]


def test_a_plot_of_some_variants_leaves_alone_who_has_only_one():
    ledger = ledger_of([*plain({}, 3.4), *curve()])
    found = collect_series(ledger, ALONG, PlotSelection(variants=("stochastic",)))
    assert [(series.name, series.variant) for series in found] == [
        ("plain", 0),
        ("majorize (stochastic)", 1),
    ]


def test_a_variant_that_nobody_gave_is_said():
    ledger = ledger_of([*plain({}, 3.4), *curve()])
    choice = PlotSelection(variants=("stochastik", "deterministic"))
    assert missing_variants(ledger, choice) == ["stochastik"]
    drawn = draw_tradeoff(ledger, TradeoffPlotOptions("p", "", ALONG, choice))
    assert b"no trial gave a variant 'stochastik'" in drawn.svg


def test_the_file_says_what_is_drawn():
    plots = [
        {"x": "target", "y": "ratio", "lines": ["plain"], "diagonal": True},
        {"x": "ratio", "y": "error", "algorithms": ["majorize"], "variants": ["stochastic"]},
    ]
    first, second = read_tradeoffs(ledger_of([*plain({}, 3.4), *curve()], plots))
    assert (first.plane, first.choice, first.diagonal) == (
        ALONG,
        PlotSelection(lines=("plain",)),
        True,
    )
    assert (second.plane, second.diagonal) == (ACROSS, False)
    assert second.choice == PlotSelection(("majorize",), ("stochastic",))


def test_of_a_metric_and_a_sweep_of_one_name_the_metric_is_drawn():
    trials = [("a", 0, {"ratio": 7.0}, {"main": 1.0})]
    (plot,) = read_tradeoffs(ledger_of(trials, [{"x": "ratio", "y": "error"}]))
    assert not plot.plane.swept


def test_the_drawing_says_what_its_lines_are():
    ledger = ledger_of([*plain({}, 3.4, 3.5), *curve(seeds=2)])
    drawn = draw_tradeoff(ledger, TradeoffPlotOptions("p", "", ALONG, diagonal=True))
    for text in ("target", "ratio (test)", "plain", "ratio = target, met exactly"):
        assert f"<!-- {text} -->" in drawn.svg.decode()
    assert b"target (test)" not in drawn.svg


def test_a_diagonal_that_passes_elsewhere_is_not_drawn():
    plot = TradeoffPlotOptions("p", "", replace(ALONG, y="error"))
    ledger = ledger_of(curve((4.0, 5.0)))
    assert draw_tradeoff(ledger, replace(plot, diagonal=True)) == draw_tradeoff(ledger, plot)


def test_a_long_curve_has_few_markers():
    def marked(count):
        ledger = ledger_of(curve([1 + k / count for k in range(count)]))
        drawn = draw_tradeoff(
            ledger, TradeoffPlotOptions("p", "", ALONG, PlotSelection(variants=("deterministic",)))
        )
        parts = drawn.svg.decode().split('<g id="')
        return max(part.count("<use ") for part in parts if part.startswith("series"))

    assert marked(20) == 20
    assert 8 <= marked(96) <= 12
