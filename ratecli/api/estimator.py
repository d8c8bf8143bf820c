"""What our estimators have in common: parameters that are mappings, seeds, rows that scikit-learn checked."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_is_fitted, validate_data

from ratecli.api.rows import InputRows, check_indices

PARAM_SEPARATOR = "__"


class RateScoreMixin(ClassifierMixin):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier whose `score` does not compare labels with decisions on other rows."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; raises ValueError if X, y and sample_weight have different pandas indices."""
        check_indices({"X": X, "y": y, "sample_weight": sample_weight})
        return float(super().score(X, y, sample_weight))


class MappingParamsEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator some of whose parameters are mappings, each entry of which is a parameter, too.

    `parameters__kappa` is the entry `kappa` of `parameters`, so that a grid search can vary it.
    """

    _mappings: tuple[str, ...] = ()
    _found = ""
    """What a fit leaves, if it finds anything: the attribute without which nothing is fitted."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; with `deep` the entries of mappings, too."""
        found: dict[str, Any] = super().get_params(deep=deep)
        for name in self._mappings if deep else ():
            entries = found[name] if isinstance(found[name], dict) else {}
            found |= {f"{name}{PARAM_SEPARATOR}{key}": value for key, value in entries.items()}
        return found

    def set_params(self, **params: Any) -> MappingParamsEstimator:
        """Set parameters, or entries of those that are mappings; the mapping given first is not changed."""
        whole = {name: value for name, value in params.items() if not self._entry(name)}
        super().set_params(**whole)
        for name, value in params.items():
            if entry := self._entry(name):
                mapping, key = entry
                setattr(self, mapping, {**(getattr(self, mapping) or {}), key: value})
        return self

    def _entry(self, name: str) -> tuple[str, str] | None:
        mapping, between, key = name.partition(PARAM_SEPARATOR)
        return (mapping, key) if between and mapping in self._mappings else None

    def _unseen(self) -> list[str]:
        """Columns of X that are no features."""
        return []

    def _given(self, X: Any, sensitive: Any, *, reset: bool, **others: Any) -> InputRows:
        """Rows as they are shown to `fit` (`reset`) or later; `others` as `InputRows.of` has them.

        Frames are read column by column, whatever they hold; all else must be an array of numbers.
        """
        if reset:  # what an earlier fit left goes with another encoder
            self.__dict__.pop(self._found, None)
        if isinstance(X, pd.DataFrame):
            self._check_frame(X, reset=reset)
        else:
            X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64)
        return InputRows.of(X, sensitive, **others)

    def _check_frame(self, X: pd.DataFrame, *, reset: bool) -> None:
        """Columns that were dropped in training may be missing later."""
        whole = X if reset else self._with_dropped(X)
        validate_data(self, whole, reset=reset, skip_check_array=True)
        if not len(X):
            raise ValueError(
                f"Found array with 0 sample(s) (shape={X.shape}): no row to learn from."
            )

    def _with_dropped(self, X: pd.DataFrame) -> pd.DataFrame:
        """With columns of nothing in the place of those that are missing and were no features."""
        check_is_fitted(self, self._found)
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        gone = [name for name in self._unseen() if name in names and name not in X]
        if not gone:
            return X
        left = [name for name in names if name not in gone]
        if list(X.columns) != left:
            return X
        return X.assign(**dict.fromkeys(gone, None))[names]


def seed_from_random_state(random_state: Any) -> int:
    """A whole number is itself, so that it is the seed of a file; anything else gives one."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    found: int = check_random_state(random_state).randint(2**31 - 1)
    return found


def predict_with_sensitive(estimator: Any, X: Any, sensitive: Any) -> Any:
    """What an estimator predicts of rows, told of sensitive features if it asks for them.

    It asks by metadata routing where that is enabled, and else by a parameter of `predict`.
    """
    name = "sensitive_features"
    if get_config()["enable_metadata_routing"]:
        asks = name in get_routing_for_object(estimator).consumes("predict", [name])
    else:
        asks = name in signature(estimator.predict).parameters
    return estimator.predict(X, **({name: sensitive} if asks and sensitive is not None else {}))
