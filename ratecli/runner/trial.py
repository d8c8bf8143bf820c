"""Run one trial: load its rows, build the problem, solve it, and measure the solution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import Case, resolve_goals, uses_deployed_model
from ratecli.experiment.checks.goals import refusal_reason
from ratecli.experiment.checks.rows import check_known_groups
from ratecli.experiment.plan import TrialSpec
from ratecli.ledger.keys import random_stream
from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    CONSTRAINT_TOLERANCE,
    MeasuredValue,
    TrialResult,
)
from ratecli.models.base import Classifier
from ratecli.models.storage import dumps, loads
from ratecli.rates import expression as ex
from ratecli.rates.analysis import PROGRAM_SHAPES, Goal, objective_goal
from ratecli.rates.expression import Leaf
from ratecli.rates.matrix import Predictions, RowKinds, build_rate_matrix, measure
from ratecli.rates.sample import Mask
from ratecli.rates.table import DEPLOYED
from ratecli.sampling.deployed import (
    column_classifier,
    deployed_predictions,
    with_classifier_decisions,
    with_stored_decisions,
)
from ratecli.sampling.filter_summary import census
from ratecli.sampling.filtered import NoRowsKeptError, load_training_rows
from ratecli.sampling.rows import TrialData, load_trial_data
from ratecli.sampling.safety_rows import SafetyRows, rates_on_split
from ratecli.sampling.undefined import check_defined_ratios, empty_rate
from ratecli.solvers.base import Solution
from ratecli.solvers.feasibility import unmet_status
from ratecli.solvers.fit_cache import cache_adjusted_time
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.liblinear import import_sklearn_linear
from ratecli.solvers.margin import solve_with_margin
from ratecli.solvers.problem import ERROR_RATE, Problem


def has_no_solution(result: TrialResult) -> bool:
    return result.status == "no_solution_found" and not result.models


def missing_solution_reason(job: TrialSpec, given: Mapping[str, TrialResult]) -> str:
    """Return why a trial cannot run, or "" if it can.

    A trial cannot run if a trial whose model it requires found no solution. A model that is only a
    reference, through `of(...)` or as the deployed model, in a metric or in a goal that the solver
    does not use, is not required: values that refer to it are NaN.
    """
    if job.sieve is not None and has_no_solution(given[job.sieve.key]):
        return "the filter is needed and found no solution"
    goals = _reference_goals(job.case)
    asked = {
        part.algorithm
        for goal in goals
        for part in ex.walk(goal.expression)
        if isinstance(part, ex.AlgorithmMetric)
    }
    for label, key in job.of.items():
        if label in asked and has_no_solution(given[key]):
            return f"'{label}' is needed and found no solution"
    compared = job.case.solver.needs_deployed or any(map(uses_deployed_model, goals))
    if compared and job.deployed is not None and has_no_solution(given[job.deployed]):
        return "the deployed algorithm is needed and found no solution"
    return ""


def _reference_goals(case: Case) -> tuple[Goal, ...]:
    """Return the goals whose reference values affect training or the safety test."""
    free = case.solver.role == "ignores" and case.safety is None
    return () if free else case.goals()


def run_trial(job: TrialSpec, given: Mapping[str, TrialResult]) -> TrialResult:
    """Solve and measure a trial; `given` maps keys of trials it depends on to their results."""
    # import before starting the clock, so that the first trial in a process is not slower
    import_sklearn_linear()
    begun = cache_adjusted_time()
    lacking = missing_solution_reason(job, given)
    if lacking:
        return _no_solution_result(job, _without_filter(job), lacking, begun)
    try:
        rows = _rows(job, given)
    except NoRowsKeptError as error:
        return _no_solution_result(job, _without_filter(job), error.faults[0].message, begun)
    reference = {
        label: _rows_of_trial(job, rows, key, given).predictions(_classifier(given[key], label))
        for label, key in job.of.items()
        if not has_no_solution(given[key])
    }
    try:
        problem = build_problem(job, rows, reference, given)
    except FaultError as error:
        if not _too_few(job.case, error):
            raise
        return _no_solution_result(
            job, rows, "; ".join(fault.message for fault in error.faults), begun
        )
    solution, values, ending = solve_and_measure(job, rows, problem, reference)
    return TrialResult(
        key=job.key,
        status=ending.status,
        reason=ending.reason,
        seconds=cache_adjusted_time() - begun,
        info={"rows": rows.splits(), **ending.info},
        trace=solution.trace,
        multipliers=solution.multipliers,
        values=tuple(values),
        models={name: dumps(classifier) for name, classifier in solution.variants.items()},
        encoding=rows.encoding if solution.variants else "",
    )


def _no_solution_result(job: TrialSpec, rows: TrialData, reason: str, begun: float) -> TrialResult:
    seconds = cache_adjusted_time() - begun
    return TrialResult(job.key, "no_solution_found", reason, seconds, {"rows": rows.splits()})


@dataclass(frozen=True)
class TrialEnding:
    """The status and reason of a trial, and the additional information to store with its values."""

    status: str
    reason: str
    info: Mapping[str, Any] = field(default_factory=dict)


def solve_and_measure(
    job: TrialSpec, rows: TrialData, problem: Problem, reference: Mapping[str, Predictions]
) -> tuple[Solution, list[MeasuredValue], TrialEnding]:
    """Solve a trial's problem; return the solution, its values and how the trial ended.

    If there is a safety test, the solution has only the variants that remain after it.
    """
    rng = random_stream(job.seed, "solver", job.case.algorithm)
    solution = solve_with_margin(job.case.solver, job.case.guard, problem, rng)
    if job.is_deployed and solution.variants:
        rows = with_classifier_decisions(rows, next(iter(solution.variants.values())))
    return _judge_solution(job, rows, problem, solution, reference)


def _judge_solution(
    job: TrialSpec,
    rows: TrialData,
    problem: Problem,
    solution: Solution,
    reference: Mapping[str, Predictions],
) -> tuple[Solution, list[MeasuredValue], TrialEnding]:
    """Measure a solution; return it with its values and how the trial ended.

    If there is a safety test, the solution has only the variants that remain after it.
    """
    measured = ex.leaves(*job.case.metrics.values())
    estimated = any(leaf.rate.of != "decision" for leaf in measured)
    answers = rows.answers(solution.variants, estimated=estimated)
    if answers:  # `of(...)` with the trial's own label refers to its main variant
        reference = {job.case.label: next(iter(answers.values())), **reference}
    if problem.promise is not None:
        _, rules = goals_with_numbers(job.case, rows, reference, "train")
        tested = SafetyRows(rows, problem.promise, problem.label_ends, job.seed)
        verdict = tested.verdict(solution, answers, rules)
        answers = {name: answers[name] for name in verdict.solution.variants}
        values = _measure_variants(rows, job.case, answers, reference)
        found = {"certificates": list(verdict.certificates)}
        found |= _info(job, rows, verdict.solution, answers, reference)
        return verdict.solution, values, TrialEnding(verdict.status, verdict.reason, found)
    values = _measure_variants(rows, job.case, answers, reference)
    status, reason = _status(job.case, solution, values)
    if status == "not_met" and job.case.solver.role == "enforces":
        status, reason = _check_infeasible(problem, status, reason)
    return (
        solution,
        values,
        TrialEnding(status, reason, _info(job, rows, solution, answers, reference)),
    )


def _info(
    job: TrialSpec,
    rows: TrialData,
    solution: Solution,
    answers: Mapping[str, Predictions],
    reference: Mapping[str, Predictions],
) -> dict[str, Any]:
    """Return what is stored besides values: filter statistics, or the best constant decision."""
    filters = census(job.case.goals(), rows.sample, rows.splits(), solution.variants, answers)
    return filters or {BEST_CONSTANT_KEY: _best_constant(rows, job.case, reference)}


def _best_constant(
    rows: TrialData, case: Case, reference: Mapping[str, Predictions]
) -> dict[str, float]:
    """Return the smallest objective of a feasible constant decision on each split.

    Splits where no constant decision satisfies all constraints are left out. The result is empty
    if a goal depends on anything other than decisions.
    """
    goals = [goal.expression for goal in case.goals()]
    parts = [part for goal in goals for part in ex.walk(goal)]
    if any(isinstance(part, ex.RankingMeasure | ex.Disclosure) for part in parts):
        return {}
    if any(leaf.rate.of != "decision" for leaf in ex.leaves(*goals)):
        return {}
    found: dict[str, float] = {}
    for split in rows.splits():
        of = partial(_reference_value, rows, split, reference)
        for decision in (0.0, 1.0):
            said = np.full(len(rows.sample), decision)
            objective, *violations = measure(
                goals, rows.sample, split, Predictions(said, said, said), of
            )
            if objective < found.get(split, math.inf) and all(
                each <= CONSTRAINT_TOLERANCE for each in violations
            ):
                found[split] = objective
    return found


def build_problem(
    job: TrialSpec,
    rows: TrialData,
    reference: Mapping[str, Predictions],
    given: Mapping[str, TrialResult],
) -> Problem:
    """Return the problem for the solver, with validation data, safety test and deployed model."""
    unknown = check_known_groups(rows.sample, job.case)
    if unknown:
        raise FaultError(unknown)
    problem = training_problem(rows, *_goals(job.case, rows, reference, "train"), job.l2)
    if problem.validation is not None:
        objective, rules = _goals(job.case, rows, reference, "validation")
        judged = replace(problem.validation, objective=objective, constraints=rules)
        problem = replace(problem, validation=judged)
    problem = replace(problem, promise=job.case.safety_spec(rows.splits().get("safety", 0)))
    if job.case.solver.needs_deployed:
        problem = replace(problem, deployed=_deployed_solution(job, rows, given))
    return problem


def _deployed_solution(
    job: TrialSpec, rows: TrialData, given: Mapping[str, TrialResult]
) -> Classifier:
    """Return the deployed model as a classifier."""
    if job.deployed is not None:
        return _classifier(given[job.deployed], "the deployed model")
    if job.deployed_model is not None:
        return loads(job.deployed_model)
    assert job.deployed_column is not None
    return column_classifier(rows, job.deployed_column)


TOO_FEW_ROWS_CODES = frozenset({"E306", "E311", "E408"})
"""Codes of errors about rates and ratios that are undefined on the available rows."""


def _too_few(case: Case, error: FaultError) -> bool:
    """Return whether an error is due to too few rows left by sampling, a holdout or a filter."""
    drawn = any(each is not None for each in (case.share, case.holdout, case.filtering))
    return drawn and {fault.code for fault in error.faults} <= TOO_FEW_ROWS_CODES


def _goals(
    case: Case, rows: TrialData, reference: Mapping[str, Predictions], split: str
) -> tuple[Goal, tuple[Goal, ...]]:
    """Return the goals with values for `of(...)`, or plain error if the solver ignores them."""
    if case.solver.role == "ignores":
        return objective_goal("error", ERROR_RATE), ()
    objective, rules = goals_with_numbers(case, rows, reference, split)
    for goal in (objective, *rules):
        why, _ = refusal_reason(type(case.solver), goal, objective=goal is objective)
        if why:  # a negative value of `of(...)` turned a convex goal concave
            message = f"algorithm '{case.label}' cannot take '{goal.text}': {why}"
            raise FaultError(Diagnostic("E308", f"{message} at the numbers that of(...) has"))
    return objective, rules


def goals_with_numbers(
    case: Case, rows: TrialData, reference: Mapping[str, Predictions], split: str
) -> tuple[Goal, tuple[Goal, ...]]:
    """Return the experiment's objective and constraints with values for `of(...)`.

    References to another algorithm are measured on the split that the goal is evaluated on.
    """

    def of(node: ex.AlgorithmMetric) -> float:
        value = _reference_value(rows, split, reference, _without_split(node))
        if not math.isfinite(value):
            where = "training" if split == "train" else split
            message = f"'{ex.to_text(node)}' is {value} on {where} rows: no goal can be held to it"
            raise FaultError(Diagnostic("E311", message, None, node.span))
        return value

    return resolve_goals(case, of)


def _without_split(node: ex.AlgorithmMetric) -> ex.AlgorithmMetric:
    """Return the reference without the split that `ratecli.experiment` added on reading."""

    def free(part: ex.Expression) -> ex.Expression | None:
        return replace(part, split=None) if isinstance(part, ex.MeasuredNode) else None

    return replace(node, metric=ex.transform(node.metric, free))


def _rows(job: TrialSpec, given: Mapping[str, TrialResult]) -> TrialData:
    rows = load_training_rows(job.data, job.seed, job.deployed_column, job.seen, given)
    if job.deployed_model is not None:
        # stored models were fitted without the filter
        stored = with_stored_decisions(_without_filter(job), job.deployed_model).sample
        assert stored.deployed is not None
        return replace(rows, sample=rows.sample.with_deployed(stored.deployed))
    if job.deployed is None:
        return rows
    # no goal refers to the missing model's decisions, see `missing_solution_reason`
    if has_no_solution(given[job.deployed]):
        return replace(rows, sample=rows.sample.with_deployed(np.full(len(rows.sample), np.nan)))
    classifier = _classifier(given[job.deployed], "the deployed model")
    return with_classifier_decisions(
        rows, classifier, _rows_of_trial(job, rows, job.deployed, given)
    )


def _without_filter(job: TrialSpec) -> TrialData:
    return load_trial_data(job.data, job.seed, job.deployed_column, job.case.drawing)


def _rows_of_trial(
    job: TrialSpec, rows: TrialData, key: str, given: Mapping[str, TrialResult]
) -> TrialData:
    """Return the rows with features as in another trial, which depend on its training rows."""
    seen = job.elsewhere.get(key)
    if seen is None:
        return rows
    return load_training_rows(job.data, job.seed, job.deployed_column, seen, given)


def _classifier(result: TrialResult, name: str) -> Classifier:
    """Return the main variant of a trial's solution, which `of` and `deployed` refer to."""
    if not result.models:
        message = f"'{name}' is needed and has no classifier: its trial ended as {result.status}"
        raise FaultError(Diagnostic("E501", message))
    return loads(next(iter(result.models.values())))


def training_problem(
    rows: TrialData, objective: Goal, rules: tuple[Goal, ...], l2: float | str
) -> Problem:
    """Return the problem of optimizing the goals on the training set.

    Raises
    ------
    FaultError
        E306, E408 if a rate of a goal has no rows to average over, E311 if a ratio is undefined.
    """
    train = np.flatnonzero(rows.sample.rows(ex.ALL_ROWS, "train"))
    wanted = ex.leaves(*(piece for goal in (objective, *rules) for piece in goal.pieces))
    ratios = [ratio for goal in rules for ratio in goal.ratios]
    matrix = build_rate_matrix([*wanted, ERROR_RATE, *ex.leaves(*ratios)], rows.sample, "train")
    empty = {leaf for leaf, c in zip(matrix.leaves, matrix.c, strict=True) if math.isnan(c)}
    if empty & set(wanted):
        raise FaultError([empty_rate(leaf, rows.sample) for leaf in wanted if leaf in empty])
    undefined = check_defined_ratios([goal.expression for goal in (objective, *rules)], rows.sample)
    if undefined:
        raise FaultError(undefined)
    n = rows.counted(train) / rows.levels  # copies of a row count once
    penalty = float(l2.removesuffix("/n")) / n if isinstance(l2, str) else l2
    problem = Problem(rows.X[train], matrix.on(train), objective, rules, penalty)
    problem = replace(problem, stream=None if rows.stream is None else rows.stream[train])
    slices, label = _slices(wanted, rows, train), rows.sample.label[train]
    problem = replace(problem, slices=slices, label=label, label_range=rows.sample.label_range)
    problem = replace(problem, known=_rows_with_value(wanted, rows, train))
    moved = [replace(leaf, split=None) for leaf in matrix.leaves]  # goals may specify @train
    others, held_out = rates_on_split(moved, rows.sample, "validation")
    if not len(held_out):
        return problem
    slices, label = _slices(wanted, rows, held_out), rows.sample.label[held_out]
    rates = replace(others, leaves=matrix.leaves)
    validation = replace(problem, X=rows.X[held_out], rates=rates, slices=slices, label=label)
    validation = replace(validation, known=_rows_with_value(wanted, rows, held_out))
    if rows.stream is not None:
        validation = replace(validation, stream=rows.stream[held_out])
    return replace(problem, validation=validation)


def _slices(leaves: Sequence[Leaf], rows: TrialData, some: NDArray[np.intp]) -> dict[str, Mask]:
    """Return which of the given rows are in each slice that the rates use, by the slice's text."""
    wheres = dict.fromkeys(leaf.where.visible for leaf in leaves)
    return {str(where): rows.sample.rows(where)[some] for where in wheres}


def _rows_with_value(
    leaves: Sequence[Leaf], rows: TrialData, some: NDArray[np.intp]
) -> dict[str, Mask]:
    """Return which of the given rows have a value in each slice column, by column name."""
    columns = dict.fromkeys(each.column for leaf in leaves for each in leaf.where.conditions)
    return {name: np.asarray(pd.notna(rows.sample.columns[name]))[some] for name in columns}


def _measure_variants(
    rows: TrialData,
    case: Case,
    answers: Mapping[str, Predictions],
    reference: Mapping[str, Predictions],
) -> list[MeasuredValue]:
    """Measure every metric of every variant on every split."""
    metrics = {ex.to_text(metric): metric for metric in case.metrics.values()}
    values = []
    for variant, predictions in answers.items():
        for split in rows.splits():
            of = partial(_reference_value, rows, split, reference)
            found = measure(list(metrics.values()), rows.sample, split, predictions, of)
            values += [
                MeasuredValue(variant, split, *each) for each in zip(metrics, found, strict=True)
            ]
    return values


def _reference_value(
    rows: TrialData, split: str, reference: Mapping[str, Predictions], node: ex.AlgorithmMetric
) -> float:
    """Return a metric of another algorithm, or of the deployed model, on the same split.

    NaN if that algorithm found no solution.
    """
    deployed = node.algorithm == DEPLOYED
    if not deployed and node.algorithm not in reference:
        return math.nan
    other = deployed_predictions(rows.sample) if deployed else reference[node.algorithm]
    return measure([node.metric], rows.sample, split, other)[0]


def _status(case: Case, solution: Solution, values: list[MeasuredValue]) -> tuple[str, str]:
    """Return the trial's status and reason.

    This is the solver's status, or `not_met` if the solver was given the constraints and its main
    variant violates one on the training set. A constraint that is undefined there counts as
    violated.
    """
    if solution.status not in {"solved", "iteration_limit"} or not solution.variants:
        return solution.status, solution.reason
    main = next(iter(solution.variants))
    measured = {v.metric: v.value for v in values if v.variant == main and v.split == "train"}
    missed = {
        goal.name: measured[ex.to_text(goal.expression)]
        for goal in case.constraints
        if not measured[ex.to_text(goal.expression)] <= CONSTRAINT_TOLERANCE
    }
    if case.solver.role != "ignores" and missed:
        listed = ", ".join(f"'{name}' {_by_amount(amount)}" for name, amount in missed.items())
        reason = f"{main} misses {listed} on training rows"
        return "not_met", f"{solution.reason}; {reason}" if solution.reason else reason
    return ("ok" if solution.status == "solved" else solution.status), solution.reason


def _by_amount(amount: float) -> str:
    return "as it is undefined there" if math.isnan(amount) else f"by {amount:.3g}"


def _check_infeasible(problem: Problem, status: str, reason: str) -> tuple[str, str]:
    """Replace the status by `infeasible` if no classifier can satisfy the constraints.

    See `ratecli.solvers.feasibility`.
    """
    if not {goal.shape for goal in problem.constraints} <= PROGRAM_SHAPES:
        return status, reason
    plain = replace(problem, objective=objective_goal("error", ERROR_RATE))
    return unmet_status(RateProgram.of(plain), RowKinds.by(problem.rates), reason, status)
