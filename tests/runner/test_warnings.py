"""Warnings that measured trials give."""

from __future__ import annotations

import math

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
    return [
        fault.message for fault in violation_warnings(plan, {each.key: each for each in results})
    ]


def test_only_what_holds_in_training_is_counted():
    (found,) = warnings(
        result("a", 0.0, 0.1), result("b", 1e-7, 0.3), result("c", 0.2, 0.9), result("d", -1, -1)
    )
    assert found == (
        "'majorize' satisfies 'fair' on the training set but violates it on the test set in 2 of 3 "
        "trials, by 0.2 on average"
    )


def test_no_warning_where_test_rows_agree():
    assert warnings(result("a", 0.0, 0.0), result("b", -0.1, 1e-7)) == []


def test_algorithms_that_ignore_constraints_promised_nothing():
    assert warnings(result("a", 0.0, 0.5), algorithm="unconstrained") == []


def test_what_was_not_measured_tells_nothing():
    missing = TrialResult("a", "infeasible")
    train_only = TrialResult("b", "ok", values=(MeasuredValue("main", "train", "v", 0.0),))
    assert warnings(missing, train_only) == []
    assert violation_warnings([planned("a")], {}) == []


def test_a_split_without_rows_of_the_group_tells_nothing():
    assert warnings(result("a", 0.0, math.nan)) == []
    assert warnings(result("a", math.nan, 0.5)) == []
    (found,) = warnings(result("a", 0.0, math.nan), result("b", 0.0, 0.3), result("c", 0.0, 0.0))
    assert found.endswith(" in 1 of 2 trials, by 0.3 on average")


def test_codes():
    plan, found = [planned("a")], {"a": result("a", 0.0, 0.5)}
    assert [fault.code for fault in violation_warnings(plan, found)] == ["W402"]


def measured(key, constant, **objectives):
    """A trial whose variants have these objectives on the test set."""
    values = [MeasuredValue(name, "test", "o", each) for name, each in objectives.items()]
    info = {BEST_CONSTANT_KEY: {"test": constant}} if constant is not None else {}
    return TrialResult(key, "ok", values=tuple(values), info=info)


def test_models_no_better_than_a_constant_are_named():
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
