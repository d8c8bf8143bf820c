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
    combine_trees,
    integers,
    numbers,
    parsing,
    require,
)
from ratecli.models.trees import TreeEnsemble

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
        require((len(start) == 1) == (objective != "MultiClass"), "scores of other size")
        stated = model["features_info"]["float_features"]
        columns = integers([each["flat_feature_index"] for each in stated])
        require((columns >= 0).all(), "a column does not exist")
        # whether missing numbers are above all others
        above = np.array([each.get("nan_value_treatment") == "AsTrue" for each in stated])
        trees = (
            _read_tree(each, float(scale), len(start), columns, above)
            for each in model["oblivious_trees"]
        )
        return combine_trees(layout, trees, start, softmax=True, rounded=True)


def _read_tree(
    stated: dict[str, Any],
    scale: float,
    count: int,
    columns: NDArray[np.intp],
    above: NDArray[np.bool_],
) -> Tree:
    """Return the tree of D splits: node h has the children 2h + 1 and 2h + 2.

    Bit i of a leaf's index tells the side of split i, so the last split is the root's.
    """
    splits: list[dict[str, Any]] = stated["splits"][::-1]
    leaves: Array = scale * numbers(stated["leaf_values"])
    depth = len(splits)
    require(depth <= MAX_DEPTH and len(leaves) == count << depth, "leaves of other number")
    require(all(each["split_type"] == "FloatFeature" for each in splits), "splits of categories")
    feature = integers([each["float_feature_index"] for each in splits])
    require(((feature >= 0) & (feature < len(columns))).all(), "a feature does not exist")
    sizes = 1 << np.arange(depth)
    nodes = np.arange(sizes.sum())
    return Tree.of_splits(
        column=np.repeat(columns[feature], sizes),
        threshold=np.repeat(numbers([*(each["border"] for each in splits), 0.0])[:-1], sizes),
        children=np.stack([2 * nodes + 1, 2 * nodes + 2], axis=1),
        missing_second=np.repeat(above[feature], sizes),
        values=leaves.reshape(-1, count),
    )
