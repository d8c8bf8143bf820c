"""The gate's false alarms and its power, on numbers that vary as those of real runs do.

`benchmarks/check.py` measures the same on real trials. Its spreads are those of the experiments below:
errors of 4,000 generated loans at six sweep points, whose seeds share what lies in the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from pins import findings, point

from ratecli.report.groups import estimate_share

POINTS, COMPARISONS = 6, 200
ROWS = 0.009
"""Standard deviation of an error over seeds, most of which all sweep points share."""


@dataclass(frozen=True)
class Kind:
    """What comes between two runs: `own` and `shared` standard deviations of one seed's difference, of a
    sweep point alone and of all; `other` seeds, and with them other rows.
    """

    seeds: int
    own: float
    shared: float = 0.0
    other: bool = False


FLIPS = Kind(5, 0.002)
"""Nothing but the planted loss: 0.5 % of 1,333 decisions are a binomial number."""
DRAWN = Kind(10, 0.004, 0.002)
"""Batches drawn anew."""
SPLIT = Kind(100, 0.0, other=True)
"""Other seeds: only so many of them tell half a point from other rows."""


def tripped(kind: Kind, loss: float, *, noise: bool = True, comparisons: int = COMPARISONS) -> int:
    """How many of the simulated comparisons fail."""
    rng = np.random.default_rng(1)
    count = 0
    for _ in range(comparisons):
        was, now = rng.normal(0.17, ROWS, (2, 1, kind.seeds)) + rng.normal(
            0, ROWS / 3, (2, POINTS, kind.seeds)
        )
        now = now if kind.other else was
        if noise:
            now = now + rng.normal(0, kind.own, (POINTS, kind.seeds))
            now = now + rng.normal(0, kind.shared, kind.seeds)
        first = kind.seeds * kind.other
        found = findings(
            [point(numbers, first=first, k=k) for k, numbers in enumerate((now + loss).tolist())],
            [point(numbers, k=k) for k, numbers in enumerate(was.tolist())],
        )
        count += any(not each.verdict.good for each in found)
    return count


@pytest.mark.parametrize("kind", [FLIPS, DRAWN, SPLIT], ids=["flips", "drawn", "split"])
def test_noise_trips_no_more_often_than_it_may_and_half_a_point_does(kind):
    alarms = tripped(kind, 0.0)
    assert estimate_share(alarms, COMPARISONS).low <= 0.05
    assert tripped(kind, 0.005) >= 0.9 * COMPARISONS


def test_what_gets_better_does_not_trip():
    assert tripped(FLIPS, -0.005) == 0


def test_results_that_are_the_same_never_trip():
    few = 20
    assert tripped(FLIPS, 0.0, noise=False, comparisons=few) == 0
    assert tripped(FLIPS, 0.0009, noise=False, comparisons=few) == 0
    assert tripped(FLIPS, 0.002, noise=False, comparisons=few) == few
