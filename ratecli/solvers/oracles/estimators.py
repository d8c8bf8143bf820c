"""Oracles that fit scikit-learn classifiers: look-up by name, fitting, and a cache of fits."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import all_estimators, get_tags

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.cost_sensitive import ARGMAX_COSTS, CostSensitiveClassifier
from ratecli.models.linear import Threshold
from ratecli.models.sklearn_model import SklearnModel
from ratecli.models.trees import TreeEnsemble
from ratecli.solvers.fit_cache import FitCache, array_digest
from ratecli.solvers.liblinear import to_int32_indices
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.oracles.forests import TREE_CONVERTERS
from ratecli.solvers.oracles.homes import CLASSIFIER_MODULES

MAX_DENSE_ROW_ENTRIES = 2**28
"""Largest number of entries of a feature matrix that is made dense (2 GiB)."""
DUMMY_CLASSIFIER = "DummyClassifier"
"""Excluded because its decisions do not depend on the features."""


def classifier_class(name: str) -> type[BaseEstimator]:
    """Return the class of that name, from `CLASSIFIER_MODULES` or `list_classifiers()`."""
    if name in CLASSIFIER_MODULES:
        found: type[BaseEstimator] = getattr(import_module(CLASSIFIER_MODULES[name]), name)
        return found
    return list_classifiers()[name]


@cache
def list_classifiers() -> dict[str, type[BaseEstimator]]:
    """Return all scikit-learn classifiers whose parameters all have defaults.

    The first call is slow.
    """
    return {
        name: found
        for name, found in all_estimators(type_filter="classifier")
        if name != DUMMY_CLASSIFIER and not _has_required_parameters(found)
    }


def _has_required_parameters(found: type[BaseEstimator]) -> bool:
    parameters = inspect.signature(found).parameters.values()
    return any(each.default is inspect.Parameter.empty for each in parameters)


@cache
def weighted_classifier_names() -> tuple[str, ...]:
    """Return the names of classifiers whose `fit` takes sample weights, in alphabetical order."""
    return tuple(name for name, found in list_classifiers().items() if takes_sample_weights(found))


def takes_sample_weights(found: type[BaseEstimator]) -> bool:
    return "sample_weight" in inspect.signature(found.fit).parameters


def invalid_parameter(
    found: type[BaseEstimator], options: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Return the first parameter with an invalid value and scikit-learn's message, or None.

    The names of parameters must have been checked before.
    """
    for key, value in options.items():
        try:
            # private, but `fit` runs the same check first
            found(**{key: value})._validate_params()  # noqa: SLF001
        except (ValueError, TypeError) as error:
            return key, " ".join(str(error).split())
    return None


def make_estimator(
    name: str, options: Mapping[str, Any], rng: np.random.Generator
) -> BaseEstimator:
    """Return the unfitted classifier, seeded from `rng` unless `random_state` is given."""
    model = classifier_class(name)(**options)
    if "random_state" in model.get_params() and "random_state" not in options:
        model.set_params(random_state=int(rng.integers(2**31)))
    return model


def fit_estimator(
    model: BaseEstimator, X: Features, classes: Any, weights: Array
) -> TreeEnsemble | SklearnModel:
    """Fit the classifier to rows X (m, d) of `classes` (m,), 0 to Q - 1, with weights (m,) > 0.

    Raises
    ------
    FaultError
        E501 if it rejects the rows or the options, or cannot be stored.
    """
    name = type(model).__name__
    try:
        with warnings.catch_warnings():
            # an oracle may be approximate: accept a fit that stopped early
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", FutureWarning)
            model.fit(_accepted_features(model, X), classes, sample_weight=weights)
        return TREE_CONVERTERS[name](model) if name in TREE_CONVERTERS else SklearnModel(model)
    except (ValueError, TypeError) as error:
        message = f"{name} cannot be fitted: {' '.join(str(error).split())}"
        raise FaultError(Diagnostic("E501", message)) from error


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

    def unfitted(
        self, rows: NDArray[np.intp], weights: Array
    ) -> tuple[BaseEstimator, Features, Array]:
        """Return a new classifier, the features of `rows` (m,) without slices, and weights (m,).

        The weights are scaled to add up to the number of rows.
        """
        X = self.ground.X[:, : self.ground.width][rows]
        model = make_estimator(self.name, self.options, self.rng)
        return model, X, weights * (self.ground.count / weights.sum())


def _accepted_features(model: BaseEstimator, X: Features) -> Features:
    """Return X in a form that the classifier accepts: sparse if it can."""
    if isinstance(X, np.ndarray):
        return X
    if get_tags(model).input_tags.sparse:
        return to_int32_indices(X)
    if X.shape[0] * X.shape[1] > MAX_DENSE_ROW_ENTRIES:
        raise ValueError(f"it takes no sparse rows, and {X.shape[0]} x {X.shape[1]} are too many")
    return np.asarray(X.toarray())


CACHED_ESTIMATORS = 8
"""Number of most recently used fits that are kept."""

_estimator_cache = FitCache[TreeEnsemble | SklearnModel](CACHED_ESTIMATORS)


def fit_estimator_cached(
    model: BaseEstimator, X: Features, classes: NDArray[np.intp], weights: Array
) -> TreeEnsemble | SklearnModel:
    """Fit a classifier as `fit_estimator` does, or return the cached result of an identical fit.

    A `random_state` must be an integer, which `make_estimator` ensures.
    """
    said = (type(model).__qualname__, sorted(model.get_params().items(), key=str))
    key = array_digest(said, X, classes, weights)
    return _estimator_cache.get(key, lambda: fit_estimator(model, X, classes, weights))


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
        model, X, weights = self.unfitted(used, np.abs(costs[used]))
        found = fit_estimator(model, X, cheap.astype(np.intp), weights)
        line = _as_linear_threshold(model) if isinstance(found, SklearnModel) else None
        return line or CostSensitiveClassifier(found, ARGMAX_COSTS)


def _as_linear_threshold(model: BaseEstimator) -> Threshold | None:
    """Return the classifier as a linear threshold; None if it is not linear."""
    weights = getattr(model, "coef_", None)
    if not (isinstance(weights, np.ndarray) and weights.shape == (1, model.n_features_in_)):
        return None
    bias = np.ravel(model.intercept_)
    return Threshold(weights[0].astype(float), float(bias[0]))
