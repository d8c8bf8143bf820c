"""Constraints that an algorithm cannot take for a reason that only the rows tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ratecli.certify.trees import plan_goal_test
from ratecli.config.document import Document
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import OF_PLACEHOLDER, Case, resolve_goals
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Slice
from ratecli.rates.matrix import RateMatrix, build_rate_matrix
from ratecli.rates.sample import Sample
from ratecli.rates.syntax import Condition
from ratecli.sampling.safety_rows import goal_leaves, rates_on_split, without_split_condition


def check_constraint_obstacles(
    sample: Sample, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """What algorithms say of the constraints that they are given, at the constraints' places.

    What hangs on a trial is left to it: `of(...)`, decisions of an algorithm that is deployed.
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
    """An E308 for each rate of a goal whose slice tells the label, where classifiers look at slices."""
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
    """What a safety test says of constraints that it cannot bound (E308), or of rows that it cannot
    take (E411), at the constraints' places.
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
    """Whether a condition holds for just the rows of one label."""
    known = sample.mask("labelled")
    holds = sample.rows(Slice((), (condition,)))[known]
    positive = sample.mask("+")[known]
    return np.array_equal(holds, positive) or np.array_equal(holds, ~positive)


def _constant_constraints(case: Case, sample: Sample) -> Iterator[Goal]:
    """The constraints as solvers get them, where no trial has to run first."""
    _, rules = resolve_goals(case, lambda _: OF_PLACEHOLDER)
    open_ones = {goal.name for goal in case.constraints if _depends_on_trials(goal, sample)}
    return (goal for goal in rules if goal.name not in open_ones)


def _depends_on_trials(goal: Goal, sample: Sample) -> bool:
    if any(isinstance(part, ex.AlgorithmMetric) for part in ex.walk(goal.expression)):
        return True
    compared = any(leaf.rate.needs_deployed for leaf in ex.leaves(goal.expression))
    return compared and sample.deployed is None
