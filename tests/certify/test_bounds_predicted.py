"""Predicted bounds: their slopes and accuracy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from oracles.samples import UNKNOWN, decisions, moments, rng

from ratecli.certify.bound import BoundedSample, SampleMoments
from ratecli.certify.bounds import BOUNDS

every_bound = pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
CASES = {
    "one": [SampleMoments(1.0, 0.3, 0.2, 150)],
    "negative": [SampleMoments(-0.7, 0.12, 0.1, 900, (-1.0, 1.0))],
    "two": [SampleMoments(1.0, 0.3, 0.2, 150), SampleMoments(-0.8, 0.25, 0.31, 420)],
    "ranges": [SampleMoments(0.5, 2.0, 0.9, 300, (0.0, 4.0)), SampleMoments(2.0, 0.1, 0.05, 120)],
    "three": [
        SampleMoments(1.0, 0.3, 0.2, 1500),
        SampleMoments(-0.8, 0.25, 0.31, 4200),
        SampleMoments(0.3, 0.6, 0.4, 800),
    ],
}
STEP = 1e-5


@every_bound
@pytest.mark.parametrize("parts", CASES.values(), ids=CASES)
@pytest.mark.parametrize("delta", [0.05, 0.003])
def test_slopes_are_difference_quotients(bound, parts, delta):
    predicted = bound.predicted(parts, delta)
    for slopes, name in ((predicted.by_mean, "mean"), (predicted.by_deviation, "deviation")):
        assert slopes.shape == (len(parts),)
        for i, part in enumerate(parts):
            ends = []
            for sign in (1, -1):
                moved = replace(part, **{name: getattr(part, name) + sign * STEP})
                ends.append(bound.predicted([*parts[:i], moved, *parts[i + 1 :]], delta).value)
            assert slopes[i] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-4, abs=1e-6)


@every_bound
def test_slopes_are_0_at_the_end_of_the_range(bound):
    predicted = bound.predicted([SampleMoments(1.0, 0.999, 0.02, 2)], 1e-4)
    assert predicted.value == 1.0
    assert predicted.by_mean.tolist() == predicted.by_deviation.tolist() == [0.0]


@pytest.mark.parametrize("name", ["student_t", "bootstrap"])
@pytest.mark.parametrize("coefficients", [[1.0], [1.0, -2.0]])
def test_slopes_at_deviations_of_0_are_one_sided(name, coefficients):
    parts = [SampleMoments(c, 0.4, 0.0, 50, UNKNOWN) for c in coefficients]
    predicted = BOUNDS[name].predicted(parts, 0.05)
    moved = BOUNDS[name].predicted([replace(parts[0], deviation=1e-3), *parts[1:]], 0.05)
    assert predicted.value == pytest.approx(0.4 * sum(coefficients))
    assert predicted.by_deviation[0] == pytest.approx((moved.value - predicted.value) / 1e-3)


NEAR = {"betting": 0.06, "bootstrap": 0.1, "clopper_pearson": 0.04}


def samples() -> dict[str, list[BoundedSample]]:
    one, two = rng(1).beta(2, 5, 1000), rng(2).beta(1, 9, 1000)
    return {
        "decisions": [decisions(50, 1000)],
        "two groups": [decisions(300, 1000), decisions(60, 200, -0.8)],
        "two of rare events": [decisions(50, 1000), decisions(50, 1000, -1.0)],
        "probabilities": [BoundedSample(one, coefficient=-1.0)],
        "two of probabilities": [BoundedSample(one), BoundedSample(two, coefficient=-1.0)],
    }


PAIRS = {
    f"{bound.name}-{name}": (bound, parts)
    for bound in BOUNDS.values()
    for name, parts in samples().items()
    # where decisions are drawn, the bound varies by more than the prediction is off
    if bound.name != "clopper_pearson" or all(part.binary for part in parts)
}


@pytest.mark.parametrize(("bound", "parts"), PAIRS.values(), ids=PAIRS)
def test_predictions_are_close_to_bounds(bound, parts):
    """Compared by width; random bounds are averaged over seeds."""
    value = sum(part.coefficient * float(part.values.mean()) for part in parts)
    repeats = 12 if bound.name in {"betting", "bootstrap"} else 1
    width = np.mean([bound.upper(parts, 0.05, rng(seed)) for seed in range(repeats)]) - value
    predicted = bound.predicted([moments(part) for part in parts], 0.05).value - value
    assert predicted == pytest.approx(width, rel=NEAR.get(bound.name, 1e-9))


def test_predictions_of_betting_for_means_near_the_ends():
    """Newton's steps are smaller than rounding errors there, and must stop nevertheless."""
    random, bound = np.random.default_rng(0), BOUNDS["betting"]
    rare = SampleMoments(-1.0, 2.467449817766155e-05, 0.0004967281887189535, 250456)
    assert -2.467449817766155e-05 < bound.predicted([rare], 0.05).value < 0
    for _ in range(500):
        near = 10 ** random.uniform(-9, 0)
        mean = float(random.choice([near, 1 - near]))
        spread = random.uniform() * math.sqrt(mean * (1 - mean))
        part = SampleMoments(
            random.choice([-1.0, 1.0]), mean, spread, int(10 ** random.uniform(0.5, 10))
        )
        found = bound.predicted([part], 10 ** random.uniform(-9, -0.1))
        low, high = sorted((part.coefficient * mean, max(part.coefficient, 0.0)))
        assert low - 1e-12 <= found.value <= high
