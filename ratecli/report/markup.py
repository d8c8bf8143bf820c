"""From templates to pages: whatever is put in is text, unless it is markup that was made here."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ratecli.report.sheet import SheetCell, SheetColumn

MAX_ROWS = 400
"""Of a table on a page; the rest is in the files beside it."""
LONG_TEXT = 48
"""Characters of a cell from which it may run over several lines."""


def render_template(template: str, **values: Any) -> str:
    """A page by the template of that name in `page/`."""
    return _environment().get_template(template).render(**values)


def cell_attributes(column: SheetColumn, cell: SheetCell, *, meter: bool = False) -> Markup:
    """Those of a cell's element; with `meter` a bar shows the share that it is sorted by."""
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
    """As the page's script reads it."""
    return repr(key).replace("inf", "Infinity")


@cache
def _environment() -> Environment:
    """Made once for all pages of a command."""
    found = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_text),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ours = {"css": "page.css", "dark": "dark.css", "script": "page.js"}
    found.globals |= {name: Markup(_text(file).strip()) for name, file in ours.items()}  # noqa: S704
    found.globals |= {"attributes": cell_attributes, "most_rows": MAX_ROWS}
    return found


def _text(name: str) -> str:
    return resources.files("ratecli.report").joinpath("page", name).read_text("utf-8")
