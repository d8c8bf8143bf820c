"""Repeatable random decisions: the random number of a row is a hash of its features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import MajorityVote, MixtureClassifier
from ratecli.models.linear import Linear, ramp

Words = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ENTRIES = 2**18
"""Number of entries of X to hash at a time, few enough to stay in the cache."""


class _HashedClassifier(ABC):
    """Base of classifiers that decide each row by a hash of the row and a salt."""

    salt: int

    def decide(self, X: Features) -> Array:
        answers = [self._decisions(rows) for rows in _blocks(X)]
        return np.concatenate([np.empty(0), *answers])

    def estimate(self, X: Features) -> Array:
        return self.decide(X)

    @abstractmethod
    def _decisions(self, rows: sparse.csr_array) -> Array:
        """Return the decisions for rows in the form of `_blocks`."""


@dataclass(frozen=True)
class HashedRamp(_HashedClassifier, Linear):
    """Randomized but repeatable: positive if sigma(f(x)) > U(x) (Goh et al. 2016, appendix A).

    U is uniform in [0, 1), computed from a hash of the row's features and `salt`, an integer from 0
    to 2^64 - 1. Rows with equal features get equal decisions, wherever they are in X and whether X
    is dense or sparse. Over many salts, the share of positive decisions is the ramp's probability.
    """

    kind: ClassVar[str] = "hashed_ramp"
    salt: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_salt(self.salt)

    def _decisions(self, rows: sparse.csr_array) -> Array:
        return (ramp(self.score(rows)) > uniforms_for_rows(rows, self.salt)).astype(float)


@dataclass(frozen=True)
class HashedMixture(_HashedClassifier, MixtureClassifier):
    """A mixture that always selects the same member for a row (Cotter, Narasimhan, Gupta 2019).

    U(x), defined as in `HashedRamp`, falls into the interval of one member's probability. Rows with
    equal features get equal decisions. Over many salts, the share of positive decisions is that of
    the mixture.
    """

    kind: ClassVar[str] = "hashed_mixture"
    salt: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_salt(self.salt)

    def _decisions(self, rows: sparse.csr_array) -> Array:
        ends = np.cumsum(self.chances)
        drawn = np.minimum(
            np.searchsorted(ends, uniforms_for_rows(rows, self.salt), side="right"), len(ends) - 1
        )
        answers = np.stack([member.decide(rows) for member in self.members])
        return np.asarray(answers[drawn, np.arange(len(drawn))])


def check_salt(salt: int) -> None:
    if not 0 <= salt < 2**64:
        raise ValueError(f"the salt {salt} is not from 0 to 2^64 - 1")


def uniforms_for_features(X: Features, salt: int) -> Array:
    """Return U(x) for each row of X, shape (n,)."""
    return np.concatenate([np.empty(0), *(uniforms_for_rows(rows, salt) for rows in _blocks(X))])


def uniforms_for_rows(rows: sparse.csr_array, salt: int) -> Array:
    """Return U(x) for each row, shape (n,), multiples of 2^-53 in [0, 1); `rows` store no zeros.

    The hash of a row is the sum modulo 2^64 of hashes of its features' columns and values, so it
    does not depend on their order or storage. The salt is mixed into that sum.
    """
    columns = _splitmix64(np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * GOLDEN)
    values = rows.data.view(np.uint64)
    sums = np.zeros(rows.nnz + 1, dtype=np.uint64)
    np.cumsum(_splitmix64(values ^ columns[rows.indices]), out=sums[1:])
    hashes = sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]
    salted = _splitmix64(hashes ^ _splitmix64(np.full(1, salt, dtype=np.uint64) + GOLDEN))
    return np.asarray((salted >> np.uint64(11)) * 2.0**-53, dtype=float)


def _splitmix64(words: Words) -> Words:
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits."""
    mixed = (words ^ (words >> np.uint64(30))) * FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _blocks(X: Features) -> Iterator[sparse.csr_array]:
    """Yield blocks of rows of X as sparse arrays with sorted columns, without 0.0 and -0.0.

    In this form, the scores of a row do not depend on its position, not even in the last bit.
    """
    n = X.shape[0]
    step = max(1, n * ENTRIES // max(X.size, 1))  # the size of a sparse X is its stored entries
    for start in range(0, n, step):
        rows = sparse.csr_array(X[start : start + step], dtype=float, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        yield rows


def deterministic_variants(
    main: MixtureClassifier, rng: np.random.Generator | None
) -> dict[str, Classifier]:
    """Return the variants that follow from a mixture: `voted`, and `hashed` if `rng` is given."""
    variants: dict[str, Classifier] = {"voted": MajorityVote(main.members, main.chances)}
    if rng is not None:
        variants["hashed"] = HashedMixture(main.members, main.chances, int(rng.integers(2**31)))
    return variants
