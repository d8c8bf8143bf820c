"""Differences of means and their intervals, against SciPy, closed forms and simulations."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ratecli.report.check.compare import MIN_SEEDS, SeedDesign, mean_differences

TAIL = 0.01
PAIRED = SeedDesign(paired=True, enough=True)
SAMPLES = SeedDesign(paired=False, enough=True)


def by_seed(values, *undefined, first=0):
    values = enumerate(map(float, values), first)
    return {seed: math.nan if seed in undefined else value for seed, value in values}


def differences(pairs, design=PAIRED):
    """Compare pairs of values by seed."""
    frames = (pd.DataFrame(list(side), dtype=float) for side in zip(*pairs, strict=True))
    was, now = next(frames), next(frames)
    return mean_differences(*was.align(now, axis=1), design)


def difference(was, now, design=PAIRED):
    (found,) = differences([(was, now)], design)
    assert found is not None
    return found


@pytest.fixture
def draws():
    return np.random.default_rng(7).normal(0.2, 0.01, (4, 8))


def test_pairs_have_the_interval_of_student(draws):
    """Seeds without a number on one side are left out."""
    was, now = draws[:2]
    for undefined in ((), (1, 4, 5)):
        found = difference(by_seed(was, *undefined[:1]), by_seed(now, *undefined[1:]))
        kept = [seed for seed in range(8) if seed not in undefined]
        test = stats.ttest_rel(now[kept], was[kept])
        expected = test.confidence_interval(1 - 2 * TAIL)
        assert found.interval(TAIL) == pytest.approx(tuple(expected))
        assert (found.seeds, found.df) == (len(kept), pytest.approx(test.df))
        assert found.largest == pytest.approx(np.abs(now - was)[kept].max())


def test_other_seeds_have_the_interval_of_welch(draws):
    was, now = draws[0], 5 * draws[1][:6]
    found = difference(by_seed(was), by_seed(now, first=100), SAMPLES)
    test = stats.ttest_ind(now, was, equal_var=False)
    assert found.interval(TAIL) == pytest.approx(tuple(test.confidence_interval(1 - 2 * TAIL)))
    assert (found.seeds, found.df) == (6, pytest.approx(test.df))


def test_pairs_are_matched_by_seed_not_by_position(draws):
    was = by_seed(draws[0])
    found = difference(was, dict(reversed(was.items())))
    assert (found.value, found.error, found.interval(TAIL)) == (0.0, 0.0, (0.0, 0.0))


def test_equal_points_and_unchanged_points_leave_the_interval_as_it_is(draws):
    pair = by_seed(draws[0]), by_seed(draws[1])
    alone = difference(*pair)
    *equal, unchanged = differences([pair, pair, pair, (pair[0], pair[0])])
    for found in equal:
        assert (found.df, found.error) == pytest.approx((alone.df, alone.error))
    assert unchanged.error == 0


def test_independent_points_share_their_variance():
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.01, (6, MIN_SEEDS))
    noise[0] = 0.004 + 1e-6 * np.arange(MIN_SEEDS)  # five that agree by chance
    zero = by_seed([0.0] * MIN_SEEDS)
    found = differences([(zero, by_seed(row)) for row in noise])
    assert difference(zero, by_seed(noise[0])).interval(TAIL)[0] > 0
    assert found[0].interval(TAIL)[0] < 0
    mean = np.var(noise, axis=1, ddof=1).mean() / MIN_SEEDS
    assert found[0].error == pytest.approx(math.sqrt(mean))
    assert all(MIN_SEEDS - 1 < each.df <= (MIN_SEEDS - 1) ** 2 for each in found)


def test_a_single_pair_has_the_variance_of_other_points_or_no_interval(draws):
    several = by_seed(draws[0]), by_seed(draws[1])
    single = by_seed(draws[2], *range(1, 8)), by_seed(draws[3])
    alone = difference(*single)
    assert (alone.seeds, alone.error, alone.interval(TAIL)) == (1, None, None)
    other, found = differences([several, single])
    assert found.value == pytest.approx(draws[3, 0] - draws[2, 0])
    assert found.error == pytest.approx(other.error * math.sqrt(8))
    assert found.df == pytest.approx(other.df)


def test_points_that_lack_different_seeds_share_the_others():
    rng = np.random.default_rng(2)
    noise, zero = rng.normal(0, 0.01, (6, 14)), by_seed([0.0] * 14)
    whole = differences([(zero, by_seed(row)) for row in noise])
    gaps = [(zero, by_seed(row, k, k + 7)) for k, row in enumerate(noise)]
    for full, found in zip(whole, differences(gaps), strict=True):
        assert found.seeds == 12
        assert found.error == pytest.approx(full.error * math.sqrt(14 / 12), rel=0.15)
        assert 13 < found.df < full.df * 1.1


@pytest.mark.parametrize(
    ("was", "now", "design"),
    [
        (range(5), range(5), PAIRED),
        (range(6), range(1, 7), PAIRED),
        (range(4), range(4), SeedDesign(paired=True, enough=False)),
        (range(2), range(1, 7), SeedDesign(paired=True, enough=False)),
        (range(6), range(4, 10), SAMPLES),
        (range(4), range(4, 8), SeedDesign(paired=False, enough=False)),
    ],
)
def test_seeds_are_paired_if_enough_are_common_or_either_side_has_few(was, now, design):
    assert SeedDesign.of(was, now) == design


def test_nothing_to_compare_has_no_difference():
    few = SeedDesign(paired=False, enough=False)
    assert differences([(by_seed([1, 2]), by_seed([1, 2], first=5))], few) == [None]
    assert differences([({}, by_seed([1.0] * 9))], SAMPLES) == [None]
    assert differences([(by_seed([1, 2], 0), by_seed([1, 2], 1))]) == [None]
    found = difference(by_seed([0.1] * 4), by_seed([0.2] * 4), SeedDesign(True, False))
    assert (found.error, found.interval(TAIL), found.seeds) == (None, None, 4)


def test_the_needed_seeds_show_a_loss_in_nine_of_ten_comparisons():
    rng = np.random.default_rng(6)
    few = difference(by_seed(rng.normal(0, 0.01, 150)), by_seed(rng.normal(0, 0.01, 150)), SAMPLES)
    needed = few.needed(0.005, TAIL)
    both = stats.norm.ppf(0.9) + stats.norm.ppf(1 - TAIL)
    assert needed == pytest.approx(2 * (0.01 * both / 0.005) ** 2, rel=0.15)
    sides = rng.normal(0, 0.01, (200, 2, needed))
    found = [difference(by_seed(was), by_seed(now + 0.005), SAMPLES) for was, now in sides]
    shown = sum(each.interval(TAIL)[0] > 0 for each in found)
    assert 0.83 * len(sides) < shown < 0.97 * len(sides)
