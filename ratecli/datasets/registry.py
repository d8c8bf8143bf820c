"""Data sets looked up by name: their options settled, what identifies their tables, their listing.

Nothing here imports numpy or pandas, so that listings stay quick.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ratecli import plugins
from ratecli.datasets.source import Option, Raw, Source
from ratecli.datasets.sources import SOURCES
from ratecli.errors import Diagnostic, FaultError, did_you_mean

if TYPE_CHECKING:
    from ratecli.datasets.table import Table


ROW_OPTIONS = ("split", "levels")
"""Options of an entry that change what is done with the rows of a table, not the table."""


def find_source(name: str) -> Source:
    """The source of a name, ours or of another package.

    Raises
    ------
    FaultError
        E201 for a name that nothing has, E210 for a plugin that cannot be used.
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
    """All that `find_source` knows, our own first."""
    return list(dict.fromkeys([*SOURCES, *plugins.plugins_by_name("data set")]))


@cache
def source_of_plugin(plugin: plugins.Plugin) -> Source:
    """What a plugin is, checked; raises E210."""
    found = plugin.load()
    if not isinstance(found, Source):
        raise plugin.broken("it is no Source of ratecli.datasets.source")
    if found.name != plugin.name:
        raise plugin.broken(f"the source calls itself '{found.name}'")
    if not found.preparations:
        raise plugin.broken("the source has no preparation")
    unknown = [key for key in found.options if key not in SOURCE_OPTIONS]
    if unknown:
        raise plugin.broken(
            f"it has an option '{unknown[0]}', and a file can give {SOURCE_OPTIONS}"
        )
    return found


SOURCE_OPTIONS = ("rows", "seed")
"""Whole numbers that a file can give a source, beside `preparation` (`config.dataset`)."""


def providing_plugin(source: Source) -> plugins.Plugin | None:
    """The plugin that a source is, None for one of ours."""
    return None if source.name in SOURCES else plugins.find_plugin("data set", source.name)


def settle_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The source options of a `datasets:` entry, checked, every default filled in.

    Those that name a file are checked, but left out: what counts is what the file holds.
    """
    source = find_source(options["source"])
    known = {"preparation", *source.options, *source.file_options}
    faults = [
        Diagnostic(
            "E101",
            f"'{key}' is not an option of the data set '{source.name}'",
            did_you_mean(key, known.union(ROW_OPTIONS), "options"),
        )
        for key in options
        if key not in known | {"source", *ROW_OPTIONS}
    ]
    settled = {"preparation": options.get("preparation", next(iter(source.preparations)))}
    if settled["preparation"] not in source.preparations:
        faults.append(_unknown_preparation(source, str(settled["preparation"])))
    for key, option in source.options.items():
        settled[key] = options.get(key, option.default)
        if not option.least <= settled[key] <= option.most:
            faults.append(_out_of_range(key, settled[key], option))
    if faults:
        raise FaultError(faults)
    return settled


def _unknown_preparation(source: Source, name: str) -> Diagnostic:
    known = did_you_mean(name, source.preparations, "preparations")
    return Diagnostic("E104", f"'{name}' is not a preparation of '{source.name}'", known)


def _out_of_range(key: str, value: int, option: Option) -> Diagnostic:
    message = f"'{key}' is {value}, but must lie between {option.least} and {option.most}"
    return Diagnostic("E104", message, f"leave it out for {option.default}")


def label_range(options: Mapping[str, Any]) -> tuple[float, float] | None:
    """Where the labels of a `datasets:` entry are numbers: the least and the largest that they can be,
    infinite where that is not known. None where they are of two classes. No file is read.
    """
    if "source" in options:
        return find_source(options["source"]).numbers.get(settle_options(options)["preparation"])
    if options.get("target") != "number":
        return None
    low, high = options.get("label_range", (None, None))
    return (-math.inf if low is None else float(low), math.inf if high is None else float(high))


def source_digest(
    source: Source, settled: Mapping[str, Any], sums: Sequence[tuple[str, str]]
) -> str:
    """sha256 over all that decides the numbers of a source's table; reads no file.

    `sums` are name and sha256 of every file. The code of another package is known by its version.
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


def preparation_function(source: Source, name: str) -> Callable[[Raw], Table]:
    return import_function(source.preparations[name])


def import_function(path: str) -> Callable[..., Any]:
    """The function that "module:function" names."""
    module, _, function = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def list_sources() -> list[dict[str, Any]]:
    """One row a source, for `ratecli ls datasets`; those of other packages are not imported."""
    rows = [_row(source, plugins.OWN_PACKAGE) for source in SOURCES.values()]
    for name, claimed in plugins.plugins_by_name("data set").items():
        if name not in SOURCES:
            origin = " and ".join(each.origin for each in claimed)
            said = {"summary": f"`ratecli show {name}` says more", "from": origin}
            rows.append(dict.fromkeys(rows[0]) | {"name": name, "sensitive": []} | said)
    return rows


def _row(source: Source, origin: str) -> dict[str, Any]:
    return {
        "name": source.name,
        "rows": source.rows,
        "label": source.label,
        "sensitive": list(source.sensitive),
        "bytes": _bytes(source),
        "summary": source.summary,
        "from": origin,
    }


def _bytes(source: Source) -> int | None:
    """What is to be fetched, None if that is not known."""
    sizes = [file.size for file in source.files]
    return sum(sizes) if all(sizes) else None


def describe_source(name: str) -> dict[str, Any]:
    """All there is to say about a source, for `ratecli show`; `notes` is prose."""
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
