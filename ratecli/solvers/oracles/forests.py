"""Conversion of scikit-learn's trees, forests and boosting models to plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.trees import LEAF, TreeEnsemble


@dataclass(frozen=True)
class _TreeArrays:
    """One tree: `feature` (N,), `threshold` (N,), `children` (N, 2) and `values` (N, Q)."""

    feature: NDArray[np.intp]
    threshold: Array
    children: NDArray[np.intp]
    values: Array


def _combine_trees(width: int, parts: Iterable[_TreeArrays], **more: Any) -> TreeEnsemble:
    trees = list(parts)
    roots = np.cumsum([0, *(len(part.feature) for part in trees)])[:-1]
    moved = [part.children + root for part, root in zip(trees, roots, strict=True)]
    return TreeEnsemble(
        width,
        roots.astype(np.intp),
        np.concatenate([part.feature for part in trees]),
        np.concatenate([part.threshold for part in trees]),
        np.concatenate(moved),
        np.concatenate([part.values for part in trees]),
        **more,
    )


def _tree_arrays(tree: Any, values: Array, features: NDArray[np.intp] | None = None) -> _TreeArrays:
    """Convert a tree of `sklearn.tree`, which may have been fitted on only some `features`."""
    leaf = tree.children_left < 0
    seen = tree.feature if features is None else features[np.where(leaf, 0, tree.feature)]
    children = np.stack([tree.children_left, tree.children_right], axis=1)
    return _TreeArrays(np.where(leaf, LEAF, seen), tree.threshold, children, values)


def _class_shares(model: Any, classes: int) -> Array:
    """Return the share (N, Q) of each class in the nodes of a tree that may lack some classes."""
    counts = model.tree_.value[:, 0, :]
    shares = np.zeros((len(counts), classes))
    own = np.asarray(model.classes_, dtype=np.intp)
    shares[:, own] = counts / counts.sum(axis=1, keepdims=True)
    return shares


def _convert_average(model: Any) -> TreeEnsemble:
    """Average the probabilities over the trees of a forest, or return those of a single tree."""
    start, trees = np.zeros(len(model.classes_)), getattr(model, "estimators_", [model])
    features = getattr(model, "estimators_features_", [None] * len(trees))
    parts = (
        _tree_arrays(each.tree_, _class_shares(each, len(start)) / len(trees), own)
        for each, own in zip(trees, features, strict=True)
    )
    return _combine_trees(model.n_features_in_, parts, start=start, rounded=True)


def _convert_adaboost(model: Any) -> TreeEnsemble:
    """Weighted votes of Q classes: +weight for the tree's class, -weight shared by the others."""
    classes = len(model.classes_)
    weights = model.estimator_weights_[: len(model.estimators_)]
    parts = []
    for each, weight in zip(model.estimators_, weights / weights.sum(), strict=True):
        votes = np.eye(classes)[_class_shares(each, classes).argmax(axis=1)]
        values = weight * (votes - (1 - votes) / (classes - 1)) / (classes - 1)
        parts.append(_tree_arrays(each.tree_, values))
    start = np.zeros(classes)
    return _combine_trees(model.n_features_in_, parts, start=start, rounded=True, softmax=True)


def _convert_boosting(model: Any) -> TreeEnsemble:
    """Log-odds: `learning_rate` times each tree's value, doubled for the exponential loss."""
    factor = model.learning_rate * (2.0 if model.loss == "exponential" else 1.0)
    count = model.estimators_.shape[1]
    parts = [
        _tree_arrays(each.tree_, factor * _place_in_column(each.tree_.value[:, 0, 0], k, count))
        for row in model.estimators_
        for k, each in enumerate(row)
    ]
    return _combine_boosted_trees(model, parts, count, factor / model.learning_rate, rounded=True)


def _convert_histogram_boosting(model: Any) -> TreeEnsemble:
    """Log-odds; the values already contain the learning rate.

    Raises
    ------
    ValueError
        If the model splits by sets of values (`categorical_features`).
    """
    parts = []
    for row in model._predictors:  # noqa: SLF001  scikit-learn has no public access to these trees
        for k, each in enumerate(row):
            nodes = each.nodes
            if nodes["is_categorical"].any():
                raise ValueError("splits by sets of values cannot be stored")
            children = np.stack([nodes["left"], nodes["right"]], axis=1).astype(np.intp)
            feature = np.where(nodes["is_leaf"] != 0, LEAF, nodes["feature_idx"]).astype(np.intp)
            values = _place_in_column(nodes["value"], k, len(row))
            parts.append(_TreeArrays(feature, nodes["num_threshold"], children, values))
    return _combine_boosted_trees(model, parts, len(model._predictors[0]), 1.0)  # noqa: SLF001


def _place_in_column(values: Array, k: int, count: int) -> Array:
    """Return (N, Q) values with those given in column k, or in the second if there is only one."""
    columns = np.zeros((len(values), max(count, 2)))
    columns[:, k + (count == 1)] = values
    return columns


def _combine_boosted_trees(
    model: Any, parts: list[_TreeArrays], count: int, factor: float, *, rounded: bool = False
) -> TreeEnsemble:
    """Combine boosted trees.

    The start value is what the model's score has besides the values of the trees.
    """
    width, none = model.n_features_in_, np.zeros(max(count, 2))
    trees = _combine_trees(width, parts, start=none, rounded=rounded, softmax=False)
    row = np.zeros((1, width))
    scores = factor * np.atleast_1d(model.decision_function(row)[0])
    start = np.append(0.0, scores) if count == 1 else scores
    start = start - trees.probabilities(row)[0]
    return _combine_trees(width, parts, start=start, rounded=rounded, softmax=True)


_AVERAGED = "BaggingClassifier DecisionTreeClassifier ExtraTreeClassifier ExtraTreesClassifier"
TREE_CONVERTERS: dict[str, Callable[[Any], TreeEnsemble]] = {
    "AdaBoostClassifier": _convert_adaboost,
    "GradientBoostingClassifier": _convert_boosting,
    "HistGradientBoostingClassifier": _convert_histogram_boosting,
    "RandomForestClassifier": _convert_average,
    **dict.fromkeys(_AVERAGED.split(), _convert_average),
}
