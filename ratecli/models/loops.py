"""Compiled loops over records and trees.

Arguments of the loops over records are the arrays of `models.records`: numbers and codes of m
records, and their `FeatureCoding`. `decode_row` is inlined in all of them, here and in solvers.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(inline="always")
def number_feature(numbers: Any, i: Any, k: Any, coding: Any) -> Any:
    """Return the index and value of the feature that number k of row i gives."""
    number = np.float64(numbers[i, coding.of_number[k]])
    if np.isnan(number):
        at = coding.missing_at[k]
        return (at, 1.0) if at >= 0 else (coding.number_at[k], 0.0)
    return coding.number_at[k], (number - coding.mean[k]) / coding.scale[k]


@numba.njit(inline="always")
def decode_row(numbers: Any, codes: Any, i: Any, coding: Any, at: Any, values: Any) -> Any:
    """Write the indices and values of row i's nonzero features; return how many there are."""
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
    """Write the scores of m records under weights (d, M) into `found` (m, M).

    Four weights at a time are summed in registers.
    """
    most, count = len(coding.of_number) + len(coding.of_code), found.shape[1]
    at, values = np.empty(most, np.int64), np.empty(most)
    fours = count - count % 4
    for i in range(len(found)):
        entries = decode_row(numbers, codes, i, coding, at, values)
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
def fill_entries(numbers: Any, codes: Any, coding: Any, columns: Any, values: Any) -> None:
    """Write the feature index and value of each column of m records into `columns`, `values`.

    Both have shape (m, P + G). A level without a feature becomes a 0 in feature 0.
    """
    count = len(coding.of_number)
    for i in range(len(columns)):
        for k in range(count):
            columns[i, k], values[i, k] = number_feature(numbers, i, k, coding)
        for g in range(len(coding.of_code)):
            at = coding.level_at[coding.first[g] + codes[i, coding.of_code[g]]]
            columns[i, count + g] = max(at, 0)
            values[i, count + g] = 1.0 if at >= 0 else 0.0


@numba.njit(cache=True, nogil=True)
def add_moments(
    numbers: Any,
    codes: Any,
    cell: Any,
    center: Any,
    starts: Any,
    count: Any,
    known: Any,
    sums: Any,
    squares: Any,
    seen: Any,
) -> None:
    """Add rows to running sums.

    The sums are the count of rows, of rows with each number (P,), the numbers minus `center` (P,),
    their squares (P,), and the count of rows with each level (L,), those of text column g from
    `starts[g]` on.
    """
    for i in range(len(cell)):
        if cell[i] < 0:
            continue
        count[0] += 1
        for k in range(len(center)):
            away = np.float64(numbers[i, k]) - center[k]
            if np.isnan(away):
                continue
            known[k] += 1
            sums[k] += away
            squares[k] += away * away
        for g in range(codes.shape[1]):
            seen[starts[g] + codes[i, g]] += 1


ROW_BLOCK = 1024
"""Rows that go through one tree together: the tree and these rows stay in the cache."""


@numba.njit(inline="always")
def next_node(columns: Any, i: Any, nodes: Any, sets: Any, at: Any) -> Any:
    """Return the child of a node that row i goes to; a leaf is its own child."""
    node = nodes[at]
    value = columns[i, node.column]
    if node.set_at >= 0:
        if np.isnan(value):
            return node.missing
        return node.first if sets[node.set_at + np.int64(value)] else node.second
    child = node.second if value > node.threshold else node.first
    return node.missing if np.isnan(value) else child


@numba.njit(cache=True, nogil=True)
def add_leaf_values(
    columns: Any, roots: Any, nodes: Any, sets: Any, values: Any, sums: Any
) -> None:
    """Add the values of the leaves that n rows reach to `sums` (n, Q), one tree after the other.

    `columns` is (n, C) with n a multiple of 4, `nodes` as `models.trees.NODE`, the others are
    fields of `TreeEnsemble`. Four rows go through a tree together: the processor need not wait for
    one comparison to start the next.
    """
    for start in range(0, len(columns), ROW_BLOCK):
        end = min(start + ROW_BLOCK, len(columns))
        for root in roots:
            for i in range(start, end, 4):
                a, b, c, d = root, root, root, root
                moved = True
                while moved:
                    e = next_node(columns, i, nodes, sets, a)
                    f = next_node(columns, i + 1, nodes, sets, b)
                    g = next_node(columns, i + 2, nodes, sets, c)
                    h = next_node(columns, i + 3, nodes, sets, d)
                    moved = (e != a) | (f != b) | (g != c) | (h != d)
                    a, b, c, d = e, f, g, h
                for k in range(sums.shape[1]):
                    sums[i, k] += values[a, k]
                    sums[i + 1, k] += values[b, k]
                    sums[i + 2, k] += values[c, k]
                    sums[i + 3, k] += values[d, k]
