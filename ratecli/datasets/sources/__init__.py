"""The built-in data sets: described in catalogue.toml, prepared by one module each.

The modules are imported only when a data set is prepared, so that `ratecli ls datasets` stays fast.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ratecli.datasets.source import Frontier, Option, RemoteFile, Source


def _source(entry: dict[str, Any]) -> Source:
    """Return the source that an entry of the catalogue describes."""
    frontier = entry.get("frontier")
    parts = {
        "files": tuple(RemoteFile(**file) for file in entry.get("files", ())),
        "options": {key: Option(**option) for key, option in entry.get("options", {}).items()},
        "frontier": frontier and Frontier(**frontier),
    }
    return Source(**entry | parts)


def _with_tuples(value: Any) -> Any:
    """Return TOML values with tuples in place of lists."""
    if isinstance(value, dict):
        return {key: _with_tuples(each) for key, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


_CATALOGUE = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text("utf-8"))
SOURCES = {entry["name"]: _source(entry) for entry in _with_tuples(_CATALOGUE["sources"])}
"""The built-in sources by name, in the order of `ratecli ls datasets`."""
