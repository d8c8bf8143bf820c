"""Warnings about measured trials."""

import math
from dataclasses import replace

import pytest

from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    EFFECTIVE_ROWS_KEY,
    FILTERS_KEY,
    MeasuredValue,
    PlannedTrial,
    TrialResult,
)
from ratecli.runner.end_warnings import end_warnings


def result(key, train, test, variant="main"):
    numbers = {(variant, "train"): train, (variant, "test"): test}
    numbers |= {("other", "train"): -1.0, ("other", "test"): 1.0}
    values = (MeasuredValue(*place, "v", value) for place, value in numbers.items())
    return TrialResult(key, "ok", values=tuple(values))


def results(*pairs):
    return [result(str(k), *pair) for k, pair in enumerate(pairs)]


TRAIN_ONLY = TrialResult("b", "ok", values=(MeasuredValue("main", "train", "v", 0.0),))


@pytest.mark.parametrize(
    ("found", "algorithm", "expected"),
    [
        (results((0.0, 0.1), (1e-7, 0.3), (0.2, 0.9), (-1, -1)), "majorize", ("2 of 3", "0.2")),
        (results((0.0, math.nan), (0.0, 0.3), (0.0, 0.0)), "majorize", ("1 of 2", "0.3")),
        (
            [replace(each, info={"certificates": [{}]}) for each in results((0.0, 0.1))],
            "coco",
            ("1 of 1", "0.1"),
        ),
        (results((0.0, 0.1)), "thresholded", ("1 of 1", "0.1")),
        (
            results((0.0, 0.1)),
            "balanced_tree",
            ("1 of 1", "0.1"),
        ),  # `holds` does not affect filters
        (results((0.0, 0.0), (-0.1, 1e-7)), "majorize", None),
        (results((0.0, 0.5)), "unconstrained", None),  # it ignores constraints
        ([TrialResult("a", "infeasible"), TRAIN_ONLY], "majorize", None),
        (results((0.0, math.nan), (math.nan, 0.5)), "majorize", None),
        ([replace(each, status="infeasible") for each in results((0.0, 0.5))], "majorize", None),
    ],
)
def test_constraints_satisfied_in_training_only_give_a_warning(found, algorithm, expected):
    metrics = {"violation.fair": "v", "error": "e"}
    plan = [PlannedTrial(each.key, "m", algorithm, {}, {}, 0, metrics) for each in found]
    warnings = list(end_warnings(plan, {each.key: each for each in found}))
    assert [each.code for each in warnings] == ["W402"] * (expected is not None)
    for each in warnings:
        where = "'m' violates 'fair' on the test set in {} trials that satisfy it on the training"
        assert each.message.startswith(where.format(expected[0]))
        assert each.message.endswith(f"by {expected[1]} on average")
        assert ("holds: new_rows" in (each.help or "")) == (algorithm == "majorize")


def measured(key, constant, **objectives):
    """Return a trial whose variants have these objectives on the test set."""
    values = [MeasuredValue(name, "test", "o", each) for name, each in objectives.items()]
    info = {BEST_CONSTANT_KEY: {"test": constant}} if constant is not None else {}
    return TrialResult(key, "ok", values=tuple(values), info=info)


@pytest.mark.parametrize(
    ("options", "hinted"),
    [
        ({"loss": "hinge"}, True),
        ({"loss": "logistic"}, False),
        ({"loss": "hinge", "model": {"lightgbm": {"num_leaves": 7}}}, False),
    ],
)
def test_models_no_better_than_a_constant_give_a_warning(options, hinted):
    results = [
        measured("a", 0.2, stochastic=0.1, deterministic=0.2, last=0.9),
        measured("b", 0.2, stochastic=0.3, deterministic=0.4, last=0.9),
        measured("c", 0.2, stochastic=math.nan, deterministic=0.1),
        measured("d", None, stochastic=0.9),
    ]
    names = {"objective": "o"}
    plan = [PlannedTrial(r.key, "m", "mixture", options, {}, 0, names) for r in results]
    found = list(end_warnings(plan, {each.key: each for each in results}))
    shared = "is no better than a constant decision on the test set in"
    assert [(each.code, each.message) for each in found] == [
        ("W408", f"'m' {shared} 1 of 3 trials: objective 0.3 against 0.2"),
    ]
    assert {"loss: logistic" in (each.help or "") for each in found} == {hinted}


def test_values_of_few_effective_rows_give_a_warning():
    rows = ({"value(a)": 20.4, "value(b)": 900.0}, {"value(a)": 100.0}, {"value(a)": 55.0}, {})
    results = [
        TrialResult(str(k), "ok", info={EFFECTIVE_ROWS_KEY: each}) for k, each in enumerate(rows)
    ]
    plan = [PlannedTrial(each.key, "m", "mixture", {}, {}, 0, {}) for each in results]
    (found,) = end_warnings(plan, {each.key: each for each in results})
    assert found.code == "W410"
    assert found.message.startswith("'value(a)' of 'm' has only 20 effective rows in 2 of 3 trials")


def test_filters_that_keep_few_rows_give_a_warning():
    results = []
    for key, size in (("0", [0.98, 0.02]), ("1", [0.8, 0.2])):
        column = {"splits": {"train": {"size": size}}}
        info = {FILTERS_KEY: {"main": {"keep": [0.0, 1.0], "columns": {"sex": column}}}}
        results.append(replace(result(key, 0.0, 0.0), info=info))
    plan = [PlannedTrial(r.key, "filter", "balanced_tree", {}, {}, 0, {}) for r in results]
    (found,) = end_warnings(plan, {each.key: each for each in results})
    message = "'filter' keeps only 2 % of the training rows on average in 1 of 2 trials"
    assert (found.code, found.message) == ("W412", message)
    assert found.help.startswith("`kept: 0.3` as an option of balanced_tree")
