"""Shares of trials: how often there was a solution, and how often one failed."""

from __future__ import annotations

import math

import pytest
from guarantees import SAFE, ledger_of, nothing, promised, returned
from scipy import stats
from synthetic_ledger import measured, planned

from ratecli.ledger.records import TrialResult
from ratecli.report.expectations import compare_expectations
from ratecli.report.groups import estimate_share, seed_groups
from ratecli.report.html import render_report
from ratecli.report.sheets import MEANS_LEGEND, SHARES_LEGEND, cell_legend, requested_sheets
from ratecli.report.tables import summary_table

CRASHED = ("error", "timeout", "diverged")


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 20), (3, 20), (20, 20), (17, 1000)])
def test_the_interval_of_a_share_is_exact(k, n):
    found = estimate_share(k, n)
    expected = stats.binomtest(k, n).proportion_ci(0.95, "exact")
    assert found.mean == k / n
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (found.n, found.half) == (n, None)


def test_of_no_trials_there_is_no_share():
    assert (estimate_share(0, 0).mean, estimate_share(0, 0).interval) == (None, None)


def group_of(*results, **experiment):
    """The one group of trials of which each is told by its violation on test rows, or its status."""
    trials = [planned("fit", seed) for seed in range(len(results))]
    pairs = [
        (trial, TrialResult(trial.key, told) if isinstance(told, str) else returned(trial, told))
        for trial, told in zip(trials, results, strict=True)
    ]
    return seed_groups(ledger_of(pairs, **experiment))


def rates(group, split="test"):
    found = [group.estimate(split, name) for name in ("solution_rate", "failure_rate")]
    return [(each.mean, each.n) for each in found]


def test_trials_without_a_solution_do_not_fail():
    (group,) = group_of(0.2, -0.1, "no_solution_found", "infeasible")
    assert rates(group) == [(0.5, 4), (0.25, 4)]
    # on training rows nobody breaks it
    assert rates(group, "train") == [(0.5, 4), (0.0, 4)]


@pytest.mark.parametrize("status", CRASHED)
def test_a_crash_is_neither_solved_nor_safe(status):
    (group,) = group_of(0.2, -0.1, "no_solution_found", status, status)
    assert rates(group) == [(2 / 3, 3), (1 / 3, 3)]


def test_a_trial_that_was_not_run_counts_nowhere():
    pairs = [(planned("fit", seed), None) for seed in (0, 1)]
    pairs.append((trial := planned("fit", 2), returned(trial, 1.0)))
    (group,) = seed_groups(ledger_of(pairs))
    assert rates(group) == [(1.0, 1), (1.0, 1)]


def test_rounding_is_no_violation_and_infinity_is():
    (group,) = group_of(9e-7, 2e-6, math.inf)
    assert rates(group)[1] == (2 / 3, 3)


def test_an_undefined_violation_is_not_counted():
    (group,) = group_of(math.nan, 0.2, "no_solution_found")
    failure = group.estimate("test", "failure_rate")
    assert (failure.mean, failure.n, failure.nan) == (0.5, 2, 1)
    (unknown,) = group_of(math.nan, "no_solution_found")
    assert unknown.estimate("test", "failure_rate").mean is None
    assert unknown.estimate("validation", "failure_rate").mean is None


def test_failure_rates_of_all_constraints_and_of_one():
    trials = [planned("fit", seed) for seed in range(3)]
    broken = [{"a"}, {"a", "b"}, set()]
    pairs = []
    for trial, names in zip(trials, broken, strict=True):
        trial.metrics.update({f"violation.{name}": name for name in "abc"})
        numbers = {f"violation.{name}": 0.1 if name in names else -0.1 for name in "abc"}
        pairs.append((trial, measured(trial, {("main", "test"): numbers})))
    (group,) = seed_groups(ledger_of(pairs))
    failed = [group.estimate("test", f"failure_rate{name}").mean for name in ("", ".a", ".b", ".c")]
    assert failed == [2 / 3, 2 / 3, 1 / 3, 0.0]


def test_a_missing_variant_is_no_solution():
    pairs = []
    for seed, variants in enumerate((("a", "b"), ("a",), ())):
        trial = planned("fit", seed)
        numbers = {(name, "test"): {"violation.parity": 0.1} for name in variants}
        pairs.append((trial, measured(trial, numbers) if variants else nothing(trial)))
    first, second = seed_groups(ledger_of(pairs))
    assert rates(first) == [(2 / 3, 3), (2 / 3, 3)]
    assert rates(second) == [(1 / 3, 3), (1 / 3, 3)]


def test_tables_show_rates_with_their_intervals():
    columns = ["error", "solution_rate", "failure_rate", "failure_rate.parity"]
    tables = [{"rows": ["algorithm", "amount"], "columns": columns}]
    ledger = promised()
    ledger.experiment["report"].update(tables=tables)
    (sheet,) = requested_sheets(ledger)
    rows = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in sheet.rows}
    assert rows[SAFE, "300"] == [
        "0.2900 ± 0.0196 (n=5)", "0.2500 [0.0866, 0.4910]", "0.0500 [0.0013, 0.2487]",
        "0.0500 [0.0013, 0.2487]", "20", "ok 5, no_solution_found 15",
    ]  # fmt: skip
    assert rows[SAFE, "100"][:4] == ["", *["0.0000 [0.0000, 0.1684]"] * 3]
    assert cell_legend(ledger) == f"{MEANS_LEGEND} {SHARES_LEGEND}"
    assert SHARES_LEGEND in render_report(ledger, [])
    assert cell_legend(promised()) == MEANS_LEGEND


EXPECTED = [
    # 1 of 20: [0.0013, 0.2487]
    ({"metric": "failure_rate", "at_most": 0.05}, "holds"),
    ({"metric": "failure_rate", "at_most": 0.04}, "differs"),
    ({"metric": "failure_rate", "at_most": 0.0013, "within": "ci"}, "holds"),
    ({"metric": "failure_rate", "at_most": 0.0012, "within": "ci"}, "differs"),
    ({"metric": "failure_rate.parity", "at_least": 0.2488, "within": "ci"}, "differs"),
    ({"metric": "failure_rate.parity", "at_least": 0.2487, "within": "ci"}, "holds"),
    ({"metric": "failure_rate", "value": 0.24, "within": "ci"}, "not contradicted"),
    ({"metric": "failure_rate", "value": 0.25, "within": "ci"}, "differs"),
    ({"metric": "failure_rate", "paper": 0.3, "within": "ci"}, "better"),
    ({"metric": "failure_rate", "at_most": 0, "split": "train"}, "holds"),
    ({"metric": "failure_rate", "at_most": 1, "split": "validation"}, "not measured"),
    ({"metric": "solution_rate", "paper": 0.25}, ""),
    ({"metric": "solution_rate", "paper": 0.6, "within": "ci"}, "differs"),
    ({"metric": "solution_rate", "value": 0.25, "within": 0}, "holds"),
    ({"metric": "solution_rate", "at_least": 0.2, "variant": "main"}, "holds"),
    ({"metric": "failure_rate", "at_most": 0.05, "variant": "mein"}, "not measured"),
]


@pytest.mark.parametrize(("said", "verdict"), EXPECTED)
def test_expectations_of_rates(said, verdict):
    entry = {"algorithm": SAFE, "amount": 300, **said}
    (found,) = compare_expectations(promised(expect=[entry]))
    assert str(found.verdict) == verdict


def test_expectations_without_any_solution():
    said = [{"algorithm": "fit", "metric": "failure_rate", "at_most": 0, "variant": "main"}]
    said += [{"algorithm": "fit", "metric": "solution_rate", "at_least": 0.1}]
    trials = [planned("fit", seed) for seed in range(4)]
    ledger = ledger_of([(trial, nothing(trial)) for trial in trials], expect=said)
    assert [str(each.verdict) for each in compare_expectations(ledger)] == ["holds", "differs"]


def test_the_summary_has_expected_rates():
    entry = {"algorithm": SAFE, "amount": 300, "metric": "solution_rate", "at_least": 0.2}
    found = summary_table(promised(expect=[entry]))
    row = found[found["metric"] == "solution_rate"].iloc[0]
    assert (row["mean"], row["n"], row["verdict"]) == (0.25, 20, "holds")
    assert (row["low"], row["high"]) == pytest.approx((0.0865714691, 0.4910458717))
