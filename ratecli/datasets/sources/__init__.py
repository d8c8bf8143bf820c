"""The built-in data sets, one module each.

A module holds the `Source` (addresses, hashes) and its preparations; the docstring has the notes
that `ratecli show` prints. NumPy and the like come from `ratecli.datasets.lazy`, or are imported in
the functions that need them, so that `ratecli ls datasets` stays fast.
"""

from __future__ import annotations

from importlib import import_module

from ratecli.datasets.source import Source

_MODULES = "adult a9a compas bank communities law gpa wiki loans clicks campaign gridworld valley"

SOURCES: dict[str, Source] = {
    source.name: source
    for module in _MODULES.split()
    for source in vars(import_module(f"{__name__}.{module}")).values()
    if isinstance(source, Source)
}
"""The built-in sources by name, in the order of `ratecli ls datasets`."""
