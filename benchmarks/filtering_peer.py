"""Algorithms 3 and 4 of Deng, Diana, Kearns, Roth 2023 as they are written, but for what cannot be run.

The game is played by projected gradient ascent against the paired regression classifier, two least squares
fits a round by scikit-learn, and a split is the uniform mixture of all rounds. What the paper leaves open or
has wrong is as in the protocol: the offset of progress 0, limits linear in the split, multipliers that may
fall, steps of 10 / sqrt(t), at most 20 in sum, the best of all leaves. There is no released code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.linear_model import LinearRegression

Array = NDArray[np.float64]
STEP, MOST = 10.0, 20.0


@dataclass(frozen=True)
class Peer:
    """Rows (n, d), groups (n,) from 0, a budget, and how often the game is played."""

    X: Array
    groups: NDArray[np.intp]
    alpha: float
    rounds: int

    def imbalance(self, gamma: float = 0.1, depth: int = 20, stop: float = 0.1) -> float:
        """What the tree ends at, in training."""
        n, K = len(self.groups), int(self.groups.max()) + 1
        leaves = [(np.full(n, 1 / n), 0)]
        distance = self._distance(leaves)[0]
        while distance >= stop:
            best = None
            for own, (w, height) in enumerate(leaves):
                if height >= depth:
                    continue
                yes = self._split(w, self._distance(leaves)[1], K)
                after = [
                    *leaves[:own],
                    *leaves[own + 1 :],
                    (w * yes, height + 1),
                    (w * (1 - yes), height + 1),
                ]
                if self._fits(after[-2:]):
                    far = self._distance(after)[0]
                    best = min(best or (np.inf, leaves), (far, after), key=lambda each: each[0])
            if best is None or best[0] > (1 - gamma) * distance:
                break
            distance, leaves = best
        return distance

    def _shares(self, w: Array) -> Array:
        counts = np.bincount(self.groups, w)
        return counts / counts.sum()

    def _fits(self, leaves: list[tuple[Array, int]]) -> bool:
        base = self._shares(np.ones(len(self.groups)))
        good = all(w.sum() * len(w) >= 1 for w, _ in leaves)
        return good and all(np.abs(self._shares(w) - base).max() <= self.alpha for w, _ in leaves)

    def _distance(self, leaves: list[tuple[Array, int]]) -> tuple[float, Array]:
        A = np.stack([self._shares(w) for w, _ in leaves])
        U = np.full(A.shape[1], 1 / A.shape[1])
        q, _ = nnls(np.vstack([A.T, np.full(len(A), 1e4)]), np.append(U, 1e4))
        near = q / q.sum() @ A
        return float(np.linalg.norm(near - U)), near

    def _split(self, w: Array, near: Array, K: int) -> Array:
        """(n,) the mean of the answers of all rounds."""
        base, z = self._shares(np.ones(len(w))), np.eye(K)[self.groups]
        p = w / w.sum()
        away = (near - 1 / K)[self.groups]
        costs = away - p @ away
        above, below = z - base - self.alpha, base - z - self.alpha
        multipliers, total = np.zeros((4, K)), np.zeros(len(w))
        for t in range(1, self.rounds + 1):
            price = multipliers[0] - multipliers[1], multipliers[2] - multipliers[3]
            yes_costs = len(w) * p * (costs + above @ price[0] + below @ price[1])
            yes = LinearRegression().fit(self.X, np.maximum(yes_costs, 0)).predict(self.X)
            no = LinearRegression().fit(self.X, np.maximum(-yes_costs, 0)).predict(self.X)
            h = (yes < no).astype(float)
            total += h
            slopes = np.stack(
                [(p * h) @ above, (p * (1 - h)) @ above, (p * h) @ below, (p * (1 - h)) @ below]
            )
            multipliers = np.maximum(multipliers + STEP / np.sqrt(t) * slopes, 0)
            size = np.linalg.norm(multipliers)
            multipliers *= min(1.0, MOST / size) if size else 1.0
        return total / self.rounds
