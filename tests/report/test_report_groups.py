from __future__ import annotations

import math

import pytest
from scipy import stats
from synthetic_ledger import measured, planned

from ratecli.ledger.records import TrialResult
from ratecli.ledger.view import Ledger
from ratecli.report.groups import count_satisfied, estimate_mean, seed_groups


def test_the_interval_of_a_mean_is_students():
    values = [0.11, 0.14, 0.12, 0.19, 0.15]
    found = estimate_mean(values)
    low, high = stats.t.interval(0.95, 4, loc=sum(values) / 5, scale=stats.sem(values))
    assert found.mean == pytest.approx(0.142, abs=1e-15)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert (found.n, found.nan) == (5, 0)


@pytest.mark.parametrize(
    ("values", "mean", "half", "n", "nan"),
    [
        ([1.0, 3.0], 2.0, 12.7062047, 2, 0),  # s = sqrt(2): the half width is t(1) = 12.706...
        ([0.5], 0.5, None, 1, 0),
        ([0.1] * 7, 0.1, 0.0, 7, 0),
        ([1.0, math.nan, 3.0], 2.0, 12.7062047, 2, 1),
        ([math.nan, math.nan], None, None, 0, 2),
    ],
)
def test_means(values, mean, half, n, nan):
    found = estimate_mean(values)
    assert (found.mean, found.n, found.nan) == (mean, n, nan)
    assert found.half == (half and pytest.approx(half))
    assert (found.interval is None) == (half is None)


@pytest.mark.parametrize(
    ("values", "mean"),
    [([1.0, math.inf], math.inf), ([-math.inf] * 2, -math.inf), ([math.inf, -math.inf], math.nan)],
)
def test_an_infinite_mean_has_no_interval(values, mean):
    found = estimate_mean(values)
    assert found.mean == pytest.approx(mean, nan_ok=True)
    assert (found.half, found.n) == (None, 2)


def test_groups_come_in_plan_order_then_by_variant(example):
    found = [(group.label, group.variant, group.point["kappa"]) for group in seed_groups(example)]
    assert found[:2] == [("unconstrained", "hinge", 0.5), ("unconstrained", "hinge", 0.6)]
    assert found[6:8] == [("majorize", "deterministic", 0.5), ("majorize", "stochastic", 0.5)]
    assert found[-1] == ("three_player", "stochastic", 1.0)  # as elsewhere: nothing was found here


def test_a_failed_trial_counts_in_the_status_only(example):
    (group,) = (
        group
        for group in seed_groups(example)
        if (group.label, group.variant, group.point["kappa"]) == ("majorize", "stochastic", 1.0)
    )
    assert group.statuses == {"ok": 4, "error": 1}
    assert group.trials([("test", "error")]) == group.estimate("test", "error").n == 4


def test_only_trials_with_measurements_are_counted(example):
    group = seed_groups(example)[0]
    assert (
        group.trials([("test", "error")])
        == group.trials([("validation", "error"), ("test", "error")])
        > 0
    )
    assert group.trials([("validation", "error")]) == group.trials([]) == 0


@pytest.mark.parametrize(
    "status", ["error", "timeout", "infeasible", "no_solution_found", "diverged"]
)
def test_trials_without_a_solution_have_no_numbers_even_if_stored(status):
    trial = planned("a", 0, kappa=0.5)
    result = measured(trial, {("main", "test"): {"error": 0.1}}, status=status)
    ledger = Ledger([trial], {trial.key: result}, {})
    assert list(ledger.measurements()) == []
    assert [group.values for group in seed_groups(ledger)] == [{}]


def test_a_trial_without_a_result_was_not_run():
    trial = planned("a", 0, kappa=0.5)
    assert Ledger([trial], {}, {}).status(trial) == "not_run"


def test_sweep_points_equal_in_python_stay_apart():
    plan = [planned("a", 0, flag=value) for value in (1, 1.0, True)]
    results = {trial.key: TrialResult(trial.key, "ok") for trial in plan}
    assert len(seed_groups(Ledger(plan, results, {}))) == 3


def test_trials_that_share_a_result_all_have_its_numbers():
    trial = planned("a", 0)
    ledger = Ledger(
        [trial, trial], {trial.key: measured(trial, {("m", "test"): {"error": 0.2}})}, {}
    )
    assert [item.value for item in ledger.measurements() if item.metric == "error"] == [0.2, 0.2]


def test_constraints_are_satisfied_up_to_rounding():
    """A NaN counts nowhere but on training rows, where it is a promise that was not kept."""
    plan = [planned("a", seed) for seed in range(4)]
    violations = (-0.1, 1e-12, 0.01, math.nan)
    results = {
        trial.key: measured(
            trial, {("m", split): {"violation.parity": violation} for split in ("train", "test")}
        )
        for trial, violation in zip(plan, violations, strict=True)
    }
    (group,) = seed_groups(Ledger(plan, results, {}))
    assert count_satisfied([group], "test", "parity") == (2, 3)
    assert count_satisfied([group], "train") == (2, 4)
