"""What only the rows tell of the groups that a filter balances or keeps secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ratecli.config.document import Document, Loc
from ratecli.config.experiment import Experiment
from ratecli.config.filter import FILTER
from ratecli.errors import Diagnostic, SourceLocation
from ratecli.experiment.cases import Case
from ratecli.experiment.row_checks import small_parts
from ratecli.rates import expression as ex
from ratecli.rates.balance import balance
from ratecli.rates.expression import Leaf, Slice
from ratecli.rates.sample import Sample
from ratecli.sampling.rows import TrialData

SHARE_ROUNDING = 1e-9
"""How far targets may miss what they have to add up to."""

PlaceFinder = Callable[[Case, Leaf], SourceLocation]


def check_groups(
    experiment: Experiment, document: Document, rows: TrialData, cases: Sequence[Case]
) -> list[Diagnostic]:
    """Faults and warnings about the groups of those cases that are filters, all given these rows.

    E408 for a group without training rows, W401 for one of few or without rows of another split, E411 for
    training rows of no known group, E305 for targets that nothing can have.
    """
    found = dict[Diagnostic, None]()
    for case in (case for case in cases if case.unseen):
        for leaf in dict.fromkeys(leaf for leaf, _ in _filter_case_groups(case)):
            place = _group_place(experiment, document, case, leaf)
            found |= dict.fromkeys(fault.at(place) for fault in _check_group_size(rows, leaf))
        for fault, leaf in (
            *_check_group_columns(rows.sample, case),
            *_check_target_shares(rows.sample, case),
        ):
            found[fault.at(_group_place(experiment, document, case, leaf))] = None
    return list(found)


def check_known_groups(sample: Sample, case: Case) -> list[Diagnostic]:
    """An E411 for each column that a filter tells groups by and that training rows have no value of."""
    return [fault for fault, _ in _check_group_columns(sample, case)] if case.unseen else []


def _filter_case_groups(case: Case) -> Iterator[tuple[Leaf, Loc]]:
    """Every group of a filter's goals, and in which text of an algorithm's."""
    for goal in case.goals():
        loc: Loc = ("objective",) if goal is case.objective else ("constraints", goal.name)
        for leaf in ex.leaves(goal.expression):
            if leaf.where.conditions:
                yield leaf, loc


def _group_place(
    experiment: Experiment, document: Document, case: Case, leaf: Leaf
) -> SourceLocation:
    """Where a file speaks of a group: in a goal, or in `filter:`."""
    if case.label not in {entry.label for entry in experiment.algorithms}:
        stage, at = experiment.filter, document.data[FILTER]
        assert stage is not None
        if stage.balance is None:
            return document.place((FILTER, "objective"), leaf.span)
        columns = [str(case.point.get(name, name)) for name in stage.balance]
        k = columns.index(leaf.where.conditions[0].column)
        several = isinstance(at["balance"], list)
        return document.place((FILTER, "balance", k) if several else (FILTER, "balance"))
    loc = next(loc for other, loc in _filter_case_groups(case) if other == leaf)
    return document.place(loc, leaf.span)


def _check_group_size(rows: TrialData, leaf: Leaf) -> Iterator[Diagnostic]:
    where = Slice.of(leaf.where.datasets, leaf.where.conditions)
    counts = {split: int(rows.sample.rows(where, split).sum()) for split in rows.splits()}
    if not counts["train"]:
        hint = "take its rows together with those of another value, or leave them out of the data"
        yield Diagnostic("E408", f"no training row is in the group '{where}'", hint)
        return
    for message in small_parts(sum(counts.values()), counts):
        yield Diagnostic("W401", f"the group '{where}' has {message}")


def _check_group_columns(sample: Sample, case: Case) -> Iterator[tuple[Diagnostic, Leaf]]:
    if getattr(case.solver, "missing", "") == "leave_out":
        return
    seen = dict[tuple[str, tuple[str, ...]], None]()
    for leaf, _ in _filter_case_groups(case):
        for column in (condition.column for condition in leaf.where.conditions):
            if (column, leaf.over.datasets) in seen:
                continue
            seen[column, leaf.over.datasets] = None
            values = sample.columns[column][sample.rows(leaf.over, "train")]
            count = int(np.asarray(pd.isna(values)).sum())
            if count:
                have = "row has" if count == 1 else "rows have"
                whose = "its group is" if count == 1 else "their group is"
                message = f"{count} training {have} no value of '{column}': {whose} not known"
                hint = "say missing: leave_out among the filter's options"
                yield Diagnostic("E411", message, hint), leaf


def _check_target_shares(sample: Sample, case: Case) -> Iterator[tuple[Diagnostic, Leaf]]:
    """An E305 for shares of groups without common rows that nothing can have together."""
    wanted = balance(case.objective.expression)
    if wanted is None:
        return
    columns: dict[tuple[object, ...], list[tuple[Leaf, float]]] = {}
    for leaf, target in zip(wanted.groups, wanted.target, strict=True):
        names = tuple(condition.column for condition in leaf.where.conditions)
        columns.setdefault((leaf.over, names), []).append((leaf, target))
    for group in columns.values():
        message = _infeasible_targets(sample, dict(group))
        if message:
            yield (
                Diagnostic("E305", message, "targets are shares of the rows that are kept"),
                group[0][0],
            )


def _infeasible_targets(sample: Sample, targets: Mapping[Leaf, float]) -> str:
    """Why no rows have such shares of groups told by one column, "" if some may."""
    for leaf, target in targets.items():
        if not -SHARE_ROUNDING <= target <= 1 + SHARE_ROUNDING:
            return (
                f"a share of {target:g} is aimed at for '{leaf.where}', which lies between 0 and 1"
            )
    whole = sample.rows(next(iter(targets)).over, "train")
    inside = np.sum([sample.rows(leaf.where, "train") for leaf in targets], axis=0)
    total = sum(targets.values())
    names = ", ".join(f"'{leaf.where}'" for leaf in targets)
    if inside.max(initial=0) > 1:
        return ""
    if total > 1 + SHARE_ROUNDING:
        return f"the shares aimed at for {names}, which have no row in common, add up to {total:g}"
    if total < 1 - SHARE_ROUNDING and (inside[whole] == 1).all():
        return f"the shares aimed at for {names}, of which each row is in one, add up to {total:g}"
    return ""
