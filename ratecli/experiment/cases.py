"""A case: one algorithm at one sweep point, with its goals understood."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from importlib import metadata
from typing import Any

from ratecli.certify.safety_test import SafetyTestSpec
from ratecli.config.document import Loc
from ratecli.config.experiment import Experiment
from ratecli.config.sweep import SweepPoint
from ratecli.datasets import registry
from ratecli.experiment.options import options_in_key
from ratecli.experiment.safety import SafetyTestSettings
from ratecli.ledger.keys import trial_key
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.plugins import Plugin, find_plugin
from ratecli.rates import expression as ex
from ratecli.rates import resolve as rs
from ratecli.rates.analysis import Goal, constraint_goal, objective_goal
from ratecli.rates.expression import Expression
from ratecli.rates.metrics import plugin_metric_names, plugins_used_in
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.syntax import SyntaxNode
from ratecli.rates.table import DEPLOYED, RATES
from ratecli.sampling.resampling import Holdout, SamplingSpec
from ratecli.solvers.base import Solver
from ratecli.solvers.margin import GUARD_VERSION, MarginSpec
from ratecli.solvers.registry import all_algorithms


def used_plugins(experiment: Experiment, swept: Collection[str]) -> list[dict[str, str]]:
    """The plugins that a file names, or whose metrics it is made of, for the manifest.

    `swept` are the names that stand for numbers.
    """
    return [
        {"kind": each.kind, "name": each.name, "package": each.package, "version": each.version}
        for each in _named_plugins(experiment, swept)
    ]


def _named_plugins(experiment: Experiment, swept: Collection[str]) -> Iterator[Plugin]:
    stage = [] if experiment.filter is None else [experiment.filter.name]
    for name in dict.fromkeys([*(each.name for each in experiment.algorithms), *stage]):
        plugin = all_algorithms()[name].plugin
        if plugin is not None:
            yield plugin
    sources = [entry.source for entry in experiment.datasets.values()]
    for source in dict.fromkeys(each for each in sources if each is not None):
        plugin = registry.providing_plugin(registry.find_source(source))
        if plugin is not None:
            yield plugin
    if plugin_metric_names():
        found = set[str]().union(
            *(plugins_used_in(tree, swept) for tree in _experiment_trees(experiment))
        )
        yield from (
            each for name in sorted(found) if (each := find_plugin("metric", name)) is not None
        )


def _experiment_trees(experiment: Experiment) -> Iterator[SyntaxNode]:
    yield from map(parse_expression, [experiment.objective, *experiment.metrics.values()])
    for rule in experiment.constraints.values():
        yield from parse_constraint(rule).operands


def plugin_rate_versions(expressions: Iterable[Expression]) -> dict[str, Any]:
    """Of a trial's key, what says which rates of other packages are measured.

    What is composed of rates is spelt out in the goals and metrics themselves.
    """
    if not plugin_metric_names():
        return {}
    parts = (part for tree in expressions for part in ex.walk(tree))
    trees = (each for part in parts for each in (part, *_measured_elsewhere(part)))
    rates = {leaf.rate.name: leaf.rate for leaf in ex.leaves(*trees)}
    return {
        name: {**asdict(row), "from": plugin.origin}
        for name, row in sorted(rates.items())
        if name not in RATES and (plugin := find_plugin("metric", name)) is not None
    }


def _measured_elsewhere(part: Expression) -> tuple[Expression, ...]:
    """What `of(...)` measures of another trial."""
    return (part.metric,) if isinstance(part, ex.AlgorithmMetric) else ()


OF_PLACEHOLDER = 0.5
"""Stands for `of(...)` while the class of a goal is found: any number would do."""


@dataclass(frozen=True)
class Case:
    """One algorithm at one sweep point: a trial but for its seed.

    `datasets` are those whose rows are put together, in alphabetical order; `share` is how many of them
    are drawn to train on, if they are drawn, `holdout` which of them are put aside, and `safety` the test
    that models have to pass there, if any.

    `metrics` are all that is measured, by display name: `objective`, the file's, and
    `violation.<constraint>`. What names something that has no value here is not among them, nor
    among the constraints. `filtering` is what training rows go through first.
    """

    label: str
    algorithm: str
    solver: Solver
    guard: MarginSpec
    share: Fraction | None
    holdout: Holdout | None
    safety: SafetyTestSettings | None
    point: SweepPoint
    datasets: tuple[str, ...]
    objective: Goal
    constraints: tuple[Goal, ...]
    metrics: Mapping[str, Expression]
    filtering: CaseFilter | None = None

    @property
    def drawing(self) -> SamplingSpec:
        return SamplingSpec(self.share, self.holdout, self.unseen)

    @property
    def unseen(self) -> tuple[str, ...]:
        """Columns that the algorithm is not to see: by which its goals tell groups, if it hides them."""
        if not type(self.solver).hides_groups:
            return ()
        leaves = ex.leaves(*(goal.expression for goal in self.goals()))
        return tuple(sorted({part.column for leaf in leaves for part in leaf.where.conditions}))

    def promise(self, rows: int) -> SafetyTestSpec | None:
        """What a candidate has to pass on so many rows, if there is a test."""
        return None if self.safety is None else self.safety.promise(rows, pooled=self.pooled)

    @property
    def pooled(self) -> bool:
        """Whether a constraint speaks of a rate of rows of several data sets."""
        leaves = ex.leaves(*(rule.expression for rule in self.constraints))
        return any(len(leaf.where.datasets or self.datasets) > 1 for leaf in leaves)

    def goals(self) -> tuple[Goal, ...]:
        return (self.objective, *self.constraints)

    def texts(self) -> Iterator[tuple[Loc, Expression]]:
        """Where each expression of the file stands, and the expression."""
        yield ("objective",), self.objective.expression
        yield from ((("constraints", goal.name), goal.expression) for goal in self.constraints)
        names = (name for name in self.metrics if not name.startswith(VIOLATION_PREFIX))
        yield from (
            (("metrics", name), self.metrics[name]) for name in names if name != "objective"
        )

    def of(self, *, goals_only: bool = False) -> list[str]:
        """Labels of the algorithms that must be measured for this one, in alphabetical order."""
        return sorted({node.algorithm for node in self.ofs(goals_only=goals_only)} - {DEPLOYED})

    def ofs(self, *, goals_only: bool = False) -> Iterator[ex.AlgorithmMetric]:
        """Every `of(...)` in it, those of the deployed model too."""
        trees = [goal.expression for goal in self.goals()]
        trees += [] if goals_only else self.metrics.values()
        return (
            node for tree in trees for node in ex.walk(tree) if isinstance(node, ex.AlgorithmMetric)
        )


@dataclass(frozen=True)
class CaseFilter:
    """A balanced filter of training rows, as a case whose trial finds it.

    `take` is `weights`, where rows count by the chance that they are kept, or `sample`, where they are
    drawn with it.
    """

    case: Case
    take: str

    @cached_property
    def key(self) -> str:
        """The same for all sweep points at which all is the same that decides the filter's numbers."""
        return trial_key(case_key_content(self.case) | {"datasets": self.case.datasets})


def relevant_goals(case: Case) -> tuple[Goal, ...]:
    """The goals on which the case's models, and what is shown of them, hang."""
    return case.constraints if case.solver.role == "ignores" else case.goals()


def uses_deployed_model(goal: Goal) -> bool:
    """Whether a goal speaks of the deployed model."""
    asked = (part for part in ex.walk(goal.expression) if isinstance(part, ex.AlgorithmMetric))
    leaves = ex.leaves(goal.expression)
    return any(leaf.rate.needs_deployed for leaf in leaves) or any(
        part.algorithm == DEPLOYED for part in asked
    )


def case_metrics(cases: Sequence[Case]) -> dict[str, Expression]:
    """Every metric as the first case that has it measures it."""
    found: dict[str, Expression] = {}
    for case in cases:
        for name, metric in case.metrics.items():
            found.setdefault(name, metric)
    return found


def resolve_goals(
    case: Case, value_of: Callable[[ex.AlgorithmMetric], float]
) -> tuple[Goal, tuple[Goal, ...]]:
    """The case's goals with every `of(...)` a number, taken apart for the solver."""

    def number(node: Expression) -> Expression | None:
        return ex.Constant(value_of(node)) if isinstance(node, ex.AlgorithmMetric) else None

    objective = ex.transform(case.objective.expression, number)
    rules = []
    for goal in case.constraints:
        parts = tuple(ex.transform(part, number) for part in goal.pieces)
        rules.append(constraint_goal(goal.name, goal.text, parts, rs.violation_expression(parts)))
    return objective_goal(case.objective.text, objective), tuple(rules)


def case_key_content(case: Case) -> dict[str, Any]:
    """All of a case that decides its numbers, for its key; names of goals and metrics do not."""
    rules = {goal.name: ex.to_text(goal.expression) for goal in case.constraints}
    algorithm = all_algorithms()[case.algorithm]
    needs, plugin = algorithm.needs, algorithm.plugin
    others: dict[str, Any] = {"needs": {needs: metadata.version(needs)}} if needs else {}
    if plugin is not None:
        others["plugin"] = plugin.origin
    rates = plugin_rate_versions([tree for _, tree in case.texts()])
    if rates:
        others["rates"] = rates
    if case.share is not None:
        others["resample"] = str(case.share)
    if case.unseen:
        others["unseen"] = case.unseen
    if case.safety is not None:
        others["safety"] = case.safety.content(rules)
    elif case.holdout is not None:
        others["aside"] = case.holdout.content()
    return others | {
        "algorithm": case.algorithm,
        "version": type(case.solver).version,
        "options": options_in_key(case.solver, rules),
        "guard": _guard_key_content(case.guard),
        "objective": ex.to_text(case.objective.expression),
        "constraints": list(rules.values()),
        "metrics": sorted({ex.to_text(metric) for metric in case.metrics.values()}),
    }


def _guard_key_content(guard: MarginSpec) -> dict[str, Any]:
    """Its part of a trial's key: nothing for the default guard, the aim only where there is one."""
    if guard == MarginSpec():
        return {}
    asked = {
        key: value for key, value in asdict(guard).items() if key != "aim" or value is not None
    }
    return asked | {"version": GUARD_VERSION}
