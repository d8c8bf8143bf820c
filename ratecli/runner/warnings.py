"""Warnings about measured trials: violated constraints, and models no better than a constant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import mean

from ratecli.errors import Diagnostic
from ratecli.experiment.options import solver_class
from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    CONSTRAINT_TOLERANCE,
    VIOLATION_PREFIX,
    PlannedTrial,
    TrialResult,
)


def violation_warnings(
    plan: Sequence[PlannedTrial], results: Mapping[str, TrialResult]
) -> list[Diagnostic]:
    """Warn (W402) of constraints that hold on the training set but not on the test set.

    There is one warning for each algorithm and constraint.

    Only main variants of algorithms that enforce constraints are checked.
    """
    promised = [trial for trial in plan if solver_class(trial.algorithm).role == "enforces"]
    warnings = []
    for label, trials in groupby(promised, key=lambda trial: trial.label):
        measured = [(trial, results[trial.key]) for trial in trials if trial.key in results]
        names = dict.fromkeys(name for trial, _ in measured for name in trial.metrics)
        for name in names:
            if name.startswith(VIOLATION_PREFIX):
                pairs = [_train_and_test(result, trial.metrics[name]) for trial, result in measured]
                warnings += _warning(label, name.removeprefix(VIOLATION_PREFIX), pairs)
    return warnings


def constant_warnings(
    plan: Sequence[PlannedTrial], results: Mapping[str, TrialResult]
) -> list[Diagnostic]:
    """Return a W408 for each algorithm and variant whose test objective is not below a constant's.

    The main and the deterministic variant are checked. The constant is the better of "always
    positive" and "always negative" among those that satisfy all constraints on the test set, if any
    does.
    """
    warnings = []
    for label, trials in groupby(plan, key=lambda trial: trial.label):
        pairs: dict[str, list[tuple[float, float]]] = {}
        for trial in trials:
            result = results.get(trial.key)
            constant = result.info.get(BEST_CONSTANT_KEY, {}).get("test") if result else None
            if result is None or constant is None or not result.values:
                continue
            names = {result.values[0].variant, "deterministic"}
            for value in result.values:
                measured = value.split, value.metric
                if value.variant in names and measured == ("test", trial.metrics["objective"]):
                    pairs.setdefault(value.variant, []).append((value.value, constant))
        for variant, found in pairs.items():
            worse = [pair for pair in found if pair[0] >= pair[1]]
            if worse:
                ours, constant = (mean(each) for each in zip(*worse, strict=True))
                message = (
                    f"'{label}' ({variant}) is no better than a constant decision on test rows in "
                    f"{len(worse)} of {len(found)} trials: objective {ours:.4g} against "
                    f"{constant:.4g}"
                )
                warnings.append(Diagnostic("W408", message))
    return warnings


def _train_and_test(result: TrialResult, metric: str) -> tuple[float, float] | None:
    """Return the main variant's violation on both splits, or None if either was not measured."""
    main = result.values[0].variant if result.values else ""
    found = {
        v.split: v.value
        for v in result.values
        if (v.variant, v.metric) == (main, metric) and not math.isnan(v.value)
    }
    return (found["train"], found["test"]) if {"train", "test"} <= found.keys() else None


def _warning(
    label: str, constraint: str, pairs: Sequence[tuple[float, float] | None]
) -> list[Diagnostic]:
    kept = [
        test for pair in pairs if pair for train, test in [pair] if train <= CONSTRAINT_TOLERANCE
    ]
    broken = [test for test in kept if test > CONSTRAINT_TOLERANCE]
    if not broken:
        return []
    message = (
        f"'{constraint}' holds for '{label}' on training rows and not on test rows in "
        f"{len(broken)} of {len(kept)} trials, missed by {mean(broken):.3g} on average"
    )
    return [Diagnostic("W402", message)]
