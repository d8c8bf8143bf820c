"""report.html: one page that needs nothing but itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from ratecli.report.certificates import certificate_sheet, undrawn
from ratecli.report.drawing import Picture
from ratecli.report.expectations import against
from ratecli.report.identity import by_status
from ratecli.report.ledger import Ledger
from ratecli.report.promises import failures, kept, promises
from ratecli.report.sheet import Cell, scalar
from ratecli.report.sheets import asked_sheets, how
from ratecli.report.unsolved import unsolved

# What Matplotlib writes around and beside the drawing: a page wants none of it.
AROUND = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
IDS = re.compile(r'(\bid="|href="#|url\(#)')


def page(
    ledger: Ledger, drawn: Sequence[Picture], trees: Sequence[tuple[Picture, str]] = ()
) -> str:
    """`drawn` are the plots, `trees` those of certificates, each with what is to be said of it."""
    return _template().render(
        experiment=ledger.experiment,
        stand_ins=ledger.stand_ins,
        goals=goals(ledger),
        facts=facts(ledger),
        outcome=by_status(Counter(map(ledger.status, ledger.plan))),
        kept=kept(ledger),
        promises=promises(ledger),
        against=against(ledger),
        tables=asked_sheets(ledger),
        how=how(ledger),
        figures=[(picture, inline(picture, n)) for n, picture in enumerate(drawn, 1)],
        certificates=certificate_sheet(ledger),
        trees=[
            (picture, inline(picture, n), text)
            for n, (picture, text) in enumerate(trees, len(drawn) + 1)
        ],
        undrawn=undrawn(ledger),
        unsolved=unsolved(ledger),
        failures=failures(ledger),
        warnings=notices(ledger),
        provenance=provenance(ledger),
        sort_key=sort_key,
    )


@cache
def _template() -> Template:
    """Compiled once for all experiments of a command."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = resources.files("ratecli.report").joinpath("report.html.j2").read_text("utf-8")
    return environment.from_string(source)


def goals(ledger: Ledger) -> list[tuple[str, str, str]]:
    """Objective and constraints as the file has them: name, text, class."""
    classes = {goal["name"]: goal["class"] for goal in ledger.meta.get("goals") or ()}
    texts = [("objective", ledger.experiment.get("objective", "")), *ledger.constraints.items()]
    return [(name, text, classes.get(name, "")) for name, text in texts]


def facts(ledger: Ledger) -> list[tuple[str, str]]:
    """What was compared on what."""
    data = ledger.meta.get("datasets") or {}
    found = {
        "data": ", ".join(
            f"{name} ({entry.get('rows', '?')} rows)" for name, entry in data.items()
        ),
        "algorithms": ", ".join(dict.fromkeys(trial.label for trial in ledger.algorithms.plan)),
        "filter": "; ".join(
            f"{key} {text}" for key, text in _flat(ledger.experiment.get("filter"))
        ),
        "sweep": "; ".join(f"{name}: {_values(ledger, name)}" for name in ledger.sweep),
        "seeds": ", ".join(dict.fromkeys(str(trial.seed) for trial in ledger.plan)),
    }
    for key, name in (("groups", "group"), ("metrics", "metric")):
        texts: Mapping[str, str | Mapping[str, str]] = ledger.experiment.get(key) or {}
        found |= {f"{name} {each}": _stated(text) for each, text in texts.items()}
    return [(name, text) for name, text in found.items() if text]


def _stated(text: str | Mapping[str, str]) -> str:
    """A rule, or what a group is in each data set."""
    if isinstance(text, str):
        return text
    return "; ".join(f"{name}: {each}" for name, each in text.items())


def notices(ledger: Ledger) -> list[tuple[str, int]]:
    """The run's warnings and those of its trials, each once, with how many trials gave it."""
    counts = Counter[str](dict.fromkeys(ledger.meta.get("warnings") or (), 0))
    for key in dict.fromkeys(trial.key for trial in ledger.plan):
        result = ledger.results.get(key)
        counts.update(dict.fromkeys((result.info.get("warnings") or ()) if result else (), 1))
    return list(counts.items())


def provenance(ledger: Ledger) -> list[tuple[str, list[tuple[str, str]]]]:
    """Data, versions and the manifest, flat."""
    parts = {name: ledger.meta.get(name) or {} for name in ("datasets", "versions", "manifest")}
    return [(name, list(_flat(part))) for name, part in parts.items() if part]


def inline(picture: Picture, position: int) -> Markup:
    """The drawing as part of a page, its ids and the references to them made the page's own."""
    drawing = AROUND.sub("", picture.svg.decode()).strip()
    return Markup(IDS.sub(rf"\g<1>figure{position}-", drawing))  # noqa: S704 - Matplotlib escapes text


def sort_key(cell: Cell) -> str:
    """What the page's script sorts by: `Number` there reads it, or it is text."""
    return repr(cell.key).replace("inf", "Infinity") if cell.key is not None else cell.text


def _values(ledger: Ledger, name: str) -> str:
    values = (trial.point[name] for trial in ledger.plan if name in trial.point)
    texts = list(dict.fromkeys(map(scalar, values)))
    return (
        ", ".join(texts) if len(texts) <= 12 else f"{texts[0]} to {texts[-1]} ({len(texts)} values)"
    )


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for position, item in enumerate(value):
            yield from _flat(item, f"{path}.{position}")
    else:
        text = ", ".join(map(scalar, value if isinstance(value, list) else [value]))
        if text:
            yield path, text
