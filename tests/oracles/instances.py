"""Random instances of Problem 3 of Goh et al. 2016 that have a solution."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.solvers.design_matrix import DesignMatrix, Intercept
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
from ratecli.solvers.majorize.majorization import make_ramp_problem
from ratecli.solvers.majorize.options import Majorize
from ratecli.solvers.problem import Problem

INTERCEPTS: tuple[Intercept, ...] = ("regularized", "unregularized", "none")
KINDS = (
    "dense", "wide", "sparse", "one-hot", "scaled", "rates", "merged", "same rule twice",
    "rule and reverse", "touching", "tiny penalty", "no objective",
)  # fmt: skip
"""What is special about the rows or the constraints."""


def instance(seed: int, constraints: int, intercept: Intercept, kind: str) -> ConvexProblem:
    """10 to 60 rows and up to 7 features (wide: 20 more than rows), anchored at random scores or 0.

    The constraints hold at random weights, by at most 0.02; exactly if they are `touching`.
    """
    rng = np.random.default_rng([seed, constraints, INTERCEPTS.index(intercept), KINDS.index(kind)])
    n, d = int(rng.integers(10, 60)), int(rng.integers(1, 8))
    X = _features(rng, n, n + 20 if kind == "wide" else d, kind)
    up, down = _costs(rng, constraints, n, kind)
    l2 = 10 ** (rng.uniform(-8, -5) if kind == "tiny penalty" else rng.uniform(-4, 0))
    anchor = rng.normal(size=n) * rng.uniform(0, 1.5) * (seed % 2)
    zero = np.zeros(constraints + 1)
    ramp = RampProblem.by_kind(DesignMatrix(X, intercept), np.concatenate([up, down]), zero, l2)
    w = rng.normal(size=ramp.rows.width) * 10 ** rng.uniform(-2, 0)
    slack = 0.0 if kind == "touching" else rng.uniform(0, 0.02, constraints)
    constants = np.append(0.0, -ConvexProblem.tight_at(ramp, anchor).values(w)[1:] - slack)
    return ConvexProblem.tight_at(replace(ramp, constants=constants), anchor)


def first_problem(goals: Problem, intercept: Intercept = "regularized") -> ConvexProblem:
    """Return Problem 3 of some goals, anchored at w = 0."""
    ramp = make_ramp_problem(Majorize(intercept=intercept), goals)
    return ConvexProblem.tight_at(ramp, np.zeros(len(ramp.rows)))


def instances(
    seeds: range, counts: Iterable[int], kind: str, *kinds: Intercept
) -> Iterator[ConvexProblem]:
    """With each of the counts of constraints and each (or the given) kind of intercept."""
    for intercept in kinds or INTERCEPTS:
        for constraints in counts:
            for seed in seeds:
                yield instance(seed, constraints, intercept, kind)


def _features(rng: np.random.Generator, n: int, d: int, kind: str) -> Features:
    X = rng.normal(size=(n, d))
    if kind == "scaled":
        return X * 10 ** rng.uniform(-3, 3, size=d)
    if kind == "sparse":
        return sparse.csr_array(X * (rng.random((n, d)) < 0.4))
    if kind == "one-hot":
        return sparse.csr_array(np.eye(4)[rng.integers(4, size=n)])
    return X


def _costs(rng: np.random.Generator, constraints: int, n: int, kind: str) -> tuple[Array, Array]:
    """Rates of groups against each other, costs both ways as merged rows have, or any numbers."""
    shape = (constraints + 1, n)
    if kind == "merged":
        up, down = rng.random((2, *shape)) / n * (rng.random((2, *shape)) < 0.6)
        return up, down
    coefficients = rng.normal(size=shape) / n * (rng.random(n) < 0.8)
    if kind == "rates":
        coefficients = _rates(rng, constraints, n)
    if constraints > 1 and kind == "same rule twice":
        coefficients[2] = 2 * coefficients[1]
    if constraints > 1 and kind == "rule and reverse":
        coefficients[2] = -coefficients[1]
    if kind == "no objective":
        coefficients[0] = 0
    return np.maximum(coefficients, 0), np.maximum(-coefficients, 0)


def _rates(rng: np.random.Generator, constraints: int, n: int) -> Array:
    """Error, and rates of one group of three less a part of that of another one."""
    group, label = rng.integers(3, size=n), rng.random(n) < 0.4
    shares = np.stack([(group == g) / max(int((group == g).sum()), 1) for g in range(3)])
    rules = [
        shares[a] - rng.uniform(0.5, 1.2) * shares[b]
        for a, b in rng.integers(3, size=(constraints, 2))
    ]
    return np.stack([(1 - 2.0 * label) / n, *rules])
