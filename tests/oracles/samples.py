"""Samples for confidence bounds, and a test of the number of misses."""

import numpy as np
from scipy import stats

from ratecli.certify.base import BoundedSample
from ratecli.models.base import Array

UNKNOWN = (-np.inf, np.inf)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def decisions(count: int, rows: int, coefficient: float = 1.0) -> BoundedSample:
    """Return a sample of `rows` decisions, of which `count` are positive."""
    return BoundedSample((np.arange(rows) < count).astype(float), coefficient=coefficient)


def sample(mean: float, deviation: float, rows: int) -> BoundedSample:
    """Return values of an unknown range with this mean and standard deviation."""
    values = np.linspace(-1, 1, rows)
    return BoundedSample(mean + deviation * values / values.std(ddof=1), UNKNOWN)


def few_enough(misses: int, draws: int, delta: float) -> bool:
    """Return whether the misses do not show (at 0.001) a miss rate above delta."""
    return misses <= stats.binom.ppf(0.999, draws, delta)


def mass(rows: int, rate: float) -> Array:
    """Return the probabilities (rows + 1,) of counts."""
    return np.asarray(stats.binom.pmf(np.arange(rows + 1), rows, rate))
