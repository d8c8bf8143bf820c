"""One trial: rows, goals, solver, measurement."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from ratecli.faults import Fault, FaultError
from ratecli.models.base import Classifier
from ratecli.models.storage import dumps, loads
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression
from ratecli.rates.matrix import measure, rate_matrix
from ratecli.runner.cases import Case, known_goals
from ratecli.runner.keys import stream
from ratecli.runner.plan import Job
from ratecli.runner.records import MET, TrialResult, Value
from ratecli.runner.world import World, world
from ratecli.solvers.base import Solution
from ratecli.solvers.problem import ERROR, Problem

def run_trial(job: Job, given: Mapping[str, TrialResult]) -> TrialResult:
    """Solve and measure; `given` holds the results of the trials that this one needs."""
    begun = time.perf_counter()
    rows = _rows(job, given)
    others = {label: _classifier(given[key], label) for label, key in job.of.items()}
    reference = {label: rows.predictions(other) for label, other in others.items()}

    def of_train(node: ex.Of) -> float:
        predictions = reference[node.algorithm]
        return measure([node.metric], rows.sample, "train", predictions)[0]

    objective, rules = known_goals(job.case, of_train)
    problem = training_problem(rows, objective, rules, job.l2)
    rng = stream(job.seed, "solver", job.case.algorithm)
    solution = job.case.solver.solve(problem, rng, lambda _: None)
    values = _measured(rows, job.case, solution, reference)
    status, reason = _status(job.case, solution, values)
    return TrialResult(
        key=job.key,
        status=status,
        reason=reason,
        seconds=time.perf_counter() - begun,
        info={"rows": rows.splits()},
        trace=solution.trace,
        multipliers=solution.multipliers,
        values=tuple(values),
        models={name: dumps(classifier) for name, classifier in solution.variants.items()},
    )


def _rows(job: Job, given: Mapping[str, TrialResult]) -> World:
    rows = world(job.data, job.seed, job.deployed_column)
    if job.deployed is None:
        return rows
    decisions = rows.predictions(_classifier(given[job.deployed], "the deployed model")).decisions
    return replace(rows, sample=rows.sample.with_deployed(np.where(decisions > 0.5, 1.0, 0.0)))


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
        E306, E408 where a rate of a goal has no rows to be a mean of.
    """
    train = np.flatnonzero(rows.sample.part == "train")
    goals = (objective, *rules)
    trees = [piece for goal in goals for piece in goal.pieces]
    matrix = rate_matrix([*ex.leaves(*trees), ERROR], rows.sample, "train")
    empty = [leaf for leaf, c in zip(matrix.leaves, matrix.c, strict=True) if math.isnan(c)]
    wrong = [leaf for leaf in empty if leaf is not ERROR]
    if wrong:
        raise FaultError([_no_rows(leaf, rows) for leaf in wrong])
    matrix = replace(matrix, A=sparse.csr_array(matrix.A[:, train]))
    penalty = float(l2.removesuffix("/n")) / len(train) if isinstance(l2, str) else l2
    return Problem(rows.X[train], matrix, objective, rules, penalty)


def _no_rows(leaf: ex.Leaf, rows: World) -> Fault:
    among = rows.sample.rows(leaf.where, leaf.split or "train")
    text = ex.text(leaf)
    if leaf.rate.needs_labels and among.any() and not rows.sample.mask("labelled")[among].any():
        message = f"'{text}' needs labels, and no training row of '{leaf.where}' has one"
        return Fault("E306", message, None, leaf.span)
    message = f"'{text}' is a mean over no rows: no training row fits '{leaf.where}'"
    return Fault("E408", message, None, leaf.span)


def _measured(
    rows: World, case: Case, solution: Solution, reference: Mapping[str, Any]
) -> list[Value]:
    """Every metric of every variant on every split."""
    values = []
    for variant, classifier in solution.variants.items():
        predictions = rows.predictions(classifier)
        for split in rows.splits():
            metrics = _numbers(case.metrics, rows, split, reference)
            found = measure(list(metrics.values()), rows.sample, split, predictions)
            values += [
                Value(variant, split, text, value)
                for text, value in zip(metrics, found, strict=True)
            ]
    return values


def _numbers(
    metrics: Mapping[str, Expression], rows: World, split: str, reference: Mapping[str, Any]
) -> dict[str, Expression]:
    """Metrics by canonical text, what other algorithms measured on the same split filled in."""

    def number(node: Expression) -> Expression | None:
        if not isinstance(node, ex.Of):
            return None
        return ex.Constant(measure([node.metric], rows.sample, split, reference[node.algorithm])[0])

    return {ex.text(metric): ex.transform(metric, number) for metric in metrics.values()}


def _status(case: Case, solution: Solution, values: list[Value]) -> tuple[str, str]:
    """The trial's status: what the solver says, unless its main variant breaks a rule in training."""
    if solution.status not in {"solved", "iteration_limit"} or not solution.variants:
        return solution.status, solution.reason
    main = next(iter(solution.variants))
    measured = {v.metric: v.value for v in values if v.variant == main and v.split == "train"}
    missed = {
        goal.name: measured[ex.text(goal.expression)]
        for goal in case.constraints
        if not measured[ex.text(goal.expression)] <= MET
    }
    if case.solver.enforces and missed:
        listed = ", ".join(f"'{name}' by {amount:.3g}" for name, amount in missed.items())
        return "not_met", f"{main} misses {listed} on training rows. {solution.reason}".strip()
    return ("ok" if solution.status == "solved" else solution.status), solution.reason
