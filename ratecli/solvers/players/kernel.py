"""One pass over the rows for all lanes: decisions counted, slopes of the hinges gathered. Compiled."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = Any
"""Of float32 or of whole numbers: what runs is compiled for the types it is called with."""

BLOCK = 64
"""Rows at a time: their scores stay in the nearest cache."""


@numba.njit(fastmath=True, cache=True)
def pass_over(
    parts: Array,
    starts: Array,
    weight: Array,
    table: Array,
    bias: Array,
    down: Array,
    up: Array,
    yes: Array,
    pull: Array,
    shift: Array,
) -> None:
    """Add to `yes`, `pull` and `shift` what one pass over m rows finds.

    Row i has the score `bias + sum of table[parts[i, g]]` over its G parts, in each of B lanes. Rows
    are sorted by kind: those of kind q are `starts[q]` to `starts[q + 1]`. In row i of kind q
    `weight[i] * down[q] * max(0, 1 + score)` pulls it down and `up[q] * max(0, 1 - score)` up.

    Parameters
    ----------
    parts
        (m, G) rows of the table.
    weight
        (m,) how often each row counts.
    table, bias
        (U, B) and (B,) scores of the parts.
    down, up
        (Q, B) not negative.
    yes
        (Q, B) weight of the rows whose score is above 0.
    pull, shift
        (U, B) and (B,) derivatives of the sum of the hinges in table and bias.
    """
    kinds, lanes = down.shape
    width = parts.shape[1]
    zero, one = np.float32(0), np.float32(1)
    scores = np.empty((BLOCK, lanes), np.float32)
    for q in range(kinds):
        low, high, counted = down[q], up[q], yes[q]
        first = starts[q]
        while first < starts[q + 1]:
            rows = min(BLOCK, starts[q + 1] - first)
            for i in range(rows):
                for b in range(lanes):
                    scores[i, b] = bias[b]
            for i in range(rows):
                for g in range(width):
                    u = parts[first + i, g]
                    for b in range(lanes):
                        scores[i, b] += table[u, b]
            for i in range(rows):
                w = weight[first + i]
                for b in range(lanes):
                    f = scores[i, b]
                    counted[b] += w * np.float32(f > zero)
                    slope = low[b] * np.float32(f > -one) - high[b] * np.float32(f < one)
                    scores[i, b] = w * slope
            for i in range(rows):
                for b in range(lanes):
                    shift[b] += scores[i, b]
            for i in range(rows):
                for g in range(width):
                    u = parts[first + i, g]
                    for b in range(lanes):
                        pull[u, b] += scores[i, b]
            first += rows


@numba.njit(fastmath=True, cache=True)
def slopes_of(
    scores: Array, starts: Array, weight: Array, down: Array, up: Array, yes: Array
) -> None:
    """The same where scores (m, B) are at hand: they are replaced by the slopes of the hinges."""
    kinds, lanes = down.shape
    zero, one = np.float32(0), np.float32(1)
    for q in range(kinds):
        low, high, counted = down[q], up[q], yes[q]
        for i in range(starts[q], starts[q + 1]):
            w = weight[i]
            for b in range(lanes):
                f = scores[i, b]
                counted[b] += w * np.float32(f > zero)
                slope = low[b] * np.float32(f > -one) - high[b] * np.float32(f < one)
                scores[i, b] = w * slope


@numba.njit(fastmath=True, cache=True)
def hinges_of(scores: Array, starts: Array, weight: Array, above: Array, below: Array) -> None:
    """Add to (Q, B) `above` the sums of `max(0, 1 + score)`, to `below` those of `max(0, 1 - score)`."""
    kinds, lanes = above.shape
    one = np.float32(1)
    zero = np.float32(0)
    for q in range(kinds):
        for i in range(starts[q], starts[q + 1]):
            w = weight[i]
            for b in range(lanes):
                f = scores[i, b]
                above[q, b] += w * max(zero, one + f)
                below[q, b] += w * max(zero, one - f)
