"""One trial: rows, goals, solver, measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.errors import Fault, FaultError
from ratecli.experiment.cases import Case, known_goals
from ratecli.experiment.goal_checks import refusal
from ratecli.experiment.group_checks import unknown_groups
from ratecli.experiment.plan import Job
from ratecli.ledger.keys import stream
from ratecli.ledger.records import CONSTANT, MET, TrialResult, Value
from ratecli.models.base import Classifier
from ratecli.models.storage import dumps, loads
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal, objective_goal
from ratecli.rates.expression import Leaf
from ratecli.rates.kinds import Kinds
from ratecli.rates.matrix import Predictions, measure, rate_matrix
from ratecli.rates.sample import Mask
from ratecli.rates.table import DEPLOYED
from ratecli.runner.unsolved import is_unsolved, unsolved
from ratecli.sampling.deployed import decided, of_column, with_decisions, with_stored
from ratecli.sampling.filter_summary import census
from ratecli.sampling.filtered import NoneKeptError, seen_rows
from ratecli.sampling.rows import World, world
from ratecli.sampling.safety_rows import SafetyRows, rates_on
from ratecli.sampling.undefined import of_nothing, undefined_ratios
from ratecli.solvers.base import Solution
from ratecli.solvers.feasibility import unmet
from ratecli.solvers.fit_cache import clock
from ratecli.solvers.hull.forms import TAKEN, Program
from ratecli.solvers.liblinear import scikit_learn
from ratecli.solvers.margin import guarded
from ratecli.solvers.problem import ERROR, Problem


def run_trial(job: Job, given: Mapping[str, TrialResult]) -> TrialResult:
    """Solve and measure; `given` holds the results of the trials that this one needs."""
    scikit_learn()  # imported before the clock starts: the first trial of a process is no slower
    begun = clock()
    lacking = unsolved(job, given)
    if lacking:
        return _no_solution(job, _unfiltered(job), lacking, begun)
    try:
        rows = _rows(job, given)
    except NoneKeptError as error:
        return _no_solution(job, _unfiltered(job), error.faults[0].message, begun)
    reference = {label: _seen(job, rows, key, given).predictions(_classifier(given[key], label))
                 for label, key in job.of.items() if not is_unsolved(given[key])}  # fmt: skip
    try:
        problem = problem_of(job, rows, reference, given)
    except FaultError as error:
        if not _too_few(job.case, error):
            raise
        return _no_solution(job, rows, "; ".join(fault.message for fault in error.faults), begun)
    solution, values, ending = solved(job, rows, problem, reference)
    return TrialResult(
        key=job.key,
        status=ending.status,
        reason=ending.reason,
        seconds=clock() - begun,
        info={"rows": rows.splits(), **ending.info},
        trace=solution.trace,
        multipliers=solution.multipliers,
        values=tuple(values),
        models={name: dumps(classifier) for name, classifier in solution.variants.items()},
        encoding=rows.encoding if solution.variants else "",
    )


def _no_solution(job: Job, rows: World, reason: str, begun: float) -> TrialResult:
    seconds = clock() - begun
    return TrialResult(job.key, "no_solution_found", reason, seconds, {"rows": rows.splits()})


@dataclass(frozen=True)
class Ending:
    """How a trial ends, and what there is to keep of that beside the numbers."""

    status: str
    reason: str
    info: Mapping[str, Any] = field(default_factory=dict)


def solved(
    job: Job, rows: World, problem: Problem, reference: Mapping[str, Predictions]
) -> tuple[Solution, list[Value], Ending]:
    """What is given of the solution of a trial's problem, its numbers, and how the trial ends."""
    rng = stream(job.seed, "solver", job.case.algorithm)
    solution = guarded(job.case.solver, job.case.guard, problem, rng)
    if job.is_deployed and solution.variants:
        rows = with_decisions(rows, next(iter(solution.variants.values())))
    return _judged(job, rows, problem, solution, reference)


def _judged(
    job: Job,
    rows: World,
    problem: Problem,
    solution: Solution,
    reference: Mapping[str, Predictions],
) -> tuple[Solution, list[Value], Ending]:
    """What is given of a solution, its numbers, and how the trial ends."""
    measured = ex.leaves(*job.case.metrics.values())
    estimated = any(leaf.rate.of != "decision" for leaf in measured)
    answers = rows.answers(solution.variants, estimated=estimated)
    if answers:  # `of(...)` of the trial itself is its main variant
        reference = {job.case.label: next(iter(answers.values())), **reference}
    if problem.promise is not None:
        _, rules = with_numbers(job.case, rows, reference, "train")
        tested = SafetyRows(rows, problem.promise, problem.label_ends, job.seed)
        verdict = tested.verdict(solution, answers, rules)
        answers = {name: answers[name] for name in verdict.solution.variants}
        values = _measured(rows, job.case, answers, reference)
        found = {"certificates": list(verdict.certificates)}
        found |= _info(job, rows, verdict.solution, answers, reference)
        return verdict.solution, values, Ending(verdict.status, verdict.reason, found)
    values = _measured(rows, job.case, answers, reference)
    status, reason = _status(job.case, solution, values)
    if status == "not_met" and job.case.solver.role == "enforces":
        status, reason = _proven(problem, status, reason)
    return solution, values, Ending(status, reason, _info(job, rows, solution, answers, reference))


def _info(
    job: Job,
    rows: World,
    solution: Solution,
    answers: Mapping[str, Predictions],
    reference: Mapping[str, Predictions],
) -> dict[str, Any]:
    """What a trial stores beside its numbers: filters, and the best constant decision."""
    filters = census(job.case.goals(), rows.sample, rows.splits(), solution.variants, answers)
    return filters or {CONSTANT: _best_constant(rows, job.case, reference)}


def _best_constant(
    rows: World, case: Case, reference: Mapping[str, Predictions]
) -> dict[str, float]:
    """By split, the least objective of a constant decision that satisfies all constraints there.

    Splits without such a decision are left out, and all of them where goals speak of anything but
    decisions.
    """
    goals = [goal.expression for goal in case.goals()]
    parts = [part for goal in goals for part in ex.walk(goal)]
    if any(isinstance(part, ex.Ranking | ex.Disclosure) for part in parts):
        return {}
    if any(leaf.rate.of != "decision" for leaf in ex.leaves(*goals)):
        return {}
    found: dict[str, float] = {}
    for split in rows.splits():
        of = partial(_of, rows, split, reference)
        for decision in (0.0, 1.0):
            said = np.full(len(rows.sample), decision)
            objective, *violations = measure(
                goals, rows.sample, split, Predictions(said, said, said), of
            )
            if objective < found.get(split, math.inf) and all(each <= MET for each in violations):
                found[split] = objective
    return found


def problem_of(
    job: Job,
    rows: World,
    reference: Mapping[str, Predictions],
    given: Mapping[str, TrialResult],
) -> Problem:
    """All that the solver is given."""
    unknown = unknown_groups(rows.sample, job.case)
    if unknown:
        raise FaultError(unknown)
    problem = training_problem(rows, *_goals(job.case, rows, reference, "train"), job.l2)
    if problem.validation is not None:
        objective, rules = _goals(job.case, rows, reference, "validation")
        judged = replace(problem.validation, objective=objective, constraints=rules)
        problem = replace(problem, validation=judged)
    problem = replace(problem, promise=job.case.promise(rows.splits().get("safety", 0)))
    if job.case.solver.needs_deployed:
        problem = replace(problem, deployed=_deployed(job, rows, given))
    return problem


def _deployed(job: Job, rows: World, given: Mapping[str, TrialResult]) -> Classifier:
    """The deployed model itself."""
    if job.deployed is not None:
        return _classifier(given[job.deployed], "the deployed model")
    if job.deployed_model is not None:
        return loads(job.deployed_model)
    assert job.deployed_column is not None
    return of_column(rows, job.deployed_column)


NOTHING = frozenset({"E306", "E311", "E408"})
"""Of rates and ratios that say nothing on the rows at hand."""


def _too_few(case: Case, error: FaultError) -> bool:
    """Whether it lies in the rows that were drawn, or left to train on, that nothing can be promised."""
    drawn = any(each is not None for each in (case.share, case.holdout, case.filtering))
    return drawn and {fault.code for fault in error.faults} <= NOTHING


def _goals(
    case: Case, rows: World, reference: Mapping[str, Predictions], split: str
) -> tuple[Goal, tuple[Goal, ...]]:
    """The goals with numbers for `of(...)`; plain error for an algorithm that ignores them."""
    if case.solver.role == "ignores":
        return objective_goal("error", ERROR), ()
    objective, rules = with_numbers(case, rows, reference, split)
    for goal in (objective, *rules):
        why, _ = refusal(type(case.solver), goal, objective=goal is objective)
        if why:  # `of(...)` turned out negative, and what was convex is concave
            message = f"algorithm '{case.label}' cannot take '{goal.text}': {why}"
            raise FaultError(Fault("E308", f"{message} at the numbers that of(...) has"))
    return objective, rules


def with_numbers(
    case: Case, rows: World, reference: Mapping[str, Predictions], split: str
) -> tuple[Goal, tuple[Goal, ...]]:
    """The goals of the file, with numbers for `of(...)`.

    A goal is held to what another algorithm reaches on the rows of the split that judges it.
    """

    def of(node: ex.Of) -> float:
        value = _of(rows, split, reference, _anywhere(node))
        if not math.isfinite(value):
            where = "training" if split == "train" else split
            message = f"'{ex.text(node)}' is {value} on {where} rows: no goal can be held to it"
            raise FaultError(Fault("E311", message, None, node.span))
        return value

    return known_goals(case, of)


def _anywhere(node: ex.Of) -> ex.Of:
    """What it measures without the split that `experiment.reading` put there."""

    def free(part: ex.Expression) -> ex.Expression | None:
        return replace(part, split=None) if isinstance(part, ex.Measured) else None

    return replace(node, metric=ex.transform(node.metric, free))


def _rows(job: Job, given: Mapping[str, TrialResult]) -> World:
    rows = seen_rows(job.data, job.seed, job.deployed_column, job.seen, given)
    if job.deployed_model is not None:
        stored = with_stored(_unfiltered(job), job.deployed_model).sample  # it knows of no filter
        assert stored.deployed is not None
        return replace(rows, sample=rows.sample.with_deployed(stored.deployed))
    if job.deployed is None:
        return rows
    if is_unsolved(given[job.deployed]):  # nothing is held to its decisions: see `unsolved`
        return replace(rows, sample=rows.sample.with_deployed(np.full(len(rows.sample), np.nan)))
    classifier = _classifier(given[job.deployed], "the deployed model")
    return with_decisions(rows, classifier, _seen(job, rows, job.deployed, given))


def _unfiltered(job: Job) -> World:
    return world(job.data, job.seed, job.deployed_column, job.case.drawing)


def _seen(job: Job, rows: World, key: str, given: Mapping[str, TrialResult]) -> World:
    """The same rows as another trial saw them, whose features follow its own training rows."""
    seen = job.elsewhere.get(key)
    if seen is None:
        return rows
    return seen_rows(job.data, job.seed, job.deployed_column, seen, given)


def _classifier(result: TrialResult, name: str) -> Classifier:
    """The main variant of a trial; `of` and `deployed` mean that one."""
    if not result.models:
        message = f"'{name}' is needed and has no classifier: its trial ended as {result.status}"
        raise FaultError(Fault("E501", message))
    return loads(next(iter(result.models.values())))


def training_problem(
    rows: World, objective: Goal, rules: tuple[Goal, ...], l2: float | str
) -> Problem:
    """The goals on training rows.

    Raises
    ------
    FaultError
        E306, E408 where a rate of a goal has no rows to be a mean of, E311 where a ratio has no value.
    """
    train = np.flatnonzero(rows.sample.rows(ex.EVERYWHERE, "train"))
    wanted = ex.leaves(*(piece for goal in (objective, *rules) for piece in goal.pieces))
    ratios = [ratio for goal in rules for ratio in goal.ratios]
    matrix = rate_matrix([*wanted, ERROR, *ex.leaves(*ratios)], rows.sample, "train")
    empty = {leaf for leaf, c in zip(matrix.leaves, matrix.c, strict=True) if math.isnan(c)}
    if empty & set(wanted):
        raise FaultError([of_nothing(leaf, rows.sample) for leaf in wanted if leaf in empty])
    undefined = undefined_ratios([goal.expression for goal in (objective, *rules)], rows.sample)
    if undefined:
        raise FaultError(undefined)
    n = rows.counted(train) / rows.levels  # copies of a row are no more rows
    penalty = float(l2.removesuffix("/n")) / n if isinstance(l2, str) else l2
    problem = Problem(rows.X[train], matrix.on(train), objective, rules, penalty)
    problem = replace(problem, stream=None if rows.stream is None else rows.stream[train])
    slices, label = _slices(wanted, rows, train), rows.sample.label[train]
    problem = replace(problem, slices=slices, label=label, label_range=rows.sample.label_range)
    problem = replace(problem, known=_known(wanted, rows, train))
    moved = [replace(leaf, split=None) for leaf in matrix.leaves]  # a goal may say @train
    others, held_out = rates_on(moved, rows.sample, "validation")
    if not len(held_out):
        return problem
    slices, label = _slices(wanted, rows, held_out), rows.sample.label[held_out]
    rates = replace(others, leaves=matrix.leaves)
    validation = replace(problem, X=rows.X[held_out], rates=rates, slices=slices, label=label)
    validation = replace(validation, known=_known(wanted, rows, held_out))
    if rows.stream is not None:
        validation = replace(validation, stream=rows.stream[held_out])
    return replace(problem, validation=validation)


def _slices(leaves: Sequence[Leaf], rows: World, some: NDArray[np.intp]) -> dict[str, Mask]:
    """Which of some rows are in each slice that rates speak of, by its text."""
    wheres = dict.fromkeys(leaf.where.visible for leaf in leaves)
    return {str(where): rows.sample.rows(where)[some] for where in wheres}


def _known(leaves: Sequence[Leaf], rows: World, some: NDArray[np.intp]) -> dict[str, Mask]:
    """Which of some rows have a value of each column that tells slices, by its name."""
    columns = dict.fromkeys(each.column for leaf in leaves for each in leaf.where.conditions)
    return {name: np.asarray(pd.notna(rows.sample.columns[name]))[some] for name in columns}


def _measured(
    rows: World,
    case: Case,
    answers: Mapping[str, Predictions],
    reference: Mapping[str, Predictions],
) -> list[Value]:
    """Every metric of every variant on every split."""
    metrics = {ex.text(metric): metric for metric in case.metrics.values()}
    values = []
    for variant, predictions in answers.items():
        for split in rows.splits():
            of = partial(_of, rows, split, reference)
            found = measure(list(metrics.values()), rows.sample, split, predictions, of)
            values += [Value(variant, split, *each) for each in zip(metrics, found, strict=True)]
    return values


def _of(rows: World, split: str, reference: Mapping[str, Predictions], node: ex.Of) -> float:
    """What another algorithm, or the deployed model, measures on the same split.

    NaN where that found no solution: what hangs on it has no value.
    """
    deployed = node.algorithm == DEPLOYED
    if not deployed and node.algorithm not in reference:
        return math.nan
    other = decided(rows.sample) if deployed else reference[node.algorithm]
    return measure([node.metric], rows.sample, split, other)[0]


def _status(case: Case, solution: Solution, values: list[Value]) -> tuple[str, str]:
    """The trial's status and reason.

    It is the solver's own, or `not_met` where the solver was given the constraints and its main
    variant violates one on training rows. A constraint that is undefined there is not met.
    """
    if solution.status not in {"solved", "iteration_limit"} or not solution.variants:
        return solution.status, solution.reason
    main = next(iter(solution.variants))
    measured = {v.metric: v.value for v in values if v.variant == main and v.split == "train"}
    missed = {
        goal.name: measured[ex.text(goal.expression)]
        for goal in case.constraints
        if not measured[ex.text(goal.expression)] <= MET
    }
    if case.solver.role != "ignores" and missed:
        listed = ", ".join(f"'{name}' {_by(amount)}" for name, amount in missed.items())
        reason = f"{main} misses {listed} on training rows"
        return "not_met", f"{solution.reason}; {reason}" if solution.reason else reason
    return ("ok" if solution.status == "solved" else solution.status), solution.reason


def _by(amount: float) -> str:
    return "as it is undefined there" if math.isnan(amount) else f"by {amount:.3g}"


def _proven(problem: Problem, status: str, reason: str) -> tuple[str, str]:
    """What is not met is `infeasible` where no classifier at all would meet it (`solvers.feasibility`)."""
    if not {goal.shape for goal in problem.constraints} <= TAKEN:
        return status, reason
    plain = replace(problem, objective=objective_goal("error", ERROR))
    return unmet(Program.of(plain), Kinds.by(problem.rates), reason, status)
