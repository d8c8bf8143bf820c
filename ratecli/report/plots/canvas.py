"""Requested plots, and their figures: style, panels, legends, tooltips and image files."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from ratecli.config.report import PLOT_TYPES, BasePlot
from ratecli.files import unique_file_name
from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.sheet import format_point

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito, which is suitable for colour-blind readers."""
MARKERS = "os^DvPX*"
STYLES = ("-", "--", ":", "-.", (0, (7, 2)), (0, (4, 1, 1, 1, 1, 1)))
STYLE_SHIFT = 3
"""When colours repeat for further algorithms, their line styles are shifted by this many."""
DARKEST, LIGHTEST = 0.45, 0.6
"""The share of black, and of white, in the darkest and lightest shade of a colour."""
FILLS = ("full", "none", "left", "bottom", "right", "top")
GREY = "#6b6b6b"
DOTTED: dict[str, Any] = {"color": GREY, "linestyle": (0, (1, 2)), "zorder": 1}
"""The style of lines at limits."""
EDGE = 0.03
"""Share of the axis left empty at either end of a sweep or of a flat line."""
MAX_LEVELS = 8
"""More limits on an axis are not drawn."""
SIZE = (5.4, 3.7)
"""Figure size in inches. In a paper's column, the smallest letters are about 5 points high."""
PANEL = (3.1, 2.5)
"""Panel size in inches of figures with several panels."""
MAX_COLUMNS = 3
"""Maximum number of panels in a row."""
LEGEND_LINE = 0.2
"""Height of a legend line in inches."""
NO_NUMBERS = "no trial has these numbers"
ONE_SEED = "one seed, no intervals"
STYLE: dict[str, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.size": 9.5,
    "grid.alpha": 0.25,
    "legend.fontsize": 8.5,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "legend.handlelength": 2.8,
    "legend.title_fontsize": 8,
    "svg.hashsalt": "ratecli",
    "text.parse_math": False,
}

PlotT = TypeVar("PlotT", bound=BasePlot)
SERIES, LEGEND = "series", "legend"
"""Prefixes of the ids of a series' artists and of its legend entries."""
MAX_MARKS = 3000
"""Maximum number of tooltips of a figure."""
OUTSIDE = 0.01
"""Tolerance for points outside the axes, as a share of the axes."""
TooltipFacts: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values."""
DrawnArtist: TypeAlias = Artist | Container


@dataclass(frozen=True)
class PlotRequest(Generic[PlotT]):
    """A plot of the experiment file: its options, file name and position in the list of plots."""

    options: PlotT
    name: str
    position: int = 0

    @property
    def splits(self) -> tuple[str, ...]:
        """The measured splits, which may be stored as a string or a list."""
        split: str | Sequence[str] = getattr(self.options, "split", None) or "test"
        return (split,) if isinstance(split, str) else tuple(split)


class PlotDescription(NamedTuple):
    """The default caption of a plot, and an explanation for readers who are new to its kind."""

    caption: str
    what: str


def requested_plots(ledger: Ledger) -> list[PlotRequest[Any]]:
    """Return the plots of the experiment file; no two share a file name.

    The options were validated before the run.
    """
    found: list[PlotRequest[Any]] = []
    for position, stored in enumerate(ledger.report_entries("plots")):
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


def missing_variant_notes(ledger: Ledger, selection: PlotSelection) -> list[str]:
    """Return a note for each variant that a plot requests and no trial returned."""
    if not selection.variants:
        return []
    known = {item.variant for item in ledger.measurements()}
    missing = [name for name in selection.variants if name not in known]
    return [f"no trial returned a variant '{name}'" for name in missing]


class TooltipMark(NamedTuple):
    """A region of a figure with a tooltip.

    `x` and `y` are the centre; `width` and `height` are 0 for a point. All are shares of the
    figure's width and height, from its top left corner. `series` is the number of the line or of
    the kind of bar, None if there is only one kind.
    """

    x: float
    y: float
    width: float
    height: float
    series: int | None
    facts: TooltipFacts


class Tooltips:
    """Collects series and tooltips while a figure is drawn, which looks the same without them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._named_artists = 0
        self._places: list[tuple[Axes, np.ndarray, float, int | None, TooltipFacts]] = []

    @property
    def series(self) -> tuple[str, ...]:
        """The labels of the series, by number."""
        return tuple(self._numbers)

    def add_series(self, label: str, *artists: DrawnArtist) -> int:
        """Assign artists to the series with this label in the legend; return its number."""
        number = self._numbers.setdefault(label, len(self._numbers))
        self._set_ids(f"{SERIES}-{number}", artists)
        return number

    def add_mark(
        self,
        axes: Axes,
        x: float | tuple[float, float],
        y: float | tuple[float, float],
        facts: TooltipFacts,
        *,
        label: str = "",
        shift: float = 0.0,
    ) -> None:
        """Add a tooltip for a point, or for a bar or cell with these ranges, of a series.

        The coordinates are data coordinates, and `shift` is a further distance to the right in
        points. Without a label, there is only one kind of mark.
        """
        corners = np.transpose([np.broadcast_to(x, 2), np.broadcast_to(y, 2)])
        series = self.add_series(label) if label else None
        self._places.append((axes, corners, shift, series, facts))

    def name_legends(self, figure: Figure) -> None:
        """Assign legend entries to their series."""
        for legend in [*figure.legends, *(axes.get_legend() for axes in figure.axes)]:
            if legend is not None:
                for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
                    number = self._numbers.get(text.get_text())
                    if handle is not None and number is not None:
                        self._set_ids(f"{LEGEND}-{number}", [handle, text])

    def marks(self, figure: Figure) -> tuple[TooltipMark, ...]:
        """Return all visible marks, at most `MAX_MARKS`; requires the figure's final layout."""
        found = []
        for axes, corners, shift, series, facts in self._places:
            pixels = axes.transData.transform(corners)
            pixels[:, 0] += shift * figure.dpi / 72
            middle = axes.transAxes.inverted().transform(pixels).mean(axis=0)
            # NaN compares as outside
            if ((middle >= -OUTSIDE) & (middle <= 1 + OUTSIDE)).all():
                shares = figure.transFigure.inverted().transform(pixels)
                x, y = shares.mean(axis=0).tolist()
                width, height = np.ptp(shares, axis=0).tolist()
                found.append(TooltipMark(x, 1 - y, width, height, series, facts))
        return tuple(found[:MAX_MARKS])

    def _set_ids(self, start: str, artists: Iterable[DrawnArtist]) -> None:
        """Set unique ids."""
        for artist in flat_artists(artists):
            artist.set_gid(f"{start}-{self._named_artists}")
            self._named_artists += 1


def flat_artists(artists: Iterable[DrawnArtist]) -> list[Artist]:
    """Return the artists, and those in containers."""
    several = (each.get_children() if isinstance(each, Container) else [each] for each in artists)
    return [artist for each in several for artist in each]


@dataclass(frozen=True)
class PlotImage:
    """A drawn plot; `name` is the file name without suffix.

    `what` explains the plot to readers who are new to this kind; `series` and `marks` are for
    tooltips.
    """

    name: str
    caption: str
    svg: bytes
    png: bytes
    what: str = ""
    series: tuple[str, ...] = ()
    marks: tuple[TooltipMark, ...] = ()


def make_plot_image(
    name: str, caption: str, draw: Callable[[Tooltips], Figure], what: str = ""
) -> PlotImage:
    """Draw a figure and return its images.

    The images are reproducible byte by byte: they contain no date or version and ignore user
    settings.
    """
    tooltips = Tooltips()
    with matplotlib.style.context(["default", STYLE], after_reset=True):
        figure = draw(tooltips)
        tooltips.name_legends(figure)
        svg, png = io.BytesIO(), io.BytesIO()
        nothing = dict.fromkeys(["Date", "Creator", "Format", "Type"])
        figure.savefig(svg, format="svg", metadata=nothing)
        figure.set_layout_engine(None)  # keep the layout that was computed
        marks = tooltips.marks(figure)
        figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
    return PlotImage(name, caption, svg.getvalue(), png.getvalue(), what, tooltips.series, marks)


def empty_figure(size: tuple[float, float], title: str | None = "") -> Figure:
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def panel_columns(panels: int) -> int:
    """Return the number of panels per row; four panels are arranged two by two."""
    return 2 if panels == 4 else min(panels, MAX_COLUMNS)


def label_panel(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Set the texts of a panel, in small letters."""
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)


def spans_decades(values: Iterable[float]) -> bool:
    """Return whether positive values span a factor of at least 100, as for a log scale."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) >= 100 * min(positive)


def use_plain_log_scale(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Use a logarithmic scale with powers of ten in plain notation (100, not 10^2)."""
    axes.set(**{f"{axis}scale": "log"})
    scaled = axes.xaxis if axis == "x" else axes.yaxis
    scaled.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    scaled.set_minor_formatter(NullFormatter())


def cover_sweep(axes: Axes, values: Collection[float], *, logarithmic: bool = False) -> None:
    """Extend the x axis to all swept values, including those without results."""
    if len(set(values)) < 2:
        return
    low, high = min(values), max(values)
    if logarithmic:
        use_plain_log_scale(axes, "x")
        axes.set_xticks([], minor=True)
        low, high = math.log(low), math.log(high)
    edge = (high - low) * EDGE / (1 - 2 * EDGE)
    left, right = low - edge, high + edge
    axes.set_xlim((math.exp(left), math.exp(right)) if logarithmic else (left, right))


def draw_levels(axes: Axes, levels: Sequence[tuple[float, str]], axis: Literal["x", "y"]) -> None:
    """Draw dotted lines at values and label them, unless there are too many."""
    if not 0 < len(levels) <= MAX_LEVELS:
        return
    values, labels = zip(*levels, strict=True)
    draw = axes.axvline if axis == "x" else axes.axhline
    for value in values:
        draw(value, linewidth=0.8, **DOTTED)
    second = axes.secondary_xaxis("top") if axis == "x" else axes.secondary_yaxis("right")
    second.spines[:].set_visible(False)
    ticks = second.set_xticks if axis == "x" else second.set_yticks
    slanted: dict[str, Any] = {"rotation": 45, "ha": "left"}
    ticks(values, labels, **(slanted if axis == "x" and len(levels) > 1 else {}))
    second.tick_params(length=0, pad=1, labelsize=7, labelcolor=GREY)


def line_style(algorithm: int, variant: int = 0, shade: float | None = None) -> dict[str, Any]:
    """Return the style of a line.

    The algorithm's position in the file determines colour and marker, the variant the line style
    and marker fill. If there are several lines, `shade` is from 0 (dark) to 1 (light).
    """
    repetition, colour = divmod(algorithm, len(COLOURS))
    return {
        "color": COLOURS[colour] if shade is None else _shaded(COLOURS[colour], shade),
        "fillstyle": FILLS[variant % len(FILLS)],
        "linestyle": STYLES[(variant + STYLE_SHIFT * repetition) % len(STYLES)],
        "linewidth": 1.3,
        "marker": MARKERS[algorithm % len(MARKERS)],
        "markerfacecoloralt": "white",
        "markersize": 5,
    }


def _shaded(colour: str, shade: float) -> str:
    """Interpolate between a dark and a light version of a colour."""
    plain = np.array(to_rgb(colour))
    dark, light = plain * (1 - DARKEST), plain + (1 - plain) * LIGHTEST
    red, green, blue = (dark + shade * (light - dark)).tolist()
    return to_hex((red, green, blue))


def band_style(colour: str) -> dict[str, Any]:
    return {"facecolor": colour, "alpha": 0.14, "linewidth": 0, "zorder": 1.2}


def mark_empty(axes: Axes) -> None:
    axes.text(0.5, 0.5, NO_NUMBERS, transform=axes.transAxes, ha="center", fontsize=8, color=GREY)


def legend_below(figure: Figure, handles: Iterable[Artist], notes: Sequence[str]) -> None:
    """Add a legend with distinct labels below all panels; increase the figure's height to fit."""
    distinct = list({str(handle.get_label()): handle for handle in handles}.values())
    width, height = figure.get_size_inches()
    longest = max((len(str(handle.get_label())) for handle in distinct), default=1)
    columns = max(1, min(len(distinct), int(width / (0.75 + 0.075 * longest))))
    title = "\n".join(notes)
    lines = -(-len(distinct) // columns) + len(title.splitlines())
    figure.set_size_inches(width, height + LEGEND_LINE * (lines + 0.5))
    figure.legend(
        handles=distinct, title=title, loc="outside lower left", ncols=columns, alignment="left"
    )


def describe_count(counts: Sequence[int], unit: str) -> str:
    """Return `1 seed`, `5 seeds`, or `4 to 5 seeds` if counts differ."""
    least, most = min(counts), max(counts)
    number = str(most) if least == most else f"{least} to {most}"
    return f"{number} {unit}{'s' * (most > 1)}"


def describe_intervals(counts: Sequence[int], text: str) -> str:
    """Return a text with `{}` replaced by the number of seeds, or that one seed has no interval."""
    return text.format(describe_count(counts, "seed")) if max(counts) > 1 else ONE_SEED
