"""What a safety test is likely to find of a candidate, so that an algorithm can leave it room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression
from ratecli.rates.matrix import RateMatrix
from ratecli.solvers.safety.expected import Expected, rows_of
from ratecli.solvers.safety.forms import Rows
from ratecli.solvers.safety.promise import Promise
from ratecli.solvers.safety.samples import Measurements, Moments
from ratecli.solvers.safety.tested import Asked, Tested, tested
from ratecli.solvers.seldonian.inflation import calibrated

RATES = (0.0, 1.0)
UNKNOWN = 1.0
"""What an end without a number counts as: as much as a rate can be too large."""


@dataclass(frozen=True)
class Outlook:
    """The upper end that a test stays below with some probability, for one part of a goal.

    Moments on training rows stand for those of the test's rows, of which there are `share` times as
    many; each limit is put farther off by `deviates` as `seldonian.inflation.calibrated` derives it.
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
        ends, _ = found.tested.upper(np.array(limits))
        return float(np.where(np.isfinite(ends), ends, UNKNOWN).max())

    def _farther(self, found: Expected, asked: Asked) -> float:
        variance = sum(self._variance(part) for part in found.moments[asked.quantity])
        return found.limit(asked) + asked.sign * self.deviates * float(np.sqrt(variance))

    def _variance(self, part: Moments) -> float:
        rows = max(part.rows, 1)
        return (part.coefficient * part.deviation) ** 2 * (1 + self.share) / rows


def outlooks(
    goals: Sequence[Goal], promise: Promise, rates: RateMatrix, aim: float
) -> list[list[Outlook]]:
    """One for each piece of each goal, such that all tests are passed with the probability `aim`.

    Where the method is not `pieces`, pieces share the delta as if each had bounds of its own.
    """
    parts = [[_part(goal, piece, promise, rates) for piece in goal.pieces] for goal in goals]
    bounds = sum(len(part.asked) for own in parts for part in own)
    deviates = calibrated(aim, bounds).deviates
    share = promise.rows / max(rates.members.shape[1], 1)

    def outlook(part: Tested) -> Outlook:
        rows = rows_of(part, rates, RATES)
        if rows is None:
            raise ValueError("quantities were found on other rows than these")
        return Outlook(part, rows, promise.bound, share, deviates)

    return [[outlook(part) for part in own] for own in parts]


def _part(goal: Goal, piece: Expression, promise: Promise, rates: RateMatrix) -> Tested:
    delta = promise.delta[goal.name]
    if promise.method != "pieces":
        delta /= len(goal.pieces)
    alone = replace(goal, expression=piece, pieces=(piece,))
    return tested(alone, replace(promise, delta={goal.name: delta}), rates)
