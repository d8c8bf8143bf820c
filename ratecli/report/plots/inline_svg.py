"""Embed plots in an HTML page as inline SVG with tooltips.

Glyph shapes are shared by all drawings of a page; all other ids are made unique to a drawing. Text
is drawn as shapes, so user-provided text never becomes markup.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass

from markupsafe import Markup

from ratecli.report.plots.canvas import LEGEND, MAX_MARKS, SERIES, PlotImage

MAX_SVG_SIZE = 1_500_000
"""Larger drawings (in bytes) are embedded as PNG instead."""
TRUNCATED = f" Only the first {MAX_MARKS:,} marks have tooltips."
ROOT = re.compile(r'<svg [^>]*width="([\d.]+)pt"[^>]*viewBox="([^"]*)"[^>]*>(.*)</svg>', re.DOTALL)
UNUSED = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>|\s*\n\s*", re.DOTALL)
"""Comments, metadata, styles (which the page defines) and white space between lines."""
GLYPH = re.compile(r'<path id="([^"]*)"(?: d="[^"]*")? transform="scale\(0.015625\)"/>')
"""The shape of a letter; nothing else uses this transform."""
TOOLTIP_ID = re.compile(rf'id="({SERIES}|{LEGEND})-(\d+)-\d+"')
REFERENCE = re.compile(r'( id="| href="#|url\(#)(?=([^")]*))')
DIGITS = re.compile(r"(\.\d\d)\d+")
"""Hundredths of a point are precise enough for screen and print."""
COORDINATES = re.compile(r' (d|x|y|width|height)="[^"]*"')


@dataclass(frozen=True)
class PageFigure:
    """A drawing on a page: width in CSS pixels, markup, and tooltip data for the script."""

    name: str
    caption: str
    what: str
    width: int
    drawing: Markup
    tooltips: Markup


class PageDrawings:
    """The drawings of one page, and the glyphs they share."""

    def __init__(self) -> None:
        self._glyphs: dict[str, str] = {}
        self._count = 0

    def add(self, image: PlotImage) -> PageFigure:
        """Convert a plot for the page."""
        self._count += 1
        found = ROOT.search(image.svg.decode())
        width, view, content = found.groups() if found else ("0", "", "")
        if len(image.svg) > MAX_SVG_SIZE:
            data = base64.b64encode(image.png).decode()
            drawing = Markup('<img alt="" src="data:image/png;base64,{}">').format(data)
        else:
            markup = f'<svg viewBox="{view}" aria-hidden="true">{self._converted(content)}</svg>'
            drawing = Markup(markup)  # noqa: S704 - Matplotlib escapes text
        what = image.what + TRUNCATED * (len(image.marks) == MAX_MARKS)
        pixels = round(float(width) * 96 / 72)
        return PageFigure(image.name, image.caption, what, pixels, drawing, _tooltip_json(image))

    @property
    def glyphs(self) -> Markup:
        """The glyph shapes, to be placed once on the page before all drawings."""
        shapes = "".join(self._glyphs.values())
        start = '<svg width="0" height="0" class="glyphs" aria-hidden="true">'
        return Markup(f"{start}<defs>{shapes}</defs></svg>" if shapes else "")  # noqa: S704

    def _converted(self, content: str) -> str:
        """Move glyphs out of a drawing, make its ids unique and shorten its numbers."""
        content = UNUSED.sub(" ", content).replace("xlink:href", "href")
        self._glyphs |= {glyph[1]: glyph[0] for glyph in GLYPH.finditer(content)}
        content = TOOLTIP_ID.sub(r'data-\1="\2"', GLYPH.sub("", content))
        content = REFERENCE.sub(self._own_name, content)
        return COORDINATES.sub(lambda each: DIGITS.sub(r"\1", each[0]), content)

    def _own_name(self, reference: re.Match[str]) -> str:
        shared = reference[2] in self._glyphs
        return reference[1] if shared else f"{reference[1]}f{self._count}-"


def _tooltip_json(image: PlotImage) -> Markup:
    """Encode JSON for an HTML script element, escaping `<` and `&`."""
    marks = [[*(round(each, 5) for each in mark[:4]), *mark[4:]] for mark in image.marks]
    content = {"series": image.series, "marks": marks}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))  # noqa: S704
