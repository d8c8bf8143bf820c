"""The report's tables: requested tables, constraints, rates of groups, statuses and failures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ratecli.config.sweep import CONSTRAINT_AXIS, applied_constraints
from ratecli.ledger.records import FILTER_STAGE_PREFIX, OBJECTIVE, VIOLATION_PREFIX, is_violated
from ratecli.ledger.view import Ledger
from ratecli.report import sheet as st
from ratecli.report.answer import answer_split, answers, best_means
from ratecli.report.groups import SeedGroup, SplitMetric, count_satisfied, group_by, seed_groups
from ratecli.report.templates import note

NUMBER = re.compile(r"[-+]?(\d[\d,.]*(e[-+]?\d+)?|inf\b|nan\b)")
TUNING_NUMBERS = ("loss", "objective", "violation", "unsolved")
ORDINARY_STATUSES = frozenset({"ok", "not_met"})
"""Statuses of trials with results, which the other tables cover."""
MAX_STACK_LENGTH = 6000
"""Maximum characters of a traceback; the end is kept, as it is the most informative part."""


def unsolved_sheet(ledger: Ledger) -> st.Sheet:
    """Return failed, unfinished and unsolved trials of each algorithm by reason."""
    planned = Counter(trial.label for trial in ledger.plan)
    unsolved = [trial for trial in ledger.plan if ledger.status(trial) not in ORDINARY_STATUSES]
    alike = group_by(
        unsolved,
        lambda each: (each.label, ledger.status(each), NUMBER.sub("#", ledger.reason(each))),
    )
    rows: list[st.SheetRow] = []
    for trials in sorted(alike.values(), key=len, reverse=True):
        first, status = trials[0], ledger.status(trials[0])
        result = ledger.results.get(first.key)
        stack = str(result.info.get("traceback") or "") if result else ""
        where = ", ".join(filter(None, [st.format_point(first.point), f"seed {first.seed}"]))
        rows.append(
            [
                ("algorithm", first.label),
                ("status", st.SheetCell(status, tone=st.status_cell({status: 1}).tone)),
                ("trials", st.share_cell(len(trials), planned[first.label])),
                ("first", where),
                ("reason", st.SheetCell(ledger.reason(first), more=stack[-MAX_STACK_LENGTH:])),
            ]
        )
    return st.make_sheet("Unsolved and unfinished trials", rows, note("unsolved"))


def constraint_sheet(ledger: Ledger, *, by_point: bool = False) -> st.Sheet:
    """Return constraint satisfaction, by algorithm, variant and constraint (rows) and split.

    `by_point` also has rows for each sweep point, with mean violations.
    """
    hidden = {CONSTRAINT_AXIS} if by_point else {*ledger.sweep}  # rows name the constraint
    names = [name for name in st.identity_columns(ledger) if name not in hidden]
    groups = st.sort_groups(seed_groups(ledger.algorithms), names)
    alike = group_by(groups, lambda group: repr(st.identity_cells(group, names)))
    cell = _violation_cell if by_point else st.satisfied_cell
    rows = [
        [
            *st.identity_cells(own[0], names),
            ("constraint", name),
            *((split, cell(own, split, name)) for split in ledger.splits),
            (
                "status",
                st.status_cell(
                    sum((Counter(each.statuses) for each in own), Counter()),
                    sum(each.constants for each in own),
                ),
            ),
        ]
        for every in alike.values()
        for name in ledger.constraints
        if (own := [each for each in every if name in applied_constraints([name], each.point)])
    ]
    if by_point:
        return st.make_sheet(
            "Constraints at each sweep point", rows, note("violations", unknown=st.UNKNOWN)
        )
    return st.make_sheet("Satisfied constraints", rows, note("satisfied", unknown=st.UNKNOWN))


def _violation_cell(groups: Sequence[SeedGroup], split: str, name: str) -> st.SheetCell:
    (group,) = groups
    satisfied, trials = count_satisfied(groups, split, name)
    if not trials:
        return st.SheetCell(st.UNKNOWN)
    found = group.estimate(split, VIOLATION_PREFIX + name)
    amount = "not measured" if found.mean is None else st.estimate_cell(found).text
    share = f" ({satisfied}/{trials})" if trials > 1 else ""
    text = f"{st.check_mark(satisfied, trials)} {amount}{share}"
    tone = st.share_tone(satisfied, trials)
    harmless = found.mean is not None and not is_violated(found.mean)
    return st.SheetCell(text, found.mean, "" if harmless and tone != "good" else tone)


def group_rate_sheet(ledger: Ledger) -> st.Sheet:
    """Return the rates of groups on new rows, with a column for each group.

    The rows are all settings of a single task. Of several tasks, they are the answers and the
    settings without constraints that these are compared with.
    """
    found, split = answers(ledger), answer_split(ledger)
    groups = [each for each in seed_groups(ledger.algorithms) if each.estimate(split, OBJECTIVE).n]
    if len(found) > 1:
        both = ((each.baseline, each.best.group) for each in found)
        groups = [group for pair in both for group in pair if group]
    distinct = group_by(groups, lambda each: (each.name, repr(each.rates)))
    names = dict.fromkeys(name for each in groups for _, name in each.rates)
    rows: list[st.SheetRow] = []
    for each, *_ in distinct.values():
        for rate in dict.fromkeys(rate for rate, _ in each.rates):
            known = {name: each.rates.get((rate, name)) for name in names}
            means = [found.mean for found in known.values() if found and found.mean is not None]
            cells = {
                name: st.estimate_cell(found) if found else "" for name, found in known.items()
            }
            gap = st.number_cell(max(means) - min(means)) if means else ""
            setting = ", ".join(filter(None, [each.name, st.format_point(each.point)]))
            rows.append({"setting": setting, "rate": rate, **cells, "largest gap": gap})
    return st.make_sheet(f"Rates by group ({split})", rows, note("group_rates", split=split))


def status_sheet(ledger: Ledger) -> st.Sheet:
    """Return how the trials of each algorithm ended, and their total time."""
    rows = []
    for label, trials in group_by(ledger.plan, lambda trial: trial.label).items():
        results = [ledger.results[trial.key] for trial in trials if trial.key in ledger.results]
        seconds = sum(result.seconds for result in results)
        rows.append(
            [
                ("algorithm", label),
                ("trials", len(trials)),
                ("status", st.status_cell(Counter(map(ledger.status, trials)))),
                ("seconds", st.SheetCell(f"{seconds:,.1f}", seconds)),
            ]
        )
    return st.make_sheet("How trials ended", rows, "Seconds are the sum over all trials.")


def tuning_sheet(ledger: Ledger) -> st.Sheet:
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
    rows: list[st.SheetRow] = []
    for own in alike.values():
        trial, row = own[0]
        rows.append(
            [
                ("algorithm", trial.label),
                *([("at", st.format_point(trial.point))] if ledger.sweep else []),
                ("setting", st.format_setting(row["setting"])),
                *((name, _mean_cell([each.get(name) for _, each in own])) for name in names),
                ("chosen", st.share_cell(sum(each["chosen"] for _, each in own), len(own))),
            ]
        )
    return st.make_sheet("Tuned parameters", rows, note("tuning", numbers=names))


def _mean_cell(values: Iterable[float | None]) -> st.SheetCell | str:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return st.number_cell(float(np.mean(known))) if known else st.UNKNOWN


def requested_sheets(ledger: Ledger) -> list[st.Sheet]:
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


def _requested_sheet(ledger: Ledger, table: Mapping[str, Any], title: str) -> st.Sheet:
    names = list(table.get("rows") or st.identity_columns(ledger))
    split = table.get("split") or "test"
    planned = seed_groups(ledger, by_seed="seed" in names)
    groups = [each for each in planned if each.ended] or planned
    shown = {repr(st.identity_cells(group, names)) for group in groups}
    if len(shown) < len(groups):  # further columns tell the rows apart
        names += [name for name in st.identity_columns(ledger) if name not in names]
    metrics: dict[str, SplitMetric] = {}
    for metric in table.get("columns") or ledger.metrics:
        if metric.startswith(VIOLATION_PREFIX):  # on all splits
            metrics |= {f"{metric} {each}": (each, metric) for each in ledger.splits}
        else:
            metrics[metric] = split, metric
    repeated = {} if table.get("columns") else _repeated_columns(groups, metrics)
    metrics = {name: place for name, place in metrics.items() if name not in repeated}
    groups = st.sort_groups(groups, names)
    best = best_means(ledger, groups, split, metrics)
    rows = []
    for k, group in enumerate(groups):
        trials = group.measured(metrics.values())
        means = {name: group.estimate(*place) for name, place in metrics.items()}
        rows.append(
            [
                *st.identity_cells(group, names),
                *(
                    (name, replace(st.estimate_cell(each, trials), best=(k, name) in best))
                    for name, each in means.items()
                ),
                ("n", trials),
                ("status", st.status_cell(group.statuses, group.constants)),
            ]
        )
    same = "; ".join(f"{name} equals {other}" for name, other in repeated.items())
    notes = [f"Not repeated: {same}." * bool(same), *ledger.row_notes]
    return st.make_sheet(f"{title} ({split})", rows, " ".join(filter(None, notes)))


def _repeated_columns(
    groups: Sequence[SeedGroup], metrics: Mapping[str, SplitMetric]
) -> dict[str, str]:
    """Return the metrics whose values repeat those of another on the same split, with the other."""
    first: dict[object, str] = {}
    found = {}
    for name, (split, metric) in metrics.items():
        values = tuple(group.estimate(split, metric) for group in groups)
        measured = any(each.n or each.nan for each in values)
        if measured and first.setdefault((split, values), name) != name:
            found[name] = first[split, values]
    return found
