"""The target of a filter, and the chances of keeping rows that come nearest to it (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog, lsq_linear, nnls

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates.affine import balance, disclosure_bound
from ratecli.rates.expression import POSITIVE_RATE, Leaf
from ratecli.rates.matrix import MIN_PROXY_SHARE, RateMatrix, RowKinds
from ratecli.rates.sample import Mask
from ratecli.solvers.filtering.options import BalancedTree
from ratecli.solvers.problem import Problem


class FilterTarget:
    """Groups to balance and groups to keep secret, on training rows.

    Rows are distinguished only by the groups they are in. A set of rows, possibly with chances, is
    represented by its *mass*: the R joint rates of all groups and, last, of all rows.

    Attributes
    ----------
    X
        (n, d) features.
    column_layout
        Which features belong to one column; None if each is a number.
    kinds
        Kinds of the rows; its rates are the masses.
    balanced, target
        (K,) indices of the masses of the groups to balance, and their target shares.
    secret, base, alpha
        (S,) indices of the masses of the secret groups, their shares before the proxy is known, and
        by how much a value of the proxy may change these (Definition 5).
    column
        (S,) index of the column and constraint that each secret group belongs to. A group's share
        is relative to the rows in any group of its column.
    """

    def __init__(self, problem: Problem, *, leave_out: bool = False) -> None:
        """Read the target from a problem with a balance objective and bounds on disclosivity.

        Without constraints no group is secret. With `leave_out`, rows without a value in some
        column that defines groups have weight 0, and base shares are those among the other rows.

        Raises
        ------
        FaultError
            E408 if no row is left of those that the objective or a constraint refers to.
        """
        wanted = balance(problem.objective.expression)
        assert wanted is not None
        bounds = [
            found for goal in problem.constraints if (found := disclosure_bound(goal.pieces[0]))
        ]
        columns = [(groups, alpha) for node, alpha in bounds for groups in node.columns]
        secret = [leaf for groups, _ in columns for leaf in groups]
        whole = Leaf(POSITIVE_RATE, wanted.groups[0].over, wanted.groups[0].split)
        leaves = [*dict.fromkeys([*wanted.groups, *secret]), whole]
        matrix = _select_rates(problem.rates, leaves, problem.known if leave_out else {})
        index, sizes = matrix.index(), [len(groups) for groups, _ in columns]
        self.X, self.column_layout = problem.X, problem.column_layout
        self.kinds = RowKinds.by(matrix)
        self.balanced = np.array([index[leaf] for leaf in wanted.groups])
        self.target = np.array(wanted.target)
        self.secret = np.array([index[leaf] for leaf in secret], dtype=np.intp)
        self.alpha = np.repeat(np.array([alpha for _, alpha in columns], dtype=float), sizes)
        self.column = np.repeat(np.arange(len(columns)), sizes)
        mass = self.kinds.rates(self.kinds.totals)
        own, known = self.secret_masses(mass[None])
        if not (np.append(known, mass[-1]) > 0).all():  # also false for NaN
            message = "no training row has a value of every column that defines groups"
            raise FaultError(Diagnostic("E408", message))
        self.base = (own / known)[0]

    @property
    def combinations(self) -> NDArray[np.intp]:
        """(n,) index of each row's combination of balanced groups; with one column, its group."""
        inside = self.kinds.patterns[self.balanced]
        return np.unique(-inside, axis=1, return_inverse=True)[1].ravel()[self.kinds.of]

    def mass(self, chances: Array) -> Array:
        """Return the masses (R, ...) of rows with chances (n, ...)."""
        return self.kinds.rates(np.asarray(self.kinds.shares @ chances))

    def values(self, masses: Array) -> tuple[Array, Array]:
        """Return the balanced groups' shares (L, K) in values of masses (L, R), and sizes (L,)."""
        sizes = masses[:, -1]
        return masses[:, self.balanced] / sizes[:, None], sizes

    def excess_disclosure(self, masses: Array) -> float:
        """Return the largest excess over alpha of values of masses (L, R); 0 without secrets."""
        if not len(self.secret):
            return 0.0
        own, known = self.secret_masses(masses)
        base = np.tile(self.base, (len(own), 1))
        shares = np.divide(own, known, out=base, where=known > MIN_PROXY_SHARE)
        return float((np.abs(shares - self.base) - self.alpha).max())

    def secret_masses(self, masses: Array) -> tuple[Array, Array]:
        """Return masses (L, S) of the secret groups, and of all groups of their columns."""
        own = masses[:, self.secret]
        return own, own @ np.equal.outer(self.column, self.column).astype(float)

    def disclosure_limits(self, masses: Array) -> Array:
        """Return linear functions (2 S, L) of masses (L, R), at most 0 if groups stay secret.

        These are the disclosivity constraints multiplied by the mass of the column's groups.
        """
        own, known = self.secret_masses(masses)
        shift, slack = own - self.base * known, self.alpha * known
        return np.hstack([shift - slack, -shift - slack]).T


def _select_rates(rates: RateMatrix, leaves: list[Leaf], known: Mapping[str, Mask]) -> RateMatrix:
    """Return the rates of `leaves`, in this order.

    With `known`, they are over the rows that have a value in every column that defines groups.
    """
    at = [rates.index()[leaf] for leaf in leaves]
    parts = [sparse.csr_array(part[at]) for part in (rates.sums, rates.against, rates.members)]
    columns = {each.column for leaf in leaves for each in leaf.where.atoms} if known else ()
    for part in parts:
        for name in columns:
            part.data[~known[name][part.indices]] = 0.0
        part.eliminate_zeros()
    return RateMatrix(tuple(leaves), *parts)


MIN_SHARE = 1e-12
"""Smaller shares of all rows are treated as rounding errors of 0."""
SUM_WEIGHT = 1e5
"""Weight of the condition that shares sum to 1 beside distances: its residual is below 1e-10."""


@dataclass(frozen=True)
class SamplingWeights:
    """Chances of keeping that bring the groups of the kept rows near their target.

    Attributes
    ----------
    mix
        (L,) q: the share of each value among the kept rows; sums to 1.
    keep
        (L,) rho, in [0, 1], the largest 1.
    induced
        (K,) shares of the groups among the kept rows, `q A`.
    imbalance
        Euclidean distance of `induced` from the target.
    nearest
        (K,) the point nearest to the target: `induced` or, if relaxed, `q A` with a q that need not
        sum to 1 and then corresponds to no sample.
    """

    mix: Array
    keep: Array
    induced: Array
    imbalance: float
    nearest: Array


def optimal_sampling_weights(
    A: Array, shares: Array, target: Array, *, kept: float = 0.0, relaxed: bool = False
) -> SamplingWeights:
    """Return the best chances for values with these groups: the quadratic program of Algorithm 1.

    Parameters
    ----------
    A
        (L, K) shares of the groups in each value. With intersecting groups (appendix A.2) the
        shares of all attributes are concatenated, and those of each attribute sum to 1.
    shares
        (L,) how often each value occurs; a value that never occurs is never kept.
    target
        (K,) target shares of the groups.
    kept
        Minimum share of all rows that is kept, in [0, 1]; not for relaxed weights.
    relaxed
        Whether q may have any sum (section 5); the chances are scaled afterwards in either case.
    """
    occurs = shares > MIN_SHARE
    rows, sizes = A[occurs], shares[occurs]
    q = nnls(rows.T, target)[0] if relaxed else _nearest_on_simplex(rows - target, sizes, kept)
    nearest = q @ rows
    if not q.any():  # relaxed, and no value contains any of the wanted groups
        q = sizes
    q = q / q.sum()
    mix, keep = np.zeros(len(shares)), np.zeros(len(shares))
    mix[occurs], keep[occurs] = q, q / sizes
    induced = q @ rows
    imbalance = float(np.linalg.norm(induced - target))
    return SamplingWeights(
        mix, keep / keep.max(), induced, imbalance, nearest if relaxed else induced
    )


def _nearest_on_simplex(offsets: Array, sizes: Array, kept: float) -> Array:
    """Minimize `|q @ offsets|` over q (L,) with `0 <= q <= sizes / kept` that sum to 1."""
    most = np.minimum(sizes / kept, 1.0) if kept > 0 else np.ones(len(sizes))
    most = np.maximum(most, sizes / sizes.sum())  # keeping all rows is always allowed
    rows, sums = np.vstack([offsets.T, np.full(len(sizes), SUM_WEIGHT)]), np.zeros(offsets.shape[1])
    found = lsq_linear(rows, np.append(sums, SUM_WEIGHT), (0, most), method="bvls", tol=1e-14)
    return np.asarray(np.clip(found.x, 0.0, most))


def leaf_weights(target: FilterTarget, options: BalancedTree, masses: Array) -> SamplingWeights:
    """Return the best chances for leaves of masses (L, R)."""
    A, sizes = target.values(masses)
    return optimal_sampling_weights(
        A, sizes, target.target, kept=options.kept, relaxed=options.relaxed
    )


def maximize_kept_rows(A: Array, shares: Array, weights: SamplingWeights) -> Array:
    """Return chances (L,) with the same induced shares of groups that keep most rows.

    With more values than groups many weights are optimal. This is a linear program in the mix and
    the largest quotient of mix and share; the share of kept rows is the inverse of that quotient.
    """
    used = np.flatnonzero(shares > MIN_SHARE)
    one = np.ones((1, len(used)))
    equal = np.hstack([np.vstack([A[used].T, one]), np.zeros((A.shape[1] + 1, 1))])
    right = equal[:, :-1] @ weights.mix[used]
    most = np.hstack([np.eye(len(used)), -shares[used][:, None]])
    last = np.append(np.zeros(len(used)), 1.0)
    solved = linprog(last, most, np.zeros(len(used)), equal, right, bounds=(0, None))
    if not solved.success:  # only due to rounding: the given mix is a solution
        return weights.keep
    mix = np.zeros(len(shares))
    mix[used] = np.maximum(solved.x[:-1], 0.0)
    mix /= mix.sum()
    keep = np.divide(mix, shares, out=np.zeros_like(mix), where=shares > MIN_SHARE)
    keep /= keep.max()
    # the program's rounding error is large for a rare value
    return keep if keep @ shares >= weights.keep @ shares else weights.keep
