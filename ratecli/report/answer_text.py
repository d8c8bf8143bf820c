"""The answer of a report in words, and as a table."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratecli.ledger.records import (
    CONSTANT_NAME_KEY,
    is_no_better,
    undefined_constraints,
    undefined_text,
)
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.rates.table import DISCLOSIVITY
from ratecli.report.answer import (
    OBJECTIVE,
    Answer,
    Candidate,
    answer_split,
    answers,
    unsolved_reason,
    unsolved_tasks,
)
from ratecli.report.certificates import certified_seeds
from ratecli.report.frame import NO_ESTIMATE, IntervalEstimate
from ratecli.report.groups import count_satisfied, group_by
from ratecli.report.sheet import (
    Sheet,
    SheetCell,
    SheetRow,
    estimate_cell,
    format_number,
    format_point,
    format_scalar,
    format_signed,
    make_sheet,
    satisfied_cell,
)
from ratecli.solvers.margin import DEFAULT_LEVEL

SPLIT_WORDS = {"test": "new rows (test set)", "train": "training rows"}
MAX_SENTENCES = 12
"""Maximum number of sentences about tasks."""
MAX_NAMED = 3
"""More constraints, or settings that are not chosen, are counted instead of named."""


def best_sheet(ledger: Ledger) -> Sheet:
    """Return a row for each answer."""
    split, found = answer_split(ledger), answers(ledger)
    note = f"The best setting has the {ShownObjective.of(ledger).best} on {split} rows."
    if ledger.constraints:
        note += (
            " A setting qualifies if at least half of its trials have a model and its constraints "
            f"hold in {DEFAULT_LEVEL:.0%} of these; if it passed a safety test, or no setting "
            "reaches that share, it is enough that the test sets do not contradict the confidence "
            "of the test, or the probability that `holds` states. Settings with a safety test come "
            "before others, then those with a model in "
            f"{DEFAULT_LEVEL:.0%} of their trials. `satisfied in` "
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
    for task, reason in unsolved_tasks(ledger):
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
        satisfied = replace(satisfied, text=f"{satisfied.text} (no model in {best.missing} more)")
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
        reason = unsolved_reason(ledger, {})
        if not reason:
            return ["No trial has results yet."]
        return [f"No trial returned a model.{f' {reason}.' * reasons}"]
    rows = SPLIT_WORDS.get(split, f"{split} rows")
    unsolved = unsolved_tasks(ledger)
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
    names, rules = list(found[0].task), f"{_all_constraints(ledger)} on {rows}"
    kind = "values" if len(names) == 1 else "combinations"
    points = f"{total} {kind} of {', '.join(names)}"
    if not kept:
        entries = json.dumps([ledger.experiment.get("holds"), ledger.experiment.get("algorithms")])
        hint = " Set `holds: new_rows` to train for new rows."
        able = any(DISCLOSIVITY not in rule for rule in ledger.constraints.values())
        hint = "" if "new_rows" in entries or not able else hint  # filters know training rows alone
        does = _satisfies(any(each.is_uncertain for each in found))
        often = f"in {DEFAULT_LEVEL:.0%} of trials, at any of {points}"
        return f"No setting {does} {rules} {often}.{hint}"
    measured = [each for each in kept if each.best.is_measured]
    text = f"At {len(measured)} of {points}, a setting satisfies {rules}"
    if more := len(kept) - len(measured):
        levels = {answer.best.level: None for answer in kept if not answer.best.is_measured}
        stated = " or ".join(f"{level:.3g}" for level in levels if level is not None)
        where = f"{text}. At {more} more" if measured else f"At {more} of {points}"
        tested = all(each.best.is_tested or each.best.is_measured for each in kept)
        how = "is trained to satisfy the constraints on new rows with probability"
        how = "passed a safety test with confidence" if tested else how
        text = f"{where}, a setting {how} {stated}, but the test sets are too small to confirm it"
    if constant := sum(each.best.is_constant for each in kept):
        text += (
            f". At {constant} of the {total} {kind}, the best setting is no better than a constant"
        )
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
    satisfied, models = count_satisfied([best.group], split)[0], best.group.ended - best.missing
    count = f"satisfied in {satisfied} of {models} seeds"
    if best.missing:
        count += f" (no model in {best.missing} more)"
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
    """Return the answer of one of `total` tasks as a sentence, without the task's values."""
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
        count += f". It is {_compared_with_constant(ledger, best)}"
    if not best.is_kept:
        reason = f" {answer.reason}." if answer.reason else ""
        start = "no setting" if answer.task else "No setting"
        does = _satisfies(answer.is_uncertain)
        if answer.only_constant:
            start += " better than a constant"
        often = f" in {DEFAULT_LEVEL:.0%} of trials" * (best.group.ended > 1)
        what = rules if total > 1 else f"{rules} on {rows}{often}"
        closest = f"The closest is {best.name}, with {shown.name} {amount}; {count}."
        return f"{start} {does} {what}. {closest}{reason}"
    which = f"that satisfy {rules} on {rows}"
    if best.is_tested:
        which = f"that passed a safety test of {rules} with confidence {best.level:.3g}"
    elif not best.is_measured:
        which = f"trained to satisfy {rules} on new rows with probability {best.level:.3g}"
    elif answer.rivals:
        which = f"confirmed to satisfy {rules} on {rows}"
    if not answer.rivals:
        return f"{best.name} has the {shown.best} of all settings {which}: {amount}; {count}."
    listed = [
        f"{each.name} {estimate_cell(shown.estimate(each.objective)).text} ({each.flaw(best)})"
        for each in answer.rivals
    ]
    more = [f"{len(listed) - MAX_NAMED} more"] * (len(listed) > MAX_NAMED)
    return (
        f"{best.name} is the best setting {which}: {shown.name} {amount}; {count}. "
        f"{'Higher' if shown.maximized else 'Lower'} {shown.name}, but not chosen: "
        f"{', '.join([*listed[:MAX_NAMED], *more])}."
    )


def _compared_with_constant(ledger: Ledger, best: Candidate) -> str:
    """Return by how much a constant decision is better, and why it does not count."""
    constant, results = best.group.best_constant, best.group.results
    known = ((each.info.get(CONSTANT_NAME_KEY) or {}).get("test") for each in results)
    name = " or ".join(dict.fromkeys(filter(None, known))) or "a constant decision"
    if constant.mean is None or is_no_better(constant.mean, best.value):
        return f"no better than {name}"
    shown = ShownObjective.of(ledger)
    amount = f"{shown.name} {estimate_cell(shown.estimate(constant)).text}"
    text = f"worse than {name} by {format_number(best.value - constant.mean)} ({amount})"
    each = (
        undefined_constraints(trial, ledger.results.get(trial.key)) for trial in best.group.trials
    )
    undefined = list(dict.fromkeys(itertools.chain(*each)))
    return f"{text}. There, {undefined_text(undefined)}" if undefined else text


def _satisfies(is_uncertain: bool) -> str:
    """Return the verb of "no setting ... the constraints"."""
    return "is confirmed to satisfy" if is_uncertain else "satisfies"


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
