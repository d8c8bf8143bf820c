"""Trees as arrays while they are read, and checks of what files contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.layout import ColumnLayout
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble

MAX_SET_ENTRIES = 2**26
"""Maximum number of levels in all sets of a tree (64 MiB)."""
MAX_LEAF_VALUES = 2**26
"""Maximum number of leaves times classes (512 MiB)."""


class Tree(NamedTuple):
    """The arrays of one tree, as in `TreeEnsemble`; indices count from its own first elements."""

    column: NDArray[np.intp]
    threshold: Array
    children: NDArray[np.intp]
    missing_second: NDArray[np.bool_]
    values: Array
    set_at: NDArray[np.intp]
    sets: NDArray[np.bool_] = np.zeros(0, dtype=bool)


def combine_trees(layout: ColumnLayout, trees: Iterable[Tree], **more: Any) -> TreeEnsemble:
    """Return the ensemble of the trees; `more` are its other fields."""
    found = list(trees)
    require(found, "there are no trees")
    sizes = [len(tree.column) for tree in found]
    roots = np.cumsum([0, *sizes])[:-1].astype(np.intp)
    bases = np.cumsum([0, *(len(tree.sets) for tree in found)])[:-1].astype(np.intp)
    set_at = [
        np.where(tree.set_at == NO_SET, NO_SET, tree.set_at + base)
        for tree, base in zip(found, bases, strict=True)
    ]
    return TreeEnsemble(
        layout=layout,
        roots=roots,
        column=np.concatenate([tree.column for tree in found]),
        threshold=np.concatenate([tree.threshold for tree in found]),
        children=np.concatenate([tree.children for tree in found])
        + np.repeat(roots, sizes)[:, None],
        missing_second=np.concatenate([tree.missing_second for tree in found]),
        set_at=np.concatenate(set_at),
        sets=np.concatenate([tree.sets for tree in found]),
        values=np.concatenate([tree.values for tree in found]),
        **more,
    )


def place_in_column(values: Array, k: int | NDArray[np.intp], count: int) -> Array:
    """Return (N, Q) zeros, but for the values (N,) in column k, an index or (N,) indices.

    A single column counts as the second of two.
    """
    columns = np.zeros((len(values), max(count, 2)))
    columns[np.arange(len(values)), k + (count == 1)] = values
    return columns


def append_leaves(tree: Tree, values: Array) -> Tree:
    """Append leaves with values (M, Q) to a tree of inner nodes."""
    many = len(values)
    return Tree(
        column=np.append(tree.column, np.full(many, LEAF)),
        threshold=np.append(tree.threshold, np.zeros(many)),
        children=np.append(tree.children, np.zeros((many, 2), dtype=np.intp), axis=0),
        missing_second=np.append(tree.missing_second, np.zeros(many, dtype=bool)),
        values=np.append(tree.values, values, axis=0),
        set_at=np.append(tree.set_at, np.full(many, NO_SET)),
        sets=tree.sets,
    )


def as_regressor(trees: TreeEnsemble) -> TreeEnsemble:
    """Return trees whose only score, in the second column, is a prediction."""
    return replace(trees, values=trees.values[:, 1:], start=trees.start[1:], softmax=False)


@contextmanager
def parsing(library: str) -> Iterator[None]:
    """Convert whatever an unexpected file makes the code raise to ValueError."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, AttributeError | TypeError):  # in words of Python
            said = "its parts are not of the expected types"
        raise ValueError(f"it is not a model of {library} that can be read: {said}") from error


def require(holds: object, message: str) -> None:
    """Raise ValueError unless a condition holds."""
    if not holds:
        raise ValueError(message)


def integers(values: Any) -> NDArray[np.intp]:
    """Return a list of JSON as integers (n,); raise ValueError if it is not one."""
    found = np.array(values)
    require(found.ndim == 1 and (found.dtype.kind == "i" or not values), "a list is not integers")
    return found.astype(np.intp)


def numbers(values: Any) -> Array:
    """Return a list of JSON as numbers (n,); raise ValueError if it is not one."""
    found = np.array(values)
    require(found.ndim == 1 and found.dtype.kind in "if", "a list is not numbers")
    return found.astype(float)


def check_leaves(leaves: Iterable[Array], classes: int) -> None:
    """Raise ValueError if the leaves of trees have too many values in total."""
    require(sum(map(len, leaves)) * classes <= MAX_LEAF_VALUES, "it has too many leaves")


def sets_of_levels(
    layout: ColumnLayout, columns: NDArray[np.intp], members: Iterable[NDArray[np.integer[Any]]]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where the set of each of S nodes starts in the sets, and the sets.

    The nodes test `columns` (S,) and have the levels in `members`; others do not occur.

    Raises
    ------
    ValueError
        If a column is not a category, or the sets are too large.
    """
    levels = layout.levels[columns]
    require((levels > 0).all(), "a categorical split of a numeric column")
    require(levels.sum() <= MAX_SET_ENTRIES, "its sets are too large")
    starts = np.cumsum(levels) - levels
    sets = np.zeros(levels.sum(), dtype=bool)
    for start, count, own in zip(starts, levels, members, strict=True):
        sets[start + own[own < count]] = True
    return starts, sets
