"""The smallest bound that any model of the class attains, and what it would take to make it 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.seldonian.inflation import BoundInflation
from ratecli.solvers.seldonian.prediction import TestPrediction
from ratecli.solvers.seldonian.selection import CandidatePoint, CandidateSelection, CandidateTracker
from ratecli.solvers.seldonian.sequential import SqpOptimizer

EASIER_INFLATIONS = (0.5, 0.25, 0.1, 0.0)
"""Parts of the inflation at which ends may be finite where they are not at all of it."""
CLEARLY_PASSING_BOUND = -1e-7
"""An end at which a candidate surely passes."""
MAX_ROW_FACTOR = 1e6
"""Times the rows beyond which more of them are no help."""
ROW_FACTOR_HALVINGS = 6
SIGN_TOLERANCE = 1e-3
"""What `BOUND_TOLERANCE` is where only the sign of the end matters."""
BOUND_TOLERANCE = 1e-6
"""Decrease of the worst end that a step must promise, relative to it: it is told to a few digits."""
MAX_ATTAIN_STEPS = 100


def minimize_worst_bound(
    selection: CandidateSelection,
    start: CandidatePoint,
    track: CandidateTracker,
    enough: float = -np.inf,
    exact: float = BOUND_TOLERANCE,
) -> CandidatePoint:
    """The point of the least worst end that is reached from a start, or the first at most `enough`.

    Where the ends are infinite at first, as with a denominator whose interval has 0 in it, those of
    limits nearer to the point estimates lead to where they are not.
    """
    point = start
    if not np.isfinite(point.worst):
        whole = selection.prediction.inflation
        for part in EASIER_INFLATIONS:
            inflation = BoundInflation(part * whole.factor, part * whole.deviates)
            easier = replace(selection, prediction=selection.prediction.inflated(inflation))
            ahead = easier.at(point.v)
            if np.isfinite(ahead.worst):
                ahead, _ = SqpOptimizer(
                    easier, CandidateTracker(), worst_only=True, exact=exact
                ).run(ahead, MAX_ATTAIN_STEPS)
                point = selection.at(ahead.v)
                track.see(point)
                break
    if not np.isfinite(point.worst):
        return point
    search = SqpOptimizer(selection, track, worst_only=True, enough=enough, exact=exact)
    return search.run(point, MAX_ATTAIN_STEPS)[0]


def shortfall_reason(prediction: TestPrediction, upper: Array, times: float | None) -> str:
    """Why no candidate is expected to pass, given the least ends (P,), and `row_factor_needed`."""
    name, end = prediction.owners[int(np.argmax(upper))], float(upper.max())
    said = f"no model is expected to pass the test of '{name}'"
    if not np.isfinite(end):
        said = f"{said}: its bound is infinite, and at most 0 is needed"
        if times is None:
            return f"{said}; the rows trained on are too few to tell how many rows would be enough"
    else:
        said = f"{said}: the smallest bound attainable is {end:+.4g}, and at most 0 is needed"
    if times is None:
        return f"{said}; no number of rows would be enough"
    wanted = _round_up_to_two_digits(times * prediction.rows)
    return (
        f"{said}; about {wanted:,} rows in the test instead of {prediction.rows:,} would do, with "
        "training rows in proportion"
    )


def row_factor_needed(passes: Callable[[float], bool]) -> float | None:
    """How many times the rows, for candidates and test alike, would be enough for some candidate.

    None if even so many are not that chance plays no part any more. `passes` says it of a number.
    """
    low, high = 1.0, 2.0
    while not passes(high):
        low, high = high, 4 * high
        if high > MAX_ROW_FACTOR:
            return None
    for _ in range(ROW_FACTOR_HALVINGS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def passes_with_row_factor(
    selection: CandidateSelection, point: CandidatePoint
) -> Callable[[float], bool]:
    """Whether some model near a point would pass with so many times the rows."""

    def passes(times: float) -> bool:
        nonlocal point  # what is the least for so many rows is not far from it for others
        more = replace(selection, prediction=selection.prediction.scaled(times))
        point = minimize_worst_bound(
            more, more.at(point.v), CandidateTracker(), CLEARLY_PASSING_BOUND, SIGN_TOLERANCE
        )
        return point.worst <= 0

    return passes


def _round_up_to_two_digits(count: float) -> int:
    """To two digits, upwards."""
    unit = 10 ** max(int(np.floor(np.log10(count))) - 1, 0)
    return int(np.ceil(count / unit) * unit)
