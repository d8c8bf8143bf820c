"""Differences and their intervals against closed forms and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ratecli.report.regression.statistics import MIN_SEEDS, SeedPair, mean_differences

TAIL = 0.01


def by_seed(values, first=0):
    return dict(enumerate(map(float, values), first))


def differences(was, now):
    return mean_differences(list(map(SeedPair, was, now)))


def only(was, now):
    (found,) = differences([was], [now])
    assert found is not None
    return found


@pytest.fixture
def draws():
    return np.random.default_rng(7).normal(0.2, 0.01, (4, 8))


def test_paired_it_is_the_interval_of_student(draws):
    was, now = draws[:2]
    found = only(by_seed(was), by_seed(now))
    expected = stats.ttest_rel(now, was).confidence_interval(1 - 2 * TAIL)
    assert found.interval(TAIL) == pytest.approx(tuple(expected))
    assert (found.seeds, found.paired, found.df) == (8, True, pytest.approx(7))
    assert found.largest == pytest.approx(np.abs(now - was).max())


def test_other_seeds_give_the_interval_of_welch(draws):
    was, now = draws[0], 5 * draws[1][:6]
    found = only(by_seed(was), by_seed(now, 100))
    test = stats.ttest_ind(now, was, equal_var=False)
    assert found.interval(TAIL) == pytest.approx(tuple(test.confidence_interval(1 - 2 * TAIL)))
    assert found.df == pytest.approx(test.df)
    assert (found.seeds, found.paired) == (6, False)


def test_seeds_are_matched_by_name_not_by_place(draws):
    was = by_seed(draws[0])
    found = only(was, dict(reversed(was.items())))
    assert (found.value, found.error, found.interval(TAIL)) == (0.0, 0.0, (0.0, 0.0))


def test_points_that_move_alike_say_no_more_than_one(draws):
    was, now = by_seed(draws[0]), by_seed(draws[1])
    alone = only(was, now)
    for found in differences([was] * 3, [now] * 3):
        assert found is not None
        assert (found.df, found.error) == pytest.approx((alone.df, alone.error))


def test_independent_points_lend_each_other_their_spread():
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.01, (6, MIN_SEEDS))
    noise[0] = 0.004 + 1e-6 * np.arange(MIN_SEEDS)  # five that agree by chance
    zero = by_seed([0.0] * MIN_SEEDS)
    found = differences([zero] * 6, list(map(by_seed, noise)))
    alone = only(zero, by_seed(noise[0]))
    assert alone.interval(TAIL)[0] > 0
    assert found[0].interval(TAIL)[0] < 0
    mean = np.var(noise, axis=1, ddof=1).mean() / MIN_SEEDS
    assert found[0].error == pytest.approx(math.sqrt(mean))
    assert all(MIN_SEEDS - 1 < each.df <= (MIN_SEEDS - 1) ** 2 for each in found)


def test_points_that_never_moved_lend_nothing(draws):
    was, now = by_seed(draws[0]), by_seed(draws[1])
    alone = only(was, now)
    moved, still = differences([was, was], [now, was])
    assert (moved.error, moved.df) == pytest.approx((alone.error, alone.df))
    assert still.error == 0


@pytest.mark.parametrize("seeds", range(1, MIN_SEEDS))
def test_few_seeds_have_no_interval(seeds):
    found = only(by_seed([0.1] * seeds), by_seed([0.2, 0.3, 0.4, 0.5][:seeds]))
    assert (found.error, found.interval(TAIL), found.seeds) == (None, None, seeds)


def test_what_few_seeds_have_in_common_gives_way_to_two_samples():
    was, now = by_seed(range(6)), by_seed(range(6), 4)
    assert only(was, now).paired is False
    assert only(was, by_seed(range(6), 1)).paired is True
    assert only(by_seed(range(2)), by_seed(range(6), 1)).seeds == 1


def test_few_other_seeds_are_nothing_to_compare():
    assert differences([by_seed([1.0, 2.0])], [by_seed([1.0, 2.0], 5)]) == [None]
    assert differences([{}], [by_seed([1.0] * 9)]) == [None]


def some(values, *missing):
    return {seed: math.nan if seed in missing else v for seed, v in by_seed(values).items()}


def test_pairs_are_the_seeds_that_gave_a_number_both_times(draws):
    was, now = draws[:2]
    found = only(some(was, 1), some(now, 4, 5))
    kept = [0, 2, 3, 6, 7]
    expected = stats.ttest_rel(now[kept], was[kept]).confidence_interval(1 - 2 * TAIL)
    assert found.interval(TAIL) == pytest.approx(tuple(expected))
    assert (found.seeds, found.paired) == (5, True)
    two = only(some(was, *range(6)), by_seed(now))
    assert (two.seeds, two.df) == (2, pytest.approx(1))


def test_without_pairs_what_there_is_are_two_samples(draws):
    was, now = draws[:2]
    found = only(some(was, 0, 1, 2, 3), some(now, 4, 5, 6))  # seed 7 alone gave both
    test = stats.ttest_ind(now[[0, 1, 2, 3, 7]], was[4:], equal_var=False)
    assert found.interval(TAIL) == pytest.approx(tuple(test.confidence_interval(1 - 2 * TAIL)))
    assert (found.seeds, found.paired) == (4, False)
    assert differences([some(was, *range(7))], [some(now, 7)]) == [None]


def test_a_single_pair_has_the_spread_of_other_points_or_none(draws):
    was, now = by_seed(draws[0]), by_seed(draws[1])
    single = some(draws[2], *range(1, 8)), by_seed(draws[3])
    alone = only(*single)
    assert (alone.seeds, alone.paired, alone.error) == (1, True, None)
    other, found = differences([was, single[0]], [now, single[1]])
    assert found.value == pytest.approx(draws[3, 0] - draws[2, 0])
    assert found.error == pytest.approx(other.error * math.sqrt(8))
    assert found.df == pytest.approx(other.df)


def test_points_that_lack_seeds_share_what_they_have():
    """Of 6 points with a seventh of the seeds gone the spread is nearly that of all."""
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 0.01, (6, 14))
    zero = by_seed([0.0] * 14)
    whole = differences([zero] * 6, list(map(by_seed, noise)))
    gaps = differences([zero] * 6, [some(row, k, k + 7) for k, row in enumerate(noise)])
    for full, found in zip(whole, gaps, strict=True):
        assert found.seeds == 12
        assert found.error == pytest.approx(full.error * math.sqrt(14 / 12), rel=0.15)
        assert 13 < found.df < full.df * 1.1


def test_with_the_seeds_that_are_needed_a_loss_shows():
    rng = np.random.default_rng(6)
    few = only(by_seed(rng.normal(0, 0.01, 200)), by_seed(rng.normal(0, 0.01, 100), 200))
    needed = few.needed(0.005, TAIL)
    both = stats.norm.ppf(0.9) + stats.norm.ppf(1 - TAIL)
    assert needed == pytest.approx(2 * (0.01 * both / 0.005) ** 2, rel=0.15)
    sides = rng.normal(0, 0.01, (400, 2, needed))
    found = [only(by_seed(was), by_seed(now + 0.005, 1000)) for was, now in sides]
    shown = sum(each.interval(TAIL)[0] > 0 for each in found)
    assert 0.85 * len(sides) < shown < 0.95 * len(sides)
