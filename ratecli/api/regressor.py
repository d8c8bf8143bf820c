"""A scikit-learn regressor with a small squared error under constraints on errors of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_y

from ratecli.api.estimator import RateConstrainedEstimator
from ratecli.datasets.columns import MAX_NUMBER, SIZE_LIMIT
from ratecli.models.base import Array


@dataclass(eq=False, repr=False)
class RateConstrainedRegressor(RegressorMixin, RateConstrainedEstimator):  # type: ignore[misc]
    """Minimize the squared error subject to constraints such as `mse[women] <= 2`.

    Constraints use `mse` and `mean_error` (of estimate minus label), as in `abs(mean_error[women] -
    mean_error[men]) <= 0.1`. Everything else is as for `RateConstrainedClassifier`, whose
    parameters and attributes it has, except those listed here, `pos_label` and `classes_`.

    Parameters
    ----------
    objective : str, default="mse"
        The expression to minimize.
    estimator : regressor, default=None
        The model that `least_squares` fits instead of a linear one: a regressor whose fit takes
        sample weights.
    solver : str, default="least_squares"
        `least_squares`, `unconstrained` with `solver_options={"loss": "squared"}`, or `seldonian`
        with `safety`.
    label_range : tuple of float, default=(-inf, inf)
        Smallest and largest possible label. Estimates are clipped to it, and most bounds of safety
        tests need it.

    Attributes
    ----------
    regressor_
        The model used for prediction.

    Examples
    --------
    >>> import ratecli
    >>> X, y = ratecli.load_dataset("gpa", preparation="regression")
    >>> rule = "abs(mean_error[sex = Male] - mean_error[sex = Female]) <= 0.1"
    >>> model = ratecli.RateConstrainedRegressor(constraints=rule).fit(X, y)
    >>> max(model.violations_.values()) <= 1e-6
    True
    """

    _found: ClassVar[str] = "regressor_"

    objective: str = "mse"
    solver: str = "least_squares"
    label_range: tuple[float, float] = (-np.inf, np.inf)

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> RateConstrainedRegressor:
        """Train the regressor on numbers y (n,); arguments and errors as for the classifier."""
        self._fit(X, y, sample_weight, sensitive_features)
        return self

    def _numbers(self, y: Any) -> Array:
        if y is None:
            raise ValueError("it requires y to be passed, but the target y is None")
        found = np.asarray(_check_y(y, y_numeric=True, estimator=self), dtype=np.float64)
        if (size := abs(found).max()) > MAX_NUMBER:
            raise ValueError(f"y has values of size {size:g}, {SIZE_LIMIT}: use other units")
        low, high = self.label_range
        if not (low <= found.min() and found.max() <= high):
            raise ValueError(f"y has values outside of label_range, {low:g} to {high:g}")
        return found

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Return the estimate (n,) of each row."""
        shown = self._shown(X, sensitive_features)
        return np.asarray(self.regressor_.estimate(shown))
