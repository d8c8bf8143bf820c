"""A few rows drawn anew for each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.solvers.players.kernel import draw_batch
from ratecli.solvers.players.lanes import Floats32
from ratecli.solvers.players.parts import Uint32Array
from ratecli.solvers.players.rows import LaneRows, RowSelection


@dataclass
class BatchSampler:
    """Of each kind of row its share, one at least, drawn without replacement.

    A row drawn stands for as many as there are to one drawn of its kind, so that what is summed over a
    batch is without bias that of all rows, and all of it where all are drawn.

    Attributes
    ----------
    order
        (n,) the rows that a rate counts, by kind, as LaneRows numbers them; the drawn ones of each kind
        come first.
    weight
        (n,) how often each counts.
    starts
        (Q + 1,) where each kind begins.
    ends
        (Q + 1,) the same among those drawn.
    """

    order: Uint32Array
    weight: Floats32
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    rng: np.random.Generator

    @classmethod
    def of(cls, rows: LaneRows, size: int, rng: np.random.Generator) -> BatchSampler:
        """About `size` rows, but no more than there are."""
        kinds = rows.kinds
        there = np.bincount(kinds.of[rows.used], minlength=kinds.count)
        share = min(1.0, size / len(rows.used))
        taken = np.minimum(np.maximum(np.rint(share * there), 1), there)
        starts, ends = (
            np.concatenate([[0], np.cumsum(n)]).astype(np.int64) for n in (there, taken)
        )
        stands = np.repeat(there / np.maximum(taken, 1), there)
        weight = (kinds.weight[rows.used] * stands).astype(np.float32)
        return cls(rows.member.copy(), weight, starts, ends, rng)

    def draw(self) -> RowSelection:
        size = int(self.ends[-1])
        rows, weight = np.empty(size, np.uint32), np.empty(size, np.float32)
        draw_batch(
            self.order, self.weight, self.starts, self.ends, self.rng.random(size), rows, weight
        )
        return RowSelection(rows, self.ends, weight)
