"""The report's tables: requested tables, best results, constraints, statuses and failures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratecli.ledger.records import FILTER_STAGE_PREFIX, VIOLATION_PREFIX
from ratecli.ledger.view import Ledger
from ratecli.report.groups import (
    IntervalEstimate,
    SeedGroup,
    SplitMetric,
    count_satisfied,
    group_by,
    seed_groups,
)
from ratecli.report.sheet import (
    UNKNOWN,
    Sheet,
    SheetCell,
    SheetRow,
    check_mark,
    estimate_cell,
    format_point,
    format_scalar,
    format_setting,
    identity_cells,
    identity_columns,
    make_sheet,
    number_cell,
    satisfied_cell,
    share_cell,
    share_tone,
    sort_groups,
    status_cell,
)
from ratecli.solvers.margin import DEFAULT_LEVEL

OBJECTIVE = "objective"
BEST_SPLITS = ("test", "validation", "train")
"""The first of these splits that was measured is used to find the best model."""
NUMBER = re.compile(r"[-+]?(\d[\d,.]*(e[-+]?\d+)?|inf\b|nan\b)")
UNSOLVED_NOTE = (
    "Number of trials of the algorithm with this reason. Reasons that differ only in their numbers "
    "are counted together, with the numbers of the first trial; trials.csv has every trial."
)
TUNING_NOTES = {
    "loss": "The loss is the log loss, or the error of a model without probabilities.",
    "objective": "Of the settings that satisfy the constraints, the one with the smallest "
    "objective is chosen. A violation smaller than its standard error counts as none if the models "
    "satisfy the constraints on the rows that they are fitted to.",
    "unsolved": "Unsolved: the number of folds, or of trials with validation rows, without a "
    "solution.",
}
TUNING_NUMBERS = ("loss", "objective", "violation", "unsolved")
ORDINARY_STATUSES = frozenset({"ok", "not_met"})
"""Statuses of trials with results, which the other tables cover."""
MAX_STACK_LENGTH = 6000
"""Maximum characters of a traceback; the end is kept, as it is the most informative part."""
VIOLATIONS_NOTE = (
    "Mean violation ± half its 95 % interval over seeds, and in how many of the trials the "
    f"constraint is satisfied (at most 0). ✓ in all, ✗ not in all, {UNKNOWN} not measured."
)
SATISFIED_NOTE = (
    "Trials (seeds and sweep points) in which the constraint is satisfied, of those in which it "
    f"was measured on that split; {UNKNOWN} if it was not measured."
)
CELL_LEGEND = (
    "Mean ± half the width of the 95 % Student-t interval over n seeds. A seed determines every "
    "split that is not official and every random decision. Trials without a solution and NaN "
    "values are left out. "
    "Rates are shares of trials with the exact 95 % interval of Clopper and Pearson: solution_rate "
    "of those that returned a classifier, failure_rate of those whose classifier violates a "
    "constraint on the rows of the table (a trial without a classifier does not fail). Trials that "
    "crashed, timed out or diverged are not counted."
)


def unsolved_sheet(ledger: Ledger) -> Sheet:
    """Return failed, unfinished and unsolved trials of each algorithm by reason."""
    planned = Counter(trial.label for trial in ledger.plan)
    unsolved = [trial for trial in ledger.plan if ledger.status(trial) not in ORDINARY_STATUSES]
    alike = group_by(
        unsolved,
        lambda each: (each.label, ledger.status(each), NUMBER.sub("#", ledger.reason(each))),
    )
    rows: list[SheetRow] = []
    for trials in sorted(alike.values(), key=len, reverse=True):
        first, status = trials[0], ledger.status(trials[0])
        result = ledger.results.get(first.key)
        stack = str(result.info.get("traceback") or "") if result else ""
        where = ", ".join(filter(None, [format_point(first.point), f"seed {first.seed}"]))
        rows.append(
            [
                ("algorithm", first.label),
                ("status", SheetCell(status, tone=status_cell({status: 1}).tone)),
                ("trials", share_cell(len(trials), planned[first.label])),
                ("first", where),
                ("reason", SheetCell(ledger.reason(first), more=stack[-MAX_STACK_LENGTH:])),
            ]
        )
    return make_sheet("Unsolved and unfinished trials", rows, UNSOLVED_NOTE)


def constraint_sheet(ledger: Ledger, *, by_point: bool = False) -> Sheet:
    """Return constraint satisfaction, by algorithm, variant and constraint (rows) and split.

    `by_point` also has rows for each sweep point, with mean violations.
    """
    names = identity_columns(ledger) if by_point else ["algorithm", "variant"]
    groups = sort_groups(seed_groups(ledger.algorithms), names)
    alike = group_by(groups, lambda group: repr(identity_cells(group, names)))
    cell = _violation_cell if by_point else satisfied_cell
    rows = [
        [
            *identity_cells(own[0], names),
            ("constraint", name),
            *((split, cell(own, split, name)) for split in ledger.splits),
            (
                "status",
                status_cell(
                    sum((Counter(each.statuses) for each in own), Counter()),
                    sum(each.constants for each in own),
                ),
            ),
        ]
        for own in alike.values()
        for name in ledger.constraints
    ]
    if by_point:
        return make_sheet("Constraints at each sweep point", rows, VIOLATIONS_NOTE)
    return make_sheet("Satisfied constraints", rows, SATISFIED_NOTE)


def _violation_cell(groups: Sequence[SeedGroup], split: str, name: str) -> SheetCell:
    (group,) = groups
    satisfied, trials = count_satisfied(groups, split, name)
    if not trials:
        return SheetCell(UNKNOWN)
    found = group.estimate(split, VIOLATION_PREFIX + name)
    amount = "not measured" if found.mean is None else estimate_cell(found).text
    share = f" ({satisfied}/{trials})" if trials > 1 else ""
    text = f"{check_mark(satisfied, trials)} {amount}{share}"
    return SheetCell(text, found.mean, share_tone(satisfied, trials))


def status_sheet(ledger: Ledger) -> Sheet:
    """Return how the trials of each algorithm ended, and their total time."""
    rows = []
    for label, trials in group_by(ledger.plan, lambda trial: trial.label).items():
        results = [ledger.results[trial.key] for trial in trials if trial.key in ledger.results]
        seconds = sum(result.seconds for result in results)
        rows.append(
            [
                ("algorithm", label),
                ("trials", len(trials)),
                ("status", status_cell(Counter(map(ledger.status, trials)))),
                ("seconds", SheetCell(f"{seconds:,.1f}", seconds)),
            ]
        )
    return make_sheet("How trials ended", rows, "Seconds are the sum over all trials.")


def tuning_sheet(ledger: Ledger) -> Sheet:
    """Return means of what each setting that trials tried reached, and how often it was chosen."""
    tried = [
        (trial, row)
        for trial in ledger.plan
        if trial.key in ledger.results
        for row in ledger.results[trial.key].trace
        if "setting" in row
    ]
    alike = group_by(tried, lambda each: repr((each[0].label, each[0].point, each[1]["setting"])))
    names = [name for name in TUNING_NUMBERS if any(name in row for _, row in tried)]
    if not any(row.get("unsolved") for _, row in tried):
        names = [name for name in names if name != "unsolved"]
    rows: list[SheetRow] = []
    for own in alike.values():
        trial, row = own[0]
        rows.append(
            [
                ("algorithm", trial.label),
                *([("at", format_point(trial.point))] if ledger.sweep else []),
                ("setting", format_setting(row["setting"])),
                *((name, _mean_cell([each.get(name) for _, each in own])) for name in names),
                ("chosen", share_cell(sum(each["chosen"] for _, each in own), len(own))),
            ]
        )
    note = "Means over the trials on rows that a setting's models have not seen."
    notes = [note, *(text for name, text in TUNING_NOTES.items() if name in names)]
    return make_sheet("Tuned parameters", rows, " ".join(notes))


def _mean_cell(values: Iterable[float | None]) -> SheetCell | str:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return number_cell(float(np.mean(known))) if known else UNKNOWN


def requested_sheets(ledger: Ledger) -> list[Sheet]:
    """Return a sheet for each entry of `report: tables`, then those of the filter before training.

    Without entries, there is one sheet with all metrics. The filter is shown on the training and
    test sets.
    """
    found = []
    for position, table in enumerate(ledger.report_entries("tables") or [{}], 1):
        title = table.get("file") or f"Table {position}"
        found.append(_requested_sheet(ledger.for_metrics(table.get("columns") or ()), table, title))
    stage = ledger.filter_stage
    splits = [split for split in ("train", "test") if split in stage.splits]
    if stage.plan and not splits:
        splits = ["train"]  # no filter was found, which the table reports
    columns = [name for name in stage.metrics if name.startswith(FILTER_STAGE_PREFIX)]
    title = "The filter before training"
    tables = [{"split": split, "columns": columns} for split in splits]
    return found + [_requested_sheet(stage, table, title) for table in tables]


def _requested_sheet(ledger: Ledger, table: Mapping[str, Any], title: str) -> Sheet:
    names = list(table.get("rows") or identity_columns(ledger))
    split = table.get("split") or "test"
    groups = seed_groups(ledger, by_seed="seed" in names)
    shown = {repr(identity_cells(group, names)) for group in groups}
    if len(shown) < len(groups):  # further columns tell the rows apart
        names += [name for name in identity_columns(ledger) if name not in names]
    metrics: dict[str, SplitMetric] = {}
    for metric in table.get("columns") or ledger.metrics:
        if metric.startswith(VIOLATION_PREFIX):  # on all splits
            metrics |= {f"{metric} {each}": (each, metric) for each in ledger.splits}
        else:
            metrics[metric] = split, metric
    rows = []
    for group in sort_groups(groups, names):
        trials = group.trials(metrics.values())
        rows.append(
            [
                *identity_cells(group, names),
                *(
                    (name, estimate_cell(group.estimate(*place), trials))
                    for name, place in metrics.items()
                ),
                ("n", trials),
                ("status", status_cell(group.statuses, group.constants)),
            ]
        )
    return make_sheet(f"{title} ({split})", rows)


def best_sheet(ledger: Ledger) -> Sheet:
    """Return a row for each task with the best group that keeps its constraints on new data.

    That is the one with the lowest mean objective among those whose constraints hold in a share of
    the trials of at least `DEFAULT_LEVEL`, and those that should hold with a stated probability
    which the test sets do not contradict. It has a model in at least half of the trials. If there
    is none, the one whose constraints hold most often counts as best. A task is a point of the
    file's own sweep, together with the values of names used in constraints or the objective.
    """
    split = next((each for each in BEST_SPLITS if each in ledger.algorithms.splits), "")
    rules = [str(ledger.experiment.get(OBJECTIVE, "")), *ledger.constraints.values()]
    words = set(re.findall(r"\w+", " ".join(rules))) | set(ledger.experiment.get("sweep") or ())
    names = [name for name in ledger.algorithms.sweep if name in words]
    means = (
        (each, each.estimate(split, OBJECTIVE).mean) for each in seed_groups(ledger.algorithms)
    )
    tasks = group_by(
        (each for each, mean in means if mean is not None and not math.isnan(mean)),
        # as displayed: 1 and 1.0 define the same task
        lambda each: tuple(format_scalar(each.point.get(name)) for name in names),
    )
    note = f"The lowest mean objective on {split} rows over the trials with results."
    if ledger.constraints:
        note = (
            f"The lowest mean objective on {split} rows among those with a model in half of the "
            f"trials whose constraints hold in {DEFAULT_LEVEL:.0%} of these, or should by `holds` "
            "and are not contradicted. `holds in` estimates that share without the noise of test "
            "sets; `satisfied in` counts. The best was chosen on these rows, so its objective is "
            "slightly optimistic."
        )
    rows = [_best_row(ledger, names, split, groups) for groups in tasks.values()]
    return make_sheet(f"Best results ({split})", rows, note)


@dataclass(frozen=True)
class _Candidate:
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
    """

    group: SeedGroup
    objective: IntervalEstimate
    share: float
    violation: float
    level: float | None
    is_kept: bool

    @classmethod
    def of(cls, group: SeedGroup, split: str, constraints: Iterable[str]) -> _Candidate:
        objective = group.estimate(split, OBJECTIVE)
        found = [group.violation_sample(split, name) for name in constraints]
        samples = [each for each in found if each is not None]
        means = [group.estimate(split, VIOLATION_PREFIX + name).mean for name in constraints]
        violation = float(np.max(np.array(means, dtype=float), initial=-math.inf))
        levels = [each.level for each in samples if each.level is not None]
        complete = len(samples) == len(found)
        share = math.prod(each.share for each in samples) if complete else 0.0
        stated = complete and bool(levels) and all(each.keeps_level for each in samples)
        answered = 2 * objective.n >= len(group.outcomes)
        is_kept = answered and (share >= DEFAULT_LEVEL or stated)
        return cls(group, objective, share, violation, min(levels, default=None), is_kept)

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Order by objective if constraints hold often enough, else by how often they do."""
        if self.is_kept:
            return False, self.objective.mean or 0.0, -self.share
        return True, -self.share, float(np.nan_to_num(self.violation, nan=math.inf))


def _best_row(
    ledger: Ledger, names: Sequence[str], split: str, groups: Iterable[SeedGroup]
) -> SheetRow:
    constraints = list(ledger.constraints)
    best = min((_Candidate.of(each, split, constraints) for each in groups), key=lambda c: c.rank)
    point, label = best.group.point, best.group.label
    unsolved = (
        f"{trial.label}, seed {trial.seed}: {ledger.reason(trial)}"
        for trial in ledger.algorithms.plan
        if ledger.status(trial) == "no_solution_found"
        and all(trial.point.get(name) == point.get(name) for name in names)
    )
    none = SheetCell(f"none (closest: {label})", tone="bad", more=next(unsolved, ""))
    row = [(each, point.get(each)) for each in names]
    row += [("best", label if best.is_kept else none), ("variant", best.group.variant)]
    if others := [each for each in ledger.sweep if each not in names]:
        row.append(("at", format_point({each: point[each] for each in others if each in point})))
    row.append((OBJECTIVE, estimate_cell(best.objective, best.objective.n)))
    if constraints:
        stated = "" if best.level is None else f" (stated: {best.level:.3g})"
        tone = "good" if best.share >= DEFAULT_LEVEL else "" if best.is_kept else "bad"
        unknown = math.isnan(best.violation)
        row += [
            ("worst violation", UNKNOWN if unknown else number_cell(best.violation)),
            ("holds in", SheetCell(f"{best.share:.2f}{stated}", best.share, tone)),
            ("satisfied in", satisfied_cell([best.group], split)),
        ]
    return [*row, ("n", best.objective.n)]
