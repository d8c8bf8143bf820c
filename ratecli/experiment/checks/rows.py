"""Checks that need rows: empty groups, undefined rates, decisions of the deployed model, splits."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ratecli.certify.trees import plan_goal_test
from ratecli.config.experiment import Experiment, Problem
from ratecli.datasets.columns import constant_columns_warning, is_text
from ratecli.datasets.encode import constant_features
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean, errors_at
from ratecli.experiment.cases import Case, references, resolve_goals
from ratecli.experiment.entries import TUNE, safety_key_loc
from ratecli.experiment.reading import DatasetNames, ProblemReader
from ratecli.rates import expression as ex
from ratecli.rates.affine import balance
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression, Leaf, Slice
from ratecli.rates.matrix import Predictions, RateMatrix, build_rate_matrix
from ratecli.rates.sample import Sample
from ratecli.rates.syntax import is_date
from ratecli.rates.table import DEPLOYED
from ratecli.sampling.deployed import rates_of_other, with_others, with_stored_decisions
from ratecli.sampling.logs import TRUTH_COLUMNS, misfits
from ratecli.sampling.resampling import SamplingSpec
from ratecli.sampling.rows import (
    ExperimentData,
    TrialData,
    get_streamed_table,
    get_table,
    get_tables,
    load_trial_data,
    split_dataset,
)
from ratecli.sampling.safety_rows import goal_leaves, rates_on_split, without_split_condition
from ratecli.sampling.undefined import check_defined_rates, check_defined_ratios

SMALL_GROUP = 30
MAX_WORDS = 30
"""Largest number of texts of a feature that is never probably an ID."""
MAX_DISTINCT_SHARE = 0.5
"""Text features with a larger share of distinct values are probably IDs of rows."""
MAX_SHARE_ERROR = 1e-6
"""Largest distance from target shares that is a rounding error."""
SORTED_ROWS_THRESHOLD = 6.0
"""Difference of mean labels, in standard errors, above which a file is probably sorted.

It is measured between the first and the last rows of each data set.
"""


def load_rows(
    experiment: Experiment,
    data: ExperimentData,
    columns: Collection[str],
    deployed_model: bytes | None,
    sampling: SamplingSpec,
) -> TrialData:
    """Load the rows at the first seed; raise E205, E404, E406, E411 with locations."""
    column = experiment.deployed.column if experiment.deployed else None
    seed = experiment.seeds[0]
    with errors_at(*(("deployed", "column") if column else ("datasets",))):
        if column is not None and column not in columns:
            hint = did_you_mean(column, columns, "columns")
            raise FaultError(Diagnostic("E205", f"there is no column '{column}'", hint))
        rows = load_trial_data(data, seed, column, sampling)
    if deployed_model is None:
        return rows
    with errors_at("deployed", "model"):
        whole = load_trial_data(data, seed, column, replace(sampling, score=""))
        return replace(rows, sample=with_stored_decisions(whole, deployed_model).sample)


def check_row_ids(data: ExperimentData, used: Container[str]) -> Iterator[Diagnostic]:
    """Yield a W406 for each text feature of an own table whose values hardly occur in new rows.

    `used` are the names of the data sets whose features are used.
    """
    for name, entry in data.entries.items():
        if entry.path is not None and not entry.stream and name in used:
            table = get_table(data, name)
            way = "remove it from 'features'" if entry.named_features else "add it to 'drop'"
            for fault in row_id_warnings(table.frame, table.features, way):
                yield replace(fault, loc=("datasets", name), key=True)


def row_id_warnings(frame: pd.DataFrame, features: Iterable[str], way: str) -> Iterator[Diagnostic]:
    """Yield a W406 for each text feature whose values hardly occur in new rows.

    `way` says how to leave out a feature.
    """
    for feature in features:
        column = frame[feature]
        words: Collection[str] = column.dropna().unique() if is_text(column) else ()
        many = len(words) > max(MAX_WORDS, MAX_DISTINCT_SHARE * len(frame))
        dates = len(words) > MAX_WORDS and all(map(is_date, words))
        if many or dates:
            kind = "dates" if dates else "texts"
            why = "each is a category of its own"
            if many:
                why = "a model that uses it does not generalize to new rows"
            count = f"{len(words):,} different {kind} in {len(frame):,} rows"
            instead = ", and add numbers such as a year or an age instead" * dates
            message = f"the feature '{feature}' has {count}: {why}"
            yield Diagnostic("W406", message, way + instead)


def check_constant_columns(
    data: ExperimentData, pools: Iterable[DatasetNames]
) -> Iterator[Diagnostic]:
    """Yield a W411 for the columns that are no features since all rows of a pool have one value."""
    for pool in sorted(pools):
        own = data.only(pool)
        found = (
            get_streamed_table(own).constants
            if own.streamed
            else constant_features(list(get_tables(own).values()))
        )
        if found:
            yield replace(constant_columns_warning(found), loc=("datasets", pool[0]), key=True)


def check_rows(reading: ProblemReader, rows: TrialData, cases: Sequence[Case]) -> list[Diagnostic]:
    """Return the errors and warnings about rows that some cases share.

    E304 for `value_true` where it is unknown. Otherwise: E305, E408, E411 and W401 about groups,
    E306 and E311 for undefined rates and missing decisions, E410 if an algorithm needs validation
    rows and there are none, E411 for an existing score that is no probability and has no threshold,
    W403 for sorted rows, W409 for propensities that do not fit the logged actions. Without errors
    of these kinds, the algorithms' objections to their constraints (E308 and others).
    """
    cases = [each for case in cases for each in case.by_setting()]
    if unknown := list(_check_true_values(rows.sample, cases)):
        return unknown
    found = [
        *check_filter_groups(rows, cases),
        *_check_file_groups(reading, rows, cases[0].datasets),
        *check_missing_values(rows.sample, _texts(case for case in cases if not case.unseen)),
        *_check_goal_rows(rows.sample, cases),
        *_check_deployed_decisions(rows.sample, cases),
        *_check_validation_rows(reading.problem, rows, cases),
        *_check_default_threshold(reading.problem, rows, cases),
        *_check_row_order(reading.problem, rows.sample, cases[0]),
        *misfits(rows.sample, rows.X, rows.episodes),
    ]
    if not any(fault.is_error for fault in found):
        found += _check_constraint_obstacles(rows.sample, cases)
        found += _check_label_slices(rows.sample, cases)
        found += _check_testable_constraints(rows.sample, cases)
    return found


def _texts(cases: Iterable[Case]) -> Iterator[tuple[Loc, Expression]]:
    """Yield each expression of the cases once, with its location."""
    every = (pair for case in cases for pair in case.expressions())
    yield from {(loc, ex.to_text(tree)): (loc, tree) for loc, tree in every}.values()


def _check_true_values(sample: Sample, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield an E304 for each true value of an outcome of which only one decision's is known."""
    known = {} if sample.logs is None else sample.logs.truths
    for loc, tree in _texts(cases):
        for leaf in ex.leaves(tree):
            if leaf.rate.outcome_source == "true" and leaf.rate.outcome not in known:
                both = " and ".join(each.format(leaf.rate.outcome) for each in TRUTH_COLUMNS)
                message = f"'{leaf.rate.text}' needs the outcome of either decision"
                hint = f"only generated data has it, in the columns {both}; write value(...)"
                yield Diagnostic("E304", message, hint, loc=loc, span=leaf.span)


# groups


def check_filter_groups(rows: TrialData, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield errors and warnings about the groups that filters balance, for shared rows.

    E408 for a group without training rows, W401 for a group that is small or missing in another
    split, E411 for training rows of unknown group, E305 for shares that cannot be reached.
    """
    for case in cases:
        for leaf, loc in _filter_groups(case).items():
            where = Slice.of(leaf.where.datasets, leaf.where.conditions)
            for fault in _check_group_size(rows, where, f"the group '{where}'", "training "):
                yield replace(fault, loc=loc, span=leaf.span)
        yield from check_known_groups(rows.sample, case)
    objectives = {case.objective.expression: case for case in cases if case.unseen}
    for case in objectives.values():
        yield from _check_target_shares(rows.sample, case)


def check_known_groups(sample: Sample, case: Case) -> Iterator[Diagnostic]:
    """Yield an E411 for each column of a filter's groups with missing values in training rows."""
    if getattr(case.solver, "missing", "") == "leave_out":
        return
    first: dict[tuple[str, tuple[str, ...]], tuple[Leaf, Loc]] = {}
    for leaf, loc in _filter_groups(case).items():
        for condition in leaf.where.atoms:
            first.setdefault((condition.column, leaf.over.datasets), (leaf, loc))
    for (column, _), (leaf, loc) in first.items():
        values = sample.columns[column][sample.rows(leaf.over, "train")]
        count = int(np.asarray(pd.isna(values)).sum())
        if count:
            message = f"'{column}' is empty in {count} training rows: their group is unknown"
            hint = "set missing: leave_out in the filter's options"
            yield Diagnostic("E411", message, hint, loc=loc, span=leaf.span)


def _check_target_shares(sample: Sample, case: Case) -> Iterator[Diagnostic]:
    """Yield an E305 for target shares of a column's groups that no sample of the rows has."""
    # imports an optimizer, which is slow
    from ratecli.solvers.filtering.target import optimal_sampling_weights  # noqa: PLC0415

    columns: dict[object, dict[Leaf, float]] = {}
    wanted = balance(case.objective.expression)
    for leaf, target in zip(wanted.groups, wanted.target, strict=True) if wanted else ():
        names = tuple(each.column for each in leaf.where.atoms)
        columns.setdefault(names, {})[leaf] = target
    for targets in columns.values():
        first = next(iter(targets))
        whole = sample.rows(first.over, "train")
        inside = np.array([sample.rows(leaf.where, "train")[whole] for leaf in targets])
        if not inside.any(axis=1).all():  # an empty group is another error
            continue
        kinds, counts = np.unique(inside, axis=1, return_counts=True)
        shares = np.array(list(targets.values()))
        nearest = optimal_sampling_weights(1.0 * kinds.T, counts / len(sample), shares)
        if nearest.imbalance > MAX_SHARE_ERROR:
            listed = " and ".join(f"{share:.3g} of '{x.where}'" for x, share in targets.items())
            message = f"no rows have the target shares {listed}"
            hint = "targets are shares of the rows that are kept, which add up to 1 over all groups"
            loc = _filter_groups(case)[first]
            yield Diagnostic("E305", message, hint, loc=loc, span=first.span)


def _filter_groups(case: Case) -> dict[Leaf, Loc]:
    """Return every group of a filter's goals, with the location of the goal's text."""
    found: dict[Leaf, Loc] = {}
    for loc, goal in case.located_goals() if case.unseen else ():
        for leaf in ex.leaves(goal.expression):
            if leaf.where.conditions:
                found.setdefault(leaf, loc)
    return found


def _check_group_size(
    rows: TrialData, where: Slice, group: str, needed: str = ""
) -> Iterator[Diagnostic]:
    """Yield an E408 for a group without (training) rows, W401 if it has few in a split."""
    sample = rows.sample
    counts = {split: sample.counted(sample.rows(where, split)) for split in rows.splits()}
    if not (counts["train"] if needed else sum(counts.values())):
        hint = "merge it with another group, or remove its rows from the data"
        yield Diagnostic("E408", f"no {needed}row is in {group}", hint if needed else None)
        return
    few = [f"{count} {split}" for split, count in counts.items() if count < SMALL_GROUP]
    if few:
        message = f"{group} has few rows ({', '.join(few)}): its rates there are uncertain"
        yield Diagnostic("W401", message)


def _check_file_groups(
    reading: ProblemReader, rows: TrialData, pool: DatasetNames
) -> Iterator[Diagnostic]:
    """Yield an E408 or W401 for each group of the file that is empty or small."""
    of = "" if len(reading.scopes) == 1 else f" of '{pool[0]}'"
    for name, conditions in reading.scopes[pool].groups.items():
        where = Slice.of(set(), iter(conditions))
        for fault in _check_group_size(rows, where, f"the group '{name}'{of}"):
            yield replace(fault, loc=reading.group_loc(name, pool))


def check_missing_values(
    sample: Sample, trees: Iterable[tuple[Loc, Expression]]
) -> Iterator[Diagnostic]:
    """Yield a W401 for each column in conditions of expressions that is empty in some rows."""
    first = dict[str, tuple[Loc, Leaf]]()
    for loc, tree in trees:
        for leaf in ex.leaves(tree):
            for condition in leaf.where.atoms:
                first.setdefault(condition.column, (loc, leaf))
    for column, (loc, leaf) in first.items():
        rows = sample.rows(leaf.where.everyone)
        if count := sample.counted(rows & np.asarray(pd.isna(sample.columns[column]))):
            message = (
                f"'{column}' is empty in {count:,} of {sample.counted(rows):,} rows: they are in "
                "no group of it, and no comparison with it holds there, not even != or `not`"
            )
            yield Diagnostic("W401", message, loc=loc, span=leaf.span)


# rates


def _check_goal_rows(sample: Sample, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    labelled = sample.mask("labelled")[sample.part == "train"].any()
    without = sample.logs is not None or all(case.unseen for case in cases)  # such as filters
    if not labelled and not without:
        hint = "name the label's column in the data set: label: COLUMN"
        yield Diagnostic("E306", "no training row has a label", hint, loc=("datasets",), key=True)
        return
    # groups of filters are checked by `check_filter_groups`
    goals = {
        (loc, ex.to_text(goal.expression)): goal.expression
        for case in cases
        for loc, goal in case.located_goals()
        if not case.unseen
        # without labels, those that ignore constraints minimize the objective
        and (case.solver.role != "ignores" or (loc == ("objective",) and not labelled))
    }
    for (loc, _), tree in goals.items():
        trees = (tree, *(part.metric for part in references(tree)))
        empty = check_defined_rates(ex.leaves(*trees), sample)
        for fault in empty or check_defined_ratios(trees, sample):
            yield fault.under(*loc)


def _check_deployed_decisions(sample: Sample, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield the errors of rates of the deployed model, in `of(deployed, ...)` or if it is audited.

    E311 for a rate that counts rows without a decision; an audit may measure such rates, but not
    constrain them. E308 for a value of the logged actions themselves, since importance weights
    assume decisions that do not depend on the action that was drawn.
    """
    deployed, logs = sample.deployed, sample.logs
    if deployed is None:  # a trial provides all decisions
        return
    logged = logs is not None and np.array_equal(deployed, logs.action, True)
    audited = any(case.solver.needs_deployed for case in cases)
    for loc, tree in _texts(cases):
        named = [part.metric for part in references(tree, DEPLOYED)]
        decided = [*named, tree] if audited and loc[0] == "constraints" else named
        for leaf in ex.leaves(*decided):
            counted = build_rate_matrix([leaf], sample, None).sums.indices
            missing = sample.counted(counted[np.isnan(deployed[counted])])
            if missing:
                message = (
                    f"the deployed model has no decision on {missing} of the "
                    f"{sample.counted(counted)} rows that '{ex.to_text(leaf)}' counts"
                )
                hint = "the decision column is empty there: use a slice of rows with decisions"
                yield Diagnostic("E311", message, hint, loc=loc, span=leaf.span)
        valued = [*named, tree] if audited else named
        for leaf in ex.leaves(*valued) if logged else ():
            if leaf.rate.is_weighted:
                message = f"'{leaf.rate.text}' of the logged actions as deployed decisions is wrong"
                hint = "the deployed decisions must not be those drawn; write value_logged(...)"
                yield Diagnostic("E308", message, hint, loc=loc, span=leaf.span)


def _check_constraint_obstacles(sample: Sample, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield each algorithm's objections to its constraints.

    Constraints that depend on another trial (`of(...)`, decisions of a deployed algorithm) are left
    to the trial.
    """
    matrices: dict[tuple[Leaf, ...], RateMatrix] = {}
    for case in (case for case in cases if case.solver.role != "ignores"):
        _, rules = resolve_goals(case)
        for original, goal in zip(case.constraints, rules, strict=True):
            if _depends_on_trials(original, sample):
                continue
            leaves = tuple(ex.leaves(*goal.pieces))
            if leaves not in matrices:
                matrices[leaves] = build_rate_matrix(leaves, sample, "train")
            fault = case.solver.obstacle(goal, matrices[leaves])
            if fault is not None:
                yield replace(fault, loc=("constraints", goal.name))


def _depends_on_trials(goal: Goal, sample: Sample) -> bool:
    compared = any(leaf.rate.needs_deployed for leaf in ex.leaves(goal.expression))
    return bool(references(goal.expression)) or (compared and sample.deployed is None)


def _check_label_slices(sample: Sample, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield an E308 for each rate in a goal whose slice reveals the label.

    Only algorithms whose classifiers use slices as features are checked.
    """
    known = sample.mask("labelled")
    positive = sample.mask("+")[known]
    for case in (case for case in cases if case.solver.sees_slices and known.any()):
        for loc, goal in case.located_goals():
            for leaf in ex.leaves(goal.expression):
                for item in leaf.where.conditions:
                    holds = sample.rows(Slice((), (item,)))[known]
                    if (holds == positive).all() or (holds != positive).all():
                        message = (
                            f"algorithm '{case.label}' uses the slices of its goals as features, "
                            f"and '{item}' reveals the label"
                        )
                        hint = "to count rows of one label only, use a rate such as tpr or fpr"
                        yield Diagnostic("E308", message, hint, loc=loc, span=leaf.span)


# safety tests and splits


def tested_constraints(case: Case, sample: Sample) -> Iterator[tuple[Goal, RateMatrix]]:
    """Yield the constraints as a safety test has them, each with its rates on the test's rows.

    The rates of other algorithms are those of decisions 0, because their trials have not run.
    """
    trees = [goal.expression for goal in case.constraints]
    unknown = Predictions(*np.zeros((3, len(sample))))
    others = {part.algorithm: unknown for tree in trees for part in references(tree)}
    sample = with_others(sample, trees, others)
    for goal in map(without_split_condition, resolve_goals(case, rates_of_other)[1]):
        yield goal, rates_on_split(goal_leaves([goal]), sample, "safety")[0]


def _check_testable_constraints(sample: Sample, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield an E308 or E411 for each constraint or row that a safety test cannot use."""
    seen = set[tuple[str, str]]()
    for case in cases:
        spec = case.safety_spec(int((sample.part == "safety").sum()))
        if spec is None:
            continue
        for goal, rates in tested_constraints(case, sample):
            known = (ex.to_text(goal.expression), spec.method)
            if known in seen:
                continue
            seen.add(known)
            try:
                plan_goal_test(goal, spec, rates)
            except FaultError as error:
                yield from (replace(each, loc=("constraints", goal.name)) for each in error.faults)


def check_sampling(
    experiment: Experiment, data: ExperimentData, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield the errors of rows that cannot be resampled or held out as the file specifies.

    E410 if too few rows are sampled or held out, E205 for unknown columns in `stratify`, E411 if
    held-out rows are also training rows under another name.
    """
    seen = {(case.datasets, case.sampling): case for case in reversed(cases)}
    for (pool, sampling), case in seen.items():
        if sampling.holdout is not None:
            yield from _check_shared_rows(data, pool)
        drawn = sampling.share is not None or sampling.holdout is not None
        for name in pool if drawn else ():
            try:
                split_dataset(data, name, experiment.seeds[0], sampling)
            except FaultError as error:
                for fault in error.faults:
                    key = "stratify" if fault.code == "E205" else "fraction"
                    loc = safety_key_loc(experiment, case.label, key)
                    if sampling.holdout is None:
                        loc = ("resample",)
                    yield replace(fault, message=f"in '{name}' {fault.message}", loc=loc)


def _check_shared_rows(data: ExperimentData, pool: DatasetNames) -> Iterator[Diagnostic]:
    """Yield an E411 for each data set that repeats the rows of an earlier one.

    Each data set holds out its own rows, so a held-out row of one could be a training row of the
    other.
    """
    first: dict[object, str] = {}
    for name in pool:
        rows = get_table(data, name)
        keys = [rows.digest, *(sha256 for _, sha256 in rows.files)]
        others = [other for key in keys if (other := first.setdefault(key, name)) != name]
        if others:
            message = (
                f"'{name}' has the same rows as '{others[0]}': "
                "rows held out of one are training rows of the other"
            )
            hint = "name the data once, or leave out 'safety'"
            yield Diagnostic("E411", message, hint, loc=("datasets", name), key=True)


def _check_validation_rows(
    problem: Problem, rows: TrialData, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an E410 for each option that needs validation rows if there are none."""
    for case in cases if "validation" not in rows.splits() else ():
        needs, hint = {}, "give a data set some: split: {validation: 1/3}"
        if key := max(each.solver.chooses_by for each in case.by_setting()):
            needs[f"'{key}'"] = problem.entry_loc(case.label, key)
        if case.guard.holds == "validation":
            needs["'holds: validation'"] = problem.holds_loc(case.label)
        if case.settings and (kind := _kind_without_folds(rows, case)):
            needs[f"'{TUNE}' with {kind} rows"] = problem.entry_loc(case.label, TUNE)
            hint = "leave it out" if case.share is not None else hint  # such rows are not split
        for what, loc in needs.items():
            message = f"{what} needs validation rows, but there are none"
            yield Diagnostic("E410", message, hint, loc=loc, key=True)


def _kind_without_folds(rows: TrialData, case: Case) -> str:
    """Return the kind of rows that cannot form folds: copies of a row would be in several ones."""
    if rows.stream is not None:
        return "streamed"
    return "resampled" if case.share is not None else "repeated" if rows.levels > 1 else ""


def _check_default_threshold(
    problem: Problem, rows: TrialData, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an E411 for each score outside [0, 1] whose decisions have the default threshold."""
    for case in (case for case in cases if case.solver.needs_probabilities):
        scores, name = rows.X[:, [0]], case.solver.score_column  # the only feature
        least, most = float(scores.min()), float(scores.max())
        if least < 0 or most > 1:
            message = f"'{name}' is no probability: its scores are from {least:.3g} to {most:.3g}"
            hint = "set a threshold, above which decisions are positive: "
            hint += f"{{score: {{name: {name}, threshold: T}}}}"
            yield Diagnostic("E411", message, hint, loc=problem.entry_loc(case.label, "model"))


def _check_row_order(problem: Problem, sample: Sample, case: Case) -> Iterator[Diagnostic]:
    """Yield a W403 for each data set whose last rows are held out and differ from the others."""
    if case.holdout is None or not case.holdout.positional:
        return
    loc = safety_key_loc(problem, case.label, "order")
    for name in np.unique(sample.dataset).tolist():
        known = (sample.dataset == name) & ~np.isnan(sample.label)
        parts = [sample.label[known & (sample.part == part)] for part in ("train", "safety")]
        if min(map(len, parts)) < SMALL_GROUP:
            continue
        first, last = (float(part.mean()) for part in parts)
        error = np.sqrt(sum(part.var() / len(part) for part in parts))
        if abs(first - last) > SORTED_ROWS_THRESHOLD * error:
            message = (
                f"the last rows of '{name}' are held out for the test but differ from the others: "
                f"the mean label is {last:.4g} there and {first:.4g} on the training rows"
            )
            hint = "if the file is sorted, set order: shuffled"
            yield Diagnostic("W403", message, hint, loc=loc)
