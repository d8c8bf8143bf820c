"""The style of plots, and conversion of figures to image files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ratecli.report.plots.tooltips import TooltipMark, Tooltips

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito, which is suitable for colour-blind readers."""
MARKERS = "os^DvPX*"
STYLES = ("-", "--", ":", "-.", (0, (7, 2)), (0, (4, 1, 1, 1, 1, 1)))
LATER = 3
"""When colours repeat for further algorithms, their line styles are shifted by this many."""
DARKEST, LIGHTEST = 0.45, 0.6
"""The share of black, and of white, in the darkest and lightest shade of a colour."""
FILLS = ("full", "none", "left", "bottom", "right", "top")
GREY = "#6b6b6b"
SIZE = (5.4, 3.7)
"""Figure size in inches. In a paper's column, the smallest letters are about 5 points high."""
PANEL = (3.1, 2.5)
"""Panel size in inches of figures with several panels."""
MAX_COLUMNS = 3
"""Maximum number of panels in a row."""
ENTRY = 0.2
"""Height of a legend line in inches."""
NO_NUMBERS = "no trial gave these numbers"
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
    name: str, caption: str, drawn: Callable[[Tooltips], Figure], what: str = ""
) -> PlotImage:
    """Draw a figure and return its images.

    The images are reproducible byte by byte: they contain no date or version and ignore user
    settings.
    """
    told = Tooltips()
    with matplotlib.style.context(["default", STYLE], after_reset=True):
        figure = drawn(told)
        told.name_legends(figure)
        svg, png = io.BytesIO(), io.BytesIO()
        nothing = dict.fromkeys(["Date", "Creator", "Format", "Type"])
        figure.savefig(svg, format="svg", metadata=nothing)
        figure.set_layout_engine(None)  # keep the layout that was computed
        marks = told.marks(figure)
        figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
    return PlotImage(name, caption, svg.getvalue(), png.getvalue(), what, told.series, marks)


def empty_figure(size: tuple[float, float]) -> Figure:
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panel_columns(panels: int) -> int:
    """Return the number of panels per row; four panels are arranged two by two."""
    return 2 if panels == 4 else min(panels, MAX_COLUMNS)


def panel_rows(panels: int) -> int:
    return -(-panels // panel_columns(panels))


def line_style(algorithm: int, variant: int = 0, shade: float | None = None) -> dict[str, Any]:
    """Return the style of a line.

    The algorithm's position in the file determines colour and marker, the variant the line style
    and marker fill. If there are several lines, `shade` is from 0 (dark) to 1 (light).
    """
    again, colour = divmod(algorithm, len(COLOURS))
    return {
        "color": COLOURS[colour] if shade is None else _shaded(COLOURS[colour], shade),
        "fillstyle": FILLS[variant % len(FILLS)],
        "linestyle": STYLES[(variant + LATER * again) % len(STYLES)],
        "linewidth": 1.3,
        "marker": MARKERS[algorithm % len(MARKERS)],
        "markerfacecoloralt": "white",
        "markersize": 5,
    }


def _shaded(colour: str, shade: float) -> str:
    red, green, blue = (
        low + shade * (high - low)
        for c in to_rgb(colour)
        for low, high in [(c * (1 - DARKEST), c + (1 - c) * LIGHTEST)]
    )
    return to_hex((red, green, blue))


def band_style(colour: str) -> dict[str, Any]:
    return {"facecolor": colour, "alpha": 0.14, "linewidth": 0, "zorder": 1.2}


def mark_empty(axes: Axes) -> None:
    axes.text(0.5, 0.5, NO_NUMBERS, transform=axes.transAxes, ha="center", fontsize=8, color=GREY)


def legend_below(figure: Figure, handles: Sequence[Artist], title: str) -> None:
    """Add a legend below all panels, and increase the figure's height to fit it."""
    width, height = figure.get_size_inches()
    longest = max((len(str(handle.get_label())) for handle in handles), default=1)
    abreast = max(1, min(len(handles), int(width / (0.75 + 0.075 * longest))))
    lines = -(-len(handles) // abreast) + len(title.splitlines())
    figure.set_size_inches(width, height + ENTRY * (lines + 0.5))
    figure.legend(
        handles=handles, title=title, loc="outside lower left", ncols=abreast, alignment="left"
    )


def unique_handles(handles: Iterable[Line2D]) -> list[Line2D]:
    """Return the first handle of each label, in order."""
    found: dict[str, Line2D] = {}
    for handle in handles:
        found.setdefault(str(handle.get_label()), handle)
    return list(found.values())
