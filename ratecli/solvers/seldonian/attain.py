"""The smallest test bound that any model of the class attains, and the rows needed to make it 0."""

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
"""Fractions of the inflation to try if bounds are infinite at the full inflation."""
CLEARLY_PASSING_BOUND = -1e-7
"""A bound at which a candidate clearly passes."""
MAX_ROW_FACTOR = 1e6
"""Multiple of the number of rows beyond which more rows do not help."""
ROW_FACTOR_HALVINGS = 6
SIGN_TOLERANCE = 1e-3
"""Replaces `BOUND_TOLERANCE` where only the sign of the bound matters."""
BOUND_TOLERANCE = 1e-6
"""Predicted relative decrease of the largest bound at which to stop; few digits are reported."""
MAX_ATTAIN_STEPS = 100


def minimize_worst_bound(
    selection: CandidateSelection,
    start: CandidatePoint,
    track: CandidateTracker,
    enough: float = -np.inf,
    exact: float = BOUND_TOLERANCE,
) -> CandidatePoint:
    """Minimize the largest predicted bound from a start, stopping once it is at most `enough`.

    If bounds are infinite at first, such as for a ratio whose denominator's interval contains 0, a
    smaller inflation is used first to find a point where they are finite.
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
    """Explain why no candidate is expected to pass.

    `upper` (P,) are the smallest upper ends, `times` the result of `row_factor_needed`.
    """
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
    """Return how many times the rows, candidate and test alike, some candidate needs to pass.

    Return None if no candidate passes even with `MAX_ROW_FACTOR` times the rows. `passes` decides
    for a given multiple.
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
    """Return a function: would a model near a point pass with a given multiple of the rows?"""

    def passes(times: float) -> bool:
        nonlocal point  # the optimum for one number of rows is a good start for another
        more = replace(selection, prediction=selection.prediction.scaled(times))
        point = minimize_worst_bound(
            more, more.at(point.v), CandidateTracker(), CLEARLY_PASSING_BOUND, SIGN_TOLERANCE
        )
        return point.worst <= 0

    return passes


def _round_up_to_two_digits(count: float) -> int:
    """Round up to two significant digits."""
    unit = 10 ** max(int(np.floor(np.log10(count))) - 1, 0)
    return int(np.ceil(count / unit) * unit)
