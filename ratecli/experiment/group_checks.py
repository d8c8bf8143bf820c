"""Checks of label kinds, and of the groups that a filter balances or hides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.config.filter import FILTER
from ratecli.datasets import registry
from ratecli.datasets.entry import DatasetEntry
from ratecli.errors import Diagnostic, FaultError, Loc, SourceLocation
from ratecli.experiment.cases import Case
from ratecli.experiment.options import solver_class
from ratecli.experiment.reading import ExperimentReader
from ratecli.experiment.row_checks import small_parts
from ratecli.rates import expression as ex
from ratecli.rates.affine import balance
from ratecli.rates.expression import Expression, Leaf, MeasuredNode, Slice
from ratecli.rates.sample import Sample
from ratecli.rates.table import RATES
from ratecli.sampling.rows import TrialData
from ratecli.solvers.registry import loadable_solvers

NUMERIC_ERROR_RATES = frozenset({"error", "squared_error"})
"""Kinds of measurement that exist for numeric labels (`rates.table.Measurement`)."""

NUMERIC_LABEL_METRICS = " and ".join(
    name for name, rate in RATES.items() if rate.of in NUMERIC_ERROR_RATES
)


@dataclass(frozen=True)
class LabelKinds:
    """Whether the labels of each data set are numbers."""

    numbers: Mapping[str, bool]

    @classmethod
    def of(cls, entries: Mapping[str, DatasetEntry]) -> LabelKinds:
        """Determine the label kinds from the entries of `datasets:`, by name."""
        found = {name: registry.label_range(entry) for name, entry in entries.items()}
        return cls({name: each is not None for name, each in found.items()})

    def with_defaults(self, experiment: Experiment, document: Document) -> Experiment:
        """Return the experiment; objective and metrics default to mse if all labels are numbers."""
        if not all(self.numbers.values()):
            return experiment
        new = {"objective": "mse", "metrics": {"mse": "mse"}}
        absent = {key: value for key, value in new.items() if key not in document.data}
        return experiment.model_copy(update=absent)

    def check(self, reading: ExperimentReader, cases: Sequence[Case]) -> None:
        """Check that goals, metrics, algorithms and data sets match the label kinds.

        Raises
        ------
        FaultError
            E411 if labels of both kinds are pooled, E306 if a rate needs classes, E308 if an
            algorithm needs labels of the other kind, E104 if numeric labels are combined with
            `levels`.
        """
        found = dict.fromkeys(self._levels(reading.document))
        for case in cases:
            kinds = {self.numbers[name] for name in case.datasets}
            if len(kinds) > 1:
                found |= dict.fromkeys(self._mixed(reading.document, case))
                continue
            if kinds == {True}:
                found |= dict.fromkeys(_check_label_rates(reading.document, case))
            found |= dict.fromkeys(_check_label_support(reading, case, numbers=kinds == {True}))
        if found:
            raise FaultError(found)

    def _mixed(self, document: Document, case: Case) -> Iterator[Diagnostic]:
        numbers = next(name for name in case.datasets if self.numbers[name])
        classes = next(name for name in case.datasets if not self.numbers[name])
        message = (
            f"'{numbers}' and '{classes}' are one table, "
            f"and only the labels of '{numbers}' are numbers"
        )
        hint = f"take them one by one: sweep: {{dataset: [{', '.join(case.datasets)}]}}"
        yield Diagnostic(
            "E411", message, hint, place=document.place(("datasets", numbers), key=True)
        )

    def _levels(self, document: Document) -> Iterator[Diagnostic]:
        entries = document.data["datasets"]
        for name in (name for name, number in self.numbers.items() if number):
            if entries[name].get("levels") is not None:
                message = "'levels' are thresholds of decisions, and the label is a number"
                place = document.place(("datasets", name, "levels"), key=True)
                yield Diagnostic("E104", message, "leave it out", place=place)


def _check_label_rates(document: Document, case: Case) -> Iterator[Diagnostic]:
    """Yield an E306 for each rate that counts decisions or ranks rows of two classes."""
    for loc, tree in case.texts():
        for leaf in _label_rates(tree):
            if not isinstance(leaf, Leaf) or leaf.rate.of not in NUMERIC_ERROR_RATES:
                message = (
                    f"'{ex.to_text(leaf)}' needs labels of two classes, and here they are numbers"
                )
                hint = f"rates of numbers: {NUMERIC_LABEL_METRICS}"
                yield Diagnostic("E306", message, hint, place=document.place(loc, leaf.span))


def _label_rates(node: Expression) -> Iterator[MeasuredNode]:
    """Yield the rates of an expression, including those inside `of(...)`."""
    yield from ex.measured_nodes(node)
    for part in ex.walk(node):
        if isinstance(part, ex.AlgorithmMetric):
            yield from _label_rates(part.metric)


def _check_label_support(
    reading: ExperimentReader, case: Case, *, numbers: bool
) -> Iterator[Diagnostic]:
    """Yield an E308 if the algorithm, with its options, learns labels of the other kind."""
    place = reading.option(case.label, "")
    if numbers and not case.solver.takes_numbers:
        message = f"algorithm '{case.label}' needs labels of two classes, and here they are numbers"
        able = ", ".join(_numeric_label_algorithms())
        hint = f"algorithms that can: {able}" if able else "no algorithm here can yet"
        yield Diagnostic("E308", message, hint, place=place)
    if not numbers and not case.solver.takes_classes:
        options = solver_class(case.algorithm).numbers or {}
        asked = ", ".join(f"{key}: {value}" for key, value in options.items())
        message = (
            f"'{asked}' of '{case.label}' estimates labels that are numbers, "
            "and here they are of two classes"
        )
        hint = "take another value, or say `target: number` of the data set if its label is one"
        yield Diagnostic(
            "E308", message, hint, place=_option_place(reading, case, options) or place
        )


def _option_place(
    reading: ExperimentReader, case: Case, options: Mapping[str, Any]
) -> SourceLocation | None:
    """Return the location of the first of some options that the entry sets."""
    said = next(
        entry.options for entry in reading.experiment.algorithms if entry.label == case.label
    )
    key = next((key for key in options if key in said), None)
    return None if key is None else reading.option(case.label, key)


def _numeric_label_algorithms() -> Iterator[str]:
    """Yield the algorithms that learn numeric labels, as a file writes them."""
    for name, found in loadable_solvers():
        options = found.numbers
        if options is not None:
            shown = ", ".join(f"{key}: {value}" for key, value in options.items())
            yield f"{name}: {{{shown}}}" if shown else name


SHARE_ROUNDING = 1e-9
"""Tolerance for the sum of target shares."""

PlaceFinder = Callable[[Case, Leaf], SourceLocation]


def check_groups(
    experiment: Experiment, document: Document, rows: TrialData, cases: Sequence[Case]
) -> list[Diagnostic]:
    """Return errors and warnings about the groups of filters among cases with the same rows.

    E408 for a group without training rows, W401 for a group that is small or missing in another
    split, E411 for training rows of unknown group, E305 for unreachable targets.
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
    """Return an E411 for each column of a filter's groups with missing values in training rows."""
    return [fault for fault, _ in _check_group_columns(sample, case)] if case.unseen else []


def _filter_case_groups(case: Case) -> Iterator[tuple[Leaf, Loc]]:
    """Yield every group of a filter's goals, with the location of the goal's text."""
    for goal in case.goals():
        loc: Loc = ("objective",) if goal is case.objective else ("constraints", goal.name)
        for leaf in ex.leaves(goal.expression):
            if leaf.where.conditions:
                yield leaf, loc


def _group_place(
    experiment: Experiment, document: Document, case: Case, leaf: Leaf
) -> SourceLocation:
    """Return the location of a group in the file: in a goal, or in `filter:`."""
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
    """Yield an E305 for target shares that disjoint groups cannot have together."""
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
    """Return why no rows have such shares of groups of one column, "" if some may."""
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
