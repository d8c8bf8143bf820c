"""Rows of features with a constant behind them, and coordinates in which an objective is round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtrs

from ratecli.models.base import Array, Features

DESIGN_RIDGE = 1e-10
"""Curvature given to directions that no row tells apart, relative to the mean."""
MAX_DENSE_WEIGHTS = 2500
"""Most weights of which a matrix of curvatures is made; beyond, only its diagonal."""


@dataclass(frozen=True)
class DesignMatrix:
    """X of shape (n, d); weights w of shape (d + 1,) have the bias last."""

    X: Features

    @property
    def width(self) -> int:
        return int(self.X.shape[1]) + 1

    @cached_property
    def transposed(self) -> Features:
        """(d, n), with the rows' order in memory that of sums over rows."""
        return self.X.T if isinstance(self.X, np.ndarray) else sparse.csr_array(self.X.T)

    def rows(self, rows: NDArray[np.intp]) -> DesignMatrix:
        return self if len(rows) == self.X.shape[0] else DesignMatrix(self.X[rows])

    def scores(self, w: Array) -> Array:
        """(n,)."""
        return np.asarray(self.X @ w[:-1] + w[-1], dtype=float)

    def pull(self, weights: Array) -> Array:
        """Sums of rows: (d + 1,) or (d + 1, k) of weights (n,) or (n, k)."""
        return np.concatenate([self.transposed @ weights, weights.sum(axis=0)[None]])

    def curvature(self, weights: Array) -> Array:
        """(d + 1, d + 1) sum of weights (n,) times the outer square of each row."""
        whole = np.empty((self.width, self.width))
        if isinstance(self.X, np.ndarray):
            whole[:-1, :-1] = self.X.T @ (weights[:, None] * self.X)
        else:
            weighted = sparse.diags_array(weights) @ self.X
            whole[:-1, :-1] = (self.transposed @ weighted).toarray()
        whole[-1] = self.pull(weights)
        whole[:, -1] = whole[-1]
        return whole

    def squares(self, weights: Array) -> Array:
        """(d + 1,) the diagonal of `curvature`."""
        squared = self.X**2 if isinstance(self.X, np.ndarray) else self.X.power(2)
        return np.append(squared.T @ weights, weights.sum())


@dataclass(frozen=True)
class WhitenedCoordinates:
    """`w = origin + R^-1 v` with `R' R` a matrix of curvatures: in v it is the identity.

    Features may have any scales; steps in v are of the same size in all directions.

    Attributes
    ----------
    origin
        (D,) the weights at v = 0.
    root
        Upper triangular (D, D), or (D,) where only the diagonal is looked at.
    """

    origin: Array
    root: Array

    @classmethod
    def around(
        cls, design: DesignMatrix, origin: Array, rows: Array, l2: float
    ) -> WhitenedCoordinates:
        """Round for curvatures (n,) of rows in their scores, and `l2 / 2 |w|^2` without the bias."""
        penalty = np.append(np.full(design.width - 1, l2), 0.0)
        if design.width > MAX_DENSE_WEIGHTS:
            diagonal = design.squares(rows) + penalty
            return cls(
                origin, np.sqrt(diagonal + max(DESIGN_RIDGE * float(diagonal.mean()), 1e-30))
            )
        matrix = design.curvature(rows) + np.diag(penalty)
        diagonal = np.diag(matrix)
        # features of small scale have small curvatures: each is compared with its own
        ridge = DESIGN_RIDGE * diagonal + np.where(
            diagonal > 0, 0.0, max(float(diagonal.mean()), 1e-30)
        )
        return cls(origin, np.asfortranarray(cholesky(matrix + np.diag(ridge))))

    def weights(self, v: Array) -> Array:
        if self.root.ndim == 1:
            return np.asarray(self.origin + v / self.root)
        return np.asarray(self.origin + self._solved(v, transposed=False))

    def place(self, w: Array) -> Array:
        """(D,) the v of weights."""
        apart = w - self.origin
        return np.asarray(self.root * apart if self.root.ndim == 1 else self.root @ apart)

    def slopes(self, gradient: Array) -> Array:
        """Slopes in v, (D,) or (D, k), of what has such slopes in w."""
        if self.root.ndim == 1:
            return np.asarray((gradient.T / self.root).T)
        return self._solved(gradient, transposed=True)

    def _solved(self, right: Array, *, transposed: bool) -> Array:
        """By LAPACK at once: for a few weights SciPy's own checks take ten times as long."""
        found, _ = dtrtrs(self.root, right, trans=int(transposed))
        return np.asarray(found).reshape(right.shape)
