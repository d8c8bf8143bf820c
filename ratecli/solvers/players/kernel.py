"""Compiled loops of a training step, for all lanes: scores, counts, slopes of hinges.

Arrays of lanes are blocks as defined in `lanes`: tables and slopes are (L, n, WIDTH) float32,
counts are (L, Q, WIDTH) float64. A score of NaN counts as a negative decision and has no gradient.

Rows are given by their indices `rows` (m,), sorted by kind: those of kind q are `starts[q]` to
`starts[q + 1]`, and `weight` (m,) is the weight of each. `sides` (L, 2 Q, WIDTH), not negative, are
the coefficients of the hinges: in a row of kind q, `weight * sides[q] * max(0, 1 + score)` pulls
the score down and `weight * sides[Q + q] * max(0, 1 - score)` pulls it up.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from ratecli.solvers.players.lanes import (
    add_lanes,
    add_to_lanes,
    broadcast_lanes,
    load_lanes,
    multiply_lanes,
    select_where_above,
    store_lanes,
    subtract_lanes,
)

Array = Any
"""Array of float32 or integers; functions are compiled for the types they are called with."""

COUNT_BLOCK_ROWS = 256
"""Rows whose counts are summed in single precision: few enough to make rounding negligible."""


@numba.njit(inline="always")
def _hinge_slope(score: Any, weight: Any, low: Any, high: Any) -> Any:
    """Return the derivative of a row's hinges with respect to its score."""
    one = np.float32(1)
    down = select_where_above(score, broadcast_lanes(-one), low)
    return multiply_lanes(
        broadcast_lanes(weight),
        subtract_lanes(down, select_where_above(broadcast_lanes(one), score, high)),
    )


@numba.njit(cache=True)
def multiply_rows(
    rows: Array, starts: Array, columns: Array, values: Array, given: Array, found: Array
) -> None:
    """Compute `found[i] = A[rows[i]] @ given` for each lane; A (n, d) is in compressed rows."""
    for block in range(len(given)):
        source, target = given[block], found[block]
        for i in range(len(rows)):
            row = rows[i]
            total = broadcast_lanes(np.float32(0))
            for k in range(starts[row], starts[row + 1]):
                total = add_lanes(
                    total,
                    multiply_lanes(broadcast_lanes(values[k]), load_lanes(source, columns[k])),
                )
            store_lanes(target, i, total)


@numba.njit(cache=True)
def add_transposed_product(
    rows: Array, starts: Array, columns: Array, values: Array, given: Array, found: Array
) -> None:
    """Add `A[rows].T @ given` to `found`."""
    for block in range(len(given)):
        source, target = given[block], found[block]
        for i in range(len(rows)):
            row, lanes = rows[i], load_lanes(source, i)
            for k in range(starts[row], starts[row + 1]):
                j = columns[k]
                store_lanes(
                    target,
                    j,
                    add_lanes(
                        load_lanes(target, j), multiply_lanes(broadcast_lanes(values[k]), lanes)
                    ),
                )


@numba.njit(cache=True)
def pass_over_parts(
    parts: Array,
    rows: Array,
    starts: Array,
    weight: Array,
    table: Array,
    weights: Array,
    sides: Array,
    pull: Array,
    yes: Array,
    slopes: Array,
) -> None:
    """Count decisions and accumulate slopes where row i is the sum of the parts `parts[i]`.

    The score of a row is the sum of `table[parts[i, g]]` over G parts, plus the bias, the last of
    the weights. Adds to `yes` the weight of the rows whose score is above 0; adds to `pull` (L, U,
    WIDTH), and to the last entry of the slopes, the derivatives of the sum of hinges with respect
    to table and bias.
    """
    kinds, last = len(starts) - 1, weights.shape[1] - 1
    zero = broadcast_lanes(np.float32(0))
    for block in range(len(table)):
        own, pulled, counted = table[block], pull[block], yes[block]
        bias = load_lanes(weights[block], last)
        for q in range(kinds):
            low, high = load_lanes(sides[block], q), load_lanes(sides[block], kinds + q)
            for first in range(starts[q], starts[q + 1], COUNT_BLOCK_ROWS):
                count = change = zero
                for i in range(first, min(first + COUNT_BLOCK_ROWS, starts[q + 1])):
                    row, w = rows[i], weight[i]
                    score = bias
                    for g in range(parts.shape[1]):
                        score = add_lanes(score, load_lanes(own, parts[row, g]))
                    count = add_lanes(count, select_where_above(score, zero, broadcast_lanes(w)))
                    slope = _hinge_slope(score, w, low, high)
                    change = add_lanes(change, slope)
                    for g in range(parts.shape[1]):
                        u = parts[row, g]
                        store_lanes(pulled, u, add_lanes(load_lanes(pulled, u), slope))
                add_to_lanes(counted, q, count)
                store_lanes(slopes[block], last, add_lanes(load_lanes(slopes[block], last), change))


@numba.njit(cache=True)
def draw_batch(
    order: Array,
    weight: Array,
    starts: Array,
    ends: Array,
    chances: Array,
    rows: Array,
    counts: Array,
) -> None:
    """Sample a new batch from `order` and `weight` by a partial shuffle; write `rows` and `counts`.

    From kind q, stored at `starts[q]` to `starts[q + 1]`, `ends[q + 1] - ends[q]` rows are sampled,
    each by one random number in [0, 1) from `chances`.
    """
    for q in range(len(starts) - 1):
        there = starts[q + 1] - starts[q]
        for k in range(ends[q + 1] - ends[q]):
            i, target = starts[q] + k, ends[q] + k
            j = i + int(chances[target] * (there - k))
            order[i], order[j] = order[j], order[i]
            weight[i], weight[j] = weight[j], weight[i]
            rows[target], counts[target] = order[i], weight[i]
