"""Installed plugins, each imported and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ratecli.datasets.registry import source_of_plugin
from ratecli.datasets.sources import SOURCES
from ratecli.errors import FaultError
from ratecli.plugins import Plugin, PluginKind, find_plugin, installed_plugins_by_kind
from ratecli.rates.metrics import BUILTIN_NAMES, load_plugin_metric
from ratecli.solvers.registry import BUILT_IN_ALGORITHMS, plugin_solver_class

BUILT_IN_NAMES: dict[PluginKind, frozenset[str]] = {
    "algorithm": frozenset(row.name for row in BUILT_IN_ALGORITHMS),
    "data set": frozenset(SOURCES),
    "metric": BUILTIN_NAMES,
}
PLUGIN_LOADERS: dict[PluginKind, Callable[[Plugin], object]] = {
    "algorithm": plugin_solver_class,
    "data set": source_of_plugin,
    "metric": load_plugin_metric,
}


def load_plugin(plugin: Plugin) -> Any:
    """Return the plugin's solver class, source or metric; raise E210 if it cannot be used."""
    if plugin.package:
        if plugin.name in BUILT_IN_NAMES[plugin.kind]:
            raise plugin.broken(f"ratecli itself has a {plugin.kind} of that name, which is used")
        find_plugin(plugin.kind, plugin.name)
    return PLUGIN_LOADERS[plugin.kind](plugin)


def plugin_rows() -> list[dict[str, Any]]:
    """Return one row per plugin, for `ratecli ls plugins`."""
    return [
        {
            "name": each.name,
            "kind": each.kind,
            "from": each.origin,
            "object": each.entry.value,
            "state": _plugin_status(each),
        }
        for each in installed_plugins_by_kind()
    ]


def _plugin_status(plugin: Plugin) -> str:
    try:
        load_plugin(plugin)
    except FaultError as error:
        return error.faults[0].message.partition(" cannot be used: ")[2] or error.faults[0].message
    return "can be used"
