"""The plot of rates of groups on new data, for the answers of a report."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ratecli.ledger.view import Ledger
from ratecli.render import terminal_safe
from ratecli.report.answer import OBJECTIVE, Answer, answer_split, answers
from ratecli.report.groups import IntervalEstimate, SeedGroup, group_by, seed_groups
from ratecli.report.plots.canvas import GREY, Canvas, describe_intervals, line_style
from ratecli.report.plots.lines import cut_axis, describe_cut
from ratecli.report.sheet import format_point, format_scalar
from ratecli.report.templates import note

FILE = "group-rates"
MAX_PANELS = 3
MAX_ROWS = 12
ROW_HEIGHT, LINE_HEIGHT, MARK_HEIGHT, MARGIN = 0.36, 0.17, 0.07, 0.75
"""Least height of a row, of a line of its title and of a group's mark, and of a panel's title and
axis, in inches."""
MIN_WIDTH = 5.0
TITLE_WIDTH = 28
MAX_STYLES = 16
"""Largest number of groups with marks of their own, intervals and an entry in the legend."""
SPREAD = 0.65
"""Share of a row's height that its groups take."""

Rows = list[tuple[str, SeedGroup]]
"""Titles of rows, each with the group of trials that it shows."""


def rate_rows(ledger: Ledger) -> tuple[Rows, int]:
    """Return the rows of the plot, and how many were left out.

    They are all groups of trials of a single task. Of several tasks, they are the answers after
    the group without constraints that their costs refer to.
    """
    found = answers(ledger)
    if len(found) == 1:
        split = answer_split(ledger)
        groups = [
            each for each in seed_groups(ledger.algorithms) if each.estimate(split, OBJECTIVE).n
        ]
        rows = [(each.name, each) for each in groups]
        return rows[:MAX_ROWS], len(rows[MAX_ROWS:])
    rows = []
    shown = set()
    for answer in _spread(found):
        best, base, point = answer.best, answer.baseline, _point(answer)
        if base and (base.label, repr(base.rates)) not in shown:
            shown.add((base.label, repr(base.rates)))
            rows.append((base.name, base))
        if base is not best.group:
            rows.append((f"{point}: {best.name}", best.group))
    return rows, len(found) - len(_spread(found))


def _spread(found: Sequence[Answer]) -> list[Answer]:
    """Return all answers, or the first, the last and some evenly between them."""
    places = np.linspace(0, len(found) - 1, min(len(found), MAX_ROWS)).round().astype(int)
    return [found[place] for place in places]


def _point(answer: Answer) -> str:
    """Return the task's value with its name, or the values of several names."""
    values = map(format_scalar, answer.task.values())
    return ", ".join(values) if len(answer.task) > 1 else format_point(answer.task)


def has_group_rates(ledger: Ledger) -> bool:
    return any(group.rates for group in seed_groups(ledger.algorithms))


def draw_group_rates(ledger: Ledger) -> Canvas:
    """Draw a panel for each rate, a row for each setting and a mark for each group."""
    split, (rows, omitted) = answer_split(ledger), rate_rows(ledger)
    kinds = _kinds(rows)
    groups = list(dict.fromkeys(group for own in kinds.values() for group in own))
    what = note("group_rates", split=split)
    canvas = Canvas("Rates by group", what, panels=max(len(kinds), 1))
    width, _ = canvas.figure.get_size_inches()
    names = [textwrap.fill(name, TITLE_WIDTH) for name, _ in rows]
    lines = max((name.count("\n") + 1 for name in names), default=1)
    many = len(groups) > MAX_STYLES
    marks = MAX_STYLES // 2 if many else len(groups)
    row_height = max(ROW_HEIGHT, LINE_HEIGHT * lines, MARK_HEIGHT * marks / SPREAD)
    canvas.figure.set_size_inches(max(width, MIN_WIDTH), MARGIN + row_height * max(len(rows), 2))
    cut = 0
    for kind, own in kinds.items():
        first = next(iter(canvas.figure.axes), None)
        axes = canvas.panel("", f"{kind} ({split})", sharey=first)
        for row, (_, each) in enumerate(rows):
            found = {group: each.rates.get((kind, group)) for group in own}
            known = {group: rate for group, rate in found.items() if rate and rate.finite}
            _draw_row(axes, row, known, [] if many else groups)
        rates = [each.rates.get((kind, group)) for _, each in rows for group in own]
        shown = [rate for rate in rates if rate and rate.finite]
        cut += cut_axis(axes, "x", [] if many else shown)
        axes.tick_params(axis="y", length=0, labelleft=first is None)
        if first is None:
            axes.set_yticks(range(len(rows)), names)
            axes.set_ylim(len(rows) - 0.5, -0.5)
    handles = [
        Line2D([], [], label=terminal_safe(group), **_style(k)) for k, group in enumerate(groups)
    ]
    counts = [rate.n for _, each in rows for rate in each.rates.values()] or [1]
    notes = [describe_intervals(counts, "mean and 95 % Student-t interval over {}")]
    if many:
        handles = [Line2D([], [], label=f"one of {len(groups)} groups", **_style(None))]
        notes = ["mean over seeds, without intervals"]
    notes += describe_cut(cut) + [f"{omitted} more settings: see the tables"] * bool(omitted)
    canvas.add_legend(handles, notes)
    return canvas


def _kinds(rows: Rows) -> dict[str, list[str]]:
    """Return the groups of each rate, for the first rates."""
    places = dict.fromkeys(place for _, each in rows for place in each.rates)
    kinds = group_by(places, lambda place: place[0])
    return {kind: [group for _, group in own] for kind, own in list(kinds.items())[:MAX_PANELS]}


def _draw_row(
    axes: Axes, row: int, rates: Mapping[str, IntervalEstimate], groups: Sequence[str]
) -> None:
    """Draw the rates of groups in one setting.

    Without `groups`, all have the same mark and no interval.
    """
    means = [rate.mean or 0.0 for rate in rates.values()]
    if means:
        axes.plot([min(means), max(means)], [row, row], color=GREY, alpha=0.25, linewidth=4)
    places = row + SPREAD * ((np.arange(len(means)) + 0.5) / max(len(means), 1) - 0.5)
    if not groups:
        axes.plot(means, places, **_style(None))
        return
    for (group, rate), mean, place in zip(rates.items(), means, places.tolist(), strict=True):
        style = _style(groups.index(group))
        axes.plot(rate.interval or (mean, mean), [place] * 2, color=style["color"])
        axes.plot(mean, place, **style)


def _style(number: int | None) -> dict[str, Any]:
    """Return the style of a group's mark, None for one of many groups."""
    many = {"markersize": 3, "alpha": 0.5} if number is None else {}
    return line_style(number or 0, number or 0) | {"linestyle": "none"} | many
