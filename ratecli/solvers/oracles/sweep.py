"""Descent of the number of wrong decisions itself: the best step along one direction at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array

STEP_TIE = 1e-9
"""Steps nearer than this, relative to their size, turn their rows at once."""
RANDOM_DIRECTIONS = 10
"""Random directions beside the features."""


def sweep_directions(
    rows: sparse.csr_array, w: Array, costs: Array, rng: np.random.Generator
) -> Array:
    """Weights (d,) after the best step along each feature in turn and along random directions.

    Along a direction the cost of all decisions `rows @ w > 0` is a step function, whose least value is
    found by sorting the steps at which a row turns. The cost never grows.
    """
    scores = rows @ w
    columns = sparse.csc_array(rows)
    for direction, used, slopes in _search_directions(columns, rng):
        step = best_line_step(scores[used], slopes, costs[used])
        w = w + step * direction
        scores[used] += step * slopes
    return w


def best_line_step(scores: Array, slopes: Array, costs: Array) -> float:
    """The step t of least `costs @ (scores + t * slopes > 0)`; 0 if none is better than that.

    Arrays are (m,), slopes not 0.
    """
    turns = -scores / slopes
    order = np.argsort(turns, kind="stable")
    ranked = turns[order]
    change = np.where(slopes > 0, costs, -costs)[order]
    reached = np.concatenate([[0.0], np.cumsum(change)]) + costs[slopes < 0].sum()
    apart = np.diff(ranked) > STEP_TIE * (1 + np.abs(ranked[:-1]))
    reached[1:-1][~apart] = np.inf
    k = int(np.argmin(reached))
    if not reached[k] < costs[scores > 0].sum() - STEP_TIE * np.abs(costs).sum():
        return 0.0
    ends = np.concatenate([[ranked[0] - 2.0], ranked, [ranked[-1] + 2.0]])
    return float(0.5 * (ends[k] + ends[k + 1]))


def _search_directions(
    columns: sparse.csc_array, rng: np.random.Generator
) -> Iterator[tuple[Array, NDArray[np.intp], Array]]:
    """Directions (d,), the rows whose scores they move, and by how much."""
    d = columns.shape[1]
    for j in rng.permutation(d):
        part = slice(columns.indptr[j], columns.indptr[j + 1])
        used = columns.data[part] != 0
        if used.any():
            yield (
                np.eye(1, d, j)[0],
                columns.indices[part][used].astype(np.intp),
                columns.data[part][used],
            )
    for _ in range(RANDOM_DIRECTIONS):
        direction = rng.normal(size=d)
        slopes = columns @ direction
        used = np.flatnonzero(slopes)
        if len(used):
            yield direction, used, slopes[used]
