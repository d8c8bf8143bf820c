"""Data sets looked up by name: their options settled, what identifies their tables, their listing.

Nothing here imports numpy or pandas, so that listings stay quick.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ratecli.datasets.source import Option, Raw, Source
from ratecli.datasets.sources import SOURCES
from ratecli.faults import Fault, FaultError, did_you_mean

if TYPE_CHECKING:
    from ratecli.datasets.table import Table


ABOUT_ROWS = ("split", "levels")
"""Options of an entry that change what is done with the rows of a table, not the table."""


def find(name: str) -> Source:
    if name not in SOURCES:
        known = did_you_mean(name, SOURCES, "data sets")
        raise FaultError(Fault("E201", f"'{name}' is not a data set that ratecli knows", known))
    return SOURCES[name]


def settle(options: Mapping[str, Any]) -> dict[str, Any]:
    """The source options of a `datasets:` entry, checked, every default filled in.

    Those that name a file are checked, but left out: what counts is what the file holds.
    """
    source = find(options["source"])
    known = {"preparation", *source.options, *source.file_options}
    faults = [
        Fault(
            "E101",
            f"'{key}' is not an option of the data set '{source.name}'",
            did_you_mean(key, known.union(ABOUT_ROWS), "options"),
        )
        for key in options
        if key not in known | {"source", *ABOUT_ROWS}
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


def _unknown_preparation(source: Source, name: str) -> Fault:
    known = did_you_mean(name, source.preparations, "preparations")
    return Fault("E104", f"'{name}' is not a preparation of '{source.name}'", known)


def _out_of_range(key: str, value: int, option: Option) -> Fault:
    message = f"'{key}' is {value}, but must lie between {option.least} and {option.most}"
    return Fault("E104", message, f"leave it out for {option.default}")


def label_range(options: Mapping[str, Any]) -> tuple[float, float] | None:
    """Where the labels of a `datasets:` entry are numbers: the least and the largest that they can be,
    infinite where that is not known. None where they are of two classes. No file is read.
    """
    if "source" in options:
        return find(options["source"]).numbers.get(settle(options)["preparation"])
    if options.get("target") != "number":
        return None
    low, high = options.get("label_range", (None, None))
    return (-math.inf if low is None else float(low), math.inf if high is None else float(high))


def digest(source: Source, settled: Mapping[str, Any], sums: Sequence[tuple[str, str]]) -> str:
    """sha256 over all that decides the numbers of a source's table; reads no file.

    `sums` are name and sha256 of every file.
    """
    files = [list(pair) for pair in sums]
    return fingerprint(
        {
            "source": source.name,
            "version": source.version,
            "options": dict(settled),
            "files": files,
        }
    )


def fingerprint(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def preparation(source: Source, name: str) -> Callable[[Raw], Table]:
    return resolve(source.preparations[name])


def resolve(path: str) -> Callable[..., Any]:
    """The function that "module:function" names."""
    module, _, function = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def listing() -> list[dict[str, Any]]:
    """One row a source, for `ratecli ls datasets`."""
    return [
        {
            "name": source.name,
            "rows": source.rows,
            "label": source.label,
            "sensitive": list(source.sensitive),
            "bytes": _bytes(source),
            "summary": source.summary,
        }
        for source in SOURCES.values()
    ]


def _bytes(source: Source) -> int | None:
    """What is to be fetched, None if that is not known."""
    sizes = [file.size for file in source.files]
    return sum(sizes) if all(sizes) else None


def describe(name: str) -> dict[str, Any]:
    """All there is to say about a source, for `ratecli show`; `notes` is prose."""
    source = find(name)
    row = next(row for row in listing() if row["name"] == name)
    return row | {
        "stand_in": source.stand_in,
        "preparations": list(source.preparations),
        "options": {key: option.default for key, option in source.options.items()}
        | dict.fromkeys(source.file_options, "(a file)"),
        "files": [{"name": file.name, "url": file.url} for file in source.files],
        "licence": source.licence,
        "citation": source.citation,
        "notes": source.notes,
    }
