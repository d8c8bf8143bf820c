"""The built-in data sets: `sources.toml` describes them, other modules prepare their tables.

A `preparation` names a function of these modules, which are imported when a table is read, so that
`ratecli ls datasets` stays fast.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

from pydantic import TypeAdapter

from ratecli.datasets.source import Source

_READ = tomllib.loads(files(__name__).joinpath("sources.toml").read_text("utf-8"))
SOURCES = TypeAdapter(dict[str, Source]).validate_python(
    {name: {"name": name} | entry for name, entry in _READ.items()}
)
"""The built-in sources by name, in the order of `ratecli ls datasets`."""
