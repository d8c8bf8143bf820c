"""What a check tells though it holds, and the order in which it tells what moved."""

from __future__ import annotations

from pathlib import Path

import pytest
from pins import findings, point

from ratecli.report.regression.check import seed_notes
from ratecli.report.regression.findings import (
    MAX_FAILED,
    MAX_IMPROVED,
    CheckReport,
    CheckVerdict,
    Finding,
    findings_sheet,
    omitted_note,
)


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (
            range(5),
            range(3),
            "3 of 5 seeds that are pinned are compared; no longer in the file: 3, 4",
        ),
        (range(5), range(7), "5 of 5 seeds that are pinned are compared; not pinned: 5, 6"),
        (
            range(9),
            range(1, 29),
            "8 of 9 seeds that are pinned are compared; no longer in the file: 0; not pinned: 9, 10, ..., 28 (20)",
        ),
        (
            range(5),
            range(10, 16),
            "none of 6 seeds are pinned: 5 and 6 are compared as two samples",
        ),
        (range(5), range(4, 10), "1 of 6 seeds are pinned: 5 and 6 are compared as two samples"),
    ],
)
def test_other_seeds_than_those_pinned_are_told(was, now, told):
    (note,) = seed_notes(set(was), set(now))
    assert note.message == told
    assert note.loc == ("seeds",)


def test_the_same_seeds_need_no_note():
    assert list(seed_notes({1, 2}, {2, 1})) == []


def test_how_many_seeds_two_samples_need_is_told_of_what_gets_worse_one_way():
    numbers = [0.2, 0.22, 0.18, 0.25, 0.15]
    for metric, asked in (("error", True), ("ratio", False), ("violation.parity", False)):
        (found,) = findings(point(numbers, metric, first=9), point(numbers, metric))
        assert (found.needed > 5) is asked
    (found,) = findings(point(numbers), point(numbers))
    assert found.needed == 0


def finding(verdict, by, half=None, metric="m"):
    interval = None if half is None else (by - half, by + half)
    return Finding(verdict, "reference", was=0.0, now=by, interval=interval, metric=metric)


def shown(*found):
    made = CheckReport(Path("x.yaml"), "x", None, found)
    at = [column.title for column in findings_sheet(made).columns].index("metric")
    return [row[at].text for row in findings_sheet(made).rows], omitted_note(made)


def test_failures_come_first_and_what_moved_furthest_for_its_spread():
    rows, rest = shown(
        finding(CheckVerdict.IMPROVED, -0.9, 0.001, "better"),
        finding(CheckVerdict.CHANGED, 0.5, 0.1, "changed"),
        finding(CheckVerdict.REGRESSED, 0.5, 0.4, "wide"),
        finding(CheckVerdict.REGRESSED, 0.02, 0.01, "narrow"),
        finding(CheckVerdict.REGRESSED, 0.01, 0.0, "sure"),
        finding(CheckVerdict.REGRESSED, 0.03, None, "surer"),
        finding(CheckVerdict.SAME, 0.0, 0.1, "same"),
    )
    assert rows == ["surer", "sure", "narrow", "wide", "changed", "better"]
    assert rest == ""


def test_what_is_too_much_is_one_line():
    good = [finding(CheckVerdict.IMPROVED, -0.1, 0.01)] * (MAX_IMPROVED + 7)
    bad = [finding(CheckVerdict.CHANGED, 0.1, 0.01)] * (MAX_FAILED + 2)
    rows, rest = shown(*good)
    assert (len(rows), rest) == (MAX_IMPROVED, "... and 7 more: --format json has all")
    rows, rest = shown(*good, *bad)
    assert len(rows) == MAX_IMPROVED + MAX_FAILED
    assert rest == "... and 9 more, 2 of them failures: --format json has all"
