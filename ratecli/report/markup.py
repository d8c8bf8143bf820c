"""Render HTML pages from templates. Values are escaped unless they are markup made by ratecli."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ratecli.report.sheet import SheetCell, SheetColumn

MAX_ROWS = 400
"""Maximum rows of a table on a page; the CSV files have all rows."""
LONG_TEXT = 48
"""Cells with more characters may wrap."""


def render_template(template: str, **values: Any) -> str:
    """Render the template of this name in `page/`."""
    return _environment().get_template(template).render(**values)


def cell_attributes(column: SheetColumn, cell: SheetCell, *, meter: bool = False) -> Markup:
    """Return the attributes of a cell's element; with `meter`, a bar shows its share."""
    share = meter and column.numeric and cell.key is not None
    classes = [
        "number" * column.numeric,
        "long" * (len(cell.text) > LONG_TEXT),
        cell.tone,
        "meter" * share,
    ]
    found = Markup("")
    if words := " ".join(filter(None, classes)):
        found += Markup(' class="{}"').format(words)
    if cell.key is not None:
        found += Markup(' data-sort="{}"').format(sort_key(cell.key))
    if share:
        found += Markup(' style="--share: {:.3f}"').format(cell.key)
    return found


def sort_key(key: float) -> str:
    """Format a sort key as the page's script expects it."""
    return repr(key).replace("inf", "Infinity")


@cache
def _environment() -> Environment:
    """Return the template environment, created once per process."""
    found = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_text),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ours = {"css": "page.css", "dark": "dark.css", "script": "page.js"}
    found.globals |= {
        name: Markup(_text(file).strip())  # noqa: S704
        for name, file in ours.items()
    }
    found.globals |= {"attributes": cell_attributes, "most_rows": MAX_ROWS}
    return found


def _text(name: str) -> str:
    return resources.files("ratecli.report").joinpath("page", name).read_text("utf-8")
