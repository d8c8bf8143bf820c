"""The oracle `regression`: a least-squares regression of the cost of a decision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.solvers.liblinear import add_ones_column
from ratecli.solvers.numerics.thresholds import Thresholds
from ratecli.solvers.oracles.base import OracleRows

MIN_SINGULAR_SHARE = 1e-10
"""Singular values of the normal equations below this share of the largest count as 0, which they
are when features depend linearly on others.
"""


@dataclass(frozen=True)
class PairedRegressionOracle:
    """Decides positively where linear regression predicts that this costs less than a negative
    decision.

    This is the paired regression classifier (Deng et al. 2023, Definition 14). Least squares is
    linear in the target, so the two regressions of the costs of a positive and a negative decision
    equal one regression of the difference. That one is a combination of one regression for each
    kind of row, fitted once, with coefficients given by the prices. Rows count by their weight.
    Finally, the best threshold on the rows is chosen, so the cost is never above 0.
    """

    starts: ClassVar[bool] = False
    ground: OracleRows

    @cached_property
    def _slopes(self) -> Array:
        """(d + 1, Q) coefficients of the regression of each kind's share, the bias last."""
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
        return Threshold(weights, -Thresholds.of(scores).cheapest(costs @ self.ground.shares))
