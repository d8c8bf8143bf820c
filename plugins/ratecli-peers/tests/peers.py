"""The package's algorithms by name, and those of them that can be run here."""

import os
from typing import Any

import pytest

from ratecli.plugins import installed_plugins
from ratecli.solvers.base import Solver
from ratecli.solvers.oracles.choice import installed_version

PLUGINS = {each.name: each for each in installed_plugins() if each.package == "ratecli-peers"}
CLASSES = {name: each.load() for name, each in PLUGINS.items()}


def solver_of(name: str, **options: Any) -> Solver:
    """Return the algorithm; skip the test if its package, or an interpreter for it, is missing."""
    solver = CLASSES[name]
    for needed in solver.needs:
        if installed_version(needed) is None:
            pytest.skip(f"{needed} is not installed")
    if hasattr(solver, "python"):
        variable = f"{solver.script.upper()}_PYTHON"
        if not os.environ.get(variable):
            pytest.skip(f"{variable} names no interpreter that has it")
        options |= {"python": os.environ[variable]}
    return solver(**options)
