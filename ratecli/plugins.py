"""What other packages add by entry points: algorithms, data sets and metrics, under names of their own.

What packages declare is read without importing them. An object is imported when its name is used, and
what is wrong with it is then said once, with the name of its package. Our own names cannot be replaced.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ratecli.errors import Diagnostic, FaultError

PluginKind = Literal["algorithm", "data set", "metric"]
ENTRY_POINT_GROUPS: dict[PluginKind, str] = {
    "algorithm": "ratecli.solvers",
    "data set": "ratecli.datasets",
    "metric": "ratecli.metrics",
}
"""The entry point group of each kind of plugin."""
OWN_PACKAGE = "ratecli"
"""Where a name comes from that is ours."""
PLUGIN_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Plugin:
    """One entry point: a name, the object that it stands for, and the package that says so.

    `package` is "" for an object that no package declares (`ratecli test-plugin module:object`).
    """

    kind: PluginKind
    entry: EntryPoint
    package: str

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def module(self) -> str:
        return self.entry.value.partition(":")[0].strip()

    @cached_property
    def version(self) -> str:
        """That of the package, "" where it states none."""
        try:
            return version(self.package) if self.package else ""
        except (PackageNotFoundError, KeyError):
            return ""

    @property
    def origin(self) -> str:
        """Package and version, as in `acme-rates 1.2`."""
        return f"{self.package} {self.version}".strip() or self.entry.value

    def load(self) -> object:
        """The object; raises E210 where it cannot be imported."""
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:
            said = " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
            raise self.broken(said) from error

    def broken(self, why: str) -> FaultError:
        """The E210 that says so."""
        what = f"the {self.kind} '{self.name}' of the package '{self.origin}' cannot be used: {why}"
        way = (
            f"`ratecli test-plugin {self.package}` says all that is wrong" if self.package else None
        )
        return FaultError(Diagnostic("E210", what, way))


def plugins_by_name(kind: PluginKind) -> Mapping[str, tuple[Plugin, ...]]:
    """All that is installed of a kind, by name: two or more where packages claim the same one."""
    found: dict[str, tuple[Plugin, ...]] = {}
    for each in installed_plugins_by_kind():
        if each.kind == kind:
            found[each.name] = (*found.get(each.name, ()), each)
    return found


@cache
def installed_plugins_by_kind() -> tuple[Plugin, ...]:
    """All that is installed, read once; nothing of it is imported."""
    return tuple(
        Plugin(kind, entry, entry.dist.name if entry.dist else "?")
        for kind, group in ENTRY_POINT_GROUPS.items()
        for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)
    )


def find_plugin(kind: PluginKind, name: str) -> Plugin | None:
    """The plugin of a name, None if there is none; raises E210 where it is no name, or two claim it."""
    claimed = plugins_by_name(kind).get(name, ())
    if not claimed:
        return None
    if len(claimed) > 1:
        packages = " and ".join(f"'{each.origin}'" for each in claimed)
        message = f"several packages have the {kind} '{name}': {packages}"
        raise FaultError(Diagnostic("E210", message, "uninstall all of them but one"))
    if not PLUGIN_NAME_PATTERN.fullmatch(name):
        raise claimed[0].broken("its name is not made of letters, digits and '_'")
    return claimed[0]


def unusable_plugin_warnings(kind: PluginKind, own: Collection[str]) -> Iterator[Diagnostic]:
    """A W210 for each plugin that cannot be used, as far as that shows without importing any.

    `own` are the names that are ours.
    """
    for name, claimed in plugins_by_name(kind).items():
        if name in own:
            for each in claimed:
                what = f"the {kind} '{name}' of the package '{each.origin}' is not used"
                why = f"{what}: ratecli has one of that name"
                yield Diagnostic("W210", why, "rename the entry point")
            continue
        try:
            plugin = find_plugin(kind, name)
            if plugin is not None and not _module_exists(plugin.module.partition(".")[0]):
                raise plugin.broken(f"there is no module '{plugin.module}'")
        except FaultError as error:
            yield from (Diagnostic("W210", fault.message, fault.help) for fault in error.faults)


def _module_exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # `find_spec` of something odd, such as __main__
        return False


def module_source_file(module: str) -> Path | None:
    """The file of a module, found without importing it or its packages; None where it has none here."""
    top, *rest = module.split(".")
    if not _module_exists(top):
        return None
    spec = find_spec(top)
    assert spec is not None
    if not rest:
        return Path(spec.origin) if spec.origin else None
    for folder in spec.submodule_search_locations or ():
        inside = Path(folder, *rest)
        for path in (inside.with_name(f"{inside.name}.py"), inside / "__init__.py"):
            if path.is_file():
                return path
    return None
