"""The compiled parts of a pass over the records of a stream."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from ratecli.models.decode import decode_row

HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, its bits like chance: the upper ones of a product say which rows are taken (Knuth 1998, 6.4)."""


@numba.njit(inline="always")
def _margin_loss(margin: Any, width: Any) -> Any:
    """The loss of a margin, minus its slope, and its curvature."""
    if width == 0:
        tail = math.exp(-abs(margin))
        pull = tail / (1 + tail) if margin > 0 else 1 / (1 + tail)
        return math.log1p(tail) + max(0.0, -margin), pull, pull * (1 - pull)
    hinge = max(0.0, 1.0 - margin)
    if hinge >= width:
        return hinge - 0.5 * width, 1.0, 0.0
    return 0.5 * hinge * hinge / width, hinge / width, 1 / width if hinge > 0 else 0.0


@numba.njit(cache=True, nogil=True)
def add_losses(
    numbers: Any,
    codes: Any,
    cell: Any,
    weight: Any,
    start: Any,
    coding: Any,
    side: Any,
    share: Any,
    w: Any,
    width: Any,
    every: Any,
    totals: Any,
    slope: Any,
    curve: Any,
) -> None:
    """Add up losses of linear scores with their derivatives in weights and bias, w (d + 1,).

    A row of cell c has the label `side[c]` (1, -1, or 0 for none) and counts `weight * share[c]`. The loss
    is logistic for a `width` of 0, else a hinge that is rounded over so much of the margin below 1.
    To `totals` are added the loss, the hinge that is not rounded, the sum of minus its slopes in the
    margin, and how many rows are curved; to `slope` (d + 1,) first derivatives; to `curve` (d + 1, d + 1),
    on the diagonal and on one side of it, second ones of some rows: of those that have feature j one in
    `every[j]` (d + 1,) at least, chosen by a hash of where they stand, and as often more.
    """
    last = len(w) - 1
    most = len(coding.of_number) + len(coding.of_code) + 1
    at, values = np.empty(most, np.int64), np.empty(most)
    for i in range(len(cell)):
        c = cell[i]
        if c < 0 or side[c] == 0:
            continue
        count = decode_row(numbers, codes, i, coding, at, values)
        score = w[last]
        for k in range(count):
            score += w[at[k]] * values[k]
        counted, margin = weight[i] * share[c], side[c] * score
        hinge = max(0.0, 1.0 - margin)
        loss, pull, bend = _margin_loss(margin, width)
        totals[0] += counted * loss
        totals[1] += counted * hinge
        totals[2] += counted * pull
        at[count], values[count] = last, 1.0
        change = -counted * pull * side[c]
        if change != 0:
            for k in range(count + 1):
                slope[at[k]] += change * values[k]
        if bend == 0:
            continue
        totals[3] += 1
        steps = every[last]
        for k in range(count):
            steps = min(steps, every[at[k]])
        place = (np.uint64(start + i) * HASH_MULTIPLIER) >> np.uint64(24)
        if place % np.uint64(steps) == 0:
            for k in range(count + 1):
                stretched, row = steps * bend * counted * values[k], curve[at[k]]
                for j in range(k + 1):  # a pair of features is always met in the same order
                    row[at[j]] += stretched * values[j]


@numba.njit(cache=True, nogil=True)
def add_line_losses(
    numbers: Any,
    codes: Any,
    cell: Any,
    weight: Any,
    coding: Any,
    side: Any,
    share: Any,
    w: Any,
    step: Any,
    width: Any,
    shares: Any,
    losses: Any,
) -> None:
    """Add to `losses` (T,) those of the weights `w + shares[t] * step`."""
    last = len(w) - 1
    most = len(coding.of_number) + len(coding.of_code)
    at, values = np.empty(most, np.int64), np.empty(most)
    for i in range(len(cell)):
        c = cell[i]
        if c < 0 or side[c] == 0:
            continue
        count = decode_row(numbers, codes, i, coding, at, values)
        score, change = w[last], step[last]
        for k in range(count):
            score += w[at[k]] * values[k]
            change += step[at[k]] * values[k]
        counted = weight[i] * share[c]
        for t in range(len(shares)):
            margin = side[c] * (score + shares[t] * change)
            losses[t] += counted * _margin_loss(margin, width)[0]
