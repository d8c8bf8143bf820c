"""Classifiers composed of other models: mixtures, votes, thresholds by group, decisions by cost.

Also repeatable random decisions, for which the random number of a row is a hash of its features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.util import hash_array
from scipy import sparse

from ratecli.models.base import Array, Classifier, Features, append_columns, width_of
from ratecli.models.linear import Linear, Threshold, ramp
from ratecli.models.output_cache import class_probabilities, leading_features, mark_rows
from ratecli.models.probabilities import ProbabilityModel
from ratecli.rates.sample import make_read_only

MIN_CHANCE = 1e-9
"""Smaller chances of members are rounding errors of 0."""
ARGMAX_COSTS = np.array([1.0, -1.0])
"""Costs that make a decision positive if the second of two classes is the likelier one."""


@dataclass(frozen=True)
class CostSensitiveClassifier(Classifier):
    """Deterministic: positive if its expected cost is below `-cut`, negative in a tie.

    Attributes
    ----------
    chances
        Returns the probabilities (n, Q) of Q classes for each row.
    costs
        (Q,) cost of a positive decision for each class.
    """

    chances: ProbabilityModel
    costs: Array
    cut: float = 0.0

    def __post_init__(self) -> None:
        make_read_only(self)
        if self.costs.shape != (self.chances.classes,):
            raise ValueError(f"{self.costs.size} costs of {self.chances.classes} classes")
        if np.isnan(self.costs).any() or np.isnan(self.cut):
            raise ValueError("a cost is not a number")

    width = width_of("chances")

    def score(self, X: Features) -> Array:
        """Return (n,) minus the expected cost of a positive decision, minus the cut."""
        return np.asarray(class_probabilities(self.chances, X) @ -self.costs) - self.cut


@dataclass(frozen=True)
class ProbabilityThreshold(CostSensitiveClassifier):
    """Deterministic: positive if the probability of the second of two classes exceeds `cut`.

    The score is that probability minus the cut; the label estimate is the probability.
    """

    # computed, so `replace(one, costs=...)` raises ValueError
    costs: Array = field(init=False, default_factory=lambda: np.array([0.0, -1.0]))
    cut: float = 0.5

    def estimate(self, X: Features) -> Array:
        return class_probabilities(self.chances, X)[:, 1]


@dataclass(frozen=True)
class GroupThreshold:
    """Deterministic: positive if the score is above the threshold of the row's group.

    A group is a combination of slices that a row is in. A row in none of the groups gets the
    threshold 0.

    Attributes
    ----------
    scorer
        Returns scores from d features; has no slices itself.
    slices
        S conditions as text, such as `sex = Female`.
    groups
        (C, S) which slices the rows of each group are in; the groups are distinct.
    thresholds
        (C,) the threshold of each group.
    """

    scorer: Classifier
    slices: tuple[str, ...]
    groups: NDArray[np.bool_]
    thresholds: Array

    def __post_init__(self) -> None:
        make_read_only(self)
        count, slices = self.groups.shape
        if self.scorer.slices or self.thresholds.shape != (count,) or len(self.slices) != slices:
            raise ValueError(
                f"{self.thresholds.size} thresholds, {count} groups of {len(self.slices)} slices"
            )
        if np.isnan(self.thresholds).any():
            raise ValueError("a threshold is not a number")

    width = width_of("scorer")

    def score(self, X: Features) -> Array:
        """Return the score minus the threshold; X is (n, d + S) with memberships last."""
        scores = self.scorer.score(leading_features(X, self.width))
        return self.shifted(scores, extract_memberships(X, self.width))

    def shifted(self, scores: Array, members: Array) -> Array:
        """Return scores (n,) minus thresholds, for rows with memberships (n, S)."""
        thresholds = np.append(self.thresholds, 0.0)  # the last for rows in none of the groups
        return np.asarray(scores - thresholds[find_groups(members, self.groups)])

    def decide(self, X: Features) -> Array:
        return (self.score(X) > 0).astype(float)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)


@dataclass(frozen=True)
class ModelRegressor(Classifier):
    """Regression: the estimate is the value of a fitted model, clipped to the range of the label.

    Like `LinearRegressor`, it makes no decisions: they are NaN.

    Attributes
    ----------
    values
        A model of one column (n, 1), the values.
    """

    values: ProbabilityModel
    range: tuple[float, float] = (-np.inf, np.inf)

    def __post_init__(self) -> None:
        low, high = self.range
        if self.values.classes != 1 or not low <= high:
            raise ValueError(f"{self.values.classes} columns instead of 1, or no range")

    width = width_of("values")

    def score(self, X: Features) -> Array:
        return class_probabilities(self.values, X)[:, 0]

    def decide(self, X: Features) -> Array:
        return np.full(X.shape[0], np.nan)

    def estimate(self, X: Features) -> Array:
        return np.clip(self.score(X), *self.range)


def rows_without_group(classifier: Classifier, members: Array) -> NDArray[np.bool_]:
    """Return which rows (n,) are in no group of group thresholds, given memberships (n, S).

    All members of a mixture have the same groups, except that constant members have none.
    """
    if isinstance(classifier, MixtureClassifier):
        found = [rows_without_group(each, members) for each in classifier.members]
        return np.asarray(np.any(found, axis=0))
    if not isinstance(classifier, GroupThreshold) or not classifier.groups.size:
        return np.zeros(len(members), dtype=bool)
    return np.equal(find_groups(members, classifier.groups), len(classifier.groups))


HASH_BOUND = 2**62


def append_memberships(X: Features, members: Sequence[NDArray[np.bool_]]) -> Features:
    """Return (n, d + S) features followed by a 0/1 column for each of S masks of shape (n,)."""
    if not len(members):
        return X
    return mark_rows(append_columns(X, np.stack(members, axis=1).astype(float)), X)


def extract_memberships(X: Features, width: int) -> Array:
    """Return the memberships (n, S) that follow the `width` features in X."""
    shown = X[:, width:]
    return shown if isinstance(shown, np.ndarray) else shown.toarray()


def hash_memberships(members: NDArray[Any]) -> NDArray[np.int64]:
    """Return a hash (n,) of each row of memberships (n, S).

    Equal rows have equal hashes. Two different rows have the same hash with a probability of about
    2^-63.
    """
    words = np.random.default_rng(0).integers(-HASH_BOUND, HASH_BOUND, size=members.shape[1])
    # integer sums modulo 2^64 are exact, so equal rows have equal sums
    return np.asarray(members.astype(np.int64) @ words)


def find_groups(members: Array, groups: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return (n,) the group that is in exactly the slices of each row, C if there is none.

    Memberships are (n, S) of rows and (C, S) of groups, which are distinct.
    """
    found = pd.Index(hash_memberships(groups)).get_indexer(pd.Index(hash_memberships(members)))
    return np.where(found < 0, len(groups), found)


@dataclass(frozen=True)
class MixtureClassifier(Classifier):
    """Member k decides with probability `chances[k]`; every output is the mean over members.

    Rates are linear in decisions, so the rates of the mean decision are the expected rates. Apply
    nonlinear metrics to those rates; do not average metrics of members.
    """

    members: tuple[Classifier, ...]
    chances: Array

    def __post_init__(self) -> None:
        make_read_only(self)
        chances = self.chances
        fits = chances.shape == (len(self.members),)
        if not (fits and (chances >= 0).all() and abs(chances.sum() - 1) <= 1e-9):
            raise ValueError(
                f"chances {chances} are not a distribution over {len(self.members)} members"
            )
        widths = {member.width for member in self.members}
        if len(widths) > 1:
            raise ValueError(f"members of a mixture have {sorted(widths)} features")
        if len({member.slices for member in self.members}) > 1:
            raise ValueError("members of a mixture use different slices")

    @classmethod
    def of(cls, members: Sequence[Classifier], chances: Array) -> MixtureClassifier:
        """Return the mixture of the members with positive chances, scaled to sum 1."""
        kept = np.flatnonzero(chances > MIN_CHANCE)
        return cls(tuple(members[k] for k in kept.tolist()), chances[kept] / chances[kept].sum())

    @property
    def width(self) -> int:
        return self.members[0].width

    @property
    def slices(self) -> tuple[str, ...]:
        return self.members[0].slices

    def _mean(self, answer: Callable[[Classifier], Array]) -> Array:
        answers = np.stack([answer(member) for member in self.members])
        return np.asarray(self.chances @ answers)

    def decide(self, X: Features) -> Array:
        return np.clip(self._mean(lambda member: member.decide(X)), 0.0, 1.0)  # rounding errors

    def score(self, X: Features) -> Array:
        return self._mean(lambda member: member.score(X))

    def estimate(self, X: Features) -> Array:
        return self._mean(lambda member: member.estimate(X))


def all_outputs(classifier: Classifier, X: Features) -> tuple[Array, Array, Array]:
    """Return the decisions, scores and estimates (n,) of rows; thresholds score each row once."""
    if type(classifier) in {GroupThreshold, Threshold}:
        scores = classifier.score(X)
        decided = (scores > 0).astype(float)
        return decided, scores, decided
    if type(classifier) is MixtureClassifier:
        outputs = zip(*(all_outputs(member, X) for member in classifier.members), strict=True)
        decided, scores, estimates = (classifier.chances @ np.stack(each) for each in outputs)
        return np.clip(decided, 0.0, 1.0), scores, estimates
    return classifier.decide(X), classifier.score(X), classifier.estimate(X)


@dataclass(frozen=True)
class MajorityVote(MixtureClassifier):
    """Deterministic: positive if the mixture's P(positive decision) is above 1/2."""

    def decide(self, X: Features) -> Array:
        return (super().decide(X) > 0.5).astype(float)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
BLOCK_ENTRIES = 2**18
"""Number of entries of X to hash at a time, few enough to stay in the cache."""


@dataclass(frozen=True)
class HashedRamp(Linear):
    """Randomized but repeatable: positive if sigma(f(x)) > U(x) (Goh et al. 2016, appendix A).

    U is uniform in [0, 1), computed from a hash of the row's features and `salt` modulo 2^64. Rows
    with equal features get equal decisions, wherever they are in X and whether X is dense or
    sparse. Over many salts, the share of positive decisions is the ramp's probability.
    """

    salt: int = 0

    def decide(self, X: Features) -> Array:
        return map_blocks(X, lambda rows: ramp(self.score(rows)) > row_uniforms(rows, self.salt))


@dataclass(frozen=True)
class HashedMixture(MixtureClassifier):
    """A mixture that always selects the same member for a row (Cotter, Narasimhan, Gupta 2019).

    U(x), defined as in `HashedRamp`, falls into the interval of one member's probability. Rows with
    equal features get equal decisions. Over many salts, the share of positive decisions is that of
    the mixture.
    """

    salt: int = 0

    def decide(self, X: Features) -> Array:
        ends = np.cumsum(self.chances)

        def decisions(rows: sparse.csr_array) -> Array:
            sampled = np.searchsorted(ends, row_uniforms(rows, self.salt), side="right")
            sampled = np.minimum(sampled, len(ends) - 1)
            answers = np.stack([member.decide(rows) for member in self.members])
            return np.asarray(answers[sampled, np.arange(len(sampled))])

        return map_blocks(X, decisions)

    def estimate(self, X: Features) -> Array:
        return self.decide(X)


def row_uniforms(rows: sparse.csr_array, salt: int) -> Array:
    """Return U(x) for each row, shape (n,), multiples of 2^-53 in [0, 1); `rows` store no zeros.

    The hash of a row is the sum modulo 2^64 of hashes of its features' columns and values, so it
    does not depend on their order or storage. The salt is mixed into that sum. pandas hashes
    integers by the finalizer of splitmix64 (Steele, Lea, Flood 2014), a bijection that mixes all
    bits.
    """
    columns = hash_array(np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * GOLDEN)
    values = rows.data.view(np.uint64)
    sums = np.zeros(rows.nnz + 1, dtype=np.uint64)
    np.cumsum(hash_array(values ^ columns[rows.indices]), out=sums[1:])
    hashes = sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]
    salted = hash_array(hashes ^ hash_array(np.full(1, salt % 2**64, dtype=np.uint64) + GOLDEN))
    return np.asarray((salted >> np.uint64(11)) * 2.0**-53, dtype=float)


def map_blocks(X: Features, answer: Callable[[sparse.csr_array], NDArray[Any]]) -> Array:
    """Return the answers (n,) for blocks of rows of X.

    Blocks are sparse arrays with sorted columns, without 0.0 and -0.0. In this form, the scores of
    a row do not depend on its position, not even in the last bit.
    """
    n = X.shape[0]
    answers = [np.empty(0)]
    # `size` counts the stored entries of a sparse X
    step = max(1, n * BLOCK_ENTRIES // max(X.size, 1))
    for start in range(0, n, step):
        rows = sparse.csr_array(X[start : start + step], dtype=float, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        answers.append(answer(rows))
    return np.concatenate(answers)


def mixture_variants(
    main: MixtureClassifier, rng: np.random.Generator
) -> dict[str, Callable[[], Classifier]]:
    """Return functions that make variants of a mixture, by name."""
    return {
        "stochastic": lambda: main,
        "voted": lambda: MajorityVote(main.members, main.chances),
        "hashed": lambda: HashedMixture(main.members, main.chances, int(rng.integers(2**31))),
    }
