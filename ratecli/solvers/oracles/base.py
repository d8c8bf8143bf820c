"""The rows that oracles train on, and the interface of an oracle: a cost-sensitive learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import CostSensitiveClassifier, GroupThreshold, extract_memberships
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import Threshold
from ratecli.models.output_cache import leading_features
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.curve import RateCurve
from ratecli.solvers.design_matrix import merge_equal_rows


class FitRows(NamedTuple):
    """Rows that a classifier is fitted to.

    Attributes
    ----------
    X
        (m, d) features.
    layout
        The columns behind them.
    classes
        (m,) class of each row, from 0; for a regressor, the numbers to be estimated.
    weights
        (m,) positive weights.
    """

    X: Features
    layout: ColumnLayout
    classes: NDArray[Any]
    weights: Array


@dataclass(frozen=True)
class OracleRows:
    """Training rows with equal features merged.

    Attributes
    ----------
    X
        (m, d + S) features, followed by memberships in S slices.
    kinds
        Kinds of the rows before merging.
    shares
        (Q, m) weight of each kind in each merged row.
    slices
        S conditions as text that classifiers may use; usually none.
    column_layout
        Which features belong to one column; None if each is a number.
    """

    X: Features
    kinds: RowKinds
    shares: sparse.csr_array
    slices: tuple[str, ...] = ()
    column_layout: ColumnLayout | None = None

    @classmethod
    def of(
        cls,
        X: Features,
        kinds: RowKinds,
        slices: tuple[str, ...] = (),
        layout: ColumnLayout | None = None,
    ) -> OracleRows:
        rows, shares = merge_equal_rows(X, kinds.shares.toarray())
        return cls(rows, kinds, sparse.csr_array(shares), slices, layout)

    @property
    def count(self) -> int:
        """n, the number of rows before merging."""
        return int(self.kinds.matrix.sums.shape[1])

    @property
    def width(self) -> int:
        """d, the number of features."""
        return int(self.X.shape[1]) - len(self.slices)

    @property
    def layout(self) -> ColumnLayout:
        """The columns behind the features."""
        return self.column_layout or ColumnLayout.numbers(self.width)

    def constant(self, *, yes: bool) -> Classifier:
        """Return a constant classifier.

        It takes the slices as inputs, as others do, so that it can be mixed with them.
        """
        plain = Threshold(np.zeros(self.width), 1.0 if yes else -1.0)
        if not self.slices:
            return plain
        nobody = np.zeros((0, len(self.slices)), dtype=bool)
        return GroupThreshold(plain, self.slices, nobody, np.zeros(0))

    def decide(self, classifier: Classifier) -> Array:
        """Return the decisions (m,), caching the scores or probabilities that answers share."""
        match classifier:
            case CostSensitiveClassifier():
                return np.asarray(self._gains(classifier) > classifier.cut, dtype=float)
            case GroupThreshold(scorer=scorer):
                return (classifier.shifted(self._scores(scorer), self.members) > 0).astype(float)
        return classifier.decide(self.X)

    def ranks(self, classifier: Classifier) -> Array | None:
        """Return the scores (m,) that a classifier thresholds, None if it has none.

        `with_threshold` moves that threshold.
        """
        match classifier:
            case Threshold():
                return np.asarray(self.X @ classifier.weights)
            case CostSensitiveClassifier():
                return self._gains(classifier)
            case GroupThreshold(scorer=scorer) if len(classifier.groups):  # else it is constant
                return np.asarray(classifier.shifted(self._scores(scorer), self.members))
        return None

    def _scores(self, scorer: Classifier) -> Array:
        return self._cached(scorer, lambda: scorer.score(leading_features(self.X, self.width)))

    def _gains(self, classifier: CostSensitiveClassifier) -> Array:
        model = classifier.chances
        chances = self._cached(model, lambda: model.probabilities(self.X))
        return np.asarray(chances @ -classifier.costs)

    def _cached(self, model: object, outputs: Callable[[], Array]) -> Array:
        """Return the outputs of a model on these rows; those of the last model are kept."""
        if not self._outputs or self._outputs[0][0] is not model:
            self._outputs[:] = [(model, outputs())]
        return self._outputs[0][1]

    def remember(self, model: object, outputs: Array) -> None:
        """Let `decide` and `ranks` use these outputs of a model for the rows."""
        self._outputs[:] = [(model, outputs)]

    @cached_property
    def _outputs(self) -> list[tuple[object, Array]]:
        return []

    @cached_property
    def members(self) -> Array:
        """(m, S) 1 where a row is in a slice."""
        return extract_memberships(self.X, self.width)

    def rates(self, decisions: Array) -> Array:
        """Return the rates (K,) of decisions (m,)."""
        return self.kinds.rates(self.shares @ decisions)

    def cut_rates(self, scores: Array) -> tuple[Array, Array]:
        """Return all thresholds (T,) on scores (m,), and the rates (K, T) of deciding by each."""
        curve = RateCurve.of(scores)
        return curve.thresholds, self.kinds.rates(curve.sums(self.shares))

    def kind_costs(self, prices: Array) -> Array:
        """Return what positively deciding a weight of 1 of each kind costs, as (Q,).

        Rates have the prices (K,).
        """
        return np.asarray(prices @ self.kinds.slopes)

    def costs(self, prices: Array) -> Array:
        """Return what a positive decision costs for each row, as (m,), if rates have the prices
        (K,).
        """
        return np.asarray(self.kind_costs(prices) @ self.shares)


def with_threshold(member: Classifier, cut: float) -> Classifier:
    """Return a classifier that is positive where the score of `OracleRows.ranks` exceeds `cut`."""
    match member:
        case Threshold():
            return Threshold(member.weights, -cut)
        case GroupThreshold():
            return replace(member, thresholds=member.thresholds + cut)
    assert isinstance(member, CostSensitiveClassifier)
    return replace(member, cut=cut)


def blend(one: Classifier, other: Classifier, share: float) -> Classifier | None:
    """Return the classifier at a share of the way to another one, None if their kinds differ.

    Their thresholds are ignored; weights and costs are scaled to length 1 before.
    """
    match one, other:
        case Threshold(), Threshold():
            return Threshold(_between(one.weights, other.weights, share))
        case CostSensitiveClassifier(), CostSensitiveClassifier() if one.chances is other.chances:
            costs = _between(one.costs, other.costs, share)
            return CostSensitiveClassifier(one.chances, costs)
        case GroupThreshold(), GroupThreshold() if one.thresholds.shape == other.thresholds.shape:
            moved = share * (other.thresholds - one.thresholds)
            return replace(one, thresholds=one.thresholds + moved)
    return None


def _between(one: Array, other: Array, share: float) -> Array:
    start, end = (each / (float(np.linalg.norm(each)) or 1.0) for each in (one, other))
    return start + share * (end - start)


def as_linear_threshold(model: Any) -> Threshold | None:
    """Return the classifier as a linear threshold; None if it is not linear."""
    weights = getattr(model, "coef_", None)
    if not (isinstance(weights, np.ndarray) and weights.shape == (1, model.n_features_in_)):
        return None
    bias = np.ravel(model.intercept_)
    return Threshold(weights[0].astype(float), float(bias[0]))


class Oracle(Protocol):
    """Answers prices on rates with a classifier of small cost: a cost-sensitive learner.

    The cost is `prices @ rates`. A positive decision for one row costs what the row's kind (its
    label and its slices) adds to the rates at these prices.
    """

    starts: ClassVar[bool]
    """Whether the answer depends on the starting classifier `near`."""

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:
        """Return a deterministic classifier for prices (K,) that are not all 0."""
        ...
