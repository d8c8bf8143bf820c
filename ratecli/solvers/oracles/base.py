"""What a game asks for: a classifier whose yeses and noes are cheap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.grouped import GroupThreshold, extract_memberships
from ratecli.models.linear import Threshold
from ratecli.models.weighed import CostSensitiveClassifier
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.majorize.rows import merge_equal_rows
from ratecli.solvers.oracles.threshold import all_thresholds


@dataclass(frozen=True)
class OracleRows:
    """Rows with equal features merged.

    Attributes
    ----------
    X
        (m, d + S) features, and behind them who is in each of S slices.
    kinds
        Of the rows before they were merged.
    shares
        (Q, m) weight of each kind in each row.
    slices
        S conditions as text that classifiers are to look at; mostly none.
    """

    X: Features
    kinds: RowKinds
    shares: sparse.csr_array
    slices: tuple[str, ...] = ()

    @classmethod
    def of(cls, X: Features, kinds: RowKinds, slices: tuple[str, ...] = ()) -> OracleRows:
        table = np.zeros((kinds.count, X.shape[0]))
        table[kinds.of, np.arange(X.shape[0])] = kinds.weight
        rows, shares = merge_equal_rows(X, table)
        return cls(rows, kinds, sparse.csr_array(shares), slices)

    @property
    def count(self) -> int:
        """n, the number of rows before they were merged."""
        return len(self.kinds.of)

    @property
    def width(self) -> int:
        """d, the number of features."""
        return int(self.X.shape[1]) - len(self.slices)

    def constant(self, *, yes: bool) -> Classifier:
        """Decides all alike, and looks at the slices, as others do with which it is mixed."""
        plain = Threshold(np.zeros(self.width), 1.0 if yes else -1.0)
        if not self.slices:
            return plain
        nobody = np.zeros((0, len(self.slices)), dtype=bool)
        return GroupThreshold(plain, self.slices, nobody, np.zeros(0))

    def decide(self, classifier: Classifier) -> Array:
        """(m,) decisions; what many classifiers have in common is computed once: the scores that a
        GroupThreshold shifts, the chances that a Weighed weighs.
        """
        if isinstance(classifier, CostSensitiveClassifier):
            return np.asarray(self._gains(classifier) > classifier.cut, dtype=float)
        if not isinstance(classifier, GroupThreshold):
            return classifier.decide(self.X)
        if self._scored.get("by") is not classifier.scorer:
            scores = classifier.scorer.score(self.X[:, : self.width])
            self._scored.update({"by": classifier.scorer, "scores": scores})
        return np.asarray(classifier.shifted(self._scored["scores"], self.members) > 0, dtype=float)

    def ranks(self, classifier: Classifier) -> Array | None:
        """(m,) what rows are ranked by, of a classifier that `cut.cut_at` can decide from it."""
        match classifier:
            case Threshold():
                return np.asarray(self.X @ classifier.weights)
            case CostSensitiveClassifier():
                return self._gains(classifier)
            case _:
                return None

    def _gains(self, classifier: CostSensitiveClassifier) -> Array:
        if self._scored.get("of") is not classifier.chances:
            self._scored.update(
                {"of": classifier.chances, "chances": classifier.chances.of(self.X)}
            )
        return np.asarray(self._scored["chances"] @ -classifier.costs)

    @cached_property
    def _scored(self) -> dict[str, Any]:
        return {}

    @cached_property
    def members(self) -> Array:
        """(m, S) 1 where a row is in a slice."""
        return extract_memberships(self.X, self.width)

    def rates(self, decisions: Array) -> Array:
        """(K,) rates of decisions (m,)."""
        return self.kinds.rates(self.shares @ decisions)

    def cut_rates(self, scores: Array) -> tuple[Array, Array]:
        """Every threshold (T,) on scores (m,), and the rates (K, T) of a yes above it."""
        order, counts, thresholds = all_thresholds(scores)
        reached = np.cumsum(self.shares.toarray()[:, order], axis=1)
        yes = np.hstack([np.zeros((len(reached), 1)), reached])[:, counts]
        return thresholds, self.kinds.rates(yes)

    def kind_costs(self, prices: Array) -> Array:
        """(Q,) what a weight of 1 decided yes costs, of each kind, where rates have the prices (K,)."""
        return np.asarray(prices @ self.kinds.slopes)

    def costs(self, prices: Array) -> Array:
        """(m,) what a yes of each row costs where rates have the prices (K,)."""
        return np.asarray(self.kind_costs(prices) @ self.shares)


class Oracle(Protocol):
    """Answers prices on rates with a classifier of small cost: a cost-sensitive learner.

    The cost is `prices @ rates`, so that a yes of one row costs what its kind, that is its label and
    all slices that it is in, adds to the rates at those prices.
    """

    starts: ClassVar[bool]
    """Whether the answer hangs on the classifier `near` that it is sought from."""

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:
        """A deterministic classifier; (K,) prices, not all 0."""
        ...
