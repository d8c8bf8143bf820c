"""scikit-learn's classifiers by name, and what is kept of a fitted one."""

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
from ratecli.models.fitted import SklearnModel
from ratecli.models.linear import Threshold
from ratecli.models.trees import TreeEnsemble
from ratecli.models.weighed import ARGMAX_COSTS, CostSensitiveClassifier
from ratecli.solvers.fit_cache import FitCache, array_digest
from ratecli.solvers.liblinear import to_int32_indices
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.oracles.forests import TREE_CONVERTERS
from ratecli.solvers.oracles.homes import CLASSIFIER_MODULES

MAX_DENSE_ROW_ENTRIES = 2**28
"""Most entries of rows that are made dense (2 GiB)."""
DUMMY_CLASSIFIER = "DummyClassifier"
"""Decides by the place of a row, not by its features."""


def classifier_class(name: str) -> type[BaseEstimator]:
    """The class of that name in `CLASSIFIER_MODULES` or among `classifiers()`."""
    if name in CLASSIFIER_MODULES:
        found: type[BaseEstimator] = getattr(import_module(CLASSIFIER_MODULES[name]), name)
        return found
    return list_classifiers()[name]


@cache
def list_classifiers() -> dict[str, type[BaseEstimator]]:
    """All classifiers of scikit-learn that can be made from numbers and words; slow to find."""
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
    """Names of those whose fit takes sample weights, in alphabetical order."""
    return tuple(name for name, found in list_classifiers().items() if takes_sample_weights(found))


def takes_sample_weights(found: type[BaseEstimator]) -> bool:
    return "sample_weight" in inspect.signature(found.fit).parameters


def invalid_parameter(
    found: type[BaseEstimator], options: Mapping[str, Any]
) -> tuple[str, str] | None:
    """The first parameter whose value the classifier refuses, and what it says; names are checked."""
    for key, value in options.items():
        try:
            # what fit does first; only there would it be public
            found(**{key: value})._validate_params()  # noqa: SLF001
        except (ValueError, TypeError) as error:
            return key, " ".join(str(error).split())
    return None


def make_estimator(
    name: str, options: Mapping[str, Any], rng: np.random.Generator
) -> BaseEstimator:
    """The unfitted classifier; its random numbers come from `rng` unless `random_state` is given."""
    model = classifier_class(name)(**options)
    if "random_state" in model.get_params() and "random_state" not in options:
        model.set_params(random_state=int(rng.integers(2**31)))
    return model


def fit_estimator(
    model: BaseEstimator, X: Features, classes: Any, weights: Array
) -> TreeEnsemble | SklearnModel:
    """The classifier of rows X (m, d) of `classes` (m,), 0 to Q - 1, and weights (m,) > 0.

    Raises
    ------
    FaultError
        E501 where it refuses rows or options, or cannot be stored.
    """
    name = type(model).__name__
    try:
        with warnings.catch_warnings():
            # an oracle need not be perfect: a fit that stops early is an answer, too
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", FutureWarning)
            model.fit(_accepted_features(model, X), classes, sample_weight=weights)
        return TREE_CONVERTERS[name](model) if name in TREE_CONVERTERS else SklearnModel(model)
    except (ValueError, TypeError) as error:
        message = f"{name} cannot be fitted: {' '.join(str(error).split())}"
        raise FaultError(Diagnostic("E501", message)) from error


@dataclass(frozen=True)
class EstimatorOracle:
    """What oracles that fit classifiers of scikit-learn have in common.

    Attributes
    ----------
    ground
        The rows, with the members of its slices if it has some.
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
        """A new classifier, the features of rows (m,) of the ground without slices, and weights (m,), here
        scaled to add up to the number of rows.
        """
        X = self.ground.X[:, : self.ground.width][rows]
        model = make_estimator(self.name, self.options, self.rng)
        return model, X, weights * (self.ground.count / weights.sum())


def _accepted_features(model: BaseEstimator, X: Features) -> Features:
    """X as the classifier takes it: sparse where it can."""
    if isinstance(X, np.ndarray):
        return X
    if get_tags(model).input_tags.sparse:
        return to_int32_indices(X)
    if X.shape[0] * X.shape[1] > MAX_DENSE_ROW_ENTRIES:
        raise ValueError(f"it takes no sparse rows, and {X.shape[0]} x {X.shape[1]} are too many")
    return np.asarray(X.toarray())


CACHED_ESTIMATORS = 8
"""How many, the latest ones."""

_estimator_cache = FitCache[TreeEnsemble | SklearnModel](CACHED_ESTIMATORS)


def fit_estimator_cached(
    model: BaseEstimator, X: Features, classes: NDArray[np.intp], weights: Array
) -> TreeEnsemble | SklearnModel:
    """What `estimators.fitted` gives: the same whether it was made before or is made now.

    A `random_state` must be a number, as `estimators.made` sees to.
    """
    said = (type(model).__qualname__, sorted(model.get_params().items(), key=str))
    key = array_digest(said, X, classes, weights)
    return _estimator_cache.get(key, lambda: fit_estimator(model, X, classes, weights))


@dataclass(frozen=True)
class ClassifierOracle(EstimatorOracle):
    """Fits a classifier to the cheaper decision of each row, weighted by what the other one costs more.

    With labels 1 where a yes costs less than nothing and weights of the size of that cost, the
    weighted error is the cost but for a constant (Agarwal et al. 2018, section 3.2; Algorithm 1 of
    Narasimhan et al. 2019 asks for no more).
    """

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Raises FaultError, E501, where the classifier refuses its options or the rows."""
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
    """The classifier as a line, if it is one."""
    weights = getattr(model, "coef_", None)
    if not (isinstance(weights, np.ndarray) and weights.shape == (1, model.n_features_in_)):
        return None
    bias = np.ravel(model.intercept_)
    return Threshold(weights[0].astype(float), float(bias[0]))
