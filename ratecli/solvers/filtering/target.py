"""The target of a filter, and the chances of keeping rows that come nearest to it (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog, nnls

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
        matrix = problem.rates.of_leaves(leaves)
        if leave_out:
            matrix = _with_all_groups(matrix, problem.known)
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
        return self.kinds.rates_of(chances)

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


def _with_all_groups(rates: RateMatrix, known: Mapping[str, Mask]) -> RateMatrix:
    """Return rates over the rows that have a value in every column that defines groups."""
    columns = [known[each.column] for leaf in rates.leaves for each in leaf.where.atoms]
    has_all = sparse.diags_array(np.all(columns, axis=0).astype(float))
    parts = (
        sparse.csr_array(part @ has_all) for part in (rates.sums, rates.against, rates.members)
    )
    return RateMatrix(rates.leaves, *parts)


MIN_SHARE = 1e-12
"""Smaller shares of all rows are treated as rounding errors of 0."""


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
    nearest = nearest if relaxed else induced
    return SamplingWeights(mix, keep / keep.max(), induced, imbalance, nearest)


def _nearest_on_simplex(offsets: Array, sizes: Array, kept: float) -> Array:
    """Minimize `|q @ offsets|` over q (L,) with `0 <= q <= sizes / kept` that sum to 1.

    Without a limit, q is proportional to the z >= 0 that minimizes
    `|z @ offsets|^2 + (sum(z) - 1)^2`.
    """
    if kept == 0:
        rows, ones = np.vstack([offsets.T, np.ones(len(sizes))]), np.zeros(offsets.shape[1] + 1)
        ones[-1] = 1.0
        return np.asarray(nnls(rows, ones)[0])
    # keeping all rows is always allowed
    most = np.maximum(np.minimum(sizes / kept, 1.0), sizes / sizes.sum())
    limits, zero = np.eye(len(sizes)) - most[:, None], np.zeros(offsets.shape[1])
    return solve_least_squares_qp(offsets.T, zero, limits, np.ones(len(sizes))).x


QP_TOLERANCE = 1e-11
"""Relative and absolute tolerance of the interior point method for gap and infeasibility."""
QP_ZERO = 1e-9
"""Components smaller than this, relative to the largest, are treated as 0."""
ACCEPTED_QP_STATUSES = ("Solved", "AlmostSolved", "InsufficientProgress")
"""Statuses of solutions that are as accurate as double precision allows."""


@dataclass(frozen=True)
class LeastSquaresOptimum:
    """The x >= 0 that minimizes `|P x - b|^2 / 2` with `C x <= 0` and, if e is given, `e @ x = 1`.

    Attributes
    ----------
    x
        (T,).
    residual
        (D,) `P x - b`.
    prices
        (M,) multipliers of the inequalities, at least 0.
    level
        Multiplier of the equality. A new column (p, c, e) improves the optimum if
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
    """Solve the program for P (D, T), b (D,), C (M, T) and e (T,) by an interior point method.

    Uses Clarabel (Goulart, Chen 2024).

    Raises
    ------
    FaultError
        E501 if it ends without a solution.
    """
    import clarabel

    (D, T), M = P.shape, len(C)
    size = np.maximum(np.abs(np.vstack([P, C])).max(axis=0, initial=0.0), QP_ZERO)
    equal = np.zeros((0, T)) if e is None else e[None] / size
    rows = np.zeros((D + len(equal) + M + T, T + D))
    rows[:, :T] = np.vstack([P / size, equal, C / size, -np.eye(T)])
    rows[:D, T:] = -np.eye(D)
    right = np.concatenate([b, np.ones(len(equal)), np.zeros(M + T)])
    squares = sparse.csc_matrix(np.diag(np.append(np.zeros(T), np.ones(D))))
    cones = [clarabel.ZeroConeT(D + len(equal)), clarabel.NonnegativeConeT(M + T)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = QP_TOLERANCE
    program = squares, np.zeros(T + D), sparse.csc_matrix(rows), right, cones
    solved = clarabel.DefaultSolver(*program, settings).solve()
    if str(solved.status) not in ACCEPTED_QP_STATUSES:
        raise FaultError(Diagnostic("E501", f"a quadratic program ended as {solved.status}"))
    scaled, duals = np.asarray(solved.x)[:T], np.asarray(solved.z)
    x = np.where(scaled > QP_ZERO * scaled.max(), scaled, 0.0) / size
    level = float(duals[D]) if len(equal) else 0.0
    return LeastSquaresOptimum(x, P @ x - b, np.maximum(duals[D + len(equal) :][:M], 0.0), level)


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
