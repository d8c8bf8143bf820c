"""What counts as a regression, and what cannot be compared."""

from __future__ import annotations

import pytest
from pins import BETTER, findings, point
from synthetic_ledger import measured, planned

from ratecli.ledger.view import Ledger
from ratecli.report.regression.compare import (
    ComparisonTerms,
    compare_points,
    compare_with_reference,
)
from ratecli.report.regression.reference import build_reference

FIVE = [0.20, 0.21, 0.19, 0.22, 0.18]
NAN = "nan"


def moved(by, numbers=FIVE):
    return [number + by for number in numbers]


def said(now, was, **more):
    (found,) = findings(now, was, **more)
    return str(found.verdict)


@pytest.mark.parametrize(
    ("metric", "by", "expected"),
    [
        ("error", 0.0, "same"),
        ("error", 0.005, "regressed"),
        ("error", -0.005, "improved"),
        ("accuracy", -0.005, "regressed"),
        ("accuracy", 0.005, "improved"),
        ("ratio", 0.005, "changed"),
        ("ratio", -0.005, "changed"),
        ("error", 0.0009, "same"),
        ("error", 1e-9, "same"),
    ],
)
@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_a_shift_of_all_seeds(metric, by, expected, seeds):
    numbers = FIVE[:seeds]
    assert said(point(moved(by, numbers), metric), point(numbers, metric)) == expected


def test_noise_of_plenty_of_seeds_is_none_and_of_few_it_counts():
    noise = [0.02, -0.01, 0.015, -0.012, 0.004]
    now = [a + b for a, b in zip(FIVE, noise, strict=True)]
    assert said(point(now), point(FIVE)) == "same"
    (found,) = findings(point(now[:3]), point(FIVE[:3]))
    assert (found.verdict, found.detail, found.interval) == (
        "regressed",
        "3 seeds: no interval",
        None,
    )


def test_the_tolerance_is_a_share_of_numbers_beyond_1():
    assert said(point([50.04], "ratio"), point([50.0], "ratio")) == "same"
    assert said(point([50.06], "ratio"), point([50.0], "ratio")) == "changed"
    assert said(point([0.2002]), point([0.2]), tolerance=0) == "regressed"
    assert said(point([0.25]), point([0.2]), tolerance=0.1) == "same"


def test_a_promise_that_is_kept_is_not_broken_by_less_room():
    name = "violation.parity"
    assert said(point(moved(0.1, [-0.3] * 5), name), point([-0.3] * 5, name)) == "same"
    assert said(point([0.01] * 5, name), point([-0.3] * 5, name)) == "regressed"
    (found,) = findings(point([0.01] * 5, name), point([-0.3] * 5, name))
    assert (found.was, found.now) == (0.0, 0.01)


def test_the_more_is_compared_the_surer_a_difference_must_be():
    now = [a + b for a, b in zip(FIVE, [0.004, 0.007, 0.003, 0.006, 0.009], strict=True)]
    assert said(point(now), point(FIVE)) == "regressed"
    names = [f"m{i}" for i in range(3000)]
    many = [point([0.1] * 5, name, k=name) for name in names]
    jumps = [point([0.1, 0.2, 0.1, 0.0, 0.1], name, k=name) for name in names]
    found = findings([point(now), *jumps], [point(FIVE), *many])
    assert {each.verdict for each in found} == {"same"}
    still = findings([point(now), *many], [point(FIVE), *many])  # what does not move cannot trip
    assert [each.metric for each in still if not each.verdict.good] == ["error"]


@pytest.mark.parametrize(
    ("now", "was", "told"),
    [
        (point([0.1, NAN]), point([0.1, 0.1]), "it is nan at seed 1, and 0.1 is pinned"),
        (point([0.1]), point([NAN]), "it is 0.1 at seed 0, and nan is pinned"),
        (point(["inf"]), point([0.1]), "it is inf at seed 0, and 0.1 is pinned"),
        (point([0.1], k=1), point([0.1], k=1.0), "it is not pinned"),
        (point([0.1] * 4), point([0.1] * 4, first=4), "no seed gave a number both times"),
        (point([0.1], status="diverged"), point([0.1]), "it is diverged at seed 0, which is not"),
    ],
)
def test_what_cannot_be_compared_fails_and_says_why(now, was, told):
    found = findings(now, was)[0]
    assert found.verdict == "not compared"
    assert found.detail.startswith(told)
    assert found.help


def test_data_sets_come_and_go():
    trial = planned("fit", 0)
    result = {trial.key: measured(trial, {("v", "test"): {"error": 0.1}})}

    def ledger(**digests):
        data = {name: {"digest": digest} for name, digest in digests.items()}
        return Ledger(
            [trial], result, {"experiment": {"name": "x"}, "datasets": data, "versions": {}}
        )

    def told(now, was):
        return [
            each.detail
            for each in compare_with_reference(
                now, build_reference(was), ComparisonTerms(0.001, {})
            )
        ]

    assert told(ledger(a="1", b="2", c="3"), ledger(b="2", c="4", d="5")) == [
        "data set 'a' is not pinned",
        "data set 'c' is not what was pinned: its file or its options are others",
        "data set 'd' is pinned and no longer in the file",
    ]
    assert set(told(ledger(a="1"), ledger(a="1"))) == {"1 seed: no interval"}


def test_other_seeds_are_compared_on_all_rows_as_well():
    """What is high on test rows is low on the others, and a loss is one on both."""
    noise = [0.02, -0.03, 0.01, -0.02, 0.03, -0.01]

    def split(by, first):
        numbers = {
            "test": [0.2 + by + e for e in noise],
            "train": [0.2 + by - e / 2 for e in noise],
        }
        values = {"v": {name: {"error": own, "violation.x": own} for name, own in numbers.items()}}
        return point(noise, first=first).model_copy(update={"values": values})

    def told(first, **rows):
        terms = ComparisonTerms(0.001, BETTER, rows)
        found = compare_points([split(0.005, first)], [split(0.0, 0)], terms)
        return {(each.split, each.metric): str(each.verdict) for each in found}

    expected = {("", "solution_rate"): "same"} | {
        (split, metric): "same"
        for split in ("train", "test")
        for metric in ("error", "violation.x")
    }
    assert told(9) == expected
    assert told(9, train=200, test=100) == expected | {("train + test", "error"): "regressed"}
    assert ("train + test", "error") not in told(0, train=200, test=100)


def test_what_is_there_on_one_side_only_fails():
    found = findings(point([0.1], "error"), point([0.1], "other"))
    assert {(each.metric, each.detail) for each in found} == {
        ("error", "it is not pinned"),
        ("other", "it is pinned and no longer measured"),
    }
    (gone,) = findings([], [point([0.1])])
    assert (gone.verdict, gone.detail) == ("not compared", "it is pinned and no longer in the file")


def test_what_is_undefined_both_times_is_the_same():
    assert said(point([NAN, NAN]), point([NAN, NAN])) == "same"
    assert said(point([NAN, 0.1]), point([NAN, 0.1])) == "same"
    assert said(point(["inf"]), point(["inf"])) == "same"


def test_a_solution_that_is_no_longer_found_is_a_regression():
    lost, found = (
        findings(point([None] * 5), point([0.1] * 5)),
        findings(point([0.1] * 5), point([None] * 5)),
    )
    assert [(each.metric, each.verdict) for each in lost] == [("solution_rate", "regressed")]
    assert [(each.metric, each.verdict) for each in found] == [("solution_rate", "improved")]
    assert findings(point([None] * 5), point([None] * 5)) == []


def test_one_solution_in_ten_less_is_noise():
    some, fewer = [0.1, None] * 5, [0.1, None] * 4 + [None, None]
    assert [each.verdict for each in findings(point(fewer), point(some))] == ["same"]


def test_what_diverges_as_it_did_is_no_news():
    solved = point([0.1])
    diverged = solved.model_copy(update={"values": {}, "statuses": ["diverged"]})
    assert findings(diverged, diverged) == []
    assert [each.verdict for each in findings(solved, diverged)] == ["improved"]
    assert [each.verdict for each in findings(diverged, solved)] == ["not compared"]
