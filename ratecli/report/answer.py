"""The answer of a report: the best setting of each task that satisfies all constraints."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ratecli.experiment.options import solver_class
from ratecli.ledger.records import UNSOLVED_STATUSES, VIOLATION_PREFIX, is_no_better
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.report.certificates import certified_seeds, confidence_of_tests, is_tested
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
    Sheet,
    SheetCell,
    SheetRow,
    estimate_cell,
    format_point,
    format_scalar,
    format_signed,
    make_sheet,
    satisfied_cell,
)
from ratecli.solvers.margin import DEFAULT_LEVEL
from ratecli.solvers.registry import all_algorithms

OBJECTIVE = "objective"
BEST_SPLITS = ("test", "validation", "train")
"""The first of these splits that was measured is used to find the best model."""
SPLIT_WORDS = {"test": "new rows (test set)", "train": "training rows"}
MAX_SENTENCES = 12
"""Maximum number of sentences about tasks."""
MIN_STATED_SHARE = 0.5
"""Minimum estimated share of trials in which the constraints of a setting with a stated probability
hold.
"""
MAX_NAMED = 3
"""More constraints are counted instead of named."""
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
        possible = complete and objective.n >= DEFAULT_LEVEL * group.ended
        possible = possible and all(each.may_hold(DEFAULT_LEVEL) for each in samples)
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
            return (True,), -self.share, float(np.nan_to_num(self.violation, nan=math.inf))
        seldom = self.objective.n < DEFAULT_LEVEL * self.group.ended
        only_stated = not (self.is_measured or self.is_tested)
        flaws = self.is_constant, self.is_tested is False, seldom, only_stated
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
        return self.may_hold and not self.is_kept

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


@dataclass(frozen=True)
class Answer:
    """The best candidate of a task, or the closest if none satisfies its constraints.

    `task` has the values of the names that define the task. `baseline` is the best group there of
    an algorithm that ignores constraints, and `cost` the mean difference from its objective.
    `rival` is a cheaper candidate whose constraints are satisfied in as many trials, although the
    test sets are too small to confirm that they hold. `only_constant` is true if constraints are
    known to hold for nothing better than a constant decision. `reason` says why an algorithm found
    no solution, if one did not.
    """

    task: Mapping[str, Any]
    best: Candidate
    rival: Candidate | None
    only_constant: bool
    baseline: SeedGroup | None
    cost: IntervalEstimate
    reason: str

    @property
    def is_uncertain(self) -> bool:
        """Whether the best may satisfy the constraints, although that is not confirmed."""
        return self.best.is_uncertain or (self.only_constant and not self.best.is_kept)


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


def _unsolved_tasks(ledger: Ledger) -> list[tuple[Mapping[str, Any], str]]:
    """Return the tasks for which no trial returned a model, and why one did not."""
    names, solved = _task_names(ledger), answers(ledger)
    known = {_task_key(names, answer.task) for answer in solved}
    tasks = _planned_tasks(ledger, names)
    left = [
        (task, _unsolved_reason(ledger, task)) for key, task in tasks.items() if key not in known
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
    cheaper = (
        each
        for each in candidates
        if best.is_kept
        and (not each.is_kept or (best.is_tested and not each.is_tested))
        and not is_no_better(each.value, best.value)
    )
    unconfirmed = filter(lambda each: each.seems_satisfied(split), cheaper)
    rival = min(unconfirmed, key=lambda each: each.value, default=None)
    only_constant = rival is not None and best.is_constant
    if rival and only_constant:
        best, rival = rival, None
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
    reason = _unsolved_reason(ledger, task)
    return Answer(task, best, rival, only_constant, baseline, cost, reason)


def _unsolved_reason(ledger: Ledger, task: Mapping[str, Any]) -> str:
    """Return why an algorithm found no solution of a task; "" if all did."""
    unsolved = (
        f"{trial.label}, seed {trial.seed}: {ledger.reason(trial)}"
        for trial in ledger.algorithms.plan
        if ledger.status(trial) in UNSOLVED_STATUSES
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


def best_sheet(ledger: Ledger) -> Sheet:
    """Return a row for each answer."""
    split, found = answer_split(ledger), answers(ledger)
    note = f"The best setting has the {ShownObjective.of(ledger).best} on {split} rows."
    if ledger.constraints:
        note += (
            " A setting qualifies if at least half of its trials have a model and its constraints "
            f"hold in {DEFAULT_LEVEL:.0%} of these; if it passed a safety test, or no setting "
            "reaches that share, it is enough that the test sets do not contradict the confidence "
            "of the test, or the probability that `holds` states. `satisfied in` "
            "counts the trials whose constraints hold on these rows. `holds in` estimates the "
            "share of trials whose constraints hold in the population, of which these rows are a "
            "sample; with one seed, the probability that they do. The objective is slightly "
            "optimistic, because the setting was chosen on these rows. `cost` is the mean "
            "difference from the algorithm without constraints, over the seeds that have both; it "
            "can be negative if that algorithm minimizes another objective. A model trained for a "
            "stricter limit also counts: its name says for which, and `holds in` and `satisfied "
            "in` are about that limit."
        )
    note += " Each trial's models are in a folder below `models`: `ratecli predict FOLDER TABLE`."
    rows = [_best_row(ledger, each, split) for each in found]
    for task, reason in _unsolved_tasks(ledger):
        rows.append([*task.items(), ("best", SheetCell("none: no model", tone="bad", more=reason))])
    return make_sheet(f"Best results ({split})", rows, note)


def _best_row(ledger: Ledger, answer: Answer, split: str) -> SheetRow:
    best, point = answer.best, answer.best.group.point
    none = SheetCell(f"none (closest: {best.name})", tone="bad", more=answer.reason)
    row: list[tuple[str, Any]] = list(answer.task.items())
    row.append(("best", _best_cell(best) if best.is_kept else none))
    if others := [each for each in ledger.sweep if each not in answer.task]:
        row.append(("at", format_point({each: point[each] for each in others if each in point})))
    shown = ShownObjective.of(ledger)
    row.append((shown.name, estimate_cell(shown.estimate(best.objective), best.objective.n)))
    if not ledger.constraints:
        return [*row, ("n", best.objective.n)]
    if any(each.baseline for each in answers(ledger)):
        cost = answer.cost if best.is_kept else NO_ESTIMATE
        row.append(("cost", estimate_cell(shown.estimate(cost), best.objective.n)))
    stated = "" if best.level is None else f" (stated: {best.level:.3g})"
    tone = "good" if best.is_measured else "" if best.is_kept else "bad"
    satisfied = satisfied_cell([best.group], split)
    if best.missing:
        satisfied = replace(satisfied, text=f"{satisfied.text} (no model in {best.missing})")
    return [
        *row,
        ("holds in", SheetCell(f"{best.share:.2f}{stated}", best.share, tone)),
        ("satisfied in", satisfied),
    ]


def _best_cell(best: Candidate) -> SheetCell:
    if best.is_constant:
        return SheetCell(f"{best.name}, no better than a constant", tone="bad")
    return SheetCell(best.name)


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

    With `reasons`, sentences end with the reason why an algorithm found no solution.
    """
    found, split = answers(ledger), answer_split(ledger)
    if not found:
        reason = _unsolved_reason(ledger, {})
        if not reason:
            return ["No trial has results yet."]
        return [f"No trial returned a model.{f' {reason}.' * reasons}"]
    rows = SPLIT_WORDS.get(split, f"{split} rows")
    unsolved = _unsolved_tasks(ledger)
    total = len(found) + len(unsolved)
    shown = found if reasons else [replace(answer, reason="") for answer in found]
    pairs = [(each.task, _sentence(ledger, each, rows, split, total)) for each in shown]
    pairs += [(task, f"no trial returned a model.{f' {why}.' * reasons}") for task, why in unsolved]
    each = []
    for sentence, same in group_by(pairs, lambda pair: pair[1]).items():
        points = _points([task for task, _ in same])
        each.append(f"{points}: {sentence}" if points else sentence)
    if total == 1:
        return each
    kept = [answer for answer in found if answer.best.is_kept]
    best = ShownObjective.of(ledger).best
    overview = f"The {best} on {rows} at each of {len(found)} sweep points."
    if ledger.constraints:
        overview = _overview(ledger, total, found, kept, rows)
    more = len(each) - most
    return [overview, *each[:most], *([f"... {more} more in report.html."] * (more > 0))]


def _points(tasks: Sequence[Mapping[str, Any]]) -> str:
    """Return the values of tasks with the same names, such as `kappa = 1, 2`."""
    names = list(tasks[0])
    if len(names) != 1:
        return "; ".join(map(format_point, tasks))
    return f"{names[0]} = {', '.join(format_scalar(task[names[0]]) for task in tasks)}"


def _overview(
    ledger: Ledger, total: int, found: Sequence[Answer], kept: Sequence[Answer], rows: str
) -> str:
    """Return at how many of all tasks constraints are satisfied, and the range of costs."""
    names, satisfied = list(found[0].task), f"satisfies {_all_constraints(ledger)} on {rows}"
    kind = "values" if len(names) == 1 else "combinations"
    points = f"{total} {kind} of {', '.join(names)}"
    if not kept:
        entries = json.dumps([ledger.experiment.get("holds"), ledger.experiment.get("algorithms")])
        hint = " Set `holds: new_rows` to train for new rows."
        hint = "" if "new_rows" in entries else hint
        if any(each.is_uncertain for each in found):
            satisfied = satisfied.replace("satisfies", "is confirmed to satisfy", 1)
        return f"No setting {satisfied} in {DEFAULT_LEVEL:.0%} of trials, at any of {points}.{hint}"
    measured = [each for each in kept if each.best.is_measured]
    text = f"At {len(measured)} of {points}, a setting {satisfied}"
    if more := len(kept) - len(measured):
        levels = {answer.best.level: None for answer in kept if not answer.best.is_measured}
        stated = " or ".join(f"{level:.3g}" for level in levels if level is not None)
        where = f"{text}. At {more} more" if measured else f"At {more} of {points}"
        tested = all(each.best.is_tested or each.best.is_measured for each in kept)
        how = "is trained to satisfy the constraints on new rows with probability"
        how = "passed a safety test with confidence" if tested else how
        text = f"{where}, a setting {how} {stated}, but the test sets are too small to confirm it"
    if constant := sum(each.best.is_constant for each in kept):
        text += f". At {constant}, the best is no better than the same decision for everyone"
    shown = ShownObjective.of(ledger)
    costs = [shown.estimate(each.cost).mean for each in kept]
    means = [mean for mean in costs if mean is not None]
    labels = {each.baseline.label: None for each in kept if each.baseline}
    if means:
        amounts = dict.fromkeys(map(format_signed, (min(means), max(means))))
        text += f". The {shown.name} changes by {' to '.join(amounts)}"
        text += f" against {' or '.join(labels)}"
        text += " where both have a model" * (len(means) < len(kept))
    return f"{text}."


def _count_in_words(ledger: Ledger, best: Candidate, split: str) -> str:
    """Return in how many seeds constraints are satisfied, and what differs from that."""
    satisfied, total = count_satisfied([best.group], split)[0], best.group.ended
    count = f"satisfied in {satisfied} of {total} seeds"
    models = total - best.missing
    if best.missing:
        count += f" (no model in {best.missing})"
    if best.objective.n < models:
        count += f" (undefined objective in {models - best.objective.n})"
    if best.is_kept and not best.is_measured:
        count += "; the test sets are too small to confirm it: by them alone, the constraints hold "
        count += f"with probability {best.share:.0%}"
    elif best.is_measured != (satisfied >= DEFAULT_LEVEL * models) or best.is_uncertain:
        often = f"in an estimated {best.share:.0%} of trials"
        if models == 1:
            often = f"with an estimated probability of {best.share:.0%}"
        count += f"; given the sampling error of the test sets, the constraints hold {often}"
    passed, tested = certified_seeds(ledger, best.group)
    if tested:
        count += f"; a safety test passed in {passed} of {tested}"
    elif best.is_tested is False:
        count += "; it was not put to a safety test"
    return count


def _sentence(ledger: Ledger, answer: Answer, rows: str, split: str, total: int) -> str:
    """Return the answer of one of `total` tasks in words, which follow those that define it."""
    best = answer.best
    shown = ShownObjective.of(ledger)
    amount = estimate_cell(shown.estimate(best.objective)).text
    cost = shown.estimate(answer.cost).mean
    if cost is not None and answer.baseline and answer.baseline is not best.group:
        amount += f" ({format_signed(cost)} against {answer.baseline.label})"
    if not ledger.constraints:
        return f"{best.name} has the {shown.best} on {rows}: {amount}."
    count, rules = _count_in_words(ledger, best, split), _all_constraints(ledger)
    if best.is_constant:
        count += "; it is no better than the same decision for everyone"
    if not best.is_kept:
        reason = f" {answer.reason}." if answer.reason else ""
        start = "no setting" if answer.task else "No setting"
        does = "is confirmed to satisfy" if answer.is_uncertain else "satisfies"
        if answer.only_constant:
            start += " better than a constant"
        what = rules if total > 1 else f"{rules} on {rows} in {DEFAULT_LEVEL:.0%} of trials"
        closest = f"The closest is {best.name}, with {shown.name} {amount}; {count}."
        return f"{start} {does} {what}. {closest}{reason}"
    which = f"that {'are confirmed to ' * bool(answer.rival)}satisfy {rules} on {rows}"
    if best.is_tested:
        which = f"that passed a safety test of {rules} with confidence {best.level:.3g}"
    elif not best.is_measured:
        which = f"trained to satisfy {rules} on new rows with probability {best.level:.3g}"
    text = f"{best.name} has the {shown.best} of all settings {which}: {amount}; {count}."
    if answer.rival:
        amount = estimate_cell(shown.estimate(answer.rival.objective)).text
        count = _count_in_words(ledger, answer.rival, split)
        text += f" {answer.rival.name} has {amount}, but "
        if answer.rival.is_kept:
            return f"{text}was not put to a safety test."
        trained = best.is_measured or answer.rival.level is not None
        untrained = "" if trained else "was not trained with `holds: new_rows`, and "
        text += f"{untrained}is not confirmed to satisfy {rules}: {count}; "
        text += f"{DEFAULT_LEVEL:.0%} is required."
    return text


def _all_constraints(ledger: Ledger) -> str:
    names = list(ledger.constraints)
    return " and ".join(names) if len(names) <= MAX_NAMED else f"all {len(names)} constraints"


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

    def estimate(self, found: IntervalEstimate) -> IntervalEstimate:
        """Return an estimate of the objective, or of its change, with the sign that is shown."""
        return found.negated() if self.maximized else found
