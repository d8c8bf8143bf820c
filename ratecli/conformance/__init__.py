"""Checks of plugins, for `ratecli test-plugin` and for a plugin's own tests:

    from ratecli.conformance import check_solver

    def test_conformance():
        check_solver(MySolver).require()

It is a pytest plugin, too: `pytest -p ratecli.conformance --ratecli-plugin TARGET` adds a test of
each plugin of a target, as `ratecli test-plugin TARGET` means it.

This package uses the runner as `ratecli run` does; only `ratecli.cli` uses this package.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from ratecli.conformance.checks import CheckResult, OptimalityGap, PluginReport
from ratecli.conformance.data_and_metrics import check_dataset, check_metric
from ratecli.conformance.solvers import check_solver
from ratecli.datasets.source import Source
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.experiment.registry import load_plugin
from ratecli.plugins import Plugin, PluginKind, installed_plugins
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


def pytest_addoption(parser: Any) -> None:
    """Add the option that names plugins to test; pytest calls this."""
    help_text = "check the plugins of this package, of this name, or module:object"
    parser.addoption(
        "--ratecli-plugin", metavar="TARGET", action="append", default=[], help=help_text
    )


def pytest_collection_modifyitems(session: Any, config: Any, items: list[Any]) -> None:
    """Add a test of each plugin that the options name; pytest calls this."""
    import pytest  # noqa: PLC0415  only there while it runs

    for target in config.getoption("--ratecli-plugin"):
        for plugin in find_plugins(target):
            parent = pytest.Module.from_parent(session, path=Path(__file__))
            check = partial(_require, plugin)
            items.append(pytest.Function.from_parent(parent, name=plugin.name, callobj=check))


def _require(plugin: Plugin) -> None:
    check_plugin(plugin).require()


def check_target(text: str, *, offline: bool = False) -> list[PluginReport]:
    """Check all plugins that a target means; see `find_plugins`."""
    return [check_plugin(each, offline=offline) for each in find_plugins(text)]


def find_plugins(text: str) -> list[Plugin]:
    """Return the plugins that a target means: a plugin's name, a package, or `module:object`.

    Raises E210 if there are none, or if an object cannot be a plugin.
    """
    if ":" in text:
        return [_plugin_at_path(text)]
    plugins = installed_plugins()
    named = [each for each in plugins if each.name == text] or [
        each for each in plugins if _normalize_name(each.package) == _normalize_name(text)
    ]
    if named:
        return named
    known = {name for each in plugins for name in (each.name, each.package)}
    hint = did_you_mean(text, known, "plugins and their packages")
    message = f"no plugin and no package with plugins is called '{text}'"
    raise FaultError(Diagnostic("E210", message, f"{hint}; or write module:object"))


def _normalize_name(package: str) -> str:
    """Return the normalized name of a package: `Acme.Rates` becomes acme-rates."""
    return package.lower().replace("_", "-").replace(".", "-")


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


def check_plugin(plugin: Plugin, *, offline: bool = False) -> PluginReport:
    """Check one plugin, whatever its kind; one that cannot be loaded fails its only check."""
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
