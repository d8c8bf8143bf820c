"""Compiled loops over records: `decoded` is inlined in all of them, here and in solvers.

Arguments are those of `models.coded`: numbers and codes of m records, and their `Coding`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

REGISTERS = 8
"""Weights up to which sums of products are held in registers."""


@numba.njit(inline="always")
def decoded(numbers: Any, codes: Any, i: Any, coding: Any, at: Any, values: Any) -> Any:
    """Features of row i that are not 0: which, and their values; gives back how many."""
    count = len(coding.of_number)
    for k in range(count):
        number = np.float64(numbers[i, coding.of_number[k]])
        at[k] = coding.number_at[k]
        values[k] = (number - coding.mean[k]) / coding.scale[k]
    for g in range(len(coding.of_code)):
        place = coding.level_at[coding.first[g] + codes[i, coding.of_code[g]]]
        if place >= 0:
            at[count], values[count] = place, 1.0
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def score(numbers: Any, codes: Any, coding: Any, weights: Any, found: Any) -> None:
    """Put into `found` (m, M) the scores of m records under weights (d, M).

    Those of few weights are added up four at a time, in registers.
    """
    most, count = len(coding.of_number) + len(coding.of_code), found.shape[1]
    at, values, own = np.empty(most, np.int64), np.empty(most), np.empty(count)
    fours = count - count % 4 if count <= REGISTERS else 0
    for i in range(len(found)):
        entries = decoded(numbers, codes, i, coding, at, values)
        if count > REGISTERS:
            own[:] = 0.0
            for k in range(entries):
                value, row = values[k], weights[at[k]]
                for t in range(count):
                    own[t] += value * row[t]
            for t in range(count):
                found[i, t] = own[t]
            continue
        for t in range(0, fours, 4):
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for k in range(entries):
                value, j = values[k], at[k]
                a += value * weights[j, t]
                b += value * weights[j, t + 1]
                c += value * weights[j, t + 2]
                d += value * weights[j, t + 3]
            found[i, t], found[i, t + 1], found[i, t + 2], found[i, t + 3] = a, b, c, d
        for t in range(fours, count):
            a = 0.0
            for k in range(entries):
                a += values[k] * weights[at[k], t]
            found[i, t] = a


@numba.njit(cache=True, nogil=True)
def fill(
    numbers: Any, codes: Any, coding: Any, places: Any, firsts: Any, columns: Any, values: Any
) -> None:
    """Put which feature each column of m records is, and its value, where the columns stand (m, P + G)."""
    count = len(coding.of_number)
    for i in range(len(columns)):
        for k in range(count):
            place = places[k]
            value = np.float64(numbers[i, coding.of_number[k]])
            columns[i, place] = coding.number_at[k]
            values[i, place] = (value - coding.mean[k]) / coding.scale[k]
        for g in range(len(coding.of_code)):
            place = places[count + g]
            at = coding.level_at[coding.first[g] + codes[i, coding.of_code[g]]]
            columns[i, place] = at if at >= 0 else firsts[count + g]
            values[i, place] = 1.0 if at >= 0 else 0.0


@numba.njit(cache=True, nogil=True)
def moments(
    numbers: Any,
    codes: Any,
    cell: Any,
    coding: Any,
    center: Any,
    count: Any,
    sums: Any,
    squares: Any,
    seen: Any,
) -> None:
    """Add rows, numbers less `center` (P,), those squared, and rows of each level (L,) to sums of them."""
    for i in range(len(cell)):
        if cell[i] < 0:
            continue
        count[0] += 1
        for k in range(len(center)):
            away = np.float64(numbers[i, coding.of_number[k]]) - center[k]
            sums[k] += away
            squares[k] += away * away
        for g in range(len(coding.of_code)):
            seen[coding.first[g] + codes[i, coding.of_code[g]]] += 1
