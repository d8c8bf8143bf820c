"""The answers of a report in words, as a table and as plain data."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, replace
from typing import Any

from ratecli.ledger import records as rc
from ratecli.ledger.records import OBJECTIVE, is_no_better
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.rates.analysis import Shape
from ratecli.rates.metrics import fixed_side
from ratecli.rates.parser import parse_constraint
from ratecli.report import groups as gr
from ratecli.report import sheet as st
from ratecli.report.answer import (
    Answer,
    Setting,
    Task,
    TestVerdict,
    answer_of,
    answer_split,
    answers,
    goal_of,
    planned_tasks,
    unsolved_reason,
    unsolved_tasks,
)
from ratecli.report.templates import note
from ratecli.solvers.margin import DEFAULT_LEVEL

PROOFS = {
    TestVerdict.CONFIRMED: "confirmed by the test sets",
    TestVerdict.UNCLEAR: "the test sets of {rows} rows are too small to tell",
    TestVerdict.VIOLATED: "violated on {violated} test sets",
}
NEW_ROWS_HINT = "`holds: new_rows` trains models that are expected to hold on new rows"


def best_sheet(ledger: Ledger) -> st.Sheet:
    """Return a row for each task: its answer, or why there is none."""
    split, constraints = answer_split(ledger), ledger.constraints
    level, shown = f"{DEFAULT_LEVEL:.0%}", ShownObjective.of(ledger)
    text = note("best", shown=shown, split=split, constraints=constraints, level=level)
    rows = [best_row(ledger, each, split) for each in answers(ledger)]
    for task, reason in unsolved_tasks(ledger):
        none = st.SheetCell("none: no model", tone="bad", more=reason)
        rows.append([*task.items(), ("best model", none)])
    return st.make_sheet(f"Best models ({split})", rows, text)


def best_row(ledger: Ledger, answer: Answer, split: str) -> list[tuple[str, Any]]:
    """Return titles and cells of an answer's row in the table of best models."""
    best, point, shown = answer.best, answer.best.group.point, ShownObjective.of(ledger)
    row: list[tuple[str, Any]] = list(answer.task.items())
    row.append(("best model", _model_cell(ledger, answer)))
    if others := [each for each in ledger.sweep if each not in answer.task]:
        row.append(("at", st.format_point({each: point[each] for each in others if each in point})))
    row.append((shown.name, st.estimate_cell(shown.estimate(best.objective), best.objective.n)))
    if not ledger.constraints:
        return [*row, ("n", best.objective.n)]
    if any(each.baseline for each in answers(ledger)):
        cost = shown.estimate(answer.cost).mean if best.is_kept else None
        row.append(("cost", "" if cost is None else st.SheetCell(st.format_signed(cost), cost)))
    tone = {TestVerdict.CONFIRMED: "good", TestVerdict.VIOLATED: "bad"}.get(best.verdict, "")
    level = f"{best.level:.3g}{' (test)' * bool(best.is_tested)}" if best.is_expected else "no"
    what, mean, _ = worst_constraint(ledger, answer)
    if len(best.violations) > 1:
        mean = replace(mean, text=f"{what} {mean.text}", key=None)
    return [
        *row,
        ("expected", st.SheetCell(level, best.level if best.is_expected else None)),
        ("verdict", st.SheetCell(_verdict(best, split), None, tone)),
        ("measured", mean),
    ]


def _model_cell(ledger: Ledger, answer: Answer) -> st.SheetCell:
    best = answer.best
    if ledger.constraints and not best.is_kept:
        return st.SheetCell(f"none (closest: {best.name})", tone="bad", more=answer.reason)
    if best.is_constant:
        return st.SheetCell(f"{best.name}, no better than a constant", tone="bad")
    return st.SheetCell(best.name + _missing(best.group))


def _missing(group: gr.SeedGroup) -> str:
    """Return in how many trials there is no model, in brackets; "" if all have one."""
    missing = group.ended - group.solved
    return f" (no model in {missing} of {group.ended} seeds)" if missing else ""


def worst_constraint(ledger: Ledger, answer: Answer) -> tuple[str, st.SheetCell, str]:
    """Return what was measured of the constraint with the largest violation, its mean, its limit.

    If a constraint compares a quantity with a number, such as `recall >= limit`, it is that
    quantity; otherwise the violation, which is at most 0 where the constraint is satisfied.
    """
    known = {k: each for k, each in answer.best.violations.items() if each.mean is not None}
    if not known:
        return "", st.SheetCell(""), ""
    name = max(known, key=lambda each: known[each].mean or 0.0)
    numbers = {**answer.best.group.point, **answer.task}
    side = fixed_side(parse_constraint(ledger.constraints[name]), numbers)
    if side is None:
        return f"violation of {name}", st.estimate_cell(known[name]), "at most 0"
    at_least, value = side
    quantity = known[name].negated() if at_least else known[name]
    limit = f"at {'least' if at_least else 'most'} {st.format_scalar(value)}"
    return name, st.estimate_cell(quantity.shifted(value)), limit


def _verdict(best: Setting, split: str) -> str:
    """Return a verdict in a word; only test rows can confirm a constraint."""
    satisfied = best.verdict is TestVerdict.CONFIRMED and split != "test"
    return "satisfied" if satisfied else str(best.verdict)


def answers_to_json(ledger: Ledger) -> list[dict[str, Any]]:
    """Return each answer as plain data: what is expected, measured and confirmed."""
    goal, split, found = goal_of(ledger), answer_split(ledger), list[dict[str, Any]]()
    for answer in answers(ledger):
        best = answer.best
        means = {k: each.mean if each.finite else None for k, each in best.violations.items()}
        found.append(
            {
                "at": dict(answer.task),
                "is_goal": answer.task == goal,
                "algorithm": best.group.label,
                "point": dict(best.group.point),
                "qualifies": best.is_kept or not ledger.constraints,
                "split": split,
                "objective": best.value if best.objective.finite else None,
                "cost": answer.cost.mean if answer.cost.finite else None,
                "expected": best.level if best.is_expected else None,
                "violations": means,
                "verdict": _verdict(best, split) if ledger.constraints else None,
            }
        )
    return found


def point_options(point: Task) -> list[str]:
    """Return the options of `fit` that `final_model.read_point` reads back exactly."""
    stated = {name: value for name, value in point.items() if value is not None}
    return [f"--at={name}={json.dumps(value)}" for name, value in stated.items()]


def incomplete_notes(ledger: Ledger) -> list[str]:
    """Return a sentence if only a part of the planned trials have run."""
    missing = sum(ledger.status(trial) == NOT_RUN for trial in ledger.plan)
    if not missing:
        return []
    ran = len(ledger.plan) - missing
    why = "a smoke run" if ledger.meta.get("left_out") else "an unfinished run"
    return [f"Results of {why}: {ran:,} of {len(ledger.plan):,} planned trials have run."]


def answer_lines(ledger: Ledger) -> list[str]:
    """Return the answer of the file's goal in two lines: the model and its cost, then evidence.

    If the file has several tasks and no goal, a single line says at how many of them a model holds.
    If no setting satisfies the constraints, further lines say what may help.
    """
    task = goal_of(ledger)
    answer = answer_of(ledger, task)
    if answer is None and task is None and answers(ledger):
        return [_overview(ledger)]
    if answer is None:
        reason = unsolved_reason(ledger, task or {})
        said = f"No trial returned a model. {reason}" if reason else "not run yet"
        return [f"{_at(task)}{said}"]
    if answer.best.is_kept:
        return setting_lines(ledger, answer)
    hint = [NEW_ROWS_HINT] * _may_train_for_new_rows(ledger)
    return [*closest_lines(ledger, answer), *filter(None, [answer.reason]), *hint]


def closest_lines(ledger: Ledger, answer: Answer) -> list[str]:
    """Return that no setting of a task qualifies, and which one comes closest."""
    first, *evidence = setting_lines(ledger, answer)
    at = _at(answer.task)
    return [f"{at}no model qualifies; the closest is {first.removeprefix(at)}", *evidence]


def setting_lines(ledger: Ledger, answer: Answer) -> list[str]:
    """Return the setting of an answer and its cost, and the evidence that its constraints hold."""
    best, shown = answer.best, ShownObjective.of(ledger)
    cost = shown.estimate(answer.cost).mean
    text = f"{shown.name} {st.estimate_cell(shown.estimate(best.objective)).text}"
    if cost is not None and answer.baseline:
        text += f" ({st.format_signed(cost)} over {answer.baseline.label})"
    lines = [f"{_at(answer.task)}{best.name}, {text}{_missing(best.group)}"]
    if best.is_constant:
        lines.append(_than_constant(ledger, best, shown))
    if ledger.constraints:
        lines.append(_evidence(ledger, answer))
    return lines


def _at(task: Task | None) -> str:
    return f"{st.format_point(task)}: " if task else ""


def _evidence(ledger: Ledger, answer: Answer) -> str:
    """Return whether the constraints are expected to hold, and what the test sets say."""
    best, split = answer.best, answer_split(ledger)
    stated = ""
    if best.is_tested:
        stated = f"passed a safety test (confidence {best.level:.3g})"
    elif best.level is not None:
        how = "expected" if best.is_expected else "trained"
        stated = f"{how} to hold on new rows (probability {best.level:.3g})"
    sizes = [(each.info.get("rows") or {}).get("test", 0) for each in best.group.results]
    satisfied, measured = gr.count_satisfied([best.group], split)
    proof = PROOFS[best.verdict].format(
        rows=f"{min(sizes, default=0):,.0f}", violated=f"{measured - satisfied} of {measured}"
    )
    if split != "test":
        how = "violated" if best.verdict is TestVerdict.VIOLATED else "satisfied"
        rows = {"train": "training"}.get(split, split)
        proof = f"{how} on the {rows} rows, and there is no test set"
    what, mean, limit = worst_constraint(ledger, answer)
    value = f"{what} {mean.text} (must be {limit})" if what else "nothing was measured"
    return f"{'; '.join(filter(None, [stated, proof]))}: {value}"


def _overview(ledger: Ledger) -> str:
    """Return at how many of several tasks the constraints are expected or confirmed to hold."""
    found, tasks = answers(ledger), planned_tasks(ledger)
    kind = "values" if len(tasks[0]) == 1 else "combinations"
    points = f"{len(tasks)} {kind} of {', '.join(tasks[0])}"
    if not ledger.constraints:
        return f"The {ShownObjective.of(ledger).best} at each of {points} is in the table."
    kept = sum(each.best.is_kept for each in found)
    text = f"a model is expected or confirmed to hold on new rows at {kept} of {points}"
    return f"{text}; {NEW_ROWS_HINT}" if _may_train_for_new_rows(ledger) else text


def _may_train_for_new_rows(ledger: Ledger) -> bool:
    """Whether no algorithm was trained to hold on new rows, and one could be."""
    entries = [
        each for entry in ledger.experiment.get("algorithms") or () for each in entry.values()
    ]
    holds = {each.get("holds") for each in (ledger.experiment, *entries)}
    # filters know training rows alone
    able = any(ledger.classes.get(name) != Shape.DISCLOSURE for name in ledger.constraints)
    return able and "new_rows" not in holds


def _than_constant(ledger: Ledger, best: Setting, shown: ShownObjective) -> str:
    """Return by how much a constant decision is better, and why it does not count."""
    constant, group = best.group.best_constant, best.group
    known = ((each.info.get(rc.CONSTANT_NAME_KEY) or {}).get("test") for each in group.results)
    name = " or ".join(dict.fromkeys(filter(None, known))) or "a constant decision"
    if constant.mean is None or is_no_better(constant.mean, best.value):
        return f"it is no better than {name}"
    worse = st.format_number(best.value - constant.mean)
    other = st.estimate_cell(shown.estimate(constant)).text
    text = f"it is worse than {name} by {worse} ({shown.name} {other})"
    trials = (rc.undefined_constraints(t, ledger.results.get(t.key)) for t in group.trials)
    undefined = list(dict.fromkeys(itertools.chain(*trials)))
    return f"{text}. There, {rc.undefined_text(undefined)}" if undefined else text


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
