"""Rows as oracles see them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.rates.kinds import Kinds
from ratecli.solvers.majorize.rows import merged
from ratecli.solvers.oracles.threshold import cuts


@dataclass(frozen=True)
class Ground:
    """Rows with equal features merged.

    Attributes
    ----------
    X
        (m, d) features.
    kinds
        Of the rows before they were merged.
    shares
        (Q, m) weight of each kind in each row.
    """

    X: Features
    kinds: Kinds
    shares: sparse.csr_array

    @classmethod
    def of(cls, X: Features, kinds: Kinds) -> Ground:
        table = np.zeros((kinds.count, X.shape[0]))
        table[kinds.of, np.arange(X.shape[0])] = kinds.weight
        rows, shares = merged(X, table)
        return cls(rows, kinds, sparse.csr_array(shares))

    def rates(self, decisions: Array) -> Array:
        """(K,) rates of decisions (m,)."""
        return self.kinds.rates(self.shares @ decisions)

    def cut_rates(self, scores: Array) -> tuple[Array, Array]:
        """Every threshold (T,) on scores (m,), and the rates (K, T) of a yes above it."""
        order, counts, thresholds = cuts(scores)
        reached = np.cumsum(self.shares.toarray()[:, order], axis=1)
        yes = np.hstack([np.zeros((len(reached), 1)), reached])[:, counts]
        return thresholds, self.kinds.rates(yes)

    def kind_costs(self, prices: Array) -> Array:
        """(Q,) what a weight of 1 decided yes costs, of each kind, where rates have the prices (K,)."""
        return np.asarray(prices @ self.kinds.slopes)

    def costs(self, prices: Array) -> Array:
        """(m,) what a yes of each row costs where rates have the prices (K,)."""
        return np.asarray(self.kind_costs(prices) @ self.shares)
