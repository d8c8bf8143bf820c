"""Plots of filters: heat maps of posteriors and bars of shares."""

import numpy as np
import pytest
from matplotlib.text import Text
from scipy import stats
from synthetic_ledger import measured, planned

from ratecli.ledger.records import TrialResult
from ratecli.ledger.view import Ledger
from ratecli.report.html import render_report
from ratecli.report.plots import PLOT_KINDS, draw_plots, filters
from ratecli.report.plots.canvas import NO_NUMBERS, requested_plots

POSTERIORS = {"kind": "posteriors"}
SHARES = {"kind": "group_shares"}
JOBS = ["clerk", "nurse", "student"]
BASE = [0.7, 0.2, 0.1]
MORE_CLERKS = {"train": 0.0, "validation": 0.0, "test": 0.05}
"""Difference of the share of clerks from `BASE`, by split."""


def column(alpha, seed, names=JOBS):
    """Return the stored summary of a column; where alpha is 0, no row has the second value."""
    splits = {}
    for split, more in MORE_CLERKS.items():
        shift = alpha / 2 + seed / 100
        base = [BASE[0] + more, BASE[1], BASE[2] - more]
        shifted = [base[0] - shift, base[1] + shift, base[2]]
        splits[split] = {
            "base": base,
            "size": [1.0, 0.0] if alpha == 0 else [0.75, 0.25],
            "posterior": [base, None if alpha == 0 else shifted],
            "after": shifted,
        }
    return {"groups": list(names), "splits": splits}


def summaries(alpha, seed):
    columns = {"job": column(alpha, seed), "sex": column(alpha, seed, ["F", "M", "X"])}
    return {
        "expected": {"keep": [0.125, 1.0], "columns": columns},
        "drawn": {"keep": [0.5, 1.0], "columns": {"job": column(alpha + 0.1, seed)}},
    }


def ledger_of(*plots, labels=("tree",), alphas=(0, 0.2, 0.4), seeds=(3, 5), failed=()) -> Ledger:
    """Return trials of filters, except of 'plain'; `failed` are pairs of alpha and seed."""
    plan = [
        planned(label, seed, alpha=alpha) for label in labels for alpha in alphas for seed in seeds
    ]
    results = {}
    numbers = {("expected", "train"): {"error": 0.1}, ("drawn", "train"): {"error": 0.1}}
    for trial in plan:
        alpha, seed = trial.point["alpha"], trial.seed
        info = {} if trial.label == "plain" else {"filters": summaries(alpha, seed)}
        if (alpha, seed) in failed:
            results[trial.key] = TrialResult(trial.key, "error", "E501")
        else:
            results[trial.key] = measured(trial, numbers, info=info)
    return Ledger(plan, results, {"experiment": {"name": "x", "report": {"plots": list(plots)}}})


def maps(ledger):
    """Return the tables of the first plot by panel."""
    options = requested_plots(ledger)[0].options
    panels = filters.filter_panels(ledger, options)
    return {title: filters.posterior_table(ledger, options, trials) for title, trials in panels}


def bars(ledger, position=0):
    """Return the bars of a plot by panel and split."""
    plot = requested_plots(ledger)[position]
    return {
        (title, split): filters.share_bars(ledger, plot.options, trials, split)
        for title, trials in filters.filter_panels(ledger, plot.options)
        for split in plot.splits
    }


def texts(figure):
    return [each.get_text() for each in figure.findobj(Text) if each.get_visible()]


def means(shares):
    return [share.mean for share in shares]


def test_a_map_has_the_base_rates_above_a_row_for_each_value():
    found = maps(ledger_of(POSTERIORS))
    assert list(found) == ["alpha = 0", "alpha = 0.2", "alpha = 0.4"]
    first, second, _ = found.values()
    assert list(first.index) == ["all rows", "1 (100 %, 0.12)", "2 (0 %, 1)"]
    assert list(second.index) == ["all rows", "1 (75 %, 0.12)", "2 (25 %, 1)"]
    assert list(first.columns) == list(second.columns) == JOBS
    # the last row is of the first seed, 3
    np.testing.assert_allclose(second, [BASE, BASE, [0.57, 0.33, 0.1]])
    np.testing.assert_allclose(first, [BASE, BASE, [np.nan] * 3])
    # which is not replaced by another seed if it failed
    assert maps(ledger_of(POSTERIORS, failed=[(0.2, 3)]))["alpha = 0.2"] is None


@pytest.mark.parametrize(
    ("options", "last"),
    [
        ({"seed": 5}, (0.55, 0.35, 0.1)),
        ({"split": "test"}, (0.62, 0.33, 0.05)),
        ({"variant": "drawn"}, (0.52, 0.38, 0.1)),
        ({"column": "sex"}, (0.57, 0.33, 0.1)),
    ],
)
def test_a_map_shows_the_requested_seed_split_variant_and_column(options, last):
    (found,) = maps(ledger_of(POSTERIORS | options | {"at": {"alpha": [0.2]}})).values()
    assert tuple(found.iloc[2]) == pytest.approx(last)
    assert list(found.columns) == (["F", "M", "X"] if "column" in options else JOBS)


def test_cells_of_a_drawn_map():
    ledger = ledger_of(POSTERIORS | {"at": {"alpha": [0, 0.4]}})
    left, right = filters.draw_posteriors(ledger, requested_plots(ledger)[0]).figure.axes
    assert [axes.get_title() for axes in (left, right)] == ["alpha = 0", "alpha = 0.4"]
    (mesh,) = right.collections
    np.testing.assert_allclose(mesh.get_array(), [BASE, BASE, [0.47, 0.43, 0.1]])
    assert mesh.get_clim() == (0, 1)
    written = [text.get_text() for text in right.texts]
    assert written == ["0.70", "0.20", "0.10"] * 2 + ["0.47", "0.43", "0.10"]
    assert [text.get_text() for text in left.texts][6:] == ["-"] * 3
    assert [label.get_text() for label in right.get_xticklabels()] == JOBS
    names = [label.get_text() for label in right.get_yticklabels()]
    assert names == ["all rows", "1 (75 %, 0.12)", "2 (25 %, 1)"]
    places = [right.transData.transform((0, y))[1] for y in right.get_yticks()]
    assert places == sorted(places, reverse=True)


def test_panels_without_numbers_are_noted():
    ledger = ledger_of(POSTERIORS, SHARES, failed=[(0.2, 3), (0.2, 5)])
    assert [title for title, table in maps(ledger).items() if table is None] == ["alpha = 0.2"]
    empty = [title for title, table in bars(ledger, 1).items() if table is None]
    assert empty == [("alpha = 0.2", "train"), ("alpha = 0.2", "test")]
    nothing = ledger_of(POSTERIORS, SHARES, labels=("plain",))
    assert maps(nothing) == {}
    figures = [
        PLOT_KINDS[plot.options.kind](each, plot).figure
        for each in (ledger, nothing)
        for plot in requested_plots(each)
    ]
    assert [texts(figure).count(NO_NUMBERS) for figure in figures] == [1, 2, 1, 1]


def test_panels_are_filters_at_the_requested_points():
    both = ("plain", "tree", "guess")
    alphas = [f"alpha = {a}" for a in ("0", "0.2", "0.4")]
    named = [f"{label}, {alpha}" for label in ("tree", "guess") for alpha in alphas]
    assert list(maps(ledger_of(POSTERIORS, labels=both))) == named
    guess = POSTERIORS | {"algorithms": ["guess"]}
    assert list(maps(ledger_of(guess, labels=both))) == alphas
    some = POSTERIORS | {"at": {"alpha": [0.4, 0]}}
    assert list(maps(ledger_of(some))) == ["alpha = 0", "alpha = 0.4"]
    assert list(maps(ledger_of(POSTERIORS, alphas=(0.2,)))) == ["alpha = 0.2"]


def test_bars_are_means_over_seeds_with_their_intervals():
    found = bars(ledger_of(SHARES, seeds=(0, 1, 2)))
    alphas = [f"alpha = {a}" for a in ("0", "0.2", "0.4")]
    assert list(found) == [(alpha, split) for alpha in alphas for split in ("train", "test")]
    shown = found["alpha = 0.2", "test"]
    assert list(shown.index) == JOBS
    assert means(shown["all rows"]) == pytest.approx([0.75, 0.2, 0.05])
    assert means(shown["kept rows"]) == pytest.approx([0.64, 0.31, 0.05])
    half = stats.t.ppf(0.975, 2) * 0.01 / np.sqrt(3)
    assert [each.half for each in shown["kept rows"]] == pytest.approx([half, half, 0])
    for split in ("validation", ["validation"]):
        found = bars(ledger_of(SHARES | {"split": split}))
        assert list(found) == [(alpha, "validation") for alpha in alphas]


def test_drawn_bars():
    ledger = ledger_of(SHARES | {"at": {"alpha": [0.2, 0.4]}})
    canvas = filters.draw_group_shares(ledger, requested_plots(ledger)[0])
    panels = canvas.figure.axes
    titles = [f"alpha = {a}, {split}" for a in (0.2, 0.4) for split in ("train", "test")]
    assert [axes.get_title() for axes in panels] == titles
    patches = panels[2].patches
    assert [patch.get_width() for patch in patches] == pytest.approx([*BASE, 0.46, 0.44, 0.1])
    ys = [patch.get_y() for patch in patches]
    assert ys[:3] == sorted(ys[:3])
    assert all(before < after for before, after in zip(ys[:3], ys[3:], strict=True))
    vertical = [x[0] for x in (line.get_xdata() for line in panels[2].lines) if len({*x}) == 1]
    assert vertical == [pytest.approx(1 / 3)]
    assert len({axes.get_xlim() for axes in panels}) == 1
    assert [label.get_text() for label in panels[0].get_yticklabels()] == JOBS
    note = "bars: mean over 2 seeds, with its 95 % Student-t interval"
    assert {note, "all rows", "kept rows", "uniform share"} <= {*texts(canvas.figure)}
    one = ledger_of(SHARES, seeds=(3,))
    figure = filters.draw_group_shares(one, requested_plots(one)[0]).figure
    assert "one seed, no intervals" in texts(figure)


def test_a_filter_that_keeps_no_rows_has_no_shares_after():
    ledger = ledger_of(SHARES, alphas=(0.2,))
    for each in ledger.results.values():
        each.info["filters"]["expected"]["columns"]["job"]["splits"]["train"]["after"] = None
    found = bars(ledger)["alpha = 0.2", "train"]
    assert means(found["kept rows"]) == [None] * 3
    assert means(found["all rows"]) == BASE
    draw_plots(ledger)


def test_captions_and_names_on_the_page():
    plots = (POSTERIORS | {"title": "Who is who"}, POSTERIORS, SHARES)
    ledger = ledger_of(*plots, alphas=(0.2,))
    images = draw_plots(ledger)
    assert [image.name for image in images] == ["posteriors", "posteriors-2", "group_shares"]
    captions = "Who is who", "Shares of groups by the proxy's values (train, seed 3)"
    assert [image.caption for image in images[:2]] == [*captions]
    assert "<strong>Shares of groups before and after" in render_report(ledger, images)
