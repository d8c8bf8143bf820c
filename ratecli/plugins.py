"""Entry points of other packages, which add algorithms, data sets, metrics and models.

Declarations are read without importing the packages. An object is imported when its name is used;
errors are then reported once, with the name of its package. Built-in names cannot be replaced.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

from ratecli.errors import Diagnostic, FaultError, exception_line

PluginKind = Literal["algorithm", "data set", "metric"]
ENTRY_POINT_GROUPS: dict[PluginKind, str] = {
    "algorithm": "ratecli.solvers",
    "data set": "ratecli.datasets",
    "metric": "ratecli.metrics",
}
"""The entry point group of each kind of plugin."""
MODELS_GROUP = "ratecli.models"
"""Group of entry points that name classifier classes, which files may use as models."""
CLASSIFIERS_GROUP = "ratecli.classifiers"
"""Group of entry points that name classes of which stored models may consist, by class name."""
OWN_PACKAGE = "ratecli"
"""Origin of built-in names."""
TRUST_VARIABLE = "RATECLI_TRUST"
"""Environment variable: packages, separated by commas, whose classes files may name as models.

`--trust` sets it, and worker processes inherit it.
"""
TRUSTED_PACKAGES = frozenset({"sklearn", "lightgbm", "xgboost", "catboost"})
"""Packages whose classes a file may always name as models."""
PLUGIN_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Plugin:
    """One entry point: a name, the object it refers to, and the package that declares it.

    `package` is "" for an object that no package declares (`ratecli test-plugin module:object`).
    """

    kind: PluginKind
    entry: EntryPoint
    package: str

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def version(self) -> str:
        """Version of the package; "" if it is unknown."""
        return self.entry.dist.version if self.entry.dist else ""

    @property
    def origin(self) -> str:
        """Package and version, such as `acme-rates 1.2`."""
        return f"{self.package} {self.version}".strip() or self.entry.value

    def load(self) -> object:
        """Import and return the object; raise E210 if that fails."""
        try:
            return self.entry.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.broken(exception_line(error)) from error

    def broken(self, why: str) -> FaultError:
        """Return an E210 with the given reason."""
        return self._fault("E210", f"cannot be used: {why}")

    @contextmanager
    def report_errors(self) -> Iterator[None]:
        """Convert an exception that is no FaultError into an E501 that names the package."""
        try:
            yield
        except (FaultError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._fault("E501", f"failed: {exception_line(error)}") from error

    def _fault(self, code: str, what: str) -> FaultError:
        message = f"the {self.kind} '{self.name}' of the package '{self.origin}' {what}"
        hint = f"`ratecli test-plugin {self.package}` lists what is wrong"
        return FaultError(Diagnostic(code, message, hint if self.package else None))


def plugins_by_name(kind: PluginKind) -> Mapping[str, tuple[Plugin, ...]]:
    """Return the installed plugins of a kind by name; several if packages claim the same name."""
    found: dict[str, tuple[Plugin, ...]] = {}
    for each in installed_plugins():
        if each.kind == kind:
            found[each.name] = (*found.get(each.name, ()), each)
    return found


@cache
def installed_plugins() -> tuple[Plugin, ...]:
    """Return all installed plugins, without importing any; the result is cached."""
    return tuple(
        Plugin(kind, entry, entry.dist.name if entry.dist else "?")
        for kind, group in ENTRY_POINT_GROUPS.items()
        for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)
    )


def find_plugin(kind: PluginKind, name: str) -> Plugin | None:
    """Return the plugin of a name, or None if there is none.

    Raises
    ------
    FaultError
        E210 if the name is malformed or several packages claim it.
    """
    claimed = plugins_by_name(kind).get(name, ())
    if not claimed:
        return None
    if len(claimed) > 1:
        packages = " and ".join(f"'{each.origin}'" for each in claimed)
        message = f"several packages provide the {kind} '{name}': {packages}"
        raise FaultError(Diagnostic("E210", message, "uninstall all but one of them"))
    if not PLUGIN_NAME_PATTERN.fullmatch(name):
        raise claimed[0].broken("its name has other characters than letters, digits and '_'")
    return claimed[0]


@cache
def installed_models() -> Mapping[str, str]:
    """Return `module:Class` of the models that packages declare, by name.

    Names that several packages claim are left out.
    """
    found = entry_points(group=MODELS_GROUP)
    names = Counter(entry.name for entry in found)
    return {entry.name: entry.value for entry in found if names[entry.name] == 1}


@cache
def installed_classifiers() -> Mapping[str, EntryPoint]:
    """Return the classes of stored models that packages declare, by name, without importing any."""
    return {entry.name: entry for entry in entry_points(group=CLASSIFIERS_GROUP)}


def is_trusted_package(name: str) -> bool:
    """Return whether a file may name classes of a top-level package as models."""
    declared = {path.partition(":")[0].partition(".")[0] for path in installed_models().values()}
    named = os.environ.get(TRUST_VARIABLE, "").split(",")
    return bool(name) and name in TRUSTED_PACKAGES | declared | set(named)


def unusable_plugin_warnings(kind: PluginKind, own: Collection[str]) -> Iterator[Diagnostic]:
    """Yield a W210 for each plugin that cannot be used, as far as is known without importing it.

    `own` are the built-in names.
    """
    for name, claimed in plugins_by_name(kind).items():
        if name in own:
            for each in claimed:
                what = f"the {kind} '{name}' of the package '{each.origin}' is not used"
                message = f"{what}: ratecli has a built-in one of that name"
                yield Diagnostic("W210", message, "rename the entry point")
            continue
        try:
            find_plugin(kind, name)
        except FaultError as error:
            yield from (Diagnostic("W210", fault.message, fault.help) for fault in error.faults)
