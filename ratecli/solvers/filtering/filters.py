"""Filters by the leaves of a growing tree of splits (Algorithm 4), and by a predicted group.

A randomized split is the `nearest` to the target, or that of the paper's linear `progress`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import MixtureClassifier
from ratecli.models.layout import ColumnLayout
from ratecli.models.output_cache import class_probabilities
from ratecli.models.proxies import ClassifierProxy, ProxyFilter, SampledFilter, SplitTree
from ratecli.models.trees import LEAF
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.filtering.options import BalancedTree, GuessedGroup
from ratecli.solvers.filtering.target import (
    MIN_SHARE,
    FilterTarget,
    LeastSquaresOptimum,
    SamplingWeights,
    leaf_weights,
    maximize_kept_rows,
    optimal_sampling_weights,
    solve_least_squares_qp,
)
from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RateProgram
from ratecli.solvers.hull.mixture import ColumnGeneration
from ratecli.solvers.oracles.base import FitRows, Oracle, OracleRows, with_threshold
from ratecli.solvers.oracles.estimators import fit_named
from ratecli.solvers.oracles.plugin import PlugInOracle, make_oracle
from ratecli.solvers.problem import Problem

THRESHOLD_SHARES = (0.005, 0.01, 0.03, 0.1, 0.3, 0.6)
"""Minimum shares of a leaf for each of which the cheapest threshold is tried."""


@dataclass(frozen=True)
class TreeLeaf:
    """A leaf of a growing tree: its position, each row's chance (n,) to reach it, its mass (R,)."""

    node: int
    depth: int
    chances: Array
    mass: Array
    ground: OracleRows
    oracle: Oracle


@dataclass(frozen=True)
class _LeafProgram:
    """The quadratic program that splits one leaf while the others stay as they are.

    A randomized split sends mass y to the positive child and m - y to the other one; y can be any
    mean of the masses of the oracle's classifiers. The kept part of the leaf is t (m - y) + (s + t)
    y = t m + s y for some s and t: a sum of columns for the leaf as it is, and for the answers with
    chances times s. Hence the distance of the hull after the best split is a convex program in s
    times the chances. All limits are linear and homogeneous in these variables: disclosivity of
    either child (the four families of appendix A.4, each multiplied by its denominator), the kept
    share, and the minimum size of a child.
    """

    target: FilterTarget
    options: BalancedTree
    leaves: Sequence[TreeLeaf]
    own: int

    def solved(self, masses: Array) -> LeastSquaresOptimum:
        """Solve the program for answers of masses (T, R); columns of unsplit leaves come first."""
        others = np.stack([leaf.mass for leaf in self.leaves])
        squares, right, total = self._objective(np.vstack([others, masses]))
        limited = self._limits(masses)
        unsplit = np.zeros((len(limited), len(others)))
        if self.options.kept > 0:
            unsplit[-len(others) :] = self.options.kept * np.eye(len(others)) - others[:, -1]
        return solve_least_squares_qp(squares, right, np.hstack([unsplit, limited]), total)

    def _objective(self, masses: Array) -> tuple[Array, Array, Array | None]:
        """Return squares (K, T), their target (K,), and sizes if these must add up to 1."""
        groups, sizes = masses[:, self.target.balanced].T, masses[:, -1]
        shares = self.target.target
        if self.options.relaxed:
            return groups, shares, None
        return groups - np.outer(shares, sizes), np.zeros(len(shares)), sizes

    def _limits(self, masses: Array) -> Array:
        """Return limits (M, T), at most 0, of answers of masses (T, R)."""
        rest = self.leaves[self.own].mass - masses
        parts = [self.target.disclosure_limits(each) for each in (masses, rest)]
        parts += [(self.options.child - each[:, -1])[None] for each in (masses, rest)]
        if self.options.kept > 0:
            here = np.arange(len(self.leaves)) == self.own
            parts.append(self.options.kept * here[:, None] - masses[:, -1])
        return np.vstack(parts)

    def largest(self, chances: Array, masses: Array) -> Array:
        """Return chances (T,) of the same positive child at the largest size that the limits allow.

        The answers have masses (T, R); the second one is negative for all rows. The size of the
        child does not affect the distance.
        """
        others = np.where(np.arange(len(chances)) == 1, 0.0, chances)
        own = others.sum() / chances.sum()
        child = others @ masses / others.sum()
        ends = self._limits(np.stack([np.zeros_like(child), child]))
        low, high = ends[:, 0], ends[:, 1]
        steps = high - low
        bounds = -low[steps > MIN_SHARE] / steps[steps > MIN_SHARE]
        most = float(np.clip(bounds.min(initial=1.0), own, 1.0))
        larger = np.asarray(others / others.sum() * most)
        larger[1] = 1 - most
        return larger

    def prices(self, optimum: LeastSquaresOptimum) -> tuple[Array, float]:
        """Return prices (R,) of an answer's mass and a constant.

        An answer improves the optimum if its total cost is negative.
        """
        size = self.leaves[self.own].mass.size
        corners = np.vstack([np.zeros(size), np.eye(size)])
        squares, _, total = self._objective(corners)
        costs = optimum.residual @ squares + optimum.prices @ self._limits(corners)
        if total is not None:
            costs = costs + optimum.level * total
        return costs[1:] - costs[0], float(costs[0])

    def gap(self, optimum: LeastSquaresOptimum, cost: float) -> float:
        """Return by how much the distance can still fall if no answer costs less than `cost`.

        The chances of all answers sum to at most the inverse of the largest of `kept`, `child` and
        0.001.
        """
        most = max(self.options.kept, self.options.child, 1e-3)
        floor = max(optimum.distance**2 + 2 * min(cost, 0.0) / most, 0.0)
        return float(optimum.distance - np.sqrt(floor))


@dataclass(frozen=True)
class LeafSplit:
    """A randomized split, with the distance of the hull from the target after it."""

    classifier: MixtureClassifier
    distance: float
    gap: float


def nearest_split(
    target: FilterTarget, options: BalancedTree, leaves: Sequence[TreeLeaf], own: int
) -> LeafSplit | None:
    """Return the best split of a leaf, found by column generation over its oracle's answers.

    Returns None if the oracle knows none that helps. The result is optimal over all mixtures of the
    oracle's classifiers, up to the `gap`, provided that the oracle's answers are the cheapest.
    """
    program, leaf = _LeafProgram(target, options, leaves, own), leaves[own]
    answers: list[Classifier] = [leaf.ground.constant(yes=True), leaf.ground.constant(yes=False)]
    masses = [leaf.mass, np.zeros_like(leaf.mass)]
    for _ in range(options.calls):
        optimum = program.solved(np.stack(masses))
        prices, constant = program.prices(optimum)
        cheapest = 0.0
        for answer, mass in _oracle_candidates(leaf, prices):
            cheapest = min(cheapest, float(prices @ mass) + constant)
            answers.append(answer)
            masses.append(mass)
        gap = program.gap(optimum, cheapest)
        if gap <= options.gap:
            break
    chances = optimum.x[len(leaves) :]
    if not chances.sum() - chances[1] > MIN_SHARE:
        return None
    chances = program.largest(chances, np.stack(masses[: len(chances)]))
    used = np.flatnonzero(chances > MIN_SHARE)
    members = tuple(answers[k] for k in used)
    mixture = MixtureClassifier(members, chances[used] / chances[used].sum())
    return LeafSplit(mixture, optimum.distance, gap)


def _oracle_candidates(leaf: TreeLeaf, prices: Array) -> list[tuple[Classifier, Array]]:
    """Return the oracle's answer, and thresholds on its ranking, each with its mass (R,).

    The thresholds are those at which a positive decision is cheapest for its mass, for each of
    several minimum shares of the leaf, because the mass that a split needs depends on the other
    answers. These candidates cost almost nothing and save oracle calls.
    """
    answer, ground = leaf.oracle.answer(prices, None), leaf.ground
    candidates = [(answer, ground.rates(ground.decide(answer)))]
    ranks = ground.ranks(answer)
    if ranks is None:
        return candidates
    cuts, rates = ground.cut_rates(ranks)
    sizes, costs = rates[-1], prices @ rates
    each = np.divide(costs, sizes, out=np.full_like(sizes, np.inf), where=sizes > 0)
    best = {
        int(np.where(sizes > s * leaf.mass[-1], each, np.inf).argmin()) for s in THRESHOLD_SHARES
    }
    moved = [(with_threshold(answer, float(cuts[k])), rates[:, k]) for k in sorted(best)]
    return candidates + moved


OFFSET_CHOICES = {"zero": (False,), "literal": (True,), "both": (False, True)}


def progress_split(
    target: FilterTarget, options: BalancedTree, leaves: Sequence[TreeLeaf], own: int
) -> LeafSplit | None:
    """Split a leaf by the largest progress `<R(V1) - R(V), U - U'> w(V1)` under secrecy.

    R are the shares of groups in a leaf, w its mass, U the target and U' its projection on the hull
    of the leaves. Both children must keep the secret groups secret. With the offset `literal`, each
    unit of mass must yield `|U - U'| f(gamma)` (Lemma 4, with the sign of its last term corrected).
    Progress and limits are linear in the split, so this is a problem for `ColumnGeneration`, on the
    rows of the leaf weighted by their chances. Of the offsets tried, the one that brings the hull
    nearest to the target is used.
    """
    leaf, masses = leaves[own], np.stack([each.mass for each in leaves])
    projection = leaf_weights(target, options, masses).nearest
    splits = list[LeafSplit]()
    for literal in OFFSET_CHOICES[options.offset]:
        required = options.gamma if literal else None
        program = _progress_program(target, leaf, projection, required)
        search = ColumnGeneration(program, leaf.ground, leaf.oracle, options.gap, options.calls)
        search.start(program.objective.line.slopes)
        search.run()
        positive = search.found.rates
        if min(positive[-1], leaf.mass[-1] - positive[-1]) > options.child:
            after = np.vstack([np.delete(masses, own, axis=0), leaf.mass - positive, positive])
            distance = leaf_weights(target, options, after).imbalance
            splits.append(LeafSplit(search.mixture, distance, float(search.trace[-1]["gap"])))
    return min(splits, key=lambda each: each.distance, default=None)


def _progress_program(
    target: FilterTarget, leaf: TreeLeaf, projection: Array, gamma: float | None
) -> RateProgram:
    """Return the linear program in masses (R,) of the positive child over the leaf's mass.

    With `gamma`, each unit of mass must make the progress of Lemma 3.
    """
    away = projection - target.target
    shares = leaf.mass[target.balanced] / leaf.mass[-1]
    step = float(shares @ away)
    if gamma is not None:
        off = float(np.linalg.norm(shares - projection))
        step -= float(np.linalg.norm(away)) * required_progress(gamma, off)
    slopes, unit, no_fractions = np.zeros(leaf.mass.size), 1 / leaf.mass[-1], np.zeros(0)
    slopes[target.balanced], slopes[-1] = away, -step
    # the four families of appendix A.4 for each group, times their denominators
    lines = [LinearTerm(slopes, 0.0)]
    for secret in target.disclosure_limits(np.eye(leaf.mass.size)):
        lines += [LinearTerm(secret, 0.0), LinearTerm(-secret, float(secret @ leaf.mass))]
    objective, *limits = (ProgramForm(line * unit, no_fractions) for line in lines)
    owners, index = ("secret",) * len(limits), target.kinds.matrix.index()
    return RateProgram(objective, tuple(limits), (), owners, index)


def required_progress(gamma: float, off: float) -> float:
    """Return f(gamma) of Lemma 3 for a leaf at the distance `off` from the projection."""
    g = 2 * gamma - gamma**2
    inner = float(np.sqrt(max(2 - g * off**2, 0.0)))
    return float(np.sqrt(g * max(2 - off**2 + 2 * off * (1 - gamma) * inner, 0.0)))


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
