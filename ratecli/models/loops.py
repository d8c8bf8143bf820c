"""Compiled loops over trees."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

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
