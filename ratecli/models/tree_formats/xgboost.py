"""Models of XGBoost, as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.layout import ColumnLayout
from ratecli.models.tree_formats.arrays import (
    Tree,
    as_regressor,
    check_leaves,
    combine_trees,
    integers,
    numbers,
    parsing,
    place_in_column,
    require,
    sets_of_levels,
)
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble

NO_CHILD = -1
MULTICLASS = ("multi:softmax", "multi:softprob")
REGRESSIONS = ("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror")
"""Objectives for which the sum of the trees is the prediction itself."""
MODEL_PARTS = frozenset(
    ("cats", "gbtree_model_param", "iteration_indptr", "tree_info", "trees", "weight_drop")
)
"""Parts of a booster up to XGBoost 3.4; newer ones could change its scores."""
MAX_CLASSES = 10**6
MAX_FLOAT = float(np.finfo(np.float32).max)


def read_xgboost(content: bytes, layout: ColumnLayout) -> TreeEnsemble:
    """Read the JSON of XGBoost's `Booster.save_raw("json")`, fitted on `layout.columns(X)`.

    The model is a binary or multiclass classifier, or a regressor whose scores are its predictions.
    XGBoost sums 32-bit floats, so its scores differ by their rounding.

    Raises
    ------
    ValueError
        If the content is not such a model of these columns.
    """
    with parsing("XGBoost"):
        learner = json.loads(content)["learner"]
        booster, stated = learner["gradient_booster"], learner["learner_model_param"]
        width, columns = int(stated["num_feature"]), len(layout.levels)
        require(width == columns, f"{width} columns instead of {columns}")
        objective = learner["objective"]["name"]
        start = _read_start(objective, stated)
        dropout: Any = None
        if booster["name"] == "dart":
            dropout, booster = booster["weight_drop"], booster["gbtree"]
        require(booster["name"] == "gbtree", f"the booster is '{booster['name']}'")
        model = booster["model"]
        unknown = set(model) - MODEL_PARTS
        require(not unknown, f"the meaning of {sorted(unknown)} is unknown")
        nodes, count = model["trees"], len(start)
        of_class = integers(model["tree_info"])
        # XGBoost 3.4 moved them
        weights = numbers(dropout or model.get("weight_drop") or [1.0] * len(nodes))
        require(len(nodes) == len(of_class) == len(weights), "the lists of trees differ in length")
        require(((of_class >= 0) & (of_class < count)).all(), "a tree of no class")
        check_leaves([each["split_conditions"] for each in nodes], count)
        found = []
        for each, k, weight in zip(nodes, of_class.tolist(), weights, strict=True):
            tree, leaves = _read_tree(each, layout)
            found.append(tree._replace(values=place_in_column(weight * leaves, k, count)))
        per_round = count * int(model["gbtree_model_param"]["num_parallel_tree"])
        if count == 1:
            start = np.append(0.0, start)
        more: dict[str, Any] = {"rounded": True, "softmax": True}
        trees = combine_trees(layout, found, start=start, per_round=per_round, **more)
        return as_regressor(trees) if objective in REGRESSIONS else trees


def _read_start(objective: str, stated: dict[str, str]) -> Array:
    """Return the initial scores, one for each tree of a round.

    `base_score` is a number, or from XGBoost 3.1 on a list.
    """
    base = np.atleast_1d(np.array(json.loads(stated["base_score"]), dtype=np.float32))
    count = int(stated["num_class"])
    require(stated.get("num_target", "1") == "1", "several targets")
    if objective in MULTICLASS:
        require(0 < count <= MAX_CLASSES, f"{count} classes")
        require(base.shape in {(1,), (count,)}, "as many initial scores as classes")
        return np.broadcast_to(base, (count,)).astype(float)
    require(base.shape == (1,), "more than one initial score")
    if objective == "binary:logistic":
        require(0 < base[0] < 1, "the initial chance is not in (0, 1)")
        base = -np.log(1 / base - 1)
    else:
        known = objective in {"binary:logitraw", *REGRESSIONS}
        require(known, f"the objective is '{objective}'")
    return base.astype(float)


def _read_tree(stated: dict[str, Any], layout: ColumnLayout) -> tuple[Tree, Array]:
    """Return a tree without its values, and its leaves' values (N,)."""
    require(stated["tree_param"]["size_leaf_vector"] in {"0", "1"}, "leaves of several values")
    names = ("left_children", "right_children", "split_indices", "split_type", "default_left")
    lists = [integers(stated[name]) for name in names]
    left, right, column, kind, default = lists
    cuts = numbers(stated["split_conditions"])
    require({len(cuts)} == set(map(len, lists)), "the lists of nodes differ in length")
    order = _nodes_in_order(left, right)
    place = np.zeros(len(cuts), dtype=np.intp)
    place[order] = np.arange(len(order))
    children = np.stack([place[left[order]], place[right[order]]], axis=1)
    inner = left[order] != NO_CHILD
    column, values, sets = column[order], cuts[order], inner & (kind[order] != 0)
    own = column[inner]
    require(((own >= 0) & (own < len(layout.levels))).all(), "a column does not exist")
    require(np.isin(kind[order][inner], (0, 1)).all(), "a split is of an unknown kind")
    # XGBoost 2 writes NaN as the threshold of a set
    values = np.where(sets, 0.0, values)
    require((np.abs(values) <= MAX_FLOAT).all(), "a threshold or value is not a 32-bit number")

    set_at, levels = np.full(len(order), NO_SET, dtype=np.intp), np.zeros(0, dtype=bool)
    if sets.any():
        members = _read_sets(stated, order[sets].tolist())
        set_at[sets], second = sets_of_levels(layout, column[sets], members)
        levels = ~second
    # the first child if below the threshold, as 32-bit floats
    below = np.nextafter(values.astype(np.float32), np.float32(-np.inf)).astype(float)
    tree = Tree(
        column=np.where(inner, column, LEAF),
        threshold=np.where(inner, below, 0.0),
        children=children,
        missing_second=default[order] == 0,
        values=np.zeros((0, 0)),
        set_at=set_at,
        sets=levels,
    )
    return tree, np.where(inner, 0.0, values)


def _nodes_in_order(left: NDArray[np.intp], right: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the nodes that are reached from node 0, parents first; others were pruned.

    Raises ValueError if they are not a tree.
    """
    count, level, found = len(left), np.zeros(1, dtype=np.intp), list[NDArray[np.intp]]()
    require(count > 0, "a tree without nodes")
    reached = np.zeros(count, dtype=np.intp)
    while len(level):
        require(((level >= 0) & (level < count)).all(), "a child does not exist")
        np.add.at(reached, level, 1)
        require((reached[level] == 1).all(), "the nodes are not a tree")
        found.append(level)
        inner = level[left[level] != NO_CHILD]
        level = np.concatenate([left[inner], right[inner]])
    return np.concatenate(found)


def _read_sets(stated: dict[str, Any], nodes: list[int]) -> list[NDArray[np.intp]]:
    """Return the levels that go to the second child, for each of the nodes."""
    names = ("categories_nodes", "categories_segments", "categories_sizes")
    at, starts, sizes = (integers(stated[name]) for name in names)
    levels = integers(stated["categories"])
    ends = starts + sizes
    require(((starts >= 0) & (sizes >= 0) & (ends <= len(levels))).all(), "a set does not exist")
    require((levels >= 0).all(), "a level is negative")
    triples = zip(at.tolist(), starts.tolist(), ends.tolist(), strict=True)
    spans = {node: levels[start:end] for node, start, end in triples}
    return [spans[node] for node in nodes]
