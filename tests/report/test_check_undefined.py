"""Seeds at which a metric has no number: what is noise, what is a loss, what is told."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pins import findings, point
from scipy import stats

from ratecli.report.regression.statistics import SeedPair, undefined_chance

NAN = math.nan
TEN = [0.20, 0.21, 0.19, 0.22, 0.18, 0.20, 0.23, 0.17, 0.21, 0.19]
OTHERS = [0.20, 0.20, 0.20, 0.21, 0.19, 0.19, 0.23, 0.18, 0.21, 0.19]
"""The same, drawn anew."""


def without(numbers, *seeds, by="nan"):
    return [by if seed in seeds else number for seed, number in enumerate(numbers)]


def lacking(was, now, first=0):
    """Of two lists of flags, a seed each; the second's seeds begin at `first`."""
    sides = [
        {seed: NAN if flag else 1.0 for seed, flag in enumerate(flags, start)}
        for flags, start in ((was, 0), (now, first))
    ]
    return SeedPair(*sides)


def test_of_the_same_seeds_it_is_the_test_of_mcnemar():
    was, now = [0, 0, 0, 0, 0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 0, 0, 1, 0]
    expected = stats.binomtest(6, 8, alternative="greater").pvalue
    assert undefined_chance([lacking(was, now)]) == pytest.approx((expected, 0.5**8))
    assert undefined_chance([lacking(was, was)]) == (1.0, 1.0)


def test_of_other_seeds_it_is_the_test_of_fisher():
    was, now = [1] + [0] * 11, [1] * 5 + [0] * 4
    expected = stats.fisher_exact([[5, 4], [1, 11]], alternative="greater").pvalue
    least = stats.fisher_exact([[6, 3], [0, 12]], alternative="greater").pvalue
    assert undefined_chance([lacking(was, now, first=20)]) == pytest.approx((expected, least))
    assert undefined_chance([lacking([0] * 9, [0] * 9, first=20)]) == (1.0, 1.0)


def test_a_seed_counts_once_for_all_sweep_points():
    none, some = [0] * 10, [1] * 4 + [0] * 6
    assert undefined_chance([lacking(none, some)] * 6) == undefined_chance([lacking(none, some)])
    either = [lacking(none, some), lacking(some, none)]  # more at one point, fewer at another
    assert undefined_chance(either) == (1.0, 1.0)


def test_a_few_seeds_more_or_others_are_noise_and_told():
    (found,) = findings(point(without(OTHERS, 3, 5)), point(without(TEN, 3)))
    assert (found.verdict, found.seeds, found.left_out) == ("same", 8, 2)
    assert found.detail == "paired over 8 seeds; undefined at 2 of 10 seeds, 1 of 10 pinned"
    assert found.remark == "undefined at 2 of 10 seeds, 1 of 10 pinned"
    (found,) = findings(point(without(OTHERS, 3)), point(without(TEN, 3)))
    assert (found.verdict, found.left_out, found.remark) == ("same", 1, "")


def test_an_infinite_number_is_none():
    (found,) = findings(point(without(OTHERS, 4, by="inf")), point(without(TEN, 4)))
    assert (found.verdict, found.seeds) == ("same", 9)


@pytest.mark.parametrize(("gone", "fails"), [(5, False), (6, True), (9, True), (10, True)])
def test_more_than_noise_explains_fails(gone, fails):
    """Of one metric the level is 2.5 %: 1/32 is more, 1/64 is less."""
    (found,) = findings(point(without(OTHERS, *range(gone))), point(TEN))
    assert (found.verdict == "not compared") is fails
    assert "undefined at" in found.detail


def test_what_becomes_defined_is_no_loss():
    (found,) = findings(point(OTHERS), point(without(TEN, *range(8))))
    assert (found.verdict, found.seeds) == ("same", 2)
    assert found.remark == "undefined at 0 of 10 seeds, 8 of 10 pinned"
    (found,) = findings(point(OTHERS), point(without(TEN, *range(10))))
    assert found.verdict == "not compared"


def test_where_nothing_moves_there_is_no_noise():
    (found,) = findings(point(without(TEN, 4)), point(TEN))
    assert found.verdict == "not compared"
    assert found.detail.endswith(
        "1 of 10 seeds, 0 of 10 pinned, though nothing moves at the others"
    )
    moves = point(OTHERS, k=1), point(TEN, k=1)
    found = findings([point(without(TEN, 4), k=0), moves[0]], [point(TEN, k=0), moves[1]])
    assert {each.verdict for each in found} == {"same"}


def test_a_loss_shows_at_the_seeds_that_are_left():
    worse = [number + 0.03 for number in OTHERS]
    (found,) = findings(point(without(worse, 3)), point(without(TEN, 5)))
    assert (found.verdict, found.seeds) == ("regressed", 8)


def test_other_seeds_may_be_undefined_too():
    (found,) = findings(point(without(OTHERS, 3), first=20), point(without(TEN, 5)))
    assert found.verdict == "same"
    assert found.detail.startswith("two samples of 9 seeds or more; undefined at 1 of 10 seeds")
    (found,) = findings(point(without(OTHERS, *range(8)), first=20), point(TEN))
    assert "more than noise explains" in found.detail


def tripped(was, now, comparisons=100, points=6):
    """How many of the simulated comparisons fail, by the chances of a seed to be undefined."""
    rng = np.random.default_rng(3)
    numbers = rng.normal(0.2, 0.02, (comparisons, 2, points, len(TEN)))
    numbers[:, 0][rng.random(numbers[:, 0].shape) < was] = NAN
    numbers[:, 1][rng.random(numbers[:, 1].shape) < now] = NAN
    count = 0
    for sides in numbers.tolist():
        pinned, here = ([point(row, k=k) for k, row in enumerate(side)] for side in sides)
        count += any(not each.verdict.good for each in findings(here, pinned))
    return count


def test_it_trips_seldom_by_noise_and_mostly_by_a_loss():
    assert tripped(0.1, 0.1) <= 5
    assert tripped(0.3, 0.3) <= 5
    assert tripped(0.0, 0.4) >= 95
