"""The answer of a report: the best setting of each task, with the evidence that its rules hold.

Three questions are kept apart. Should the constraints hold on new rows, by training or a safety
test (`is_expected`)? What was measured (`violations`)? Are the test sets large enough to tell
(`verdict`)?
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from typing import Any

from ratecli.config.base import SOLUTION_RATE
from ratecli.config.sweep import applied_constraints, has_values, number_ranges, value_identity
from ratecli.experiment.entries import solver_class
from ratecli.experiment.filters import LEAST_SHARE_METRIC
from ratecli.ledger import records as rc
from ratecli.ledger.records import OBJECTIVE, VIOLATION_PREFIX, is_no_better
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.rates.functions import Interval
from ratecli.rates.metrics import Direction, direction, goal_names, limit_direction
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.table import BALANCE_METRICS
from ratecli.report import groups as gr
from ratecli.report import sheet as st
from ratecli.report.certificates import confidence_of_tests, is_tested
from ratecli.solvers.margin import DEFAULT_LEVEL
from ratecli.solvers.registry import all_algorithms

BEST_SPLITS = ("test", "validation", "train")
"""The first of these splits that was measured is used to find the best model."""
MIN_EXPECTED_SHARE = 0.5
"""With a smaller estimated share of trials whose constraints hold, `holds` is not relied on."""
CHOICES: Mapping[Any, Callable[..., float]] = {Direction.LOW: min, Direction.HIGH: max}
"""How the best value of a metric is chosen, by its direction."""
FILTER_METRICS_TO_MINIMIZE = tuple(
    f"{rc.FILTER_STAGE_PREFIX}{name}" for name in (*BALANCE_METRICS, OBJECTIVE)
)
"""Metrics of the filter before training that should be low; `LEAST_SHARE_METRIC` should be high."""
Task = Mapping[str, Any]
"""The values of the names that define a task."""


class TestVerdict(StrEnum):
    """What the test sets say of the constraints: hold, cannot tell, or do not hold."""

    CONFIRMED = "confirmed"
    UNCLEAR = "too few rows"
    VIOLATED = "violated"


@dataclass(frozen=True)
class Setting:
    """An algorithm's models at a sweep point, as an answer to a task.

    Attributes
    ----------
    level
        The stated probability: that of `holds: new_rows`, or the confidence of a safety test; None
        if none is stated.
    share
        Estimate of how often all constraints hold, 0 if one was not measured.
    violations
        The mean violation of each constraint.
    verdict
        What the test sets say: `CONFIRMED` if the share is at least `DEFAULT_LEVEL`, or the level
        if that is smaller.
    is_expected
        Whether a probability is stated and the test sets do not contradict it.
    is_tested
        Whether it was put to a safety test; None if no setting was.
    at
        The values for which it was trained, if these are not those of the task.
    """

    group: gr.SeedGroup
    objective: gr.IntervalEstimate
    level: float | None
    share: float
    violations: Mapping[str, gr.IntervalEstimate]
    verdict: TestVerdict
    is_expected: bool
    is_tested: bool | None
    seems_satisfied: bool
    at: str = ""

    @classmethod
    def of(
        cls, ledger: Ledger, group: gr.SeedGroup, split: str, constraints: Sequence[str]
    ) -> Setting:
        """Return the setting of a group for a task that has these constraints."""
        tests = confidence_of_tests(ledger, group)
        found = [group.violation_sample(split, name, tests.get(name)) for name in constraints]
        samples = [each for each in found if each is not None]
        levels = [each.level for each in samples if each.level is not None]
        complete = len(samples) == len(found)
        share = math.prod(each.share for each in samples) if complete else 0.0
        expected = complete and bool(levels) and all(each.keeps_level for each in samples)
        level = min(levels, default=DEFAULT_LEVEL)
        required = min(level, DEFAULT_LEVEL)
        possible = complete and all(each.may_hold(required) for each in samples)
        means = {name: group.estimate(split, VIOLATION_PREFIX + name) for name in constraints}
        otherwise = TestVerdict.UNCLEAR if possible else TestVerdict.VIOLATED
        satisfied, _ = gr.count_satisfied([group], split)
        return cls(
            group,
            objective=group.estimate(split, OBJECTIVE),
            level=level if levels else None,
            share=share,
            violations=means,
            verdict=TestVerdict.CONFIRMED if share >= required else otherwise,
            is_expected=expected and (bool(tests) or share >= MIN_EXPECTED_SHARE),
            is_tested=is_tested(ledger, group),
            seems_satisfied=satisfied >= DEFAULT_LEVEL * group.ended,
        )

    @property
    def rank(self) -> tuple[bool | float, ...]:
        """A sort key: the objective if the constraints hold, otherwise how often they hold.

        Models that are no better than a constant come after settings that seem to satisfy the
        constraints. Settings with a safety test come before others, then those with a model in most
        trials.
        """
        constant = self.is_constant
        if not self.is_kept:
            means = [each.mean for each in self.violations.values()]
            worst = max((math.inf if mean is None else mean for mean in means), default=-math.inf)
            last = constant or not self.seems_satisfied
            return 3 if last else 1, -round(self.share, 1), worst
        return 2 * constant, self.is_tested is False, self.is_seldom, self.value, -self.share

    @property
    def is_kept(self) -> bool:
        """Whether constraints are expected or confirmed to hold, and most trials have a model."""
        holds = self.is_expected or self.verdict is TestVerdict.CONFIRMED
        return holds and 2 * self.objective.n >= self.group.ended

    @property
    def value(self) -> float:
        """The mean objective."""
        return self.objective.mean or 0.0

    @property
    def is_seldom(self) -> bool:
        """Whether too many trials have no model, or an undefined objective."""
        return self.objective.n < DEFAULT_LEVEL * self.group.ended

    @property
    def is_constant(self) -> bool:
        """Whether most of its models are no better than a constant decision."""
        return 2 * self.group.constants > self.objective.n

    @property
    def name(self) -> str:
        return f"{self.group.name} at {self.at}" if self.at else self.group.name


@dataclass(frozen=True)
class Answer:
    """The best setting of a task, or the closest if none satisfies its constraints.

    `task` has the values of the names that define the task. `baseline` is the best group there of
    an algorithm that ignores constraints, and `cost` the mean difference from its objective.
    `reason` says why an algorithm found no solution, if one did not.
    """

    task: Task
    best: Setting
    baseline: gr.SeedGroup | None
    cost: gr.IntervalEstimate
    reason: str

    @property
    def is_recommended(self) -> bool:
        """Whether the constraints should hold, and the models are better than a constant."""
        return self.best.is_kept and not self.best.is_constant


def answer_split(ledger: Ledger) -> str:
    return next((each for each in BEST_SPLITS if each in ledger.algorithms.splits), "")


def answers(ledger: Ledger, algorithm: str | None = None) -> list[Answer]:
    """Return the answer of each task, of all algorithms or only of one.

    The best setting has the lowest mean objective among those whose constraints are expected or
    confirmed to hold, see `Setting.rank`. A task is a point of the file's own sweep, together with
    the values of names used in constraints or the objective. Models trained for stricter limits
    also count.
    """
    return ledger.cached(("answers", algorithm), lambda: _answers(ledger, algorithm))


def goal_of(ledger: Ledger, at: Task | None = None) -> Task | None:
    """Return the task with the values `at`, by default the goal of the run's file.

    None if that is not one task.
    """
    goal = ledger.experiment.get("goal") or {} if at is None else at
    found = [task for task in planned_tasks(ledger) if has_values(task, goal)]
    return found[0] if len(found) == 1 else None


def goal_answers(ledger: Ledger) -> list[Answer]:
    """Return the answer of the goal, or without a goal that of each task."""
    goal = goal_of(ledger)
    return [each for each in answers(ledger) if goal in (None, each.task)]


def answer_of(ledger: Ledger, task: Task | None, algorithm: str | None = None) -> Answer | None:
    """Return the answer of a task, if some trial returned a model."""
    return next((each for each in answers(ledger, algorithm) if each.task == task), None)


def _answers(ledger: Ledger, algorithm: str | None) -> list[Answer]:
    split, tasks = answer_split(ledger), planned_tasks(ledger)
    means = (
        (each, each.estimate(split, OBJECTIVE).mean) for each in gr.main_groups(ledger.algorithms)
    )
    groups = [each for each, mean in means if mean is not None and not math.isnan(mean)]

    def settings_at(task: Task) -> list[Setting]:
        rules, here = _constraints_at(ledger, task), (g for g in groups if _is_at(g.point, task))
        return [Setting.of(ledger, each, split, rules) for each in here]

    own = list(map(settings_at, tasks))
    directions, found = _limit_directions(ledger), []
    for task, settings in zip(tasks, own, strict=True):
        stricter = [
            replace(each, at=st.format_point(limits))
            for other, others in zip(tasks, own, strict=True)
            if (limits := _stricter_limits(directions, task, other))
            for each in others
            if each.is_kept and limits.keys() <= each.group.point.keys()
        ]
        if algorithm is not None:
            stricter = [each for each in stricter if each.group.label == algorithm]
        ran = any(
            _is_at(trial.point, task) and ledger.status(trial) != NOT_RUN
            for trial in ledger.algorithms.plan
        )
        if ran and (settings or stricter):
            found.append(_answer(ledger, task, settings, stricter, algorithm))
    return [each for each in found if each]


def _limit_directions(ledger: Ledger) -> dict[str, Direction]:
    """Return which values of a swept name make all constraints stricter.

    Only names that have numbers, and that the objective does not use, are included.
    """
    rules = [parse_constraint(text) for text in ledger.constraints.values()]
    names = set(_task_names(ledger)) - goal_names(str(ledger.experiment.get(OBJECTIVE, "")))
    numbers = _swept_numbers(ledger.algorithms)
    known = names & numbers.keys()
    found = {name: [limit_direction(each, name, numbers) for each in rules] for name in known}
    return {name: reduce(Direction.and_, own, Direction.FIXED) for name, own in found.items()}


def metric_directions(ledger: Ledger) -> dict[str, Direction]:
    """Return the direction in which each metric improves."""
    numbers, metrics = _swept_numbers(ledger), ledger.experiment.get("metrics") or {}
    found = {name: direction(parse_expression(text), numbers) for name, text in metrics.items()}
    low = dict.fromkeys((OBJECTIVE, *FILTER_METRICS_TO_MINIMIZE), Direction.LOW)
    return found | low | dict.fromkeys((SOLUTION_RATE, LEAST_SHARE_METRIC), Direction.HIGH)


def _swept_numbers(ledger: Ledger) -> dict[str, Interval]:
    """Return the smallest and the largest number of each swept name that has numbers."""
    return number_ranges({name: ledger.swept(name) for name in ledger.sweep})


def best_means(
    ledger: Ledger, groups: Sequence[gr.SeedGroup], split: str, metrics: Iterable[str]
) -> set[tuple[int, str]]:
    """Return (position of a group, metric) where its mean is the best of a task, or equal to it.

    Groups are compared if every trial returned a model and no mean violation is above 0. A metric
    without a known direction and a task with a single group have no best.
    """
    better, found = metric_directions(ledger), set[tuple[int, str]]()
    directed = {each: CHOICES[better[each]] for each in metrics if better.get(each) in CHOICES}
    for task, seed in itertools.product(planned_tasks(ledger), {each.seed for each in groups}):
        own = [k for k, each in enumerate(groups) if each.seed == seed and _is_at(each.point, task)]
        limits = [VIOLATION_PREFIX + name for name in _constraints_at(ledger, task)]
        kept = [k for k in own if _satisfies(groups[k], split, limits)] if len(own) > 1 else []
        for metric, choose in directed.items():
            means = {k: groups[k].estimate(split, metric).mean for k in kept}
            known = {k: mean for k, mean in means.items() if mean is not None}
            best = choose(known.values(), default=math.nan)
            found |= {(k, metric) for k, mean in known.items() if mean == best}
    return found


def _satisfies(group: gr.SeedGroup, split: str, violations: Iterable[str]) -> bool:
    """Whether every trial returned a model, and the mean violations are at most 0."""
    means = [group.estimate(split, each).mean for each in violations]
    violated = any(mean is None or rc.is_violated(mean) for mean in means)
    return group.solved == group.ended and not violated


def _stricter_limits(directions: Mapping[str, Direction], task: Task, other: Task) -> Task:
    """Return the values in which another task differs if all are stricter limits, else none."""
    changed = {name: value for name, value in other.items() if value != task[name]}
    for name, limit in changed.items():
        if not all(isinstance(each, int | float) for each in (limit, task[name])):
            return {}
        if directions.get(name) is not (Direction.HIGH if limit > task[name] else Direction.LOW):
            return {}
    return changed


def _task_names(ledger: Ledger) -> list[str]:
    """Return the names of the sweep whose values define a task."""
    objective = str(ledger.experiment.get(OBJECTIVE, ""))
    names = goal_names(objective, ledger.constraints.values())
    names |= set(ledger.experiment.get("sweep") or ())
    return [name for name in ledger.algorithms.sweep if name in names]


def planned_tasks(ledger: Ledger) -> list[Task]:
    """Return the values that define each task; None for a name that has no value there.

    1 and 1.0 define the same task. Trials without a value of a name that others sweep belong to the
    tasks of these.
    """
    names, found = _task_names(ledger), dict[frozenset[Any], Task]()
    for trial in ledger.algorithms.plan:
        own = {name: trial.point[name] for name in names if name in trial.point}
        key = frozenset((name, value_identity(value)) for name, value in own.items())
        found.setdefault(key, {name: own.get(name) for name in names})
    most = max(map(len, found), default=0)
    return [
        task
        for key, task in found.items()
        if len(key) == most or not any(key < other for other in found)
    ]


def _is_at(point: Mapping[str, Any], task: Task) -> bool:
    """Whether a sweep point has the values of a task, or no value of its names."""
    return has_values(task, {name: point[name] for name in task if name in point})


def _constraints_at(ledger: Ledger, task: Task) -> list[str]:
    """Return the constraints whose names all have a value in a task."""
    missing = {name for name, value in task.items() if value is None}
    return [
        name
        for name in applied_constraints(ledger.constraints, task)
        if not missing & goal_names(constraints=[ledger.constraints[name]])
    ]


def unsolved_tasks(ledger: Ledger) -> list[tuple[Task, str]]:
    """Return the tasks for which no trial returned a model, and why one did not."""
    solved = [answer.task for answer in answers(ledger)]
    tasks = (each for each in planned_tasks(ledger) if each not in solved)
    left = [(task, unsolved_reason(ledger, task)) for task in tasks]
    return [(task, reason) for task, reason in left if reason]


def _answer(
    ledger: Ledger,
    task: Task,
    settings: Sequence[Setting],
    stricter: Sequence[Setting],
    algorithm: str | None,
) -> Answer | None:
    """Return the answer of a task, of all algorithms or only of one; None without a model."""
    split = answer_split(ledger)
    candidates = [each for each in settings if algorithm in {None, each.group.label}]
    own = min(candidates, key=lambda each: each.rank, default=None)
    others = [  # slightly smaller objectives are rounding errors
        each
        for each in stricter
        if own is None or each.rank[:-2] < own.rank[:-2] or not is_no_better(each.value, own.value)
    ]
    if own is None and not others:
        return None
    best = min([*([own] if own else []), *others], key=lambda each: each.rank)
    ignoring = ignoring_labels(ledger)
    free = [each.group for each in settings if each.group.label in ignoring]
    baseline = min(
        free,
        key=lambda each: (ignoring[each.label], each.estimate(split, OBJECTIVE).mean),
        default=None,
    )
    cost = gr.NO_ESTIMATE
    if baseline and baseline is not best.group and ledger.constraints:
        cost = _difference(best.group, baseline, split)
    return Answer(task, best, baseline, cost, unsolved_reason(ledger, task))


def unsolved_reason(ledger: Ledger, task: Task) -> str:
    """Return why an algorithm found no solution of a task or failed; "" if none did."""
    unsolved = (
        f"{trial.label}, seed {trial.seed}: {ledger.reason(trial)}"
        for trial in ledger.algorithms.plan
        if ledger.status(trial) in rc.UNSOLVED_STATUSES | rc.FAILED_STATUSES
        and _is_at(trial.point, task)
    )
    return next(unsolved, "")


def ignoring_labels(ledger: Ledger) -> dict[str, bool]:
    """Return labels of algorithms that ignore constraints; `unconstrained` has the value False."""
    known = all_algorithms()
    return {
        trial.label: trial.algorithm != "unconstrained"
        for trial in ledger.algorithms.plan
        if trial.algorithm in known and solver_class(trial.algorithm).role == "ignores"
    }


def _difference(group: gr.SeedGroup, other: gr.SeedGroup, split: str) -> gr.IntervalEstimate:
    """Return the mean difference of objectives over seeds that have both."""
    own, others = (
        {each.ledger.plan[at].seed: value for at, value in each.values(split, OBJECTIVE).items()}
        for each in (group, other)
    )
    pairs = ((own[seed], others[seed]) for seed in own.keys() & others.keys())
    differences = (0.0 if math.isclose(a, b) else a - b for a, b in pairs)
    return gr.estimate_mean(differences, group.fold_overlap)
