"""Models of XGBoost, as JSON."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.layout import ColumnLayout
from ratecli.models.tree_formats.arrays import (
    FileColumn,
    Tree,
    combine_trees,
    integers,
    numbers,
    parsing,
    require,
    sets_of_levels,
)
from ratecli.models.trees import LEAF, TreeEnsemble

NO_CHILD = -1
MULTICLASS = ("multi:softmax", "multi:softprob")
REGRESSIONS = ("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror")
"""Objectives for which the sum of the trees is the prediction itself."""
MODEL_PARTS = frozenset(
    ("cats", "gbtree_model_param", "iteration_indptr", "tree_info", "trees", "weight_drop")
)
"""Parts of a booster up to XGBoost 3.4; newer ones could change its scores."""
MAX_CLASSES = 10**6
CUT = "surrogateescape"
"""How Python represents bytes that are no character."""


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
        found = (
            _read_tree(each, layout, weight)._replace(value_column=k)
            for each, k, weight in zip(nodes, of_class.tolist(), weights, strict=True)
        )
        softmax = objective not in REGRESSIONS
        return combine_trees(layout, found, start, softmax=softmax, rounded=True)


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


def _read_tree(stated: dict[str, Any], layout: ColumnLayout, weight: float) -> Tree:
    """Return a tree whose leaves have `weight` times their values."""
    require(stated["tree_param"]["size_leaf_vector"] in {"0", "1"}, "leaves of several values")
    names = ("left_children", "right_children", "split_indices", "split_type", "default_left")
    lists: list[NDArray[Any]] = [
        *(integers(stated[name]) for name in names),
        numbers(stated["split_conditions"]),
    ]
    require(len(set(map(len, lists))) == 1, "the lists of nodes differ in length")
    order = _parents_first(*lists[:2])
    place = np.zeros(len(lists[0]), dtype=np.intp)
    place[order] = np.arange(len(order))
    left, right, column, kind, default, values = (each[order] for each in lists)
    inner = left != NO_CHILD
    require((column[inner] >= 0).all(), "a column does not exist")
    require(np.isin(kind[inner], (0, 1)).all(), "a split is of an unknown kind")
    by_set = inner & (kind != 0)
    members = _read_sets(stated, order[by_set].tolist()) if by_set.any() else ()
    set_at, second = sets_of_levels(layout, column, by_set, members)
    # the first child if below the threshold, as 32-bit floats
    below = np.nextafter(values.astype(np.float32), np.float32(-np.inf)).astype(float)
    return Tree(
        column=np.where(inner, column, LEAF),
        # XGBoost 2 writes NaN as the threshold of a set
        threshold=np.where(inner & ~by_set, below, 0.0),
        children=place[np.stack([left, right], axis=1).astype(np.intp)],
        missing_second=default == 0,
        values=np.where(inner, 0.0, weight * values),
        set_at=set_at,
        sets=~second,
    )


def _parents_first(left: NDArray[np.intp], right: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the nodes that are reached from node 0, parents first; others were pruned.

    Raises ValueError if they are not a tree.
    """
    level, found = np.zeros(1, dtype=np.intp), list[NDArray[np.intp]]()
    reached = np.zeros(len(left), dtype=np.intp)
    while len(level):
        require(((level >= 0) & (level < len(left))).all(), "a child does not exist")
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


def xgboost_columns(content: bytes) -> list[FileColumn]:
    """Return the columns of XGBoost's JSON.

    Before version 3.1 it does not say what the codes of categories stand for.

    Raises
    ------
    ValueError
        If it is not XGBoost's, or does not name its columns.
    """
    with parsing("XGBoost"):
        learner = json.loads(content)["learner"]
        names, kinds = learner["feature_names"], learner["feature_types"]
        require(names, "it does not name its columns, as a model trained on a DataFrame does")
        require(all(isinstance(name, str) for name in names), "a name is not text")
        booster = learner["gradient_booster"]
        model = booster.get("gbtree", booster)["model"]
        listed = model.get("cats", {}).get("enc") or [{}] * len(names)
        most = max((max(tree["categories"], default=0) for tree in model["trees"]), default=0)
        columns = []
        for name, kind, stated in zip(names, kinds, listed, strict=True):
            words = _category_words(stated) if kind == "c" else None
            if kind != "c":
                columns.append(FileColumn(name))
            elif words:
                columns.append(FileColumn(name, len(words), words, "refused"))
            else:
                columns.append(FileColumn(name, int(most) + 2, None, "last"))
        return columns


def cut_word(word: str) -> str:
    """Return a word as XGBoost 3.2 writes it."""
    return word.encode(errors=CUT)[: len(word)].decode(errors=CUT)


def _category_words(stated: dict[str, Any]) -> tuple[Any, ...]:
    """Return the categories of a column: numbers, or words in one list of UTF-8 bytes.

    XGBoost 3.2 cuts a word of n characters after n bytes (see `cut_word`).
    """
    values = stated.get("values", [])
    if "offsets" not in stated:
        return tuple(values)
    text, ends = bytes(value & 255 for value in values), integers(stated["offsets"]).tolist()
    return tuple(text[a:b].decode(errors=CUT) for a, b in pairwise(ends))
