"""Constraints that hold where they were trained and not where they count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import mean

from ratecli.faults import Fault
from ratecli.runner.options import solver_class
from ratecli.runner.records import MET, VIOLATION, Planned, TrialResult


def unkept(plan: Sequence[Planned], results: Mapping[str, TrialResult]) -> list[Fault]:
    """A W402 for each algorithm and constraint with such trials; main variants are looked at.

    Algorithms that do not enforce constraints promised nothing.
    """
    promised = [trial for trial in plan if solver_class(trial.algorithm).role == "enforces"]
    warnings = []
    for label, trials in groupby(promised, key=lambda trial: trial.label):
        measured = [(trial, results[trial.key]) for trial in trials if trial.key in results]
        names = dict.fromkeys(name for trial, _ in measured for name in trial.metrics)
        for name in names:
            if name.startswith(VIOLATION):
                pairs = [_train_and_test(result, trial.metrics[name]) for trial, result in measured]
                warnings += _warning(label, name.removeprefix(VIOLATION), pairs)
    return warnings


def _train_and_test(result: TrialResult, metric: str) -> tuple[float, float] | None:
    """The main variant's violation on both splits, None where either was not measured."""
    main = result.values[0].variant if result.values else ""
    found = {
        v.split: v.value
        for v in result.values
        if (v.variant, v.metric) == (main, metric) and not math.isnan(v.value)
    }
    return (found["train"], found["test"]) if {"train", "test"} <= found.keys() else None


def _warning(
    label: str, constraint: str, pairs: Sequence[tuple[float, float] | None]
) -> list[Fault]:
    kept = [test for pair in pairs if pair for train, test in [pair] if train <= MET]
    broken = [test for test in kept if test > MET]
    if not broken:
        return []
    message = (
        f"'{constraint}' holds for '{label}' on training rows and not on test rows in "
        f"{len(broken)} of {len(kept)} trials, missed by {mean(broken):.3g} on average"
    )
    return [Fault("W402", message)]
