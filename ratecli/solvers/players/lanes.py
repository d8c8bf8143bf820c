"""The compiled loop of a training step in all B lanes (settings) at once.

Its inner loops run over the lanes, so the compiler makes them vector instructions.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

COUNT_BLOCK_ROWS = 256
"""Rows whose counts are summed in single precision: few enough to make rounding negligible."""
_ZERO, _ONE = np.float32(0), np.float32(1)


@numba.njit(cache=True, error_model="numpy")
def count_and_slope(
    parts: Any, table: Any, starts: Any, weight: Any, sides: Any, yes: Any, slopes: Any
) -> None:
    """Count positive decisions, and add the slopes of hinges.

    The scores of m rows are sums of the `parts` (m, G) of a `table` (U, B). There are rows
    `starts[q]` to `starts[q + 1]` of kind q, each of a `weight` (m,). In a row of kind q, `weight *
    sides[q] * max(0, 1 + score)` pulls the score down and `weight * sides[Q + q] * max(0, 1 -
    score)` pulls it up, with `sides` (2 Q, B) not negative. Adds the weight of rows whose score is
    above 0 to `yes` (Q, B), and slopes to `slopes` (U, B), if that has rows. A score of NaN counts
    as a negative decision and has no slope.
    """
    kinds, width = len(starts) - 1, table.shape[1]
    count, score = np.empty(width, np.float32), np.empty(width, np.float32)
    for q in range(kinds):
        low, high = sides[q], sides[kinds + q]
        for first in range(starts[q], starts[q + 1], COUNT_BLOCK_ROWS):
            count[:] = 0
            for i in range(first, min(first + COUNT_BLOCK_ROWS, starts[q + 1])):
                w, part = weight[i], parts[i, 0]
                for b in range(width):
                    score[b] = table[part, b]
                for g in range(1, parts.shape[1]):
                    part = parts[i, g]
                    for b in range(width):
                        score[b] += table[part, b]
                for b in range(width):  # the slope takes the place of the score
                    s = score[b]
                    count[b] += w * np.float32(s > _ZERO)
                    score[b] = w * (low[b] * np.float32(s > -_ONE) - high[b] * np.float32(s < _ONE))
                for g in range(parts.shape[1] if len(slopes) else 0):
                    part = parts[i, g]
                    for b in range(width):
                        slopes[part, b] += score[b]
            for b in range(width):
                yes[q, b] += count[b]
