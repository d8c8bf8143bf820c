"""Registry of algorithms by the name used in YAML. Listing them does not import them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from math import inf
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ratecli import plugins

if TYPE_CHECKING:
    from ratecli.solvers.base import Solver


@dataclass(frozen=True)
class Algorithm:
    """Registry entry of an algorithm.

    Attributes
    ----------
    name, summary, source
        The name, one line on what the algorithm does, and the publication or package it comes from.
    path
        `module:Class` below `ratecli.solvers`; "" if another package provides the algorithm.
    preset
        Options that replace the class's defaults.
    rank
        Its place in lists of algorithms to choose from; algorithms of other packages come last.
    use, limits
        What it is chosen for, as the end of a sentence, and what it does not do.
    """

    name: str
    summary: str
    source: str
    path: str
    preset: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rank: float = inf
    use: str = ""
    limits: str = ""

    @property
    def choice(self) -> str:
        """What the algorithm is chosen for; for one of another package, where that is described."""
        return self.use or f"see `ratecli show {self.name}`"

    @property
    def choice_with_limits(self) -> str:
        return f"{self.choice} ({self.limits})" if self.limits else self.choice

    def row(self) -> dict[str, str]:
        """Return name, summary and origin for `ratecli ls algorithms`; nothing is imported."""
        own = bool(self.path)
        return {
            "name": self.name,
            "summary": self.summary or self.choice,
            "source": self.source if own else "",
            "from": plugins.OWN_PACKAGE if own else self.source,
        }

    @property
    def plugin(self) -> plugins.Plugin | None:
        """The entry point of an algorithm from another package, else None.

        Raises
        ------
        FaultError
            E210 if several packages claim the name.
        """
        return plugins.find_plugin("algorithm", self.name) if not self.path else None

    def load(self) -> type[Solver]:
        """Import and return the solver class.

        Raises
        ------
        FaultError
            E210 for a plugin that cannot be used.
        """
        plugin = self.plugin
        if plugin is not None:
            return plugin_solver_class(plugin)
        solver: type[Solver] = resolve_name(f"ratecli.solvers.{self.path}")
        return solver


_TABLE = tomllib.loads(Path(__file__).with_name("algorithms.toml").read_text("utf-8"))
BUILT_IN_ALGORITHMS = tuple(Algorithm(name, **row) for name, row in _TABLE.items())
"""The algorithms of ratecli, in the order of their table."""


@cache
def all_algorithms() -> dict[str, Algorithm]:
    """Return all algorithms by name, built-in ones first. Plugins cannot replace built-in ones."""
    algorithms = {algorithm.name: algorithm for algorithm in BUILT_IN_ALGORITHMS}
    for name, entries in plugins.plugins_by_name("algorithm").items():
        origin = " and ".join(each.origin for each in entries)
        algorithms.setdefault(name, Algorithm(name, "", origin, ""))
    return algorithms


def ranked_algorithms() -> list[Algorithm]:
    """Return all algorithms, those that serve most purposes first."""
    return sorted(all_algorithms().values(), key=lambda each: each.rank)


def plugin_solver_class(plugin: plugins.Plugin) -> type[Solver]:
    """Return the class that a plugin provides.

    Raises
    ------
    FaultError
        E210 if it is not a usable solver class.
    """
    from ratecli.solvers.base import Solver

    solver = plugin.load()
    if not (isinstance(solver, type) and issubclass(solver, Solver)):
        raise plugin.broken("it is not a class derived from ratecli.solvers.base.Solver")
    if solver.solve is Solver.solve:
        raise plugin.broken("its class has no method 'solve'")
    parameters = vars(solver).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise plugin.broken("its class must be decorated with @dataclass(frozen=True)")
    options = fields(solver)  # type: ignore[arg-type]  # mypy does not know that it is a dataclass
    without = [each.name for each in options if each.default is each.default_factory is MISSING]
    if without:
        raise plugin.broken(f"its option '{without[0]}' has no default")
    return solver
