"""Where Algorithm 2 cuts next (CutChooser, appendix E of Goh et al. 2016).

The upper model of the dual function is h(v) = min over columns of (objective + v @ constraints), on
the box [0, ceiling]^m; L is the best dual value seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.spatial import Delaunay, HalfspaceIntersection, QhullError

from ratecli.models.base import Array

MAX_EXACT_DIMENSIONS = 4
"""Multipliers up to which the center of mass is computed; beyond, it is sampled."""
SAMPLES_PER_DIMENSION = 200
"""Points sampled for each dimension."""
MIN_INNER_RADIUS = 1e-9
"""Inner radius, in a body scaled to the unit box, below which it has no center worth the name."""


@dataclass(frozen=True)
class UpperModel:
    """Columns (m + 1, S) of objective and constraint values, the box, L, and the maximizer of h."""

    columns: Array
    ceiling: float
    lower: float
    maximizer: Array


CutChooser = Callable[[UpperModel], Array]


def model_maximizer(model: UpperModel) -> Array:
    """The maximizer of the model (E.1, Kelley's method)."""
    return model.maximizer


def center_of_mass(model: UpperModel) -> Array:
    """The center of mass of {(v, t): v in the box, L <= t <= h(v)} (E.2).

    A cut through it leaves at most 1 - 1/e of the volume (Gruenbaum 1960), whatever its slope. The
    maximizer where the body has no inside.
    """
    body = _model_polytope(model)
    low, high = _bounding_box(body, len(model.maximizer) + 1)
    size = high - low
    if not (size > 0).all():
        return model.maximizer
    A, b = body
    A, b = A * size, b - A @ low
    inside, radius = _inscribed_ball(A, b)
    if radius < MIN_INNER_RADIUS:
        return model.maximizer
    center = _exact_center(A, b, inside) if len(size) <= MAX_EXACT_DIMENSIONS + 1 else None
    if center is None:
        center = _sampled_center(A, b, inside)
    v = low[:-1] + size[:-1] * center[:-1]
    return np.clip(v, 0.0, model.ceiling)


def _model_polytope(model: UpperModel) -> tuple[Array, Array]:
    """A x <= b of x = (v, t)."""
    objective, constraints = model.columns[0], model.columns[1:]
    m = len(constraints)
    cuts = np.hstack([-constraints.T, np.ones((len(objective), 1))])
    sides = np.vstack([np.eye(m + 1)[:m], -np.eye(m + 1)])
    limits = np.concatenate([objective, np.full(m, model.ceiling), np.zeros(m), [-model.lower]])
    return np.vstack([cuts, sides]), limits


def _bounding_box(body: tuple[Array, Array], size: int) -> tuple[Array, Array]:
    """Least and largest value of each coordinate; equal ones where the body is empty."""
    A, b = body
    ends = np.zeros((2, size))
    for sign, row in zip((1.0, -1.0), ends, strict=True):
        for k in range(size):
            found = linprog(sign * np.eye(size)[k], A_ub=A, b_ub=b, bounds=(None, None))
            if found.status != 0:
                return np.zeros(size), np.zeros(size)
            row[k] = found.x[k]
    return ends[0], ends[1]


def _inscribed_ball(A: Array, b: Array) -> tuple[Array, float]:
    """Center and radius of the largest ball within."""
    lengths = np.linalg.norm(A, axis=1)
    size = A.shape[1]
    found = linprog(
        np.append(np.zeros(size), -1.0), A_ub=np.hstack([A, lengths[:, None]]), b_ub=b,
        bounds=[(None, None)] * size + [(0, None)],
    )  # fmt: skip
    return (found.x[:size], float(found.x[size])) if found.status == 0 else (np.zeros(size), 0.0)


def _exact_center(A: Array, b: Array, inside: Array) -> Array | None:
    """Simplices of the corners, weighted by volume; None where rounding gets in the way."""
    try:
        corners = HalfspaceIntersection(np.hstack([A, -b[:, None]]), inside).intersections
        simplices = corners[Delaunay(corners).simplices]
    except QhullError:
        return None
    volumes = np.abs(np.linalg.det(simplices[:, 1:] - simplices[:, :1]))
    total = float(volumes.sum())
    return volumes @ simplices.mean(axis=1) / total if total > 0 else None


def _sampled_center(A: Array, b: Array, inside: Array) -> Array:
    """The mean of a random walk (hit and run; Bertsimas and Vempala 2004). Always the same walk."""
    rng = np.random.default_rng(0)
    size = A.shape[1]
    x, total, count = inside, np.zeros(size), SAMPLES_PER_DIMENSION * size
    for _ in range(count):
        direction = rng.normal(size=size)
        speed, room = A @ direction, np.maximum(b - A @ x, 0.0)
        with np.errstate(divide="ignore"):
            far = float((room[speed > 0] / speed[speed > 0]).min(initial=np.inf))
            back = float((room[speed < 0] / -speed[speed < 0]).min(initial=np.inf))
        x = x + rng.uniform(-back, far) * direction
        total += x
    return np.asarray(total / count)
