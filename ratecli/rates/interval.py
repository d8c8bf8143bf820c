"""Interval arithmetic that is defined for all inputs.

Each end of a result is the value of the operation at one point of its arguments, whose coordinates
are ends of the arguments or a fixed value between them, such as 0 for a square. An operation only
lists these few candidate points. Both the ends and their derivatives in the ends of the arguments
(`rates.enclosure`) follow from them.

A result contains every value that the operation has where it is defined: the logarithm of [-1, 2]
is at most log 2. If the operation has no finite value at all, or if an argument is NaN, the result
is the real line. Nothing is raised and nothing is rounded outwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Interval = tuple[float, float]
INFINITY = math.inf
REAL_LINE: Interval = (-INFINITY, INFINITY)
ROUNDING = 1e-9
SLOPE_MARGIN = 1e-6
"""Slopes that are unbounded at an end of a domain are evaluated at this distance from it."""


class ArgumentPoint(NamedTuple):
    """A point in argument space: each coordinate is a lower (-1) or upper (1) end or fixed (0)."""

    at: tuple[float, ...]
    ends: tuple[int, ...]


class Endpoint(NamedTuple):
    """An end of a result and the point where it is attained; None if there is no such point."""

    value: float
    point: ArgumentPoint | None = None


UNKNOWN_ENDS = Endpoint(-INFINITY), Endpoint(INFINITY)

ArgumentPoints = Iterable[ArgumentPoint]
ExtremePointsRule = Callable[[Sequence[Interval]], ArgumentPoints]
DirectionsRule = Callable[[Sequence[Interval]], Sequence[int]]


# points


def increasing_extremes(arguments: Sequence[Interval]) -> ArgumentPoints:
    """Return all lower and all upper ends, for an operation that increases in every argument."""
    size = len(arguments)
    yield ArgumentPoint(tuple(low for low, _ in arguments), (-1,) * size)
    yield ArgumentPoint(tuple(high for _, high in arguments), (1,) * size)


def corner_extremes(arguments: Sequence[Interval]) -> ArgumentPoints:
    """Return all corners, for an operation that is monotone in each argument separately."""
    choices = (((low, -1), (high, 1)) for low, high in arguments)
    yield from (_point(*corner) for corner in itertools.product(*choices))


def even_extremes(arguments: Sequence[Interval]) -> ArgumentPoints:
    """For a function of one argument that increases away from its minimum at 0, such as abs."""
    ((low, high),) = arguments
    yield from corner_extremes(arguments)
    if low < 0 < high:
        yield ArgumentPoint((0.0,), (0,))


def magnitude_extremes(arguments: Sequence[Interval]) -> ArgumentPoints:
    """For an operation that increases in each |x|: the points nearest to and farthest from 0."""
    yield _point(*map(_nearest, arguments))
    yield _point(*((high, 1) if high >= -low else (low, -1) for low, high in arguments))


def _nearest(argument: Interval) -> tuple[float, int]:
    low, high = argument
    return (0.0, 0) if low < 0 < high else (low, -1) if low >= 0 else (high, 1)


def _point(*coordinates: tuple[float, int]) -> ArgumentPoint:
    return ArgumentPoint(tuple(x for x, _ in coordinates), tuple(end for _, end in coordinates))


# directions


def increasing_directions(arguments: Sequence[Interval]) -> Sequence[int]:
    return (1,) * len(arguments)


def sign_directions(arguments: Sequence[Interval]) -> Sequence[int]:
    """For an operation that increases in |x| for each argument x."""
    return tuple(map(sign, arguments))


def unknown_directions(arguments: Sequence[Interval]) -> Sequence[int]:
    return (0,) * len(arguments)


def sign(argument: Interval) -> int:
    """Return 1 if an interval has no negative number, -1 if it has no positive number, else 0."""
    return 1 if argument[0] >= 0 else -1 if argument[1] <= 0 else 0


def _identity(*point: float) -> Sequence[float]:
    return point


def clip_between(low: float, high: float) -> Callable[..., Sequence[float]]:
    """Return a function that clips all coordinates of a point to [low, high]."""
    return lambda *point: tuple(min(max(x, low), high) for x in point)


@dataclass(frozen=True)
class Operation:
    """An operation on numbers. Called with intervals, it returns the interval of its values.

    Attributes
    ----------
    value
        Value at numbers within `domain`; NaN where it is undefined.
    slopes
        Partial derivatives, a subgradient at a kink; finite at the points that `near` returns.
    points
        Candidate points over given intervals: the operation attains its minimum and maximum at two
        of them. Empty if nothing is known.
    directions
        For each argument whether the operation increases (1) or decreases (-1) in it while all
        arguments stay within given intervals; 0 if neither is certain.
    domain
        Allowed range of every argument.
    near
        Map a point of the domain to the nearest point at which all slopes are finite.
    everywhere
        Whether the operation is defined for all numbers of given intervals. If None, it is defined
        exactly on `domain`.
    """

    value: Callable[..., float]
    slopes: Callable[..., Sequence[float]]
    points: ExtremePointsRule = increasing_extremes
    directions: DirectionsRule = increasing_directions
    domain: Interval = REAL_LINE
    near: Callable[..., Sequence[float]] = _identity
    everywhere: Callable[[Sequence[Interval]], bool] | None = None

    def __call__(self, *arguments: Interval) -> Interval:
        low, high = self.ends(arguments)
        return low.value, high.value

    def defined(self, arguments: Sequence[Interval]) -> bool:
        """Whether the (possibly infinite) value is defined on whole intervals, up to rounding."""
        if self.everywhere:
            return self.everywhere(arguments)
        least, most = self.domain
        return all(least - ROUNDING <= low and high <= most + ROUNDING for low, high in arguments)

    def certain(self, arguments: Sequence[Interval]) -> tuple[Endpoint, Endpoint]:
        """Return `ends`, or unknown ends if the operation is undefined somewhere inside."""
        return self.ends(arguments) if self.defined(arguments) else UNKNOWN_ENDS

    def ends(self, arguments: Sequence[Interval]) -> tuple[Endpoint, Endpoint]:
        """Return the lower and upper end over intervals, ignoring points outside the domain."""
        for low, high in arguments:
            if math.isnan(low) or math.isnan(high):
                return UNKNOWN_ENDS
        if self.domain != REAL_LINE:
            least, most = self.domain
            arguments = [(max(low, least), min(high, most)) for low, high in arguments]
            if any(low > high for low, high in arguments):
                return UNKNOWN_ENDS
        points = list(self.points(arguments))
        values = [self.value(*point.at) for point in points]
        if not values or any(map(math.isnan, values)):
            return UNKNOWN_ENDS
        low, high = min(values), max(values)
        if low == INFINITY or high == -INFINITY:
            return UNKNOWN_ENDS
        found = list(map(Endpoint, values, points))
        return self._end(low, -1, found, arguments), self._end(high, 1, found, arguments)

    def _end(
        self, value: float, side: int, found: Sequence[Endpoint], arguments: Sequence[Interval]
    ) -> Endpoint:
        """Among equal values, prefer the point that follows the operation's directions."""
        equal = [end for end in found if end.value == value]
        if len(equal) == 1:
            return equal[0]
        directions = self.directions(arguments)

        def leaning(end: Endpoint) -> int:
            ends = end.point.ends if end.point else ()
            return side * sum(d * other for d, other in zip(directions, ends, strict=True))

        return max(equal, key=leaning)


# arithmetic


def _sum(*values: float) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large, or infinities of both signs
        return sum(values)


def _quotient_value(x: float, y: float) -> float:
    """Return x / y; the sign of a zero denominator tells from which side 0 is approached."""
    return x / y if y else math.copysign(INFINITY, x) * math.copysign(1.0, y)


def _quotient_extremes(arguments: Sequence[Interval]) -> ArgumentPoints:
    """Return the corners where the quotient is defined.

    Return nothing for a denominator of 0, or one that changes sign under a nonzero numerator.
    """
    top, (low, high) = arguments
    if low < 0 < high and top != (0.0, 0.0):
        return
    sides = (0.0 if low == 0 else low, -1), (-0.0 if high == 0 else high, 1)
    for (x, end), (y, other) in itertools.product(((top[0], -1), (top[1], 1)), sides):
        undefined = (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y))
        if not undefined and (low, high) != (0.0, 0.0):
            yield ArgumentPoint((x, y), (end, other))


def _quotient_directions(arguments: Sequence[Interval]) -> Sequence[int]:
    top, bottom = arguments
    return (sign(bottom), -sign(top)) if sign(bottom) else (0, 0)


def _one_sign(bottom: Interval) -> bool:
    """Whether a denominator cannot approach 0 from below, so that 0 counts as +0."""
    return not bottom[0] < 0 <= bottom[1]


def negate(argument: Interval) -> Interval:
    return -argument[1], -argument[0]


def subtract(left: Interval, right: Interval) -> Interval:
    return add(left, negate(right))


add = Operation(_sum, lambda *values: (1.0,) * len(values))
multiply = Operation(
    # 0 * infinity = 0: an infinite end only means that there is no bound
    lambda x, y: x * y if x and y else 0.0,
    lambda x, y: (y, x),
    corner_extremes,
    lambda args: (sign(args[1]), sign(args[0])),
)
square = Operation(lambda x: x * x, lambda x: (2 * x,), even_extremes, sign_directions)
divide = Operation(
    _quotient_value,
    lambda x, y: (1 / y, -(x / y) / y),
    _quotient_extremes,
    _quotient_directions,
    everywhere=lambda args: _one_sign(args[1]),
)


# powers


def is_whole(exponent: float) -> bool:
    return exponent % 1 == 0


def _is_odd(exponent: float) -> bool:
    return exponent % 2 == 1


def power_value(x: float, exponent: float) -> float:
    """NaN for a root of a negative number, 1 for 0 ** 0, infinite for a negative power of 0."""
    if x == 0 and exponent < 0:
        return math.copysign(INFINITY, x) if _is_odd(exponent) else INFINITY
    try:
        return math.pow(x, exponent)
    except OverflowError:
        return -INFINITY if x < 0 and _is_odd(exponent) else INFINITY
    except ValueError:
        return math.nan


def _nearest_power_point(x: float, exponent: float) -> tuple[float, float]:
    """Return the nearest point at which a power has finite slopes."""
    steep = SLOPE_MARGIN if exponent < 0 else SLOPE_MARGIN**2 if exponent < 1 else 0.0
    return (math.copysign(steep, x) if abs(x) < steep else x), exponent


def _power_extremes(arguments: Sequence[Interval]) -> ArgumentPoints:
    """Return the ends of the base and 0, approached from both sides, if it is inside."""
    (low, high), (exponent, most) = arguments
    low_end = -1
    if not is_whole(exponent) and low < 0:  # only defined for bases of at least 0
        low, low_end = 0.0, 0
    only_zero = (low, high) == (0.0, 0.0) and exponent < 0
    if exponent != most or low > high or only_zero:
        return
    ends = [(0.0 if low == 0 else low, low_end), (-0.0 if high == 0 else high, 1)]
    if low < 0 < high:
        ends += [(0.0, 0), (-0.0, 0)]
    yield from (ArgumentPoint((x, exponent), (end, 1)) for x, end in ends)


def _power_directions(arguments: Sequence[Interval]) -> Sequence[int]:
    base, (exponent, most) = arguments
    grown = 1 if exponent >= 0 else -1
    if exponent != most:
        return 0, 0
    if not is_whole(exponent) or base[0] >= 0:
        return grown, 0
    if _is_odd(exponent):
        return grown if exponent > 0 or base[1] <= 0 else 0, 0
    return grown * sign(base), 0


def _power_defined(arguments: Sequence[Interval]) -> bool:
    base, (exponent, _) = arguments
    if is_whole(exponent):
        return exponent >= 0 or not _is_odd(exponent) or _one_sign(base)
    return base[0] >= -ROUNDING


power = Operation(
    power_value,
    lambda x, exponent: (exponent * power_value(x, exponent - 1), 0.0),
    _power_extremes,
    _power_directions,
    near=_nearest_power_point,
    everywhere=_power_defined,
)


# functions


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else INFINITY


def _max_slopes(*values: float) -> Sequence[float]:
    first = values.index(max(values))
    return [float(i == first) for i in range(len(values))]


POSITIVE: Interval = (0.0, INFINITY)
absolute = Operation(abs, lambda x: (float((x > 0) - (x < 0)),), even_extremes, sign_directions)
maximum = Operation(lambda *values: max(values), _max_slopes)
minimum = Operation(
    lambda *values: min(values), lambda *values: _max_slopes(*(-value for value in values))
)
sqrt = Operation(
    lambda x: math.sqrt(x) if x >= 0 else math.nan,
    lambda x: (0.5 / math.sqrt(x),),
    domain=POSITIVE,
    near=clip_between(SLOPE_MARGIN**2, INFINITY),
)
log = Operation(
    lambda x: math.log(x) if x > 0 else (-INFINITY if x == 0 else math.nan),
    lambda x: (1 / x,),
    domain=POSITIVE,
    near=clip_between(SLOPE_MARGIN, INFINITY),
)
exp = Operation(_exp, lambda x: (_exp(x),))
