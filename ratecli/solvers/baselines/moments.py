"""Affine goals as fairlearn moments. Importing this module requires fairlearn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from fairlearn.reductions import ClassificationMoment

from ratecli.models.base import Array


class AffineRowsMoment(ClassificationMoment):  # type: ignore[misc]
    """The moment `slopes @ decisions + constants`, (m, n) and (m,), at most 0 as a constraint.

    fairlearn's own moments compare groups with all rows and weight each row by 1 / n; this one
    follows the constraints in the file.
    """

    def __init__(self, slopes: Array, constants: Array) -> None:
        super().__init__()
        self.slopes, self.constants = slopes, constants

    def load_data(self, X: Any, y: Any) -> None:
        super().load_data(X, pd.Series(y))

    @property
    def index(self) -> pd.Index:
        return pd.RangeIndex(len(self.constants))

    def gamma(self, predictor: Callable[[Any], Array]) -> pd.Series[float]:
        return pd.Series(self.slopes @ predictor(self.X) + self.constants, index=self.index)

    def bound(self) -> pd.Series[float]:
        return pd.Series(0.0, index=self.index)

    def project_lambda(self, lambda_vec: pd.Series[float]) -> pd.Series[float]:
        return lambda_vec

    def signed_weights(self, lambda_vec: pd.Series[float] | None = None) -> pd.Series[float]:
        """Return the value of a positive decision for each row, in units of 1 / n."""
        prices = np.ones(len(self.constants)) if lambda_vec is None else lambda_vec.to_numpy()
        return pd.Series(-self.total_samples * (prices @ self.slopes))
