"""Sampling weights: with which chance each value of a proxy is kept (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.filtering.least import least

NONE = 1e-12
"""Below this a share of all rows is what rounding left of none."""


@dataclass(frozen=True)
class Sampling:
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
        up to 1.
    residual
        Distance of that from the target, which, relaxed, no sample has.
    """

    mix: Array
    keep: Array
    induced: Array
    imbalance: float
    nearest: Array
    residual: float


def sampling(
    A: Array, shares: Array, target: Array, *, kept: float = 0.0, relaxed: bool = False
) -> Sampling:
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
        Least share of all rows that is kept, in [0, 1].
    relaxed
        Leaves q free to add up to anything (section 5); the chances are scaled afterwards all the same.
    """
    occurs = shares > NONE
    rows, sizes = A[occurs], shares[occurs]
    masses = rows * sizes[:, None]
    squares, right, total = objective(masses, sizes, target, relaxed=relaxed)
    found = least(squares, right, limits(sizes, kept), total)
    mix = np.zeros(len(shares))
    mix[occurs] = found.x * sizes
    nearest = target + found.residual if relaxed else None
    if not mix.any():  # relaxed, and no value holds any of what is wanted
        mix[occurs] = sizes
    mix /= mix.sum()
    keep = np.divide(mix, shares, out=np.zeros_like(mix), where=occurs)
    induced = mix @ np.where(occurs[:, None], A, 0.0)
    imbalance = float(np.linalg.norm(induced - target))
    if nearest is None:
        return Sampling(mix, keep / keep.max(), induced, imbalance, induced, imbalance)
    return Sampling(mix, keep / keep.max(), induced, imbalance, nearest, found.distance)


def objective(
    masses: Array, sizes: Array, target: Array, *, relaxed: bool
) -> tuple[Array, Array, Array | None]:
    """P (K, T), b (K,) and e (T,) for `least`, of columns with masses (T, K) of groups and (T,) of rows."""
    if relaxed:
        return masses.T, target, None
    return masses.T - np.outer(target, sizes), np.zeros(len(target)), sizes


def limits(sizes: Array, kept: float) -> Array:
    """(L, L) at most 0 times x where no value is kept so often that less than `kept` of all rows are."""
    return kept * np.eye(len(sizes)) - sizes[None, :] if kept > 0 else np.zeros((0, len(sizes)))
