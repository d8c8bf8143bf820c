"""Compiled loops over records: `decode_row` is inlined in all of them, here and in solvers.

Arguments are those of `models.coded`: numbers and codes of m records, and their `Coding`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

SAFE_MAX, SAFE_MIN = 1e150, 1e-150
"""Between these, squares can be added up as they are."""
SQUARE_SHIFT = 600
"""Power of two by which larger numbers are divided, and smaller ones multiplied, before they are squared."""
_SHRINK, _GROW = 2.0**-SQUARE_SHIFT, 2.0**SQUARE_SHIFT
MAX_REGISTERS = 8
"""Weights up to which sums of products are held in registers."""


@numba.njit(inline="always")
def number_feature(numbers: Any, i: Any, k: Any, coding: Any) -> Any:
    """The feature that number k of row i makes, and its value."""
    number = np.float64(numbers[i, coding.of_number[k]])
    if np.isnan(number):
        at = coding.missing_at[k]
        return (at, 1.0) if at >= 0 else (coding.number_at[k], 0.0)
    return coding.number_at[k], (number - coding.mean[k]) / coding.scale[k]


@numba.njit(inline="always")
def decode_row(numbers: Any, codes: Any, i: Any, coding: Any, at: Any, values: Any) -> Any:
    """Features of row i that are not 0: which, and their values; gives back how many."""
    count = len(coding.of_number)
    for k in range(count):
        at[k], values[k] = number_feature(numbers, i, k, coding)
    for g in range(len(coding.of_code)):
        place = coding.level_at[coding.first[g] + codes[i, coding.of_code[g]]]
        if place >= 0:
            at[count], values[count] = place, 1.0
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def score_records(numbers: Any, codes: Any, coding: Any, weights: Any, found: Any) -> None:
    """Put into `found` (m, M) the scores of m records under weights (d, M).

    Those of few weights are added up four at a time, in registers.
    """
    most, count = len(coding.of_number) + len(coding.of_code), found.shape[1]
    at, values, own = np.empty(most, np.int64), np.empty(most), np.empty(count)
    fours = count - count % 4 if count <= MAX_REGISTERS else 0
    for i in range(len(found)):
        entries = decode_row(numbers, codes, i, coding, at, values)
        if count > MAX_REGISTERS:
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
def fill_entries(
    numbers: Any, codes: Any, coding: Any, places: Any, firsts: Any, columns: Any, values: Any
) -> None:
    """Put which feature each column of m records is, and its value, where the columns stand (m, P + G)."""
    count = len(coding.of_number)
    for i in range(len(columns)):
        for k in range(count):
            place = places[k]
            columns[i, place], values[i, place] = number_feature(numbers, i, k, coding)
        for g in range(len(coding.of_code)):
            place = places[count + g]
            at = coding.level_at[coding.first[g] + codes[i, coding.of_code[g]]]
            columns[i, place] = at if at >= 0 else firsts[count + g]
            values[i, place] = 1.0 if at >= 0 else 0.0


@numba.njit(cache=True, nogil=True)
def add_moments(
    numbers: Any,
    codes: Any,
    cell: Any,
    coding: Any,
    center: Any,
    count: Any,
    known: Any,
    sums: Any,
    squares: Any,
    seen: Any,
) -> None:
    """Add rows, those with each number (P,), numbers less `center` (P,), those squared (3, P), and rows of
    each level (L,) to sums of them.

    Squares of small, medium and large numbers are added up apart, so that none is 0 or infinite (Blue 1978,
    "A portable Fortran program to find the Euclidean norm of a vector").
    """
    for i in range(len(cell)):
        if cell[i] < 0:
            continue
        count[0] += 1
        for k in range(len(center)):
            away = np.float64(numbers[i, coding.of_number[k]]) - center[k]
            if np.isnan(away):
                continue
            known[k] += 1
            sums[k] += away
            size = abs(away)
            if size > SAFE_MAX:
                squares[2, k] += (away * _SHRINK) ** 2
            elif size < SAFE_MIN:
                squares[0, k] += (away * _GROW) ** 2
            else:
                squares[1, k] += away * away
        for g in range(len(coding.of_code)):
            seen[coding.first[g] + codes[i, coding.of_code[g]]] += 1
