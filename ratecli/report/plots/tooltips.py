"""What a page tells of a figure: which of its parts belong together, and the values of its points.

The figures themselves stay as they are: parts get ids, and places are noted beside the drawing.
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
"""What ids begin with: of a line's parts, of its entry in a legend, of what keeps its colours."""
MAX_MARKS = 3000
"""Places of a figure that a page tells the values of."""
OUTSIDE = 0.01
"""The share of its axes by which a place may lie beside them and still be seen."""

TooltipFacts = tuple[tuple[str, str], ...]
"""Names and values."""
Ends = tuple[float, float]


@dataclass(frozen=True)
class TooltipMark:
    """A place of a figure, as shares of its width and height from the top left corner.

    `x` and `y` are the middle of what is drawn there; a point has no `width` and `height`. `series` is
    the number of the line or of the kind of bar, None where there is only one.
    """

    x: float
    y: float
    width: float
    height: float
    series: int | None
    facts: TooltipFacts


@dataclass(frozen=True)
class _TooltipPlace:
    """A mark before the figure has found its layout: ends (from, to) in the numbers of the axes."""

    axes: Axes
    x: Ends
    y: Ends
    series: int | None
    facts: TooltipFacts


class Tooltips:
    """What is noted while one figure is drawn."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._parts = 0
        self._places: list[_TooltipPlace] = []

    @property
    def series(self) -> tuple[str, ...]:
        """The labels, by number."""
        return tuple(self._numbers)

    def own(self, label: str, *parts: Artist | Container) -> None:
        """These are drawn for the line of that label in the legend."""
        number = self._numbers.setdefault(label, len(self._numbers))
        self._name(f"{SERIES}-{number}", parts)

    def fixed(self, *parts: Artist | Container) -> None:
        """The colours of these are what they show: they stay in the dark."""
        self._name(FIXED, parts)

    def point(
        self, axes: Axes, place: tuple[float, float], label: str, facts: TooltipFacts
    ) -> None:
        """Something drawn for a label at a place of the axes."""
        x, y = place
        self._note(axes, (x, x), (y, y), label, facts)

    def box(self, axes: Axes, x: Ends, y: Ends, facts: TooltipFacts, label: str = "") -> None:
        """A bar or a cell between two ends of either axis; without a label there is one kind only."""
        self._note(axes, x, y, label, facts)

    def name_legends(self, figure: Figure) -> None:
        """Give the entries of every legend the numbers of their lines."""
        for legend in _legends(figure):
            for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
                number = self._numbers.get(text.get_text())
                if handle is not None and number is not None:
                    self._name(f"{LEGEND}-{number}", [handle, text])

    def marks(self, figure: Figure) -> tuple[TooltipMark, ...]:
        """All places that are seen, once the figure has found its layout; at most `MAX_MARKS`."""
        found = (_mark(figure, place) for place in self._places)
        return tuple(mark for mark in found if mark is not None)[:MAX_MARKS]

    def _note(self, axes: Axes, x: Ends, y: Ends, label: str, facts: TooltipFacts) -> None:
        number = self._numbers.setdefault(label, len(self._numbers)) if label else None
        self._places.append(_TooltipPlace(axes, x, y, number, facts))

    def _name(self, start: str, parts: Iterable[Artist | Container]) -> None:
        """Ids that no two parts of a figure share."""
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
    """None where it is not within its axes."""
    corners = list(zip(place.x, place.y, strict=True))
    across = place.axes.transAxes.inverted().transform(place.axes.transData.transform(corners))
    middle = across.mean(axis=0)
    if not ((middle >= -OUTSIDE) & (middle <= 1 + OUTSIDE)).all():  # NaN is nowhere
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
