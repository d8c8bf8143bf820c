"""The target of a filter: weights of rows in groups to balance and in groups to keep secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Features
from ratecli.rates.affine import balance, disclosure_bound
from ratecli.rates.expression import POSITIVE_RATE, Leaf
from ratecli.rates.matrix import MIN_PROXY_SHARE, RateMatrix, RowKinds
from ratecli.rates.sample import Mask
from ratecli.solvers.problem import Problem

RowIndices = NDArray[np.intp]
NO_KNOWN_GROUPS = "no training row has a value of every column that defines groups"


@dataclass(frozen=True)
class FilterTarget:
    """Groups to balance and groups to keep secret, on training rows.

    Rows are distinguished only by the groups they are in. A set of rows, possibly with chances, is
    represented by its *mass*: the R joint rates of all groups and, last, of all rows.

    Attributes
    ----------
    X
        (n, d) features.
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

    X: Features
    kinds: RowKinds
    balanced: RowIndices
    target: Array
    secret: RowIndices
    base: Array
    alpha: Array
    column: RowIndices

    @classmethod
    def of(cls, problem: Problem, *, leave_out: bool = False) -> FilterTarget:
        """Return the target of a problem with a balance objective and bounds on disclosivity.

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
        index, kinds = matrix.index(), RowKinds.by(matrix)
        places = np.array([index[leaf] for leaf in secret], dtype=np.intp)
        sizes = [len(groups) for groups, _ in columns]
        target = cls(
            problem.X,
            kinds,
            np.array([index[leaf] for leaf in wanted.groups]),
            np.array(wanted.target),
            places,
            np.zeros(len(places)),
            np.repeat(np.array([alpha for _, alpha in columns], dtype=float), sizes),
            np.repeat(np.arange(len(columns)), sizes),
        )
        own, known = target.secret_masses(kinds.rates(kinds.totals)[None])
        if not (known > 0).all():  # also false for NaN
            raise FaultError(Diagnostic("E408", NO_KNOWN_GROUPS))
        return replace(target, base=(own / known)[0])

    @cached_property
    def shares(self) -> sparse.csr_array:
        """(Q, n) the weight of each row, in the row of its kind."""
        n = len(self.kinds.of)
        entries = (self.kinds.weight, (self.kinds.of, np.arange(n)))
        return sparse.csr_array(sparse.coo_array(entries, shape=(self.kinds.count, n)))

    @property
    def combinations(self) -> RowIndices:
        """(n,) index of each row's combination of balanced groups; with one column, its group."""
        inside = self.kinds.patterns[self.balanced]
        return np.unique(-inside, axis=1, return_inverse=True)[1].ravel()[self.kinds.of]

    def mass(self, chances: Array) -> Array:
        """Return the masses (R, ...) of rows with chances (n, ...)."""
        return self.kinds.rates(np.asarray(self.shares @ chances))

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
    columns = {each.column for leaf in leaves for each in leaf.where.conditions} if known else ()
    for part in parts:
        for name in columns:
            part.data[~known[name][part.indices]] = 0.0
        part.eliminate_zeros()
    if not parts[0][[-1]].nnz:
        raise FaultError(Diagnostic("E408", NO_KNOWN_GROUPS))
    return RateMatrix(tuple(leaves), *parts)
