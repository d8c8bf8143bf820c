"""Oracles that fit scikit-learn classifiers, by the cheaper decision or by probabilities."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import all_estimators, get_tags

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import ARGMAX_COSTS, CostSensitiveClassifier, GroupThreshold
from ratecli.models.linear import Threshold
from ratecli.models.sklearn_model import SklearnModel
from ratecli.models.trees import TreeEnsemble
from ratecli.rates.sample import Mask
from ratecli.solvers.fit_cache import FitCache, array_digest
from ratecli.solvers.liblinear import to_int32_indices
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.oracles.choice import CLASSIFIER_MODULES
from ratecli.solvers.oracles.forests import TREE_CONVERTERS
from ratecli.solvers.problem import ERROR_RATE, Groups

MAX_DENSE_ROW_ENTRIES = 2**28
"""Largest number of entries of a feature matrix that is made dense (2 GiB)."""
DUMMY_CLASSIFIER = "DummyClassifier"
"""Excluded because its decisions do not depend on the features."""


def classifier_class(name: str) -> type[BaseEstimator]:
    """Return the class of that name, from `CLASSIFIER_MODULES` or `list_classifiers()`."""
    if name not in CLASSIFIER_MODULES:
        return list_classifiers()[name]
    estimator: type[BaseEstimator] = getattr(import_module(CLASSIFIER_MODULES[name]), name)
    return estimator


@cache
def list_classifiers() -> dict[str, type[BaseEstimator]]:
    """Return all scikit-learn classifiers whose parameters all have defaults.

    The first call is slow.
    """

    def has_defaults(estimator: type[BaseEstimator]) -> bool:
        parameters = inspect.signature(estimator).parameters.values()
        return all(each.default is not each.empty for each in parameters)

    classifiers = all_estimators(type_filter="classifier")
    return {
        k: estimator
        for k, estimator in classifiers
        if k != DUMMY_CLASSIFIER and has_defaults(estimator)
    }


@cache
def weighted_classifier_names() -> tuple[str, ...]:
    """Return the names of classifiers whose `fit` takes sample weights, in alphabetical order."""
    return tuple(
        name for name, estimator in list_classifiers().items() if takes_sample_weights(estimator)
    )


def takes_sample_weights(estimator: type[BaseEstimator]) -> bool:
    return "sample_weight" in inspect.signature(estimator.fit).parameters


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
        raise ValueError(f"it takes no sparse rows, and {X.shape[0]} x {X.shape[1]} are too many")
    return np.asarray(X.toarray())


@dataclass(frozen=True)
class EstimatorOracle:
    """Base of the oracles that fit scikit-learn classifiers.

    Attributes
    ----------
    ground
        The rows, with memberships in slices if there are some.
    name
        A class of scikit-learn.
    options
        Its parameters.
    """

    starts: ClassVar[bool] = False
    ground: OracleRows
    name: str
    options: Mapping[str, Any]
    rng: np.random.Generator

    def fitted(
        self, rows: NDArray[np.intp], classes: NDArray[np.intp], weights: Array
    ) -> TreeEnsemble | SklearnModel:
        """Fit a new classifier to the features of `rows` (m,) without slices.

        The weights are scaled to add up to the number of rows. Raises FaultError, E501, as
        `fit_estimator` does.
        """
        X = self.ground.X[:, : self.ground.width][rows]
        model = make_estimator(self.name, self.options, self.rng)
        return fit_estimator(model, X, classes, weights * (self.ground.count / weights.sum()))


@dataclass(frozen=True)
class ClassifierOracle(EstimatorOracle):
    """Fits a classifier to the cheaper decision of each row, weighted by the difference in cost.

    Rows where a positive decision has negative cost get label 1, and the absolute cost is the
    weight. Then the weighted error is the cost up to a constant (Agarwal et al. 2018, section 3.2;
    Algorithm 1 of Narasimhan et al. 2019 requires no more).
    """

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Fit the classifier; raise FaultError, E501, if it rejects its options or the rows."""
        costs = self.ground.costs(prices)
        used = np.flatnonzero(costs)
        cheap = costs[used] < 0
        if cheap.all() or not cheap.any():
            return self.ground.constant(yes=bool(cheap.all()))
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
        costs = self._weights * self.ground.kind_costs(prices)
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
        return Groups.by(self.ground.slices, self.ground.members > 0)

    @cached_property
    def _weights(self) -> Array:
        """(C, Q) weight of each kind in each group."""
        inside = np.eye(len(self._groups.patterns))[self._groups.of]
        return np.asarray((self.ground.shares @ inside).T)

    @cached_property
    def _labels(self) -> tuple[Mask, Mask, Mask]:
        """Three masks (Q,): kinds with a positive label, with a negative one, and without a label.

        They follow from the error rate: a positive decision adds to it where the label is negative.
        """
        kinds = self.ground.kinds
        wrong = kinds.patterns[kinds.matrix.index()[ERROR_RATE]]
        return wrong < 0, wrong > 0, wrong == 0

    @cached_property
    def _scorer(self) -> CostSensitiveClassifier | Threshold:
        """Its score is the probability of a positive label minus that of a negative one."""
        positive, negative, _ = self._labels
        shares = np.stack([self.ground.shares[own].sum(axis=0) for own in (negative, positive)])
        labels, rows = np.nonzero(shares)
        if len(np.unique(labels)) < 2:
            return Threshold(np.zeros(self.ground.width), 1.0 if labels.any() else -1.0)
        model = self.fitted(rows, labels, shares[labels, rows])
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

    def weighing(self, ground: OracleRows) -> PlugInOracle:
        """Return an oracle with the same probabilities for other row weights."""
        return replace(self, ground=ground, known=self.known or self)

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Weigh the probabilities by costs; raise FaultError, E501, if they cannot be fitted."""
        kinds, model = self.kind_model
        costs = self.ground.kind_costs(prices)[kinds]
        if model is None:
            return self.ground.constant(yes=bool(costs.sum() < 0))
        return CostSensitiveClassifier(model, costs)

    @cached_property
    def kind_model(self) -> tuple[NDArray[np.intp], TreeEnsemble | SklearnModel | None]:
        """The kinds that occur, and the fit of their probabilities; None if there is only one."""
        if self.known:
            return self.known.kind_model
        shares = sparse.coo_array(self.ground.shares)
        shares.eliminate_zeros()
        places, rows = shares.coords
        kinds, classes = np.unique(places, return_inverse=True)
        return kinds, self.fitted(rows, classes, shares.data) if len(kinds) > 1 else None
