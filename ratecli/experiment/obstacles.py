"""Constraints that an algorithm cannot take for a reason that only the rows tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ratecli.certify.trees import tested
from ratecli.config.document import Document
from ratecli.errors import Fault, FaultError
from ratecli.experiment.cases import PLACEHOLDER, Case, known_goals
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Where
from ratecli.rates.matrix import RateMatrix, rate_matrix
from ratecli.rates.sample import Sample
from ratecli.rates.syntax import Condition
from ratecli.sampling.safety_rows import leaves_of, on_any_split, rates_on


def obstacles(sample: Sample, document: Document, cases: Sequence[Case]) -> Iterator[Fault]:
    """What algorithms say of the constraints that they are given, at the constraints' places.

    What hangs on a trial is left to it: `of(...)`, decisions of an algorithm that is deployed.
    """
    matrices: dict[tuple[ex.Leaf, ...], RateMatrix] = {}
    for case in cases:
        if case.solver.role == "ignores":
            continue
        for goal in _settled(case, sample):
            leaves = tuple(ex.leaves(*goal.pieces))
            if leaves not in matrices:
                matrices[leaves] = rate_matrix(leaves, sample, "train")
            fault = case.solver.obstacle(goal, matrices[leaves])
            if fault is not None:
                yield fault.at(document.place(("constraints", goal.name)))


def telling_slices(sample: Sample, document: Document, cases: Sequence[Case]) -> Iterator[Fault]:
    """An E308 for each rate of a goal whose slice tells the label, where classifiers look at slices."""
    for case in cases:
        goals = (each for each in case.texts() if each[0][0] != "metrics")
        for loc, tree in goals if case.solver.sees_slices else ():
            for leaf in ex.leaves(tree):
                telling = [item for item in leaf.where.conditions if _tells(item, sample)]
                if telling:
                    message = (
                        f"algorithm '{case.label}' decides by the slices of its goals, and "
                        f"'{telling[0]}' tells the label"
                    )
                    hint = "rates such as tpr and fpr are of rows of one label"
                    yield Fault("E308", message, hint, place=document.place(loc, leaf.span))


def untestable(sample: Sample, document: Document, cases: Sequence[Case]) -> Iterator[Fault]:
    """What a safety test says of constraints that it cannot bound (E308), or of rows that it cannot
    take (E411), at the constraints' places.
    """
    seen = set[tuple[str, str]]()
    for case in cases:
        promise = case.promise(int((sample.part == "safety").sum()))
        if promise is None:
            continue
        for goal in known_goals(case, lambda _: PLACEHOLDER)[1]:
            known = (ex.text(goal.expression), promise.method)
            if known in seen:
                continue
            seen.add(known)
            goal_there = on_any_split(goal)
            rates, _ = rates_on(leaves_of([goal_there]), sample, "safety")
            try:
                tested(goal_there, promise, rates)
            except FaultError as error:
                place = document.place(("constraints", goal.name))
                yield from (fault.at(place) for fault in error.faults)


def _tells(condition: Condition, sample: Sample) -> bool:
    """Whether a condition holds for just the rows of one label."""
    known = sample.mask("labelled")
    holds = sample.rows(Where((), (condition,)))[known]
    positive = sample.mask("+")[known]
    return np.array_equal(holds, positive) or np.array_equal(holds, ~positive)


def _settled(case: Case, sample: Sample) -> Iterator[Goal]:
    """The constraints as solvers get them, where no trial has to run first."""
    _, rules = known_goals(case, lambda _: PLACEHOLDER)
    open_ones = {goal.name for goal in case.constraints if _hangs(goal, sample)}
    return (goal for goal in rules if goal.name not in open_ones)


def _hangs(goal: Goal, sample: Sample) -> bool:
    if any(isinstance(part, ex.Of) for part in ex.walk(goal.expression)):
        return True
    compared = any(leaf.rate.needs_deployed for leaf in ex.leaves(goal.expression))
    return compared and sample.deployed is None
