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
    SheetColumn,
    estimate_cell,
    format_number,
    format_scalar,
    identity_column,
    value_cell,
)

OBJECTIVE = "objective"
BEST = "best"
MAX_NAMED = 3
"""Maximum number of best models named in the text."""
CONSTRAINT_HEADS = ("worst violation", "kept in")
BEST_SPLITS = ("test", "validation", "train")
"""The first of these splits that was measured is used to find the best model."""


@dataclass(frozen=True)
class BestCandidate:
    """A variant of an algorithm at a sweep point.

    `worst` is its largest mean violation, NaN if unknown.
    """

    group: SeedGroup
    objective: float
    worst: float

    @property
    def keeps(self) -> bool:
        return self.worst <= CONSTRAINT_TOLERANCE


def best_sheet(ledger: Ledger) -> Sheet:
    """Return a row for each task with the lowest mean objective among feasible candidates.

    Candidates are feasible if all their mean violations are at most 0. A task is a point of the
    file's own sweep, together with the values of names used in constraints or the objective. If no
    candidate is feasible, the row shows the one with the smallest violation.
    """
    ledger = ledger.algorithms
    split = next((each for each in BEST_SPLITS if each in ledger.splits), "")
    names = _task_names(ledger)
    tasks: dict[str, list[BestCandidate]] = {}
    points: dict[str, Mapping[str, Any]] = {}
    kinds: dict[str, set[str]] = {}
    for group in seed_groups(ledger):
        found = _candidate(ledger, group, split)
        point = {name: group.point[name] for name in names if name in group.point}
        kinds.setdefault(group.label, set()).add(group.variant)
        if found is not None:
            # as displayed: 1 and 1.0 define the same task
            key = repr({name: format_scalar(value) for name, value in point.items()})
            tasks.setdefault(key, []).append(found)
            points[key] = point
    heads = [identity_column(ledger, name) for name in names]
    further = [name for name in ledger.sweep if name not in names]
    columns = (
        *heads,
        SheetColumn(BEST),
        *([SheetColumn("at")] if further else []),
        SheetColumn(OBJECTIVE, numeric=True),
        *(
            SheetColumn(name, numeric=True)
            for name in (CONSTRAINT_HEADS if ledger.constraints else ())
        ),
        SheetColumn("n", numeric=True),
    )
    rows = tuple(
        (
            *(value_cell(points[key].get(name)) for name in names),
            *_cells(ledger, found, split, further, several=len(kinds[found.group.label]) > 1),
        )
        for key, several in tasks.items()
        for found in [_pick_best(several)]
    )
    return Sheet(f"Best answers ({split})", columns, rows, _note(ledger, split))


def describe_best(ledger: Ledger, found: Sheet) -> str:
    """Summarize the rows of `best_sheet` in words; "" without rows."""
    if not found.rows:
        return ""
    titles = [each.title for each in found.columns]
    names = [row[titles.index(BEST)] for row in found.rows]
    kept = Counter(cell.text for cell in names if cell.tone != "bad")
    where = f"on {found.title.partition('(')[2].rstrip(')')} rows"
    keeps = f"keep every promise {where} on average"
    if len(names) == 1 and not kept:
        closest = names[0].text.removeprefix("none (").removesuffix(")")
        return f"Nobody keeps every promise {where} on average; {closest}."
    if len(names) == 1:
        objective = found.rows[0][titles.index(OBJECTIVE)].text
        among = f" of those that {keeps}" if ledger.constraints else f" {where}"
        return f"{names[0].text} has the least objective, {objective},{among}."
    first = kept.most_common(MAX_NAMED)
    most = [f"{name} at {count}" for name, count in first]
    rest = f" and {len(kept) - MAX_NAMED} others" if len(kept) > MAX_NAMED else ""
    if not ledger.constraints:
        least = f"{', '.join(most)}{rest}"
        return f"Least objective {where}: {least} of {len(names)} sweep points."
    total = "each" if kept.total() == len(names) else str(kept.total())
    some = f"At {total} of {len(names)} sweep points there are algorithms that {keeps}."
    # "At 1" alone might be read as a swept value.
    points = [
        f"{each} point{'s' * (count > 1)}" for each, (_, count) in zip(most, first, strict=True)
    ]
    return f"{some} The least objective among them: {', '.join(points)}{rest}." if most else some


def _task_names(ledger: Ledger) -> list[str]:
    """Return the swept names that define tasks: the file's own sweep, and names used in goals."""
    own = ledger.experiment.get("sweep") or {}
    rules = " ".join([str(ledger.experiment.get(OBJECTIVE, "")), *ledger.constraints.values()])
    words = set(re.findall(r"\w+", rules))
    return [name for name in ledger.sweep if name in own or name in words]


def _candidate(ledger: Ledger, group: SeedGroup, split: str) -> BestCandidate | None:
    objective = group.estimate(split, OBJECTIVE).mean
    if objective is None or math.isnan(objective):
        return None
    found = [group.estimate(split, VIOLATION_PREFIX + name).mean for name in ledger.constraints]
    known = [math.nan if each is None else each for each in found]
    worst = math.nan if any(map(math.isnan, known)) else max(known, default=0.0)
    return BestCandidate(group, objective, worst)


def _pick_best(several: Sequence[BestCandidate]) -> BestCandidate:
    """Return the best feasible candidate, else the least violating one, unknown violations last."""

    def rank(each: BestCandidate) -> tuple[int, float]:
        if each.keeps:
            return 0, each.objective
        return (2, each.objective) if math.isnan(each.worst) else (1, each.worst)

    return min(several, key=rank)


def _cells(
    ledger: Ledger, found: BestCandidate, split: str, further: Sequence[str], *, several: bool
) -> list[SheetCell]:
    """Return the cells of a task's best candidate.

    `several` is whether its algorithm has several variants.
    """
    group = found.group
    name = f"{group.label} ({group.variant})" if several else group.label
    missed = bool(ledger.constraints) and not found.keeps
    objective = group.estimate(split, OBJECTIVE)
    cells = [SheetCell(f"none (closest: {name})" if missed else name, tone="bad" if missed else "")]
    if further:
        point = [
            f"{key} = {format_scalar(group.point[key])}" for key in further if key in group.point
        ]
        cells.append(SheetCell(", ".join(point)))
    cells.append(estimate_cell(objective, objective.n))
    if ledger.constraints:
        tone = "bad" if missed else "good"
        unknown = math.isnan(found.worst)
        cells.append(
            SheetCell(UNKNOWN)
            if unknown
            else SheetCell(format_number(found.worst), found.worst, tone)
        )
        cells.append(_kept_cell(group, split))
    planned = len(group.outcomes)
    counted = f"{objective.n} of {planned}" if objective.n < planned else str(objective.n)
    return [*cells, SheetCell(counted, objective.n)]


def _kept_cell(group: SeedGroup, split: str) -> SheetCell:
    """Return in how many of the measured trials all constraints are satisfied."""
    told = [each.broken(split) for each in group.outcomes if each.numbers is not None]
    known = [broken for broken in told if broken is not None]
    kept = known.count(False)
    return SheetCell(f"{kept} of {len(known)}", kept / len(known)) if known else SheetCell(UNKNOWN)


def _note(ledger: Ledger, split: str) -> str:
    if not ledger.constraints:
        return f"The least mean objective on {split} rows over the trials with numbers."
    return (
        f"The least mean objective on {split} rows of all whose mean violation of every constraint "
        "is at most 0 there, and in how many trials none is broken. Chosen on these very rows, the "
        "best of many is a little flattered."
    )
