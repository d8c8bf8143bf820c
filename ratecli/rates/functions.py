"""The functions of the language: a row of local facts each; composition is in `analysis`.

In the manner of disciplined convex programming a function states its curvature and, per argument,
whether it grows (+1), falls (-1), depends on the sign of the argument ("sign") or neither (0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Interval = tuple[float, float]
INFINITY = math.inf
KL_FLOOR = 1e-10
"""Clipping of a rate inside kl, as in the reference code of Narasimhan et al. 2019."""


@dataclass(frozen=True)
class Function:
    """`arity` None means any number of arguments, one at least.

    `slopes` gives a derivative for each argument, a subgradient at a kink, for arguments within
    `smooth`: there it is finite.
    """

    name: str
    arity: int | None
    curvature: Literal["convex", "concave"]
    monotone: int | Literal["sign"]
    value: Callable[..., float]
    interval: Callable[[Sequence[Interval]], Interval]
    slopes: Callable[..., Sequence[float]]
    means: str
    domain: Interval = (-INFINITY, INFINITY)
    smooth: Interval = (-INFINITY, INFINITY)


def _max(*values: float) -> float:
    return max(values)


def _min(*values: float) -> float:
    return min(values)


def _abs_interval(arguments: Sequence[Interval]) -> Interval:
    ((low, high),) = arguments
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _growing(function: Callable[..., float]) -> Callable[[Sequence[Interval]], Interval]:
    """The interval of a function that grows in every argument."""

    def interval(arguments: Sequence[Interval]) -> Interval:
        return function(*(low for low, _ in arguments)), function(*(high for _, high in arguments))

    return interval


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _log(x: float) -> float:
    return math.log(x) if x > 0 else (-INFINITY if x == 0 else math.nan)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else INFINITY


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


def _kl_interval(arguments: Sequence[Interval]) -> Interval:
    (p_low, p_high), (q_low, q_high) = arguments
    corners = [kl(p, q) for p in (p_low, p_high) for q in (q_low, q_high)]
    apart = p_high < q_low or q_high < p_low
    return (min(corners) if apart else 0.0), max(corners)


def _rms_interval(arguments: Sequence[Interval]) -> Interval:
    sizes = [_abs_interval([argument]) for argument in arguments]
    return _growing(_rms)(sizes)


def _max_slopes(*values: float) -> Sequence[float]:
    first = values.index(max(values))
    return [float(i == first) for i in range(len(values))]


def _min_slopes(*values: float) -> Sequence[float]:
    return _max_slopes(*(-value for value in values))


def _sign(x: float) -> Sequence[float]:
    return (float((x > 0) - (x < 0)),)


def _kl_slopes(p: float, q: float) -> Sequence[float]:
    return math.log(p / q) - math.log((1 - p) / (1 - q)), (q - p) / (q * (1 - q))


def _geo_mean_slopes(x: float, y: float) -> Sequence[float]:
    return 0.5 * math.sqrt(y / x), 0.5 * math.sqrt(x / y)


def _harmonic_mean_slopes(x: float, y: float) -> Sequence[float]:
    return 2 * (y / (x + y)) ** 2, 2 * (x / (x + y)) ** 2


def _rms_slopes(*values: float) -> Sequence[float]:
    size = len(values) * _rms(*values)
    return [x / size if size else 0.0 for x in values]


def _table(*rows: Function) -> dict[str, Function]:
    return {row.name: row for row in rows}


NEAR = 1e-6
"""How near to the end of a domain slopes are taken where they grow beyond all bounds."""

# fmt: off
FUNCTIONS = _table(
    Function("abs",  1,    "convex",  "sign", abs,   _abs_interval, _sign, "absolute value"),
    Function("max",  None, "convex",  1, _max, _growing(_max), _max_slopes, "largest of its arguments"),
    Function("min",  None, "concave", 1, _min, _growing(_min), _min_slopes, "smallest of its arguments"),
    Function("sqrt", 1,    "concave", 1, _sqrt, _growing(_sqrt), lambda x: (0.5 / math.sqrt(x),),
             "square root", (0.0, INFINITY), (NEAR**2, INFINITY)),
    Function("log",  1,    "concave", 1, _log, _growing(_log), lambda x: (1 / x,),
             "natural logarithm", (0.0, INFINITY), (NEAR, INFINITY)),
    Function("exp",  1,    "convex",  1, _exp, _growing(_exp), lambda x: (_exp(x),), "exponential"),
    Function("kl",   2,    "convex",  0, kl, _kl_interval, _kl_slopes,
             "Kullback-Leibler divergence of two shares, the true one first",
             (0.0, 1.0), (NEAR, 1.0 - NEAR)),
    Function("geo_mean", 2, "concave", 1, _geo_mean, _growing(_geo_mean), _geo_mean_slopes,
             "geometric mean", (0.0, INFINITY), (NEAR, INFINITY)),
    Function("harmonic_mean", 2, "concave", 1, _harmonic_mean, _growing(_harmonic_mean),
             _harmonic_mean_slopes, "harmonic mean", (0.0, INFINITY), (NEAR, INFINITY)),
    Function("rms", None, "convex", "sign", _rms, _rms_interval, _rms_slopes, "quadratic mean"),
)
# fmt: on
