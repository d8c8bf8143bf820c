"""Requested plots, and their figures: style, panels, legends and image files."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Generic, Literal, TypeVar

import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ratecli.config.report import PLOT_TYPES, BasePlot
from ratecli.files import unique_file_name
from ratecli.ledger.records import OBJECTIVE, VIOLATION_PREFIX, PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.render import terminal_safe
from ratecli.report.groups import IntervalEstimate, results_frame
from ratecli.report.sheet import format_point

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito, which is suitable for colour-blind readers."""
MARKERS = "os^DvPX*"
"""The markers of algorithms, which distinguish them in print, too."""
STYLES = ("-", "--", ":", "-.", (0, (7, 2)), (0, (4, 1, 1, 1, 1, 1)))
"""The line styles of variants."""
STYLE_SHIFT = 3
"""When colours repeat for further algorithms, their line styles are shifted by this many."""
SHADES = 0.28, 0.8
"""The darkest and the lightest shade of a colour, from 0 (black) to 1 (white)."""
FILLS = ("full", "white", "left", "bottom", "right", "top")
"""The fill styles of variants' markers."""
GREY = "#6b6b6b"
DOTTED: dict[str, Any] = {"color": GREY, "linestyle": (0, (1, 2)), "zorder": 1}
"""The style of lines at limits."""
MAX_LEVELS = 8
"""More limits on an axis are not drawn."""
REACH = 0.5
"""An axis is extended to limits by at most this share of its length."""
MAX_LEVEL_LETTERS = 24
"""Labels of limits with more letters in total are slanted."""
MIN_LEVEL_GAP = 0.07
"""Labels of limits closer together than this share of the axis are slanted, too."""
PANEL_SIZES = {1: (4.2, 3.1), 2: (4.3, 3.0), 3: (3.1, 2.5)}
"""Panel size in inches by number of columns; one panel fits on a phone."""
LETTER = 0.075
"""Width of a letter of a label in inches, a little more than the average."""
LEGEND_LINE = 0.2
"""Height of a legend line in inches."""
COLUMN, BOTH_COLUMNS = 3.25, 6.75
"""Widths in inches of a column of a paper, and of two."""
DATED_KEYS = {
    "svg": ("Date", "Creator", "Format", "Type"),
    "png": ("Software",),
    "pdf": ("CreationDate", "Creator", "Producer"),
}
"""Metadata with dates and versions, by format."""
NO_NUMBERS = "no trial has these values"
ONE_SEED = "one seed, no intervals"
PlotT = TypeVar("PlotT", bound=BasePlot)
SourceT = TypeVar("SourceT")


@dataclass(frozen=True)
class PlotRequest(Generic[PlotT]):
    """A plot of the experiment file: its options, file name and position in the list of plots.

    With `column`, a width in inches, the figure has this width, and a panel at least `COLUMN`.
    """

    options: PlotT
    name: str
    position: int = 0
    column: float | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """The measured splits, which may be stored as a string or a list."""
        split: str | Sequence[str] = getattr(self.options, "split", None) or "test"
        return (split,) if isinstance(split, str) else tuple(split)


def requested_plots(ledger: Ledger) -> list[PlotRequest[Any]]:
    """Return the plots of the experiment file; no two share a file name.

    The options were validated before the run. Without plots in the file, there is one of the
    objective against the violation of the first constraint.
    """
    found: list[PlotRequest[Any]] = []
    default = [
        {"x": VIOLATION_PREFIX + name, "y": OBJECTIVE, "file": "tradeoff"}
        for name in list(ledger.constraints)[:1]
        if len(results_frame(ledger.algorithms))
    ]
    for position, stored in enumerate(ledger.report_entries("plots") or default):
        kind = stored.get("kind", "tradeoff")
        axes = [stored[axis] for axis in ("x", "y") if axis in stored]
        wish = stored.get("file") or "-".join([kind, *axes])
        name = unique_file_name(wish, [plot.name for plot in found])
        options = PLOT_TYPES[kind].model_construct(**{**stored, "kind": kind})
        found.append(PlotRequest(options, name, position))
    return found


@dataclass(frozen=True)
class PlotSelection:
    """The algorithms, variants (all if empty) and flat lines that a plot or a panel shows.

    With `at`, a name and a value, only points with this value or without this name are shown.
    """

    algorithms: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    at: tuple[str, Any] | None = None

    @classmethod
    def of(cls, options: BasePlot) -> PlotSelection:
        names = ("algorithms", "variants", "lines")
        return cls(*(tuple(getattr(options, name, None) or ()) for name in names))

    @property
    def title(self) -> str:
        """The title of the panel: the value that it shows."""
        return format_point(dict([self.at])) if self.at else ""

    def includes(self, label: str) -> bool:
        """Return whether the plot shows an algorithm, as a curve or as a flat line."""
        return not self.algorithms or label in (*self.algorithms, *self.lines)

    def includes_variant(self, variant: str, siblings: Collection[str]) -> bool:
        """Return whether the plot shows a variant; an algorithm's only variant always counts."""
        return not self.variants or len(siblings) == 1 or variant in self.variants

    def includes_point(self, point: Mapping[str, Any]) -> bool:
        name, value = self.at or ("", None)
        return name not in point or repr(point[name]) == repr(value)

    def includes_trial(self, trial: PlannedTrial) -> bool:
        return self.includes(trial.label) and self.includes_point(trial.point)


def panel_selections(ledger: Ledger, options: BasePlot) -> list[PlotSelection]:
    """Return the selection of each panel: one for each value of `by`, in plan order.

    Without values of `by`, there is a single panel.
    """
    whole, by = PlotSelection.of(options), getattr(options, "by", None) or ""
    values = {
        repr(trial.point[by]): trial.point[by]
        for trial in ledger.plan
        if by in trial.point and whole.includes(trial.label)
    }
    return [replace(whole, at=(by, value)) for value in values.values()] or [whole]


@dataclass(frozen=True)
class PlotImage:
    """A drawn plot; `name` is the file name without suffix.

    `what` explains the plot to readers who are new to this kind; `width` is in CSS pixels. A plot
    with panels side by side also has a `narrow` drawing with the panels below each other, for
    phones. A plot with a `file:` also has a PDF as wide as a column of a paper, or as both
    columns if it has several rows of two panels.
    """

    name: str
    caption: str
    svg: bytes
    png: bytes
    pdf: bytes | None = None
    what: str = ""
    width: int = 0
    narrow: bytes = b""

    def files(self) -> dict[str, bytes]:
        """Return the contents of its files by name."""
        images = {"svg": self.svg, "png": self.png, "pdf": self.pdf}
        return {f"{self.name}.{form}": image for form, image in images.items() if image is not None}


class Canvas:
    """A figure with a grid of panels.

    Pages show `caption` beside the figure, or its title, with `what`: an explanation for readers
    who are new to this kind of plot. The figure itself shows the title at its top.
    """

    def __init__(
        self, plot: PlotRequest[Any], caption: str, what: str, panels: int, most: int = 3
    ) -> None:
        """Create a figure for a number of panels, at most `most` in a row, fewer in a column."""
        title, column = plot.options.title, plot.column
        self.caption, self.what = title or caption, what
        self.panels = panels
        most = min(most, int(column // COLUMN)) if column else most
        self.columns = 2 if (panels, most) == (4, 3) else max(1, min(panels, most))
        self.rows = max(1, -(-panels // self.columns))
        width, height = PANEL_SIZES[self.columns]
        whole = max(width * self.columns, PANEL_SIZES[1][0])
        size = column or whole, height * self.rows * (column / whole if column else 1)
        self.figure = Figure(figsize=size, layout="constrained")
        if title:
            title = textwrap.fill(title, int(size[0] / LETTER / 1.1))
            self.figure.suptitle(title, x=0.01, ha="left")

    def panel(self, title: str = "", x: str = "", y: str = "", **share: Axes | None) -> Axes:
        """Add the next panel; only the left and the lower edge of the grid have labels."""
        number = len(self.figure.axes)
        axes = self.figure.add_subplot(self.rows, self.columns, number + 1, **share)
        if axes.get_xscale() == "linear":
            axes.locator_params(axis="x", nbins=9 - self.columns)
        lowest = number + self.columns >= self.panels
        leftmost = number % self.columns == 0
        width, height = self.figure.get_size_inches() / LETTER
        labels = ((title, width / self.columns), (x, width / self.columns), (y, height / self.rows))
        title, x, y = (textwrap.fill(text, max(1, int(letters))) for text, letters in labels)
        axes.set(title=title, xlabel=x * lowest, ylabel=y * leftmost)
        return axes

    def add_legend(self, handles: Iterable[Artist], notes: Sequence[str]) -> None:
        """Add a legend with distinct labels below all panels; increase the height to fit."""
        distinct = {str(handle.get_label()): handle for handle in handles}
        width, height = self.figure.get_size_inches()
        longest = max(map(len, distinct), default=1)
        columns = max(1, min(len(distinct), int(width / (0.6 + 0.064 * longest))))
        letters = int((width - 0.6) / (LETTER * 0.85))
        title = "\n".join(textwrap.fill(text, letters) for text in notes)
        labels = [textwrap.fill(label, letters) for label in distinct]
        further = sum(label.count("\n") for label in labels)
        lines = -(-len(distinct) // columns) + further + len(title.splitlines())
        self.figure.set_size_inches(width, height + LEGEND_LINE * (lines + 0.5))
        self.figure.legend(
            list(distinct.values()),
            labels,
            title=title,
            loc="outside lower left",
            ncols=columns,
            alignment="left",
        )

    def save(self, form: Literal["svg", "png", "pdf"]) -> bytes:
        """Return an image without dates and versions: it is reproducible byte by byte.

        The first one computes the layout of all.
        """
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # of names in other scripts
            self.figure.savefig(
                file, format=form, dpi=150, metadata=dict.fromkeys(DATED_KEYS[form])
            )
        self.figure.set_layout_engine(None)
        found = file.getvalue()
        return terminal_safe(found.decode()).encode() if form == "svg" else found


def draw_image(
    draw: Callable[[SourceT, PlotRequest[Any]], Canvas], source: SourceT, plot: PlotRequest[Any]
) -> PlotImage:
    """Draw a plot of some results and return its images; user settings have no effect on them."""
    style = resources.files("ratecli.report").joinpath("page", "plots.mplstyle")
    with resources.as_file(style) as path, matplotlib.style.context(["default", path], True):
        canvas, narrow = draw(source, plot), b""
        svg, png = canvas.save("svg"), canvas.save("png")
        if canvas.columns > 1:
            narrow = draw(source, replace(plot, column=PANEL_SIZES[1][0])).save("svg")
        wide = canvas.columns == 2 and canvas.panels > 3
        printed = replace(plot, column=BOTH_COLUMNS if wide else COLUMN)
        pdf = draw(source, printed).save("pdf") if plot.options.file else None
    width = round(96 * canvas.figure.get_size_inches()[0])
    return PlotImage(plot.name, canvas.caption, svg, png, pdf, canvas.what, width, narrow)


def spans_decades(values: Iterable[float]) -> bool:
    """Return whether positive values span a factor of at least 100, as for a log scale."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) >= 100 * min(positive)


def use_plain_log_scale(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Use a logarithmic scale with powers of ten in plain notation (100, not 10^2)."""
    axes.set(**{f"{axis}scale": "log"})
    scaled = axes.xaxis if axis == "x" else axes.yaxis
    scaled.set_major_formatter("{x:g}")
    axes.minorticks_off()


def cover_sweep(axes: Axes, values: Iterable[float]) -> None:
    """Extend the x axis to all swept values, including those without results."""
    axes.update_datalim([(value, 0.0) for value in values], updatey=False)
    axes.autoscale_view(scaley=False)


def draw_levels(axes: Axes, levels: Sequence[tuple[float, str]], axis: Literal["x", "y"]) -> None:
    """Draw dotted lines at values and label them, unless there are too many.

    If labels are values of one constraint, such as `parity: 0.8`, they share a title. Limits that
    are too far from the data are named beside the title, with an arrow in their direction.
    """
    low, high = axes.get_xlim() if axis == "x" else axes.get_ylim()
    data = np.ptp(axes.dataLim.intervalx if axis == "x" else axes.dataLim.intervaly)
    reach = REACH * (high - low) if 0 < data < math.inf else math.inf  # one point has no range
    levels = sorted(dict.fromkeys(levels))
    if not 0 < len(levels) <= MAX_LEVELS:
        return
    names, title = {label.rpartition(": ")[0] for _, label in levels}, ""
    if len(levels) > 1 and len(names) == 1 and (name := names.pop()):
        title = f"target of {name}"
        levels = [(value, label.rpartition(": ")[2]) for value, label in levels]
    below = ", ".join(label for value, label in levels if value < low - reach)
    above = ", ".join(label for value, label in levels if value > high + reach)
    levels = [each for each in levels if low - reach <= each[0] <= high + reach]
    values, labels = [value for value, _ in levels], [label for _, label in levels]
    draw = axes.axvline if axis == "x" else axes.axhline
    for value in values:
        draw(value, linewidth=0.8, **DOTTED)
    ends = min([low, *values]), max([high, *values])
    if ends != (low, high):
        margin = 0.04 * np.ptp(ends)
        axes.set(**{f"{axis}lim": (ends[0] - margin, ends[1] + margin)})
    second = axes.secondary_xaxis("top") if axis == "x" else axes.secondary_yaxis("right")
    second.spines[:].set_visible(False)
    second.set(**{f"{axis}ticks": values, f"{axis}ticklabels": labels})
    gaps = np.diff(values)
    close = min(gaps, default=math.inf) < MIN_LEVEL_GAP * np.ptp([low, high, *values])
    if axis == "x" and (close or sum(map(len, labels)) > MAX_LEVEL_LETTERS):
        for text in second.get_xticklabels():
            text.set(rotation=45, ha="left")
    second.tick_params(length=0, pad=1, labelsize=7, labelcolor=GREY)
    parts = (
        f"\N{LEFTWARDS ARROW} {below}" * bool(below),
        title,
        f"{above} \N{RIGHTWARDS ARROW}" * bool(above),
    )
    label = second.xaxis if axis == "x" else second.yaxis
    label.set_label_text("   ".join(filter(None, parts)), fontsize=8, color=GREY)


def line_style(algorithm: int, variant: int = 0, shade: float | None = None) -> dict[str, Any]:
    """Return the style of a line.

    The algorithm's position in the file determines the colour and the marker, the variant the line
    style and how the marker is filled. If there are several lines, `shade` is from 0 (dark) to 1
    (light).
    """
    repetition, colour = divmod(algorithm, len(COLOURS))
    fill = FILLS[variant % len(FILLS)]
    return {
        "color": COLOURS[colour] if shade is None else _shaded(COLOURS[colour], shade),
        "fillstyle": "full" if fill == "white" else fill,
        "linestyle": STYLES[(variant + STYLE_SHIFT * repetition) % len(STYLES)],
        "linewidth": 1.3,
        "marker": MARKERS[algorithm % len(MARKERS)],
        "markerfacecoloralt": "white",
        "markersize": 5.5,
        **({"markeredgecolor": "white", "markeredgewidth": 0.5} if fill == "full" else {}),
        **({"markerfacecolor": "white"} if fill == "white" else {}),
    }


def _shaded(colour: str, shade: float) -> str:
    """Interpolate between a dark and a light version of a colour."""
    shades = LinearSegmentedColormap.from_list("", ["black", colour, "white"])
    return to_hex(shades(SHADES[0] + shade * (SHADES[1] - SHADES[0])))


def band_style(colour: str) -> dict[str, Any]:
    return {"facecolor": colour, "alpha": 0.14, "linewidth": 0, "zorder": 1.2}


def means_and_ends(
    estimates: Sequence[IntervalEstimate],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means (N,) and ends (2, N) of intervals; without an interval both are the mean."""
    means = [each.mean or 0.0 for each in estimates]
    ends = [each.interval or (mean, mean) for each, mean in zip(estimates, means, strict=True)]
    return np.array(means), np.transpose(ends)


def mark_empty(axes: Axes) -> None:
    axes.text(0.5, 0.5, NO_NUMBERS, transform=axes.transAxes, ha="center", fontsize=8, color=GREY)


def describe_count(counts: Sequence[int], unit: str) -> str:
    """Return `1 seed`, `5 seeds`, or `4 to 5 seeds` if counts differ."""
    least, most = min(counts), max(counts)
    number = str(most) if least == most else f"{least} to {most}"
    return f"{number} {unit}{'s' * (most > 1)}"


def describe_intervals(counts: Sequence[int], text: str) -> str:
    """Return a text with `{}` replaced by the number of seeds, or that one seed has no interval."""
    return text.format(describe_count(counts, "seed")) if max(counts) > 1 else ONE_SEED
