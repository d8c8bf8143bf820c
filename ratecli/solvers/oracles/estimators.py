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

from ratecli.errors import Fault, FaultError
from ratecli.models.base import Array, Features
from ratecli.models.fitted import Fitted
from ratecli.models.trees import Trees
from ratecli.solvers.liblinear import narrow
from ratecli.solvers.oracles.forests import FORESTS
from ratecli.solvers.oracles.ground import Ground
from ratecli.solvers.oracles.homes import HOMES

DENSE = 2**28
"""Most entries of rows that are made dense (2 GiB)."""
NO_RULE = "DummyClassifier"
"""Decides by the place of a row, not by its features."""


def classifier(name: str) -> type[BaseEstimator]:
    """The class of that name in `HOMES` or among `classifiers()`."""
    if name in HOMES:
        found: type[BaseEstimator] = getattr(import_module(HOMES[name]), name)
        return found
    return classifiers()[name]


@cache
def classifiers() -> dict[str, type[BaseEstimator]]:
    """All classifiers of scikit-learn that can be made from numbers and words; slow to find."""
    return {
        name: found
        for name, found in all_estimators(type_filter="classifier")
        if name != NO_RULE and not _required(found)
    }


def _required(found: type[BaseEstimator]) -> bool:
    parameters = inspect.signature(found).parameters.values()
    return any(each.default is inspect.Parameter.empty for each in parameters)


@cache
def weighted() -> tuple[str, ...]:
    """Names of those whose fit takes sample weights, in alphabetical order."""
    return tuple(name for name, found in classifiers().items() if takes_weights(found))


def takes_weights(found: type[BaseEstimator]) -> bool:
    return "sample_weight" in inspect.signature(found.fit).parameters


def refusal(found: type[BaseEstimator], options: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first parameter whose value the classifier refuses, and what it says; names are checked."""
    for key, value in options.items():
        try:
            # what fit does first; only there would it be public
            found(**{key: value})._validate_params()  # noqa: SLF001
        except (ValueError, TypeError) as error:
            return key, " ".join(str(error).split())
    return None


def made(name: str, options: Mapping[str, Any], rng: np.random.Generator) -> BaseEstimator:
    """The unfitted classifier; its random numbers come from `rng` unless `random_state` is given."""
    model = classifier(name)(**options)
    if "random_state" in model.get_params() and "random_state" not in options:
        model.set_params(random_state=int(rng.integers(2**31)))
    return model


def fitted(model: BaseEstimator, X: Features, classes: Any, weights: Array) -> Trees | Fitted:
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
            model.fit(_taken(model, X), classes, sample_weight=weights)
        return FORESTS[name](model) if name in FORESTS else Fitted(model)
    except (ValueError, TypeError) as error:
        message = f"{name} cannot be fitted: {' '.join(str(error).split())}"
        raise FaultError(Fault("E501", message)) from error


@dataclass(frozen=True)
class Estimating:
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
    ground: Ground
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
        model = made(self.name, self.options, self.rng)
        return model, X, weights * (self.ground.count / weights.sum())


def _taken(model: BaseEstimator, X: Features) -> Features:
    """X as the classifier takes it: sparse where it can."""
    if isinstance(X, np.ndarray):
        return X
    if get_tags(model).input_tags.sparse:
        return narrow(X)
    if X.shape[0] * X.shape[1] > DENSE:
        raise ValueError(f"it takes no sparse rows, and {X.shape[0]} x {X.shape[1]} are too many")
    return np.asarray(X.toarray())
