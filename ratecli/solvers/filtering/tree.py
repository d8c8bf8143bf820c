"""The tree of splits whose leaves are the values of a proxy (Algorithm 4)."""

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
"""By how much a leaf may disclose more than it is allowed to, in shares: what rounding leaves."""

Splitter = Callable[[Sequence[TreeLeaf], int], LeafSplit | None]
"""Finds a split of one of the leaves."""


@dataclass(frozen=True)
class GrowthOptions:
    """When a tree stops growing.

    Attributes
    ----------
    shrink
        gamma: a split must bring the imbalance to at most `1 - gamma` times what it was. That of the sample,
        also with relaxed weights.
    depth
        Splits above a leaf, at most.
    stop
        beta: near enough.
    order
        `best`: of all leaves that one is split where it helps most; `first`: the oldest one where it is
        enough.
    """

    shrink: float
    depth: int
    stop: float
    order: str


@dataclass
class FilterTreeBuilder:
    """A tree that grows; `leaves` are in the order of their nodes, which is that of the values."""

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
        """One split after the other; says what each has brought."""
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
        """By the leaves, with the weights that keep most of those that are best."""
        splits = tuple(self.splits[node] for node in sorted(self.splits))
        tree = SplitTree(self.aim.X.shape[1], np.array(self.children, dtype=np.intp), splits)
        most = maximize_kept_rows(*self.aim.values(self.masses()), self.weights)
        return ProxyFilter(tree, most.keep)

    def masses(self) -> Array:
        """(L, R) of the leaves."""
        return np.stack([leaf.mass for leaf in self.leaves])

    def _next(self) -> tuple[int, LeafSplit, list[TreeLeaf], SamplingWeights] | None:
        """The leaf to split, with the leaves and weights that there are then."""
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
        """The leaves after a split, its children last; None where a child is too small or says too much."""
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
        """Where a row goes hangs on its features: what these say of its group is the same in every leaf."""
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
