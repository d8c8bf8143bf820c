"""Models of CatBoost, as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.layout import ColumnLayout
from ratecli.models.tree_formats.arrays import (
    Tree,
    append_leaves,
    check_leaves,
    combine_trees,
    integers,
    numbers,
    parsing,
    place_in_column,
    require,
)
from ratecli.models.trees import NO_SET, TreeEnsemble

OBJECTIVES = ("CrossEntropy", "Logloss", "MultiClass")
MAX_DEPTH = 16


def read_catboost(content: bytes, layout: ColumnLayout) -> TreeEnsemble:
    """Read the JSON of CatBoost's `save_model(format="json")`, fitted on `layout.columns(X)`.

    The classifier is binary or multiclass. All its features are numbers and its trees oblivious
    (the default): level i of a tree has one split for all its nodes.

    Raises
    ------
    ValueError
        If the content is not such a classifier of these columns.
    """
    with parsing("CatBoost"):
        model = json.loads(content)
        objective = model["model_info"]["params"]["loss_function"]["type"]
        require(objective in OBJECTIVES, f"the objective is '{objective}'")
        require("oblivious_trees" in model, "its trees are not oblivious")
        scale, bias = model["scale_and_bias"]
        start = numbers(bias)
        count = len(start)
        require((count == 1) == (objective != "MultiClass"), "scores of other size")
        (scale,) = numbers([scale])
        columns, second = _read_features(model["features_info"]["float_features"], layout)
        stated = model["oblivious_trees"]
        leaves = [scale * numbers(each["leaf_values"]) for each in stated]
        check_leaves(leaves, 2)
        trees = [
            _read_tree(each["splits"], values, count, columns, second)
            for each, values in zip(stated, leaves, strict=True)
        ]
        if count == 1:
            start = np.append(0.0, start)
        return combine_trees(layout, trees, start=start, rounded=True, softmax=True)


def _read_features(
    stated: list[dict[str, Any]], layout: ColumnLayout
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the column (F,) of each feature, and whether missing numbers are above all others."""
    columns = integers([each["flat_feature_index"] for each in stated])
    require(((columns >= 0) & (columns < len(layout.levels))).all(), "a column does not exist")
    above = [each.get("nan_value_treatment", "AsIs") == "AsTrue" for each in stated]
    return columns, np.array(above, dtype=bool)


def _read_tree(
    stated: list[dict[str, Any]],
    leaves: Array,
    count: int,
    columns: NDArray[np.intp],
    second: NDArray[np.bool_],
) -> Tree:
    """Return the tree of D splits: node h has the children 2h + 1 and 2h + 2.

    Bit i of a leaf's index tells the side of split i, so the last split is the root's.
    """
    depth = len(stated)
    require(depth <= MAX_DEPTH and len(leaves) == count << depth, "leaves of other number")
    require(all(each["split_type"] == "FloatFeature" for each in stated), "splits of categories")
    feature = integers([each["float_feature_index"] for each in reversed(stated)])
    require(((feature >= 0) & (feature < len(columns))).all(), "a feature does not exist")
    borders = numbers([0.0, *(each["border"] for each in reversed(stated))])[1:]
    require(not np.isnan(borders).any(), "a border is not a number")
    sizes = 1 << np.arange(depth)
    nodes = np.arange((1 << depth) - 1, dtype=np.intp)
    tree = Tree(
        column=np.repeat(columns[feature], sizes),
        threshold=np.repeat(borders, sizes),
        children=np.stack([2 * nodes + 1, 2 * nodes + 2], axis=1),
        missing_second=np.repeat(second[feature], sizes),
        values=np.zeros((len(nodes), max(count, 2))),
        set_at=np.full(len(nodes), NO_SET),
    )
    if count == 1:
        return append_leaves(tree, place_in_column(leaves, 0, 1))
    return append_leaves(tree, leaves.reshape(-1, count))
