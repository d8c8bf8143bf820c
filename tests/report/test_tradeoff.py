"""Trade-off plots: which lines, panels and labels they have."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib import resources

import matplotlib as mpl
import matplotlib.style
import pytest
from matplotlib.text import Text
from synthetic_ledger import measured, planned

from ratecli.config.report import BasePlot
from ratecli.ledger.view import Ledger
from ratecli.report.plots import canvas, draw_plots
from ratecli.report.plots.lines import PlotAxes, collect_lines, draw_tradeoff

ACROSS = PlotAxes("ratio", "error", "test")
ALONG = PlotAxes("target", "ratio", "test", swept=True)
PLOT = {"kind": "tradeoff", "x": "ratio", "y": "error"}
SWEPT = {"x": "target", "y": "ratio"}


def ledger_of(trials, *plots, **meta) -> Ledger:
    """Rows of label, sweep point, numbers by variant (ratio, or ratio and error), one per seed."""
    plan, results = [], {}
    seeds: dict[str, int] = {}
    for label, point, variants in trials:
        key = f"{label} {point}"
        seeds[key] = seeds.get(key, -1) + 1
        trial = planned(label, seeds[key], **point)
        numbers = {}
        for variant, given in variants.items():
            ratio, error = given if isinstance(given, tuple) else (given, given / 10)
            numbers[variant, "test"] = {"ratio": ratio, "error": error}
        plan.append(trial)
        results[trial.key] = measured(trial, numbers, status="ok" if variants else "error")
    return Ledger(plan, results, {"experiment": {"report": {"plots": list(plots)}}, **meta})


def points_of(*points, label="a"):
    """One trial for each sweep point and its numbers."""
    return [(label, point, {"main": numbers}) for point, numbers in points]


def curve(targets=(3.0, 1.0, 2.0), seeds=1):
    """An algorithm in two variants that stays just below its targets."""
    variants = [{"deterministic": t - 0.1, "stochastic": t - 0.2} for t in targets]
    return [
        ("majorize", {"target": t}, each)
        for t, each in zip(targets, variants, strict=True)
        for _ in range(seeds)
    ]


def plain(point, *ratios):
    """A baseline at a point, one seed for each ratio."""
    return [("plain", point, {"deterministic": ratio}) for ratio in ratios]


def collected(trials, axes, **selection):
    return collect_lines(ledger_of(trials), axes, canvas.PlotSelection(**selection))


def places(line):
    return [point.place for point in line.points]


def notes(figure) -> str:
    return figure.legends[0].get_title().get_text()


def labels(lines):
    return [line.label for line in lines]


def figure_of(ledger):
    """Return the figure of the only plot, which is not drawn: that takes most of the time."""
    (plot,) = canvas.requested_plots(ledger)
    return draw_tradeoff(ledger, plot).figure


def drawn(trials, plot, **meta):
    return figure_of(ledger_of(trials, plot, **meta))


def texts(figure, *wanted: str) -> list[int]:
    """Return how often each text is in a figure."""
    shown = [each.get_text() for each in figure.findobj(Text) if each.get_visible()]
    return [shown.count(text) for text in wanted]


def test_one_line_for_each_algorithm_and_variant(example):
    found = collect_lines(example, ACROSS, canvas.PlotSelection())
    assert [(line.label, line.algorithm, line.variant) for line in found] == [
        ("unconstrained", 0, 0),
        ("majorize (deterministic)", 1, 0),
        ("majorize (stochastic)", 1, 1),
        ("three_player (deterministic)", 2, 0),
        ("three_player (stochastic)", 2, 1),
    ]
    # the sweep does not affect the baseline
    assert len(found[0].points) == 1
    assert found[0].points[0].y.n == 5


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        # by value, not in the order of the file
        ([({"k": k}, (k, 1 - k)) for k in (1.0, 0.5, 0.8)], [[(0.5, 0.5), (0.8, 1 - 0.8), (1, 0)]]),
        # words in the order of the file
        ([({"k": "low"}, (1.0, 1.0)), ({"k": "high"}, (0.5, 0.5))], [[(1.0, 1.0), (0.5, 0.5)]]),
        # a line for each value of the slower name
        (
            [({"slow": s, "fast": f}, (f + s, s)) for s in (1, 2) for f in (10, 20)],
            [[(11, 1), (21, 1)], [(12, 2), (22, 2)]],
        ),
        # only finite values
        ([({"k": 1}, (NAN, 0.1)), ({"k": 2}, (0.5, INF)), ({"k": 3}, (0.5, 0.2))], [[(0.5, 0.2)]]),
    ],
)
def test_points_of_a_line(points, expected):
    assert list(map(places, collected(points_of(*points), ACROSS))) == expected


def test_along_a_sweep_x_is_the_swept_value():
    first, second = collected(curve(), ALONG)
    assert labels([first, second]) == ["majorize (deterministic)", "majorize (stochastic)"]
    assert places(first) == [(1.0, 0.9), (2.0, 1.9), (3.0, 2.9)]
    assert (first.points[0].x.half, first.flat) == (None, False)
    # another swept name makes further lines, even if it varies faster
    points = [({"target": t, "cost": c}, float(t + c)) for t in (1, 2) for c in (10, 20)]
    found = collected(points_of(*points), ALONG)
    assert list(map(places, found)) == [[(1, 11), (2, 12)], [(1, 21), (2, 22)]]


def test_an_algorithm_without_the_swept_name_is_a_horizontal_line():
    flat, *rest = collected([*plain({}, 3.0, 5.0), *curve(seeds=2)], ALONG)
    assert (flat.label, flat.flat, [line.flat for line in rest]) == ("plain", True, [False] * 2)
    (point,) = flat.points
    # two seeds, s = sqrt(2): the half width is t(1) = 12.706...
    assert (point.y.mean, point.y.half, point.place) == (4.0, pytest.approx(12.7062047), None)


def test_a_requested_horizontal_line_has_a_position_among_metrics_only():
    trials = [*plain({"target": 9}, 3.4), *curve()]
    flat, *rest = collected(trials, ACROSS, lines=("plain",))
    assert places(flat) == [(3.4, pytest.approx(0.34))]
    assert [line.flat for line in (flat, *rest)] == [True, False, False]
    assert not any(line.flat for line in collected(trials, ACROSS))
    along = collected(trials, ALONG, lines=("plain",))[0]
    assert (along.points[0].y.mean, places(along)) == (3.4, [None])
    # values of other names distinguish lines
    points = [({"data": d, "kappa": k}, (k, y)) for d, y in (("u", 1), ("v", 2)) for k in (1, 2)]
    names = [f"a, data = {d}, kappa = {k}" for d in "uv" for k in (1, 2)]
    assert labels(collected(points_of(*points), ACROSS, lines=("a",))) == names
    # a horizontal line needs no x
    (flat,) = collected(plain({}, (NAN, 0.2)), ACROSS, lines=("plain",))
    assert [point.y.mean for point in flat.points] == [0.2]
    assert collected(plain({}, (NAN, 0.2)), ACROSS) == []


def test_a_selection_keeps_colours_and_single_variants():
    trials = [*plain({}, 3.4), *curve(), *points_of(({"target": 1}, 1.0), label="other")]
    everything = collected(trials, ALONG)
    found = collected(trials, ALONG, algorithms=("majorize",), lines=("plain",))
    assert labels(found) == ["plain", "majorize (deterministic)", "majorize (stochastic)"]
    assert [line.style for line in found] == [line.style for line in everything[:3]]
    found = collected(trials, ALONG, variants=("stochastic",))
    assert labels(found) == ["plain", "majorize (stochastic)", "other"]
    assert [line.style for line in found] == [everything[k].style for k in (0, 2, 3)]


def axes_of(ledger):
    """Return the only panel of the only plot."""
    (axes,) = figure_of(ledger).axes
    return axes


def test_the_x_axis_covers_the_whole_sweep():
    trials = [*curve(), ("majorize", {"target": 9.0}, {})]
    assert 9.0 < axes_of(ledger_of(trials, SWEPT)).get_xlim()[1] < 10.0
    # a name of a metric and of the sweep means the metric
    axes = axes_of(ledger_of(points_of(({"ratio": 7.0}, 1.0)), PLOT))
    assert axes.get_xlabel() == "ratio (test)"


def test_the_best_possible_trade_off_is_drawn_within_the_range_of_the_algorithms():
    frontier = {"0": [[-50.0, 0.0], [1.0, 0.1], [2.0, 0.2], [90.0, 7.0]]}
    axes = axes_of(ledger_of(curve(), PLOT, frontier=frontier))
    (line,) = [each for each in axes.lines if each.get_label() == "best possible"]
    assert list(line.get_xdata()) == [1.0, 2.0]
    assert axes.get_xlim() == axes_of(ledger_of(curve(), PLOT)).get_xlim()


def test_file_names_are_unique_and_inside_the_folder():
    plots = [PLOT, PLOT, PLOT | {"file": "../../up/ there"}]
    names = [plot.name for plot in canvas.requested_plots(ledger_of([], *plots))]
    assert names == ["tradeoff-ratio-error", "tradeoff-ratio-error-2", "-..-up-there"]


def test_images_are_equal_whatever_the_users_settings(example, images):
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": None, "lines.linewidth": 5}):
        assert draw_plots(example) == images


def test_texts_of_a_plot(images):
    svg = images[0].svg.decode()
    interval = "mean and 95 % Student-t interval over 4 to 5 seeds"
    ratio = "ratio: positive_rate[women] / positive_rate[men] (test)"
    names = (ratio, "error (test)", "best possible", "majorize (stochastic)", interval)
    assert [svg.count(f"<!-- {text} -->") for text in ("kappa = 0.8", *names)] == [1] * 6
    assert "date" not in svg
    assert images[0].png.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("plot", "expected"),
    [
        (SWEPT, {"target": 1, "ratio (test)": 1, "plain": 1, "target (test)": 0}),
        (SWEPT | {"diagonal": True}, {"ratio = target, met exactly": 1}),
        (PLOT, {"one seed, no intervals": 1}),
        (PLOT | {"split": "validation"}, {canvas.NO_NUMBERS: 1}),
    ],
)
def test_labels_and_notes(plot, expected):
    figure = drawn([*plain({}, 3.4), *curve()], plot)
    assert dict(zip(expected, texts(figure, *expected), strict=True)) == expected


@pytest.mark.parametrize("label", ["_hidden", "$x_{$", "a<b&c"])
def test_a_label_is_plain_text(label):
    trials = points_of(({"k": 0.5}, 0.5), ({"k": 1}, 1.0), label=label)
    (image,) = draw_plots(ledger_of(trials, PLOT | {"title": label}))
    assert ET.fromstring(image.svg).findall(".//*[@id='legend_1']")


@pytest.mark.parametrize(("count", "named"), [(2, [0, 1]), (8, list(range(8))), (9, [0, 8])])
def test_lines_of_other_settings_are_shaded_and_of_many_the_first_and_the_last_are_named(
    count, named
):
    points = [({"slow": s, "fast": f}, (f + s, s)) for s in range(count) for f in (10, 20)]
    figure, found = drawn(points_of(*points), PLOT), collected(points_of(*points), ACROSS)
    assert [s for s in range(count) if texts(figure, f"a, slow = {s}") == [1]] == named
    colours = {line.style["color"] for line in found}
    assert colours <= {line.get_color() for line in figure.axes[0].lines}
    assert len(colours | {canvas.line_style(0)["color"]}) == count + 1


def test_no_two_algorithms_look_alike_even_without_markers():
    """Colour and dashes differ for two rounds of colours and three variants."""
    styles = [canvas.line_style(a, v) for a in range(2 * len(canvas.COLOURS)) for v in range(3)]
    assert len({(each["color"], str(each["linestyle"])) for each in styles}) == len(styles)
    first, second, later = (canvas.line_style(k)["linestyle"] for k in (0, 1, 8))
    assert later != second == first


def test_algorithms_and_variants_differ_without_colour():
    """Algorithms differ by marker, variants of one by dashes and by how the marker is filled."""
    markers = [canvas.line_style(a)["marker"] for a in range(len(canvas.MARKERS))]
    assert len({*markers}) == len(markers)
    names = ("linestyle", "fillstyle", "markerfacecolor")
    styles = [[canvas.line_style(1, v).get(name) for name in names] for v in range(4)]
    assert len({dashes for dashes, *_ in styles}) == 4
    assert len({tuple(fill) for _, *fill in styles}) == 4


BY = PLOT | {"by": "dataset"}
TWO = [
    trial
    for label, point, ratio in (
        ("plain", {}, 0.4),
        ("fit", {"dataset": "adult"}, 0.1),
        ("fit", {"dataset": "law"}, 0.2),
        ("late", {"dataset": "law"}, 0.3),
    )
    for trial in points_of(*[(point, (ratio, ratio / 2))] * 2, label=label)
]
LIMIT = {"value": 0.0, "label": "limit"}


def panels(trials, plot):
    """Return title and lines of each panel."""
    ledger = ledger_of(trials, plot)
    (request,) = canvas.requested_plots(ledger)
    return {
        selection.title: collect_lines(ledger, ACROSS, selection)
        for selection in canvas.panel_selections(ledger, request.options)
    }


def test_a_panel_has_its_own_points_and_those_of_no_panel():
    found = {
        title: {line.label: (line.algorithm, *places(line)) for line in lines}
        for title, lines in panels(TWO, BY).items()
    }
    plain = (0, (0.4, 0.2))  # colours are the same in all panels
    assert found == {
        "dataset = adult": {"plain": plain, "fit": (1, (0.1, 0.05))},
        "dataset = law": {"plain": plain, "fit": (1, (0.2, 0.1)), "late": (2, (0.3, 0.15))},
    }


def test_panels_are_the_values_of_selected_algorithms():
    trials = [*TWO, *points_of(({"dataset": "wiki"}, 0.1), label="other")]
    found = panels(trials, BY | {"algorithms": ["fit"]})
    assert list(found) == ["dataset = adult", "dataset = law"]
    found = panels(points_of(({"dataset": 1}, 0.1), ({"dataset": True}, 0.2)), BY)
    assert [len(lines) for lines in found.values()] == [1, 1]


def test_a_limit_is_drawn_in_its_panel_or_in_all():
    many = [LIMIT | {"value": k / 100} for k in range(10, 19)]
    law = {"value": 0.3, "label": "parity: 0.3", "panel": "law"}
    figure = drawn(TWO, BY, plots=[{"levels": [LIMIT, law], "heights": [LIMIT]}])
    assert texts(figure, "limit", "\N{LEFTWARDS ARROW} limit", "parity: 0.3") == [2, 2, 1]
    assert texts(drawn(TWO, PLOT, plots=[{"heights": [LIMIT]}]), "limit") == [1]
    assert texts(drawn(TWO, PLOT), "limit") == [0]
    assert texts(drawn(TWO, PLOT, plots=[{"levels": many}]), "limit") == [0]


def test_panels_have_one_legend_and_labels_at_the_edges():
    figure = drawn(TWO, BY)
    names = ("dataset = adult", "dataset = law", "error (test)", "ratio (test)", "fit", "late")
    assert texts(figure, *names) == [1, 1, 1, 2, 1, 1]
    assert len(figure.legends) == 1
    # an empty panel is noted
    assert texts(drawn([("fit", {"dataset": "adult"}, {}), *TWO[4:]], BY), canvas.NO_NUMBERS) == [1]
    request = canvas.PlotRequest(BasePlot(), "x")
    found = [canvas.Canvas(request, "", "", count) for count in (1, 2, 3, 4, 5, 12)]
    assert [each.columns for each in found] == [1, 2, 3, 2, 3, 3]


def test_splits_are_side_by_side():
    plan = [planned("fit", 0, data=d, alpha=a) for d in ("u", "v") for a in (0.2, 0.1)]
    results = {}
    for trial in plan:
        values = {"train": trial.point["alpha"], "test": trial.point["alpha"] + 1}
        numbers = {("main", split): {"ratio": a, "error": 2 * a} for split, a in values.items()}
        results[trial.key] = measured(trial, numbers)

    def drawing(**more):
        ledger = Ledger(plan, results, {"experiment": {"report": {"plots": [PLOT | more]}}})
        return draw_tradeoff(ledger, canvas.requested_plots(ledger)[0])

    both = drawing(split=["train", "test"])
    assert both.caption == "error against ratio (train and test)"
    assert texts(both.figure, "train", "test", "ratio", "error", "ratio (test)") == [1, 1, 2, 1, 0]
    names = [f"data = {d}, {split}" for d in "uv" for split in ("train", "test")]
    assert texts(drawing(split=["train", "test"], by="data").figure, *names) == [1] * 4
    for split in ("train", ["train"]):
        assert texts(drawing(split=split).figure, "ratio (train)", "train") == [1, 0]


def test_a_plot_with_panels_side_by_side_has_them_below_each_other_on_a_phone():
    wide, single = draw_plots(ledger_of(TWO, BY, PLOT))
    sizes = [
        [float(number) for number in re.search(rb'viewBox="0 0 (\S+) (\S+)"', svg).groups()]
        for svg in (wide.svg, wide.narrow, single.svg)
    ]
    assert sizes[0][0] > 2 * sizes[1][0]
    assert sizes[1][0] == sizes[2][0] == pytest.approx(canvas.PANEL_SIZES[1][0] * 72)
    assert sizes[1][1] > 1.5 * sizes[2][1]
    assert single.narrow == b""


@pytest.mark.parametrize("column", [None, canvas.COLUMN])
def test_long_texts_are_broken(column):
    """Nothing is wider than the figure."""
    plot = PLOT | {"title": "a title " * 20, "by": "dataset"}
    trials = points_of(*[({"dataset": d}, 0.4) for d in "uvw"], label="an algorithm " * 12)
    (request,) = canvas.requested_plots(ledger_of(trials, plot))
    with matplotlib.style.context(resources.files("ratecli.report") / "page" / "plots.mplstyle"):
        drawing = draw_tradeoff(ledger_of(trials, plot), replace(request, column=column))
        drawing.save("svg")  # which computes the layout
        box = drawing.figure.get_tightbbox()
    assert 0 <= box.x0 < box.x1 <= drawing.figure.get_size_inches()[0]


def test_values_of_one_constraint_share_a_title():
    lines = [{"value": k, "label": f"parity: {k}"} for k in (0.3, 0.4)]
    figure = drawn(TWO, PLOT, plots=[{"levels": lines}])
    assert texts(figure, "target of parity", "parity: 0.3") == [1, 0]


@pytest.mark.parametrize("axis", ["x", "y"])
def test_a_limit_that_nobody_is_near_is_named_at_the_end_of_the_axis(axis):
    """The ratio is from .1 to .4, the error from .05 to .2."""
    name, scale = {"x": ("levels", 1), "y": ("heights", 0.5)}[axis]
    lines = [{"value": k * scale, "label": f"parity: {k}"} for k in (-0.3, 0.3, 0.5, 0.9)]
    figure = drawn(TWO, PLOT, plots=[{name: lines}])
    title = "\N{LEFTWARDS ARROW} -0.3   target of parity   0.9 \N{RIGHTWARDS ARROW}"
    assert texts(figure, title, "0.3", "0.5", "0.9") == [1, 1, 1, 0]
    low, high = getattr(figure.axes[0], f"get_{axis}lim")()
    assert 0 < low < 0.5 * scale < high < 0.6 * scale
    # a single point has no range that could be hidden
    figure = drawn(points_of(({"k": 1}, 1.0)), PLOT, plots=[{name: lines[-1:]}])
    assert texts(figure, "parity: 0.9") == [1]


def test_huge_intervals_of_few_seeds_are_cut_and_noted():
    calm = [({"k": k}, (k + d, 0.1)) for k in (0, 1) for d in (0, 0.01, 0.02)]
    wild = [({"k": 2}, (k, 0.1)) for k in (-1, 3)]  # the half-width is 25
    figure = drawn(points_of(*calm, *wild), PLOT)
    low, high = figure.axes[0].get_xlim()
    assert notes(figure).endswith("\n1 interval is cut off (few seeds make them wide)")
    assert -0.2 < low < 0
    assert 1 < high < 1.3
    assert "cut off" not in notes(drawn(points_of(*calm), PLOT))


def test_a_single_point_with_a_huge_interval_is_drawn():
    one = points_of(*[({"k": 1}, (k, k)) for k in (0, 1)])
    assert "cut off" not in notes(drawn(one, PLOT))


def test_a_file_without_plots_has_one_of_the_first_constraint():
    ledger = ledger_of(points_of(({"k": 1}, 0.5)))
    assert draw_plots(ledger) == []
    asked = {"experiment": {"constraints": {"parity": "gap <= 0"}}}
    (request,) = canvas.requested_plots(Ledger(ledger.plan, ledger.results, asked))
    assert (request.options.x, request.options.y) == ("violation.parity", "objective")
