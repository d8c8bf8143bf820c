"""Tooltip data of a figure: which artists belong to a series, and the values at its points.

Figures look the same with and without it: artists get ids, and positions are stored separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.legend import Legend

SERIES, LEGEND, FIXED = "series", "legend", "fixed"
"""Id prefixes of a series' artists, of its legend entries, and of artists with fixed colours."""
MAX_MARKS = 3000
"""Maximum number of tooltips of a figure."""
OUTSIDE = 0.01
"""Tolerance for points outside the axes, as a share of the axes."""

TooltipFacts = tuple[tuple[str, str], ...]
"""Names and values."""
Ends = tuple[float, float]


@dataclass(frozen=True)
class TooltipMark:
    """A region of a figure with a tooltip.

    Coordinates are shares of the figure's width and height from its top left corner.

    `x` and `y` are the centre; `width` and `height` are 0 for a point. `series` is the number of
    the line or of the kind of bar, None if there is only one kind.
    """

    x: float
    y: float
    width: float
    height: float
    series: int | None
    facts: TooltipFacts


@dataclass(frozen=True)
class _TooltipPlace:
    """A mark before the layout is known, with ranges (from, to) in data coordinates."""

    axes: Axes
    x: Ends
    y: Ends
    series: int | None
    facts: TooltipFacts


class Tooltips:
    """Collects tooltips and series while a figure is drawn."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._parts = 0
        self._places: list[_TooltipPlace] = []

    @property
    def series(self) -> tuple[str, ...]:
        """The labels of the series, by number."""
        return tuple(self._numbers)

    def own(self, label: str, *parts: Artist | Container) -> None:
        """Assign artists to the series with this label in the legend."""
        number = self._numbers.setdefault(label, len(self._numbers))
        self._name(f"{SERIES}-{number}", parts)

    def fixed(self, *parts: Artist | Container) -> None:
        """Keep the colours of these artists in dark mode, as they represent values."""
        self._name(FIXED, parts)

    def point(
        self, axes: Axes, place: tuple[float, float], label: str, facts: TooltipFacts
    ) -> None:
        """Add a tooltip for a point of the series `label`, in data coordinates."""
        x, y = place
        self._note(axes, (x, x), (y, y), label, facts)

    def box(self, axes: Axes, x: Ends, y: Ends, facts: TooltipFacts, label: str = "") -> None:
        """Add a tooltip for a bar or cell with these x and y ranges.

        There is no label if there is only one kind.
        """
        self._note(axes, x, y, label, facts)

    def name_legends(self, figure: Figure) -> None:
        """Assign legend entries to their series."""
        for legend in _legends(figure):
            for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
                number = self._numbers.get(text.get_text())
                if handle is not None and number is not None:
                    self._name(f"{LEGEND}-{number}", [handle, text])

    def marks(self, figure: Figure) -> tuple[TooltipMark, ...]:
        """Return all visible marks, at most `MAX_MARKS`; requires the figure's final layout."""
        found = (_mark(figure, place) for place in self._places)
        return tuple(mark for mark in found if mark is not None)[:MAX_MARKS]

    def _note(self, axes: Axes, x: Ends, y: Ends, label: str, facts: TooltipFacts) -> None:
        number = self._numbers.setdefault(label, len(self._numbers)) if label else None
        self._places.append(_TooltipPlace(axes, x, y, number, facts))

    def _name(self, start: str, parts: Iterable[Artist | Container]) -> None:
        """Set unique ids."""
        for part in _flat_artists(parts):
            part.set_gid(f"{start}-{self._parts}")
            self._parts += 1


def _flat_artists(parts: Iterable[Artist | Container]) -> Iterator[Artist]:
    for part in parts:
        if isinstance(part, Container):
            yield from (child for child in part.get_children() if child is not None)
        else:
            yield part


def _legends(figure: Figure) -> Sequence[Legend]:
    own = (axes.get_legend() for axes in figure.axes)
    return [*figure.legends, *(legend for legend in own if legend is not None)]


def _mark(figure: Figure, place: _TooltipPlace) -> TooltipMark | None:
    """Return the mark, or None if it is outside its axes."""
    corners = list(zip(place.x, place.y, strict=True))
    across = place.axes.transAxes.inverted().transform(place.axes.transData.transform(corners))
    middle = across.mean(axis=0)
    # NaN compares as outside
    if not ((middle >= -OUTSIDE) & (middle <= 1 + OUTSIDE)).all():
        return None
    shares = figure.transFigure.inverted().transform(place.axes.transAxes.transform(across))
    (left, bottom), (right, top) = shares.min(axis=0).tolist(), shares.max(axis=0).tolist()
    return TooltipMark(
        x=(left + right) / 2,
        y=1 - (bottom + top) / 2,
        width=right - left,
        height=top - bottom,
        series=place.series,
        facts=place.facts,
    )
