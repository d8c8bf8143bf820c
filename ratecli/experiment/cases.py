"""Cases: one algorithm at one sweep point, with its goals resolved, and what enters its key."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from importlib import metadata
from typing import Any

from ratecli.certify.trees import SafetyTestSpec
from ratecli.config.sweep import SweepPoint
from ratecli.datasets.split import Holdout
from ratecli.errors import Loc
from ratecli.experiment.entries import all_options, options_in_key
from ratecli.ledger.records import VIOLATION_PREFIX, trial_key
from ratecli.plugins import find_plugin
from ratecli.rates import expression as ex
from ratecli.rates import resolve as rs
from ratecli.rates.analysis import Goal, constraint_goal, objective_goal
from ratecli.rates.expression import Expression, Slice
from ratecli.rates.metrics import plugin_metric_names
from ratecli.rates.table import DEPLOYED, RATES
from ratecli.sampling.resampling import SamplingSpec
from ratecli.solvers.base import Solver
from ratecli.solvers.margin import GUARD_VERSION, MarginSpec
from ratecli.solvers.oracles.choice import model_versions
from ratecli.solvers.oracles.unseen import TUNING_FOLDS
from ratecli.solvers.registry import all_algorithms
from ratecli.solvers.tuned import L2, TUNING_VERSION, Setting

SAFETY_TEST_VERSION = 3
"""Version of the safety test in the keys of tested trials; incremented when its results change."""


def plugin_rate_versions(expressions: Iterable[Expression]) -> dict[str, Any]:
    """Return the part of a trial's key that identifies the measured rates of plugins.

    Composites need no entry: they are expanded in the goals and metrics themselves.
    """
    if not plugin_metric_names():
        return {}
    trees = [
        part for tree in expressions for part in (tree, *(of.metric for of in references(tree)))
    ]
    rates = {leaf.rate.name: leaf.rate for leaf in ex.leaves(*trees)}
    return {
        name: {**asdict(row), "from": plugin.origin}
        for name, row in sorted(rates.items())
        if name not in RATES and (plugin := find_plugin("metric", name)) is not None
    }


def references(tree: Expression, label: str | None = None) -> list[ex.AlgorithmMetric]:
    """Return the `of(...)` nodes of an expression; only those of one algorithm if specified."""
    found = (part for part in ex.walk(tree) if isinstance(part, ex.AlgorithmMetric))
    return [part for part in found if label in {None, part.algorithm}]


def measured_rates(tree: Expression) -> Iterator[ex.MeasuredNode]:
    """Yield the measured rates of an expression, including those inside `of(...)`."""
    yield from ex.measured_nodes(tree)
    for part in references(tree):
        yield from measured_rates(part.metric)


OF_PLACEHOLDER = 0.5
"""Replaces `of(...)` while the shape of a goal is determined; any number would do."""


def replace_of(node: Expression) -> Expression | None:
    """Return `OF_PLACEHOLDER` for `of(...)`, for use with `ex.transform`."""
    return ex.Constant(OF_PLACEHOLDER) if isinstance(node, ex.AlgorithmMetric) else None


@dataclass(frozen=True)
class Case:
    """One algorithm at one sweep point: a trial without its seed.

    Attributes
    ----------
    label, algorithm
        The entry's label and the name of its algorithm.
    guard
        The margin by which constraints are tightened.
    share
        Number of training rows to sample, as a share of all rows; None without resampling.
    holdout
        How training rows are held out for a safety test, if they are.
    safety
        The test that models have to pass, if any; its number of rows is not known yet.
    datasets
        The data sets whose rows are pooled, in alphabetical order.
    constraints
        The constraints whose names all have a value at this point.
    metrics
        Everything that is measured and defined at this point, by display name: `objective`, the
        file's metrics, and `violation.<constraint>`.
    filtering
        The filter that training rows pass through, if any.
    settings
        The settings of the solver among which the goals choose; `solver` is the first one. Empty
        unless the algorithm is tuned by its goals.
    groups
        The groups of the file, whose rates are stored with each trial.
    """

    label: str
    algorithm: str
    solver: Solver
    guard: MarginSpec
    share: Fraction | None
    holdout: Holdout | None
    safety: SafetyTestSpec | None
    point: SweepPoint
    datasets: tuple[str, ...]
    objective: Goal
    constraints: tuple[Goal, ...]
    metrics: Mapping[str, Expression]
    filtering: CaseFilter | None = None
    settings: tuple[Setting, ...] = ()
    groups: tuple[Slice, ...] = ()

    def by_setting(self) -> list[Case]:
        """Return the case with the solver of each setting."""
        return [replace(self, solver=each.solver) for each in self.settings] or [self]

    def tuning_cost(self) -> str:
        """Say how often a trial runs the algorithm to tune it; return "" if it is not tuned."""
        count = len(self.settings)
        by_loss = any(setting.by_loss for setting in self.settings)
        folds = TUNING_FOLDS * count + 1
        verb = "fits its model" if by_loss else "runs it"
        times = f"{verb} {folds} times, or {count + 1} times with validation rows"
        return f"tuned: {count} settings, so a trial {times}" if count else ""

    def options(self) -> dict[str, Any]:
        """Return every option of the algorithm; those of the first setting and `tune` if tuned."""
        tuned: dict[str, list[Any]] = {}
        for setting in self.settings:
            for key, value in setting.values.items():
                if value not in tuned.setdefault(key, []):
                    tuned[key].append(value)
        return all_options(self.solver) | ({"tune": tuned} if tuned else {})

    @property
    def sampling(self) -> SamplingSpec:
        return SamplingSpec(self.share, self.holdout, self.unseen, self.solver.score_column)

    @property
    def unseen(self) -> tuple[str, ...]:
        """Columns hidden from the algorithm: those of its goals' groups, if it hides groups."""
        if not type(self.solver).hides_groups:
            return ()
        leaves = ex.leaves(*(goal.expression for goal in self.goals()))
        return tuple(sorted({part.column for leaf in leaves for part in leaf.where.atoms}))

    def safety_spec(self, rows: int) -> SafetyTestSpec | None:
        """Return the safety test for candidates on this number of rows; None without a test.

        The same share of each data set is held out, so rates over several data sets are stratified.
        """
        if self.safety is None or self.holdout is None:
            return None
        at_random = not (self.pooled or self.holdout.stratify or self.holdout.positional)
        return replace(self.safety, rows=rows, at_random=at_random)

    @property
    def pooled(self) -> bool:
        """Whether a constraint has a rate over rows of several data sets."""
        leaves = ex.leaves(*(rule.expression for rule in self.constraints))
        return any(len(leaf.where.datasets or self.datasets) > 1 for leaf in leaves)

    def goals(self) -> tuple[Goal, ...]:
        return (self.objective, *self.constraints)

    def located_goals(self) -> Iterator[tuple[Loc, Goal]]:
        """Yield the objective and the constraints, with their locations in the file."""
        yield ("objective",), self.objective
        yield from ((("constraints", goal.name), goal) for goal in self.constraints)

    def model_versions(self) -> dict[str, str]:
        """Return the versions of the packages, other than scikit-learn, whose models are fitted."""
        return dict(ChainMap(*(model_versions(each.solver) for each in self.by_setting())))

    def expressions(self) -> Iterator[tuple[Loc, Expression]]:
        """Yield each expression of the file with its location."""
        yield from ((loc, goal.expression) for loc, goal in self.located_goals())
        for name, metric in self.metrics.items():
            if name != "objective" and not name.startswith(VIOLATION_PREFIX):
                yield ("metrics", name), metric

    def referenced_labels(self, *, goals_only: bool = False) -> list[str]:
        """Return the labels of the algorithms that must run before this one, sorted."""
        trees = [goal.expression for goal in self.goals()]
        trees += [] if goals_only else self.metrics.values()
        labels = {part.algorithm for tree in trees for part in references(tree)}
        return sorted(labels - {DEPLOYED})


@dataclass(frozen=True)
class CaseFilter:
    """A balanced filter of training rows, as a case whose trial computes it.

    `take` is `weights`, which multiplies the weight of each row by its chance of being kept, or
    `sample`, which keeps each row with that chance.
    """

    case: Case
    take: str

    @cached_property
    def key(self) -> str:
        """Key of the filter: equal wherever everything that affects its numbers is equal."""
        return trial_key(case_key_content(self.case) | {"datasets": self.case.datasets})


def relevant_goals(case: Case) -> tuple[Goal, ...]:
    """Return the goals that the case's models, and their reported results, depend on."""
    return case.constraints if case.solver.role == "ignores" else case.goals()


def uses_deployed_model(goal: Goal) -> bool:
    """Return whether a goal refers to the deployed model."""
    leaves = ex.leaves(goal.expression)
    compared = any(leaf.rate.needs_deployed for leaf in leaves)
    return compared or bool(references(goal.expression, DEPLOYED))


def case_metrics(cases: Sequence[Case]) -> dict[str, Expression]:
    """Return every metric, as defined by the first case that has it."""
    found: dict[str, Expression] = {}
    for case in cases:
        for name, metric in case.metrics.items():
            found.setdefault(name, metric)
    return found


def resolve_goals(
    case: Case, known: Callable[[Expression], Expression | None] = replace_of
) -> tuple[Goal, tuple[Goal, ...]]:
    """Return the objective and constraints, with `known(node)` in place of each `of(...)`."""
    objective = ex.transform(case.objective.expression, known)
    rules = []
    for goal in case.constraints:
        parts = tuple(ex.transform(part, known) for part in goal.pieces)
        rules.append(constraint_goal(goal.name, goal.text, parts, rs.violation_expression(parts)))
    return objective_goal(case.objective.text, objective), tuple(rules)


def case_key_content(case: Case) -> dict[str, Any]:
    """Return everything in a case that affects its numbers, for its key.

    Names of goals and metrics are not included, since they do not affect numbers.
    """
    rules = {goal.name: ex.to_text(goal.expression) for goal in case.constraints}
    plugin = all_algorithms()[case.algorithm].plugin
    optional = {
        "needs": {name: metadata.version(name) for name in case.solver.needs},
        "models": case.model_versions(),
        "tune": case.settings
        and {
            "version": TUNING_VERSION,
            "settings": [
                options_in_key(each.solver, rules) | ({} if each.l2 is None else {L2: each.l2})
                for each in case.settings
            ],
        },
        "plugin": plugin and plugin.origin,
        "rates": plugin_rate_versions([tree for _, tree in case.expressions()]),
        "resample": case.share and str(case.share),
        "unseen": case.unseen,
        "holdout": case.holdout and case.holdout.content(),
        "safety": case.safety
        and {
            **asdict(case.safety),
            "version": SAFETY_TEST_VERSION,
            "delta": sorted([name, rule, case.safety.delta[name]] for name, rule in rules.items()),
        },
    }
    return {key: value for key, value in optional.items() if value} | {
        "algorithm": case.algorithm,
        "version": type(case.solver).version,
        "options": options_in_key(case.solver, rules),
        "guard": _guard_key_content(case.guard),
        "objective": ex.to_text(case.objective.expression),
        "constraints": list(rules.values()),
        "metrics": sorted({ex.to_text(metric) for metric in case.metrics.values()}),
    }


def _guard_key_content(guard: MarginSpec) -> dict[str, Any]:
    """Return the guard's part of a trial's key: empty for the default guard, no aim if unset."""
    if guard == MarginSpec():
        return {}
    settings = asdict(guard) | {"version": GUARD_VERSION}
    return {key: value for key, value in settings.items() if key != "aim" or value is not None}
