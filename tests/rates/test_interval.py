"""Interval arithmetic against vectors, and against plain arithmetic on what is in the intervals."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ratecli.rates import interval as iv
from ratecli.rates.functions import FUNCTIONS, kl
from ratecli.rates.interval import INFINITY, REAL_LINE, Interval, Operation

OPERATIONS = {
    "add": iv.add, "sub": iv.subtract, "mul": iv.multiply, "div": iv.divide, "pow": iv.power,
    "abs": iv.absolute, "min": iv.minimum, "max": iv.maximum, "exp": iv.exp, "log": iv.log,
}  # fmt: skip
VECTORS = json.loads((Path(__file__).parent / "interval_vectors.json").read_text())["cases"]


def pair(ends: list[float | str]) -> Interval:
    low, high = map(float, ends)
    return low, high


@pytest.mark.parametrize("case", VECTORS, ids=lambda c: f"{c['op']} {c['args']}")
def test_vectors(case) -> None:
    assert OPERATIONS[case["op"]](*map(pair, case["args"])) == pair(case["expect"])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (iv.add((0, INFINITY), (-INFINITY, 1)), REAL_LINE),
        (iv.add((0, INFINITY), (1, 2), (1, 1)), (2, INFINITY)),
        (iv.add((INFINITY, INFINITY), (-INFINITY, 1)), REAL_LINE),
        (iv.add(), (0, 0)),
        (iv.add((0, 1e308), (1e308, 1e308)), (1e308, INFINITY)),
        (iv.add((1e308, 1e308), (1e308, 1e308)), REAL_LINE),
        (iv.log((0, 0)), REAL_LINE),
        (iv.exp((800, 900)), REAL_LINE),
        (iv.subtract((0, INFINITY), (0, INFINITY)), REAL_LINE),
        (iv.divide((0, 0), (-1, 1)), (0, 0)),
        (iv.divide((0, 0), (0, 0)), REAL_LINE),
        (iv.divide((0, 0), (0, 4)), (0, 0)),
        (iv.divide((-1, 0), (0, 4)), (-INFINITY, 0)),
        (iv.divide((1, INFINITY), (1, INFINITY)), (0, INFINITY)),
        (iv.divide((1, 2), (0, INFINITY)), (0, INFINITY)),
        (iv.square((-3, 2)), (0, 9)),
        (iv.square((-INFINITY, -2)), (4, INFINITY)),
        (iv.power((-2, 0), (-1, -1)), (-INFINITY, -0.5)),
        (iv.power((0, 2), (-1, -1)), (0.5, INFINITY)),
        (iv.power((-1, 2), (-1, -1)), REAL_LINE),
        (iv.power((-1, 2), (-2, -2)), (0.25, INFINITY)),
        (iv.power((0, 0), (-2, -2)), REAL_LINE),
        (iv.power((0, 0), (-0.5, -0.5)), REAL_LINE),
        (iv.power((-4, -1), (0.5, 0.5)), REAL_LINE),
        (iv.power((-4, 4), (0.5, 0.5)), (0, 2)),
        (iv.power((-2, 3), (0, 0)), (1, 1)),
        (iv.power((-2, 3), (1, 2)), REAL_LINE),
        (iv.power((0, 10), (400, 400)), (0, INFINITY)),
        (iv.power((-10, 10), (301, 309)), REAL_LINE),
        (iv.power((-10, 10), (309, 309)), REAL_LINE),
        (iv.power((-INFINITY, 2), (3, 3)), (-INFINITY, 8)),
        (iv.power((-INFINITY, 2), (2, 2)), (0, INFINITY)),
        (iv.sqrt((-1, 4)), (0, 2)),
        (iv.sqrt((-4, -1)), REAL_LINE),
        (iv.maximum((1, 2), (0, 5), (3, 3)), (3, 5)),
        (iv.minimum((1, 2), (0, 5), (3, 3)), (0, 2)),
        (iv.minimum((1, 2)), (1, 2)),
        (iv.absolute((-INFINITY, 1)), (0, INFINITY)),
        (iv.exp((-INFINITY, INFINITY)), (0, INFINITY)),
        (FUNCTIONS["kl"].operation((0.2, 0.4), (0.3, 0.5)), (0, kl(0.2, 0.5))),
        (FUNCTIONS["rms"].operation((-3, 1), (-1, 4)), (0, math.sqrt(12.5))),
        (FUNCTIONS["harmonic_mean"].operation((0, INFINITY), (1, INFINITY)), (0, INFINITY)),
    ],
)
def test_cases_at_the_edge(found: Interval, expected: Interval) -> None:
    assert found == expected


# every operation, against plain arithmetic


def _plain_power(x: float, exponent: float) -> float:
    if (x < 0 and not exponent.is_integer()) or (x == 0 and exponent < 0):
        return math.nan
    with np.errstate(all="ignore"):
        return float(np.power(x, exponent))


def _plain_quotient(x: float, y: float) -> float:
    return x / y if y else math.nan


def _plain_harmonic_mean(x: float, y: float) -> float:
    if min(x, y) < 0:
        return math.nan
    return 1 / (0.5 / x + 0.5 / y) if min(x, y) > 0 else 0.0


PLAIN = {
    "add": (iv.add, lambda x, y, z: x + y + z, 3),
    "sub": (iv.subtract, lambda x, y: x - y, 2),
    "mul": (iv.multiply, lambda x, y: x * y, 2),
    "square": (iv.square, lambda x: x * x, 1),
    "div": (iv.divide, _plain_quotient, 2),
    "pow": (iv.power, _plain_power, 2),
    "abs": (iv.absolute, abs, 1),
    "min": (iv.minimum, min, 3),
    "max": (iv.maximum, max, 3),
    "exp": (iv.exp, lambda x: math.exp(min(x, 709)), 1),
    "log": (iv.log, lambda x: math.log(x) if x > 0 else math.nan, 1),
    "sqrt": (iv.sqrt, lambda x: math.sqrt(x) if x >= 0 else math.nan, 1),
    "rms": (FUNCTIONS["rms"].operation, lambda x, y: math.hypot(x, y) / math.sqrt(2), 2),
    "kl": (FUNCTIONS["kl"].operation, lambda x, y: kl(x, y) if 0 <= y <= 1 else math.nan, 2),
    "geo_mean": (
        FUNCTIONS["geo_mean"].operation,
        lambda x, y: math.sqrt(x) * math.sqrt(y) if min(x, y) >= 0 else math.nan,
        2,
    ),
    "harmonic_mean": (
        FUNCTIONS["harmonic_mean"].operation,
        _plain_harmonic_mean,
        2,
    ),
}
EXPONENTS = [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
TINY, HUGE = 1e-300, 1e300
ENDS = st.sampled_from([-3.0, -1.0, -0.25, 0.0, 0.25, 0.5, 1.0, 3.0]) | st.integers(
    -3000, 3000
).map(lambda n: n / 1000)


@st.composite
def intervals(draw: st.DrawFn, *, infinite: bool = True) -> Interval:
    low, high = sorted((draw(ENDS), draw(ENDS)))
    side = draw(st.integers(0, 7)) if infinite else 7
    return (-INFINITY if side in {0, 2} else low), (INFINITY if side in {1, 2} else high)


def sampled(arguments: list[Interval]) -> list[list[float]]:
    """Numbers of each interval: ends, what stands for infinite ones, 0 and beside it, ends of others."""
    pool = {end for argument in arguments for end in argument if math.isfinite(end)}
    pool |= {0.0, TINY, -TINY, HUGE, -HUGE, *np.linspace(-3, 3, 7)}
    return [[x for x in pool if low <= x <= high] for low, high in arguments]


@pytest.mark.parametrize("name", PLAIN)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_an_interval_holds_every_value_and_no_more(name: str, data: st.DataObject) -> None:
    operation, plain, arity = PLAIN[name]
    arguments = [
        data.draw(intervals(infinite=name not in {"geo_mean", "kl"})) for _ in range(arity)
    ]
    if name == "pow":
        arguments[1] = (data.draw(st.sampled_from(EXPONENTS)),) * 2
    found = [plain(*point) for point in itertools.product(*sampled(arguments))]
    values = [value for value in found if not math.isnan(value)]
    low, high = operation(*arguments)
    assert all(low - _room(low) <= value <= high + _room(high) for value in values)
    if not values:
        assert (low, high) == REAL_LINE
    else:
        _reached(low, min(values))
        _reached(-high, -max(values))


def _room(end: float) -> float:
    return 1e-9 * (1 + abs(end)) if math.isfinite(end) else 0.0


def _reached(low: float, least: float) -> None:
    """An infinite end stands for values beyond all bounds."""
    assert least < -600 if low == -INFINITY else least <= low + _room(low)


ANY = st.tuples(st.floats(), st.floats())


@pytest.mark.parametrize("name", PLAIN)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_there_is_an_answer_for_everything(name: str, data: st.DataObject) -> None:
    operation, _, arity = PLAIN[name]
    arguments = [data.draw(ANY) for _ in range(arity)]
    low, high = operation(*arguments)
    assert low <= high
    if any(math.isnan(end) for argument in arguments for end in argument):
        assert (low, high) == REAL_LINE


SLOPED = {name: row for name, row in PLAIN.items() if isinstance(row[0], Operation)}


@pytest.mark.parametrize("name", SLOPED)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_directions_and_slopes_are_those_of_values(name: str, data: st.DataObject) -> None:
    operation, plain, arity = SLOPED[name]
    drawn = [data.draw(intervals(infinite=False)) for _ in range(arity)]
    low, high = operation.domain
    inside = [iv.absolute(argument) if low == 0 else argument for argument in drawn]
    arguments = [(x / 3, y / 3) if high == 1 else (x, y) for x, y in inside]
    if name == "pow":
        arguments[1] = (data.draw(st.sampled_from(EXPONENTS)),) * 2
    shares = [data.draw(st.floats(0, 1)) for _ in range(arity)]
    point = [low + s * (high - low) for s, (low, high) in zip(shares, arguments, strict=True)]
    here = plain(*point)
    assume(math.isfinite(here))
    directions = operation.directions(arguments)
    slopes = operation.slopes(*operation.near(*point))
    for k, (low, high) in enumerate(arguments):
        other = data.draw(st.floats(point[k], high)) if high > point[k] else point[k]
        there = plain(*point[:k], other, *point[k + 1 :])
        if directions[k] and math.isfinite(there):
            assert directions[k] * (there - here) >= -_room(here)
        assert directions[k] * slopes[k] >= 0 or not directions[k]
        if name in {"kl", "max", "min", "abs"} or not low < high:
            continue  # kinks are another test's
        step = 1e-7
        up, down = (plain(*point[:k], point[k] + d, *point[k + 1 :]) for d in (step, -step))
        if max(abs(up), abs(down), abs(slopes[k])) < 1e3 and min(map(abs, point)) > 0.05:
            assert (up - down) / (2 * step) == pytest.approx(slopes[k], rel=1e-3, abs=1e-3)
