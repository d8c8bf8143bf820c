"""Points of rate space whose hull is searched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import LinearTerm


@dataclass(frozen=True)
class RatePoints:
    """Blocks of points: one point of each block is chosen at random, and the rates are their sum.

    Classifiers are points of a single block. The possible thresholds of a group form a block of
    their own, because each group adds its part to the rates.

    Attributes
    ----------
    points
        (K, T) what each point adds to the rates.
    block
        (T,) the block of each point, 0 to the number of blocks - 1, ascending.
    origin
        (K,) the rates before anything is added.
    """

    points: Array
    block: NDArray[np.intp]
    origin: Array

    @classmethod
    def classifiers(cls, rates: Array) -> RatePoints:
        """Return the points of T classifiers with rates (K, T)."""
        return cls(rates, np.zeros(rates.shape[1], dtype=np.intp), np.zeros(len(rates)))

    @classmethod
    def decisions(cls, kinds: RowKinds) -> RatePoints:
        """Return the points of all decisions on the given rows, random ones included.

        Each kind of row is a block, with a share of positive decisions.
        """
        all_yes = kinds.slopes * kinds.totals
        points = np.stack([np.zeros_like(all_yes), all_yes], axis=2).reshape(len(all_yes), -1)
        block = np.repeat(np.arange(kinds.count), 2)
        return cls(points, block, np.nan_to_num(kinds.matrix.c))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(self.block[-1]) + 1

    @property
    def middle(self) -> Array:
        """(K,) the rates if all points of a block have equal chances."""
        sizes = np.bincount(self.block)
        return np.asarray(self.origin + self.points @ (1 / sizes[self.block]))

    def membership(self) -> Array:
        """Return (blocks, T) with 1 where a point belongs to a block."""
        return np.asarray(self.block == np.arange(self.blocks)[:, None], dtype=float)

    def range(self, line: LinearTerm) -> tuple[float, float]:
        """Return the smallest and largest value of a line over the hull."""
        values, starts = line.slopes @ self.points, np.flatnonzero(np.diff(self.block, prepend=-1))
        low, high = (ends.reduceat(values, starts).sum() for ends in (np.minimum, np.maximum))
        start = float(line.at(self.origin))
        return start + float(low), start + float(high)
