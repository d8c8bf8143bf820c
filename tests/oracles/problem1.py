"""Exact optima of Problem 1 of Goh et al. 2016: 0/1 rates of a linear classifier with bias.

Objective and constraints are `coefficients @ p + constants`, row 0 the objective, the others at most
0; p[i] is 1 where <w, x_i> + b > 0, else 0. The points are integral.

The margin. A MILP cannot say "> 0", it says ">= 1". That excludes no classifier: any w, b can be
scaled up until the least positive score is 1. It also bounds the weights, and that excludes no
decisions either: those of a classifier are a feasible system of inequalities `<w, x> + b >= 1` or
`<= 0` with integral coefficients, which has a basic solution; by Cramer's rule and Hadamard's
inequality its entries are at most (largest |(x, 1)|)^(d + 1).
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

Floats = NDArray[np.float64]
TOLERANCE = 1e-9


def by_milp(points: Floats, coefficients: Floats, constants: Floats) -> float:
    """Least objective, inf if nothing is feasible.

    Variables: a decision for each distinct point, then w and b.
    """
    distinct, member = np.unique(points, axis=0, return_inverse=True)
    assert (distinct == np.round(distinct)).all()
    features = np.hstack([distinct, np.ones((len(distinct), 1))])
    merged = merge(coefficients, member.ravel(), len(distinct))
    bound = np.linalg.norm(features, axis=1).max() ** features.shape[1]
    big = bound * np.abs(features).sum(axis=1)
    yes = LinearConstraint(np.hstack([-np.diag(big + 1), features]), lb=-big)
    no = LinearConstraint(np.hstack([-np.diag(big), features]), ub=0)
    free = np.zeros((len(merged) - 1, features.shape[1]))
    goals = LinearConstraint(np.hstack([merged[1:], free]), ub=-constants[1:])
    found = milp(
        np.concatenate([merged[0], np.zeros(features.shape[1])]),
        constraints=[yes, no, goals] if len(merged) > 1 else [yes, no],
        integrality=np.repeat([1, 0], features.shape),
        bounds=Bounds(*(np.repeat(ends, features.shape) for ends in ([0, -bound], [1, bound]))),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        assert found.status == 2, found.message
        return np.inf
    decisions = np.round(found.x[: len(distinct)])[member.ravel()]
    return float(coefficients[0] @ decisions + constants[0])


def by_enumeration(points: Floats, coefficients: Floats, constants: Floats) -> float:
    """Least objective, inf if nothing is feasible."""
    values = coefficients @ dichotomies(points).T + constants[:, None]
    return float(values[0, (values[1:] <= TOLERANCE).all(axis=0)].min(initial=np.inf))


def of_mixtures(points: Floats, coefficients: Floats, constants: Floats) -> float:
    """Least expected objective of a distribution over linear classifiers with bias, by an LP.

    A ramp is one: sigma(f) is the chance of f > t, t uniform on [-1/2, 1/2].
    """
    values = coefficients @ dichotomies(points).T + constants[:, None]
    some, one = np.zeros(len(values) - 1), np.ones((1, values.shape[1]))
    found = linprog(values[0], A_ub=values[1:], b_ub=some, A_eq=one, b_eq=[1.0])
    assert found.status in {0, 2}, found.message
    return float(found.fun) if found.status == 0 else np.inf


def dichotomies(points: Floats) -> Floats:
    """Return all decisions (K, n) of lines on integral points of one or two dimensions.

    Between two directions in which some pair of points swaps places the order of the projections is
    fixed, and the decisions are its prefixes.
    """
    return _dichotomies(points.tobytes(), points.shape)


@cache
def _dichotomies(data: bytes, shape: tuple[int, int]) -> Floats:
    """Cached, because several goals use the same points."""
    points = np.frombuffer(data).reshape(shape)
    plane = points if points.shape[1] == 2 else np.hstack([points, np.zeros_like(points)])
    distinct, member = np.unique(np.round(plane).astype(int), axis=0, return_inverse=True)
    size = len(distinct)
    found = {np.zeros(size, dtype=bool).tobytes(), np.ones(size, dtype=bool).tobytes()}
    for direction in directions(distinct):
        order = np.argsort(-(distinct @ direction), kind="stable")
        for k in range(1, size):
            mask = np.zeros(size, dtype=bool)
            mask[order[:k]] = True
            found.add(mask.tobytes())
    masks = np.array([np.frombuffer(mask, dtype=bool) for mask in sorted(found)])
    return masks[:, member.ravel()].astype(float)


def directions(distinct: NDArray[np.int_]) -> list[NDArray[np.int_]]:
    """Return a direction inside every sector in which no pair of points swaps."""
    first, second = np.triu_indices(len(distinct), 1)
    steps = distinct[second] - distinct[first]
    normals = np.vstack([np.stack([-steps[:, 1], steps[:, 0]], axis=1), [[1, 0], [0, 1]]])
    normals = normals // np.gcd(normals[:, 0], normals[:, 1])[:, None]
    normals = np.unique(np.vstack([normals, -normals]), axis=0)
    turning = normals[np.argsort(np.arctan2(normals[:, 1], normals[:, 0]))]
    return list(turning + np.roll(turning, -1, axis=0))


def merge(coefficients: Floats, member: NDArray[np.int_], size: int) -> Floats:
    """Return the sums of the columns of rows at the same point."""
    merged = np.zeros((len(coefficients), size))
    for row, values in zip(merged, coefficients, strict=True):
        np.add.at(row, member, values)
    return merged
