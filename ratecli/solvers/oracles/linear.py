"""The oracles `linear` and `regression`: linear classifiers of small cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit

from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.solvers.liblinear import add_ones_column, fit_logistic
from ratecli.solvers.numerics.thresholds import Thresholds
from ratecli.solvers.oracles.base import OracleRows

STEP_TIE = 1e-9
"""Step sizes closer than this, relative to their size, flip their rows together."""
RANDOM_DIRECTIONS = 10
"""Number of random directions searched after the features."""


def sweep_directions(
    rows: sparse.csr_array, w: Array, costs: Array, rng: np.random.Generator
) -> Array:
    """Return weights (d,) after the best step along each feature and along random directions.

    Along a direction, the cost of the decisions `rows @ w > 0` is a step function. Its minimum is
    found by sorting the step sizes at which a row's decision flips. The cost never increases.
    """
    scores = rows @ w
    columns = sparse.csc_array(rows)
    for direction, used, slopes in _search_directions(columns, rng):
        step = best_line_step(scores[used], slopes, costs[used])
        w = w + step * direction
        scores[used] += step * slopes
    return w


def best_line_step(scores: Array, slopes: Array, costs: Array) -> float:
    """Return the step t with the smallest `costs @ (scores + t * slopes > 0)`; 0 if none improves.

    Arrays are (m,); no slope is 0.
    """
    turns = -scores / slopes
    order = np.argsort(turns, kind="stable")
    ranked = turns[order]
    change = np.where(slopes > 0, costs, -costs)[order]
    reached = np.concatenate([[0.0], np.cumsum(change)]) + costs[slopes < 0].sum()
    apart = np.diff(ranked) > STEP_TIE * (1 + np.abs(ranked[:-1]))
    reached[1:-1][~apart] = np.inf
    k = int(np.argmin(reached))
    if not reached[k] < costs[scores > 0].sum() - STEP_TIE * np.abs(costs).sum():
        return 0.0
    ends = np.concatenate([[ranked[0] - 2.0], ranked, [ranked[-1] + 2.0]])
    return float(0.5 * (ends[k] + ends[k + 1]))


def _search_directions(
    columns: sparse.csc_array, rng: np.random.Generator
) -> Iterator[tuple[Array, NDArray[np.intp], Array]]:
    """Yield directions (d,), the rows whose scores they change, and by how much."""
    d = columns.shape[1]
    for j in rng.permutation(d):
        part = slice(columns.indptr[j], columns.indptr[j + 1])
        used = columns.data[part] != 0
        if used.any():
            yield (
                np.eye(1, d, j)[0],
                columns.indices[part][used].astype(np.intp),
                columns.data[part][used],
            )
    for _ in range(RANDOM_DIRECTIONS):
        direction = rng.normal(size=d)
        slopes = columns @ direction
        used = np.flatnonzero(slopes)
        if len(used):
            yield direction, used, slopes[used]


SIGMOID_SHARPNESS = (1.0, 3.0)
"""Sharpness of successive descents, each started at the end of the one before."""
MAX_SMOOTH_STEPS = 30
START_TOLERANCE = 1e-2
"""Tolerance of the logistic regression, which is only a starting point."""


@dataclass(frozen=True)
class LinearOracle:
    """Linear classifiers of small cost, found with a smoothed 0/1 loss.

    Minimizing the weighted number of wrong decisions is hard. The search starts from a logistic
    regression and descends on a smooth version of the 0/1 cost: the mean of `cost *
    logistic(sharpness * score)`. Unlike a convex loss, it does not grow with how wrong a decision
    is. Finally, the best threshold on the scores is chosen.

    Attributes
    ----------
    ground
        The rows.
    l2
        Weight of `|w|^2 / 2`, bias included, relative to the loss with costs that add up to 1.
    sweeps
        Passes of exact steps along single features afterwards (see `sweep_directions`).
    """

    starts: ClassVar[bool] = True
    ground: OracleRows
    l2: float
    sweeps: int
    rng: np.random.Generator

    @cached_property
    def _rows(self) -> sparse.csr_array:
        return sparse.csr_array(add_ones_column(self.ground.X))

    @cached_property
    def _columns(self) -> sparse.csr_array:
        return sparse.csr_array(self._rows.T)

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:
        """Search from the classifier `near` if it is linear, else from a logistic regression.

        The answer costs at most as much as the starting point with any threshold.
        """
        costs = self.ground.costs(prices)
        shares = costs / np.abs(costs).sum()
        if isinstance(near, Threshold):
            start = np.append(near.weights, near.bias)
        else:
            start = self._logistic(shares)
        # because of the penalty, the descent may end at a higher cost than it started from
        w = min(
            (self._cut(w, shares) for w in self._descent(start, shares)), key=self._cost(shares)
        )
        for _ in range(self.sweeps):
            w = sweep_directions(self._rows, w, shares, self.rng)
        w = self._cut(w, shares)
        return Threshold(w[:-1], float(w[-1]))

    def _cut(self, w: Array, shares: Array) -> Array:
        """Return the weights with the best bias."""
        return np.append(w[:-1], -Thresholds.of(self.ground.X @ w[:-1]).cheapest(shares))

    def _cost(self, shares: Array) -> Callable[[Array], float]:
        return lambda w: float(shares @ (self._rows @ w > 0))

    def _logistic(self, shares: Array) -> Array:
        used = np.flatnonzero(shares)
        found = fit_logistic(
            self._rows[used],
            -np.sign(shares[used]),
            np.abs(shares[used]) / self.l2,
            seed=0,
            tolerance=START_TOLERANCE,
            iterations=100,
        )
        return found.weights

    def _descent(self, w: Array, shares: Array) -> Iterator[Array]:
        """Yield the starting point, and the end of the descent at each sharpness."""
        yield w
        for sharpness in SIGMOID_SHARPNESS:

            def loss(w: Array, sharpness: float = sharpness) -> tuple[float, Array]:
                chances = expit(sharpness * (self._rows @ w))
                cost = shares * chances
                slopes = sharpness * cost * (1 - chances)
                return float(cost.sum() + self.l2 / 2 * w @ w), self._columns @ slopes + self.l2 * w

            w = minimize(
                loss, w, jac=True, method="L-BFGS-B", options={"maxiter": MAX_SMOOTH_STEPS}
            ).x
            yield w


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
