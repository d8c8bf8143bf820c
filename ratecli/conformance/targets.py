"""Resolve the TARGET of `ratecli test-plugin`.

A target is the name of a plugin, a package with plugins, or an object given by its path.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from ratecli.conformance.datasets import check_dataset
from ratecli.conformance.metrics import check_metric
from ratecli.conformance.outcome import CheckResult, PluginReport
from ratecli.conformance.solvers import check_solver
from ratecli.datasets.source import Source
from ratecli.datasets.sources import SOURCES
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.experiment.installed_plugins import load_plugin
from ratecli.plugins import (
    ENTRY_POINT_GROUPS,
    OWN_PACKAGE,
    Plugin,
    PluginKind,
    installed_plugins_by_kind,
)
from ratecli.rates.metrics import find_metric
from ratecli.rates.table import Composite, Rate, canonical_name
from ratecli.solvers.base import Solver
from ratecli.solvers.registry import BUILT_IN_ALGORITHMS


@dataclass(frozen=True)
class PluginTarget:
    """An object to check; if it cannot be loaded, `fault` is reported as a failed check."""

    kind: PluginKind
    name: str
    origin: str
    found: Any = None
    fault: Diagnostic | None = None

    def report(self, *, offline: bool = False) -> PluginReport:
        if self.fault is not None:
            mend = self.fault.help or ""
            broken = CheckResult("can be used", "failed", self.fault.message, mend)
            return PluginReport(self.kind, self.name, self.origin, (broken,))
        if self.kind == "data set":
            return check_dataset(self.found, origin=self.origin, offline=offline)
        if self.kind == "metric":
            return check_metric(self.found, name=self.name, origin=self.origin)
        return check_solver(self.found, name=self.name, origin=self.origin)


def parse_targets(text: str) -> list[PluginTarget]:
    """Return all objects that a target means.

    Raises E210 if there are none, or if an object cannot be a plugin.
    """
    if ":" in text:
        return [_object(text)]
    named = [each for each in installed_plugins_by_kind() if each.name == text]
    if not named:
        wanted = _normalize_name(text)
        named = [
            each for each in installed_plugins_by_kind() if _normalize_name(each.package) == wanted
        ]
    if named:
        return [_installed(each) for each in named]
    own = list(_built_in_object(text))
    if own:
        return own
    known = {each.name for each in installed_plugins_by_kind()} | {
        each.package for each in installed_plugins_by_kind()
    }
    hint = did_you_mean(text, known, "plugins and their packages")
    message = f"no plugin and no package with plugins is called '{text}'"
    raise FaultError(Diagnostic("E210", message, f"{hint}; or write module:object"))


def _normalize_name(package: str) -> str:
    """Return the normalized name of a package: `Acme.Rates` becomes acme-rates."""
    return package.lower().replace("_", "-").replace(".", "-")


def _installed(plugin: Plugin) -> PluginTarget:
    try:
        return PluginTarget(plugin.kind, plugin.name, plugin.origin, load_plugin(plugin))
    except FaultError as error:
        return PluginTarget(plugin.kind, plugin.name, plugin.origin, fault=error.faults[0])


def _object(text: str) -> PluginTarget:
    """Return the target `module:object`; the module may be in the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    attribute = text.partition(":")[2]
    probe = Plugin("algorithm", EntryPoint(attribute, text, ENTRY_POINT_GROUPS["algorithm"]), "")
    found = probe.load()
    kind = _kind(found)
    if kind is None:
        message = f"'{text}' is no Solver, Source, Rate or Composite"
        raise FaultError(
            Diagnostic("E210", message, "name the class or object itself, not its module")
        )
    name = found.name if isinstance(found, Source | Rate) else attribute.lower()
    plugin = Plugin(kind, EntryPoint(name, text, ENTRY_POINT_GROUPS[kind]), "")
    if kind == "metric":  # `check_metric` reports its errors
        return PluginTarget(kind, name, plugin.origin, found)
    return _installed(plugin)


def _kind(found: object) -> PluginKind | None:
    if isinstance(found, type) and issubclass(found, Solver):
        return "algorithm"
    if isinstance(found, Source):
        return "data set"
    return "metric" if isinstance(found, Rate | Composite) else None


def _built_in_object(name: str) -> list[PluginTarget]:
    """Return the built-in objects with that name."""
    found: list[PluginTarget] = []
    for row in (row for row in BUILT_IN_ALGORITHMS if row.name == name):
        options: Mapping[str, Any] = row.preset
        found.append(PluginTarget("algorithm", name, OWN_PACKAGE, row.load()(**options)))
    if name in SOURCES:
        found.append(PluginTarget("data set", name, OWN_PACKAGE, SOURCES[name]))
    meant = canonical_name(name)
    if (measured := find_metric(meant)) is not None:
        found.append(PluginTarget("metric", meant, OWN_PACKAGE, measured))
    return found
