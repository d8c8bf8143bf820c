"""The answer of a report: the best setting of each task that satisfies all constraints.

It is a value, a table, and sentences whose text is in `page/answer.j2`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from ratecli.config.sweep import has_values, value_identity
from ratecli.experiment.entries import solver_class
from ratecli.files import REPORT_FILE
from ratecli.ledger import records as rc
from ratecli.ledger.records import OBJECTIVE, VIOLATION_PREFIX, is_no_better
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.rates.analysis import Shape
from ratecli.rates.functions import Interval
from ratecli.rates.metrics import Direction, goal_names, limit_direction
from ratecli.rates.parser import parse_constraint
from ratecli.report import groups as gr
from ratecli.report import sheet as st
from ratecli.report.certificates import certified_seeds, confidence_of_tests, is_tested
from ratecli.report.templates import environment, note
from ratecli.solvers.margin import DEFAULT_LEVEL
from ratecli.solvers.registry import all_algorithms

BEST_SPLITS = ("test", "validation", "train")
"""The first of these splits that was measured is used to find the best model."""
MIN_STATED_SHARE = 0.5
"""Minimum estimated share of trials in which the constraints of a setting with a stated probability
hold.
"""
Task = Mapping[str, Any]
"""The values of the names that define a task."""


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

    group: gr.SeedGroup
    objective: gr.IntervalEstimate
    share: float
    violation: float
    level: float | None
    is_kept: bool
    may_hold: bool
    is_tested: bool | None
    at: str = ""

    @classmethod
    def of(
        cls, ledger: Ledger, group: gr.SeedGroup, split: str, constraints: Sequence[str]
    ) -> Candidate:
        """Return a group as a candidate of a task that has these constraints."""
        objective = group.estimate(split, OBJECTIVE)
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
        satisfied, _ = gr.count_satisfied([self.group], split)
        return satisfied >= DEFAULT_LEVEL * self.group.ended and not self.is_constant

    @property
    def missing(self) -> int:
        """Number of trials without a model."""
        return self.group.ended - self.group.solved

    @property
    def name(self) -> str:
        return f"{self.group.name} at {self.at}" if self.at else self.group.name

    @property
    def how_often(self) -> str:
        if self.group.ended == 1:
            return f"with an estimated probability of {self.share:.0%}"
        return f"in an estimated {self.share:.0%} of trials"

    def flaw(self, best: Candidate) -> str:
        """Return why another setting comes before this one, which has a smaller objective."""
        if self.is_constant:
            return "no better than a constant decision"
        if best.is_tested and not self.is_tested:
            return "not put to a safety test"
        if self.is_kept and self.is_seldom and not best.is_seldom:
            lacking = self.group.ended - self.objective.n
            what = "no model" if self.missing else "undefined objective"
            return f"{what} in {lacking} of {self.group.ended} trials"
        return f"not confirmed: the constraints hold {self.how_often}"


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

    task: Task
    best: Candidate
    rivals: Sequence[Candidate]
    only_constant: bool
    baseline: gr.SeedGroup | None
    cost: gr.IntervalEstimate
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
    split, tasks = answer_split(ledger), _planned_tasks(ledger)
    means = (
        (each, each.estimate(split, OBJECTIVE).mean) for each in gr.seed_groups(ledger.algorithms)
    )
    mains = {(each.label, gr.main_variant(ledger, each)) for each in ledger.algorithms.plan}
    groups = [
        each
        for each, mean in means
        if mean is not None and not math.isnan(mean) and (each.label, each.variant) in mains
    ]
    own = [
        [
            Candidate.of(ledger, each, split, _constraints_at(ledger, task))
            for each in groups
            if _is_at(each.point, task)
        ]
        for task in tasks
    ]
    directions, found = _limit_directions(ledger), []
    for task, candidates in zip(tasks, own, strict=True):
        stricter = [
            replace(each, at=st.format_point(limits))
            for other, others in zip(tasks, own, strict=True)
            if (limits := _stricter_limits(directions, task, other))
            for each in others
            if each.is_kept and limits.keys() <= each.group.point.keys()
        ]
        if candidates or stricter:
            found.append(_answer(ledger, split, task, candidates, stricter))
    return found


def _limit_directions(ledger: Ledger) -> dict[str, Direction]:
    """Return which values of a swept name make all constraints stricter.

    Only names that have numbers, and that the objective does not use, are included.
    """
    rules = [parse_constraint(text) for text in ledger.constraints.values()]
    numbers = dict[str, Interval]()
    for name in set(_task_names(ledger)) - goal_names(str(ledger.experiment.get(OBJECTIVE, ""))):
        values = (trial.point.get(name) for trial in ledger.algorithms.plan)
        known = [each for each in values if isinstance(each, int | float)]
        if known:
            numbers[name] = min(known), max(known)
    return {
        name: reduce(
            Direction.and_,
            (limit_direction(each, name, numbers) for each in rules),
            Direction.FIXED,
        )
        for name in numbers
    }


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


def _planned_tasks(ledger: Ledger) -> list[Task]:
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
        for name, text in ledger.constraints.items()
        if not missing & goal_names(constraints=[text])
    ]


def unsolved_tasks(ledger: Ledger) -> list[tuple[Task, str]]:
    """Return the tasks for which no trial returned a model, and why one did not."""
    solved = [answer.task for answer in answers(ledger)]
    tasks = (each for each in _planned_tasks(ledger) if each not in solved)
    left = [(task, unsolved_reason(ledger, task)) for task in tasks]
    return [(task, reason) for task, reason in left if reason]


def _answer(
    ledger: Ledger,
    split: str,
    task: Task,
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
    cost = gr.NO_ESTIMATE
    if baseline and ledger.constraints:
        cost = _difference(best.group, baseline, split)
    reason = unsolved_reason(ledger, task)
    return Answer(task, best, rivals, bool(better), baseline, cost, reason)


def unsolved_reason(ledger: Ledger, task: Task) -> str:
    """Return why an algorithm found no solution of a task or failed; "" if none did."""
    unsolved = (
        f"{trial.label}, seed {trial.seed}: {ledger.reason(trial)}"
        for trial in ledger.algorithms.plan
        if ledger.status(trial) in rc.UNSOLVED_STATUSES | rc.FAILED_STATUSES
        and _is_at(trial.point, task)
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


def _difference(group: gr.SeedGroup, other: gr.SeedGroup, split: str) -> gr.IntervalEstimate:
    """Return the mean difference of objectives over seeds that have both."""
    own, others = (
        {each.ledger.plan[at].seed: value for at, value in each.values(split, OBJECTIVE).items()}
        for each in (group, other)
    )
    pairs = ((own[seed], others[seed]) for seed in own.keys() & others.keys())
    return gr.estimate_mean(0.0 if math.isclose(a, b) else a - b for a, b in pairs)


SPLIT_WORDS = {"test": "new rows (test set)", "train": "training rows"}
MAX_SENTENCES = 12
"""Maximum number of sentences about tasks."""
MAX_NAMED = 3
"""More constraints, or settings that are not chosen, are counted instead of named."""


def best_sheet(ledger: Ledger) -> st.Sheet:
    """Return a row for each answer."""
    split, found = answer_split(ledger), answers(ledger)
    text = note(
        "best",
        shown=ShownObjective.of(ledger),
        split=split,
        constraints=ledger.constraints,
        level=f"{DEFAULT_LEVEL:.0%}",
    )
    rows = [_best_row(ledger, each, split) for each in found]
    for task, reason in unsolved_tasks(ledger):
        rows.append(
            [*task.items(), ("best", st.SheetCell("none: no model", tone="bad", more=reason))]
        )
    return st.make_sheet(f"Best results ({split})", rows, text)


def _best_row(ledger: Ledger, answer: Answer, split: str) -> st.SheetRow:
    best, point = answer.best, answer.best.group.point
    none = st.SheetCell(f"none (closest: {best.name})", tone="bad", more=answer.reason)
    row: list[tuple[str, Any]] = list(answer.task.items())
    row.append(("best", _best_cell(best) if best.is_kept else none))
    if others := [each for each in ledger.sweep if each not in answer.task]:
        row.append(("at", st.format_point({each: point[each] for each in others if each in point})))
    shown = ShownObjective.of(ledger)
    row.append((shown.name, st.estimate_cell(shown.estimate(best.objective), best.objective.n)))
    if not ledger.constraints:
        return [*row, ("n", best.objective.n)]
    if any(each.baseline for each in answers(ledger)):
        cost = answer.cost if best.is_kept else gr.NO_ESTIMATE
        row.append(("cost", st.estimate_cell(shown.estimate(cost), best.objective.n)))
    stated = "" if best.level is None else f" (stated: {best.level:.3g})"
    tone = "good" if best.is_measured else "" if best.is_kept else "bad"
    satisfied = st.satisfied_cell([best.group], split)
    if best.missing:
        satisfied = replace(satisfied, text=f"{satisfied.text} (no model in {best.missing} more)")
    return [
        *row,
        ("holds in", st.SheetCell(f"{best.share:.2f}{stated}", best.share, tone)),
        ("satisfied in", satisfied),
    ]


def _best_cell(best: Candidate) -> st.SheetCell:
    if best.is_constant:
        return st.SheetCell(f"{best.name}, no better than a constant", tone="bad")
    return st.SheetCell(best.name)


def incomplete_notes(ledger: Ledger) -> list[str]:
    """Return a sentence if only a part of the planned trials have run."""
    missing = sum(ledger.status(trial) == NOT_RUN for trial in ledger.plan)
    if not missing:
        return []
    ran = len(ledger.plan) - missing
    why = "a smoke run" if ledger.meta.get("left_out") else "an unfinished run"
    return [f"Results of {why}: {ran:,} of {len(ledger.plan):,} planned trials have run."]


def answer_sentences(
    ledger: Ledger, *, most: int = MAX_SENTENCES, reasons: bool = True
) -> list[str]:
    """Return the answer in words: an overview of several tasks, then at most `most` sentences.

    With `reasons`, sentences end with the reason why an algorithm found no solution. The text is in
    `page/answer.j2`.
    """
    found, unsolved = answers(ledger), unsolved_tasks(ledger)
    if not found:
        reason = unsolved_reason(ledger, {})
        if not reason:
            return ["No trial has results yet."]
        return [f"No trial returned a model.{f' {reason}.' * reasons}"]
    total = len(found) + len(unsolved)
    macros: Any = environment(True).get_template("answer.j2").make_module(_words(ledger, total))
    shown = found if reasons else [replace(answer, reason="") for answer in found]
    pairs = [(each.task, " ".join(macros.sentence(each).split())) for each in shown]
    pairs += [(task, f"no trial returned a model.{f' {why}.' * reasons}") for task, why in unsolved]
    each = []
    for sentence, same in gr.group_by(pairs, lambda pair: pair[1]).items():
        points = _points([task for task, _ in same])
        each.append(f"{points}: {sentence}" if points else sentence)
    if total == 1:
        return each
    more = [f"... {len(each) - most} more in {REPORT_FILE}."] * (len(each) > most)
    return [" ".join(macros.overview().split()), *each[:most], *more]


def _points(tasks: Sequence[Mapping[str, Any]]) -> str:
    """Return the values of tasks with the same names, such as `kappa = 1, 2`."""
    names = list(tasks[0])
    if len(names) != 1:
        return "; ".join(map(st.format_point, tasks))
    return f"{names[0]} = {', '.join(st.format_scalar(task[names[0]]) for task in tasks)}"


def _words(ledger: Ledger, total: int) -> dict[str, Any]:
    """Return the values and functions that the sentences about `total` tasks use."""
    found, split, shown = answers(ledger), answer_split(ledger), ShownObjective.of(ledger)
    kept = [answer for answer in found if answer.best.is_kept]
    rows, rules = SPLIT_WORDS.get(split, f"{split} rows"), list(ledger.constraints)
    means = [mean for each in kept if (mean := shown.estimate(each.cost).mean) is not None]
    entries = [
        each for entry in ledger.experiment.get("algorithms") or () for each in entry.values()
    ]
    holds = {each.get("holds") for each in (ledger.experiment, *entries)}
    # filters know training rows alone
    able = any(ledger.classes.get(name) != Shape.DISCLOSURE for name in rules)
    named = " and ".join(rules) if len(rules) <= MAX_NAMED else f"all {len(rules)} constraints"

    def estimate(value: gr.IntervalEstimate) -> str:
        return st.estimate_cell(shown.estimate(value)).text

    def amount(answer: Answer) -> str:
        cost = shown.estimate(answer.cost).mean
        text = estimate(answer.best.objective)
        if cost is not None and answer.baseline and answer.baseline is not answer.best.group:
            text += f" ({st.format_signed(cost)} against {answer.baseline.label})"
        return text

    def than_constant(best: Candidate) -> str:
        """Return by how much a constant decision is better, and why it does not count."""
        constant, group = best.group.best_constant, best.group
        known = ((each.info.get(rc.CONSTANT_NAME_KEY) or {}).get("test") for each in group.results)
        name = " or ".join(dict.fromkeys(filter(None, known))) or "a constant decision"
        if constant.mean is None or is_no_better(constant.mean, best.value):
            return f"no better than {name}"
        worse = st.format_number(best.value - constant.mean)
        text = f"worse than {name} by {worse} ({shown.name} {estimate(constant)})"
        trials = (rc.undefined_constraints(t, ledger.results.get(t.key)) for t in group.trials)
        undefined = list(dict.fromkeys(itertools.chain(*trials)))
        return f"{text}. There, {rc.undefined_text(undefined)}" if undefined else text

    return {
        "found": found,
        "kept": kept,
        "total": total,
        "names": list(found[0].task),
        "constraints": rules,
        "rules": named,
        "rows": rows,
        "shown": shown,
        "level": f"{DEFAULT_LEVEL:.0%}",
        "default_level": DEFAULT_LEVEL,
        "may_hold": able and "new_rows" not in holds,
        "costs": list(dict.fromkeys(map(st.format_signed, (min(means), max(means)))))
        if means
        else [],
        "some_costs": len(means) < len(kept),
        "baselines": list(dict.fromkeys(each.baseline.label for each in kept if each.baseline)),
        "estimate": estimate,
        "amount": amount,
        "than_constant": than_constant,
        "satisfied_in": lambda group: gr.count_satisfied([group], split)[0],
        "certified": lambda group: certified_seeds(ledger, group),
    }


@dataclass(frozen=True)
class ShownObjective:
    """The objective in words: `-value(profit)` is to be minimized, so `value(profit)` is shown."""

    name: str
    maximized: bool

    @classmethod
    def of(cls, ledger: Ledger) -> ShownObjective:
        text = str(ledger.experiment.get(OBJECTIVE, ""))
        found = re.fullmatch(r"(-?)\s*(\w+(?:\(\w+\))?)", text)
        return cls(found[2], bool(found[1])) if found else cls(OBJECTIVE, maximized=False)

    @property
    def best(self) -> str:
        return f"{'highest' if self.maximized else 'lowest'} mean {self.name}"

    def estimate(self, found: gr.IntervalEstimate) -> gr.IntervalEstimate:
        """Return an estimate of the objective, or of its change, with the sign that is shown."""
        return found.negated() if self.maximized else found
