"""Functions and operators of rules: values, intervals and curvature, one row for each.

As in disciplined convex programming, a row states local facts, which `rates.analysis` composes.

Interval arithmetic is defined for all inputs. Each end of a result is the value of the function at
one point of its arguments, whose coordinates are ends of the arguments or a value between them,
such as 0 for a square. A function only lists these few candidate points. Both the ends and their
derivatives in the ends of the arguments (`RateFunction.upper`) follow from them.

A result contains every value that the function has where it is defined: the logarithm of [-1, 2]
is at most log 2. If the function has no finite value at all, or if an argument is NaN, the result
is the real line. Nothing is raised and nothing is rounded outwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

Interval = tuple[float, float]
INFINITY = math.inf
REAL_LINE: Interval = (-INFINITY, INFINITY)
POSITIVE: Interval = (0.0, INFINITY)
ROUNDING = 1e-9
KL_FLOOR = 1e-10
"""Clipping of a rate inside kl, as in the reference code of Narasimhan et al. 2019."""

Convexity = Literal["affine", "convex", "concave", "either"]

Point = Sequence[tuple[float, int]]
"""Coordinates, each with the end of its argument that it is: lower (-1), upper (1), or none (0)."""


class Endpoint(NamedTuple):
    """An end of a result and the point where it is attained; empty if there is no such point."""

    value: float
    point: Point = ()


UNKNOWN_ENDS = Endpoint(-INFINITY), Endpoint(INFINITY)

Arguments = Sequence[Interval]


# candidate points of extremes


def _increasing_extremes(arguments: Arguments) -> Iterable[Point]:
    """Return all lower and all upper ends, for a function that increases in every argument."""
    return [(low, -1) for low, _ in arguments], [(high, 1) for _, high in arguments]


def _corner_extremes(arguments: Arguments) -> Iterable[Point]:
    """Return all corners, for a function that is monotone in each argument separately."""
    return itertools.product(*(((low, -1), (high, 1)) for low, high in arguments))


def _magnitude_extremes(arguments: Arguments) -> Iterable[Point]:
    """For a function that increases in each |x|: the points nearest to and farthest from 0."""
    nearest, farthest = list[tuple[float, int]](), list[tuple[float, int]]()
    for low, high in arguments:
        less, more = sorted([(high, 1), (low, -1)], key=lambda end: abs(end[0]))
        nearest.append((0.0, 0) if low < 0 < high else less)
        farthest.append(more)
    return nearest, farthest


# directions


def _increasing(arguments: Arguments) -> Sequence[int]:
    return (1,) * len(arguments)


def _magnitude_directions(arguments: Arguments) -> Sequence[int]:
    """For a function that increases in |x| for each argument x."""
    return tuple(map(sign, arguments))


def sign(argument: Interval) -> int:
    """Return 1 if an interval has no negative number, -1 if it has no positive number, else 0."""
    return 1 if argument[0] >= 0 else -1 if argument[1] <= 0 else 0


@dataclass(frozen=True)
class Function:
    """A function of numbers. Called with intervals, it returns the interval of its values.

    Attributes
    ----------
    arity
        The number of arguments; None for any number, at least one.
    curvature
        If it is "either", `bends` returns it, given the intervals of the arguments.
    value
        Value at numbers within `domain`; NaN where it is undefined.
    extremes
        Candidate points over given intervals: the function attains its minimum and maximum at two
        of them. Empty if nothing is known.
    directions
        For each argument whether the function increases (1) or decreases (-1) in it while all
        arguments stay within given intervals; 0 if neither is certain.
    domain
        Allowed range of every argument.
    everywhere
        Whether the function is defined for all numbers of given intervals. If None, it is defined
        exactly on `domain`.
    """

    name: str
    arity: int | None
    curvature: Convexity
    means: str
    value: Callable[..., float]
    extremes: Callable[[Arguments], Iterable[Point]] = _increasing_extremes
    directions: Callable[[Arguments], Sequence[int]] = _increasing
    domain: Interval = REAL_LINE
    everywhere: Callable[[Arguments], bool] | None = None
    bends: Callable[[Arguments], Convexity] | None = None

    def __call__(self, *arguments: Interval) -> Interval:
        low, high = self.ends(arguments)
        return low.value, high.value

    def bend(self, arguments: Arguments) -> Convexity:
        """Return the curvature over intervals, "either" if unknown or if not defined everywhere."""
        if not self.defined(arguments):
            return "either"
        return self.bends(arguments) if self.bends else self.curvature

    def defined(self, arguments: Arguments) -> bool:
        """Whether the (possibly infinite) value is defined on whole intervals, up to rounding."""
        if self.everywhere:
            return self.everywhere(arguments)
        least, most = self.domain
        return all(least - ROUNDING <= low and high <= most + ROUNDING for low, high in arguments)

    def certain(self, arguments: Arguments) -> tuple[Endpoint, Endpoint]:
        """Return `ends`, or unknown ends if the function is undefined somewhere inside."""
        return self.ends(arguments) if self.defined(arguments) else UNKNOWN_ENDS

    def ends(self, arguments: Arguments) -> tuple[Endpoint, Endpoint]:
        """Return the lower and upper end over intervals, ignoring points outside the domain."""
        if any(math.isnan(end) for argument in arguments for end in argument):
            return UNKNOWN_ENDS
        if self.domain != REAL_LINE:
            least, most = self.domain
            arguments = [(max(low, least), min(high, most)) for low, high in arguments]
            if any(low > high for low, high in arguments):
                return UNKNOWN_ENDS
        points = list(self.extremes(arguments))
        values = [self.value(*(x for x, _ in point)) for point in points]
        if not values or any(map(math.isnan, values)):
            return UNKNOWN_ENDS
        low, high = min(values), max(values)
        if low == INFINITY or high == -INFINITY:
            return UNKNOWN_ENDS
        found = list(map(Endpoint, values, points))
        return found[values.index(low)], found[values.index(high)]


# arithmetic


def _sum(*values: float) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large, or infinities of both signs
        return sum(values)


def _quotient(x: float, y: float) -> float:
    """Return x / y; the sign of a zero denominator tells from which side 0 is approached."""
    if not y:
        return math.copysign(INFINITY, x) * math.copysign(1.0, y) if x else math.nan
    return x / y


def _quotient_extremes(arguments: Arguments) -> Iterable[Point]:
    """Return the corners where the quotient is defined.

    Return nothing for a denominator of 0, or one that changes sign under a nonzero numerator.
    """
    top, (low, high) = arguments
    if (low, high) == (0.0, 0.0) or (low < 0 < high and top != (0.0, 0.0)):
        return
    bottom = (0.0 if low == 0 else low, -1), (-0.0 if high == 0 else high, 1)
    for (x, end), (y, other) in itertools.product(((top[0], -1), (top[1], 1)), bottom):
        if not ((x == 0 and y == 0) or (math.isinf(x) and math.isinf(y))):
            yield (x, end), (y, other)


def _quotient_directions(arguments: Arguments) -> Sequence[int]:
    top, bottom = arguments
    return (sign(bottom), -sign(top)) if sign(bottom) else (0, 0)


def _one_sign(bottom: Interval) -> bool:
    """Whether a denominator cannot approach 0 from below, so that 0 counts as +0."""
    return not bottom[0] < 0 <= bottom[1]


# powers


def _is_whole(exponent: float) -> bool:
    return exponent % 1 == 0


def _is_odd(exponent: float) -> bool:
    return exponent % 2 == 1


def _power(x: float, exponent: float) -> float:
    """NaN for a root of a negative number, 1 for 0 ** 0, infinite for a negative power of 0."""
    if x == 0 and exponent < 0:
        return math.copysign(INFINITY, x) if _is_odd(exponent) else INFINITY
    try:
        return math.pow(x, exponent)
    except OverflowError:
        return -INFINITY if x < 0 and _is_odd(exponent) else INFINITY
    except ValueError:
        return math.nan


def _power_extremes(arguments: Arguments) -> Iterable[Point]:
    """Return the ends of the base and 0, approached from both sides, if it is inside."""
    (low, high), (exponent, most) = arguments
    low_end = -1
    if not _is_whole(exponent) and low < 0:  # only defined for bases of at least 0
        low, low_end = 0.0, 0
    only_zero = (low, high) == (0.0, 0.0) and exponent < 0
    if exponent != most or low > high or only_zero:
        return
    bases = [(0.0 if low == 0 else low, low_end), (-0.0 if high == 0 else high, 1)]
    if low < 0 < high:
        bases += [(0.0, 0), (-0.0, 0)]
    yield from ((base, (exponent, 1)) for base in bases)


def _power_directions(arguments: Arguments) -> Sequence[int]:
    base, (exponent, most) = arguments
    grown = 1 if exponent >= 0 else -1
    if exponent != most:
        return 0, 0
    if not _is_whole(exponent) or base[0] >= 0:
        return grown, 0
    if _is_odd(exponent):
        return grown if exponent > 0 or base[1] <= 0 else 0, 0
    return grown * sign(base), 0


def _power_defined(arguments: Arguments) -> bool:
    base, (exponent, _) = arguments
    if _is_whole(exponent):
        return exponent >= 0 or not _is_odd(exponent) or _one_sign(base)
    return base[0] >= -ROUNDING


def _power_convexity(arguments: Arguments) -> Convexity:
    """Return the curvature of a power with a fixed exponent, given the sign of its base."""
    (low, high), (exponent, most) = arguments
    if exponent != most:
        return "either"
    if exponent > 0 and exponent % 2 == 0:
        return "convex"
    if low >= -ROUNDING:
        return "concave" if 0 < exponent < 1 else "convex"
    if high <= 0 and _is_whole(exponent):
        return "concave" if exponent % 2 else "convex"
    return "either"


# other functions


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else INFINITY


def _log(x: float) -> float:
    return math.log(x) if x > 0 else (-INFINITY if x == 0 else math.nan)


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


def _kl_extremes(arguments: Arguments) -> Iterable[Point]:
    """Return corners and a point with p = q, if any: KL decreases towards p = q, where it is 0."""
    yield from _corner_extremes(arguments)
    low, high = max(low for low, _ in arguments), min(high for _, high in arguments)
    if low <= high:
        yield (((low + high) / 2, 0),) * 2


SUM = Function("sum", None, "affine", "sum of its arguments", _sum)
PRODUCT = Function(
    "product",
    2,
    "either",
    "product of two arguments",
    # 0 * infinity = 0: an infinite end only means that there is no bound
    lambda x, y: x * y if x and y else 0.0,
    _corner_extremes,
    lambda args: (sign(args[1]), sign(args[0])),
)
QUOTIENT = Function(
    "quotient",
    2,
    "either",
    "first argument divided by the second",
    _quotient,
    _quotient_extremes,
    _quotient_directions,
    everywhere=lambda args: _one_sign(args[1]),
)
POWER = Function(
    "power",
    2,
    "either",
    "first argument to the power of a number, also written x ** 2",
    _power,
    _power_extremes,
    _power_directions,
    everywhere=_power_defined,
    bends=_power_convexity,
)
_on_positive = partial(Function, domain=POSITIVE)
_MAGNITUDE = (_magnitude_extremes, _magnitude_directions)
_ROWS = (
    Function("abs", 1, "convex", "absolute value", abs, *_MAGNITUDE),
    Function("max", None, "convex", "largest of its arguments", lambda *x: max(x)),
    Function("min", None, "concave", "smallest of its arguments", lambda *x: min(x)),
    _on_positive(
        "sqrt", 1, "concave", "square root", lambda x: math.sqrt(x) if x >= 0 else math.nan
    ),
    _on_positive("log", 1, "concave", "natural logarithm", _log),
    Function("exp", 1, "convex", "exponential", _exp),
    POWER,
    Function(
        "kl",
        2,
        "convex",
        "Kullback-Leibler divergence of two shares, the true first",
        kl,
        _kl_extremes,
        lambda _: (0, 0),
        (0.0, 1.0),
    ),
    _on_positive(
        "geo_mean",
        2,
        "concave",
        "geometric mean",
        lambda x, y: math.sqrt(x * y) if x >= 0 and y >= 0 else math.nan,
    ),
    _on_positive("harmonic_mean", 2, "concave", "harmonic mean", _harmonic_mean),
    Function("rms", None, "convex", "root mean square", _rms, *_MAGNITUDE),
)
FUNCTIONS = {row.name: row for row in _ROWS}
"""The functions that rules call by name."""
OPERATIONS = FUNCTIONS | {row.name: row for row in (SUM, PRODUCT, QUOTIENT)}
"""All functions that an expression applies, with the operators of arithmetic."""
