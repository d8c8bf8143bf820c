"""Certificates in the report: the table, the trees of bounds, and why nothing was found."""

import math
import re
from dataclasses import replace

import pytest
from synthetic_ledger import (
    HOSTILE,
    SAFE,
    certificate,
    certified,
    leaf,
    ledger_of,
    node,
    nothing,
    planned,
    returned,
    texts,
    tutorial,
)

from ratecli.ledger.records import TrialResult
from ratecli.report.answer_text import answer_lines
from ratecli.report.certificates import certificate_sheet, certificates_to_show
from ratecli.report.html import render_report
from ratecli.report.sheets import unsolved_sheet


def ending_at(uppers, **more):
    """A ledger of seeds at two amounts, each with a test that ends there."""
    pairs = []
    for amount in (100, 200):
        for seed, upper in enumerate(uppers):
            trial = planned(SAFE, seed, amount=amount)
            record = certificate(tutorial(), upper, passed=upper <= 0, **more)
            make = returned if upper <= 0 else nothing
            args = (trial, -0.1) if upper <= 0 else (trial,)
            pairs.append((trial, make(*args, info={"certificates": [record]})))
    return ledger_of(pairs)


def test_a_row_is_a_constraint_at_a_point():
    sheet = certificate_sheet(ending_at([-0.2, -0.1, 0.3], exact=True, bound="hoeffding"))
    row = ["parity", "0.05", "hoeffding", "exact", "deterministic", "2 of 3", "-0.1000"]
    assert texts(sheet) == [[SAFE, "main", amount, *row] for amount in ("100", "200")]
    assert [cell.tone for cell in sheet.rows[0]][-2] == "part"


@pytest.mark.parametrize(
    ("records", "at", "cells"),
    [
        # NaN counts as an infinite upper end
        ([{"upper": "nan"}, {"upper": "-inf", "passed": True}], slice(-2, None), ["1 of 2", "nan"]),
        ([{"upper": "nan"}], slice(-1, None), ["inf"]),
        # all bounds are named
        ([{"bound": "a", "exact": True}, {"bound": "b"}], slice(5, 6), ["a, b"]),
    ],
)
def test_cells_of_several_tests(records, at, cells):
    ledger = certified(*(certificate(tutorial(), **record) for record in records))
    (row,) = texts(certificate_sheet(ledger))
    assert row[at] == cells


def page(*records, **experiment):
    return render_report(certified(*records, report={"plots": []}, **experiment), [])


def shown_tree(tree):
    """The page's tree of a test with this tree of bounds, a line for each node."""
    found = re.search(
        r'<ul class="bounds">(.*?)</ul>\n</details>', page(certificate(tree)), re.DOTALL
    )
    lines = (" ".join(part.split()) for part in found[1].split("<li>")[1:])
    return [re.sub(r"<[^>]*>", "", line).strip() for line in lines]


def test_the_first_seed_at_the_last_point_is_shown():
    (found,) = certificates_to_show(ending_at([0.2, 0.1]))
    assert (found.trial.point, found.trial.seed) == ({"amount": 200}, 0)


def test_at_most_12_trees_are_shown():
    ledger = certified(*(certificate(tutorial(), variant=f"v{k}") for k in range(20)))
    assert [each.about[1] for each in certificates_to_show(ledger)] == [f"v{k}" for k in range(12)]


def test_a_node_shows_what_was_recorded():
    leaf_text = "estimate {}, 312 rows, delta 0.0125 lower, delta 0.0125 upper, student_t"
    assert shown_tree(tutorial()) == [
        "\N{MINUS SIGN} [-0.0500, 1.9500]",
        "abs [0.0000, 2.0000]",
        "\N{MINUS SIGN} [0.0000, 2.0000]",
        f"mean_error[men] [3.0000, 4.0000] {leaf_text.format('3.5000')}",
        f"mean_error[women] [2.0000, 3.0000] {leaf_text.format('2.5000')}",
        "0.05",
    ]


def test_infinite_ends_and_one_sided_bounds():
    more = {"interval": ["-inf", "inf"], "estimate": "nan", "rows": [1200, 7]}
    (found,) = shown_tree(leaf("fpr", 0, 1, (None, 0.05), **more))
    assert found == "fpr [-∞, ∞] estimate nan, 1,200 + 7 rows, delta 0.05 upper, student_t"


def test_many_parts_of_a_bound_are_counted():
    found = shown_tree(node("max", -1, 1, *(leaf(f"tpr[{k}]", 0, k / 40) for k in range(40))))
    assert len(found) == 1 + 24 + 1
    assert found[-1] == "16 more"


def test_results_of_tests_in_words():
    more = {"constraint": "odds", "exact": True, "explanation": ""}
    passed = certificate(tutorial(), -0.1, passed=True, **more)
    text = page(certificate(tutorial(), explanation=HOSTILE), passed)
    assert "<h3>Certificates</h3>" in text
    assert HOSTILE not in text
    assert ">parity not passed</span>: seldonian (main), amount = 100, seed 0</summary>" in text
    assert "Upper end 1.9500 not ≤ 0; estimate 0.9500; delta 0.05, approximate" in text
    assert ">odds passed</span>" in text
    assert "exact; classifier: deterministic" in text
    assert "Certificates" not in render_report(ledger_of([(planned("a", 0), None)]), [])


def test_unsolved_trials_are_counted_by_reason_frequent_ones_first():
    trials = [planned(SAFE, seed, amount=100) for seed in range(7)]
    pairs = [(trial, nothing(trial)) for trial in trials[1:4]]
    pairs += [(trials[0], replace(nothing(trials[0]), reason="no rows"))]
    pairs += [(trials[4], returned(trials[4], math.nan))]
    pairs += [(trial, TrialResult(trial.key, "error", "E501: 7")) for trial in trials[5:]]
    sheet = unsolved_sheet(ledger_of(pairs))
    reason = "parity: the upper end 0.02 on 40 rows is above 0"
    assert texts(sheet) == [
        [SAFE, "no_solution_found", "3 of 7", "amount = 100, seed 1", reason],
        [SAFE, "error", "2 of 7", "amount = 100, seed 5", "E501: 7"],
        [SAFE, "no_solution_found", "1 of 7", "amount = 100, seed 0", "no rows"],
    ]


@pytest.mark.parametrize("passes", [True, False])
def test_a_tested_setting_is_the_answer_before_a_cheaper_one_without_a_test(passes):
    pairs = []
    for seed in range(4):
        free, safe = planned("free", seed), planned(SAFE, seed)
        pairs.append((free, returned(free, -0.2, error=0.1)))
        record = certificate(tutorial(), -0.1 if passes else 0.1, passed=passes)
        found = returned(safe, -0.2, error=0.3) if passes else nothing(safe)
        pairs.append((safe, replace(found, info={**found.info, "certificates": [record]})))
    first, evidence = answer_lines(ledger_of(pairs))
    assert first.startswith(SAFE if passes else "free,")
    assert evidence.startswith("passed a safety test (confidence 0.95); confirmed") == passes
