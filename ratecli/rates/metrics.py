"""Metrics by name: rows of the rate table and lines of the language, ours and those of other packages.

A plugin of the entry point group `ratecli.metrics` is one of the two data classes of `rates.table`:

`Rate`
    A new rate: whom it is a mean over, and which of them count with a yes and with a no.
`Composite`
    A line of the language over rates that are known, such as `tpr + tnr - 1`, with arguments if need be.

Everything else (class of a goal, intervals, `A p + c`) follows from that, as for our own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import get_args

from ratecli.errors import FaultError
from ratecli.plugins import NAME, Plugin, plugins, sole
from ratecli.rates import syntax
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.parser import parse_value
from ratecli.rates.table import (
    COMPOSITES,
    METRICS,
    OF,
    RATES,
    SPREADS,
    SYNONYMS,
    TEMPLATES,
    Composite,
    Measurement,
    Rate,
    canonical,
)

MASKS = frozenset({"all", "none", "labelled", "+", "-", "deployed", "deployed_yes", "deployed_no"})
"""What `among`, `yes` and `no` of a rate are made of, several with `&` between them."""
LANGUAGE = frozenset({*METRICS, *SYNONYMS, *FUNCTIONS, *TEMPLATES, *SPREADS, OF})
"""Names that no plugin can have."""


def metric(name: str) -> Rate | Composite | None:
    """A rate, or what is built from rates, by its own name; None if nothing is called so.

    Raises
    ------
    FaultError
        E210 for a plugin that cannot be used.
    """
    if name in LANGUAGE:
        return RATES.get(name) or COMPOSITES.get(name)
    plugin = sole("metric", name)
    return None if plugin is None else metric_of(plugin)


def rate(name: str) -> Rate:
    """The rate of a name that is known to be one."""
    found = metric(name)
    assert isinstance(found, Rate), name
    return found


def plugged() -> list[str]:
    """The names that other packages bring and that are not ours."""
    return [name for name in plugins("metric") if name not in LANGUAGE]


@cache
def metric_of(plugin: Plugin) -> Rate | Composite:
    """What a plugin is, checked; raises E210."""
    found = plugin.load()
    if not isinstance(found, Rate | Composite):
        raise plugin.broken("it is neither a Rate nor a Composite of ratecli.rates.table")
    why = wrong(plugin.name, found)
    if why:
        raise plugin.broken(why)
    return found


def wrong(name: str, row: Rate | Composite) -> str:
    """Why a metric cannot be used under a name, "" if it can."""
    found = _wrong_rate(name, row) if isinstance(row, Rate) else _wrong_composite(name, row)
    return next(found, "")


def _wrong_rate(name: str, row: Rate) -> Iterator[str]:
    if row.name != name:
        yield f"the rate calls itself '{row.name}'"
    for key in ("among", "yes", "no"):
        unknown = sorted(set(str(getattr(row, key)).split("&")) - MASKS)
        if unknown:
            yield f"'{key}' has the mask '{unknown[0]}', and masks are {', '.join(sorted(MASKS))}"
    if row.of not in get_args(Measurement):
        yield f"'of' is '{row.of}', and measurements are {', '.join(get_args(Measurement))}"
    if row.complement:
        other = _known(row.complement)
        if not isinstance(other, Rate):
            yield f"its complement '{row.complement}' is no rate"
        elif (other.among, other.yes, other.no, other.of) != (row.among, row.no, row.yes, row.of):
            yield f"its complement '{other.name}' is not the same rate with 'yes' and 'no' exchanged"


def _wrong_composite(name: str, row: Composite) -> Iterator[str]:
    if row.over and not isinstance(_known(row.over), Rate):
        yield f"it is divided by '{row.over}', which is no rate"
    yield from (
        f"its argument '{each}' is no name of its own"
        for each in row.parameters
        if not NAME.fullmatch(each) or each in LANGUAGE
    )
    waiting, seen = [(name, row)], {name}
    while waiting:
        own, line = waiting.pop()
        try:
            tree = parse_value(line.text)
        except FaultError as error:
            yield f"'{line.text}' is no line of the language: {error.faults[0].message}"
            return
        for part in sorted(names(tree) - set(line.parameters)):
            found = _known(part)
            if part == name:
                yield f"it is made of itself, by '{own}'"
            elif found is None and part not in LANGUAGE:
                yield f"in '{line.text}' nothing is called '{part}'"
            elif isinstance(found, Composite) and part not in seen:
                seen.add(part)
                waiting.append((part, found))


def _known(name: str) -> Rate | Composite | None:
    """As `metric`, without a look at what it is itself made of."""
    name = canonical(name)
    if name in LANGUAGE:
        return RATES.get(name) or COMPOSITES.get(name)
    plugin = sole("metric", name)
    found = None if plugin is None else plugin.load()
    return found if isinstance(found, Rate | Composite) else None


def used(tree: syntax.Node, numbers: Collection[str]) -> set[str]:
    """The plugins among the metrics of a tree whose names are looked up, with those that they are made of.

    `numbers` are names that stand for numbers there, whatever plugins are called.
    """
    found = set[str]()
    for name in sorted(names(tree) - set(numbers) - LANGUAGE):
        row = metric(name)
        found |= {name} if row is not None else set()
        if isinstance(row, Composite):
            found |= used(parse_value(row.text), row.parameters)
    return found


def names(node: syntax.Node) -> set[str]:
    """All names of a tree but those of slices."""
    match node:
        case syntax.Name():
            return {node.name}.union(*map(names, node.arguments or ()))
        case syntax.Minus():
            return names(node.operand)
        case syntax.Binary():
            return names(node.left) | names(node.right)
        case _:
            return set()
