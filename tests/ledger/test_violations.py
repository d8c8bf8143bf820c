"""Whether constraints hold on new data, by violations on test sets."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from ratecli.ledger.violations import MeasuredViolation, ViolationSample


def sample(mean, noise, n, level=None, seed=0):
    """Violations on n test sets with this noise, of models with normal violations around a mean."""
    rng = np.random.default_rng(seed)
    found = mean + 0.02 * rng.normal(size=n) + noise * rng.normal(size=n)
    return ViolationSample(
        MeasuredViolation(value, [(value, noise)], level, k)
        for k, value in enumerate(found.tolist())
    )


@pytest.mark.parametrize("mean", [-0.05, -0.01, 0.02])
def test_the_share_is_that_of_the_population_whatever_the_noise(mean):
    """A test set's noise brings the share on test sets near one half."""
    wanted = norm.cdf(-mean / 0.02)
    for noise in (0.0, 0.02, 0.05):
        assert sample(mean, noise, 4000).share == pytest.approx(wanted, abs=0.04)


@pytest.mark.parametrize(("share", "same"), [(0.3, False), (0.6, False), (0.3, True)])
def test_noise_that_test_sets_have_in_common_makes_the_mean_uncertain(share, same):
    """Splits of one table have test rows in common, official splits all of them."""
    noise, n, common = 0.02, 10, 1.0 if same else share
    contradicted = []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        found = np.sqrt(common) * rng.normal() + np.sqrt(1 - common) * rng.normal(size=n)
        trials = [
            MeasuredViolation(value, [(value, noise)], 0.9, k, (0 if same else k, share))
            for k, value in enumerate((noise * found).tolist())
        ]
        contradicted.append(not ViolationSample(trials).keeps_level)
    assert np.mean(contradicted) <= 0.07


def test_both_sides_of_a_gap_can_be_violated():
    """The larger side spreads less than the gap, and the noise of the gap less its own."""
    rng, limit = np.random.default_rng(0), 0.03
    gaps = 0.02 * rng.normal(size=4000) + 0.02 * rng.normal(size=4000)
    found = ViolationSample(
        MeasuredViolation(abs(gap) - limit, [(gap - limit, 0.02), (-gap - limit, 0.02)], 0.9, k)
        for k, gap in enumerate(gaps.tolist())
    )
    assert found.share == pytest.approx(1 - 2 * norm.sf(limit / 0.02), abs=0.02)


@pytest.mark.parametrize("seeds", [1, 5])
def test_equal_models_on_one_test_set_are_as_certain_as_one(seeds):
    pieces = [(-0.02, 0.03), (-0.5, 0.03)]
    found = ViolationSample(
        MeasuredViolation(-0.02, pieces, None, k, (0, 0.3)) for k in range(seeds)
    )
    assert found.share == pytest.approx(norm.cdf(0.02 / 0.03), abs=0.03)


@pytest.mark.parametrize(
    ("violations", "errors", "share"),
    [
        ([-0.1, 0.2, math.nan, 0.0], [0.1] * 4, 0.5),
        ([-0.1, 0.2, -0.3], [math.nan, 0.1, 0.1], 2 / 3),
        ([-0.1, 0.2], [None, 0.1], 0.5),
        ([-0.1], [None], 1.0),
    ],
)
def test_without_moments_the_share_is_that_of_test_sets(violations, errors, share):
    found = ViolationSample(
        MeasuredViolation(value, [] if error is None else [(value, error)], 0.9, k)
        for k, (value, error) in enumerate(zip(violations, errors, strict=True))
    )
    assert found.share == pytest.approx(share)
    assert found.keeps_level == (share >= 0.9)


@pytest.mark.parametrize(("value", "kept"), [(-0.1, True), (0.01, True), (0.2, False)])
def test_one_seed_is_judged_by_the_sampling_error_of_its_test_set(value, kept):
    found = ViolationSample([MeasuredViolation(value, [(value, 0.1)], 0.9, 0)])
    assert found.share == pytest.approx(norm.cdf(-value / 0.1), abs=1e-3)
    assert found.keeps_level == kept


def kept(mean, noise, n=10, level=0.9):
    """How often a sample of models with spread 0.02 keeps its level."""
    found = [sample(mean, noise, n, level, seed) for seed in range(400)]
    return np.mean([each.keeps_level for each in found])


@pytest.mark.parametrize("noise", [0.005, 0.05])
def test_a_true_statement_is_rarely_contradicted(noise):
    just_true = -0.02 * norm.ppf(0.9)
    assert kept(just_true, noise) >= 0.94


def test_a_false_statement_is_contradicted_unless_test_sets_are_too_small():
    assert kept(0.0, 0.005, n=25) <= 0.02
    assert kept(0.0, 0.05, n=20) >= 0.8  # the noise is larger than the margin that is missing
    assert kept(0.05, 0.05, n=40) <= 0.01


def test_a_level_counts_if_all_trials_state_one_and_trials_of_a_seed_are_one_sample():
    pairs = [(0.9, 0), (0.8, 0), (0.9, 1)]
    trials = [MeasuredViolation(-0.1, (), level, seed) for level, seed in pairs]
    assert (ViolationSample(trials).level, ViolationSample(trials).seeds) == (0.8, 2)
    assert ViolationSample([*trials, MeasuredViolation(0.0, (), None, 2)]).level is None


@pytest.mark.parametrize("pieces", [2, 8])
def test_pieces_that_are_violated_together_count_once(pieces):
    """The rate of one small group is compared with those of several large ones."""
    rng, mean, noise = np.random.default_rng(0), -0.03, 0.05
    small = mean + 0.02 * rng.normal(size=40) + noise * rng.normal(size=40)
    alone, found = (
        ViolationSample(
            MeasuredViolation(value, [(value, noise)] * count, 0.9, k)
            for k, value in enumerate(small.tolist())
        ).share
        for count in (1, pieces)
    )
    assert 0.6 < alone < 0.9
    assert alone - 0.1 <= found <= alone + 0.012
