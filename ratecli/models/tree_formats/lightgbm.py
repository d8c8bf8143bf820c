"""Models of LightGBM, as text."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.layout import ColumnLayout
from ratecli.models.tree_formats.arrays import (
    MAX_SET_ENTRIES,
    Tree,
    as_regressor,
    check_leaves,
    parsing,
    place_in_column,
    require,
)
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble

ZERO = float(np.float32(1e-35))
"""Numbers of at most this size are zero, hence missing, in trees with `zero_as_missing`."""
CATEGORICAL, DEFAULT_LEFT = 1, 2
MISSING_SHIFT, ZERO_MISSING, NAN_MISSING = 2, 1, 2
"""Bits of LightGBM's `decision_type`."""
REGRESSIONS = ("regression", "regression_l1", "huber", "fair", "quantile", "mape")
"""Objectives for which the sum of the trees is the prediction itself; `sqrt` would change that."""
NO_SETS = {"cat_boundaries": "", "cat_threshold": ""}
"""Fields of a tree without sets."""


def read_lightgbm(text: str, layout: ColumnLayout) -> TreeEnsemble:
    """Read the text of LightGBM's `Booster.model_to_string()`, fitted on `layout.columns(X)`.

    The model is a binary or multiclass classifier, whose scores are log-odds without an objective
    (`fobj`), or a regressor whose scores are its predictions.

    Raises
    ------
    ValueError
        If the text is not such a model of these columns.
    """
    with parsing("LightGBM"):
        body, ended, _ = text.partition("\nend of trees\n")
        head, *parts = body.split("\nTree=")
        fields = text_fields(head)
        require(ended and len(parts) == len(fields["tree_sizes"].split()), "it is incomplete")
        width = int(fields["max_feature_idx"]) + 1
        require(width == len(layout.levels), f"{width} columns instead of {len(layout.levels)}")
        count = int(fields["num_tree_per_iteration"])
        require(count > 0 and len(parts) % count == 0, f"{len(parts)} trees, {count} in each round")
        objective = fields.get("objective", "")
        factor = _log_odds_factor(objective, count)
        if "average_output" in head.splitlines():
            factor /= len(parts) // count
        trees = [text_fields(part) for part in parts]
        values, sizes = _numbers(trees, "leaf_value", float)
        check_leaves([values], count)
        owner = np.repeat(np.arange(len(trees)) % count, sizes)
        leaves = place_in_column(factor * values, owner, count)
        found = _read_trees(trees, leaves, sizes, layout, per_round=count)
        return as_regressor(found) if objective in REGRESSIONS else found


def text_fields(text: str) -> dict[str, str]:
    """Return the values of the lines `key=value`."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _numbers(
    trees: list[dict[str, str]], name: str, kind: type
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the numbers of a field in all trees, and how many each tree (T,) has."""
    words = [tree[name].split() for tree in trees]
    sizes = np.array([len(each) for each in words], dtype=np.intp)
    return np.array([word for each in words for word in each], dtype=kind), sizes


def _log_odds_factor(objective: str, count: int) -> float:
    """Return the factor that makes scores of `count` trees a round log-odds or predictions."""
    name, *options = objective.split() or [""]
    factor = 1.0
    match name:
        case "binary" if count == 1:
            stated = dict(each.split(":", 1) for each in options if ":" in each)
            factor = float(stated.get("sigmoid", 1))
        case "cross_entropy" | "multiclass" | "":
            pass
        case _ if objective in REGRESSIONS and count == 1:
            pass
        case _:
            raise ValueError(f"the objective is '{objective}'")
    return factor


class _Splits(NamedTuple):
    """The S splits of all trees.

    Attributes
    ----------
    tree
        (S,) the tree of each split.
    column, threshold, set_at, sets
        As in `TreeEnsemble`.
    children
        (S, 2) numbers of splits in the same tree, or -1 - j for leaf j.
    missing_second
        (S,) whether rows without a value go to the second child.
    zero_missing
        (S,) whether zeros count as missing.
    """

    tree: NDArray[np.intp]
    column: NDArray[np.intp]
    threshold: Array
    children: NDArray[np.intp]
    missing_second: NDArray[np.bool_]
    zero_missing: NDArray[np.bool_]
    set_at: NDArray[np.intp]
    sets: NDArray[np.bool_]


def _read_splits(
    trees: list[dict[str, str]], leaves: NDArray[np.intp], layout: ColumnLayout
) -> _Splits:
    """Read the splits of trees that have `leaves` (T,) leaves each, one more than splits."""
    stated = [int(tree["num_leaves"]) for tree in trees]
    require((leaves == stated).all() and leaves.min() > 0, "a tree without leaves")
    plain = all(tree.get("is_linear", "0") == "0" for tree in trees)
    require(plain, "its leaves are linear models")

    def numbers(name: str, kind: type) -> NDArray[Any]:
        found, sizes = _numbers(trees, name, kind)
        require((sizes == leaves - 1).all(), "a tree of other size")
        return found

    column, kind = numbers("split_feature", int), numbers("decision_type", int)
    threshold = numbers("threshold", float)
    children = np.stack([numbers(f"{side}_child", int) for side in ("left", "right")], axis=1)
    tree = np.repeat(np.arange(len(trees)), leaves - 1)
    most = leaves[tree, None]
    require(((children >= -most) & (children < most - 1)).all(), "a child does not exist")
    require(((column >= 0) & (column < len(layout.levels))).all(), "a column does not exist")
    require(not np.isnan(threshold).any(), "a threshold is not a number")

    by_set, missing = kind & CATEGORICAL != 0, kind >> MISSING_SHIFT
    set_at = np.full(len(column), NO_SET, dtype=np.intp)
    set_at[by_set], sets = _read_sets(
        trees, threshold[by_set], tree[by_set], layout, column[by_set]
    )
    second = (kind & DEFAULT_LEFT == 0) | by_set
    # a missing number counts as 0 unless numbers may be missing
    second = np.where(~by_set & (missing < ZERO_MISSING), threshold < 0, second)
    zeros = ~by_set & (missing == ZERO_MISSING)
    return _Splits(tree, column, threshold, children, second, zeros, set_at, sets)


def _read_trees(
    trees: list[dict[str, str]],
    leaves: Array,
    counts: NDArray[np.intp],
    layout: ColumnLayout,
    per_round: int,
) -> TreeEnsemble:
    """Read trees with leaf values (M, Q), `counts` (T,) of them each: splits, then leaves.

    LightGBM numbers leaf j as -1 - j. Where zeros are missing, a split becomes three nodes: A, is
    the number below zero; B, is it zero; and C, the split itself. A leads to C or B, B to the child
    for missing numbers or C.
    """
    splits = _read_splits(trees, counts, layout)
    tree, children, zeros = splits.tree, splits.children, splits.zero_missing
    nodes = np.where(zeros, 3, 1)
    inner = np.bincount(tree, nodes, len(trees)).astype(np.intp)
    roots = _starts(inner + counts)
    first = _starts(nodes) + (roots - _starts(inner))[tree]
    leaf = (roots + inner)[tree, None] - 1 - children
    split = first[(_starts(counts - 1)[tree, None] + children).clip(0, max(len(first) - 1, 0))]
    place = np.where(children < 0, leaf, split)
    at = np.repeat(first - _starts(nodes), nodes) + np.arange(nodes.sum())
    below, equal = first[zeros], first[zeros] + 1
    total = int((inner + counts).sum())
    found = Tree(
        column=np.full(total, LEAF, dtype=np.intp),
        threshold=np.zeros(total),
        children=np.zeros((total, 2), dtype=np.intp),
        missing_second=np.zeros(total, dtype=bool),
        values=np.zeros((total, leaves.shape[1])),
        set_at=np.full(total, NO_SET, dtype=np.intp),
        sets=splits.sets,
    )
    found.children[at] = np.repeat(place, nodes, axis=0)
    for name in ("column", "threshold", "missing_second", "set_at"):
        getattr(found, name)[at] = np.repeat(getattr(splits, name), nodes)
    last = np.repeat(roots + inner - _starts(counts), counts) + np.arange(len(leaves))
    found.values[last] = leaves
    default = np.where(splits.missing_second, place[:, 1], place[:, 0])[zeros]
    found.threshold[below], found.threshold[equal] = np.nextafter(-ZERO, -1), ZERO
    found.missing_second[below], found.missing_second[equal] = True, False
    found.children[below] = np.stack([below + 2, equal], axis=1)
    found.children[equal] = np.stack([default, below + 2], axis=1)
    return TreeEnsemble(
        layout=layout,
        roots=roots,
        **found._asdict(),
        start=np.zeros(leaves.shape[1]),
        per_round=per_round,
        softmax=True,
    )


def _starts(sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return where parts of these sizes start."""
    return np.cumsum(sizes) - sizes


def _read_sets(
    trees: list[dict[str, str]],
    numbers: Array,
    tree: NDArray[np.intp],
    layout: ColumnLayout,
    columns: NDArray[np.intp],
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where the set of each of S splits starts in the sets, and the sets.

    The splits are in trees `tree` (S,) and test `columns` (S,). A set has a number in its tree and
    is stored as bits in words of 32.
    """
    if not len(numbers):
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=bool)
    # a tree without sets has neither field
    stated = [each if "cat_boundaries" in each else NO_SETS for each in trees]
    bounds, many = _numbers(stated, "cat_boundaries", int)
    words, sizes = _numbers(stated, "cat_threshold", int)
    require(((words >= 0) & (words < 2**32)).all(), "a set is not of 32-bit words")
    number = numbers.astype(np.intp)
    exists = (number == numbers) & (number >= 0) & (number < many[tree] - 1)
    require(exists.all(), "a set does not exist")
    ends = np.cumsum(many) - 1
    require((bounds[_starts(many)[many > 0]] >= 0).all(), "sets in no order")
    within = np.ones(max(len(bounds) - 1, 0), dtype=bool)
    within[ends[(many > 0) & (ends < len(within))]] = False
    require((np.diff(bounds)[within] >= 0).all(), "sets in no order")
    require((bounds[ends[many > 0]] == sizes[many > 0]).all(), "sets of other size")
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little").astype(bool)
    counts, at = layout.levels[columns], _starts(many)[tree] + number
    require((counts > 0).all(), "a categorical split of a numeric column")
    require(counts.sum() <= MAX_SET_ENTRIES, "its sets are too large")
    base, start = 32 * _starts(sizes)[tree], _starts(counts)
    level = np.arange(counts.sum()) - np.repeat(start, counts)
    bit = np.repeat(base + 32 * bounds[at], counts) + level
    inside = bit < np.repeat(base + 32 * bounds[at + 1], counts)
    return start, inside & bits[np.minimum(bit, len(bits) - 1)]
