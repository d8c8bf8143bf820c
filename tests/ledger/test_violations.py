"""Whether constraints hold on new data, by violations on test sets."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from ratecli.ledger.violations import ViolationSample


def sample(mean, noise, n, level=None, seed=0):
    """Violations on n test sets with this noise, of models with normal violations around a mean."""
    rng = np.random.default_rng(seed)
    found = mean + 0.02 * rng.normal(size=n) + noise * rng.normal(size=n)
    return ViolationSample(found.tolist(), [noise] * n, level, n)


@pytest.mark.parametrize("mean", [-0.05, -0.01, 0.02])
def test_the_share_is_that_of_the_population_whatever_the_noise(mean):
    """A test set's noise brings the share on test sets near one half."""
    wanted = norm.cdf(-mean / 0.02)
    for noise in (0.0, 0.02, 0.05):
        assert sample(mean, noise, 4000).share == pytest.approx(wanted, abs=0.04)


@pytest.mark.parametrize(
    ("violations", "errors", "share"),
    [
        ([-0.1, 0.2, math.nan, 0.0], [0.1] * 4, 0.5),
        ([-0.1, 0.2, -0.3], [math.nan, 0.1, 0.1], 2 / 3),
        ([-0.1], [0.1], 1.0),
    ],
)
def test_without_moments_the_share_is_that_of_test_sets(violations, errors, share):
    found = ViolationSample(violations, errors, 0.9, len(violations))
    assert found.share == pytest.approx(share)
    assert found.keeps_level == (share >= 0.9)


def kept(mean, noise, n=10, level=0.9):
    """How often a sample of models with spread 0.02 keeps its level."""
    found = [sample(mean, noise, n, level, seed) for seed in range(400)]
    return np.mean([each.keeps_level for each in found])


@pytest.mark.parametrize("noise", [0.005, 0.05])
def test_a_true_statement_is_rarely_contradicted(noise):
    just_true = -0.02 * norm.ppf(0.9)
    assert kept(just_true, noise) >= 0.85


def test_a_false_statement_is_contradicted_unless_test_sets_are_too_small():
    assert kept(0.0, 0.005) <= 0.15
    assert kept(0.0, 0.005, n=40) == 0.0
    assert kept(0.05, 0.05, n=40) <= 0.01


def test_a_level_counts_if_all_trials_state_one_and_trials_of_a_seed_are_one_sample():
    trials = [(-0.1, 0.1, 0.9, 0), (0.1, 0.1, 0.8, 0), (-0.2, 0.1, 0.9, 1)]
    assert (ViolationSample.of(trials).level, ViolationSample.of(trials).seeds) == (0.8, 2)
    assert ViolationSample.of([*trials, (0.0, 0.1, None, 2)]).level is None
