"""Warnings about measured trials: violated constraints, and models no better than a constant."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean

from ratecli.errors import Diagnostic
from ratecli.experiment.entries import solver_class
from ratecli.experiment.filters import is_filter
from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    EFFECTIVE_ROWS_KEY,
    FILTERS_KEY,
    OBJECTIVE,
    VIOLATION_PREFIX,
    PlannedTrial,
    TrialResult,
    is_no_better,
    is_violated,
    undefined_constraints,
    undefined_text,
)
from ratecli.ledger.view import MEASURED_STATUSES
from ratecli.ledger.violations import MeasuredViolation, ViolationSample, measured_violation
from ratecli.sampling.summaries import MIN_KEPT_SHARE, few_kept_warning
from ratecli.solvers.oracles.choice import LINEAR_MODEL

Points = defaultdict[str, list[MeasuredViolation]]
"""Violations at each sweep point."""

NEW_ROWS_HINT = "`holds: new_rows` trains for the rule on new rows; the objective may be worse"
MIN_EFFECTIVE_ROWS = 100
"""An estimate by inverse propensity with fewer effective rows is mostly noise."""


@dataclass(frozen=True)
class EndedTrial:
    """A trial with its result, and the values of its main variant by split and metric.

    There are no values without a model: what a trial without a solution stores is no result.
    """

    planned: PlannedTrial
    result: TrialResult
    main: str
    values: Mapping[tuple[str, str], float]

    @classmethod
    def of(cls, planned: PlannedTrial, result: TrialResult) -> EndedTrial:
        found = result.values if result.status in MEASURED_STATUSES else ()
        main = found[0].variant if found else ""
        values = {(each.split, each.metric): each.value for each in found if each.variant == main}
        return cls(planned, result, main, values)


def end_warnings(
    plan: Sequence[PlannedTrial], results: Mapping[str, TrialResult]
) -> Iterator[Diagnostic]:
    """Yield the warnings about the main variants of each algorithm's trials that have ended.

    W402 for constraints that hold on the training set but not on the test set, W408 for models no
    better than a constant, W410 for values of logged decisions that rest on few rows, W412 for
    filters that keep few rows.
    """
    ended = (EndedTrial.of(each, results[each.key]) for each in plan if each.key in results)
    by_label = [list(trials) for _, trials in groupby(ended, key=lambda each: each.planned.label)]
    for find in (_violations, _constants, _effective_rows, _few_kept):
        for trials in by_label:
            yield from find(trials[0].planned.label, trials)


def _violations(label: str, trials: Sequence[EndedTrial]) -> Iterator[Diagnostic]:
    """Yield at most one W402 for each constraint of an algorithm that does not ignore them.

    If `holds` states a probability, there is one only if the test sets of some sweep point
    contradict it.
    """
    solver = solver_class(trials[0].planned.algorithm)
    if solver.role == "ignores":
        return
    found = defaultdict[str, Points](lambda: defaultdict(list))
    for each in trials:
        for name, metric in each.planned.metrics.items():
            train, test = (each.values.get((at, metric), math.nan) for at in ("train", "test"))
            satisfied = not is_violated(train) and not math.isnan(test)
            if name.startswith(VIOLATION_PREFIX) and satisfied:
                seed = each.planned.seed
                known = measured_violation(each.result, each.main, metric, test, seed)
                points = found[name.removeprefix(VIOLATION_PREFIX)]
                points[repr(each.planned.point)].append(known)
    enforces = solver.role == "enforces" and not is_filter(solver)
    tested = any(each.result.info.get("certificates") for each in trials)
    for constraint, points in found.items():
        kept = [each for alike in points.values() for each in alike]
        broken = [each.value for each in kept if is_violated(each.value)]
        if broken and not all(ViolationSample(each).keeps_level for each in points.values()):
            message = (
                f"'{label}' violates '{constraint}' on the test set in "
                f"{len(broken)} of {len(kept)} trials that satisfy it on the training set, "
                f"by {mean(broken):.3g} on average"
            )
            on_train = enforces and all(each.level is None for each in kept) and not tested
            yield Diagnostic("W402", message, NEW_ROWS_HINT if on_train else None)


def _constants(label: str, trials: Sequence[EndedTrial]) -> Iterator[Diagnostic]:
    """Yield a W408 if the test objective is not below that of `Trial.best_constants`."""
    pairs, hinge, undefined = list[tuple[float, float]](), True, dict[str, None]()
    for each in trials:
        options = each.planned.options
        linear = options.get("model", LINEAR_MODEL) == LINEAR_MODEL
        hinge &= linear and options.get("loss") == "hinge"
        undefined |= dict.fromkeys(undefined_constraints(each.planned, each.result))
        constant = each.result.info.get(BEST_CONSTANT_KEY, {}).get("test")
        value = each.values.get(("test", each.planned.metrics.get(OBJECTIVE, "")))
        if value is not None and constant is not None:
            pairs.append((value, constant))
    worse = [pair for pair in pairs if is_no_better(*pair)]
    if worse:
        kind = "prediction" if any(each.main == "estimate" for each in trials) else "decision"
        value, constant = (mean(each) for each in zip(*worse, strict=True))
        message = (
            f"'{label}' is no better than a constant {kind} on the test set in {len(worse)} of "
            f"{len(pairs)} trials: objective {value:.4g} against {constant:.4g}"
        )
        if undefined and not is_no_better(constant, value):
            message += f"; for the constant, {undefined_text(list(undefined))}"
        hint = "set loss: logistic: a hinge loss often gives a constant for a rare class"
        yield Diagnostic("W408", message, hint if hinge else None)


def _effective_rows(label: str, trials: Sequence[EndedTrial]) -> Iterator[Diagnostic]:
    """Yield a W410 for each rate of logged decisions with few effective rows."""
    found = defaultdict[str, list[float]](list)
    for each in trials:
        for text, rows in each.result.info.get(EFFECTIVE_ROWS_KEY, {}).items():
            found[text].append(rows)
    for text, counts in found.items():
        few = [rows for rows in counts if rows < MIN_EFFECTIVE_ROWS]
        if few:
            message = (
                f"'{text}' of '{label}' has only {min(few):.0f} effective rows in "
                f"{len(few)} of {len(counts)} trials: its decisions differ much from the log's"
            )
            yield Diagnostic("W410", message)


def _few_kept(label: str, trials: Sequence[EndedTrial]) -> Iterator[Diagnostic]:
    """Yield a W412 for a filter that keeps few of the training rows in some trials."""
    shares = []
    for each in trials:
        found = each.result.info.get(FILTERS_KEY, {}).get(each.main, {"columns": {}})
        parts = (column["splits"].get("train") for column in found["columns"].values())
        if part := next(filter(None, parts), None):
            shares.append(sum(map(operator.mul, found["keep"], part["size"])))
    if few := [share for share in shares if share < MIN_KEPT_SHARE]:
        way = "`kept: 0.3` as an option of balanced_tree or qp_proxy"
        where = f" on average in {len(few)} of {len(shares)} trials"
        yield from few_kept_warning(mean(few), way, f"'{label}'", where)
