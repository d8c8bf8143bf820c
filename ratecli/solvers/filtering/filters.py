"""Filters by the leaves of a growing tree of splits (Algorithm 4), and by a predicted group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.layout import ColumnLayout
from ratecli.models.proxies import ClassifierProxy, ProxyFilter, SampledFilter, SplitTree
from ratecli.models.recent import class_probabilities
from ratecli.models.trees import LEAF
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.filtering.solvers import BalancedTree, GuessedGroup
from ratecli.solvers.filtering.split import LeafSplit, TreeLeaf, nearest_split, progress_split
from ratecli.solvers.filtering.target import (
    FilterTarget,
    SamplingWeights,
    leaf_weights,
    maximize_kept_rows,
    optimal_sampling_weights,
)
from ratecli.solvers.oracles.base import FitRows, Oracle, OracleRows
from ratecli.solvers.oracles.build import make_oracle
from ratecli.solvers.oracles.estimators import fit_named
from ratecli.solvers.oracles.plugin import PlugInOracle
from ratecli.solvers.problem import Problem

DISCLOSURE_TOLERANCE = 1e-6
"""Rounding tolerance, in shares, for the disclosivity of a leaf."""


def solve_balanced_tree(
    options: BalancedTree, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Return the filter by the leaves of a tree that is grown until no split helps."""
    target = FilterTarget(problem, leave_out=options.missing == "leave_out")
    builder = FilterTreeBuilder(
        target, options, lambda ground: make_oracle(options.oracle, ground, problem.l2, rng)
    )
    for message in builder.grow():
        progress(message)
    variants = filter_variants(builder.filter(), rng, sampled=options.sampled)
    return Solution(variants, trace=tuple(builder.trace))


def solve_guessed_group(
    options: GuessedGroup, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Fit a classifier of the groups, and the chances of keeping each predicted group.

    Raises
    ------
    FaultError
        E501 if the classifier rejects the rows or its options.
    """
    target = FilterTarget(problem, leave_out=options.missing == "leave_out")
    weight = target.kinds.weight
    used = np.flatnonzero(weight)
    columns = target.column_layout or ColumnLayout.numbers(target.X.shape[1])
    weights = weight[used] / weight[used].mean()
    rows = FitRows(target.X[used], columns, target.combinations[used], weights)
    model = fit_named(options.model, rows, problem.l2, rng)
    progress(f"a classifier of {model.classes} groups is fitted")
    likeliest = class_probabilities(model, target.X).argmax(axis=1)
    groups = np.unique(likeliest[weight > 0]).astype(np.intp)  # ignore rows that are left out
    A, sizes = target.values(target.mass(np.equal.outer(likeliest, groups).astype(float)).T)
    if options.weights == "naive":
        keep = np.asarray(sizes.min() / sizes)
    else:
        best = optimal_sampling_weights(A, sizes, target.target, kept=options.kept)
        keep = maximize_kept_rows(A, sizes, best)
    proxy = ClassifierProxy(model, groups, options.noise)
    return Solution(filter_variants(ProxyFilter(proxy, keep), rng, sampled=options.sampled))


def filter_variants(
    expected: ProxyFilter, rng: np.random.Generator, *, sampled: bool
) -> dict[str, Classifier]:
    """Return the filter as `expected` and, if `sampled`, a single sample by it as `sampled`."""
    variants: dict[str, Classifier] = {"expected": expected}
    if sampled:
        salt = int(rng.integers(2**31))
        variants["sampled"] = SampledFilter(expected.proxy, expected.keep, salt=salt)
    return variants


class FilterTreeBuilder:
    """A growing tree. `leaves` are in the order of their nodes, and so are the proxy's values."""

    def __init__(
        self, target: FilterTarget, options: BalancedTree, oracle: Callable[[OracleRows], Oracle]
    ) -> None:
        """`oracle` returns an oracle for the rows of a leaf."""
        self.target, self.options, self.oracle = target, options, oracle
        self.children, self.splits = [(LEAF, LEAF)], dict[int, Classifier]()
        self.trace, self.begun = list[dict[str, Any]](), time.perf_counter()
        self.leaves = list[TreeLeaf]()
        self.leaves.append(self._leaf(0, 0, np.ones(len(target.kinds.of))))
        self.weights = leaf_weights(target, options, _masses(self.leaves))
        self._note(0.0)

    def grow(self) -> Iterator[str]:
        """Add one split after the other, and yield a message about each."""
        while self.weights.imbalance > self.options.stop:
            best = self._best_split()
            if best is None:
                return
            node, split, leaves, weights = best
            self.children[node] = (leaves[-2].node, leaves[-1].node)
            self.children += [(LEAF, LEAF), (LEAF, LEAF)]
            self.splits[node] = split.classifier
            self.leaves, self.weights = leaves, weights
            self._note(split.gap)
            yield f"{len(leaves)} leaves, {weights.imbalance:.4g} from the target"

    def filter(self) -> ProxyFilter:
        """Return the filter by the leaves, with the best weights that keep most rows."""
        splits = tuple(self.splits[node] for node in sorted(self.splits))
        children = np.array(self.children, dtype=np.intp)
        tree = SplitTree(self.target.X.shape[1], children, splits)
        A, sizes = self.target.values(_masses(self.leaves))
        return ProxyFilter(tree, maximize_kept_rows(A, sizes, self.weights))

    def _best_split(self) -> tuple[int, LeafSplit, list[TreeLeaf], SamplingWeights] | None:
        """Return the node to split, its split, and leaves and weights after it, or None.

        A split must reduce the imbalance of the sample, even with relaxed weights.
        """
        best = None
        before = self.weights.imbalance
        limit = (1 - self.options.gamma) * before
        split_leaf = nearest_split if self.options.split == "nearest" else progress_split
        for own, leaf in enumerate(self.leaves):
            if leaf.depth >= self.options.depth:
                continue
            split = split_leaf(self.target, self.options, self.leaves, own)
            leaves = None if split is None else self._split_leaves(own, split)
            if split is None or leaves is None:
                continue
            weights = leaf_weights(self.target, self.options, _masses(leaves))
            after = weights.imbalance
            if after <= limit and after < before - DISCLOSURE_TOLERANCE:
                limit, best = after, (leaf.node, split, leaves, weights)
                if self.options.order == "first":
                    break
        return best

    def _split_leaves(self, own: int, split: LeafSplit) -> list[TreeLeaf] | None:
        """Return the leaves after a split, its children last.

        None if a child is too small or discloses too much.
        """
        parent = self.leaves[own]
        decisions = split.classifier.decide(self.target.X)
        chances = (parent.chances * (1 - decisions), parent.chances * decisions)
        masses = np.stack([self.target.mass(each) for each in chances])
        least = max(self.options.child * (1 - DISCLOSURE_TOLERANCE), DISCLOSURE_TOLERANCE)
        if masses[:, -1].min() < least:
            return None
        if self.target.excess_disclosure(masses) > DISCLOSURE_TOLERANCE:
            return None
        first, depth = len(self.children), parent.depth + 1
        children = [self._leaf(first + k, depth, each) for k, each in enumerate(chances)]
        return [*self.leaves[:own], *self.leaves[own + 1 :], *children]

    def _leaf(self, node: int, depth: int, chances: Array) -> TreeLeaf:
        weighted = self.target.kinds.shares.multiply(chances[None, :]).tocsr()
        layout = self.target.column_layout
        ground = OracleRows(self.target.X, self.target.kinds, weighted, column_layout=layout)
        # The path of a row depends on its features only, so the probability of its group given the
        # features is the same in every leaf: the root's fit stays valid.
        root = self.leaves[0].oracle if self.leaves else None
        refit = root.weighing(ground) if isinstance(root, PlugInOracle) else self.oracle(ground)
        return TreeLeaf(node, depth, chances, self.target.mass(chances), ground, refit)

    def _note(self, gap: float) -> None:
        masses = _masses(self.leaves)
        excess = max(self.target.excess_disclosure(masses), 0.0)
        row = trace_row(len(self.trace), self.weights.imbalance, excess, self.begun, gap=gap)
        kept = float(self.weights.keep @ masses[:, -1])
        self.trace.append(row | {"leaves": len(self.leaves), "kept": kept})


def _masses(leaves: list[TreeLeaf]) -> Array:
    """Return the masses (L, R) of leaves."""
    return np.stack([leaf.mass for leaf in leaves])
