"""The design matrix with a bias column, and coordinates that make an objective well conditioned."""

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
"""Curvature added to directions without any, relative to the mean."""
MAX_DENSE_WEIGHTS = 2500
"""Largest number of weights with a full curvature matrix; above it only the diagonal is used."""


@dataclass(frozen=True)
class DesignMatrix:
    """Features X (n, d) with an implicit bias; weights w (d + 1,) have the bias last."""

    X: Features

    @property
    def width(self) -> int:
        return int(self.X.shape[1]) + 1

    @cached_property
    def transposed(self) -> Features:
        """(d, n), stored so that sums over rows are fast."""
        return self.X.T if isinstance(self.X, np.ndarray) else sparse.csr_array(self.X.T)

    def rows(self, rows: NDArray[np.intp]) -> DesignMatrix:
        return self if len(rows) == self.X.shape[0] else DesignMatrix(self.X[rows])

    def scores(self, w: Array) -> Array:
        """Return the scores (n,)."""
        return np.asarray(self.X @ w[:-1] + w[-1], dtype=float)

    def pull(self, weights: Array) -> Array:
        """Return weighted sums of rows: (d + 1,) or (d + 1, k) for weights (n,) or (n, k)."""
        return np.concatenate([self.transposed @ weights, weights.sum(axis=0)[None]])

    def curvature(self, weights: Array) -> Array:
        """Return the weighted sum (d + 1, d + 1) of outer squares of rows, for weights (n,)."""
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
        """Return the diagonal (d + 1,) of `curvature`."""
        squared = self.X**2 if isinstance(self.X, np.ndarray) else self.X.power(2)
        return np.append(squared.T @ weights, weights.sum())


@dataclass(frozen=True)
class WhitenedCoordinates:
    """`w = origin + R^-1 v` with `R' R` a curvature matrix, which is the identity in v.

    So steps in v have the same scale in all directions, whatever the scales of the features.

    Attributes
    ----------
    origin
        (D,) the weights at v = 0.
    root
        Upper triangular (D, D), or (D,) if only the diagonal is used.
    """

    origin: Array
    root: Array

    @classmethod
    def around(
        cls, design: DesignMatrix, origin: Array, rows: Array, l2: float
    ) -> WhitenedCoordinates:
        """Return coordinates that whiten curvatures (n,) in the scores plus `l2 / 2 |w|^2`.

        The bias is not penalized.
        """
        penalty = np.append(np.full(design.width - 1, l2), 0.0)
        if design.width > MAX_DENSE_WEIGHTS:
            diagonal = design.squares(rows) + penalty
            return cls(
                origin, np.sqrt(diagonal + max(DESIGN_RIDGE * float(diagonal.mean()), 1e-30))
            )
        matrix = design.curvature(rows) + np.diag(penalty)
        diagonal = np.diag(matrix)
        # features of small scale have small curvatures: the ridge is relative to each one
        ridge = DESIGN_RIDGE * diagonal + np.where(
            diagonal > 0, 0.0, max(float(diagonal.mean()), 1e-30)
        )
        return cls(origin, np.asfortranarray(cholesky(matrix + np.diag(ridge))))

    def weights(self, v: Array) -> Array:
        if self.root.ndim == 1:
            return np.asarray(self.origin + v / self.root)
        return np.asarray(self.origin + self._solved(v, transposed=False))

    def place(self, w: Array) -> Array:
        """Return the coordinates v (D,) of weights."""
        apart = w - self.origin
        return np.asarray(self.root * apart if self.root.ndim == 1 else self.root @ apart)

    def slopes(self, gradient: Array) -> Array:
        """Convert slopes in w, (D,) or (D, k), to slopes in v."""
        if self.root.ndim == 1:
            return np.asarray((gradient.T / self.root).T)
        return self._solved(gradient, transposed=True)

    def _solved(self, right: Array, *, transposed: bool) -> Array:
        """Solve with LAPACK directly: for few weights, SciPy's checks take ten times as long."""
        found, _ = dtrtrs(self.root, right, trans=int(transposed))
        return np.asarray(found).reshape(right.shape)
