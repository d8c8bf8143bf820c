"""The smallest bound that any model of the class attains, and what it would take to make it 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ratecli.solvers.seldonian.inflation import Inflation
from ratecli.solvers.seldonian.selection import Point, Selection, Track
from ratecli.solvers.seldonian.sequential import Sequential

EASIER = (0.5, 0.25, 0.1, 0.0)
"""Parts of the inflation at which ends may be finite where they are not at all of it."""
CLEAR = -1e-7
"""An end at which a candidate surely passes."""
MOST = 1e6
"""Times the rows beyond which more of them are no help."""
HALVINGS = 8
STEPS = 100


def least(selection: Selection, start: Point, track: Track, enough: float = -np.inf) -> Point:
    """The point of the least worst end that is reached from a start, or the first at most `enough`.

    Where the ends are infinite at first, as with a denominator whose interval has 0 in it, those of
    limits nearer to the point estimates lead to where they are not.
    """
    point = start
    if not np.isfinite(point.worst):
        whole = selection.prediction.inflation
        for part in EASIER:
            inflation = Inflation(part * whole.factor, part * whole.deviates)
            easier = replace(selection, prediction=selection.prediction.inflated(inflation))
            ahead = easier.at(point.v)
            if np.isfinite(ahead.worst):
                ahead, _ = Sequential(easier, Track(), worst_only=True).run(ahead, STEPS)
                point = selection.at(ahead.v)
                track.see(point)
                break
    if not np.isfinite(point.worst):
        return point
    found, _ = Sequential(selection, track, worst_only=True, enough=enough).run(point, STEPS)
    return found


def shortfall(selection: Selection, point: Point) -> str:
    """Why no candidate is expected to pass, given the one of the least worst end."""
    worst = int(np.argmax(point.upper))
    name, end = selection.prediction.owners[worst], point.worst
    said = f"no linear model is expected to pass the test of '{name}'"
    if not np.isfinite(end):
        return f"{said}: its bound is infinite whatever the model is, and at most 0 is needed"
    said = f"{said}: the smallest bound attainable is {end:+.4g}, and at most 0 is needed"
    rows = selection.prediction.rows
    times = needed(selection, point)
    if times is None:
        return f"{said}; no number of rows would be enough"
    return f"{said}; a test of about {_rounded(times * rows):,} rows, not {rows:,}, would do"


def needed(selection: Selection, point: Point) -> float | None:
    """How many times the rows, for candidates and test alike, would make the smallest bound 0.

    None if that many are not enough that chance plays no part any more.
    """

    def at(times: float, where: Point) -> tuple[Selection, Point]:
        more = replace(selection, prediction=selection.prediction.scaled(times))
        return more, more.at(where.v)

    def reached(times: float, where: Point) -> Point | None:
        more, start = at(times, where)
        found = least(more, start, Track(), CLEAR)
        return found if found.worst <= 0 else None

    low, high, best = 1.0, 2.0, reached(2.0, point)
    while best is None:
        low, high = high, 4 * high
        if high > MOST:
            return None
        best = reached(high, point)
    for _ in range(HALVINGS):
        middle = float(np.sqrt(low * high))
        found = reached(middle, best)
        if found is None:
            low = middle
        else:
            high, best = middle, found
    return high


def _rounded(count: float) -> int:
    """To two digits, upwards."""
    unit = 10 ** max(int(np.floor(np.log10(count))) - 1, 0)
    return int(np.ceil(count / unit) * unit)
