"""Verdicts on what the file expects, and where they are shown."""

import csv
import io
import math

import pytest
from synthetic_ledger import measured, planned, texts

from ratecli.ledger.records import TrialResult
from ratecli.ledger.view import Ledger
from ratecli.report.check.expectations import (
    compare_expectations,
    expectation_sheet,
    warn_unmet_expectations,
)
from ratecli.report.check.findings import Verdict
from ratecli.report.html import render_report
from ratecli.report.tables import csv_text, summary_table
from ratecli.report.write import summary_markdown

HALF = 12.7062047 * 0.1
"""Half the interval of two seeds that lie 0.1 from their mean: t(1) at 95 % times 0.1."""


def ledger_of(*entries, errors=(0.4, 0.6), **point) -> Ledger:
    """One trial a seed with two variants, whose mean error is 0.5; `other` is twice as bad."""
    plan = [planned("fit", seed, **point) for seed in range(len(errors))]
    results = {}
    for trial, error in zip(plan, errors, strict=True):
        numbers = {"error": error, "violation.parity": error - 0.7}
        found = {("main", "test"): numbers, ("other", "test"): {"error": 2 * error}}
        results[trial.key] = measured(trial, found)
    return Ledger(plan, results, {"experiment": {"name": "x", "expect": list(entries)}})


def entry(**more):
    return {"algorithm": "fit", "variant": "main", "metric": "error", **more}


def verdict(**more) -> str:
    (found,) = compare_expectations(ledger_of(entry(**more)))
    return str(found.verdict)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"paper": 0.7}, ""),
        ({"paper": 0.52, "within": 0.02}, "holds"),
        ({"paper": 0.6, "within": 0.01}, "differs"),
        ({"paper": 0.6, "within": 0.01, "metric": "objective"}, "better"),
        ({"paper": 0.4, "within": 0.01, "metric": "objective"}, "differs"),
        ({"paper": 0.0, "within": 0.1, "metric": "violation.parity"}, "better"),
        ({"paper": 0.51, "within": "2%"}, "holds"),
        ({"value": -0.2, "within": "1 %", "metric": "violation.parity"}, "holds"),
        ({"paper": 0.5 + HALF - 0.001, "within": "ci"}, "not contradicted"),
        ({"value": 0.5 - HALF + 0.001, "within": "ci"}, "not contradicted"),
        ({"paper": 0.5 + HALF + 0.001, "within": "ci"}, "differs"),
        ({"at_most": 0.5}, "holds"),
        ({"at_most": 0.49}, "differs"),
        ({"at_most": 0.5 - HALF + 0.001, "within": "ci"}, "holds"),
        ({"at_most": 0.5 - HALF - 0.001, "within": "ci"}, "differs"),
        ({"at_least": 0.51}, "differs"),
        ({"at_least": 0.51, "within": "2%"}, "holds"),
        ({"at_most": 9, "split": "train"}, "not measured"),
    ],
)
def test_verdicts(said, expected):
    assert verdict(**said) == expected


def test_verdicts_that_fail_a_check():
    failing = "not compared", "differs", "not measured", "regressed", "changed"
    assert tuple(verdict for verdict in Verdict if not verdict.good) == failing


@pytest.mark.parametrize(
    ("said", "errors", "expected"),
    [
        ({"paper": 0.4, "within": "ci"}, (0.4,), ("not measured", "there is no interval")),
        ({"value": 1, "within": 1e300}, (math.inf, 0.5), ("differs", "expected = 1 within 1e+300")),
        ({"at_most": 1}, (float("nan"),), ("not measured", "nan")),
        ({"variant": "mein", "at_most": 1}, (0.4, 0.6), ("not measured", "no such number")),
    ],
)
def test_values_that_cannot_be_judged(said, errors, expected):
    (found,) = compare_expectations(ledger_of(entry(**said), errors=errors))
    assert (found.verdict, found.detail) == expected


def test_without_a_variant_all_are_compared():
    said = {"algorithm": "fit", "metric": "error", "at_most": 0.6}
    found = compare_expectations(ledger_of(said))
    assert [(each.group.variant, each.verdict) for each in found] == [
        ("main", "holds"),
        ("other", "differs"),
    ]


def test_only_matching_sweep_points_are_compared():
    failed = planned("fit", 0)
    results = {failed.key: TrialResult(failed.key, "error", "E501: ...")}
    said = {"experiment": {"expect": [entry(at_most=1)]}}
    (found,) = compare_expectations(Ledger([failed], results, said))
    assert (found.verdict, found.detail) == ("not measured", "error 1")
    plan = [planned("fit", 0, kappa=k, dataset=d) for k in (0.5, 1.0) for d in ("a", "b")]
    results = {t.key: measured(t, {("main", "test"): {"error": 0.1}}) for t in plan}

    def points(**asked):
        said = {"expect": [entry(paper=0.1, **asked)]}
        return [
            each.group.point
            for each in compare_expectations(Ledger(plan, results, {"experiment": said}))
        ]

    assert points(kappa=1) == [{"kappa": 1.0, "dataset": d} for d in ("a", "b")]
    assert points(kappa=0.5, dataset="b") == [{"kappa": 0.5, "dataset": "b"}]
    assert len(points()) == 4
    assert points(kappa=True) == []


def test_failed_expectations_come_first():
    ledger = ledger_of(
        entry(paper=0.7, source="Table 1"), entry(at_most=0.6), entry(value=0.4, within="2%"),
        kappa=0.8,
    )  # fmt: skip
    sheet = expectation_sheet(ledger)
    assert sheet.title == "Expected and measured values"
    assert list(sheet.titles) == [
        "algorithm", "variant", "kappa", "split", "metric",
        "expected", "measured", "95 % interval", "n", "difference", "verdict", "within", "source",
    ]  # fmt: skip
    ours = "0.5000", "-0.7706 to 1.7706", "2"
    assert [row[5:] for row in texts(sheet)] == [
        ["= 0.4", *ours, "+0.1000", "differs", "2%", ""],
        ["paper 0.7", *ours, "-0.2000", "not judged", "", "Table 1"],
        ["≤ 0.6", *ours, "-0.1000", "holds", "", ""],
    ]
    assert [row[-3].tone for row in sheet.rows] == ["bad", "none", "good"]


def test_the_summary_has_expectations_beside_its_numbers():
    ledger = ledger_of(
        entry(paper=0.7, source="Table 1"), entry(at_most=0.6), entry(variant="mein", at_least=2)
    )
    rows = list(csv.DictReader(io.StringIO(csv_text(summary_table(ledger), nan=""))))
    names = ("expect", "figure", "within", "source", "verdict")
    said = [(row["variant"], row["mean"], *(row[name] for name in names)) for row in rows
            if row["metric"] == "error"]  # fmt: skip
    assert said == [
        ("main", "0.5", "paper", "0.7", "", "Table 1", ""),
        ("main", "0.5", "at_most", "0.6", "", "", "holds"),
        ("other", "1.0", "", "", "", "", ""),
        ("mein", "", "at_least", "2.0", "", "", "not measured"),
    ]


def test_page_and_summary_show_the_table_of_expectations_if_there_are_any():
    ledger = ledger_of(entry(at_most=0.6, source="<i>"))
    assert "\n## Expected and measured values\n" in summary_markdown(ledger)
    text = render_report(ledger, [])
    assert "<h2>Expected and measured values</h2>" in text
    assert "≤ 0.6" in text
    assert "&lt;i&gt;" in text
    ledger = ledger_of()
    assert "verdict" not in summary_table(ledger).columns
    assert "Expected and" not in summary_markdown(ledger) + render_report(ledger, [])


def test_each_expectation_that_differs_is_one_warning():
    """Not what holds, is only shown or was not measured."""
    both = {"algorithm": "fit", "metric": "error", "at_least": 0.9}
    silent = entry(at_most=0.6), entry(paper=0.1), entry(metric="absent", at_most=0.1)
    differs = entry(at_most=0.4, k=3), entry(paper=0.1, within="2%")
    ledger = ledger_of(*differs, *silent, both, k=3)
    faults = warn_unmet_expectations(ledger)
    assert {fault.code for fault in faults} == {"W501"}
    ours = "'error' of fit (main, k = 3, test) is 0.5000, "
    assert [fault.message.removeprefix(ours) for fault in faults] == [
        "expected: ≤ 0.4",
        "expected: paper 0.1 within 2%",
        "expected: ≥ 0.9, and 1 of 2 rows differ",
    ]
