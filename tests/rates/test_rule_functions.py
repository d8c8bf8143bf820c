from __future__ import annotations

import math

import numpy as np
import pytest
from rule_strategies import expression, value

from ratecli.rates import expression as ex
from ratecli.rates.analysis import interval
from ratecli.rates.functions import FUNCTIONS, POWER, kl


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_range_of_a_function_of_rates_is_reached(name: str) -> None:
    arity = FUNCTIONS[name].arity or 2
    arguments = ["tpr", "3"] if name == POWER else ["tpr", "fpr"]
    node = expression(f"{name}({', '.join(arguments[:arity])})")
    grid = np.linspace(0, 1, 11)
    found = [
        value(node, dict(zip(ex.leaves(node), (float(x), float(y)), strict=False)))
        for x in grid
        for y in grid
    ]
    assert interval(node) == pytest.approx((min(found), max(found)))


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
def test_divergence(p: float, q: float, expected: float) -> None:
    """Vector 9.7."""
    assert kl(p, q) == pytest.approx(expected, abs=1e-5)


def test_functions_are_not_a_number_outside_their_domain() -> None:
    for name in ("sqrt", "log"):
        assert math.isnan(FUNCTIONS[name].value(-0.1))
    for name in ("kl", "geo_mean", "harmonic_mean"):
        assert math.isnan(FUNCTIONS[name].value(-0.1, 0.5))
    assert math.isnan(kl(1.1, 0.5))
    assert FUNCTIONS["harmonic_mean"].value(0.0, 0.0) == 0
    assert FUNCTIONS["log"].value(0.0) == -math.inf
    assert FUNCTIONS["exp"].value(800.0) == math.inf
    power = FUNCTIONS["power"].value
    assert math.isnan(power(-2.0, 0.5))
    assert (power(0.0, 0.0), power(0.0, 0.5), power(-2.0, 3.0)) == (1, 0, -8)
    assert (power(0.0, -2.0), power(1e200, 2.0), power(-1e200, 3.0)) == (
        math.inf,
        math.inf,
        -math.inf,
    )
