"""What only the rows tell of the groups that a filter balances or keeps secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ratecli.config.document import Document, Loc
from ratecli.config.experiment import Experiment
from ratecli.config.filter import FILTER
from ratecli.errors import Fault, Place
from ratecli.experiment.cases import Case
from ratecli.experiment.row_checks import small
from ratecli.rates import expression as ex
from ratecli.rates.balance import balance
from ratecli.rates.expression import Leaf, Where
from ratecli.rates.sample import Sample
from ratecli.sampling.rows import World

ROUNDING = 1e-9
"""How far targets may miss what they have to add up to."""

Placing = Callable[[Case, Leaf], Place]


def group_faults(
    experiment: Experiment, document: Document, rows: World, cases: Sequence[Case]
) -> list[Fault]:
    """Faults and warnings about the groups of those cases that are filters, all given these rows.

    E408 for a group without training rows, W401 for one of few or without rows of another split, E411 for
    training rows of no known group, E305 for targets that nothing can have.
    """
    found = dict[Fault, None]()
    for case in (case for case in cases if case.unseen):
        for leaf in dict.fromkeys(leaf for leaf, _ in _groups(case)):
            place = _place(experiment, document, case, leaf)
            found |= dict.fromkeys(fault.at(place) for fault in _few(rows, leaf))
        for fault, leaf in (*_unknown(rows.sample, case), *_targets(rows.sample, case)):
            found[fault.at(_place(experiment, document, case, leaf))] = None
    return list(found)


def unknown_groups(sample: Sample, case: Case) -> list[Fault]:
    """An E411 for each column that a filter tells groups by and that training rows have no value of."""
    return [fault for fault, _ in _unknown(sample, case)] if case.unseen else []


def _groups(case: Case) -> Iterator[tuple[Leaf, Loc]]:
    """Every group of a filter's goals, and in which text of an algorithm's."""
    for goal in case.goals():
        loc: Loc = ("objective",) if goal is case.objective else ("constraints", goal.name)
        for leaf in ex.leaves(goal.expression):
            if leaf.where.conditions:
                yield leaf, loc


def _place(experiment: Experiment, document: Document, case: Case, leaf: Leaf) -> Place:
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
    loc = next(loc for other, loc in _groups(case) if other == leaf)
    return document.place(loc, leaf.span)


def _few(rows: World, leaf: Leaf) -> Iterator[Fault]:
    where = Where.of(leaf.where.datasets, leaf.where.conditions)
    counts = {split: int(rows.sample.rows(where, split).sum()) for split in rows.splits()}
    if not counts["train"]:
        hint = "take its rows together with those of another value, or leave them out of the data"
        yield Fault("E408", f"no training row is in the group '{where}'", hint)
        return
    for message in small(sum(counts.values()), counts):
        yield Fault("W401", f"the group '{where}' has {message}")


def _unknown(sample: Sample, case: Case) -> Iterator[tuple[Fault, Leaf]]:
    if getattr(case.solver, "missing", "") == "leave_out":
        return
    seen = dict[tuple[str, tuple[str, ...]], None]()
    for leaf, _ in _groups(case):
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
                yield Fault("E411", message, hint), leaf


def _targets(sample: Sample, case: Case) -> Iterator[tuple[Fault, Leaf]]:
    """An E305 for shares of groups without common rows that nothing can have together."""
    wanted = balance(case.objective.expression)
    if wanted is None:
        return
    columns: dict[tuple[object, ...], list[tuple[Leaf, float]]] = {}
    for leaf, target in zip(wanted.groups, wanted.target, strict=True):
        names = tuple(condition.column for condition in leaf.where.conditions)
        columns.setdefault((leaf.over, names), []).append((leaf, target))
    for group in columns.values():
        message = _impossible(sample, dict(group))
        if message:
            yield (
                Fault("E305", message, "targets are shares of the rows that are kept"),
                group[0][0],
            )


def _impossible(sample: Sample, targets: Mapping[Leaf, float]) -> str:
    """Why no rows have such shares of groups told by one column, "" if some may."""
    for leaf, target in targets.items():
        if not -ROUNDING <= target <= 1 + ROUNDING:
            return (
                f"a share of {target:g} is aimed at for '{leaf.where}', which lies between 0 and 1"
            )
    whole = sample.rows(next(iter(targets)).over, "train")
    inside = np.sum([sample.rows(leaf.where, "train") for leaf in targets], axis=0)
    total = sum(targets.values())
    names = ", ".join(f"'{leaf.where}'" for leaf in targets)
    if inside.max(initial=0) > 1:
        return ""
    if total > 1 + ROUNDING:
        return f"the shares aimed at for {names}, which have no row in common, add up to {total:g}"
    if total < 1 - ROUNDING and (inside[whole] == 1).all():
        return f"the shares aimed at for {names}, of which each row is in one, add up to {total:g}"
    return ""
