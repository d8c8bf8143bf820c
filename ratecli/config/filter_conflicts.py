"""What `filter:` says together with other parts of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ratecli.config.algorithm import entry_label, entry_label_loc
from ratecli.config.complaint import Complaint
from ratecli.config.filter import FILTER


def filter_conflicts(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Complaints about raw data that may be wrong in any other way, too."""
    if raw.get("filter") is None:
        return
    yield from _filter_label_conflicts(raw)
    yield from _filter_level_conflicts(raw)


def _filter_label_conflicts(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    entries = raw.get("algorithms")
    for k, entry in enumerate(entries if isinstance(entries, list) else []):
        if entry_label(entry) == FILTER:
            loc = entry_label_loc(k, entry)
            message = f"'{FILTER}' is what the results of `filter:` are called"
            hint = "give the algorithm another label: {as: NAME}"
            yield Complaint(loc, "E106", message, hint, key=len(loc) == 3)


def _filter_level_conflicts(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    datasets = raw.get("datasets")
    for name, entry in (datasets if isinstance(datasets, dict) else {}).items():
        if isinstance(entry, dict) and entry.get("levels") is not None:
            message = "a filter keeps rows as wholes, and with 'levels' each stands several times"
            loc = ("datasets", name, "levels")
            yield Complaint(loc, "E104", message, "leave out the levels, or the filter", key=True)
