"""Exact optima of Problem 1 of Goh et al. 2016: 0/1 rates of a linear classifier with bias.

Objective and constraints are `coefficients @ p + constants`, row 0 the objective, the others at most
0; p[i] is 1 where <w, x_i> + b > 0, else 0. The points are integral.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Floats = NDArray[np.float64]
TOLERANCE = 1e-9


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
