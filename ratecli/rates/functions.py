"""The functions of the rule language as a table of local facts, which `analysis` composes.

As in disciplined convex programming, a function has a curvature, and its operation
(`rates.interval`) knows in which arguments it increases or decreases and where its extreme values
lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ratecli.rates import interval as iv
from ratecli.rates.interval import (
    INFINITY,
    SLOPE_MARGIN,
    ArgumentPoint,
    Interval,
    Operation,
    clip_between,
)

KL_FLOOR = 1e-10
"""Clipping of a rate inside kl, as in the reference code of Narasimhan et al. 2019."""
POWER = "power"

Convexity = Literal["convex", "concave", "either"]


@dataclass(frozen=True)
class Function:
    """A function of rules. `arity` None means any number of arguments, at least one.

    If the curvature is "either", `bends` returns it, given the intervals of the arguments.
    """

    name: str
    arity: int | None
    curvature: Convexity
    operation: Operation
    means: str
    bends: Callable[[Sequence[Interval]], Convexity] | None = None

    @property
    def value(self) -> Callable[..., float]:
        return self.operation.value

    @property
    def domain(self) -> Interval:
        return self.operation.domain

    def bend(self, arguments: Sequence[Interval]) -> Convexity:
        """Return the curvature over intervals; "either" if it is unknown."""
        return self.bends(arguments) if self.bends else self.curvature


def _geo_mean(x: float, y: float) -> float:
    return math.sqrt(x * y) if x >= 0 and y >= 0 else math.nan


def _harmonic_mean(x: float, y: float) -> float:
    if x < 0 or y < 0:
        return math.nan
    if x == 0 or y == 0:
        return 0.0
    inverse = 1 / x + 1 / y
    return 2 / inverse if inverse else INFINITY


def _rms(*values: float) -> float:
    return math.sqrt(sum(x * x for x in values) / len(values))


def kl(p: float, q: float) -> float:
    """Return KL(p || q) of two Bernoulli distributions in nats; p is the true prevalence.

    q is clipped to [1e-10, 1 - 1e-10] (protocols of Narasimhan et al. 2019), 0 ln 0 = 0; NaN for p
    outside [0, 1].
    """
    if not 0 <= p <= 1 or math.isnan(q):
        return math.nan
    q = min(max(q, KL_FLOOR), 1 - KL_FLOOR)
    first = p * math.log(p / q) if p > 0 else 0.0
    second = (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0
    return first + second


def _kl_points(arguments: Sequence[Interval]) -> iv.ArgumentPoints:
    """Return corners and a point with p = q, if any: KL decreases towards p = q, where it is 0."""
    yield from iv.corner_extremes(arguments)
    low, high = max(low for low, _ in arguments), min(high for _, high in arguments)
    if low <= high:
        yield ArgumentPoint(((low + high) / 2,) * 2, (0, 0))


def _rms_slopes(*values: float) -> Sequence[float]:
    size = len(values) * _rms(*values)
    return [x / size if size else 0.0 for x in values]


def _power_convexity(arguments: Sequence[Interval]) -> Convexity:
    """Return the curvature of a power with a fixed exponent, given the sign of its base."""
    (low, high), (exponent, most) = arguments
    if exponent != most:
        return "either"
    if exponent > 0 and exponent % 2 == 0:
        return "convex"
    if low >= -iv.ROUNDING:
        return "concave" if 0 < exponent < 1 else "convex"
    if high <= 0 and iv.is_whole(exponent):
        return "concave" if exponent % 2 else "convex"
    return "either"


_kl = Operation(
    kl,
    lambda p, q: (math.log(p / q) - math.log((1 - p) / (1 - q)), (q - p) / (q * (1 - q))),
    _kl_points,
    iv.unknown_directions,
    (0.0, 1.0),
    clip_between(SLOPE_MARGIN, 1.0 - SLOPE_MARGIN),
)
_positive = partial(Operation, domain=iv.POSITIVE, near=clip_between(SLOPE_MARGIN, INFINITY))
_ROWS = (
    Function("abs", 1, "convex", iv.absolute, "absolute value"),
    Function("max", None, "convex", iv.maximum, "largest of its arguments"),
    Function("min", None, "concave", iv.minimum, "smallest of its arguments"),
    Function("sqrt", 1, "concave", iv.sqrt, "square root"),
    Function("log", 1, "concave", iv.log, "natural logarithm"),
    Function("exp", 1, "convex", iv.exp, "exponential"),
    Function(
        POWER,
        2,
        "either",
        iv.power,
        "first argument to the power of a number, also written x ** 2",
        _power_convexity,
    ),
    Function("kl", 2, "convex", _kl, "Kullback-Leibler divergence of two shares, the true first"),
    Function(
        "geo_mean",
        2,
        "concave",
        _positive(_geo_mean, lambda x, y: (0.5 * math.sqrt(y / x), 0.5 * math.sqrt(x / y))),
        "geometric mean",
    ),
    Function(
        "harmonic_mean",
        2,
        "concave",
        _positive(_harmonic_mean, lambda x, y: (2 * (y / (x + y)) ** 2, 2 * (x / (x + y)) ** 2)),
        "harmonic mean",
    ),
    Function(
        "rms",
        None,
        "convex",
        Operation(_rms, _rms_slopes, iv.magnitude_extremes, iv.sign_directions),
        "root mean square",
    ),
)
FUNCTIONS = {row.name: row for row in _ROWS}
