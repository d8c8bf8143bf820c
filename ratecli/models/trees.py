"""Decision trees as plain arrays: forests and boosted trees of any library (`tree_formats`)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ratecli.models.base import Array, Features, width_of
from ratecli.models.layout import ColumnLayout
from ratecli.rates.sample import make_read_only

LEAF = -1
NO_SET = -1
BLOCK_ENTRIES = 2**22
"""Number of entries of columns to make at a time (32 MiB)."""
MAX_INDEX = 2**31 - 1
NODE = np.dtype(
    [
        ("threshold", "f8"),
        ("column", "i4"),
        ("set_at", "i4"),
        ("first", "i4"),
        ("second", "i4"),
        ("missing", "i4"),
    ],
    align=True,
)
"""All of a node in 32 bytes, for compiled code: its two children, and that of missing values.

A leaf tests any column and is its own child.
"""


@dataclass(frozen=True)
class TreeEnsemble:
    """T trees with N nodes in total; the leaf values for each of Q classes are summed over trees.

    An inner node compares a number with a threshold, or looks up a level in a set.

    Attributes
    ----------
    layout
        The C columns that d features are made of.
    roots
        (T,) the root node of each tree, ascending.
    column
        (N,) the column that an inner node tests, or LEAF.
    threshold
        (N,) a row goes to the first child if its number is at most this.
    children
        (N, 2) child nodes, which have larger indices than their parent; ignored for leaves.
    missing_second
        (N,) whether rows without a number or level go to the second child instead of the first.
    set_at
        (N,) where the set of a node starts in `sets`, or NO_SET if the node has a threshold.
    sets
        (B,) for each level of a node's column, whether its rows go to the first child.
    values
        (N, Q) values of leaves; ignored for inner nodes.
    start
        (Q,) initial values of the sums.
    rounded
        Whether numbers are compared as 32-bit floats.
    softmax
        Whether the sums are log-odds instead of probabilities of the classes.

    Raises
    ------
    ValueError
        If the arrays are not trees.
    """

    layout: ColumnLayout
    roots: NDArray[np.intp]
    column: NDArray[np.intp]
    threshold: Array
    children: NDArray[np.intp]
    missing_second: NDArray[np.bool_]
    set_at: NDArray[np.intp]
    sets: NDArray[np.bool_]
    values: Array
    start: Array
    rounded: bool = False
    softmax: bool = False
    _library_sums: ClassVar[Any] = None

    def __post_init__(self) -> None:
        make_read_only(self)
        # compiled code does not check indices
        n, inner = len(self.column), self.column != LEAF
        shapes = (
            self.start.ndim == self.roots.ndim == self.column.ndim == self.sets.ndim == 1
            and self.threshold.shape == self.missing_second.shape == self.set_at.shape == (n,)
            and self.children.shape == (n, 2)
            and self.values.shape == (n, len(self.start))
        )
        if not (shapes and self._indices_fit(inner) and self._sets_fit(inner)):
            raise ValueError("the nodes are not trees")
        if max(n, len(self.sets)) > MAX_INDEX:
            raise ValueError("there are too many nodes")
        if not (np.isfinite(self.values[~inner]).all() and np.isfinite(self.start).all()):
            raise ValueError("a leaf has no finite value")

    def _indices_fit(self, inner: NDArray[np.bool_]) -> bool:
        n, columns = len(self.column), len(self.layout.levels)
        return (
            bool(((self.roots >= 0) & (self.roots < n)).all())
            and bool((np.diff(self.roots) > 0).all())
            and bool(((self.column >= LEAF) & (self.column < columns)).all())
            # children after their parent: no cycles
            and bool((self.children[inner] > np.flatnonzero(inner)[:, None]).all())
            and bool((self.children[inner] < n).all())
        )

    def _sets_fit(self, inner: NDArray[np.bool_]) -> bool:
        at = self.set_at[inner]
        levels = self.layout.levels[self.column[inner]][at != NO_SET]
        at = at[at != NO_SET]
        return bool(((levels > 0) & (at >= 0) & (at <= len(self.sets) - levels)).all())

    @cached_property
    def _nodes(self) -> NDArray[Any]:
        """(N,) the nodes as `NODE`."""
        own, inner = np.arange(len(self.column)), self.column != LEAF
        first, second = np.where(inner[:, None], self.children, own[:, None]).T
        nodes = np.zeros(len(own), NODE)
        nodes["threshold"], nodes["column"] = self.threshold, np.where(inner, self.column, 0)
        nodes["set_at"] = np.where(inner, self.set_at, NO_SET)
        nodes["first"], nodes["second"] = first, second
        nodes["missing"] = np.where(self.missing_second, second, first)
        return nodes

    width = width_of("layout")

    @property
    def classes(self) -> int:
        """Q, the number of classes."""
        return len(self.start)

    def with_library(self, sums: Callable[[Array], Array]) -> TreeEnsemble:
        """Return equal trees that use a library's own sums (n, Q) of columns (n, C).

        They must be the same to the last bit. Compiled loops are then not loaded, which takes as
        long as two fits; stored or copied trees do without the library.
        """
        found = copy(self)
        object.__setattr__(found, "_library_sums", sums)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_library_sums"}

    def probabilities(self, X: Features) -> Array:
        """Return (n, Q) class probabilities of rows (n, d)."""
        sums = self.sums(X)
        return np.asarray(softmax(sums, axis=1)) if self.softmax else sums

    def sums(self, X: Features) -> Array:
        """Return (n, Q) sums of leaf values of rows (n, d): probabilities or log-odds.

        Raises ValueError if the rows have too few features.
        """
        if X.shape[1] < self.width:
            raise ValueError(f"{X.shape[1]} features instead of {self.width}")
        if self._library_sums is not None and len(self.layout.levels) * X.shape[0] <= BLOCK_ENTRIES:
            return np.asarray(self._library_sums(self.layout.columns(X)))
        # compiles, or loads compiled code
        from ratecli.models.loops import add_leaf_values  # noqa: PLC0415

        n, count = X.shape[0], len(self.layout.levels)
        sums = np.tile(self.start, (n + -n % 4, 1))  # four rows go through a tree together
        step = max(4, BLOCK_ENTRIES // max(count, 1) // 4 * 4)
        for first in range(0, n, step):
            columns = self.layout.columns(X[first : first + step])
            if self.rounded:
                with np.errstate(over="ignore"):
                    columns = columns.astype(np.float32)
            own = sums[first : first + step]
            rows = np.zeros((len(own), max(count, 1)))
            rows[: len(columns), :count] = columns
            add_leaf_values(rows, self.roots, self._nodes, self.sets, self.values, own)
        return sums[:n]
