"""Oracles that fit scikit-learn classifiers, by the cheaper decision or by probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import ARGMAX_COSTS, CostSensitiveClassifier, GroupThreshold
from ratecli.models.linear import Threshold
from ratecli.models.probabilities import LEAF, SklearnModel, TreeEnsemble
from ratecli.rates.sample import Mask
from ratecli.solvers.fit_cache import FitCache, array_digest
from ratecli.solvers.liblinear import to_int32_indices
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.oracles.choice import CLASSIFIER_MODULES
from ratecli.solvers.problem import ERROR_RATE, Groups

MAX_DENSE_ROW_ENTRIES = 2**28
"""Largest number of entries of a feature matrix that is made dense (2 GiB)."""


def classifier_class(name: str) -> type[BaseEstimator]:
    """Return scikit-learn's classifier of a name in `CLASSIFIER_MODULES`."""
    estimator: type[BaseEstimator] = getattr(import_module(CLASSIFIER_MODULES[name]), name)
    return estimator


def parameter_error(estimator: type[BaseEstimator], key: str, value: Any) -> str | None:
    """Return scikit-learn's message if it does not accept a parameter's value."""
    try:
        # private, but `fit` runs the same check first
        estimator(**{key: value})._validate_params()  # noqa: SLF001
    except (ValueError, TypeError) as error:
        return " ".join(str(error).split())
    return None


def make_estimator(
    name: str, options: Mapping[str, Any], rng: np.random.Generator
) -> BaseEstimator:
    """Return the unfitted classifier, seeded from `rng` unless `random_state` is given."""
    model = classifier_class(name)(**options)
    if "random_state" in model.get_params() and "random_state" not in options:
        model.set_params(random_state=int(rng.integers(2**31)))
    return model


class _TreeArrays(NamedTuple):
    """One tree: `feature` (N,), `threshold` (N,), `children` (N, 2) and `values` (N, Q)."""

    feature: NDArray[np.intp]
    threshold: Array
    children: NDArray[np.intp]
    values: Array


def _combine_trees(width: int, parts: Iterable[_TreeArrays], **more: Any) -> TreeEnsemble:
    trees = list(parts)
    roots = np.cumsum([0, *(len(part.feature) for part in trees)])[:-1].astype(np.intp)
    pairs = zip(trees, roots, strict=True)
    moved = [part._replace(children=part.children + root) for part, root in pairs]
    feature, threshold, children, values = map(np.concatenate, zip(*moved, strict=True))
    return TreeEnsemble(width, roots, feature, threshold, children, values, **more)


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
    trees = _combine_trees(width, parts, start=none, rounded=rounded)
    row = np.zeros((1, width))
    scores = factor * np.atleast_1d(model.decision_function(row)[0])
    start = np.append(0.0, scores) if count == 1 else scores
    return replace(trees, start=start - trees.probabilities(row)[0], softmax=True)


_AVERAGED = "BaggingClassifier DecisionTreeClassifier ExtraTreeClassifier ExtraTreesClassifier"
TREE_CONVERTERS: dict[str, Callable[[Any], TreeEnsemble]] = {
    "AdaBoostClassifier": _convert_adaboost,
    "GradientBoostingClassifier": _convert_boosting,
    "HistGradientBoostingClassifier": _convert_histogram_boosting,
    "RandomForestClassifier": _convert_average,
    **dict.fromkeys(_AVERAGED.split(), _convert_average),
}


CACHED_ESTIMATORS = 8
"""Number of most recently used fits that are kept."""
_estimator_cache = FitCache[TreeEnsemble | SklearnModel](CACHED_ESTIMATORS)


def fit_estimator(
    model: BaseEstimator, X: Features, classes: NDArray[np.intp], weights: Array
) -> TreeEnsemble | SklearnModel:
    """Fit the classifier to rows X (m, d) of `classes` (m,), 0 to Q - 1, with weights (m,) > 0.

    The result of an identical recent fit is reused. A `random_state` must be an integer, which
    `make_estimator` ensures.

    Raises
    ------
    FaultError
        E501 if it rejects the rows or the options, or cannot be stored.
    """
    name = type(model).__name__

    def fit() -> TreeEnsemble | SklearnModel:
        with warnings.catch_warnings():
            # an oracle may be approximate: accept a fit that stopped early
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", FutureWarning)
            model.fit(_accepted_features(model, X), classes, sample_weight=weights)
        return TREE_CONVERTERS[name](model) if name in TREE_CONVERTERS else SklearnModel(model)

    parameters = (type(model).__qualname__, sorted(model.get_params().items(), key=str))
    try:
        return _estimator_cache.get(array_digest(parameters, X, classes, weights), fit)
    except (ValueError, TypeError) as error:
        message = f"{name} cannot be fitted: {' '.join(str(error).split())}"
        raise FaultError(Diagnostic("E501", message)) from error


def _accepted_features(model: BaseEstimator, X: Features) -> Features:
    """Return X in a form that the classifier accepts: sparse if it can."""
    if isinstance(X, np.ndarray):
        return X
    if get_tags(model).input_tags.sparse:
        return to_int32_indices(X)
    if X.shape[0] * X.shape[1] > MAX_DENSE_ROW_ENTRIES:
        raise ValueError(f"it needs dense rows, and {X.shape[0]} x {X.shape[1]} are too many")
    return np.asarray(X.toarray())


@dataclass(frozen=True)
class EstimatorOracle:
    """Base of the oracles that fit scikit-learn classifiers.

    Attributes
    ----------
    rows
        The training rows, with memberships in slices if there are some.
    name
        A class of scikit-learn.
    options
        Its parameters.
    """

    starts: ClassVar[bool] = False
    rows: OracleRows
    name: str
    options: Mapping[str, Any]
    rng: np.random.Generator

    def fitted(
        self, used: NDArray[np.intp], classes: NDArray[np.intp], weights: Array
    ) -> TreeEnsemble | SklearnModel:
        """Fit a new classifier to the features of the rows `used` (m,), without slices.

        The weights are scaled to add up to the number of rows. Raises FaultError, E501, as
        `fit_estimator` does.
        """
        X = self.rows.X[:, : self.rows.width][used]
        model = make_estimator(self.name, self.options, self.rng)
        return fit_estimator(model, X, classes, weights * (self.rows.count / weights.sum()))


@dataclass(frozen=True)
class ClassifierOracle(EstimatorOracle):
    """Fits a classifier to the cheaper decision of each row, weighted by the difference in cost.

    Rows where a positive decision has negative cost get label 1, and the absolute cost is the
    weight. Then the weighted error is the cost up to a constant (Agarwal et al. 2018, section 3.2;
    Algorithm 1 of Narasimhan et al. 2019 requires no more).
    """

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Fit the classifier; raise FaultError, E501, if it rejects its options or the rows."""
        costs = self.rows.costs(prices)
        used = np.flatnonzero(costs)
        cheap = costs[used] < 0
        if cheap.all() or not cheap.any():
            return self.rows.constant(yes=bool(cheap.all()))
        model = self.fitted(used, cheap.astype(np.intp), np.abs(costs[used]))
        line = _as_linear_threshold(model.model) if isinstance(model, SklearnModel) else None
        return line or CostSensitiveClassifier(model, ARGMAX_COSTS)


def _as_linear_threshold(model: BaseEstimator) -> Threshold | None:
    """Return the classifier as a linear threshold; None if it is not linear."""
    weights = getattr(model, "coef_", None)
    if not (isinstance(weights, np.ndarray) and weights.shape == (1, model.n_features_in_)):
        return None
    bias = np.ravel(model.intercept_)
    return Threshold(weights[0].astype(float), float(bias[0]))


OUTER_THRESHOLD = 2.0
"""A threshold beyond all scores, which are differences of two probabilities."""


@dataclass(frozen=True)
class GroupPlugInOracle(EstimatorOracle):
    """Thresholds the probability of a positive label separately in each group (COCO: Narasimhan
    2018).

    In a group where a positive decision costs `a` for a positive label and `b > a` for a negative
    one, its expected cost is negative where the probability is above `b / (b - a)`. If b is not
    above a, the whole group gets the decision that is cheaper in total. Costs that differ within a
    group and label, such as those that depend on decisions of a deployed model, are replaced by
    their mean there. The class must have `predict_proba`.
    """

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Return the group thresholds; raise FaultError, E501, if a fit fails."""
        positive, negative, unlabelled = self._labels
        costs = self._weights * self.rows.kind_costs(prices)
        labelled = self._weights[:, ~unlabelled].sum(axis=1)
        spread = _safe_quotient(costs[:, unlabelled].sum(axis=1), labelled)
        a, b = (
            _safe_quotient(costs[:, own].sum(axis=1), self._weights[:, own].sum(axis=1)) + spread
            for own in (positive, negative)
        )
        cheaper = np.where(costs.sum(axis=1) < 0, -OUTER_THRESHOLD, OUTER_THRESHOLD)
        thresholds = np.where((b > a) & (labelled > 0), _safe_quotient(b + a, b - a), cheaper)
        thresholds = thresholds.clip(-OUTER_THRESHOLD, OUTER_THRESHOLD)
        return GroupThreshold(self._scorer, self._groups.slices, self._groups.patterns, thresholds)

    @cached_property
    def _groups(self) -> Groups:
        """Groups of the training rows."""
        return Groups.by(self.rows.slices, self.rows.members > 0)

    @cached_property
    def _weights(self) -> Array:
        """(C, Q) weight of each kind in each group."""
        inside = np.eye(len(self._groups.patterns))[self._groups.of]
        return np.asarray((self.rows.shares @ inside).T)

    @cached_property
    def _labels(self) -> tuple[Mask, Mask, Mask]:
        """Three masks (Q,): kinds with a positive label, with a negative one, and without a label.

        They follow from the error rate: a positive decision adds to it where the label is negative.
        """
        kinds = self.rows.kinds
        wrong = kinds.patterns[kinds.matrix.index()[ERROR_RATE]]
        return wrong < 0, wrong > 0, wrong == 0

    @cached_property
    def _scorer(self) -> CostSensitiveClassifier | Threshold:
        """Its score is the probability of a positive label minus that of a negative one."""
        positive, negative, _ = self._labels
        shares = np.stack([self.rows.shares[own].sum(axis=0) for own in (negative, positive)])
        labels, used = np.nonzero(shares)
        if len(np.unique(labels)) < 2:
            return Threshold(np.zeros(self.rows.width), 1.0 if labels.any() else -1.0)
        model = self.fitted(used, labels, shares[labels, used])
        return CostSensitiveClassifier(model, ARGMAX_COSTS)


def _safe_quotient(top: Array, bottom: Array) -> Array:
    """Divide; 0 where the denominator is not positive."""
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


@dataclass(frozen=True)
class PlugInOracle(EstimatorOracle):
    """Decides positively where the expected cost of that is negative.

    This is the plug-in classifier of COCO (Narasimhan 2018) and the cost-sensitive oracle of
    Narasimhan, Cotter, Gupta 2019, table 2. The cost of a positive decision depends on the row's
    kind: its label and every slice that the rates distinguish. The probabilities of the kinds given
    the features are fitted, so a group counts as far as the features predict it: it gets its own
    threshold if it is a feature or follows from features. Group membership itself is not an input,
    neither in training nor later. The class must have `predict_proba`; a logistic regression is
    regularized by default.

    Attributes
    ----------
    known
        An oracle for the same rows with other weights that depend on the features alone. Its
        probabilities given the features are the same, so they are not fitted again.
    """

    known: PlugInOracle | None = None

    def weighing(self, rows: OracleRows) -> PlugInOracle:
        """Return an oracle with the same probabilities for other row weights."""
        return replace(self, rows=rows, known=self.known or self)

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Weigh the probabilities by costs; raise FaultError, E501, if they cannot be fitted."""
        kinds, model = self.kind_model
        costs = self.rows.kind_costs(prices)[kinds]
        if model is None:
            return self.rows.constant(yes=bool(costs.sum() < 0))
        return CostSensitiveClassifier(model, costs)

    @cached_property
    def kind_model(self) -> tuple[NDArray[np.intp], TreeEnsemble | SklearnModel | None]:
        """The kinds that occur, and the fit of their probabilities; None if there is only one."""
        if self.known:
            return self.known.kind_model
        shares = sparse.coo_array(self.rows.shares)
        shares.eliminate_zeros()
        places, used = shares.coords
        kinds, classes = np.unique(places, return_inverse=True)
        return kinds, self.fitted(used, classes, shares.data) if len(kinds) > 1 else None
