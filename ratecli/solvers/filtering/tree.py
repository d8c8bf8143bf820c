"""Growth of the tree of splits whose leaves are the values of a proxy (Algorithm 4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.proxies import ProxyFilter, SplitTree
from ratecli.models.trees import LEAF
from ratecli.solvers.filtering.aim import FilterTarget
from ratecli.solvers.filtering.split import LeafSplit, SplitOptions, TreeLeaf
from ratecli.solvers.filtering.weights import (
    SamplingWeights,
    maximize_kept_rows,
    optimal_sampling_weights,
)
from ratecli.solvers.oracles.base import Oracle, OracleRows
from ratecli.solvers.oracles.choice import reweight_oracle

DISCLOSURE_TOLERANCE = 1e-6
"""Rounding tolerance, in shares, for the disclosivity of a leaf."""

Splitter = Callable[[Sequence[TreeLeaf], int], LeafSplit | None]
"""Returns a split of the leaf with the given index, or None."""


@dataclass(frozen=True)
class GrowthOptions:
    """When a tree stops growing.

    Attributes
    ----------
    shrink
        gamma: a split must reduce the imbalance to at most `1 - gamma` times its previous value.
        This is the imbalance of the sample, even with relaxed weights.
    depth
        Maximum number of splits above a leaf.
    stop
        beta: the imbalance at which growth stops.
    order
        `best`: split the leaf where it helps most; `first`: the oldest one where it helps enough.
    """

    shrink: float
    depth: int
    stop: float
    order: str


@dataclass
class FilterTreeBuilder:
    """A growing tree. `leaves` are in the order of their nodes, and so are the proxy's values."""

    aim: FilterTarget
    rules: GrowthOptions
    terms: SplitOptions
    split: Splitter
    oracle: Callable[[OracleRows], Oracle]
    leaves: list[TreeLeaf] = field(default_factory=list)
    children: list[tuple[int, int]] = field(default_factory=list)
    splits: dict[int, Classifier] = field(default_factory=dict)
    trace: list[dict[str, Any]] = field(default_factory=list)
    begun: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.children.append((LEAF, LEAF))
        self.leaves.append(self._leaf(0, 0, np.ones(len(self.aim.kinds.of))))
        self.weights = self._weigh(self.leaves)
        self._note(0.0)

    def grow(self) -> Iterator[str]:
        """Add one split after the other, and yield a message about each."""
        while self.weights.imbalance > self.rules.stop:
            found = self._next()
            if found is None:
                return
            own, split, leaves, weights = found
            self.children[self.leaves[own].node] = (leaves[-2].node, leaves[-1].node)
            self.children += [(LEAF, LEAF), (LEAF, LEAF)]
            self.splits[self.leaves[own].node] = split.classifier
            self.leaves, self.weights = leaves, weights
            self._note(split.gap)
            yield f"{len(leaves)} leaves, {weights.imbalance:.4g} from the target"

    def filter(self) -> ProxyFilter:
        """Return the filter by the leaves, with the best weights that keep most rows."""
        splits = tuple(self.splits[node] for node in sorted(self.splits))
        tree = SplitTree(self.aim.X.shape[1], np.array(self.children, dtype=np.intp), splits)
        most = maximize_kept_rows(*self.aim.values(self.masses()), self.weights)
        return ProxyFilter(tree, most.keep)

    def masses(self) -> Array:
        """Return the masses (L, R) of the leaves."""
        return np.stack([leaf.mass for leaf in self.leaves])

    def _next(self) -> tuple[int, LeafSplit, list[TreeLeaf], SamplingWeights] | None:
        """Return the leaf to split, its split, and leaves and weights after it, or None."""
        best = None
        limit = (1 - self.rules.shrink) * self.weights.imbalance
        for own, leaf in enumerate(self.leaves):
            if leaf.depth >= self.rules.depth:
                continue
            split = self.split(self.leaves, own)
            after = None if split is None else self._after(own, split)
            if split is None or after is None:
                continue
            weights = self._weigh(after)
            if (
                weights.imbalance <= limit
                and weights.imbalance < self.weights.imbalance - DISCLOSURE_TOLERANCE
            ):
                limit, best = weights.imbalance, (own, split, after, weights)
                if self.rules.order == "first":
                    break
        return best

    def _after(self, own: int, split: LeafSplit) -> list[TreeLeaf] | None:
        """Return the leaves after a split, its children last.

        None if a child is too small or discloses too much.
        """
        parent = self.leaves[own]
        said = split.classifier.decide(self.aim.X)
        ways = (parent.chances * (1 - said), parent.chances * said)
        masses = np.stack([self.aim.mass(chances) for chances in ways])
        if masses[:, -1].min() < max(
            self.terms.child * (1 - DISCLOSURE_TOLERANCE), DISCLOSURE_TOLERANCE
        ):
            return None
        if self.aim.disclosed(masses) > DISCLOSURE_TOLERANCE:
            return None
        first, depth = len(self.children), parent.depth + 1
        found = [self._leaf(first + k, depth, chances) for k, chances in enumerate(ways)]
        return [*self.leaves[:own], *self.leaves[own + 1 :], *found]

    def _leaf(self, node: int, depth: int, chances: Array) -> TreeLeaf:
        weighed = self.aim.shares.multiply(chances[None, :])
        ground = OracleRows(self.aim.X, self.aim.kinds, weighed.tocsr())
        return TreeLeaf(node, depth, chances, self.aim.mass(chances), ground, self._oracle(ground))

    def _oracle(self, ground: OracleRows) -> Oracle:
        """Return an oracle for the rows of a leaf, reusing the root's fit if possible.

        The path of a row depends on its features only, so the probability of its group given the
        features is the same in every leaf.
        """
        known = reweight_oracle(self.leaves[0].oracle, ground) if self.leaves else None
        return known or self.oracle(ground)

    def _weigh(self, leaves: Sequence[TreeLeaf]) -> SamplingWeights:
        A, sizes = self.aim.values(np.stack([leaf.mass for leaf in leaves]))
        terms = self.terms
        return optimal_sampling_weights(
            A, sizes, self.aim.target, kept=terms.kept, relaxed=terms.relaxed
        )

    def _note(self, gap: float) -> None:
        masses = self.masses()
        self.trace.append(
            {
                "iteration": len(self.trace),
                "objective": self.weights.imbalance,
                "violation": max(self.aim.disclosed(masses), 0.0),
                "gap": gap,
                "seconds": time.perf_counter() - self.begun,
                "leaves": len(self.leaves),
                "kept": float(self.weights.keep @ masses[:, -1]),
            }
        )
