"""Sampling weights: with which chance each value of a proxy is kept (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog, lsq_linear, nnls

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array

MIN_SHARE = 1e-12
"""Below this a share of all rows is what rounding left of none."""

SUM_PENALTY = 1e3
"""How strongly weights are pulled to a sum of 1, beside distances of shares."""


@dataclass(frozen=True)
class SamplingWeights:
    """Chances that bring the groups of what is kept near their target.

    Attributes
    ----------
    mix
        (L,) q: of what is kept, the share of each value; adds up to 1.
    keep
        (L,) rho, in [0, 1], the largest 1.
    induced
        (K,) shares of the groups in what is kept, `q A`.
    imbalance
        Euclidean distance of that from the target.
    nearest
        (K,) the point that is nearest to the target: the same, or, relaxed, `q A` with a q that need not add
        up to 1, which then is that of no sample.
    """

    mix: Array
    keep: Array
    induced: Array
    imbalance: float
    nearest: Array


def optimal_sampling_weights(
    A: Array, shares: Array, target: Array, *, kept: float = 0.0, relaxed: bool = False
) -> SamplingWeights:
    """The best chances for values with these groups: the quadratic program of Algorithm 1.

    Parameters
    ----------
    A
        (L, K) shares of the groups in each value. With intersecting groups (appendix A.2) those of all
        attributes stand side by side, and each attribute's add up to 1.
    shares
        (L,) how often each value occurs; one that never does is never kept.
    target
        (K,) what the shares of the groups are to be.
    kept
        Least share of all rows that is kept, in [0, 1]; not for relaxed weights.
    relaxed
        Leaves q free to add up to anything (section 5); the chances are scaled afterwards all the same.
    """
    occurs = shares > MIN_SHARE
    rows, sizes = A[occurs], shares[occurs]
    q = nnls(rows.T, target)[0] if relaxed else _nearest_on_simplex(rows - target, sizes, kept)
    nearest = q @ rows
    if not q.any():  # relaxed, and no value holds any of what is wanted
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
    """(L,) q of least `|q @ offsets|` with `0 <= q <= sizes / kept` and, nearly, a sum of 1; by active sets.

    The sum is pulled to 1 rather than held there: of `s^2 |d|^2 + w^2 (1 - s)^2` that d is least which is
    least for s = 1, but for what the upper limits have to do with s, which is near 1.
    """
    system = np.vstack([offsets.T, np.full(len(sizes), SUM_PENALTY)])
    right = np.append(np.zeros(offsets.shape[1]), SUM_PENALTY)
    most = np.minimum(sizes / kept, 1.0) if kept > 0 else np.ones(len(sizes))
    most = np.maximum(most, sizes)  # to keep all is always possible
    found = lsq_linear(
        system, right, (0.0, most), method="bvls", tol=1e-15, max_iter=50 * len(sizes)
    )
    if found.status == 0:
        raise FaultError(Diagnostic("E501", "sampling weights are not found: too many active sets"))
    return np.asarray(np.maximum(found.x, 0.0))


def maximize_kept_rows(A: Array, shares: Array, found: SamplingWeights) -> SamplingWeights:
    """Weights that induce the same shares of groups and keep as many rows as such weights can.

    Where there are more values than groups many weights are best. A linear program in the mix and the
    largest of its quotients by the shares, of which 1 over it is kept.
    """
    used = np.flatnonzero(shares > MIN_SHARE)
    one = np.ones((1, len(used)))
    equal = np.hstack([np.vstack([A[used].T, one]), np.zeros((A.shape[1] + 1, 1))])
    right = equal[:, :-1] @ found.mix[used]
    most = np.hstack([np.eye(len(used)), -shares[used][:, None]])
    last = np.append(np.zeros(len(used)), 1.0)
    solved = linprog(last, most, np.zeros(len(used)), equal, right, bounds=(0, None))
    if not solved.success:  # the mix itself is a solution, but for rounding
        return found
    mix = np.zeros(len(shares))
    mix[used] = np.maximum(solved.x[:-1], 0.0)
    mix /= mix.sum()
    keep = np.divide(mix, shares, out=np.zeros_like(mix), where=shares > MIN_SHARE)
    keep /= keep.max()
    if keep @ shares < found.keep @ shares:  # what the program rounds is much of a rare value
        return found
    return replace(found, mix=mix, keep=keep)
