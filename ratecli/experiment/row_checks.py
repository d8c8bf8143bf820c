"""Checks that need rows: empty groups, undefined rates, decisions of the deployed model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ratecli.certify.trees import plan_goal_test
from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.datasets.split import StrataError
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean
from ratecli.experiment.cases import OF_PLACEHOLDER, Case, resolve_goals
from ratecli.experiment.reading import ColumnValues, DatasetNames, ExperimentReader, stated_groups
from ratecli.experiment.safety import safety_key_loc
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression, MeasuredNode, Slice
from ratecli.rates.matrix import RateMatrix, build_rate_matrix
from ratecli.rates.sample import Sample
from ratecli.rates.syntax import Condition
from ratecli.rates.table import DEPLOYED
from ratecli.sampling.deployed import with_stored_decisions
from ratecli.sampling.resampling import SamplingSpec
from ratecli.sampling.rows import (
    ExperimentData,
    TrialData,
    get_table,
    load_trial_data,
    split_dataset,
)
from ratecli.sampling.safety_rows import goal_leaves, rates_on_split, without_split_condition
from ratecli.sampling.undefined import check_defined_rates, check_defined_ratios

SplitRate = tuple[Loc, MeasuredNode]
"""A rate of a named split, with the location of its text."""
SPLIT_HINT = "give a data set such rows by its split, or take another split"


def find_split_rows(sample: Sample, cases: Sequence[Case]) -> dict[SplitRate, bool]:
    """Return whether the sample has rows of each split that a rate in the metrics names.

    Only the data sets of the rate's slice count. The slice itself may still be empty, which the
    warnings about groups report. Goals are not included: they are measured on training rows.
    """
    return {
        (loc, leaf): bool(sample.rows(leaf.where.everyone, leaf.split).any())
        for case in cases
        for loc, tree in case.texts()
        if loc[0] == "metrics"
        for leaf in _split_rates(tree)
    }


def check_split_rates(document: Document, found: Mapping[SplitRate, bool]) -> Iterator[Diagnostic]:
    """Yield an E208 for each rate of a split without rows, since it would be undefined."""
    for (loc, leaf), there in found.items():
        if not there:
            of = (
                " of " + " and ".join(map("'{}'".format, leaf.where.datasets))
                if leaf.where.datasets
                else ""
            )
            message = f"'{ex.to_text(leaf)}' has no value: there are no {leaf.split} rows{of}"
            hint = "state a test under `safety`" if leaf.split == "safety" else SPLIT_HINT
            yield Diagnostic("E208", message, hint, place=document.place(loc, leaf.span))


def _split_rates(node: Expression) -> Iterator[MeasuredNode]:
    """Yield the rates of an expression that name a split, including those inside `of(...)`."""
    yield from (part for part in ex.measured_nodes(node) if part.split is not None)
    for part in ex.walk(node):
        if isinstance(part, ex.AlgorithmMetric):
            yield from _split_rates(part.metric)


def check_constraint_obstacles(
    sample: Sample, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield each algorithm's objections to its constraints, placed at the constraints.

    Constraints that depend on another trial (`of(...)`, decisions of a deployed algorithm) are left
    to the trial.
    """
    matrices: dict[tuple[ex.Leaf, ...], RateMatrix] = {}
    for case in cases:
        if case.solver.role == "ignores":
            continue
        for goal in _constant_constraints(case, sample):
            leaves = tuple(ex.leaves(*goal.pieces))
            if leaves not in matrices:
                matrices[leaves] = build_rate_matrix(leaves, sample, "train")
            fault = case.solver.obstacle(goal, matrices[leaves])
            if fault is not None:
                yield fault.at(document.place(("constraints", goal.name)))


def check_label_slices(
    sample: Sample, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an E308 for each rate in a goal whose slice reveals the label.

    Only algorithms whose classifiers use slices as features are checked.
    """
    for case in cases:
        goals = (each for each in case.texts() if each[0][0] != "metrics")
        for loc, tree in goals if case.solver.sees_slices else ():
            for leaf in ex.leaves(tree):
                telling = [item for item in leaf.where.conditions if _reveals_label(item, sample)]
                if telling:
                    message = (
                        f"algorithm '{case.label}' decides by the slices of its goals, and "
                        f"'{telling[0]}' tells the label"
                    )
                    hint = "rates such as tpr and fpr are of rows of one label"
                    yield Diagnostic("E308", message, hint, place=document.place(loc, leaf.span))


def check_testable_constraints(
    sample: Sample, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield what a safety test objects to in the constraints, placed at the constraints.

    E308 for constraints that it cannot bound, E411 for rows that it cannot use.
    """
    seen = set[tuple[str, str]]()
    for case in cases:
        promise = case.promise(int((sample.part == "safety").sum()))
        if promise is None:
            continue
        for goal in resolve_goals(case, lambda _: OF_PLACEHOLDER)[1]:
            known = (ex.to_text(goal.expression), promise.method)
            if known in seen:
                continue
            seen.add(known)
            goal_there = without_split_condition(goal)
            rates, _ = rates_on_split(goal_leaves([goal_there]), sample, "safety")
            try:
                plan_goal_test(goal_there, promise, rates)
            except FaultError as error:
                place = document.place(("constraints", goal.name))
                yield from (fault.at(place) for fault in error.faults)


def _reveals_label(condition: Condition, sample: Sample) -> bool:
    """Return whether a condition holds for exactly the rows of one label."""
    known = sample.mask("labelled")
    holds = sample.rows(Slice((), (condition,)))[known]
    positive = sample.mask("+")[known]
    return np.array_equal(holds, positive) or np.array_equal(holds, ~positive)


def _constant_constraints(case: Case, sample: Sample) -> Iterator[Goal]:
    """Return the constraints as solvers get them, except those that depend on another trial."""
    _, rules = resolve_goals(case, lambda _: OF_PLACEHOLDER)
    open_ones = {goal.name for goal in case.constraints if _depends_on_trials(goal, sample)}
    return (goal for goal in rules if goal.name not in open_ones)


def _depends_on_trials(goal: Goal, sample: Sample) -> bool:
    if any(isinstance(part, ex.AlgorithmMetric) for part in ex.walk(goal.expression)):
        return True
    compared = any(leaf.rate.needs_deployed for leaf in ex.leaves(goal.expression))
    return compared and sample.deployed is None


SMALL_GROUP = 30
SORTED_ROWS_THRESHOLD = 6.0
"""Difference of mean labels, in standard errors, above which a file is probably sorted.

It is measured between the first and the last rows of each data set.
"""


def load_checked_rows(
    experiment: Experiment,
    document: Document,
    data: ExperimentData,
    columns: ColumnValues,
    deployed_model: bytes | None,
    *,
    drawing: SamplingSpec,
) -> TrialData:
    """Load the rows at the first seed; raise E205, E404, E406, E411 with places."""
    column = experiment.deployed.column if experiment.deployed else None
    if column is not None and column not in columns.values:
        place = document.place(("deployed", "column"))
        hint = did_you_mean(column, columns.values, "columns")
        raise FaultError(Diagnostic("E205", f"there is no column '{column}'", hint, place=place))
    try:
        rows = load_trial_data(data, experiment.seeds[0], column, drawing)
    except FaultError as error:
        loc = ("deployed", "column") if column else ("datasets",)
        place = document.place(loc, key=not column)
        raise FaultError(fault.at(place) for fault in error.faults) from None
    try:
        return rows if deployed_model is None else with_stored_decisions(rows, deployed_model)
    except FaultError as error:
        place = document.place(("deployed", "model"))
        raise FaultError(fault.at(place) for fault in error.faults) from None


def check_sampling(
    experiment: Experiment, document: Document, data: ExperimentData, cases: Sequence[Case]
) -> None:
    """Check that rows can be resampled and held out as the file specifies.

    Raises
    ------
    FaultError
        E410 if too few rows are sampled or held out, E205 for unknown columns in `stratify`, E411
        if held-out rows are also training rows under another name.
    """
    seed, faults = experiment.seeds[0], dict[Diagnostic, None]()
    seen = {(case.datasets, case.drawing): case for case in reversed(cases)}
    for (pool, drawing), case in seen.items():
        if drawing.holdout is not None:
            faults |= dict.fromkeys(_check_shared_rows(document, data, pool))
        for name in pool:
            try:
                if drawing.share is not None:
                    split_dataset(data, name, seed, SamplingSpec(drawing.share))
            except FaultError as error:
                place = document.place(("resample",))
                faults |= dict.fromkeys(fault.at(place) for fault in error.faults)
                continue
            try:
                if drawing.holdout is not None:
                    split_dataset(data, name, seed, drawing)
            except FaultError as error:
                for fault in error.faults:
                    strata = isinstance(error, StrataError) or fault.code == "E205"
                    key = "stratify" if strata else "fraction"
                    place = document.place(safety_key_loc(experiment, case.label, key))
                    faults[replace(fault, message=f"in '{name}' {fault.message}", place=place)] = (
                        None
                    )
    if faults:
        raise FaultError(faults)


def _check_shared_rows(
    document: Document, data: ExperimentData, pool: DatasetNames
) -> Iterator[Diagnostic]:
    """Yield an E411 for each data set that repeats the rows of an earlier one.

    Each data set holds out its own rows, so a held-out row of one could be a training row of the
    other.
    """
    first = dict[object, str]()
    for name in pool:
        rows = get_table(data, name)
        for each in (rows.digest, *(sha256 for _, sha256 in rows.files)):
            other = first.setdefault(each, name)
            if other != name:
                message = (
                    f"'{name}' has the same rows as '{other}': what is tested of one is trained on "
                    "as the other"
                )
                place = document.place(("datasets", name), key=True)
                yield Diagnostic(
                    "E411", message, "name them once, or leave out 'safety'", place=place
                )
                break


def check_rows(
    rows: TrialData, document: Document, reading: ExperimentReader, cases: Sequence[Case]
) -> list[Diagnostic]:
    """Return warnings about the rows of cases that share the same rows.

    Raises
    ------
    FaultError
        E306, E408 if there are no rows; E311 if the deployed model has no decision; E410 if an
        algorithm needs validation rows and there are none. Without any of these, the algorithms'
        objections to their constraints (E308).
    """
    found = [
        *_check_stated_groups(rows, document, reading, cases[0].datasets),
        *_check_goal_rows(rows.sample, document, cases),
        *_check_deployed_decisions(rows.sample, document, cases),
        *_check_validation_rows(rows, reading, cases),
        *_check_row_order(rows.sample, document, reading, cases[0]),
    ]
    errors = dict.fromkeys(fault for fault in found if fault.is_error)
    if not errors:
        errors = dict.fromkeys(check_constraint_obstacles(rows.sample, document, cases))
        errors |= dict.fromkeys(check_label_slices(rows.sample, document, cases))
        errors |= dict.fromkeys(check_testable_constraints(rows.sample, document, cases))
    if errors:
        raise FaultError(errors)
    return found


def _check_stated_groups(
    rows: TrialData, document: Document, reading: ExperimentReader, pool: DatasetNames
) -> Iterator[Diagnostic]:
    of = "" if len(reading.groups) == 1 else f" of '{pool[0]}'"
    for name, loc, _ in stated_groups(reading.experiment, pool):
        where = Slice.of(set(), iter(reading.groups[pool][name]))
        place = document.place(loc)
        count = rows.sample.counted(rows.sample.rows(where))
        if not count:
            yield Diagnostic("E408", f"no row{of} is in the group '{name}'", place=place)
            continue
        splits = {
            split: rows.sample.counted(rows.sample.rows(where, split)) for split in rows.splits()
        }
        for message in small_parts(count, splits):
            yield Diagnostic("W401", f"the group '{name}'{of} has {message}", place=place)


def small_parts(count: int, splits: Mapping[str, int]) -> Iterator[str]:
    """Yield messages about a group that is too small, overall or in single splits."""
    if count < SMALL_GROUP:
        yield f"only {_count_noun(count, 'row')}: its rates say little"
    for split, found in splits.items():
        if not found:
            yield f"no {split} rows: nothing can be said of it there"
        elif found < SMALL_GROUP <= count:
            yield f"only {_count_noun(found, f'{split} row')}: its rates say little there"


def _count_noun(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _check_goal_rows(
    sample: Sample, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    labelled = sample.mask("labelled")[sample.part == "train"].any()
    if not labelled and not all(case.unseen for case in cases):  # filters need no label
        hint = "say under the data set which column is its 'label'"
        place = document.place(("datasets",), key=True)
        yield Diagnostic("E306", "no training row has a label", hint, place=place)
        return
    # groups of filters are checked by `group_checks`
    given = (case for case in cases if case.solver.role != "ignores" and not case.unseen)
    goals = {
        (loc, ex.to_text(tree)): tree
        for case in given
        for loc, tree in case.texts()
        if loc[0] != "metrics"
    }
    for (loc, _), tree in goals.items():
        others = [part.metric for part in ex.walk(tree) if isinstance(part, ex.AlgorithmMetric)]
        trees = (tree, *others)
        empty = check_defined_rates(ex.leaves(*trees), sample)
        for fault in empty or check_defined_ratios(trees, sample):
            yield fault.at(document.place(loc, fault.span))


def _check_deployed_decisions(
    sample: Sample, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an E311 for each rate that counts rows without a decision of the deployed model.

    This covers rates in `of(deployed, ...)`, and in constraints if the deployed model is audited.
    """
    if sample.deployed is None:  # a trial provides all decisions
        return
    texts = {(loc, ex.to_text(tree)): tree for case in cases for loc, tree in case.texts()}
    audited = any(case.solver.needs_deployed for case in cases)
    for (loc, _), tree in texts.items():
        asked = (part for part in ex.walk(tree) if isinstance(part, ex.AlgorithmMetric))
        metrics = [part.metric for part in asked if part.algorithm == DEPLOYED]
        metrics += [tree] if audited and loc[0] == "constraints" else []
        for leaf in ex.leaves(*metrics):
            counted = build_rate_matrix([leaf], sample, None).sums.indices
            missing = sample.counted(counted[np.isnan(sample.deployed[counted])])
            if missing:
                message = (
                    f"the deployed model has no decision on {missing} of the "
                    f"{sample.counted(counted)} rows that '{ex.to_text(leaf)}' counts"
                )
                hint = "its column is empty there: take a slice of rows that it decides"
                yield Diagnostic("E311", message, hint, place=document.place(loc, leaf.span))


def _check_validation_rows(
    rows: TrialData, reading: ExperimentReader, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an E410 for each option that needs validation rows if there are none."""
    if "validation" in rows.splits():
        return
    hint = "give a data set some: split: {validation: 1/3}"
    for case in cases:
        asked = {case.solver.chooses_by: "chooses on validation rows"}
        if case.guard.split == "validation":
            asked["constraints_on"] = "judges the constraints on validation rows"
        for key, what in asked.items():
            if key:
                message = f"'{key}' {what}, and there are none"
                yield Diagnostic("E410", message, hint, place=reading.option(case.label, key))


def _check_row_order(
    sample: Sample, document: Document, reading: ExperimentReader, case: Case
) -> Iterator[Diagnostic]:
    """Yield a W403 for each data set whose last rows are held out and differ from the others."""
    if case.holdout is None or not case.holdout.positional:
        return
    place = document.place(safety_key_loc(reading.experiment, case.label, "order"))
    for name in np.unique(sample.dataset).tolist():
        known = (sample.dataset == name) & ~np.isnan(sample.label)
        parts = [sample.label[known & (sample.part == part)] for part in ("train", "safety")]
        if min(map(len, parts)) < SMALL_GROUP:
            continue
        first, last = (float(part.mean()) for part in parts)
        error = np.sqrt(sum(part.var() / len(part) for part in parts))
        if abs(first - last) > SORTED_ROWS_THRESHOLD * error:
            message = (
                f"the last rows of '{name}' are tested, and are not like the others: "
                f"labels are {last:.4g} there on average, {first:.4g} on the rows that train"
            )
            hint = "is the file sorted? say order: shuffled"
            yield Diagnostic("W403", message, hint, place=place)
