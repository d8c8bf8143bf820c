from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib as mpl
import pytest
from synthetic_ledger import measured, planned

from ratecli.ledger.view import Ledger
from ratecli.report.plots.draw import draw_plots, draw_tradeoff
from ratecli.report.plots.series import PlotAxes, PlotSelection, collect_series
from ratecli.report.plots.style import COLOURS, SIZE, line_style
from ratecli.report.plots.tradeoff import TradeoffPlotOptions, read_tradeoffs

TEST = PlotAxes("ratio", "error", "test")


def ledger_of(points, label="a") -> Ledger:
    """One seed; {sweep point: (ratio, error)}."""
    trials = [(planned(label, 0, **dict(point)), numbers) for point, numbers in points]
    results = {
        trial.key: measured(trial, {("main", "test"): {"ratio": ratio, "error": error}})
        for trial, (ratio, error) in trials
    }
    return Ledger([trial for trial, _ in trials], results, {"experiment": {}})


def places(series):
    return [[point.place for point in line] for line in series.lines]


def test_one_series_for_each_algorithm_and_variant(example):
    found = collect_series(example, TEST)
    assert [series.name for series in found] == [
        "unconstrained",
        "majorize (deterministic)",
        "majorize (stochastic)",
        "three_player (deterministic)",
        "three_player (stochastic)",
    ]
    assert [(series.algorithm, series.variant) for series in found] == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]


def test_what_the_sweep_does_not_move_is_one_point(example):
    series = collect_series(example, TEST)[0]
    assert [len(line) for line in series.lines] == [1]
    assert series.lines[0][0].y.n == 5


def test_the_line_follows_the_swept_value_not_the_file():
    points = [({"kappa": k}, (k, 1 - k)) for k in (1.0, 0.5, 0.8)]
    (series,) = collect_series(ledger_of(points), TEST)
    assert [x for x, _ in places(series)[0]] == [0.5, 0.8, 1.0]


def test_words_stay_in_the_order_of_the_file():
    points = [({"mode": word}, (x, x)) for word, x in (("low", 1.0), ("high", 0.5))]
    (series,) = collect_series(ledger_of(points), TEST)
    assert places(series) == [[(1.0, 1.0), (0.5, 0.5)]]


def test_two_swept_names_make_one_line_each_of_the_slower():
    points = [({"slow": s, "fast": f}, (f + s, s)) for s in (1, 2) for f in (10, 20, 30)]
    (series,) = collect_series(ledger_of(points), TEST)
    assert places(series) == [[(11, 1), (21, 1), (31, 1)], [(12, 2), (22, 2), (32, 2)]]


def test_what_is_not_finite_is_not_drawn():
    points = [
        ({"kappa": 1}, (float("nan"), 0.1)),
        ({"kappa": 2}, (0.5, float("inf"))),
        ({"kappa": 3}, (0.5, 0.2)),
    ]
    (series,) = collect_series(ledger_of(points), TEST)
    assert places(series) == [[(0.5, 0.2)]]


def test_plots_of_one_name_get_two_files(example):
    first, second = read_tradeoffs(example)
    assert (first.name, second.name) == ("tradeoff-ratio-error", "tradeoff-ratio-error-2")
    assert [level.value for level in first.levels] == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert first.frontier[0] == (0.0, 0.115)
    assert (second.levels, second.frontier) == ((), ())


def test_a_file_name_stays_in_its_folder(example):
    plots = [{"x": "ratio", "y": "error", "file": "../../up/ there"}]
    experiment = {**example.experiment, "report": {"plots": plots}}
    (plot,) = read_tradeoffs(replace(example, meta={"experiment": experiment}))
    assert plot.name == "-..-up-there"


def test_the_same_bytes_whatever_the_users_settings(example, drawn):
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": None, "lines.linewidth": 5}):
        assert draw_plots(example) == drawn


def test_the_drawing_says_what_it_shows(drawn):
    first, _ = drawn
    svg = first.svg.decode()
    ET.fromstring(svg)
    for text in (
        "ratio (test)",
        "error (test)",
        "best possible",
        "kappa = 0.8",
        "majorize (stochastic)",
    ):
        assert f"<!-- {text} -->" in svg
    assert "<!-- mean and 95 % Student-t interval over 4 to 5 seeds -->" in svg
    assert "date" not in svg
    assert first.png.startswith(b"\x89PNG")


def test_the_best_possible_is_drawn_where_the_algorithms_are(example):
    plot = read_tradeoffs(example)[0]
    far = replace(plot, frontier=((-50.0, 0.0), *plot.frontier, (90.0, 7.0)))
    near = replace(plot, frontier=plot.frontier[1:])
    assert draw_tradeoff(example, far) == draw_tradeoff(example, near)
    nowhere = replace(plot, frontier=((-50.0, 0.0),))
    assert b"best possible" not in draw_tradeoff(example, nowhere).svg


def test_many_levels_are_left_out(example):
    plot = read_tradeoffs(example)[0]
    crowded = replace(plot, levels=plot.levels * 2)
    assert b"kappa = 0.8" not in draw_tradeoff(example, crowded).svg


def test_one_seed_has_no_intervals():
    points = [({"kappa": k}, (k, k)) for k in (0.5, 1.0)]
    drawn = draw_tradeoff(ledger_of(points), TradeoffPlotOptions("p", "", TEST))
    assert b"one seed, no intervals" in drawn.svg


def test_nothing_to_draw_says_so(example):
    drawn = draw_tradeoff(
        example, TradeoffPlotOptions("p", "", PlotAxes("ratio", "error", "validation"))
    )
    assert b"no trial gave these numbers" in drawn.svg


@pytest.mark.parametrize("label", ["_hidden", "$x_{$", "a<b&c"])
def test_a_label_is_text_and_nothing_else(label):
    points = [({"kappa": k}, (k, k)) for k in (0.5, 1.0)]
    drawn = draw_tradeoff(ledger_of(points, label), TradeoffPlotOptions("p", label, TEST))
    root = ET.fromstring(drawn.svg)
    assert root.findall(".//*[@id='legend_1']")


def test_lines_of_other_settings_are_named_and_shaded():
    points = [({"slow": s, "fast": f}, (f + s, s)) for s in (1, 2) for f in (10, 20, 30)]
    ledger = ledger_of(points)
    (series,) = collect_series(ledger, TEST)
    assert [setting.name for setting in series.settings] == ["slow = 1", "slow = 2"]
    svg = draw_tradeoff(ledger, TradeoffPlotOptions("p", "", TEST)).svg.decode()
    shades = [line_style(0, shade=setting.shade)["color"] for setting in series.settings]
    assert len({*shades, line_style(0)["color"]}) == 3
    for setting, colour in zip(series.settings, shades, strict=True):
        assert svg.count(f"<!-- a, {setting.name} -->") == 1
        assert colour in svg


def test_flat_lines_are_named_by_what_moves_them():
    points = [
        ({"data": d, "kappa": k}, (k, y)) for d, y in (("u", 1.0), ("v", 2.0)) for k in (1, 2)
    ]
    (series,) = collect_series(ledger_of(points), PlotAxes("kappa", "error", "test", swept=True))
    assert series.flat is False
    flat = collect_series(ledger_of(points), TEST, PlotSelection(lines=("a",)))[0]
    assert [setting.name for setting in flat.settings] == [
        f"data = {d}, kappa = {k}" for d in "uv" for k in (1, 2)
    ]
    points = [
        ({"data": d, "kappa": k}, (0.0, y)) for d, y in (("u", 1.0), ("v", 2.0)) for k in (1, 2)
    ]
    flat = collect_series(ledger_of(points), TEST, PlotSelection(lines=("a",)))[0]
    assert [setting.name for setting in flat.settings] == ["data = u", "data = v"]


def test_of_many_lines_the_first_and_the_last_are_named():
    points = [({"slow": s, "fast": f}, (f + s, s)) for s in range(9) for f in (10, 20)]
    svg = draw_tradeoff(ledger_of(points), TradeoffPlotOptions("p", "", TEST)).svg.decode()
    assert [s for s in range(9) if f"<!-- a, slow = {s} -->" in svg] == [0, 8]
    assert "<!-- of more than 8 lines of a kind the first, dark" in svg
    few = draw_tradeoff(ledger_of(points[:-2]), TradeoffPlotOptions("p", "", TEST)).svg.decode()
    assert [s for s in range(9) if f"<!-- a, slow = {s} -->" in few] == list(range(8))


def test_no_two_algorithms_look_alike_even_where_neither_has_markers():
    """Of a colour there is one dash pattern each, for as many as two rounds of colours and three variants."""
    looks = [line_style(a, v) for a in range(2 * len(COLOURS)) for v in range(3)]
    assert len({(each["color"], str(each["linestyle"])) for each in looks}) == len(looks)
    assert line_style(8)["linestyle"] != line_style(1)["linestyle"] == line_style(0)["linestyle"]


def test_a_legend_too_tall_for_the_plot_goes_below():
    def size(algorithms):
        made = [ledger_of([({}, (k, k))], f"a{k}") for k in range(algorithms)]
        plan = [trial for each in made for trial in each.plan]
        results = {key: result for each in made for key, result in each.results.items()}
        svg = draw_tradeoff(Ledger(plan, results, {}), TradeoffPlotOptions("p", "", TEST)).svg
        root = ET.fromstring(svg)
        return [float(root.get(side).removesuffix("pt")) / 72 for side in ("width", "height")]

    assert size(9) == pytest.approx([SIZE[0] + 2.2, SIZE[1]])
    assert size(20)[0] == pytest.approx(SIZE[0])
    assert size(20)[1] > SIZE[1] + 1
