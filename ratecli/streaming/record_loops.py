"""Compiled loops over records: their features, and the sums of a pass of Newton's method.

`coding` is a `streaming.stream.FeatureCoding`. The module imports numba, which takes 0.2 s: it is
imported where rows are streamed.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number with random-looking bits: the upper bits of a product select the rows of a sample
(Knuth 1998, 6.4).
"""


@numba.njit(inline="always")
def read_row(numbers: Any, codes: Any, i: Any, coding: Any, at: Any, values: Any) -> None:
    """Write the index and the value of one feature for each column of record i, indices ascending.

    The value is 0 for a level without a feature, and for a missing number that is the mean.
    """
    for k in range(len(coding.at)):
        at[k] = coding.at[k]
        if coding.first_level[k] >= 0:
            level = coding.level[coding.first_level[k] + codes[i, coding.place[k]]]
            at[k] += max(level, 0)
            values[k] = 1.0 if level >= 0 else 0.0
            continue
        number = np.float64(numbers[i, coding.place[k]])
        if np.isnan(number):
            at[k] += coding.missing[k]
            values[k] = coding.missing[k]
        else:
            values[k] = (number - coding.mean[k]) / coding.scale[k]


@numba.njit(cache=True, nogil=True)
def fill_entries(
    numbers: Any, codes: Any, rows: Any, coding: Any, columns: Any, values: Any
) -> None:
    """Write the feature index and value of each column of m records into `columns`, `values`.

    Both have shape (m, E); `rows` (m,) are the places of the records.
    """
    for i in range(len(rows)):
        read_row(numbers, codes, rows[i], coding, columns[i], values[i])


@numba.njit(inline="always")
def margin_loss(margin: Any, width: Any) -> Any:
    """Return the loss of a margin, the negative of its slope, and its curvature.

    The loss is logistic if `width` is 0, else a hinge rounded over an interval of that width of the
    margin below 1.
    """
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
    rows: Any, labels: Any, coding: Any, w: Any, width: Any, every: Any, sums: Any
) -> None:
    """Add the losses of linear scores and their derivatives in weights and bias, w (d + 1,).

    `rows` are the numbers and codes of records, the places of the rows among them and in the table,
    and their weights; `labels` are the side (1, -1, or 0 for none) of each row and the factor of
    its weight. `sums` has four totals: the loss, the hinge without rounding, the sum of the
    negative slopes in the margin, and the number of rows with curvature; the first derivatives (d +
    1,); and, on the diagonal and on one side of it, the second derivatives (d + 1, d + 1) of a
    sample of rows: of those with feature j at least one in `every[j]` (d + 1,), chosen by a hash of
    its place and weighted up accordingly.
    """
    numbers, codes, records, start, weights = rows
    side, share = labels
    totals, slope, curve = sums
    last, count = len(w) - 1, len(coding.at)
    at, values = np.empty(count + 1, np.int64), np.empty(count + 1)
    at[count], values[count] = last, 1.0
    for i in range(len(records)):
        if side[i] == 0:
            continue
        read_row(numbers, codes, records[i], coding, at, values)
        score = w[last]
        for k in range(count):
            score += w[at[k]] * values[k]
        counted, margin = weights[i] * share[i], side[i] * score
        loss, pull, bend = margin_loss(margin, width)
        totals[0] += counted * loss
        totals[1] += counted * max(0.0, 1.0 - margin)
        totals[2] += counted * pull
        change = -counted * pull * side[i]
        if change != 0:
            for k in range(count + 1):
                slope[at[k]] += change * values[k]
        if bend == 0:
            continue
        totals[3] += 1
        steps = every[last]
        for k in range(count):
            if values[k] != 0:
                steps = min(steps, every[at[k]])
        place = (np.uint64(start + records[i]) * HASH_MULTIPLIER) >> np.uint64(24)
        if place % np.uint64(steps) == 0:
            for k in range(count + 1):
                stretched, row = steps * bend * counted * values[k], curve[at[k]]
                for j in range(k + 1):
                    row[at[j]] += stretched * values[j]
