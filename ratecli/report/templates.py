"""The environment of the Jinja templates in `page/`.

Values are escaped unless they are markup made by ratecli. Plots are embedded as inline SVG. Their
ids are made unique to a drawing, and text is drawn as shapes, so user-provided text never becomes
markup.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as html_escape

from ratecli.render import terminal_safe
from ratecli.report.sheet import escape, format_list, format_number, format_point, markdown_table

LIMITS = {
    "most_rows": 400,  # of a table on a page; the CSV files have all
    "most_alike": 20,  # warnings that differ only in numbers and names
    "long_text": 48,  # characters of cells that may wrap
    "long_description": 280,  # characters of descriptions that are folded
    "wide_figure": 700,  # CSS pixels of figures below the answer rather than beside it
    "most_children": 24,  # parts of a bound that are shown
}
ROOT = re.compile(r'<svg [^>]*viewBox="([^"]*)"[^>]*>(.*)</svg>', re.DOTALL)
UNUSED = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>|\s*\n\s*", re.DOTALL)
"""Comments, metadata, styles (which the page defines) and white space between lines."""
CODE = re.compile(r"`([^`]*)`")
REFERENCE = re.compile(r'( id="| href="#|url\(#)')
DIGITS = re.compile(r'(\.\d\d)\d+(?=[ "])')
"""Digits of coordinates beyond hundredths of a point, which are precise enough."""


def render_template(template: str, *, markdown: bool = False, **values: Any) -> str:
    """Render the template of this name in `page/`: a page, or Markdown."""
    return environment(markdown).get_template(template).render(**values)


def note(name: str, **values: Any) -> str:
    """Return the explanation of this name in `page/notes.j2`."""
    macro = getattr(environment(True).get_template("notes.j2").module, name)
    return " ".join(macro(**values).split())


def code_marks(text: str) -> Markup:
    """Escape text, and set what is between backticks as code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(html_escape(terminal_safe(text)))))  # noqa: S704 - escaped


@cache
def environment(markdown: bool) -> Environment:
    """Return the template environment, created once per process."""
    found = Environment(
        autoescape=not markdown,  # noqa: S701 - Markdown is escaped by the filter `flat`
        finalize=lambda value: terminal_safe(value) if type(value) is str else value,
        undefined=StrictUndefined,
        loader=FunctionLoader(_text),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name, file in (("css", "page.css"), ("dark", "dark.css"), ("script", "page.js")):
        found.globals[name] = Markup(_text(file).strip())  # noqa: S704 - part of ratecli
    found.globals |= LIMITS | {"note": note}
    found.filters |= {"inline_svg": inline_svg, "flat": escape, "markdown_table": markdown_table}
    found.filters |= {"bound": lambda value: format_number(float(value)).replace("inf", "∞")}
    found.filters |= {"number": format_number, "point": format_point, "code": code_marks}
    found.filters |= {"listed": format_list, "yaml_line": yaml_line, "rules": _rules}
    return found


def _text(name: str) -> str:
    return resources.files("ratecli.report").joinpath("page", name).read_text("utf-8")


def inline_svg(svg: bytes, number: int | str) -> Markup:
    """Return the drawing of a plot as markup for a page, where it is figure `number`."""
    found = ROOT.search(svg.decode())
    view, content = found.groups() if found else ("", "")
    content = UNUSED.sub(" ", content).replace("xlink:href", "href")
    content = DIGITS.sub(r"\1", REFERENCE.sub(rf"\1f{number}-", content))
    markup = f'<svg viewBox="{view}" aria-hidden="true">{content}</svg>'
    return Markup(markup)  # noqa: S704 - Matplotlib escapes text


def _rules(rules: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return rules as code by their names with a prefix."""
    return {f"{prefix}{name}": f"`{rule}`" for name, rule in rules.items()}


def to_yaml(value: Any, **options: Any) -> str:
    """Return a value as YAML, in the order of its keys."""
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, **options))


def yaml_line(value: Any) -> str:
    """Return a mapping as one line of YAML without braces."""
    return to_yaml(value, default_flow_style=True, width=math.inf)[1:-2]
