"""What a safety test is likely to find of a candidate, so that an algorithm can leave it room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from ratecli.rates.analysis import Goal
from ratecli.rates.matrix import RateMatrix
from ratecli.solvers.safety.expected import Expected, rows_of
from ratecli.solvers.safety.forms import Rows
from ratecli.solvers.safety.promise import Promise
from ratecli.solvers.safety.samples import Measurements, Moments
from ratecli.solvers.safety.tested import Asked, Tested, tested

RATES = (0.0, 1.0)


@dataclass(frozen=True)
class Outlook:
    """The upper end that a test stays below with some probability, for one part of a goal.

    Moments on training rows stand for those of the test's rows, of which there are `share` times as
    many. The two estimates of a mean differ by chance, with a variance of s^2 / n + s^2 / (n share): so
    each limit is put farther off by that deviation times the normal quantile `deviates`.
    """

    tested: Tested
    rows: Sequence[Sequence[Rows]]
    bound: str
    share: float
    deviates: float

    def upper(self, measurements: Measurements) -> float:
        moments = tuple(
            tuple(part.moments(measurements, self.share) for part in parts) for parts in self.rows
        )
        found = Expected(self.tested, moments, self.bound)
        limits = [self._farther(found, each) for each in self.tested.asked]
        return float(np.nan_to_num(found.tested.upper(np.array(limits))[0], nan=1.0).max())

    def _farther(self, found: Expected, asked: Asked) -> float:
        variance = sum(self._variance(part) for part in found.moments[asked.quantity])
        return found.limit(asked) + asked.sign * self.deviates * float(np.sqrt(variance))

    def _variance(self, part: Moments) -> float:
        rows = max(part.rows, 1)
        return (part.coefficient * part.deviation) ** 2 * (1 + self.share) / rows


def outlooks(goal: Goal, promise: Promise, rates: RateMatrix, passing: float) -> list[Outlook]:
    """One for each piece of a goal, which is to pass with the probability `passing` by itself.

    Where the method is not `pieces`, pieces share the delta as if each had bounds of its own.
    """
    share = promise.rows / max(rates.members.shape[1], 1)
    delta = promise.delta[goal.name]
    if promise.method != "pieces":
        delta /= len(goal.pieces)
    single = replace(promise, delta={goal.name: delta})
    deviates = NormalDist().inv_cdf(passing)
    found = []
    for piece in goal.pieces:
        part = tested(replace(goal, expression=piece, pieces=(piece,)), single, rates)
        rows = rows_of(part, rates, RATES)
        if rows is None:
            raise ValueError("quantities were found on other rows than these")
        found.append(Outlook(part, rows, promise.bound, share, deviates))
    return found
