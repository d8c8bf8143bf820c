"""Checks of plugins, for `ratecli test-plugin` and for a plugin's own tests:

    from ratecli.conformance import check_solver

    def test_conformance():
        check_solver(MySolver).require()

This package uses the runner as `ratecli run` does; only `ratecli.cli` uses this package.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

from ratecli.conformance.data import check_dataset, check_metric
from ratecli.conformance.outcome import CheckResult, OptimalityGap, PluginReport
from ratecli.conformance.solvers import check_solver
from ratecli.datasets.source import Source
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.experiment.catalogue import load_plugin
from ratecli.plugins import Plugin, PluginKind, installed_plugins_by_kind
from ratecli.rates.table import Composite, Rate
from ratecli.solvers.base import Solver

__all__ = [
    "CheckResult",
    "OptimalityGap",
    "PluginReport",
    "check_dataset",
    "check_metric",
    "check_solver",
    "check_target",
]


def check_target(text: str, *, offline: bool = False) -> list[PluginReport]:
    """Check all objects that a target means: a plugin's name, a package, or `module:object`.

    Raises E210 if there are none, or if an object cannot be a plugin.
    """
    if ":" in text:
        return [_check_plugin(_plugin_at_path(text), offline=offline)]
    plugins = installed_plugins_by_kind()
    named = [each for each in plugins if each.name == text] or [
        each for each in plugins if _normalize_name(each.package) == _normalize_name(text)
    ]
    if named:
        return [_check_plugin(each, offline=offline) for each in named]
    known = {name for each in plugins for name in (each.name, each.package)}
    hint = did_you_mean(text, known, "plugins and their packages")
    message = f"no plugin and no package with plugins is called '{text}'"
    raise FaultError(Diagnostic("E210", message, f"{hint}; or write module:object"))


def _normalize_name(package: str) -> str:
    """Return the normalized name of a package: `Acme.Rates` becomes acme-rates."""
    return package.lower().replace("_", "-").replace(".", "-")


def _check_plugin(plugin: Plugin, *, offline: bool) -> PluginReport:
    try:
        found = load_plugin(plugin)
    except FaultError as error:
        message, mend = error.faults[0].message, error.faults[0].help or ""
        broken = CheckResult("can be used", "failed", message, mend)
        return PluginReport(plugin.kind, plugin.name, plugin.origin, (broken,))
    if isinstance(found, Source):
        return check_dataset(found, origin=plugin.origin, offline=offline)
    check = check_metric if isinstance(found, Rate | Composite) else check_solver
    return check(found, name=plugin.name, origin=plugin.origin)


def _plugin_at_path(text: str) -> Plugin:
    """Return the plugin `module:object`; the module may be in the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    attribute = text.partition(":")[2]
    found = Plugin("algorithm", EntryPoint(attribute, text, ""), "").load()
    kind: PluginKind = "algorithm"
    if isinstance(found, Source | Rate | Composite):
        kind = "data set" if isinstance(found, Source) else "metric"
    elif not (isinstance(found, type) and issubclass(found, Solver)):
        message = f"'{text}' is not a Solver, Source, Rate or Composite"
        hint = "give the class or object itself, not its module"
        raise FaultError(Diagnostic("E210", message, hint))
    name = found.name if isinstance(found, Source | Rate) else attribute.lower()
    return Plugin(kind, EntryPoint(name, text, ""), "")
