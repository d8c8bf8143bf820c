"""Look up data sets by name, check their options, compute their digests, and list them.

Nothing here imports NumPy or pandas, so that listings stay fast.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from ratecli import plugins
from ratecli.config.dataset import SHARED_KEYS, DatasetSpec, LoggedSpec, known_range
from ratecli.datasets.source import Source
from ratecli.datasets.sources import SOURCES
from ratecli.errors import Diagnostic, FaultError, did_you_mean, errors_at


@errors_at("source")
def find_source(name: str) -> Source:
    """Return the source of a name, built in or from a plugin.

    Raises
    ------
    FaultError
        E201 for an unknown name, E210 for an unusable plugin.
    """
    if name in SOURCES:
        return SOURCES[name]
    plugin = plugins.find_plugin("data set", name)
    if plugin is None:
        known = did_you_mean(name, source_names(), "data sets")
        raise FaultError(
            Diagnostic("E201", f"'{name}' is not a data set that ratecli knows", known)
        )
    return source_of_plugin(plugin)


def source_names() -> list[str]:
    """Return all names that `find_source` knows, built-in ones first."""
    return list(dict.fromkeys([*SOURCES, *plugins.plugins_by_name("data set")]))


@cache
def source_of_plugin(plugin: plugins.Plugin) -> Source:
    """Return the source of a plugin; raise E210 if it is invalid."""
    found = plugin.load()
    if not isinstance(found, Source):
        raise plugin.broken("it is not a Source of ratecli.datasets.source")
    if found.name != plugin.name:
        raise plugin.broken(f"the name of the source is '{found.name}'")
    if not found.preparations:
        raise plugin.broken("the source has no preparation")
    return found


SOURCE_OPTIONS = ("rows", "seed")
"""Integer options that a file can give a source, besides `preparation` (`config.dataset`)."""


def providing_plugin(source: Source) -> plugins.Plugin | None:
    """Return the plugin that provides a source, None for a built-in one."""
    return None if source.name in SOURCES else plugins.find_plugin("data set", source.name)


def settle_options(entry: DatasetSpec) -> dict[str, Any]:
    """Return the source options of a `datasets:` entry, checked and with all defaults.

    Options that name a file are checked but left out: only the file's content matters. Raises E101
    for unknown options and E104 for invalid values.
    """
    source = find_source(str(entry.source))
    known = {"preparation", *source.options, *source.file_options, *SHARED_KEYS}
    for key in entry.stated():
        if key in known | {"source"}:
            continue
        message = f"'{key}' is not an option of the data set '{source.name}'"
        hint = did_you_mean(key, known, "options")
        raise FaultError(Diagnostic("E101", message, hint, loc=(key,), key=True))
    settled: dict[str, Any] = {"preparation": entry.preparation or next(iter(source.preparations))}
    if settled["preparation"] not in source.preparations:
        message = f"'{entry.preparation}' is not a preparation of '{source.name}'"
        hint = did_you_mean(settled["preparation"], source.preparations, "preparations")
        raise FaultError(Diagnostic("E104", message, hint, loc=("preparation",)))
    for key, option in source.options.items():
        stated = getattr(entry, key, None)
        settled[key] = option.default if stated is None else stated
        if not option.least <= settled[key] <= option.most:
            message = f"'{key}' must lie between {option.least} and {option.most}"
            hint = f"the default is {option.default}"
            raise FaultError(Diagnostic("E104", message, hint, loc=(key,)))
    return settled


def label_range(entry: DatasetSpec) -> tuple[float, float] | None:
    """Return the range of the labels of a `datasets:` entry, without reading a file.

    If the labels are numbers: the smallest and largest possible label, infinite if unknown. None if
    there are two classes.
    """
    if entry.source is not None:
        return find_source(entry.source).numbers.get(settle_options(entry)["preparation"])
    if entry.target != "number":
        return None
    return known_range(entry.label_range)


def logged_columns(entry: DatasetSpec) -> LoggedSpec | None:
    """Return the columns of logged decisions of a `datasets:` entry, None without any."""
    if entry.source is None:
        return entry.logged
    return find_source(entry.source).logged.get(settle_options(entry)["preparation"])


def true_returns(entry: DatasetSpec) -> str:
    """Return `Source.true_returns` of a `datasets:` entry, "" for a user's own table."""
    return "" if entry.source is None else find_source(entry.source).true_returns


def source_digest(
    source: Source, settled: Mapping[str, Any], sums: Sequence[tuple[str, str]]
) -> str:
    """Return the sha256 of everything that determines the numbers of a table; reads no file.

    `sums` has the name and sha256 of every file. A plugin is identified by its package and version.
    """
    plugin = providing_plugin(source)
    return json_sha256(
        {
            "source": source.name,
            "version": source.version,
            "options": dict(settled),
            "files": [list(pair) for pair in sums],
        }
        | ({"plugin": plugin.origin} if plugin else {})
    )


def json_sha256(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def import_function(path: str) -> Callable[..., Any]:
    """Return the function that "module:function" names."""
    module, _, function = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def list_sources() -> list[dict[str, Any]]:
    """Return one row per source for `ratecli ls datasets`; plugins are not imported."""
    rows = [_row(source, plugins.OWN_PACKAGE) for source in SOURCES.values()]
    for name, claimed in plugins.plugins_by_name("data set").items():
        if name not in SOURCES:
            origin = " and ".join(each.origin for each in claimed)
            said = {"summary": f"`ratecli show {name}` has the details", "from": origin}
            rows.append(dict.fromkeys(rows[0]) | {"name": name, "sensitive": []} | said)
    return rows


def _row(source: Source, origin: str) -> dict[str, Any]:
    sizes = [file.size for file in source.files]
    return {
        "name": source.name,
        "rows": source.rows,
        "label": source.label,
        "sensitive": list(source.sensitive),
        "bytes": sum(sizes) if all(sizes) else None,  # to download, None if unknown
        "summary": source.summary,
        "from": origin,
    }


def describe_source(name: str) -> dict[str, Any]:
    """Return the description of a source for `ratecli show`; `notes` is prose."""
    source = find_source(name)
    plugin = providing_plugin(source)
    return _row(source, plugin.origin if plugin else plugins.OWN_PACKAGE) | {
        "stand_in": source.stand_in,
        "preparations": list(source.preparations),
        "options": {key: option.default for key, option in source.options.items()}
        | dict.fromkeys(source.file_options, "(a file)"),
        "files": [{"name": file.name, "url": file.url} for file in source.files],
        "licence": source.licence,
        "citation": source.citation,
        "notes": source.notes,
    }
