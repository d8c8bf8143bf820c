"""Models of LightGBM, as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.layout import NUMBER, ColumnLayout
from ratecli.models.tree_formats.arrays import (
    FileColumn,
    Tree,
    combine_trees,
    parsing,
    require,
    sets_of_levels,
)
from ratecli.models.trees import TreeEnsemble

CATEGORICAL, DEFAULT_LEFT = 1, 2
MISSING_SHIFT, ZERO_MISSING = 2, 1
"""Bits of LightGBM's `decision_type`; missing numbers count as 0 below `ZERO_MISSING`."""
REGRESSIONS = ("regression", "regression_l1", "huber", "fair", "quantile", "mape")
"""Objectives for which the sum of the trees is the prediction itself; `sqrt` would change that."""


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
        trees = (
            _read_tree(text_fields(part), layout, factor)._replace(value_column=k % count)
            for k, part in enumerate(parts)
        )
        is_regressor = objective in REGRESSIONS
        start = np.zeros(count)
        return combine_trees(layout, trees, start, softmax=not is_regressor)


def lightgbm_columns(text: str, is_text: Callable[[str], bool]) -> list[FileColumn]:
    """Return the columns of a text of LightGBM; `is_text` says which ones hold text in the table.

    The text does not name the columns of its lists of categories. They are, in the order of the
    columns, those that the trees use as categories, and other columns of text, such as ordered
    categories.

    Raises
    ------
    ValueError
        If the text is not LightGBM's, or has lists of categories for other columns.
    """
    with parsing("LightGBM"):
        fields = text_fields(text.partition("\nTree=")[0])
        names, ranges = (fields[key].split() for key in ("feature_names", "feature_infos"))
        require(len(names) == len(ranges), "names of other columns")
        coded = [text != "none" and not text.startswith("[") for text in ranges]
        _, found, stated = text.rpartition("\npandas_categorical:")
        lists = (json.loads(stated) if found else None) or []
        own = [k for k, name in enumerate(names) if coded[k] or is_text(name)] if lists else []
        require(len(own) == len(lists), f"{len(lists)} lists of categories for {len(own)} columns")
        words = {k: tuple(listed) for k, listed in zip(own, lists, strict=True)}
        columns = []
        for k, name in enumerate(names):
            codes = [int(code) for code in ranges[k].split(":")] if coded[k] else []
            count = max([len(words.get(k, ())), *(code + 1 for code in codes)])
            levels = count if coded[k] else NUMBER
            columns.append(FileColumn(name, levels, words.get(k), used=ranges[k] != "none"))
        return columns


def text_fields(text: str) -> dict[str, str]:
    """Return the values of the lines `key=value`."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _log_odds_factor(objective: str, count: int) -> float:
    """Return the factor that makes scores of `count` trees a round log-odds or predictions."""
    name, *options = objective.split() or [""]
    if name == "binary" and count == 1:
        stated = dict(each.split(":", 1) for each in options if ":" in each)
        return float(stated.get("sigmoid", 1))
    known = name in {"cross_entropy", "multiclass", ""} or (objective in REGRESSIONS and count == 1)
    require(known, f"the objective is '{objective}'")
    return 1.0


def _read_tree(stated: dict[str, str], layout: ColumnLayout, factor: float) -> Tree:
    """Return a tree: its splits, then its leaves."""

    def numbers(name: str, kind: type = int) -> NDArray[Any]:
        return np.array(stated[name].split(), dtype=kind)

    values = factor * numbers("leaf_value", float)
    leaves, splits = len(values), len(values) - 1
    require(leaves == int(stated["num_leaves"]) > 0, "a tree without leaves")
    require(stated.get("is_linear", "0") == "0", "its leaves are linear models")
    column, kind = numbers("split_feature"), numbers("decision_type")
    threshold = numbers("threshold", float)
    left, right = numbers("left_child"), numbers("right_child")
    fits = {splits} == set(map(len, (column, kind, threshold, left, right)))
    require(fits, "a tree of other size")
    require((column >= 0).all(), "a column does not exist")
    children = np.stack([left, right], axis=1)
    children = np.where(children < 0, splits - 1 - children, children)  # leaf j is -1 - j
    by_set, missing = kind & CATEGORICAL != 0, kind >> MISSING_SHIFT
    require((by_set | (missing != ZERO_MISSING)).all(), "it takes zeros for missing values")
    as_zero = ~by_set & (missing < ZERO_MISSING)
    second = np.where(as_zero, threshold < 0, by_set | (kind & DEFAULT_LEFT == 0))
    members = _sets(numbers, threshold[by_set]) if by_set.any() else ()
    set_at, sets = sets_of_levels(layout, column, by_set, members)
    return Tree.of_splits(
        column=column,
        threshold=threshold,
        children=children,
        missing_second=second,
        values=values,
        set_at=set_at,
        sets=sets,
    )


def _sets(numbers: Callable[[str], NDArray[Any]], at: Array) -> list[NDArray[np.intp]]:
    """Return the levels of the sets with the numbers `at` (S,), stored as bits in words of 32."""
    bounds, words = numbers("cat_boundaries"), numbers("cat_threshold")
    require(((words >= 0) & (words < 2**32)).all(), "a set is not of 32-bit words")
    ordered = (np.diff(bounds) >= 0).all() and (bounds[[0, -1]] == (0, len(words))).all()
    require(ordered, "sets of other size, or in no order")
    exists = np.isin(at, np.arange(len(bounds) - 1)).all()
    require(exists, "a set does not exist")
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")
    ends = 32 * bounds
    return [np.flatnonzero(bits[ends[k] : ends[k + 1]]) for k in at.astype(np.intp)]
