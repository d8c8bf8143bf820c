"""The plugins that are installed, each imported and looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ratecli.datasets.registry import source_of
from ratecli.datasets.sources import SOURCES
from ratecli.errors import FaultError
from ratecli.plugins import Kind, Plugin, installed, sole
from ratecli.rates.metrics import LANGUAGE, metric_of
from ratecli.solvers.registry import BUILT_IN, solver_of

OURS: dict[Kind, frozenset[str]] = {
    "algorithm": frozenset(row.name for row in BUILT_IN),
    "data set": frozenset(SOURCES),
    "metric": LANGUAGE,
}
LOADERS: dict[Kind, Callable[[Plugin], object]] = {
    "algorithm": solver_of,
    "data set": source_of,
    "metric": metric_of,
}


def loaded(plugin: Plugin) -> Any:
    """The solver's class, the source, or the metric; raises E210 for one that cannot be used."""
    if plugin.package:
        if plugin.name in OURS[plugin.kind]:
            raise plugin.broken(f"ratecli itself has a {plugin.kind} of that name, which is used")
        sole(plugin.kind, plugin.name)
    return LOADERS[plugin.kind](plugin)


def listing() -> list[dict[str, Any]]:
    """One row a plugin, for `ratecli ls plugins`."""
    return [
        {
            "name": each.name,
            "kind": each.kind,
            "from": each.origin,
            "object": each.entry.value,
            "state": _state(each),
        }
        for each in installed()
    ]


def _state(plugin: Plugin) -> str:
    try:
        loaded(plugin)
    except FaultError as error:
        return error.faults[0].message.partition(" cannot be used: ")[2] or error.faults[0].message
    return "can be used"
