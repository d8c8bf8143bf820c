"""Functions of rules: values, and interval arithmetic against vectors and plain arithmetic."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ratecli.rates.functions import (
    FUNCTIONS,
    INFINITY,
    OPERATIONS,
    POWER,
    PRODUCT,
    QUOTIENT,
    REAL_LINE,
    SUM,
    Interval,
    kl,
)
from ratecli.rates.rate_function import ARRAY_FUNCTIONS

F = FUNCTIONS
VECTORS = json.loads((Path(__file__).parent / "interval_vectors.json").read_text())["cases"]
SYMBOLS = {"add": SUM, "sub": SUM, "mul": PRODUCT, "div": QUOTIENT, "pow": POWER}


@pytest.mark.parametrize("case", VECTORS, ids=lambda c: f"{c['op']} {c['args']}")
def test_interval_vectors(case):
    arguments = [tuple(map(float, ends)) for ends in case["args"]]
    if case["op"] == "sub":
        low, high = arguments[1]
        arguments[1] = -high, -low
    function = SYMBOLS.get(case["op"]) or FUNCTIONS[case["op"]]
    assert function(*arguments) == tuple(map(float, case["expect"]))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (SUM((0, INFINITY), (-INFINITY, 1)), REAL_LINE),
        (SUM((0, INFINITY), (1, 2), (1, 1)), (2, INFINITY)),
        (SUM((INFINITY, INFINITY), (-INFINITY, 1)), REAL_LINE),
        (SUM(), (0, 0)),
        (SUM((0, 1e308), (1e308, 1e308)), (1e308, INFINITY)),
        (SUM((1e308, 1e308), (1e308, 1e308)), REAL_LINE),
        (F["log"]((0, 0)), REAL_LINE),
        (F["exp"]((800, 900)), REAL_LINE),
        (QUOTIENT((0, 0), (-1, 1)), (0, 0)),
        (QUOTIENT((0, 0), (0, 0)), REAL_LINE),
        (QUOTIENT((1, INFINITY), (1, INFINITY)), (0, INFINITY)),
        (POWER((0, 0), (-2, -2)), REAL_LINE),
        (POWER((-2, 3), (1, 2)), REAL_LINE),
        (POWER((0, 10), (400, 400)), (0, INFINITY)),
        (POWER((-10, 10), (301, 309)), REAL_LINE),
        (POWER((-10, 10), (309, 309)), REAL_LINE),
        (F["min"]((1, 2)), (1, 2)),
        (F["kl"]((0.2, 0.4), (0.3, 0.5)), (0, kl(0.2, 0.5))),
        (F["harmonic_mean"]((0, INFINITY), (1, INFINITY)), (0, INFINITY)),
    ],
)
def test_intervals_of_infinite_undefined_and_touching_arguments(found, expected):
    assert found == expected


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        (0.3, 0.2, 0.028168),
        (0.3, 0.5, 0.082283),
        (0.1, 0.05, 0.020654),
        (0.5, 0.25, 0.143841),
        (0.3, 0.0, 6.29690),
        (0.3, 0.3, 0.0),
        (0.0, 0.0, 1e-10),
        (1.0, 1.0, 1e-10),
    ],
)
def test_kl_of_bernoulli_distributions(p, q, expected):
    """Vector 9.7."""
    assert kl(p, q) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("sqrt", (-0.1,), math.nan),
        ("log", (-0.1,), math.nan),
        ("kl", (-0.1, 0.5), math.nan),
        ("kl", (1.1, 0.5), math.nan),
        ("geo_mean", (-0.1, 0.5), math.nan),
        ("harmonic_mean", (-0.1, 0.5), math.nan),
        ("harmonic_mean", (0.0, 0.0), 0),
        ("log", (0.0,), -math.inf),
        ("exp", (800.0,), math.inf),
        ("power", (-2.0, 0.5), math.nan),
        ("power", (0.0, 0.0), 1),
        ("power", (0.0, 0.5), 0),
        ("power", (-2.0, 3.0), -8),
        ("power", (0.0, -2.0), math.inf),
        ("power", (1e200, 2.0), math.inf),
        ("power", (-1e200, 3.0), -math.inf),
    ],
)
def test_values_at_and_outside_the_ends_of_domains(name, arguments, expected):
    assert FUNCTIONS[name].value(*arguments) == pytest.approx(expected, nan_ok=True)
    with np.errstate(all="ignore"):
        found = ARRAY_FUNCTIONS[name].value(np.array(arguments))
    assert found == pytest.approx(expected, nan_ok=True)


def _plain_power(x: float, exponent: float) -> float:
    if (x < 0 and not exponent.is_integer()) or (x == 0 and exponent < 0):
        return math.nan
    with np.errstate(all="ignore"):
        return float(np.power(x, exponent))


def _plain_harmonic_mean(x: float, y: float) -> float:
    if min(x, y) < 0:
        return math.nan
    return 1 / (0.5 / x + 0.5 / y) if min(x, y) > 0 else 0.0


PLAIN = {
    "sum": lambda x, y, z: x + y + z,
    "product": lambda x, y: x * y,
    "quotient": lambda x, y: x / y if y else math.nan,
    "power": _plain_power,
    "abs": abs,
    "min": min,
    "max": max,
    "exp": lambda x: math.exp(min(x, 709)),
    "log": lambda x: math.log(x) if x > 0 else math.nan,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "rms": lambda x, y: math.hypot(x, y) / math.sqrt(2),
    "kl": lambda x, y: kl(x, y) if 0 <= y <= 1 else math.nan,
    "geo_mean": lambda x, y: math.sqrt(x) * math.sqrt(y) if min(x, y) >= 0 else math.nan,
    "harmonic_mean": _plain_harmonic_mean,
}
ARITY = {name: row.arity or (2 if name == "rms" else 3) for name, row in OPERATIONS.items()}
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
    """Numbers of each interval: its ends, huge and tiny numbers, 0, and ends of other intervals."""
    pool = {end for argument in arguments for end in argument if math.isfinite(end)}
    pool |= {0.0, TINY, -TINY, HUGE, -HUGE, *np.linspace(-3, 3, 7)}
    return [[x for x in pool if low <= x <= high] for low, high in arguments]


@pytest.mark.parametrize("name", PLAIN)
@given(data=st.data())
def test_an_interval_is_the_range_of_values(name, data):
    infinite = name not in {"geo_mean", "kl"}
    arguments = [data.draw(intervals(infinite=infinite)) for _ in range(ARITY[name])]
    if name == "power":
        arguments[1] = (data.draw(st.sampled_from(EXPONENTS)),) * 2
    found = [PLAIN[name](*point) for point in itertools.product(*sampled(arguments))]
    values = [value for value in found if not math.isnan(value)]
    low, high = OPERATIONS[name](*arguments)
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
def test_every_input_gives_an_interval(name, data):
    arguments = [data.draw(ANY) for _ in range(ARITY[name])]
    low, high = OPERATIONS[name](*arguments)
    assert low <= high
    if any(math.isnan(end) for argument in arguments for end in argument):
        assert (low, high) == REAL_LINE


@pytest.mark.parametrize("name", PLAIN)
@given(data=st.data())
def test_directions_and_slopes_agree_with_values(name, data):
    operation, plain, arity = OPERATIONS[name], PLAIN[name], ARITY[name]
    drawn = [data.draw(intervals(infinite=False)) for _ in range(arity)]
    low, high = operation.domain
    inside = [F["abs"](argument) if low == 0 else argument for argument in drawn]
    arguments = [(x / 3, y / 3) if high == 1 else (x, y) for x, y in inside]
    if name == "power":
        arguments[1] = (data.draw(st.sampled_from(EXPONENTS)),) * 2
    shares = [data.draw(st.floats(0, 1)) for _ in range(arity)]
    point = [low + s * (high - low) for s, (low, high) in zip(shares, arguments, strict=True)]
    here = plain(*point)
    assume(math.isfinite(here))
    directions = operation.directions(arguments)
    array = ARRAY_FUNCTIONS[name]
    assert array.value(np.array(point)) == pytest.approx(operation.value(*point))
    with np.errstate(over="ignore"):  # next to the pole of a quotient
        slopes = array.slopes(array.near(np.array(point)))
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
