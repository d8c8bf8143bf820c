"""Failure rates of exact bounds: summed over all outcomes of counts, otherwise simulated."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from oracles.samples import decisions, few_enough, mass, rng
from thinned import one_in

from ratecli.certify.base import BoundedSample
from ratecli.certify.binomial import clopper_pearson_upper, pair_limit
from ratecli.certify.bounds import BOUNDS, Bound
from ratecli.models.base import Array

COUNTED = [
    BOUNDS[name] for name in ("clopper_pearson", "hoeffding", "empirical_bernstein", "anderson")
]
BETTING = BOUNDS["betting"]
RATES = np.concatenate(([0.0, 1e-3, 0.01], np.linspace(0.03, 0.97, 30), [0.99, 0.999, 1.0]))
of_counts = pytest.mark.parametrize("bound", COUNTED, ids=[bound.name for bound in COUNTED])


def largest_failure_rate(bound: Bound, rows: int, coefficient: float, delta: float) -> float:
    parts = [decisions(k, rows, coefficient) for k in range(rows + 1)]
    limits = np.array([bound.upper([part], delta, rng()) for part in parts])
    # a failure is most likely just beside a limit
    beside = np.clip(limits / coefficient + np.array([[-1e-9], [1e-9]]), 0, 1).ravel()
    rates = np.concatenate((RATES, beside))
    return max(float(mass(rows, p) @ (limits < coefficient * p - 1e-12)) for p in rates)


@of_counts
@pytest.mark.parametrize("rows", [1, 2, 5, 20, 60])
@pytest.mark.parametrize("coefficient", [1.0, -0.8])
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_failure_rate_of_one_rate(bound, rows, coefficient, delta):
    missed = largest_failure_rate(bound, rows, coefficient, delta)
    assert missed <= delta
    if bound.name == "clopper_pearson" and rows > 2:
        assert missed > 0.99 * delta  # and no narrower interval of this kind is exact


def pair_limits(bound: Bound, rows: tuple[int, int], second: float, delta: float) -> Array:
    """(n1 + 1, n2 + 1) bounds on p1 + second * p2."""
    limits = np.empty((rows[0] + 1, rows[1] + 1))
    for i, j in np.ndindex(limits.shape):
        parts = [decisions(i, rows[0]), decisions(j, rows[1], second)]
        limits[i, j] = bound.upper(parts, delta, rng())
    return limits


def largest_failure_rate_of_pairs(limits: Array, second: float, rates: Array) -> float:
    one, two = limits.shape[0] - 1, limits.shape[1] - 1
    masses, others = ([mass(n, p) for p in rates] for n in (one, two))
    return max(
        float(masses[a] @ (limits < rates[a] + second * rates[b] - 1e-12) @ others[b])
        for a, b in itertools.product(range(rates.size), repeat=2)
    )


PAIRS = [
    (BOUNDS["clopper_pearson"], (1, 6), -1.0, 0.05),
    (BOUNDS["clopper_pearson"], (12, 12), -1.0, 0.05),
    (BOUNDS["clopper_pearson"], (15, 7), -0.8, 0.1),
    (BOUNDS["clopper_pearson"], (9, 24), 0.3, 0.01),
    (BOUNDS["hoeffding"], (9, 24), -0.8, 0.1),
    (BOUNDS["empirical_bernstein"], (9, 24), -0.8, 0.3),
    (BOUNDS["anderson"], (9, 24), -0.8, 0.3),
]


@pytest.mark.parametrize(("bound", "rows", "second", "delta"), PAIRS)
def test_failure_rate_of_two_rates(bound, rows, second, delta):
    limits = pair_limits(bound, rows, second, delta)
    missed = largest_failure_rate_of_pairs(limits, second, RATES[1::2])
    assert missed <= delta
    if bound.name == "clopper_pearson":
        assert missed > 0.5 * delta


@pytest.mark.slow
@pytest.mark.parametrize("rows", [(40, 40), (3, 200), (60, 20)])
@pytest.mark.parametrize("second", [-0.8, -0.1])
@pytest.mark.parametrize("delta", [0.2, 0.05, 0.001])
def test_failure_rate_of_two_rates_of_more_rows(rows, second, delta):
    limits = pair_limits(BOUNDS["clopper_pearson"], rows, second, delta)
    fine = np.unique(np.concatenate((RATES, np.linspace(0, 1, 60))))
    assert largest_failure_rate_of_pairs(limits, second, fine) <= delta


@pytest.mark.parametrize("rows", [(1, 8), (12, 12), (4, 20)])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 0.3)])
def test_a_joint_limit_is_narrower_than_two_limits(rows, weights):
    """On average over outcomes, for every pair of rates."""
    delta, sizes, by = 0.05, np.array(rows, dtype=float), np.array(weights)
    jointly = np.empty((rows[0] + 1, rows[1] + 1))
    for i, j in np.ndindex(jointly.shape):
        jointly[i, j] = min(pair_limit(np.array([i, j], dtype=float), sizes, by, delta), by.sum())
    one, two = (clopper_pearson_upper(np.arange(n + 1), n, delta / 2) for n in rows)
    divided = by[0] * one[:, None] + by[1] * two
    grid = [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98]
    for p, q in itertools.product(grid, repeat=2):
        mean = mass(rows[0], p) @ (jointly - divided) @ mass(rows[1], q)
        assert mean < 0, (p, q)
    assert (jointly <= divided + 1e-9).mean() > 0.85


@pytest.mark.parametrize(("rows", "seconds"), [(5000, 20.0), (50_000, 80.0)])
def test_two_large_groups(rows, seconds):
    """The limit is nearly as narrow as the normal one, which is not exact. Limits of time are generous."""
    counts, sizes = np.array([0.3 * rows, 0.7 * rows]), np.array([rows, rows], dtype=float)
    start = time.perf_counter()
    limit = pair_limit(counts, sizes, np.ones(2), 0.05)
    assert time.perf_counter() - start < seconds
    normal = 1.6448536 * np.sqrt(2 * 0.21 / rows)
    assert normal < limit - 1 < 1.03 * normal


def test_three_rates_divide_delta_over_pairs():
    parts = [decisions(30, 100), decisions(50, 400, -1.0), decisions(4, 25, 0.1)]
    bound = BOUNDS["clopper_pearson"]
    # widths / sqrt(rows): 0.1, 0.05 and 0.02
    share = np.hypot(0.1, 0.05) / (np.hypot(0.1, 0.05) + 0.02)
    pair = bound.upper(parts[:2], 0.05 * share, rng())
    single = bound.upper(parts[2:], 0.05 * (1 - share), rng())
    assert bound.upper(parts, 0.05, rng()) == pytest.approx(pair + single, abs=1e-9)


def test_decisions_of_a_randomized_classifier_are_sampled():
    """Limits are those of counts and depend on the random stream."""
    probabilities = rng(1).beta(2, 5, 40)
    part = BoundedSample(probabilities)
    limits = [BOUNDS["clopper_pearson"].upper([part], 0.1, rng(seed)) for seed in range(200)]
    possible = clopper_pearson_upper(np.arange(41), 40, 0.1)
    assert np.isin(np.round(limits, 12), np.round(possible, 12)).all()
    assert len(set(limits)) > 5
    counts = np.searchsorted(possible, np.array(limits) - 1e-9)
    assert counts.mean() == pytest.approx(probabilities.sum(), abs=0.7)


def fails_rarely(bound: Bound, laws: list, rows: list[int], second: float, draws: int) -> bool:
    """Whether the bound fails few enough times at a delta of 0.05."""
    stream, truth, misses = rng(17), laws[0][1], 0
    if len(rows) > 1:
        truth += second * laws[1][1]
    for _ in range(draws):
        parts = [
            BoundedSample(draw(stream, n).astype(float), coefficient=c)
            for (draw, _), n, c in zip(laws, rows, (1.0, second), strict=False)
        ]
        misses += bound.upper(parts, 0.05, stream) < truth - 1e-12
    return few_enough(misses, draws, 0.05)


def coin(rate: float):
    return (lambda stream, n: stream.random(n) < rate), rate


def beta(a: float, b: float):
    return (lambda stream, n: stream.beta(a, b, n)), a / (a + b)


LAWS = {
    "1/100": coin(0.01),
    "1/20": coin(0.05),
    "3/10": coin(0.3),
    "9/10": coin(0.9),
    "beta": beta(0.5, 2),
    "narrow": beta(30, 70),
}


@pytest.mark.parametrize("name", ["1/20", "9/10", "beta"])
@pytest.mark.parametrize("rows", [[8], [60], [10, 40]])
def test_failure_rate_of_betting(name, rows):
    assert fails_rarely(BETTING, [LAWS[name], LAWS["3/10"]], rows, -0.8, 100)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[10], [100], [1000], [12, 30], [300, 200]])
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("bound", [*COUNTED, BETTING], ids=lambda bound: bound.name)
def test_failure_rate_in_ten_thousand_samples(bound, name, rows):
    if bound.name == "clopper_pearson" and rows == [300, 200]:
        pytest.skip("takes minutes, and is summed over all outcomes above")
    assert fails_rarely(bound, [LAWS[name], LAWS["beta"]], rows, -0.8, 10_000)


def log_normal(spread: float):
    """Likelihood ratios, and products of them: their mean is 1."""
    return (lambda stream, n: stream.lognormal(-(spread**2) / 2, spread, n)), 1.0


HEAVY = {
    "likelihood ratios": log_normal(0.5),
    "products": log_normal(2.0),
    "Pareto": (lambda stream, n: stream.pareto(1.5, n) + 1, 3.0),
    "rare": (lambda stream, n: 1000.0 * (stream.random(n) < 1e-3), 1.0),
    "exponential": (lambda stream, n: stream.exponential(size=n), 1.0),
    "far": (lambda stream, n: 20 + np.sqrt(3) * stream.uniform(-1, 1, n), 20.0),
    "zero or two": (lambda stream, n: 2.0 * stream.integers(2, size=n), 1.0),
}
ONE_SIDED = [BOUNDS[name] for name in ("betting", "empirical_bernstein", "anderson")]


def misses_of_one_sided(bound: Bound, law, rows: list[int], delta: float, draws: int) -> int:
    """Return how often a lower bound of a sum of means of heavy tails is too high.

    The second sample of a sum has a known range.
    """
    (draw, mean), stream, misses = law, rng(23), 0
    second = LAWS["beta"]
    truth = -mean + (0.8 * second[1] if len(rows) > 1 else 0.0)
    for _ in range(draws):
        parts = [BoundedSample(draw(stream, rows[0]), (0.0, np.inf), -1.0)]
        if len(rows) > 1:
            parts.append(BoundedSample(second[0](stream, rows[1]), coefficient=0.8))
        misses += bound.upper(parts, delta, stream) < truth - 1e-12
    return misses


@pytest.mark.parametrize("name", HEAVY)
@pytest.mark.parametrize(("rows", "delta"), one_in(2, [([60, 40], 0.2), ([100], 0.2)]))
@pytest.mark.parametrize("bound", ONE_SIDED, ids=lambda bound: bound.name)
def test_failure_rate_of_lower_bounds_of_heavy_tails(bound, name, rows, delta):
    assert few_enough(misses_of_one_sided(bound, HEAVY[name], rows, delta, 100), 100, delta)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEAVY)
@pytest.mark.parametrize("rows", [[5], [50], [1000], [3000, 100]])
@pytest.mark.parametrize("delta", [0.05, 0.3])
@pytest.mark.parametrize("bound", ONE_SIDED, ids=lambda bound: bound.name)
def test_failure_rate_of_lower_bounds_of_heavy_tails_in_many_samples(bound, name, rows, delta):
    misses = misses_of_one_sided(bound, HEAVY[name], rows, delta, 2000)
    assert few_enough(misses, 2000, delta)
    if bound.name == "betting" and (name, rows) == ("exponential", [1000]):
        assert misses > 0.05 * delta * 2000  # and the bound is not much wider than necessary
