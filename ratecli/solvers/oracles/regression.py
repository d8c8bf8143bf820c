"""The paired regression classifier: what a decision costs, fitted by least squares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.solvers.liblinear import add_ones_column
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.oracles.threshold import best_threshold

MIN_SINGULAR_SHARE = 1e-10
"""Singular values of the normal equations below this share of the largest are none: features that
follow from others."""


@dataclass(frozen=True)
class PairedRegressionOracle:
    """Yes where a linear regression expects a yes to cost less than a no (Deng et al. 2023, Definition 14).

    Least squares are linear in what is fitted: the two regressions of the costs of a yes and of a no are
    one of their difference, and that is the mixture of one regression for each kind of row, made once,
    at the prices of the day. Rows count by their weight. The threshold is then the best there is on the
    rows, which is never dearer than 0.
    """

    starts: ClassVar[bool] = False
    ground: OracleRows

    @cached_property
    def _slopes(self) -> Array:
        """(d + 1, Q) of the share of each kind, the bias last."""
        X, shares = add_ones_column(self.ground.X), self.ground.shares
        weights = np.asarray(shares.sum(axis=0), dtype=float)
        weighted = (
            X * weights[:, None] if isinstance(X, np.ndarray) else X.multiply(weights[:, None])
        )
        gram, moments = X.T @ weighted, shares @ X
        dense = [
            part if isinstance(part, np.ndarray) else sparse.csr_array(part).toarray()
            for part in (gram, moments)
        ]
        return np.asarray(np.linalg.lstsq(dense[0], dense[1].T, rcond=MIN_SINGULAR_SHARE)[0])

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        costs = self.ground.kind_costs(prices)
        weights = -(self._slopes @ costs)[:-1]
        scores = np.asarray(self.ground.X @ weights)
        return Threshold(weights, -best_threshold(scores, np.asarray(costs @ self.ground.shares)))
