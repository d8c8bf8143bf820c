"""The functions of the language: a row of local facts each; composition is in `analysis`.

In the manner of disciplined convex programming a function states its curvature and, by its operation
(`rates.interval`), in which arguments it grows or falls, and between which ends its values lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """`arity` None means any number of arguments, one at least.

    What bends `either` way tells which by `bends`, from the intervals its arguments lie in.
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
        """The curvature over intervals; "either" if none is known."""
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
    """KL(p || q) of two Bernoulli distributions, in nats; the true prevalence p first.

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
    """It falls towards p = q in either argument, and is 0 there."""
    yield from iv.corner_extremes(arguments)
    low, high = max(low for low, _ in arguments), min(high for _, high in arguments)
    if low <= high:
        yield ArgumentPoint(((low + high) / 2,) * 2, (0, 0))


def _kl_slopes(p: float, q: float) -> Sequence[float]:
    return math.log(p / q) - math.log((1 - p) / (1 - q)), (q - p) / (q * (1 - q))


def _geo_mean_slopes(x: float, y: float) -> Sequence[float]:
    return 0.5 * math.sqrt(y / x), 0.5 * math.sqrt(x / y)


def _harmonic_mean_slopes(x: float, y: float) -> Sequence[float]:
    return 2 * (y / (x + y)) ** 2, 2 * (x / (x + y)) ** 2


def _rms_slopes(*values: float) -> Sequence[float]:
    size = len(values) * _rms(*values)
    return [x / size if size else 0.0 for x in values]


def _power_convexity(arguments: Sequence[Interval]) -> Convexity:
    """Of a power with one exponent, by the side of 0 that its base is on."""
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


def _table(*rows: Function) -> dict[str, Function]:
    return {row.name: row for row in rows}


_POSITIVE = (0.0, INFINITY), clip_between(SLOPE_MARGIN, INFINITY)

# fmt: off
FUNCTIONS = _table(
    Function("abs",  1,    "convex",  iv.absolute, "absolute value"),
    Function("max",  None, "convex",  iv.maximum,  "largest of its arguments"),
    Function("min",  None, "concave", iv.minimum,  "smallest of its arguments"),
    Function("sqrt", 1,    "concave", iv.sqrt,     "square root"),
    Function("log",  1,    "concave", iv.log,      "natural logarithm"),
    Function("exp",  1,    "convex",  iv.exp,      "exponential"),
    Function(POWER,  2,    "either",  iv.power,
             "first argument to the power of a number, also written x ** 2", _power_convexity),
    Function("kl",   2,    "convex",
             Operation(kl, _kl_slopes, _kl_points, iv.unknown_directions, (0.0, 1.0), clip_between(SLOPE_MARGIN, 1.0 - SLOPE_MARGIN)),
             "Kullback-Leibler divergence of two shares, the true one first"),
    Function("geo_mean", 2, "concave",
             Operation(_geo_mean, _geo_mean_slopes, iv.increasing_extremes, iv.increasing_directions, *_POSITIVE),
             "geometric mean"),
    Function("harmonic_mean", 2, "concave",
             Operation(_harmonic_mean, _harmonic_mean_slopes, iv.increasing_extremes, iv.increasing_directions, *_POSITIVE),
             "harmonic mean"),
    Function("rms", None, "convex",
             Operation(_rms, _rms_slopes, iv.magnitude_extremes, iv.sign_directions), "quadratic mean"),
)
# fmt: on
