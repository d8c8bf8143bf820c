"""Groups of seeds: means, shares of trials, and their intervals."""

import math

import pytest
from scipy import stats
from synthetic_ledger import SAFE, ledger_of, ledger_of_known_rates, measured, planned, returned

from ratecli.ledger.records import TrialResult
from ratecli.ledger.view import Ledger
from ratecli.report.check.expectations import compare_expectations
from ratecli.report.groups import count_satisfied, estimate_mean, estimate_share, seed_groups
from ratecli.report.sheets import requested_sheets


def test_the_interval_of_a_mean_is_students():
    values = [0.11, 0.14, 0.12, 0.19, 0.15]
    found = estimate_mean(values)
    low, high = stats.t.interval(0.95, 4, loc=sum(values) / 5, scale=stats.sem(values))
    assert found.mean == pytest.approx(0.142, abs=1e-15)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_the_interval_over_folds_has_the_variance_of_nadeau_and_bengio():
    """They add the ratio of test to training rows, here 1 to 4, to 1 / n."""
    values = [0.11, 0.14, 0.12, 0.19, 0.15]
    plan = [planned("fit", seed) for seed in range(5)]
    results = {
        trial.key: measured(trial, {("main", "test"): {"error": value}})
        for trial, value in zip(plan, values, strict=True)
    }
    folds = {"experiment": {"datasets": {"d": {"split": {"folds": 5}}}}}
    plain, wide = (seed_groups(Ledger(plan, results, meta))[0] for meta in ({}, folds))
    assert (plain.fold_overlap, wide.fold_overlap) == (0, 0.25)
    known = [each.estimate("test", "error").half for each in (plain, wide)]
    assert known[1] / known[0] == pytest.approx(((1 / 5 + 1 / 4) / (1 / 5)) ** 0.5)


@pytest.mark.parametrize(
    ("values", "mean", "half", "n", "nan"),
    [
        ([1.0, 3.0], 2.0, 12.7062047, 2, 0),  # s = sqrt(2): the half width is t(1) = 12.706...
        ([0.5], 0.5, None, 1, 0),
        ([0.1] * 7, 0.1, 0.0, 7, 0),
        ([1.0, math.nan, 3.0], 2.0, 12.7062047, 2, 1),
        ([math.nan, math.nan], None, None, 0, 2),
        ([1.0, math.inf], math.inf, None, 2, 0),
        ([math.inf, -math.inf], math.nan, None, 2, 0),
    ],
)
def test_means(values, mean, half, n, nan):
    found = estimate_mean(values)
    assert found.mean == (mean and pytest.approx(mean, abs=0, nan_ok=True))
    assert (found.n, found.nan) == (n, nan)
    assert found.half == (half and pytest.approx(half))
    assert (found.interval is None) == (half is None)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 20), (3, 20), (20, 20), (17, 1000)])
def test_the_interval_of_a_share_is_exact(k, n):
    found = estimate_share(k, n)
    expected = stats.binomtest(k, n).proportion_ci(0.95, "exact")
    assert (found.mean, found.n, found.half) == (k / n, n, None)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_a_failed_trial_counts_in_the_status_only(example):
    found = {(each.label, each.variant, each.point["kappa"]): each for each in seed_groups(example)}
    group = found["majorize", "stochastic", 1.0]
    assert group.statuses == {"ok": 4, "error": 1}
    assert group.estimate("test", "error").n == 4
    counts = [group.measured([("validation", "error"), (split, "error")]) for split in ("test", "")]
    assert counts == [4, 0]


@pytest.mark.parametrize("status", ["error", "infeasible", "no_solution_found", "diverged"])
def test_trials_without_a_solution_have_no_numbers_even_if_stored(status):
    trial = planned("a", 0, kappa=0.5)
    result = measured(trial, {("main", "test"): {"error": 0.1}}, status=status)
    (group,) = seed_groups(Ledger([trial], {trial.key: result}, {}))
    assert group.estimates == {}


def test_trials_that_share_a_result_all_have_its_numbers():
    trial = planned("a", 0)
    result = measured(trial, {("m", "test"): {"error": 0.2}})
    (group,) = seed_groups(Ledger([trial, trial], {trial.key: result}, {}))
    assert group.values("test", "error") == {0: 0.2, 1: 0.2}


def test_sweep_points_equal_in_python_stay_apart():
    plan = [planned("a", 0, flag=value) for value in (1, 1.0, True)]
    results = {trial.key: TrialResult(trial.key, "ok") for trial in plan}
    assert len(seed_groups(Ledger(plan, results, {}))) == 3


def group_of(*results, **experiment):
    """Return the group of trials given by their violation on the test set, or by their status."""
    trials = [planned("fit", seed) for seed in range(len(results))]
    pairs = []
    for trial, given in zip(trials, results, strict=True):
        known = TrialResult(trial.key, given) if isinstance(given, str) else given
        pairs.append((trial, returned(trial, known) if isinstance(known, float) else known))
    (group,) = seed_groups(ledger_of(pairs, **experiment))
    return group


def rates(group, split="test"):
    found = [group.estimate(split, name) for name in ("solution_rate", "failure_rate")]
    return [(each.mean, each.n) for each in found]


@pytest.mark.parametrize(
    ("results", "solved", "failed"),
    [
        # a trial without a solution does not fail
        ((0.2, -0.1, "no_solution_found", "infeasible"), (0.5, 4), (0.25, 4)),
        # a crash, and a trial that was not run, is neither solved nor safe
        ((0.2, -0.1, "no_solution_found", "error", "timeout"), (2 / 3, 3), (1 / 3, 3)),
        ((0.2, -0.1, "no_solution_found", "diverged"), (2 / 3, 3), (1 / 3, 3)),
        ((1.0, None, None), (1.0, 1), (1.0, 1)),
        # rounding is no violation, and infinity is
        ((9e-7, 2e-6, math.inf), (1.0, 3), (2 / 3, 3)),
        # an undefined violation is not counted
        ((math.nan, 0.2, "no_solution_found"), (2 / 3, 3), (0.5, 2)),
        ((math.nan, "no_solution_found"), (0.5, 2), (None, 0)),
    ],
)
def test_solution_and_failure_rates(results, solved, failed):
    group = group_of(*results)
    assert rates(group) == [solved, failed]
    assert rates(group, "train") == [solved, (0.0, solved[1])]
    assert rates(group, "validation") == [solved, (None, 0)]


def test_failure_rates_of_all_constraints_and_of_one():
    trials = [planned("fit", seed) for seed in range(3)]
    violated = [{"a"}, {"a", "b"}, set()]
    pairs = []
    for trial, names in zip(trials, violated, strict=True):
        trial.metrics.update({f"violation.{name}": name for name in "abc"})
        numbers = {f"violation.{name}": 0.1 if name in names else -0.1 for name in "abc"}
        pairs.append((trial, measured(trial, {("main", "test"): numbers})))
    (group,) = seed_groups(ledger_of(pairs))
    failed = [group.estimate("test", f"failure_rate{name}").mean for name in ("", ".a", ".b", ".c")]
    assert failed == [2 / 3, 2 / 3, 1 / 3, 0.0]


def test_satisfied_constraints_are_counted_up_to_rounding():
    """NaN counts only on the training set, where it is a violation."""
    pairs = []
    for seed, violation in enumerate((-0.1, 1e-12, 0.01, math.nan)):
        trial = planned("a", seed)
        numbers = {("m", split): {"violation.parity": violation} for split in ("train", "test")}
        pairs.append((trial, measured(trial, numbers)))
    (group,) = seed_groups(ledger_of(pairs))
    assert count_satisfied([group], "test", "parity") == (2, 3)
    assert count_satisfied([group], "train") == (2, 4)


def test_tables_show_rates_with_their_intervals():
    columns = ["error", "solution_rate", "failure_rate", "failure_rate.parity"]
    tables = [{"rows": ["algorithm", "amount"], "columns": columns}]
    ledger = ledger_of_known_rates()
    ledger.experiment["report"].update(tables=tables)
    (sheet,) = requested_sheets(ledger)
    rows = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in sheet.rows}
    assert rows[SAFE, "300"] == [
        "0.2900 ± 0.0196 (n=5)", "0.2500 [0.0866, 0.4910]", "0.0500 [0.0013, 0.2487]",
        "0.0500 [0.0013, 0.2487]", "20", "ok 5, no_solution_found 15",
    ]  # fmt: skip
    assert rows[SAFE, "100"][:4] == ["", *["0.0000 [0.0000, 0.1684]"] * 3]


@pytest.mark.parametrize(
    ("entry", "verdict"),
    [
        # 1 of 20: [0.0013, 0.2487]
        ({"metric": "failure_rate", "at_most": 0.0013, "within": "ci"}, "holds"),
        ({"metric": "failure_rate", "at_most": 0.0012, "within": "ci"}, "differs"),
        ({"metric": "failure_rate", "value": 0.24, "within": "ci"}, "not contradicted"),
        ({"metric": "failure_rate", "paper": 0.3, "within": "ci"}, "better"),
        ({"metric": "failure_rate", "at_most": 1, "split": "validation"}, "not measured"),
        # at the smallest amount there are no solutions
        ({"metric": "failure_rate", "at_most": 0, "variant": "main", "amount": 100}, "holds"),
        ({"metric": "solution_rate", "at_least": 0.1, "amount": 100}, "differs"),
    ],
)
def test_expectations_of_rates(entry, verdict):
    entry = {"algorithm": SAFE, "amount": 300, **entry}
    (found,) = compare_expectations(ledger_of_known_rates(expect=[entry]))
    assert str(found.verdict) == verdict
