"""The oracles `linear` and `regression`: linear classifiers of small cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.linear import Threshold, logistic
from ratecli.models.output_cache import array_digest
from ratecli.solvers.curve import RateCurve
from ratecli.solvers.design_matrix import add_ones_column, compact, row_blocks, scale_rows
from ratecli.solvers.fit_cache import FitCache
from ratecli.solvers.oracles.base import OracleRows

SIGMOID_SHARPNESS = (1.0, 3.0)
"""Sharpness of successive descents, each started at the end of the one before."""
MAX_SMOOTH_STEPS = 30
SINGLE_ENTRIES = 10**5
"""Stored entries of features from which on a descent uses single precision."""
MOST_SINGLE = 1e4
"""With larger features, a descent uses double precision: single might not tell them apart."""
MANY_ENTRIES = 10**7
"""Stored entries from which a descent ends early, and always uses single precision."""
ROUGH_DECREASE = 1e-5
"""Relative decrease of the cost in a step at which such a descent ends."""
CACHED_SEARCHES = 32
"""Maximum number of cached searches from scratch. All sweep points start with the same one."""
_search_cache = FitCache[list[Array]](CACHED_SEARCHES)


@dataclass(frozen=True)
class LinearOracle:
    """Linear classifiers of small cost, found with a smoothed 0/1 loss.

    Minimizing the weighted number of wrong decisions is hard. The search starts from a logistic
    regression and descends on a smooth version of the 0/1 cost: the mean of `cost *
    logistic(sharpness * score)`. Unlike a convex loss, it does not grow with how wrong a decision
    is. Finally, the best threshold on the scores is chosen.

    Attributes
    ----------
    rows
        The training rows.
    l2
        Weight of `|w|^2 / 2`, bias included, relative to the loss with costs that add up to 1.
    """

    starts: ClassVar[bool] = True
    rows: OracleRows
    l2: float

    @cached_property
    def _features(self) -> Features:
        """(m, d + 1) features and a column of ones; in single precision if there are many.

        A descent does not need more: reading the features takes most of its time.
        """
        X = self.rows.X
        values = X if isinstance(X, np.ndarray) else X.data
        single = X.size >= MANY_ENTRIES or (
            X.size >= SINGLE_ENTRIES and max(values.max(), -values.min()) < MOST_SINGLE
        )
        return compact(add_ones_column(X, np.float32 if single else np.float64))

    @cached_property
    def _digest(self) -> bytes:
        return array_digest(self.l2, self.rows.X)

    @cached_property
    def _blocks(self) -> list[tuple[slice, Features, Features]]:
        """Blocks of rows, small enough to stay in the cache, and their transposes."""
        X = self._features
        if isinstance(X, np.ndarray):
            return [(block, X[block], X[block].T) for block in row_blocks(X)]
        return [(slice(None), X, X.T)]

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:
        """Search from the classifier `near` if it is linear, else from a logistic regression.

        The answer costs at most as much as the starting point with any threshold.
        """
        costs = self.rows.costs(prices)
        shares = costs / np.abs(costs).sum()

        def with_best_bias(w: Array) -> Array:
            return np.append(w[:-1], -RateCurve.of(self.rows.X @ w[:-1]).cheapest(shares))

        if isinstance(near, Threshold):
            tried = self._descents(np.append(near.weights, near.bias), shares)
        else:
            key = array_digest(self._digest, shares)
            tried = _search_cache.get(key, lambda: self._from_scratch(shares))
        # because of the penalty, the descent may end at a higher cost than it started from
        X = self.rows.X
        w = min(map(with_best_bias, tried), key=lambda w: shares @ (X @ w[:-1] + w[-1] > 0))
        return Threshold(w[:-1], float(w[-1]))

    def _from_scratch(self, shares: Array) -> list[Array]:
        none = np.zeros(self._features.shape[1])
        return self._descents(self._descend(none, shares, _logistic_loss), shares)

    def _descents(self, w: Array, shares: Array) -> list[Array]:
        """Return w (d + 1,) and the ends of the descents on smooth costs from there."""
        tried = [w]
        for sharpness in SIGMOID_SHARPNESS:
            tried.append(self._descend(tried[-1], shares, partial(_smooth_cost, sharpness)))
        return tried

    def _descend(self, w: Array, shares: Array, loss: _Loss) -> Array:
        """Minimize the loss of the rows' costs plus the penalty, from w on."""
        dtype = self._features.dtype
        costs = shares.astype(dtype)

        def value_and_gradient(w: Array) -> tuple[float, Array]:
            value, gradient = float(self.l2 / 2 * w @ w), self.l2 * w
            at = w.astype(dtype)
            for block, rows, columns in self._blocks:
                part, slopes = loss(rows @ at, costs[block])
                value += part
                gradient = gradient + columns @ slopes
            return value, gradient

        options: dict[str, Any] = {"maxiter": MAX_SMOOTH_STEPS}
        if self.rows.X.size >= MANY_ENTRIES:
            options["ftol"] = ROUGH_DECREASE
        found = minimize(value_and_gradient, w, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x)


_Loss = Callable[[Array, Array], tuple[float, Array]]
"""The loss of scores and costs (n,), and its slopes (n,) in the scores."""


def _smooth_cost(sharpness: float, scores: Array, costs: Array) -> tuple[float, Array]:
    chances = logistic(sharpness * scores)
    found = costs * chances
    return float(found.sum()), sharpness * found * (1 - chances)


def _logistic_loss(scores: Array, costs: Array) -> tuple[float, Array]:
    against = np.sign(costs) * scores
    losses = np.log1p(np.exp(-np.abs(against))) + np.maximum(against, 0.0)
    return float(np.abs(costs) @ losses), costs * logistic(against)


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
    rows: OracleRows

    @cached_property
    def _slopes(self) -> Array:
        """(d + 1, Q) coefficients of the regression of each kind's share, the bias last."""
        X, shares = add_ones_column(self.rows.X), self.rows.shares
        weights = np.asarray(shares.sum(axis=0), dtype=float)
        parts = X.T @ scale_rows(X, weights), shares @ X
        gram, moments = (each.toarray() if sparse.issparse(each) else each for each in parts)
        return np.asarray(np.linalg.lstsq(gram, moments.T, rcond=MIN_SINGULAR_SHARE)[0])

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        costs = self.rows.kind_costs(prices)
        weights = -(self._slopes @ costs)[:-1]
        scores = np.asarray(self.rows.X @ weights)
        return Threshold(weights, -RateCurve.of(scores).cheapest(costs @ self.rows.shares))
