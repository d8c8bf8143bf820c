"""Samples for confidence bounds, and what is asked of bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats

from ratecli.certify.bound import BoundedSample, SampleMoments
from ratecli.models.base import Array

UNKNOWN = (-np.inf, np.inf)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def decisions(count: int, rows: int, coefficient: float = 1.0) -> BoundedSample:
    """A part of `rows` decisions, of which `count` are yes."""
    return BoundedSample((np.arange(rows) < count).astype(float), coefficient=coefficient)


def sample(mean: float, deviation: float, rows: int) -> BoundedSample:
    """Values of an unknown range that have this mean and this deviation."""
    values = np.linspace(-1, 1, rows)
    return BoundedSample(mean + deviation * values / values.std(ddof=1), UNKNOWN)


def moments(part: BoundedSample, rows: int | None = None) -> SampleMoments:
    """The moments of a sample, with another number of rows if one is given."""
    found = part.moments()
    return found if rows is None else replace(found, rows=rows)


def few_enough(misses: int, draws: int, delta: float) -> bool:
    """Whether so many misses are no proof (at 1/1000) that the bound misses oftener than delta."""
    return misses <= stats.binom.ppf(0.999, draws, delta)


def mass(rows: int, rate: float) -> Array:
    """(rows + 1,) probabilities of counts."""
    return np.asarray(stats.binom.pmf(np.arange(rows + 1), rows, rate))
