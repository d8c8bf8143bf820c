"""Trees of fitted classifiers and regressors of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.layout import ColumnLayout
from ratecli.models.tree_formats.arrays import (
    Tree,
    combine_trees,
    sets_of_levels,
)
from ratecli.models.trees import LEAF, NO_SET, TreeEnsemble


def convert_sklearn_trees(model: Any, layout: ColumnLayout) -> TreeEnsemble:
    """Convert a model of a class in `TREE_CONVERTERS`, fitted on `layout.columns(X)`.

    The classes of a classifier are 0 to Q - 1; a regressor becomes trees of one column.

    Raises
    ------
    ValueError
        If it was fitted on another number of columns, has members that are not trees, or splits a
        number by sets of values.
    """
    if model.n_features_in_ != len(layout.levels):
        raise ValueError(f"it was fitted on {model.n_features_in_} of {len(layout.levels)} columns")
    return TREE_CONVERTERS[type(model).__name__](model, layout)


def _convert_tree(model: Any, values: Array, features: NDArray[np.intp] | None = None) -> Tree:
    """Convert a tree of `sklearn.tree`, which may have been fitted on only some `features`."""
    tree = model.tree_
    leaf = tree.children_left < 0
    seen = tree.feature if features is None else features[np.where(leaf, 0, tree.feature)]
    children = np.stack([tree.children_left, tree.children_right], axis=1)
    second = ~np.asarray(tree.missing_go_to_left, dtype=bool)
    no_sets = np.full(len(leaf), NO_SET)
    return Tree(np.where(leaf, LEAF, seen), tree.threshold, children, second, values, no_sets)


def _class_shares(model: Any, classes: int) -> Array:
    """Return the share (N, Q) of each class in the nodes of a tree that may lack some classes.

    For a regressor, return its predictions (N, 1).
    """
    if not hasattr(model, "tree_"):
        raise ValueError(f"a member is not a tree, but {type(model).__name__}")
    counts = model.tree_.value[:, 0, :]
    if not hasattr(model, "classes_"):  # the predictions of a regressor
        return np.asarray(counts, dtype=float)
    shares = np.zeros((len(counts), classes))
    own = np.asarray(model.classes_, dtype=np.intp)
    shares[:, own] = counts / counts.sum(axis=1, keepdims=True)
    return shares


def _convert_average(model: Any, layout: ColumnLayout) -> TreeEnsemble:
    """Average the probabilities over the trees of a forest, or return those of a single tree."""
    start = np.zeros(len(getattr(model, "classes_", (None,))))
    trees = getattr(model, "estimators_", [model])
    features = getattr(model, "estimators_features_", [None] * len(trees))
    parts = (
        _convert_tree(each, _class_shares(each, len(start)) / len(trees), own)
        for each, own in zip(trees, features, strict=True)
    )
    return combine_trees(layout, parts, start, softmax=False, rounded=True)


def _convert_adaboost(model: Any, layout: ColumnLayout) -> TreeEnsemble:
    """Weighted votes of Q classes: +weight for the tree's class, -weight shared by the others."""
    classes = len(model.classes_)
    weights = model.estimator_weights_[: len(model.estimators_)]
    parts = []
    for each, weight in zip(model.estimators_, weights / weights.sum(), strict=True):
        votes = np.eye(classes)[_class_shares(each, classes).argmax(axis=1)]
        values = weight * (votes - (1 - votes) / (classes - 1)) / (classes - 1)
        parts.append(_convert_tree(each, values))
    return combine_trees(layout, parts, np.zeros(classes), softmax=True, rounded=True)


def _convert_boosting(model: Any, layout: ColumnLayout) -> TreeEnsemble:
    """Scores: `learning_rate` times each tree's value, doubled for the exponential loss.

    The start value is what the model's score has besides the values of the trees.
    """
    factor = 2.0 if model.loss == "exponential" else 1.0
    count, is_regressor = model.estimators_.shape[1], not hasattr(model, "classes_")
    parts = (
        _convert_tree(each, factor * model.learning_rate * each.tree_.value[:, 0, 0])._replace(
            value_column=k
        )
        for row in model.estimators_
        for k, each in enumerate(row)
    )
    start, softmax = np.zeros(count), not is_regressor
    trees = combine_trees(layout, parts, start, softmax=softmax, rounded=True)
    score = model.predict if is_regressor else model.decision_function
    scores = factor * np.atleast_1d(score(np.zeros((1, len(layout.levels))))[0])
    start = np.pad(scores, (trees.classes - count, 0))
    return replace(trees, start=start - trees.sums(np.zeros((1, layout.width)))[0])


def _convert_histogram_boosting(model: Any, layout: ColumnLayout) -> TreeEnsemble:
    """Scores; the values already contain the learning rate."""
    is_regressor = not hasattr(model, "classes_")
    if is_regressor and model.loss not in IDENTITY_LOSSES:
        raise ValueError(f"trees of the loss '{model.loss}' cannot be stored")
    # scikit-learn has no public access to these trees
    rounds, start = model._predictors, np.ravel(model._baseline_prediction)  # noqa: SLF001
    order, codes = _histogram_columns(model, layout)
    parts = (
        _convert_histogram_tree(each, layout, order, codes)._replace(value_column=k)
        for row in rounds
        for k, each in enumerate(row)
    )
    return combine_trees(layout, parts, start, softmax=not is_regressor)


def _histogram_columns(
    model: Any, layout: ColumnLayout
) -> tuple[NDArray[np.intp], dict[int, NDArray[np.intp]]]:
    """Return the order in which the trees number the columns, and codes of their categories.

    Those are the bit (L,) of each level in the sets of a column, -1 for levels not seen in fitting.
    """
    columns, preprocessor = np.arange(len(layout.levels)), model._preprocessor  # noqa: SLF001
    if preprocessor is None:
        return columns, {}
    # categories come first
    own = np.asarray(model.is_categorical_, dtype=bool)
    codes = {}
    encoder = preprocessor.named_transformers_["encoder"]
    for c, categories in zip(columns[own].tolist(), encoder.categories_, strict=True):
        if layout.levels[c] < 1:
            raise ValueError("splits by sets of numbers cannot be stored")
        seen = categories[~np.isnan(categories)].astype(np.intp)
        codes[c] = np.full(layout.levels[c], -1)
        codes[c][seen] = np.arange(len(seen))
    return np.concatenate([columns[own], columns[~own]]), codes


def _convert_histogram_tree(
    tree: Any,
    layout: ColumnLayout,
    order: NDArray[np.intp],
    codes: dict[int, NDArray[np.intp]],
) -> Tree:
    nodes = tree.nodes
    leaf, left = nodes["is_leaf"] != 0, nodes["missing_go_to_left"] != 0
    column = np.where(leaf, LEAF, order[np.where(leaf, 0, nodes["feature_idx"])])
    by_set = (nodes["is_categorical"] != 0) & ~leaf

    def members(node: int) -> NDArray[np.intp]:
        own, words = codes[int(column[node])], tree.raw_left_cat_bitsets[nodes["bitset_idx"][node]]
        # a level not seen in fitting is missing
        return np.flatnonzero(np.where(own < 0, left[node], words[own >> 5] >> (own & 31) & 1 == 1))

    of_nodes = map(members, np.flatnonzero(by_set).tolist())
    set_at, sets = sets_of_levels(layout, column, by_set, of_nodes)
    children = np.stack([nodes["left"], nodes["right"]], axis=1).astype(np.intp)
    return Tree(column, nodes["num_threshold"], children, ~left, nodes["value"], set_at, sets)


IDENTITY_LOSSES = ("absolute_error", "quantile", "squared_error")
"""Losses of histogram boosting whose predictions are the sums of the trees' values."""
_AVERAGED = (
    "BaggingClassifier DecisionTreeClassifier ExtraTreeClassifier ExtraTreesClassifier "
    "DecisionTreeRegressor ExtraTreeRegressor ExtraTreesRegressor RandomForestRegressor"
)
TREE_CONVERTERS: dict[str, Callable[[Any, ColumnLayout], TreeEnsemble]] = {
    "AdaBoostClassifier": _convert_adaboost,
    "GradientBoostingClassifier": _convert_boosting,
    "HistGradientBoostingClassifier": _convert_histogram_boosting,
    "GradientBoostingRegressor": _convert_boosting,
    "HistGradientBoostingRegressor": _convert_histogram_boosting,
    "RandomForestClassifier": _convert_average,
    **dict.fromkeys(_AVERAGED.split(), _convert_average),
}
"""Classes of scikit-learn whose trees `convert_sklearn_trees` converts."""
