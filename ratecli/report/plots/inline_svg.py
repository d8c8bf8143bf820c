"""Embed plots in an HTML page as inline SVG with theme colours and tooltips.

Glyph shapes are shared by all drawings of a page; all other ids are made unique to a drawing. Text
is drawn as shapes, so user-provided text never becomes markup.
"""

from __future__ import annotations

import base64
import colorsys
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ratecli.report.plots.style import PlotImage
from ratecli.report.plots.tooltips import FIXED, LEGEND, MAX_MARKS, SERIES, TooltipMark

LARGEST = 1_500_000
"""Larger drawings (in bytes) are embedded as PNG instead."""
FIRST = f" The first {MAX_MARKS:,} marks tell their values."
LETTER = "scale(0.015625)"
"""The transform of glyph shapes, which nothing else uses."""
DIGITS = re.compile(r"(\.\d\d)\d+")
"""Hundredths of a point are precise enough for screen and print."""
COLOUR = re.compile(r"(fill|stroke): #([0-9a-f]{6})")
INK, PAPER = "000000", "ffffff"
ON_DARK = (21 / 255, 24 / 255, 27 / 255)
"""Background of a page in dark mode (page.css)."""
CONTRAST = 4.0
"""Minimum contrast of lines in dark mode. WCAG 2.2 (1.4.11) requires 3."""
BRIGHT = 0.72
"""Colours above this luminance are backgrounds, whose lightness is inverted in dark mode."""


@dataclass(frozen=True)
class PageFigure:
    """A drawing on a page: width in CSS pixels, markup, and tooltip data for the script."""

    name: str
    caption: str
    what: str
    width: int
    drawing: Markup
    told: Markup


class PageDrawings:
    """The drawings of one page, and the glyphs and colours they share."""

    def __init__(self) -> None:
        self._letters: dict[str, ET.Element] = {}
        self._colours: dict[str, None] = {}
        self._count = 0

    def add(self, picture: PlotImage) -> PageFigure:
        """Convert a plot for the page."""
        self._count += 1
        root = ET.fromstring(picture.svg)  # noqa: S314 - just written by Matplotlib
        width = round(float(root.get("width", "0").removesuffix("pt")) * 96 / 72)
        if len(picture.svg) > LARGEST:
            drawing = _dots(picture)
        else:
            found = ET.Element("svg", {"viewBox": root.get("viewBox", ""), "aria-hidden": "true"})
            found.extend(self._copied(child, fixed=False) for child in _drawn_children(root))
            drawing = _markup(found)
        left = FIRST if len(picture.marks) == MAX_MARKS else ""
        what = f"{picture.what}{left}"
        return PageFigure(
            picture.name, picture.caption, what, width, drawing, _tooltip_json(picture)
        )

    @property
    def letters(self) -> Markup:
        """The glyph shapes, to be placed once on the page before all drawings."""
        root = ET.Element(
            "svg", {"width": "0", "height": "0", "class": "letters", "aria-hidden": "true"}
        )
        ET.SubElement(root, "defs").extend(self._letters.values())
        return _markup(root) if self._letters else Markup("")

    @property
    def in_the_dark(self) -> Mapping[str, str]:
        """The dark mode colour of each colour in the drawings."""
        return {colour: dark_mode_color(colour) for colour in self._colours}

    def _copied(self, part: ET.Element, *, fixed: bool) -> ET.Element:
        tag = _plain(part.tag)
        found = ET.Element(tag)
        fixed = fixed or part.get("id", "").startswith(f"{FIXED}-")
        for key, value in part.attrib.items():
            self._put(found, _plain(key), value, fixed=fixed)
        if fixed and tag == "g" and "style" not in part.attrib:
            found.set("class", FIXED)
        for child in _drawn_children(part):
            if tag == "defs" and child.get("transform") == LETTER:
                self._letters.setdefault(child.get("id", ""), self._letter(child))
            else:
                found.append(self._copied(child, fixed=fixed))
        return found

    def _put(self, found: ET.Element, key: str, value: str, *, fixed: bool) -> None:
        """Set an attribute, converted for the page."""
        if key == "id":
            kind, _, number = value.partition("-")
            if kind in {SERIES, LEGEND}:
                found.set(f"data-{kind}", number.partition("-")[0])
            elif found.tag != "g":  # nothing refers to a group
                found.set("id", f"f{self._count}-{value}")
        elif key == "href" and not value.startswith("data:"):
            name = value.removeprefix("#")
            own = name if name in self._letters else f"f{self._count}-{name}"
            found.set("href", f"#{own}")
        elif key == "style":
            found.set(key, value if fixed else COLOUR.sub(self._coloured, value))
        elif key == "clip-path":
            found.set(key, value.replace("url(#", f"url(#f{self._count}-"))
        elif key in {"d", "x", "y", "width", "height"}:
            found.set(key, DIGITS.sub(r"\1", " ".join(value.split())))
        else:
            found.set(key, value)

    def _coloured(self, found: re.Match[str]) -> str:
        what, colour = found.groups()
        if colour == INK:
            return f"{what}: currentColor"
        self._colours[colour] = None
        return f"{what}: var(--c{colour}, #{colour})"

    def _letter(self, part: ET.Element) -> ET.Element:
        path = " ".join(part.get("d", "").split())
        return ET.Element("path", {"id": part.get("id", ""), "d": path, "transform": LETTER})


def dark_mode_color(colour: str) -> str:
    """Return the dark mode colour for a colour (rrggbb).

    Backgrounds become dark, and lines light enough for sufficient contrast.
    """
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (0, 2, 4))
    hue, light, full = colorsys.rgb_to_hls(red, green, blue)
    if colour == PAPER:
        return "".join(f"{round(255 * part):02x}" for part in ON_DARK)
    if luminance(red, green, blue) > BRIGHT:
        return _hex(hue, 1.1 - light, full * 0.7)
    while contrast(colorsys.hls_to_rgb(hue, light, full), ON_DARK) < CONTRAST:
        light += 0.02
    return _hex(hue, light, full)


def luminance(red: float, green: float, blue: float) -> float:
    """Return the relative luminance of sRGB components in [0, 1] (WCAG 2.2)."""
    parts = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (red, green, blue)
    )
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    low, high = sorted((luminance(*one), luminance(*other)))
    return (high + 0.05) / (low + 0.05)


def _hex(hue: float, light: float, full: float) -> str:
    parts = colorsys.hls_to_rgb(hue, min(max(light, 0.0), 1.0), full)
    return "".join(f"{round(255 * part):02x}" for part in parts)


def _drawn_children(part: ET.Element) -> Iterator[ET.Element]:
    """Yield the children to be drawn. Styles are dropped, as the page defines them."""
    for child in part:
        if _plain(child.tag) not in {"metadata", "style"}:
            yield child


def _plain(name: str) -> str:
    """Remove the namespace, which HTML does not use."""
    return name.rpartition("}")[2]


def _markup(root: ET.Element) -> Markup:
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - it escapes


def _dots(picture: PlotImage) -> Markup:
    data = base64.b64encode(picture.png).decode()
    return Markup('<img alt="" src="data:image/png;base64,{}">').format(data)


def _tooltip_json(picture: PlotImage) -> Markup:
    """Encode JSON for an HTML script element, escaping `<` and `&`."""
    said: dict[str, Any] = {
        "series": picture.series,
        "marks": [_row(mark) for mark in picture.marks],
    }
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))  # noqa: S704


def _row(mark: TooltipMark) -> list[Any]:
    """Return x, y, width and height (shares of the drawing), series number or null, and facts."""
    places = [round(each, 5) for each in (mark.x, mark.y, mark.width, mark.height)]
    return [*places, mark.series, mark.facts]
