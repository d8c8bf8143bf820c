"""Warnings about measured trials."""

from __future__ import annotations

import math

import pytest

from ratecli.ledger.records import BEST_CONSTANT_KEY, MeasuredValue, PlannedTrial, TrialResult
from ratecli.runner.warnings import constant_warnings, violation_warnings


def planned(key, algorithm="majorize"):
    return PlannedTrial(key, algorithm, algorithm, {}, {}, 0, {"violation.fair": "v", "error": "e"})


def result(key, train, test, variant="main"):
    values = [
        MeasuredValue(variant, "train", "v", train),
        MeasuredValue(variant, "test", "v", test),
    ]
    values += [MeasuredValue("other", "train", "v", -1.0), MeasuredValue("other", "test", "v", 1.0)]
    return TrialResult(key, "ok", values=tuple(values))


def warnings(*results, algorithm="majorize"):
    plan = [planned(each.key, algorithm) for each in results]
    return violation_warnings(plan, {each.key: each for each in results})


MESSAGE = (
    "'majorize' satisfies 'fair' on the training set but violates it on the test set "
    "in {} trials, by {} on average"
)


@pytest.mark.parametrize(
    ("pairs", "trials", "mean"),
    [
        ([(0.0, 0.1), (1e-7, 0.3), (0.2, 0.9), (-1, -1)], "2 of 3", "0.2"),
        ([(0.0, math.nan), (0.0, 0.3), (0.0, 0.0)], "1 of 2", "0.3"),
    ],
)
def test_constraints_satisfied_in_training_only_give_a_warning(pairs, trials, mean):
    (found,) = warnings(*(result(str(k), *pair) for k, pair in enumerate(pairs)))
    assert (found.code, found.message) == ("W402", MESSAGE.format(trials, mean))


TRAIN_ONLY = TrialResult("b", "ok", values=(MeasuredValue("main", "train", "v", 0.0),))


@pytest.mark.parametrize(
    ("results", "algorithm"),
    [
        ([result("a", 0.0, 0.0), result("b", -0.1, 1e-7)], "majorize"),
        ([result("a", 0.0, 0.5)], "unconstrained"),
        ([TrialResult("a", "infeasible"), TRAIN_ONLY], "majorize"),
        ([result("a", 0.0, math.nan), result("b", math.nan, 0.5)], "majorize"),
    ],
    ids=["satisfied", "ignores constraints", "not measured", "undefined"],
)
def test_other_results_give_no_warning(results, algorithm):
    assert warnings(*results, algorithm=algorithm) == []


def measured(key, constant, **objectives):
    """Return a trial whose variants have these objectives on the test set."""
    values = [MeasuredValue(name, "test", "o", each) for name, each in objectives.items()]
    info = {BEST_CONSTANT_KEY: {"test": constant}} if constant is not None else {}
    return TrialResult(key, "ok", values=tuple(values), info=info)


def test_models_no_better_than_a_constant_give_a_warning():
    results = [
        measured("a", 0.2, stochastic=0.1, deterministic=0.2, last=0.9),
        measured("b", 0.2, stochastic=0.3, deterministic=0.4, last=0.9),
        measured("c", 0.2, stochastic=math.nan, deterministic=0.1),
        measured("d", None, stochastic=0.9),
    ]
    plan = [PlannedTrial(r.key, "m", "mixture", {}, {}, 0, {"objective": "o"}) for r in results]
    found = constant_warnings(plan, {each.key: each for each in results})
    shared = "is no better than a constant decision on the test set in"
    assert [(each.code, each.message) for each in found] == [
        ("W408", f"'m' (stochastic) {shared} 1 of 3 trials: objective 0.3 against 0.2"),
        ("W408", f"'m' (deterministic) {shared} 2 of 3 trials: objective 0.3 against 0.2"),
    ]
