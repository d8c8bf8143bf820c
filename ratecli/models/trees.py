"""Decision trees as plain arrays, the storage format of forests and boosting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from ratecli.models.base import Array, Features

LEAF = -1
BLOCK_ENTRIES = 2**22
"""Number of entries of X to make dense at a time (32 MiB)."""


@dataclass(frozen=True)
class TreeEnsemble:
    """T trees with N nodes in total; the leaf values for each of Q classes are summed over trees.

    Attributes
    ----------
    width
        d, the number of features.
    roots
        (T,) the root node of each tree.
    feature
        (N,) the feature that an inner node tests, or LEAF.
    threshold
        (N,) a row goes to the first child if its feature is at most this.
    children
        (N, 2) child nodes, which have larger indices than their parent; ignored for leaves.
    values
        (N, Q) values of leaves; ignored for inner nodes.
    start
        (Q,) initial values of the sums.
    rounded
        Whether features are compared as 32-bit floats, as in scikit-learn's exact trees.
    softmax
        Whether the sums are log-odds instead of probabilities of the classes.
    """

    kind: ClassVar[str] = "trees"
    width: int
    roots: NDArray[np.intp]
    feature: NDArray[np.intp]
    threshold: Array
    children: NDArray[np.intp]
    values: Array
    start: Array
    rounded: bool = False
    softmax: bool = False

    def __post_init__(self) -> None:
        n, inner = len(self.feature), self.feature != LEAF
        own = np.arange(n)[inner, None]
        fits = (
            self.start.ndim == self.roots.ndim == 1
            and self.threshold.shape == (n,)
            and self.children.shape == (n, 2)
            and self.values.shape == (n, len(self.start))
            and bool(((self.roots >= 0) & (self.roots < n)).all())
            and bool(((self.feature >= LEAF) & (self.feature < self.width)).all())
            # children after their parent: no cycles
            and bool(((self.children[inner] > own) & (self.children[inner] < n)).all())
        )
        if not fits:
            raise ValueError("the nodes are not trees")

    @property
    def classes(self) -> int:
        return len(self.start)

    def probabilities(self, X: Features) -> Array:
        """Return (n, Q) class probabilities of rows (n, d)."""
        found = [self._sums(rows) for rows in _dense_blocks(X)]
        sums = np.concatenate([np.empty((0, self.classes)), *found])
        return np.asarray(softmax(sums, axis=1)) if self.softmax else sums

    def _sums(self, rows: Array) -> Array:
        if self.rounded:
            rows = rows.astype(np.float32)
        return sum(
            (self.values[self._leaves(rows, root)] for root in self.roots),
            np.tile(self.start, (len(rows), 1)),
        )

    def _leaves(self, rows: Array, root: int) -> NDArray[np.intp]:
        """Return (n,) the leaf that each row reaches in one tree."""
        at = np.full(len(rows), root, dtype=np.intp)
        moving = np.arange(len(rows))
        while len(moving := moving[self.feature[at[moving]] != LEAF]):
            node = at[moving]
            second = ~(rows[moving, self.feature[node]] <= self.threshold[node])
            at[moving] = self.children[node, second.astype(np.intp)]
        return at


def _dense_blocks(X: Features) -> Iterator[Array]:
    """Yield blocks of rows of X as dense arrays."""
    if isinstance(X, np.ndarray):
        yield X
        return
    step = max(1, BLOCK_ENTRIES // max(X.shape[1], 1))
    for start in range(0, X.shape[0], step):
        yield sparse.csr_array(X[start : start + step]).toarray()
