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
from ratecli.report import sheet as st
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
from ratecli.report.groups import NO_ESTIMATE, IntervalEstimate, count_satisfied, group_by
from ratecli.report.templates import environment, note
from ratecli.solvers.margin import DEFAULT_LEVEL

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
        cost = answer.cost if best.is_kept else NO_ESTIMATE
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
    for sentence, same in group_by(pairs, lambda pair: pair[1]).items():
        points = _points([task for task, _ in same])
        each.append(f"{points}: {sentence}" if points else sentence)
    if total == 1:
        return each
    more = [f"... {len(each) - most} more in report.html."] * (len(each) > most)
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
    entries = json.dumps([ledger.experiment.get("holds"), ledger.experiment.get("algorithms")])
    # filters know training rows alone
    able = any(DISCLOSIVITY not in rule for rule in ledger.constraints.values())
    named = " and ".join(rules) if len(rules) <= MAX_NAMED else f"all {len(rules)} constraints"

    def estimate(value: IntervalEstimate) -> str:
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
        known = ((each.info.get(CONSTANT_NAME_KEY) or {}).get("test") for each in group.results)
        name = " or ".join(dict.fromkeys(filter(None, known))) or "a constant decision"
        if constant.mean is None or is_no_better(constant.mean, best.value):
            return f"no better than {name}"
        worse = st.format_number(best.value - constant.mean)
        text = f"worse than {name} by {worse} ({shown.name} {estimate(constant)})"
        trials = (undefined_constraints(t, ledger.results.get(t.key)) for t in group.trials)
        undefined = list(dict.fromkeys(itertools.chain(*trials)))
        return f"{text}. There, {undefined_text(undefined)}" if undefined else text

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
        "may_hold": able and "new_rows" not in entries,
        "costs": list(dict.fromkeys(map(st.format_signed, (min(means), max(means)))))
        if means
        else [],
        "some_costs": len(means) < len(kept),
        "baselines": list(dict.fromkeys(each.baseline.label for each in kept if each.baseline)),
        "estimate": estimate,
        "amount": amount,
        "than_constant": than_constant,
        "satisfied_in": lambda group: count_satisfied([group], split)[0],
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

    def estimate(self, found: IntervalEstimate) -> IntervalEstimate:
        """Return an estimate of the objective, or of its change, with the sign that is shown."""
        return found.negated() if self.maximized else found
