"""Warnings about measured trials: violated constraints, and models no better than a constant."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import mean

from ratecli.errors import Diagnostic
from ratecli.experiment.filter_stage import is_filter
from ratecli.experiment.options import solver_class
from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    EFFECTIVE_ROWS_KEY,
    FILTERS_KEY,
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


def violation_warnings(
    plan: Sequence[PlannedTrial], results: Mapping[str, TrialResult]
) -> list[Diagnostic]:
    """Warn (W402) of constraints that hold on the training set but not on the test set.

    There is at most one warning for each algorithm and constraint. If `holds` states a probability,
    there is one only if the test sets of some sweep point contradict it.

    Only main variants of algorithms that do not ignore constraints are checked.
    """
    reading = [trial for trial in plan if solver_class(trial.algorithm).role != "ignores"]
    warnings = []
    for label, trials in groupby(reading, key=lambda trial: trial.label):
        found, tested = defaultdict[str, Points](lambda: defaultdict(list)), False
        enforces = False
        for trial in trials:
            solver = solver_class(trial.algorithm)
            enforces |= solver.role == "enforces" and not is_filter(solver)
            result = results.get(trial.key)
            tested |= bool(result and result.info.get("certificates"))
            main, values = _values(result)
            for name, metric in trial.metrics.items():
                train = values.get((main, "train", metric), math.nan)
                test = values.get((main, "test", metric), math.nan)
                satisfied = not is_violated(train) and not math.isnan(test)
                if result and name.startswith(VIOLATION_PREFIX) and satisfied:
                    known = measured_violation(result, main, metric, test, trial.seed)
                    constraint = name.removeprefix(VIOLATION_PREFIX)
                    found[constraint][repr(trial.point)].append(known)
        for constraint, points in found.items():
            kept = [each for trials in points.values() for each in trials]
            broken = [each.value for each in kept if is_violated(each.value)]
            if broken and not all(ViolationSample(each).keeps_level for each in points.values()):
                message = (
                    f"'{label}' violates '{constraint}' on the test set in "
                    f"{len(broken)} of {len(kept)} trials that satisfy it on the training set, "
                    f"by {mean(broken):.3g} on average"
                )
                on_train = enforces and all(each.level is None for each in kept) and not tested
                warnings.append(Diagnostic("W402", message, NEW_ROWS_HINT if on_train else None))
    return warnings


def constant_warnings(
    plan: Sequence[PlannedTrial], results: Mapping[str, TrialResult]
) -> list[Diagnostic]:
    """Return a W408 for each algorithm whose test objective is not below a constant's.

    The main variants are checked. The constant is that of `Trial.best_constants`.
    """
    warnings = []
    for label, trials in groupby(plan, key=lambda trial: trial.label):
        pairs, hinge, undefined = list[tuple[float, float]](), True, dict[str, None]()
        kind = "decision"
        for trial in trials:
            linear = trial.options.get("model", LINEAR_MODEL) == LINEAR_MODEL
            hinge &= linear and trial.options.get("loss") == "hinge"
            result = results.get(trial.key)
            main, values = _values(result)
            undefined |= dict.fromkeys(undefined_constraints(trial, result) if result else ())
            constant = result.info.get(BEST_CONSTANT_KEY, {}).get("test") if result else None
            kind = "prediction" if main == "estimate" else kind
            value = values.get((main, "test", trial.metrics.get("objective", "")))
            if value is not None and constant is not None:
                pairs.append((value, constant))
        worse = [pair for pair in pairs if is_no_better(*pair)]
        if worse:
            value, constant = (mean(each) for each in zip(*worse, strict=True))
            message = (
                f"'{label}' is no better than a constant {kind} on the test set in {len(worse)} of "
                f"{len(pairs)} trials: objective {value:.4g} against {constant:.4g}"
            )
            if undefined and not is_no_better(constant, value):
                message += f"; for the constant, {undefined_text(list(undefined))}"
            hint = "set loss: logistic: a hinge loss often gives a constant for a rare class"
            warnings.append(Diagnostic("W408", message, hint if hinge else None))
    return warnings


MIN_EFFECTIVE_ROWS = 100
"""An estimate by inverse propensity with fewer effective rows is mostly noise."""


def effective_row_warnings(
    plan: Sequence[PlannedTrial], results: Mapping[str, TrialResult]
) -> list[Diagnostic]:
    """Return a W410 for each algorithm and rate of logged decisions with few effective rows."""
    warnings = []
    for label, trials in groupby(plan, key=lambda trial: trial.label):
        found = defaultdict[str, list[float]](list)
        for trial in trials:
            info = results[trial.key].info if trial.key in results else {}
            for text, rows in info.get(EFFECTIVE_ROWS_KEY, {}).items():
                found[text].append(rows)
        for text, rows in found.items():
            few = [each for each in rows if each < MIN_EFFECTIVE_ROWS]
            if few:
                message = (
                    f"'{text}' of '{label}' has only {min(few):.0f} effective rows in "
                    f"{len(few)} of {len(rows)} trials: its decisions differ much from the log's"
                )
                warnings.append(Diagnostic("W410", message))
    return warnings


def few_kept_warnings(
    plan: Sequence[PlannedTrial], results: Mapping[str, TrialResult]
) -> list[Diagnostic]:
    """Return a W412 for each filter that keeps few of the training rows in some trials."""
    warnings = []
    for label, trials in groupby(plan, key=lambda trial: trial.label):
        shares = []
        for result in (results[trial.key] for trial in trials if trial.key in results):
            main, _ = _values(result)
            found = result.info.get(FILTERS_KEY, {}).get(main, {"columns": {}})
            parts = (column["splits"].get("train") for column in found["columns"].values())
            if part := next(filter(None, parts), None):
                shares.append(sum(map(operator.mul, found["keep"], part["size"])))
        if few := [share for share in shares if share < MIN_KEPT_SHARE]:
            way = "`kept: 0.3` as an option of balanced_tree or qp_proxy"
            where = f" on average in {len(few)} of {len(shares)} trials"
            warnings += few_kept_warning(mean(few), way, f"'{label}'", where)
    return warnings


def _values(result: TrialResult | None) -> tuple[str, dict[tuple[str, str, str], float]]:
    """Return the main variant of a trial, and its values by variant, split and metric.

    There are none without a model: what a trial without a solution stores is no result.
    """
    values = result.values if result and result.status in MEASURED_STATUSES else ()
    main = values[0].variant if values else ""
    return main, {(each.variant, each.split, each.metric): each.value for each in values}
