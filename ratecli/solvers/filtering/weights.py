"""Sampling weights: the chances with which each value of a proxy is kept (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog, nnls

from ratecli.models.base import Array
from ratecli.solvers.filtering.solvers import BalancedTree
from ratecli.solvers.filtering.target import FilterTarget
from ratecli.solvers.numerics import minimize_quadratic

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
    return SamplingWeights(
        mix, keep / keep.max(), induced, imbalance, nearest if relaxed else induced
    )


def _nearest_on_simplex(offsets: Array, sizes: Array, kept: float) -> Array:
    """Minimize `|q @ offsets|` over q (L,) with `0 <= q <= sizes / kept` that sum to 1."""
    start = sizes / sizes.sum()
    most = np.minimum(sizes / kept, 1.0) if kept > 0 else np.ones(len(sizes))
    limits = np.zeros(len(sizes)), np.maximum(most, start)  # keeping all rows is always allowed
    curvature = offsets @ offsets.T
    # equal slopes do not matter for a fixed sum: they only set the scale of the tolerance
    slope = np.full(len(sizes), np.abs(curvature).max())
    return minimize_quadratic(curvature, slope, limits, start, fixed_sum=True)


def leaf_weights(target: FilterTarget, options: BalancedTree, masses: Array) -> SamplingWeights:
    """Return the best chances for leaves of masses (L, R)."""
    A, sizes = target.values(masses)
    return optimal_sampling_weights(
        A, sizes, target.target, kept=options.kept, relaxed=options.relaxed
    )


def maximize_kept_rows(A: Array, shares: Array, weights: SamplingWeights) -> SamplingWeights:
    """Return weights with the same induced shares of groups that keep as many rows as possible.

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
        return weights
    mix = np.zeros(len(shares))
    mix[used] = np.maximum(solved.x[:-1], 0.0)
    mix /= mix.sum()
    keep = np.divide(mix, shares, out=np.zeros_like(mix), where=shares > MIN_SHARE)
    keep /= keep.max()
    if keep @ shares < weights.keep @ shares:
        # the program's rounding error is large for a rare value
        return weights
    return replace(weights, mix=mix, keep=keep)
