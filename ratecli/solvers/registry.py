"""Registry of algorithms by the name used in YAML. Listing them does not import them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ratecli import plugins
from ratecli.errors import Diagnostic

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
    needs
        An optional package that the algorithm requires; the extra of ratecli has the same name.
    preset
        Options that replace the class's defaults.
    """

    name: str
    summary: str
    source: str
    path: str
    needs: str = ""
    preset: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def missing(self) -> Diagnostic | None:
        """Return an E202 diagnostic if the required optional package is not installed."""
        if not self.needs or find_spec(self.needs) is not None:
            return None
        message = f"'{self.name}' needs {self.needs}, which is not installed"
        return Diagnostic("E202", message, f"pip install 'ratecli[{self.needs}]'")

    def row(self) -> dict[str, str]:
        """Return name, summary and origin for `ratecli ls algorithms`; nothing is imported."""
        own = bool(self.path)
        return {
            "name": self.name,
            "summary": self.summary if own else f"see `ratecli show {self.name}`",
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


BUILT_IN_ALGORITHMS = (
    Algorithm(
        "unconstrained",
        "plain classifier with the smallest error, linear by default; ignores the constraints",
        "LIBLINEAR: Fan et al. 2008",
        "baselines.solvers:Unconstrained",
    ),
    Algorithm(
        "audit",
        "the deployed model itself, unchanged: to measure it and to put it to a safety test",
        "ratecli",
        "baselines.solvers:Audit",
    ),
    Algorithm(
        "thresholded",
        "plain classifier whose threshold is shifted to satisfy constraints at the lowest cost",
        "Goh, Cotter, Gupta, Friedlander 2016, figure 3; Narasimhan, Cotter, Gupta 2019, table 4",
        "baselines.solvers:Thresholded",
    ),
    Algorithm(
        "post_shift",
        "best threshold per group on a plain classifier's score",
        "Hardt, Price, Srebro 2016; Narasimhan, Cotter, Gupta 2019, table 3",
        "baselines.solvers:PostShift",
    ),
    Algorithm(
        "zafar",
        "linear SVM whose mean scores differ little between two groups",
        "Zafar, Valera, Gomez Rodriguez, Gummadi 2015; Goh et al. 2016, equation 8",
        "baselines.solvers:Zafar",
    ),
    Algorithm(
        "majorize",
        "ramp rates under affine constraints, by majorization and cutting planes",
        "Goh, Cotter, Gupta, Friedlander 2016",
        "majorize.solver:Majorize",
    ),
    Algorithm(
        "three_player",
        "linear classifiers or boosted trees for convex and ratio goals: a game of three players",
        "Narasimhan, Cotter, Gupta 2019",
        "players.solver:ThreePlayer",
    ),
    Algorithm(
        "coco",
        "three_player with a threshold on probabilities for each known group: Frank-Wolfe",
        "Narasimhan 2018; the baseline of Narasimhan, Cotter, Gupta 2019, table 3",
        "players.solver:ThreePlayer",
        preset={
            "oracle": {"plugin": {"groups": True}},
            "multipliers": "leader",
            "multiplier_rate": 3.0,
            "steps": 200,
            "every": 2,
        },
    ),
    Algorithm(
        "mixture",
        "best classifier of a model, found through the best mixture by column generation",
        "ratecli; cf. Agarwal, Beygelzimer, Dudik, Langford, Wallach 2018",
        "hull.solver:Mixture",
    ),
    Algorithm(
        "least_squares",
        "regression with the smallest squared error under bounds on errors of groups",
        "ratecli; cf. Agarwal, Dudik, Wu 2019",
        "regression.solver:LeastSquares",
    ),
    Algorithm(
        "seldonian",
        "linear model, randomized, deterministic or numeric, expected to pass its safety test",
        "Thomas, Castro da Silva, Barto, Giguere, Brun, Brunskill 2019; "
        "the Seldonian Toolkit's tutorial",
        "seldonian.solver:Seldonian",
    ),
    Algorithm(
        "balanced_tree",
        "filter that balances groups by a tree of randomized splits that reveal little of a group",
        "Deng, Diana, Kearns, Roth 2023; its splits are ratecli's",
        "filtering.solvers:BalancedTree",
    ),
    Algorithm(
        "qp_proxy",
        "filter that keeps rows by a predicted group, with probabilities that balance groups best",
        "Deng, Diana, Kearns, Roth 2023, Algorithms 1 and 2",
        "filtering.solvers:GuessedGroup",
    ),
    Algorithm(
        "naive_proxy",
        "filter by a predicted group that keeps equally many rows of each",
        "Deng, Diana, Kearns, Roth 2023, section 5",
        "filtering.solvers:GuessedGroup",
        preset={"weights": "naive"},
    ),
    Algorithm(
        "exponentiated_gradient",
        "fairlearn's reduction to weighted classification, under affine constraints",
        "Agarwal, Beygelzimer, Dudik, Langford, Wallach 2018; needs ratecli[fairlearn]",
        "baselines.solvers:ExponentiatedGradient",
        needs="fairlearn",
    ),
)


@cache
def all_algorithms() -> dict[str, Algorithm]:
    """Return all algorithms by name, built-in ones first. Plugins cannot replace built-in ones."""
    algorithms = {algorithm.name: algorithm for algorithm in BUILT_IN_ALGORITHMS}
    for name, entries in plugins.plugins_by_name("algorithm").items():
        origin = " and ".join(each.origin for each in entries)
        algorithms.setdefault(name, Algorithm(name, "", origin, ""))
    return algorithms


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
