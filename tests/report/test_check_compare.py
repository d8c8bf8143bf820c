"""Verdicts of comparisons with pinned results: rules, false alarms, power, and what is reported."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_ledger import texts

from ratecli.rates.metrics import Direction
from ratecli.report.check import compare, settings
from ratecli.report.check.compare import SeedDesign
from ratecli.report.check.findings import (
    CheckReport,
    Finding,
    Verdict,
    check_summary,
    failures,
    findings_sheet,
    notes_above,
    notes_below,
)
from ratecli.report.check.reference import PinnedModel, PinnedTrials
from ratecli.report.check.results import seed_notes
from ratecli.report.groups import estimate_share

BETTER = {"error": Direction.LOW, "accuracy": Direction.HIGH, "solution_rate": Direction.HIGH}
FIVE = [0.20, 0.21, 0.19, 0.22, 0.18]
NOISE = [0.02, -0.01, 0.015, -0.012, 0.004]
TEN = [0.20, 0.21, 0.19, 0.22, 0.18, 0.20, 0.23, 0.17, 0.21, 0.19]
AGAIN = [0.20, 0.20, 0.20, 0.21, 0.19, 0.19, 0.23, 0.18, 0.21, 0.19]
"""The same, sampled anew."""
NAN = "nan"
META = {"experiment": {"name": "x"}, "versions": {}}


def point(numbers, metric="error", first=0, status="ok", **at) -> PinnedTrials:
    """One metric of one variant on the test set, a number a seed; None for a trial without any."""
    solved = any(each is not None for each in numbers)
    return PinnedTrials(
        algorithm="fit",
        point=at,
        seeds=list(range(first, first + len(numbers))),
        statuses=["no_solution_found" if each is None else status for each in numbers],
        values={"v": {"test": {metric: list(numbers)}}} if solved else {},
    )


def findings(now, was, tolerance=compare.TOLERANCE) -> list[Finding]:
    """Compare one point or several; leave out solution rates that are the same."""
    sides = [[each] if isinstance(each, PinnedTrials) else each for each in (now, was)]
    found = compare.compare_points(*sides, compare.ComparisonTerms(tolerance, BETTER))
    return [each for each in found if each.metric != "solution_rate" or each.verdict != "same"]


def verdicts(now, was, **more) -> dict[str, str]:
    return {each.metric: str(each.verdict) for each in findings(now, was, **more)}


def moved(by, numbers=FIVE):
    return [number + by for number in numbers]


def without(numbers, *seeds, by=NAN):
    return [by if seed in seeds else number for seed, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("metric", "by", "expected"),
    [
        ("error", 0.0, "same"),
        ("error", 0.005, "regressed"),
        ("error", -0.005, "improved"),
        ("accuracy", -0.005, "regressed"),
        ("ratio", 0.005, "changed"),
        ("error", 0.0009, "same"),
    ],
)
@pytest.mark.parametrize("seeds", [1, 5])
def test_a_change_of_all_seeds(metric, by, expected, seeds):
    numbers = FIVE[:seeds]
    assert verdicts(point(moved(by, numbers), metric), point(numbers, metric)) == {metric: expected}


def test_noise_is_ignored_with_five_seeds_and_counts_with_fewer():
    now = [a + b for a, b in zip(FIVE, NOISE, strict=True)]
    assert verdicts(point(now), point(FIVE)) == {"error": "same"}
    (found,) = findings(point(now[:3]), point(FIVE[:3]))
    assert (found.verdict, found.detail) == ("regressed", "3 seeds: no interval")
    assert found.interval is None


@pytest.mark.parametrize(
    ("now", "was", "tolerance", "expected"),
    [
        (50.04, 50.0, compare.TOLERANCE, "same"),
        (50.06, 50.0, compare.TOLERANCE, "changed"),
        (0.25, 0.2, 0.1, "same"),
    ],
)
def test_the_tolerance_is_relative_for_numbers_above_1(now, was, tolerance, expected):
    found = verdicts(point([now], "ratio"), point([was], "ratio"), tolerance=tolerance)
    assert found == {"ratio": expected}


def test_slack_of_a_satisfied_constraint_is_not_compared():
    name = "violation.parity"
    assert verdicts(point([-0.2] * 5, name), point([-0.3] * 5, name)) == {name: "same"}
    (found,) = findings(point([0.01] * 5, name), point([-0.3] * 5, name))
    assert (found.verdict, found.was, found.now) == ("regressed", 0.0, 0.01)


def test_many_changed_metrics_require_wider_intervals():
    now = [a + b for a, b in zip(FIVE, [0.004, 0.007, 0.003, 0.006, 0.009], strict=True)]
    assert verdicts(point(now), point(FIVE)) == {"error": "regressed"}
    names = [f"m{i}" for i in range(150)]
    many = [point([0.1] * 5, name, k=name) for name in names]
    jumps = [point([0.1, 0.2, 0.1, 0.0, 0.1], name, k=name) for name in names]
    assert set(verdicts([point(now), *jumps], [point(FIVE), *many]).values()) == {"same"}
    # metrics that do not change do not count
    assert verdicts([point(now), *many], [point(FIVE), *many])["error"] == "regressed"


@pytest.mark.parametrize(
    ("now", "was", "detail"),
    [
        (point([0.1], k=1), point([0.1], k=1.0), "it is not pinned"),
        ([], point([0.1]), "it is pinned but no longer in the file"),
        (point([0.1]), point([0.1], "other"), "it is pinned but no longer measured"),
        (point([0.1] * 4), point([0.1] * 4, first=4), "too few seeds in common to compare"),
        (point([0.1]), point([NAN]), "too few seeds in common to compare"),
        (point([NAN]), point([0.1]), "it is undefined at every seed, unlike in the reference"),
        (point([0.1], status="diverged"), point([0.1]), "it ended as diverged at seed 0, unlike"),
    ],
)
def test_values_that_cannot_be_compared_fail(now, was, detail):
    found = next(each for each in findings(now, was) if each.verdict == "not compared")
    assert found.detail.startswith(detail)
    assert ("trials.csv" in found.help) == ("unlike" in detail)


def test_data_sets_and_settings_that_changed_are_named():
    was, now = {"b": "2", "c": "4", "d": "5"}, {"a": "1", "b": "2", "c": "3"}
    assert settings.changed_data({}, was, now) == ["a", "c", "d"]
    assert settings.changed_data({"datasets.c.drop": ("x", "y")}, was, now) == ["a", "d"]
    was = {
        "algorithms.m.steps": "1",
        "algorithms.n.steps": "1",
        "metrics.a": "tpr",
        "objective": "x",
    }
    now = {"algorithms.m.steps": "2", "metrics.b": "tpr", "objective": "x", "holds": "train"}
    changes = settings.changed_settings(was, now)
    assert changes == {"algorithms.m.steps": ("1", "2"), "holds": ("not set", "train")}
    model = "algorithms.m.model.AdaBoostClassifier.depth"
    was, now = (
        {model: step, "algorithms.m.algorithm": name} for name, step in (("A", "1"), ("B", "2"))
    )
    assert settings.changed_settings(was, now).keys() == {"algorithms.m.algorithm"}


def test_other_seeds_are_also_compared_over_the_rows_of_all_splits():
    """High values on the test set go with low ones on the training set; a loss is on both."""
    noise = [0.02, -0.03, 0.01, -0.02, 0.03, -0.01]

    def splits(by, first):
        sides = {"test": moved(0.2 + by, noise), "train": [0.2 + by - e / 2 for e in noise]}
        values = {"v": {name: {"error": own, "violation.x": own} for name, own in sides.items()}}
        return point(noise, first=first).model_copy(update={"values": values})

    def failed(first, **rows):
        terms = compare.ComparisonTerms(0.001, BETTER, rows)
        found = compare.compare_points([splits(0.005, first)], [splits(0.0, 0)], terms)
        return {(each.split, each.metric) for each in found if each.verdict == "regressed"}

    assert failed(9) == set()
    assert failed(9, train=200, test=100) == {("train + test", "error")}
    assert "train + test" not in dict(failed(0, train=200, test=100))


def test_solution_rates_are_compared():
    some, fewer = [0.1, None] * 5, [0.1, None] * 4 + [None, None]
    none, every = point([None] * 5), point([0.1] * 5)
    assert verdicts(none, every) == {"solution_rate": "regressed"}
    assert verdicts(every, none) == {"solution_rate": "improved"}
    assert verdicts(none, none) == {}
    assert verdicts(point(fewer), point(some)) == {"error": "same"}  # one in ten less is noise
    diverged = point([None] * 5).model_copy(update={"statuses": ["diverged"] * 5})
    assert verdicts(diverged, diverged) == {}
    assert verdicts(every, diverged) == {"solution_rate": "improved"}


@pytest.mark.parametrize(
    ("now", "was", "value", "share"),
    [
        ([NAN, 0.1], [NAN, 0.1], "same", "same"),
        (["inf"], [NAN], "same", "same"),
        ([0.1, NAN], [0.1, 0.1], "same", "regressed"),
        (without(AGAIN, 3, 5), without(TEN, 3), "same", "same"),
        (without(AGAIN, *range(3)), TEN, "same", "same"),
        (without(AGAIN, *range(6)), TEN, "same", "regressed"),
        (without([NAN] * 10), TEN, "not compared", "regressed"),
        (AGAIN, without(TEN, *range(8)), "same", "improved"),
        (without(moved(0.03, AGAIN), 3), without(TEN, 5), "regressed", "same"),
    ],
)
def test_the_share_of_undefined_seeds_is_compared(now, was, value, share):
    assert verdicts(point(now), point(was)) == {"error": value, "undefined.error": share}


def test_undefined_seeds_are_left_out_of_means():
    found, _ = findings(point(without(AGAIN, 3, 5)), point(without(TEN, 3)))
    assert (found.seeds, found.left_out, found.detail) == (8, 2, "paired over 8 seeds")
    found, _ = findings(point(without(AGAIN, 3), first=20), point(without(TEN, 5)))
    assert (found.verdict, found.detail) == ("same", "two samples of 9 seeds or more")


def test_paired_seeds_without_a_common_value_are_compared_as_two_samples():
    now, was = without(FIVE, 0, 1), without(FIVE, 2, 3, 4)
    (found,) = [each for each in findings(point(now), point(was)) if each.metric == "error"]
    assert (found.verdict, found.detail) == ("same", "two samples of 2 seeds or more")
    assert found.interval is not None
    one = without(FIVE, 0, 1, 3, 4)  # a single value has no spread
    assert verdicts(point(one), point(without(FIVE, 2)))["error"] == "not compared"


WHOLE = 3
"""Number of simulated comparisons that are also made from pinned trials."""


@dataclass(frozen=True)
class Scenario:
    """Noise of a simulation, like that of real runs (`benchmarks/check.py` measures real trials).

    `own` and `shared` are the standard deviations of a seed's difference at one sweep point and at
    all of them; `undefined` are the shares of undefined seeds before and now; with `other` seeds,
    the rows differ, too.
    """

    seeds: int
    own: float
    shared: float = 0.0
    undefined: tuple[float, float] = (0.0, 0.0)
    other: bool = False

    def count_failures(self, loss=0.0, comparisons=200, points=6) -> int:
        """Simulate comparisons and return how many fail."""
        rng = np.random.default_rng(1)
        count = 0
        for k in range(comparisons):
            rows = rng.normal(0.17, 0.009, (2, 1, self.seeds))  # shared by all sweep points
            was, now = rows + rng.normal(0, 0.003, (2, points, self.seeds))
            now = (now if self.other else was) + loss
            now = now + rng.normal(0, self.own, (points, self.seeds))
            now = now + rng.normal(0, self.shared, self.seeds)
            for side, share in zip((was, now), self.undefined, strict=True):
                side[rng.random(side.shape) < share] = np.inf
            seeds = range(self.seeds), range(self.seeds * self.other, self.seeds * (1 + self.other))
            sides = (
                pd.DataFrame(each, columns=own) for each, own in zip((was, now), seeds, strict=True)
            )
            before, after = next(sides).align(next(sides), axis=1)
            whole = compare.MetricFamily([Finding(metric="error")] * points, before, after)
            terms = compare.ComparisonTerms(compare.TOLERANCE, BETTER)
            found = compare.judge_families([whole], SeedDesign.of(*seeds), terms)
            if k < WHOLE:  # the same by points of a file, which takes much longer
                own = [
                    [point(row, first=own[0], k=k) for k, row in enumerate(side.tolist())]
                    for side, own in zip((now, was), seeds[::-1], strict=True)
                ]
                means = [
                    [(each.was, each.now) for each in some] for some in (findings(*own), found)
                ]
                np.testing.assert_allclose(*np.array(means, dtype=float))
            count += any(not each.verdict.good for each in found)
        return count


FEW, SAMPLED, OTHER = Scenario(5, 0.002), Scenario(10, 0.004, 0.002), Scenario(100, 0.0, other=True)
UNDEFINED = [Scenario(10, 0.02, undefined=shares) for shares in ((0.1, 0.1), (0.3, 0.3), (0, 0.4))]


@pytest.mark.parametrize("scenario", [FEW, SAMPLED, OTHER], ids=["few", "sampled", "other"])
def test_noise_seldom_fails_and_half_a_point_mostly_does(scenario):
    assert estimate_share(scenario.count_failures(), 200).low <= 0.05
    assert scenario.count_failures(0.005, comparisons=100) >= 0.9 * 100


def test_undefined_seeds_seldom_fail_by_noise_and_mostly_by_a_loss():
    rare, frequent, lost = (each.count_failures(comparisons=100) for each in UNDEFINED)
    assert max(rare, frequent) <= 5
    assert lost >= 95
    few = Scenario(5, 0.02, undefined=(0.3, 0.3))  # a point may have no two values on a side
    assert few.count_failures() <= 24  # 38 if points without a pair always failed


def test_improvements_and_equal_results_never_fail():
    assert FEW.count_failures(-0.005) == 0
    equal = Scenario(5, 0.0)
    assert [equal.count_failures(x, comparisons=20) for x in (0.0, 0.0009, 0.002)] == [0, 0, 20]


def test_changed_seeds_are_noted():
    assert seed_notes({1, 2}, {2, 1}, ()) == []
    (note,) = seed_notes(set(range(5)), set(range(4, 10)), ())
    assert note.message == "1 of 5 pinned seeds are among the file's 6"
    assert note.loc == ("seeds",)


def test_two_samples_note_the_seeds_that_a_loss_of_half_a_point_needs():
    now, was = range(20, 25), range(5)
    for metric, asked in (("error", True), ("ratio", False), ("violation.parity", False)):
        (found,) = findings(point(FIVE, metric, first=20), point(FIVE, metric))
        (note,) = seed_notes(set(was), set(now), [found])
        assert (found.needed > 5) is asked
        assert (f"takes about {found.needed} seeds to detect" in note.message) is asked
    (paired,) = findings(point(FIVE), point(FIVE))
    assert paired.needed == 0


def test_failures_come_first_and_large_changes_before_small_ones():
    changes = [
        *((Verdict.IMPROVED, -0.9), (Verdict.CHANGED, 0.5), (Verdict.REGRESSED, 0.01)),
        *((Verdict.REGRESSED, -0.03), (Verdict.SAME, 0.0)),
    ]
    found = [
        Finding(verdict, was=0.0, now=by, metric=f"{by}", detail="pairs") for verdict, by in changes
    ]
    check = CheckReport(Path("x.yaml"), "x", None, found)
    assert [row[3] for row in texts(findings_sheet(check))] == ["-0.03", "0.01", "0.5"]
    assert "1 changed" in check_summary(check)
    assert "a changed metric fails because neither direction is known" in notes_below(check)[1]
    (better,) = texts(findings_sheet(replace(check, findings=found[:1])))
    assert better[3] == "-0.9"


def changed(algorithm, limit, split, verdict=Verdict.REGRESSED, metric="error"):
    place = {"algorithm": algorithm, "variant": "v", "point": {"limit": limit}, "split": split}
    return Finding(verdict, metric=metric, was=0.1, now=0.2, detail="as pairs", help="why", **place)


ANSWER = PinnedModel(algorithm="fit", variant="v", point={"limit": 0.8}, qualifies=True)


def test_the_answer_comes_first_alike_rows_are_one_and_baselines_are_counted():
    every = [(limit, split) for limit in (0.7, 0.8, 0.9) for split in ("train", "test")]
    found = [changed(who, *place) for who in ("free", "other", "fit") for place in every]
    found += [changed("fit", limit, "test", Verdict.IMPROVED, "ratio") for limit in (0.8, 0.9)]
    found += [changed("other", 0.8, "test", Verdict.IMPROVED, "ratio")]
    check = CheckReport(
        Path("x.yaml"), "x", Path("r"), found, models=[ANSWER], baselines={"free"}, answer="none"
    )
    assert notes_above(check) == [
        "best model when pinned: fit (limit = 0.8); 2 comparisons failed",
        "best model now: none",
    ]
    assert [[*row[:5], row[-1]] for row in texts(findings_sheet(check))] == [
        ["regressed", "fit", "0.8", "test", "error", "train, 2 more points"],
        ["improved", "fit", "0.8", "test", "ratio", ""],
        ["regressed", "other", "0.7", "test", "error", "train, 2 more points"],
    ]
    left = "changes that are not listed: 1 of fit, 1 of other, 6 of free"
    assert notes_below(check) == ["(as pairs)", left, "help: why"]
    alone = replace(check, findings=found[:6], answer="")
    assert [row[1] for row in texts(findings_sheet(alone))] == ["free"]
    assert notes_above(alone) == ["still the best model: fit (limit = 0.8); no comparison failed"]
    assert notes_below(alone) == ["(as pairs)", "help: why"]


def test_each_expectation_has_its_own_row_also_of_a_baseline():
    found = [
        replace(
            changed("free", limit, "test", Verdict.DIFFERS), against="expect", loc=("expect", k)
        )
        for k, limit in enumerate((0.7, 0.7, 0.8))
    ]
    found[1:1] = [changed("fit", 0.8, "test")]
    check = CheckReport(Path("x.yaml"), "x", None, found, models=[ANSWER], baselines={"free"})
    rows = [[row[1], row[2]] for row in texts(findings_sheet(check))]
    assert rows == [["fit", "0.8"], ["free", "0.7"], ["free", "0.7"], ["free", "0.8"]]


def test_what_is_not_compared_for_one_reason_is_one_diagnostic():
    places = [("free", 0.8), ("fit", 0.7), ("fit", 0.8)]
    gone = [
        Finding(algorithm=who, point={"limit": limit}, metric="error", detail="it is not pinned")
        for who, limit in places
    ]
    check = CheckReport(Path("x.yaml"), "x", None, gone, models=[ANSWER], baselines={"free"})
    (found,) = failures(check, compared=False)
    assert found.message == "'error' of fit (limit = 0.8): it is not pinned (2 more like it)"


def test_violations_on_test_sets_come_first():
    places = [("train", "violation.a"), ("test", "error"), ("test", "violation.a")]
    found = [Finding(Verdict.REGRESSED, split=split, metric=metric) for split, metric in places]
    check = CheckReport(Path("x.yaml"), "x", None, found)
    assert check.of([Verdict.REGRESSED]) == [found[2], found[1], found[0]]
