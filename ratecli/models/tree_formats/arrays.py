"""Trees as arrays while they are read, and checks of what files contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.layout import NUMBER, ColumnLayout
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble

MAX_ENTRIES = 2**26
"""Maximum number of values of leaves, and of levels in sets, of all trees (512 MiB)."""


class Tree(NamedTuple):
    """The N nodes of one tree, as in `TreeEnsemble`; node 0 is the root.

    Attributes
    ----------
    children
        (N, 2) numbers of nodes in this tree.
    values
        (N, K), or (N,) if all values belong to column `value_column`.
    set_at
        (N,) where the sets of nodes start in `sets`, or NO_SET.
    """

    column: NDArray[np.intp]
    threshold: Array
    children: NDArray[np.intp]
    missing_second: NDArray[np.bool_]
    values: Array
    set_at: NDArray[np.intp]
    sets: NDArray[np.bool_] = np.zeros(0, dtype=bool)
    value_column: int = 0

    @classmethod
    def of_splits(cls, **parts: Any) -> Tree:
        """Return a tree whose nodes are S splits, followed by the leaves with `values` (L, K).

        All other `parts` describe the splits. Without `set_at`, no split is on a set of categories.
        """
        splits, leaves = len(parts["column"]), len(parts["values"])
        parts = {"set_at": np.full(splits, NO_SET), "sets": cls._field_defaults["sets"]} | parts
        for name in ("column", "threshold", "children", "missing_second", "set_at"):
            blank = LEAF if name in {"column", "set_at"} else 0
            own = parts[name]  # np.pad takes five times as long
            parts[name] = np.concatenate([own, np.full((leaves, *own.shape[1:]), blank, own.dtype)])
        none = np.zeros((splits, *parts["values"].shape[1:]))
        parts["values"] = np.concatenate([none, parts["values"]])
        return cls(**parts)


def combine_trees(
    layout: ColumnLayout, trees: Iterable[Tree], start: Array, *, softmax: bool, **more: Any
) -> TreeEnsemble:
    """Return the ensemble of the trees, whose leaves have K values; `more` are its other fields.

    `start` (K,) are initial values. The single log-odds (K = 1) of two classes become those of the
    second one.

    Raises
    ------
    ValueError
        If the arrays are not trees over these columns, or too large.
    """
    found, entries = list[Tree](), 0
    for tree in trees:
        entries += len(tree.column) * len(start) + tree.sets.size
        require(entries <= MAX_ENTRIES, "its trees are too large")
        if tree.values.ndim == 1:
            values = np.zeros((len(tree.values), len(start)))
            values[:, tree.value_column] = tree.values
            tree = tree._replace(values=values)  # noqa: PLW2901
        found.append(tree)
    require(found, "there are no trees")
    sizes = np.array([len(tree.column) for tree in found])
    roots = np.cumsum(sizes) - sizes
    parts: dict[str, Any] = {
        name: np.concatenate([getattr(t, name) for t in found]) for name in Tree._fields[:-1]
    }
    set_starts = np.cumsum([0, *(len(tree.sets) for tree in found[:-1])])
    parts["set_at"] += np.where(parts["set_at"] == NO_SET, 0, np.repeat(set_starts, sizes))
    inner = parts["column"] != LEAF
    own, children = parts["column"][inner], parts["children"][inner]
    require(((own >= 0) & (own < len(layout.levels))).all(), "a column does not exist")
    below = (children >= 0) & (children < np.repeat(sizes, sizes)[inner, None])
    require(below.all(), "a child does not exist")
    require(not np.isnan(parts["threshold"][inner]).any(), "a threshold is not a number")
    parts["children"] = parts["children"] + np.repeat(roots, sizes)[:, None]
    if softmax and len(start) == 1:
        start, parts["values"] = np.insert(start, 0, 0.0), np.insert(parts["values"], 0, 0.0, 1)
    return TreeEnsemble(layout, roots, **parts, start=start, softmax=softmax, **more)


@dataclass(frozen=True)
class FileColumn:
    """A column of a table as a model takes it.

    Attributes
    ----------
    name
        Its name.
    levels
        `NUMBER`, or the number of codes of a category, as in `ColumnLayout`.
    words
        The value that each code from 0 stands for, None if the table has numbers or codes.
    unknown
        What the library makes of other values of a category: they are missing, one more code, the
        last one, or refused.
    used
        Whether the model may use it.
    """

    name: str
    levels: int = NUMBER
    words: tuple[Any, ...] | None = None
    unknown: Literal["missing", "last", "refused"] = "missing"
    used: bool = True


def layout_of(columns: list[FileColumn]) -> ColumnLayout:
    """Return the layout of the columns; raise ValueError if one has too many levels."""
    return ColumnLayout(np.array([column.levels for column in columns], dtype=np.intp))


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


def sets_of_levels(
    layout: ColumnLayout,
    columns: NDArray[np.intp],
    by_set: NDArray[np.bool_],
    members: Iterable[NDArray[np.integer[Any]]],
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where the set of each of N nodes starts in the sets (NO_SET for others), and the sets.

    The nodes `by_set` (N,) test `columns` (N,) and have the levels in `members`; others do not
    occur.

    Raises
    ------
    ValueError
        If a column is not a category, or the sets are too large.
    """
    levels = layout.levels[columns[by_set]]
    require((levels > 0).all(), "a categorical split of a numeric column")
    require(levels.sum() <= MAX_ENTRIES, "its trees are too large")
    set_at = np.full(len(columns), NO_SET, dtype=np.intp)
    set_at[by_set] = np.cumsum(levels) - levels
    sets = np.zeros(levels.sum(), dtype=bool)
    for start, count, own in zip(set_at[by_set], levels, members, strict=True):
        sets[start + own[own < count]] = True
    return set_at, sets
