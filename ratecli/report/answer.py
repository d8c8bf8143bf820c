"""The answer of a report: the best setting of each task that satisfies all constraints."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ratecli.experiment.options import solver_class
from ratecli.ledger.records import (
    FAILED_STATUSES,
    UNSOLVED_STATUSES,
    VIOLATION_PREFIX,
    is_no_better,
)
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import confidence_of_tests, is_tested
from ratecli.report.groups import (
    NO_ESTIMATE,
    IntervalEstimate,
    SeedGroup,
    count_satisfied,
    estimate_mean,
    group_by,
    seed_groups,
)
from ratecli.report.sheet import (
    format_point,
    format_scalar,
)
from ratecli.solvers.margin import DEFAULT_LEVEL
from ratecli.solvers.registry import all_algorithms

OBJECTIVE = "objective"
BEST_SPLITS = ("test", "validation", "train")
"""The first of these splits that was measured is used to find the best model."""
MIN_STATED_SHARE = 0.5
"""Minimum estimated share of trials in which the constraints of a setting with a stated probability
hold.
"""
LIMIT = re.compile(r".*(?P<sign>[<>]=)\s*(?P<name>\w+)\s*", re.DOTALL)
"""A constraint whose limit is a single name, such as `recall >= r`."""


@dataclass(frozen=True)
class Candidate:
    """A group that may be the best of its task.

    Attributes
    ----------
    share
        Estimate of how often all constraints hold, 0 if one was not measured.
    violation
        The mean violation of the worst constraint, NaN if one was not measured.
    level
        The probability with which constraints should hold, None if not stated.
    is_kept
        Whether constraints hold often enough, and in enough trials with a model.
    may_hold
        Whether test sets do not contradict that constraints hold in `DEFAULT_LEVEL` of all trials.
    is_tested
        Whether it was put to a safety test; None if no setting was.
    at
        The values for which it was trained, if these are not those of the task.
    """

    group: SeedGroup
    objective: IntervalEstimate
    share: float
    violation: float
    level: float | None
    is_kept: bool
    may_hold: bool
    is_tested: bool | None
    at: str = ""

    @classmethod
    def of(cls, ledger: Ledger, group: SeedGroup, split: str) -> Candidate:
        objective, constraints = group.estimate(split, OBJECTIVE), list(ledger.constraints)
        tests = confidence_of_tests(ledger, group)
        found = [group.violation_sample(split, name, tests.get(name)) for name in constraints]
        samples = [each for each in found if each is not None]
        means = [group.estimate(split, VIOLATION_PREFIX + name).mean for name in constraints]
        violation = float(np.max(np.array(means, dtype=float), initial=-math.inf))
        levels = [each.level for each in samples if each.level is not None]
        complete = len(samples) == len(found)
        share = math.prod(each.share for each in samples) if complete else 0.0
        stated = complete and bool(levels) and all(each.keeps_level for each in samples)
        stated &= bool(tests) or share >= MIN_STATED_SHARE
        answered = 2 * objective.n >= group.ended
        is_kept = answered and (share >= DEFAULT_LEVEL or stated)
        possible = complete and all(each.may_hold(DEFAULT_LEVEL) for each in samples)
        level, tested = min(levels, default=None), is_tested(ledger, group)
        return cls(group, objective, share, violation, level, is_kept, possible, tested)

    @property
    def rank(self) -> tuple[tuple[bool, ...], float, float]:
        """Order by objective if constraints hold often enough, else by how often they do.

        Settings with a safety test come before others, those with a model in most trials before
        others, settings that are measured to hold before those that `holds` only promises (unless
        they passed a safety test), and models that are no better than a constant come last.
        """
        if not self.is_kept:
            violation = float(np.nan_to_num(self.violation, nan=math.inf))
            return (True,), -round(self.share, 1), violation
        only_stated = not (self.is_measured or self.is_tested)
        flaws = self.is_constant, self.is_tested is False, self.is_seldom, only_stated
        return (False, *flaws), self.value, -self.share

    @property
    def value(self) -> float:
        """The mean objective."""
        return self.objective.mean or 0.0

    @property
    def is_measured(self) -> bool:
        """Whether constraints hold often enough by the test sets, not only by `holds`."""
        return self.share >= DEFAULT_LEVEL

    @property
    def is_uncertain(self) -> bool:
        """Whether constraints may hold often enough, although that is not confirmed."""
        return self.may_hold and not self.is_kept and not self.is_seldom

    @property
    def is_seldom(self) -> bool:
        """Whether too many trials have no model, or an undefined objective."""
        return self.objective.n < DEFAULT_LEVEL * self.group.ended

    @property
    def is_constant(self) -> bool:
        """Whether most of its models are no better than a constant decision."""
        return 2 * self.group.constants > self.objective.n

    def seems_satisfied(self, split: str) -> bool:
        """Whether most trials have a model that satisfies the constraints and beats a constant."""
        satisfied, _ = count_satisfied([self.group], split)
        return satisfied >= DEFAULT_LEVEL * self.group.ended and not self.is_constant

    @property
    def missing(self) -> int:
        """Number of trials without a model."""
        return self.group.ended - sum(each.numbers is not None for each in self.group.outcomes)

    @property
    def name(self) -> str:
        return f"{self.group.name} at {self.at}" if self.at else self.group.name

    def flaw(self, best: Candidate) -> str:
        """Return why another setting comes before this one, which has a smaller objective."""
        if self.is_constant:
            return "no better than the same decision for everyone"
        if best.is_tested and not self.is_tested:
            return "not put to a safety test"
        if self.is_kept and self.is_seldom and not best.is_seldom:
            lacking = self.group.ended - self.objective.n
            what = "no model" if self.missing else "undefined objective"
            return f"{what} in {lacking} of {self.group.ended} trials"
        often = f"in an estimated {self.share:.0%} of trials"
        if self.group.ended == 1:
            often = f"with an estimated probability of {self.share:.0%}"
        return f"not confirmed: the constraints hold {often}"


@dataclass(frozen=True)
class Answer:
    """The best candidate of a task, or the closest if none satisfies its constraints.

    `task` has the values of the names that define the task. `baseline` is the best group there of
    an algorithm that ignores constraints, and `cost` the mean difference from its objective.
    `rivals` have smaller objectives, the smallest first, and seem to satisfy the constraints, but
    have flaws (see `Candidate.flaw`). `only_constant` is true if constraints are known to hold for
    nothing better than a constant decision. `reason` says why an algorithm found no solution, if
    one did not.
    """

    task: Mapping[str, Any]
    best: Candidate
    rivals: Sequence[Candidate]
    only_constant: bool
    baseline: SeedGroup | None
    cost: IntervalEstimate
    reason: str

    @property
    def is_uncertain(self) -> bool:
        """Whether the best may satisfy the constraints, although that is not confirmed."""
        return self.only_constant or self.best.is_uncertain


def answer_split(ledger: Ledger) -> str:
    return next((each for each in BEST_SPLITS if each in ledger.algorithms.splits), "")


def answers(ledger: Ledger) -> list[Answer]:
    """Return the answer of each task.

    The best has the lowest mean objective among the groups whose constraints hold in a share of the
    trials of at least `DEFAULT_LEVEL`; if there are none, among those that should hold with a
    stated probability which the test sets do not contradict. Settings with a safety test come
    before others, then those with a model in a share of `DEFAULT_LEVEL`; it is at least half. One
    that is no better than a constant comes after a cheaper one that satisfies the constraints but
    is not confirmed. If there is none, the one whose constraints hold most often counts as best. A
    task is a point of the file's own sweep, together with the values of names used in constraints
    or the objective. Models trained for stricter limits also count.
    """
    return ledger.cached("answers", lambda: _answers(ledger))


def _answers(ledger: Ledger) -> list[Answer]:
    split, names = answer_split(ledger), _task_names(ledger)
    means = (
        (each, each.estimate(split, OBJECTIVE).mean) for each in seed_groups(ledger.algorithms)
    )
    candidates = (
        Candidate.of(ledger, each, split)
        for each, mean in means
        if mean is not None and not math.isnan(mean)
    )
    tasks = group_by(candidates, lambda each: _task_key(names, each.group.point))
    signs, found = _limit_signs(ledger, names), list[Answer]()
    for key, task in _planned_tasks(ledger, names).items():
        own = tasks.get(key, [])
        stricter = _from_stricter_tasks(signs, task, tasks.values())
        if own or stricter:
            found.append(_answer(ledger, split, task, own, stricter))
    return found


def _limit_signs(ledger: Ledger, names: Sequence[str]) -> dict[str, str]:
    """Return the names that are only limits of constraints, each with the sign before it.

    Such a name stands alone behind the <= or >= of a constraint, and nowhere else.
    """
    signs = dict[str, str]()
    for rule in (str(ledger.experiment.get(OBJECTIVE, "")), *ledger.constraints.values()):
        found, words = LIMIT.fullmatch(rule), re.findall(r"\w+", rule)
        for name in set(names).intersection(words):
            alone = found is not None and found["name"] == name and words.count(name) == 1
            sign = found["sign"] if found is not None and alone else ""
            signs[name] = sign if signs.get(name, sign) == sign else ""
    return {name: sign for name, sign in signs.items() if sign}


def _from_stricter_tasks(
    signs: Mapping[str, str], task: Mapping[str, Any], tasks: Iterable[Sequence[Candidate]]
) -> list[Candidate]:
    """Return the candidates of tasks with stricter limits that satisfy them.

    All values in which such a task differs must be limits that are stricter.
    """

    def is_stricter(name: str, limit: Any) -> bool:
        pair = limit, task[name]
        if name not in signs or not all(isinstance(each, int | float) for each in pair):
            return False
        return bool(limit > task[name] if signs[name] == ">=" else limit < task[name])

    found = []
    for others in tasks:
        point = others[0].group.point
        changed = {name: point.get(name) for name in task if point.get(name) != task[name]}
        if changed and all(is_stricter(*each) for each in changed.items()):
            at = format_point(changed)
            found += [replace(each, at=at) for each in others if each.is_kept]
    return found


def _task_names(ledger: Ledger) -> list[str]:
    """Return the names of the sweep whose values define a task."""
    rules = [str(ledger.experiment.get(OBJECTIVE, "")), *ledger.constraints.values()]
    words = set(re.findall(r"\w+", " ".join(rules))) | set(ledger.experiment.get("sweep") or ())
    return [name for name in ledger.algorithms.sweep if name in words]


def _task_key(names: Sequence[str], point: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of a task as displayed: 1 and 1.0 define the same task."""
    return tuple(format_scalar(point.get(name)) for name in names)


def _planned_tasks(ledger: Ledger, names: Sequence[str]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the values that define each task, by its key."""
    points = [trial.point for trial in ledger.algorithms.plan]
    return {_task_key(names, point): {name: point.get(name) for name in names} for point in points}


def unsolved_tasks(ledger: Ledger) -> list[tuple[Mapping[str, Any], str]]:
    """Return the tasks for which no trial returned a model, and why one did not."""
    names, solved = _task_names(ledger), answers(ledger)
    known = {_task_key(names, answer.task) for answer in solved}
    tasks = _planned_tasks(ledger, names)
    left = [
        (task, unsolved_reason(ledger, task)) for key, task in tasks.items() if key not in known
    ]
    return [(task, reason) for task, reason in left if reason]


def _answer(
    ledger: Ledger,
    split: str,
    task: Mapping[str, Any],
    candidates: Sequence[Candidate],
    stricter: Sequence[Candidate],
) -> Answer:
    own = min(candidates, key=lambda each: each.rank, default=None)
    others = (  # slightly smaller objectives are rounding errors
        each
        for each in stricter
        if own is None or each.rank[0] < own.rank[0] or not is_no_better(each.value, own.value)
    )
    best = min([*([own] if own else []), *others], key=lambda each: each.rank)
    smaller = (
        each for each in candidates if best.is_kept and not is_no_better(each.value, best.value)
    )
    found = [each for each in smaller if each.is_kept or each.seems_satisfied(split)]
    rivals = sorted(found, key=lambda each: each.value)
    better = [each for each in rivals if best.is_constant and not each.is_constant]
    if better:  # none of these is kept, or it would be the best
        best, rivals = better[0], []
    ignoring = _ignoring(ledger)
    free = [each.group for each in candidates if each.group.label in ignoring]
    baseline = min(
        free,
        key=lambda each: (ignoring[each.label], each.estimate(split, OBJECTIVE).mean),
        default=None,
    )
    cost = NO_ESTIMATE
    if baseline and ledger.constraints:
        cost = _difference(best.group, baseline, split)
    reason = unsolved_reason(ledger, task)
    return Answer(task, best, rivals, bool(better), baseline, cost, reason)


def unsolved_reason(ledger: Ledger, task: Mapping[str, Any]) -> str:
    """Return why an algorithm found no solution of a task or failed; "" if none did."""
    unsolved = (
        f"{trial.label}, seed {trial.seed}: {ledger.reason(trial)}"
        for trial in ledger.algorithms.plan
        if ledger.status(trial) in UNSOLVED_STATUSES | FAILED_STATUSES
        and all(trial.point.get(name) == value for name, value in task.items())
    )
    return next(unsolved, "")


def _ignoring(ledger: Ledger) -> dict[str, bool]:
    """Return labels of algorithms that ignore constraints; `unconstrained` has the value False."""
    known = all_algorithms()
    return {
        trial.label: trial.algorithm != "unconstrained"
        for trial in ledger.algorithms.plan
        if trial.algorithm in known and solver_class(trial.algorithm).role == "ignores"
    }


def _difference(group: SeedGroup, other: SeedGroup, split: str) -> IntervalEstimate:
    """Return the mean difference of objectives over seeds."""
    if len(group.outcomes) != len(other.outcomes):
        return NO_ESTIMATE
    place = split, OBJECTIVE
    pairs = zip(group.outcomes, other.outcomes, strict=True)
    both = [
        (a.numbers[place], b.numbers[place])
        for a, b in pairs
        if a.numbers and b.numbers and place in a.numbers and place in b.numbers
    ]
    return estimate_mean(0.0 if math.isclose(a, b) else a - b for a, b in both)
