"""The split that brings the hull of a tree's leaves nearest to the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier
from ratecli.models.mixture import MixtureClassifier
from ratecli.solvers.filtering.aim import FilterTarget
from ratecli.solvers.filtering.weights import MIN_SHARE, SamplingWeights, optimal_sampling_weights
from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RateProgram
from ratecli.solvers.mixture.search import ClassifierPool, ColumnGeneration
from ratecli.solvers.oracles.base import Oracle, OracleRows
from ratecli.solvers.oracles.threshold import with_threshold

QP_TOLERANCE = 1e-11
"""Of the interior point method, relative and absolute: gap and infeasibility."""
QP_ZERO = 1e-9
"""Below this, relative to the largest, a part of a solution is what an interior point leaves of none."""
ACCEPTED_QP_STATUSES = ("Solved", "AlmostSolved", "InsufficientProgress")
"""What the method says of solutions that are as good as double precision lets them be."""


@dataclass(frozen=True)
class LeastSquaresOptimum:
    """The x of least `|P x - b|^2 / 2` with `x >= 0`, `C x <= 0` and, unless e is None, `e @ x = 1`.

    Attributes
    ----------
    x
        (T,).
    residual
        (D,) `P x - b`.
    prices
        (M,) multipliers of the limits, at least 0.
    level
        Multiplier of the equality: a new column (p, c, e) would be of use where
        `residual @ p + prices @ c + level * e` is negative.
    """

    x: Array
    residual: Array
    prices: Array
    level: float

    @property
    def distance(self) -> float:
        """`|P x - b|`."""
        return float(np.linalg.norm(self.residual))


def solve_least_squares_qp(P: Array, b: Array, C: Array, e: Array | None) -> LeastSquaresOptimum:
    """Of (D, T), (D,), (M, T) and (T,); by an interior point method (Clarabel: Goulart, Chen 2024)."""
    import clarabel  # noqa: PLC0415  slow to import, and for filters only

    (D, T), M = P.shape, len(C)
    size = np.maximum(np.abs(np.vstack([P, C])).max(axis=0, initial=0.0), QP_ZERO)
    equal = np.zeros((0, T)) if e is None else e[None] / size
    parts = [
        np.hstack([P / size, -np.eye(D)]),
        np.hstack([equal, np.zeros((len(equal), D))]),
        np.hstack([C / size, np.zeros((M, D))]),
        np.hstack([-np.eye(T), np.zeros((T, D))]),
    ]
    right = np.concatenate([b, np.ones(len(equal)), np.zeros(M + T)])
    squares = sparse.csc_matrix(np.diag(np.append(np.zeros(T), np.ones(D))))
    cones = [clarabel.ZeroConeT(D + len(equal)), clarabel.NonnegativeConeT(M + T)]
    rows = sparse.csc_matrix(np.vstack(parts))
    solved = clarabel.DefaultSolver(
        squares, np.zeros(T + D), rows, right, cones, _clarabel_settings(clarabel)
    ).solve()
    if str(solved.status) not in ACCEPTED_QP_STATUSES:
        raise FaultError(Diagnostic("E501", f"a quadratic program ended as {solved.status}"))
    scaled, duals = np.asarray(solved.x)[:T], np.asarray(solved.z)
    x = np.where(scaled > QP_ZERO * scaled.max(), scaled, 0.0) / size
    level = float(duals[D]) if len(equal) else 0.0
    return LeastSquaresOptimum(x, P @ x - b, np.maximum(duals[D + len(equal) :][:M], 0.0), level)


def _clarabel_settings(clarabel: Any) -> Any:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = QP_TOLERANCE
    return settings


THRESHOLD_SHARES = (0.005, 0.01, 0.03, 0.1, 0.3, 0.6)
"""Least shares of a leaf for which the cheapest threshold is tried."""


@dataclass(frozen=True)
class SplitOptions:
    """What is asked of a split.

    Attributes
    ----------
    relaxed
        See `weights.sampling`.
    kept
        Least share of all rows that a filter by the leaves keeps.
    child
        Least share of all rows in a new leaf.
    gap
        How much nearer another answer of the oracle must promise to come.
    calls
        Most answers.
    """

    relaxed: bool
    kept: float
    child: float
    gap: float
    calls: int


@dataclass(frozen=True)
class TreeLeaf:
    """A leaf of a growing tree: where it is, the chance (n,) that a row comes there, its mass (R,)."""

    node: int
    depth: int
    chances: Array
    mass: Array
    ground: OracleRows
    oracle: Oracle


@dataclass(frozen=True)
class _LeafProgram:
    """The quadratic program of one leaf that is split while the others stay.

    A randomized split sends mass y to the yes child and m - y to the other, y any mean of masses that
    the oracle's classifiers decide yes. What is kept of the leaf is some t (m - y) + (s + t) y, that is
    `t m + s y`, a sum of columns: of the leaf as it is, and of the answers with chances times s. So the
    distance of the hull after the best split is a convex program in s times the chances. All limits are
    linear and homogeneous in that: disclosivity of either child (the four families of appendix A.4, each
    multiplied by its denominator), how much is kept, and how large a child is at least.
    """

    aim: FilterTarget
    terms: SplitOptions
    leaves: Sequence[TreeLeaf]
    own: int

    def solved(self, masses: Array) -> LeastSquaresOptimum:
        """With answers of masses (T, R): the leaves as they are come first."""
        others = np.stack([leaf.mass for leaf in self.leaves])
        squares, right, total = self._objective(np.vstack([others, masses]))
        limited = np.hstack([self._as_they_are(others), self._limits(masses)])
        return solve_least_squares_qp(squares, right, limited, total)

    def _objective(self, masses: Array) -> tuple[Array, Array, Array | None]:
        groups, sizes, target = masses[:, self.aim.balanced].T, masses[:, -1], self.aim.target
        if self.terms.relaxed:
            return groups, target, None
        return groups - np.outer(target, sizes), np.zeros(len(target)), sizes

    def _as_they_are(self, masses: Array) -> Array:
        """(M, L) what the leaves themselves add to what is limited: only how much is kept."""
        count = len(self._limits(masses[:1]))
        limited = np.zeros((count, len(masses)))
        if self.terms.kept > 0:
            limited[-len(masses) :] = self.terms.kept * np.eye(len(masses)) - masses[:, -1]
        return limited

    def _limits(self, masses: Array) -> Array:
        rest = self.leaves[self.own].mass - masses
        size, kept = masses[:, -1], self.terms.kept
        parts = [self.aim.beyond(masses), self.aim.beyond(rest)]
        parts += [(self.terms.child - each[:, -1])[None] for each in (masses, rest)]
        if kept > 0:
            here = np.arange(len(self.leaves)) == self.own
            parts.append(kept * here[:, None] - size)
        return np.vstack(parts)

    def largest(self, chances: Array, masses: Array) -> Array:
        """(T,) of answers with masses (T, R), the second of which is no to all: the same yes child, as large
        as the limits let it be. How large it is makes no difference to the distance.
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

    def prices(self, found: LeastSquaresOptimum) -> tuple[Array, float]:
        """(R,) on an answer's mass, and what any answer costs: of use is one of less than 0 in sum."""
        corners = np.vstack([np.zeros(self.aim.masses), np.eye(self.aim.masses)])
        squares, _, total = self._objective(corners)
        costs = found.residual @ squares + found.prices @ self._limits(corners)
        if total is not None:
            costs = costs + found.level * total
        return costs[1:] - costs[0], float(costs[0])

    def gap(self, found: LeastSquaresOptimum, cost: float) -> float:
        """By how much the distance may still fall, if no answer costs less.

        All answers together have at most the chances at which `kept` of all rows are kept, or a child's
        least size; without either limit, a thousandth.
        """
        most = max(self.terms.kept, self.terms.child, 1e-3)
        floor = max(found.distance**2 + 2 * min(cost, 0.0) / most, 0.0)
        return float(found.distance - np.sqrt(floor))


@dataclass(frozen=True)
class LeafSplit:
    """A randomized split, and how far from the target the hull is after it."""

    classifier: MixtureClassifier
    distance: float
    gap: float


def nearest_split(
    aim: FilterTarget, terms: SplitOptions, leaves: Sequence[TreeLeaf], own: int
) -> LeafSplit | None:
    """The best split of a leaf, by column generation over its oracle's answers.

    None where the oracle knows none that helps. What is promised is the optimum over all mixtures of
    classifiers that the oracle can answer, but for the `gap`, as far as its answers are the cheapest.
    """
    system, leaf = _LeafProgram(aim, terms, leaves, own), leaves[own]
    answers: list[Classifier] = [leaf.ground.constant(yes=True), leaf.ground.constant(yes=False)]
    masses = [leaf.mass, np.zeros_like(leaf.mass)]
    for _ in range(terms.calls):
        found = system.solved(np.stack(masses))
        prices, constant = system.prices(found)
        cheapest = 0.0
        for answer, mass in _oracle_candidates(leaf, prices):
            cheapest = min(cheapest, float(prices @ mass) + constant)
            answers.append(answer)
            masses.append(mass)
        gap = system.gap(found, cheapest)
        if gap <= terms.gap:
            break
    chances = found.x[len(leaves) :]
    if not chances.sum() - chances[1] > MIN_SHARE:
        return None
    chances = system.largest(chances, np.stack(masses[: len(chances)]))
    used = np.flatnonzero(chances > MIN_SHARE)
    mixture = MixtureClassifier(
        tuple(answers[k] for k in used), chances[used] / chances[used].sum()
    )
    return LeafSplit(mixture, found.distance, gap)


def _oracle_candidates(leaf: TreeLeaf, prices: Array) -> list[tuple[Classifier, Array]]:
    """The oracle's answer, and what it ranks by at the thresholds at which a yes is cheapest for its mass;
    each with its mass (R,).

    Which mass a split needs is seen only with the other answers: beside the cheapest in sum there is one
    for each of some least shares of the leaf. They cost next to nothing, and save calls.
    """
    answer, ground = leaf.oracle.answer(prices, None), leaf.ground
    found = [(answer, ground.rates(ground.decide(answer)))]
    ranks = ground.ranks(answer)
    if ranks is None:
        return found
    cuts, rates = ground.cut_rates(ranks)
    sizes, costs = rates[-1], prices @ rates
    each = np.divide(costs, sizes, out=np.full_like(sizes, np.inf), where=sizes > 0)
    best = {
        int(np.where(sizes > s * leaf.mass[-1], each, np.inf).argmin()) for s in THRESHOLD_SHARES
    }
    return found + [(with_threshold(answer, float(cuts[k])), rates[:, k]) for k in sorted(best)]


OFFSET_CHOICES = {"zero": (False,), "literal": (True,), "both": (False, True)}


@dataclass(frozen=True)
class ProgressSplitter:
    """Splits a leaf by the most progress `<R(V1) - R(V), U - U'> w(V1)` that keeps both children secret.

    R are the shares of groups in a leaf, w its mass, U the target and U' its projection on the hull of the
    leaves. With the offset `literal` each unit of mass has to bring `|U - U'| f(gamma)` (Lemma 4, the
    sign of its last term corrected). Progress and limits are linear in the split: the program is one of
    `mixture`, on the rows of the leaf with their chances as weights.
    """

    aim: FilterTarget
    terms: SplitOptions
    offset: str
    gamma: float

    def __call__(self, leaves: Sequence[TreeLeaf], own: int) -> LeafSplit | None:
        """Of the offsets that are tried, the split after which the hull is nearest to the target."""
        found = (self._split(leaves, own, literal) for literal in OFFSET_CHOICES[self.offset])
        return min((each for each in found if each), key=lambda each: each.distance, default=None)

    def _split(self, leaves: Sequence[TreeLeaf], own: int, literal: bool) -> LeafSplit | None:
        leaf = leaves[own]
        program = self._program(
            leaf, self._weights([each.mass for each in leaves]).nearest, literal
        )
        search = ColumnGeneration(
            program, ClassifierPool(leaf.ground), leaf.oracle, self.terms.gap, self.terms.calls
        )
        search.start(program.objective.line.slopes)
        while search.goes_on():
            search.step()
        classifier = MixtureClassifier(*search.pool.some(search.found.weights))
        yes = search.found.rates
        if min(yes[-1], leaf.mass[-1] - yes[-1]) <= self.terms.child:
            return None
        others = [each.mass for k, each in enumerate(leaves) if k != own]
        after = self._weights([*others, leaf.mass - yes, yes])
        return LeafSplit(classifier, after.imbalance, float(search.trace[-1]["gap"]))

    def _weights(self, masses: Sequence[Array]) -> SamplingWeights:
        A, sizes = self.aim.values(np.stack(masses))
        return optimal_sampling_weights(
            A, sizes, self.aim.target, kept=self.terms.kept, relaxed=self.terms.relaxed
        )

    def _program(self, leaf: TreeLeaf, projection: Array, literal: bool) -> RateProgram:
        """In masses (R,) of the yes child, over the mass of the leaf."""
        away = projection - self.aim.target
        shares = leaf.mass[self.aim.balanced] / leaf.mass[-1]
        step = float(shares @ away)
        if literal:
            off = float(np.linalg.norm(shares - projection))
            step -= float(np.linalg.norm(away)) * required_progress(self.gamma, off)
        slopes = np.zeros(self.aim.masses)
        slopes[self.aim.balanced], slopes[-1] = away, -step
        none = np.zeros(0)
        limits = tuple(
            ProgramForm(line * (1 / leaf.mass[-1]), none) for line in self._secrets(leaf)
        )
        names = ("secret",) * len(limits)
        index = self.aim.kinds.matrix.index()
        return RateProgram(
            ProgramForm(LinearTerm(slopes / leaf.mass[-1], 0.0), none), limits, (), names, index
        )

    def _secrets(self, leaf: TreeLeaf) -> Iterator[LinearTerm]:
        """The four families of appendix A.4 for each group, multiplied by their denominators."""
        for slopes in self.aim.beyond(np.eye(self.aim.masses)):
            yield LinearTerm(slopes, 0.0)
            yield LinearTerm(-slopes, float(slopes @ leaf.mass))


def required_progress(gamma: float, off: float) -> float:
    """f(gamma) of Lemma 3, where the leaf is `off` away from the projection."""
    g = 2 * gamma - gamma**2
    inner = float(np.sqrt(max(2 - g * off**2, 0.0)))
    return float(np.sqrt(g * max(2 - off**2 + 2 * off * (1 - gamma) * inner, 0.0)))
