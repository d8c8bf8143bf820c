"""Groups with few rows, which share the threshold of another group or are refused."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.rates import expression as ex
from ratecli.solvers.problem import Groups, Problem


def pool_groups(
    problem: Problem, groups: Groups, min_support: int, *, refuse: bool
) -> NDArray[np.intp]:
    """Return the index (C,) of each group's pool; the groups of a pool share a threshold.

    The support of a group is the smallest number of its rows that a rate of the goals averages
    over, such as its positive rows for `tpr`; that of a pool is the sum over its groups. While a
    pool has less than `min_support`, the one with the least is merged with the pool that differs
    from it in the fewest slices, the one with the largest support in case of ties.

    Raises
    ------
    FaultError
        E408 if a group has less and `refuse` is true.
    """
    if not min_support:
        return np.arange(len(groups.patterns))
    support = _supports(problem, groups)
    pools = [[c] for c in np.flatnonzero(support >= 0).tolist()]
    apart = (groups.patterns[:, None] != groups.patterns).sum(axis=2)
    while len(pools) > 1:
        smallest = min(pools, key=lambda pool: support[pool].sum())
        count = int(support[smallest].sum())
        if count >= min_support:
            break
        if refuse:
            raise FaultError(_too_few(groups, smallest[0], count, min_support))
        pools.remove(smallest)
        nearest = min(
            pools,
            key=lambda pool: (apart[np.ix_(pool, smallest)].min(), -support[pool].sum()),
        )
        nearest += smallest
    shared = np.arange(len(groups.patterns))
    for pool in pools:
        shared[pool] = min(pool)
    return np.unique(shared, return_inverse=True)[1]


def _supports(problem: Problem, groups: Groups) -> NDArray[np.intp]:
    """Return the support (C,) of the groups, -1 for a group that no rate of the goals covers."""
    index, count = problem.rates.index(), len(groups.patterns)
    pieces = [p for goal in (problem.objective, *problem.constraints) for p in goal.pieces]
    leaves = [leaf for leaf in ex.leaves(*pieces) if leaf.rate.yes != leaf.rate.no]
    least = np.full(count, -1, dtype=np.intp)
    for leaf in leaves:
        where, rows = leaf.where.visible, problem.rates.members[[index[leaf]]].indices
        inside = groups.patterns[:, groups.slices.index(str(where))] if where.conditions else True
        counts = np.bincount(groups.of[rows], minlength=count)
        least = np.where(inside & ((least < 0) | (counts < least)), counts, least)
    return least


def _too_few(groups: Groups, group: int, count: int, least: int) -> Diagnostic:
    names = np.array(groups.slices)[groups.patterns[group]]
    rows = (
        f"the group '{' and '.join(names)}'" if len(names) else "the group in no slice of the goals"
    )
    message = f"{rows} has {count} rows that a goal averages over, and min_support is {least}"
    return Diagnostic("E408", message, "use more rows, or small_groups: pool")
