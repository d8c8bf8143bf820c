"""The problem that a trial gives to its solver: goals with numbers, rates and rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import Case, resolve_goals
from ratecli.models.output_cache import take_rows
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Leaf
from ratecli.rates.matrix import Predictions, build_rate_matrix, measure
from ratecli.rates.sample import Sample
from ratecli.rates.table import DEPLOYED
from ratecli.sampling.deployed import deployed_predictions
from ratecli.sampling.rows import TrialData
from ratecli.sampling.safety_rows import rates_on_split
from ratecli.sampling.undefined import check_defined_rates, check_defined_ratios, empty_rate
from ratecli.solvers.problem import ERROR_RATE, Problem
from ratecli.solvers.tuned import Setting

FILTER_IS_CAUSE = (
    "the filter is the cause, as it drops training rows: set a larger `kept` in its options"
)
Goals = tuple[Goal, tuple[Goal, ...]]
"""The objective and the constraints."""


def goals_with_numbers(
    case: Case, rows: TrialData, reference: Mapping[str, Predictions], split: str
) -> Goals:
    """Return the experiment's objective and constraints with values on a split for `of(...)`."""

    def number(node: ex.Expression) -> ex.Expression | None:
        if not isinstance(node, ex.AlgorithmMetric):
            return None
        value = reference_value(rows, split, reference, node)
        if not math.isfinite(value):
            where = "training" if split == "train" else split
            message = f"'{ex.to_text(node)}' is {value} on {where} rows: goals need a number"
            raise FaultError(Diagnostic("E311", message, None, node.span))
        return ex.Constant(value)

    return resolve_goals(case, number)


def reference_value(
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


def training_problem(
    rows: TrialData, objective: Goal, constraints: tuple[Goal, ...], l2: float | str
) -> Problem:
    """Return the problem of optimizing the goals on the training set.

    Raises
    ------
    FaultError
        E306, E408 if a rate of a goal has no rows to average over, E311 if a ratio is undefined.
    """
    train = np.flatnonzero(rows.sample.rows(ex.ALL_ROWS, "train"))
    goals = (objective, *constraints)
    leaves, written = rate_leaves(objective, constraints)
    matrix = build_rate_matrix([*leaves, ERROR_RATE, *written], rows.sample, "train")
    if rows.sample.logs is not None and math.isnan(matrix.c[matrix.index()[ERROR_RATE]]):
        matrix = matrix.zero(ERROR_RATE)  # without labels, algorithms use the objective instead
    empty = {leaf for leaf, c in zip(matrix.leaves, matrix.c, strict=True) if math.isnan(c)}
    if empty & set(leaves):
        faults = [empty_rate(leaf, rows.sample) for leaf in leaves if leaf in empty]
        raise FaultError(_with_cause(faults, partial(check_defined_rates, leaves), rows))
    check_ratios = partial(check_defined_ratios, [goal.expression for goal in goals])
    if undefined := check_ratios(rows.sample):
        raise FaultError(_with_cause(undefined, check_ratios, rows))
    problem = Problem(
        rates=matrix.on(train),
        objective=objective,
        constraints=constraints,
        l2=penalty(l2, training_count(rows)),
        label_range=rows.sample.label_range,
        **_row_fields(rows, leaves, train),
    )
    moved = [replace(leaf, split=None) for leaf in matrix.leaves]  # goals may specify @train
    others, held_out = rates_on_split(moved, rows.sample, "validation")
    if not len(held_out):
        return problem
    rates = replace(others, leaves=matrix.leaves)
    rates = rates if problem.labelled else rates.zero(ERROR_RATE)
    validation = replace(problem, rates=rates, **_row_fields(rows, leaves, held_out))
    return replace(problem, validation=validation)


def _with_cause(
    faults: Sequence[Diagnostic], check: Callable[[Sample], list[Diagnostic]], rows: TrialData
) -> list[Diagnostic]:
    """Return the faults; those that `check` does not find without the filter name it as cause."""
    found = {fault.span for fault in (faults if rows.before is None else check(rows.unfiltered()))}
    return [
        fault
        if fault.span in found
        else replace(fault, message=f"{fault.message}; {FILTER_IS_CAUSE}")
        for fault in faults
    ]


def rate_leaves(
    objective: Goal, constraints: Sequence[Goal]
) -> tuple[Sequence[Leaf], Sequence[Leaf]]:
    """Return the rates of the goals' pieces, and those of the constraints as written."""
    goals = (objective, *constraints)
    pieces = [piece for goal in goals for piece in goal.pieces]
    return ex.leaves(*pieces), ex.leaves(*(goal.expression for goal in constraints))


def penalty(l2: float | str, n: float) -> float:
    """Return the number that `l2` stands for: a/n is a divided by the number of rows n."""
    return float(l2.removesuffix("/n")) / n if isinstance(l2, str) else l2


def with_penalties(settings: Sequence[Setting], n: float) -> tuple[Setting, ...]:
    """Return settings with numbers for their penalties; n as in `penalty`."""
    return tuple(
        each if each.l2 is None else each._replace(l2=penalty(each.l2, n)) for each in settings
    )


def training_count(rows: TrialData) -> float:
    """Return the number of training rows; copies of a row count once."""
    train = np.flatnonzero(rows.sample.rows(ex.ALL_ROWS, "train"))
    return rows.counted(train) / rows.levels


def _row_fields(rows: TrialData, leaves: Sequence[Leaf], some: NDArray[np.intp]) -> dict[str, Any]:
    """Return the fields of a problem that hold selected rows.

    `slices` has the members of each slice that the rates use, by its text, and `known` the rows
    that have a value in each column of these slices.
    """
    sample = rows.sample
    wheres = dict.fromkeys(leaf.where.visible for leaf in leaves)
    columns = dict.fromkeys(each.column for leaf in leaves for each in leaf.where.atoms)
    return {
        "X": take_rows(rows.X, some),
        "label": sample.label[some],
        "slices": {str(where): sample.rows(where)[some] for where in wheres},
        "known": {name: np.asarray(pd.notna(sample.columns[name]))[some] for name in columns},
        "stream": None if rows.stream is None else rows.stream[some],
        "column_layout": rows.layout,
        "episodes": rows.episodes,
    }
