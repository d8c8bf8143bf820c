"""Best results: for each task, the lowest objective among models that satisfy all constraints."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.ledger.records import CONSTRAINT_TOLERANCE, VIOLATION_PREFIX
from ratecli.ledger.view import Ledger
from ratecli.report.groups import SeedGroup, seed_groups
from ratecli.report.sheet import (
    UNKNOWN,
    Sheet,
    SheetCell,
    SheetRow,
    estimate_cell,
    format_number,
    format_point,
    make_sheet,
    number_cell,
    satisfied_cell,
)

OBJECTIVE = "objective"
MAX_NAMED = 3
"""Maximum number of best models named in the text."""
BEST_SPLITS = ("test", "validation", "train")
"""The first of these splits that was measured is used to find the best model."""


@dataclass(frozen=True)
class BestCandidate:
    """A variant of an algorithm at a sweep point.

    `name` is the algorithm, with the variant if there are several. `worst` is the largest mean
    violation, NaN if unknown.
    """

    name: str
    group: SeedGroup
    objective: float
    worst: float

    @property
    def feasible(self) -> bool:
        return self.worst <= CONSTRAINT_TOLERANCE

    @property
    def rank(self) -> tuple[int, float]:
        """Order by objective if feasible, else by violation, with unknown violations last."""
        if self.feasible:
            return 0, self.objective
        return (2, self.objective) if math.isnan(self.worst) else (1, self.worst)


@dataclass(frozen=True)
class BestResults:
    """The best candidate of each task, with the task's values of the swept `names`."""

    split: str
    names: Sequence[str]
    tasks: Sequence[tuple[Mapping[str, Any], BestCandidate]]


def best_results(ledger: Ledger) -> BestResults:
    """Return the candidate with the lowest mean objective for each task.

    Candidates are feasible if all their mean violations are at most 0. A task is a point of the
    file's own sweep, together with the values of names used in constraints or the objective. If no
    candidate is feasible, the one with the smallest violation counts as best.
    """
    ledger = ledger.algorithms
    split = next((each for each in BEST_SPLITS if each in ledger.splits), "")
    own = ledger.experiment.get("sweep") or {}
    rules = [str(ledger.experiment.get(OBJECTIVE, "")), *ledger.constraints.values()]
    words = set(re.findall(r"\w+", " ".join(rules)))
    names = [name for name in ledger.sweep if name in own or name in words]
    variants: dict[str, set[str]] = {}
    for group in seed_groups(ledger):
        variants.setdefault(group.label, set()).add(group.variant)
    tasks: dict[str, list[BestCandidate]] = {}
    points: dict[str, Mapping[str, Any]] = {}
    for group in seed_groups(ledger):
        several = len(variants[group.label]) > 1
        name = f"{group.label} ({group.variant})" if several else group.label
        candidate = _candidate(ledger, group, split, name)
        if candidate is not None:
            point = {each: group.point[each] for each in names if each in group.point}
            key = format_point(point)  # as displayed: 1 and 1.0 define the same task
            tasks.setdefault(key, []).append(candidate)
            points[key] = point
    best = [(points[key], min(each, key=lambda c: c.rank)) for key, each in tasks.items()]
    return BestResults(split, names, best)


def _candidate(ledger: Ledger, group: SeedGroup, split: str, name: str) -> BestCandidate | None:
    objective = group.estimate(split, OBJECTIVE).mean
    if objective is None or math.isnan(objective):
        return None
    found = [group.estimate(split, VIOLATION_PREFIX + each).mean for each in ledger.constraints]
    known = [math.nan if each is None else each for each in found]
    worst = math.nan if any(map(math.isnan, known)) else max(known, default=0.0)
    return BestCandidate(name, group, objective, worst)


def best_sheet(ledger: Ledger) -> Sheet:
    """Return a row for each task with its best candidate."""
    found = best_results(ledger)
    note = f"The lowest mean objective on {found.split} rows over the trials with results."
    if ledger.constraints:
        note = (
            f"The lowest mean objective on {found.split} rows among those whose mean violation of "
            "every constraint is at most 0 there, and in how many trials all constraints are "
            "satisfied. The best was chosen on these rows, so its objective is slightly optimistic."
        )
    rows = [_row(ledger, found, point, best) for point, best in found.tasks]
    return make_sheet(f"Best results ({found.split})", rows, note)


def _row(
    ledger: Ledger, found: BestResults, point: Mapping[str, Any], best: BestCandidate
) -> SheetRow:
    group, split = best.group, found.split
    objective, planned = group.estimate(split, OBJECTIVE), len(group.outcomes)
    tone = "good" if best.feasible else "bad"
    feasible = best.feasible or not ledger.constraints
    name = best.name if feasible else f"none (closest: {best.name})"
    row = [(each, point.get(each)) for each in found.names]
    row.append(("best", SheetCell(name, tone="" if feasible else "bad")))
    if others := [each for each in ledger.sweep if each not in found.names]:
        at = {each: group.point[each] for each in others if each in group.point}
        row.append(("at", format_point(at)))
    row.append((OBJECTIVE, estimate_cell(objective, objective.n)))
    if ledger.constraints:
        worst = UNKNOWN if math.isnan(best.worst) else number_cell(best.worst, tone)
        row.append(("worst violation", worst))
        row.append(("satisfied in", satisfied_cell([group], split)))
    counted = f"{objective.n} of {planned}" if objective.n < planned else str(objective.n)
    return [*row, ("n", SheetCell(counted, objective.n))]


def describe_best(ledger: Ledger) -> str:
    """Summarize the best results in words; "" if there are none."""
    found = best_results(ledger)
    where, total = f"on {found.split} rows", len(found.tasks)
    feasible = [best for _, best in found.tasks if best.feasible or not ledger.constraints]
    if not total:
        return ""
    if total == 1 and not feasible:
        closest = found.tasks[0][1].name
        return f"No algorithm satisfies all constraints {where} on average (closest: {closest})."
    if total == 1:
        among = ", among those that satisfy all constraints on average" * bool(ledger.constraints)
        best = feasible[0]
        objective = format_number(best.objective)
        return f"{best.name} has the lowest objective {where}, {objective}{among}."
    names = Counter(best.name for best in feasible)
    listed = ", ".join(f"{name} ({count})" for name, count in names.most_common(MAX_NAMED))
    rest = f" and {len(names) - MAX_NAMED} others" if len(names) > MAX_NAMED else ""
    lowest = f"Lowest objective {where}, by number of sweep points: {listed}{rest}."
    if not ledger.constraints:
        return lowest
    count = f"At {len(feasible)} of {total} sweep points"
    some = f"{count}, some algorithm satisfies all constraints {where} on average."
    return f"{some} {lowest}" if feasible else some
