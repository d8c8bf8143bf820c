"""Groups of rows that can be told apart, and all that a threshold in each can do to the rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.kinds import RowKinds
from ratecli.solvers.groups import Groups
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.oracles.threshold import all_thresholds

CutIndices = NDArray[np.intp]
"""Numbers of cuts of a group, 0 for no yes, ascending as the threshold falls."""

FLAT_DIRECTION = 1e-9
"""A direction in which nothing moves by more than this part of what moves most does not count."""
MAX_CUTS_KEPT_WHOLE = 256
"""A group with so few cuts keeps them all."""


@dataclass(frozen=True)
class GroupCuts:
    """The T cuts of a group: who is decided yes above each of T thresholds.

    Attributes
    ----------
    thresholds
        (T,) descending.
    kinds
        (Q,) the kinds of its rows.
    yes
        (Q, T) weight of each kind above each threshold.
    """

    thresholds: Array
    kinds: NDArray[np.intp]
    yes: Array

    def __len__(self) -> int:
        return len(self.thresholds)

    def points(self, slopes: Array, chosen: CutIndices | slice) -> Array:
        """(K, ...) what some cuts add to the rates, where kinds have `slopes` (K, all kinds)."""
        return np.asarray(slopes[:, self.kinds] @ self.yes[:, chosen])

    def costs(self, prices: Array, slopes: Array) -> Array:
        """(T,) what each cut costs where rates have the prices (K,)."""
        return np.asarray((prices @ slopes[:, self.kinds]) @ self.yes)


def cuts_by_group(
    scores: Array, groups: Groups, kinds: RowKinds, directions: Array
) -> list[GroupCuts]:
    """The cuts of each group on scores (n,).

    A group whose decisions move the goals in none of their `directions` (F, K) has one cut, that of
    the threshold 0.
    """
    found = []
    order = np.argsort(groups.of, kind="stable")
    ends = np.cumsum(np.bincount(groups.of, minlength=len(groups.patterns)))
    for rows in np.split(order, ends[:-1]):
        present, own = np.unique(kinds.of[rows], return_inverse=True)
        if not (directions @ kinds.slopes[:, present]).any():
            above = kinds.weight[rows] * (scores[rows] > 0)
            once = np.asarray(np.bincount(own, above, len(present)), dtype=float)
            found.append(GroupCuts(np.zeros(1), present, once[:, None]))
            continue
        ranking, counts, thresholds = all_thresholds(scores[rows])
        yes = np.zeros((len(present), len(rows) + 1))
        yes[own[ranking], np.arange(1, len(rows) + 1)] = kinds.weight[rows][ranking]
        found.append(GroupCuts(thresholds, present, np.cumsum(yes, axis=1)[:, counts]))
    return found


def goal_directions(program: RateProgram) -> Array:
    """(F, K) slopes in the rates of all that the goals are functions of, none of them 0."""
    forms = (program.objective, *program.constraints)
    rows = [form.line.slopes for form in forms]
    rows += [line.slopes for each in program.fractions for line in (each.top, each.bottom)]
    for curve in (curve for form in forms for curve in form.curves):
        unit = np.eye(len(curve.index))
        rows += [unit[curve.index[leaf]] for leaf in ex.leaves(curve.expression)]
    found = np.array(rows)
    return found[found.any(axis=1)]


def hull_vertices(cell: GroupCuts, moves: Array) -> CutIndices | None:
    """The cuts on the convex hull of all that the cell's cuts do, None where it is not known.

    No other cut can matter to goals that are functions of `moves @ yes`, moves (F, Q): any point of
    the hull is a random choice among these. In two dimensions the hull is found exactly, as that of
    a ROC curve is; in more, all cuts are kept where there are few.
    """
    if len(cell) <= MAX_CUTS_KEPT_WHOLE:
        return np.arange(len(cell))
    _, sizes, axes = np.linalg.svd(moves, full_matrices=False)
    rank = int((sizes > FLAT_DIRECTION * sizes[0]).sum())
    if rank > 2:
        return None
    points = ((sizes[:rank, None] * axes[:rank]) @ cell.yes).T
    points = points / np.abs(points).max()
    if rank == 2 and not _are_collinear(points):
        return np.sort(ConvexHull(points).vertices).astype(np.intp)
    reach = points @ points[np.argmax(np.abs(points).sum(axis=1))]
    return np.unique([np.argmin(reach), np.argmax(reach)]).astype(np.intp)


def _are_collinear(points: Array) -> bool:
    """Whether points (T, 2), one of them 0, lie on one line."""
    x, y = points[np.argmax(np.abs(points).sum(axis=1))]
    return bool(np.abs(points[:, 0] * y - points[:, 1] * x).max() <= FLAT_DIRECTION)


def couple_group_cuts(chances: Sequence[tuple[CutIndices, Array]]) -> tuple[CutIndices, Array]:
    """Cuts of all groups at once: (M, C) and their M chances, of each group's cuts and chances.

    One number drawn for all of them, so that M is at most the number of cuts less that of groups,
    and 1 more, and so that who draws a lower threshold in one group does so in all.
    """
    ends = [np.cumsum(each) for _, each in chances]
    steps = np.unique(np.concatenate([[0.0, 1.0], *(each[:-1] for each in ends)]).clip(0, 1))
    steps = steps[np.append(True, np.diff(steps) > FLAT_DIRECTION)]
    steps[-1] = 1.0
    middles = 0.5 * (steps[1:] + steps[:-1])
    drawn = [
        numbers[np.minimum(np.searchsorted(each, middles), len(numbers) - 1)]
        for (numbers, _), each in zip(chances, ends, strict=True)
    ]
    return np.stack(drawn, axis=1), np.diff(steps)
