"""The classifiers found so far, and what they do to the rates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Classifier, Features
from ratecli.rates.kinds import Kinds
from ratecli.solvers.majorize.rows import merged
from ratecli.solvers.mixture.threshold import cuts

LEAST_CHANCE = 1e-9
"""Below this a chance is what rounding left of none."""


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

    def costs(self, prices: Array) -> Array:
        """(m,) what a yes of each row costs where rates have the prices (K,)."""
        return np.asarray((prices @ self.kinds.slopes) @ self.shares)


@dataclass
class Pool:
    """Classifiers, and their rates (K, T) on the rows."""

    ground: Ground
    members: list[Classifier] = field(default_factory=list)
    _rates: list[Array] = field(default_factory=list)

    def add(self, classifier: Classifier) -> Array:
        """Returns the rates (K,) of the classifier."""
        rates = self.ground.rates(classifier.decide(self.ground.X))
        self.members.append(classifier)
        self._rates.append(rates)
        return rates

    @property
    def rates(self) -> Array:
        return np.stack(self._rates, axis=1)

    def cheapest(self, prices: Array) -> Classifier:
        return self.members[int(np.argmin(prices @ self.rates))]

    def some(self, chances: Array) -> tuple[tuple[Classifier, ...], Array]:
        """The members with a chance, and their chances, which add up to 1."""
        kept = np.flatnonzero(chances > LEAST_CHANCE)
        return tuple(self.members[k] for k in kept), chances[kept] / chances[kept].sum()
