"""The classifiers found so far, and what they do to the rates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.solvers.oracles.ground import OracleRows

MIN_MEMBER_CHANCE = 1e-9
"""Below this a chance is what rounding left of none."""


@dataclass
class ClassifierPool:
    """Classifiers, and their rates (K, T) on the rows."""

    ground: OracleRows
    members: list[Classifier] = field(default_factory=list)
    _rates: list[Array] = field(default_factory=list)

    def add(self, classifier: Classifier) -> Array:
        """Returns the rates (K,) of the classifier."""
        rates = self.ground.rates(self.ground.decide(classifier))
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
        kept = np.flatnonzero(chances > MIN_MEMBER_CHANCE)
        return tuple(self.members[k] for k in kept), chances[kept] / chances[kept].sum()
