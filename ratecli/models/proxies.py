"""Proxies of groups, and filters that subsample rows by them (Deng, Diana, Kearns, Roth 2023).

A proxy maps features to one of L values, possibly at random, without access to the group. A filter
keeps a row with a probability that depends on its value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier, Features, width_of
from ratecli.models.composed import map_blocks, row_uniforms
from ratecli.models.output_cache import class_probabilities
from ratecli.models.probabilities import ProbabilityModel
from ratecli.models.trees import LEAF

IntArray = NDArray[np.intp]


@dataclass(frozen=True)
class SplitTree:
    """A tree of randomized splits whose leaves are the values (Definitions 8 to 12).

    At an inner node, a row goes to the second child with the probability that the node's classifier
    decides positively, else to the first.

    Attributes
    ----------
    width
        d, the number of features.
    children
        (N, 2) child nodes, which have larger indices than their parent; LEAF for leaves. The root
        is node 0.
    splits
        The classifiers of the inner nodes, in the order of the nodes.
    """

    width: int
    children: IntArray
    splits: tuple[Classifier, ...]

    def __post_init__(self) -> None:
        inner = self.children[:, 0] != LEAF
        behind = self.children[inner] > np.flatnonzero(inner)[:, None]
        reached = np.sort(self.children[inner], axis=None)
        fits = (
            self.width >= 0
            and self.children.shape == (2 * len(self.splits) + 1, 2)
            and int(inner.sum()) == len(self.splits)
            and bool((self.children[~inner] == LEAF).all())
            and bool(behind.all())
            and np.array_equal(reached, np.arange(1, len(self.children)))
            and all(split.width == self.width and not split.slices for split in self.splits)
        )
        if not fits:
            raise ValueError("the nodes are not a tree of splits")

    @property
    def leaves(self) -> IntArray:
        """(L,) the nodes of the values 0 to L - 1."""
        return np.flatnonzero(self.children[:, 0] == LEAF)

    @property
    def values(self) -> int:
        return len(self.splits) + 1

    def memberships(self, X: Features) -> Array:
        """Return the products of the probabilities along each path (Definition 10)."""
        reached = np.ones((len(self.children), X.shape[0]))
        inner = np.flatnonzero(self.children[:, 0] != LEAF)
        for node, split in zip(inner, self.splits, strict=True):
            no, yes = self.children[node]
            said = split.decide(X)
            reached[yes], reached[no] = reached[node] * said, reached[node] * (1 - said)
        return np.ascontiguousarray(reached[self.leaves].T)


@dataclass(frozen=True)
class ClassifierProxy:
    """A classifier of the group itself: guesses the likeliest of the groups guessed in training.

    Attributes
    ----------
    chances
        Returns the probabilities of Q groups for each row.
    groups
        (L,) the groups among Q that were guessed in training, ascending; no others are ever
        guessed.
    noise
        Probability in [0, 1] that a guess is replaced by one of the L groups, sampled uniformly
        (appendix A.1.1).
    """

    chances: ProbabilityModel
    groups: IntArray
    noise: float = 0.0

    def __post_init__(self) -> None:
        groups, classes = self.groups, self.chances.classes
        known = (
            groups.ndim == 1
            and groups.size > 0
            and bool((np.diff(groups) > 0).all())
            and 0 <= groups[0] <= groups[-1] < classes
        )
        if not (known and 0 <= self.noise <= 1):
            raise ValueError(f"groups {self.groups}, noise {self.noise}")

    width = width_of("chances")

    @property
    def values(self) -> int:
        return len(self.groups)

    def memberships(self, X: Features) -> Array:
        likeliest = class_probabilities(self.chances, X)[:, self.groups].argmax(axis=1)
        sure = np.eye(self.values)[likeliest]
        return np.asarray((1 - self.noise) * sure + self.noise / self.values)


Proxy = SplitTree | ClassifierProxy
"""A map from d features to one of L `values`, with `memberships` (n, L): the probabilities."""


@dataclass(frozen=True)
class ProxyFilter(Classifier):
    """Keeps a row with the probability of its value (Algorithm 2); a positive decision keeps it.

    Attributes
    ----------
    keep
        (L,) the probabilities, in [0, 1].
    """

    proxy: Proxy
    keep: Array

    def __post_init__(self) -> None:
        good = (
            self.keep.shape == (self.proxy.values,) and ((self.keep >= 0) & (self.keep <= 1)).all()
        )
        if not good:
            raise ValueError(f"chances {self.keep} of {self.proxy.values} values")

    width = width_of("proxy")

    def keep_probability(self, X: Features) -> Array:
        """Return (n,) the probability of keeping each row, in [0, 1]."""
        return np.clip(self.proxy.memberships(X) @ self.keep, 0.0, 1.0)  # rounding errors

    def decide(self, X: Features) -> Array:
        return self.keep_probability(X)

    def score(self, X: Features) -> Array:
        return self.decide(X)

    def sample_rows(
        self, X: Features, rng: np.random.Generator
    ) -> tuple[IntArray, NDArray[np.bool_]]:
        """Sample the value of each row, (n,), and whether it is kept, (n,).

        Sampling the value once from its probabilities is equivalent to sampling a classifier at
        each split (Definition 9). Each row takes two random numbers, so its result depends on its
        position but on no other row.
        """
        draws = rng.random((X.shape[0], 2))
        ends = np.cumsum(self.proxy.memberships(X), axis=1)
        ends /= ends[:, -1:]
        values = (draws[:, :1] >= ends).sum(axis=1)
        return values, draws[:, 1] < self.keep[values]


@dataclass(frozen=True)
class SampledFilter(ProxyFilter):
    """One repeatable sample of a filter, determined by a hash of the row and `salt`.

    Rows with equal features are kept or dropped together. Over many salts, the share kept is that
    of the filter. Decisions are the sampled ones, while the memberships are those of the filter's
    proxy.
    """

    salt: int = field(default=0, kw_only=True)

    def decide(self, X: Features) -> Array:
        uniforms = map_blocks(X, lambda rows: row_uniforms(rows, self.salt))
        return (uniforms < self.keep_probability(X)).astype(float)
