"""Goals as functions of many rates at once, and lines that touch them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.sample import Floats


@dataclass(frozen=True)
class Tangent:
    """A value and (K,) slopes in the rates."""

    value: float
    slopes: Floats

    def __add__(self, other: Tangent) -> Tangent:
        return Tangent(self.value + other.value, self.slopes + other.slopes)

    def __mul__(self, factor: float) -> Tangent:
        return Tangent(factor * self.value, factor * self.slopes)


def values(node: Expression, rates: Floats, index: Mapping[Leaf, int]) -> Floats:
    """(T,) the numbers of an expression at rates (K, T), NaN where it is undefined."""
    match node:
        case ex.Constant(value=value):
            return np.full(rates.shape[1], value)
        case Leaf():
            return np.asarray(rates[index[node]])
        case ex.Ranking() | ex.Of():
            raise ValueError(f"{ex.text(node)} is no function of the rates")
    parts = [values(child, rates, index) for child in ex.children(node)]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        match node:
            case ex.Sum():
                return np.asarray(np.sum(parts, axis=0))
            case ex.Product():
                return parts[0] * parts[1]
            case ex.Quotient():
                return parts[0] / parts[1]
            case ex.Apply():
                each = np.frompyfunc(FUNCTIONS[node.function].value, len(parts), 1)(*parts)
                return np.asarray(each, dtype=float)


def tangent(node: Expression, rates: Floats, index: Mapping[Leaf, int]) -> Tangent:
    """The expansion of an expression at rates (K,).

    Where the expression is convex by the rules of `analysis.curvature`, the line lies below it
    everywhere. It touches it too, but where a function has no finite slope (a rate of 0 in `kl`): the
    slope is then that of a point near by, and the line is a little lower.
    """
    match node:
        case ex.Constant(value=value):
            return Tangent(value, np.zeros(len(index)))
        case Leaf():
            return Tangent(float(rates[index[node]]), np.eye(len(index))[index[node]])
        case ex.Ranking() | ex.Of():
            raise ValueError(f"{ex.text(node)} is no function of the rates")
    parts = [tangent(child, rates, index) for child in ex.children(node)]
    match node:
        case ex.Sum():
            return Tangent(sum(p.value for p in parts), np.sum([p.slopes for p in parts], axis=0))
        case ex.Product():
            left, right = parts
            line = left * right.value + right * left.value
            return Tangent(left.value * right.value, line.slopes)
        case ex.Quotient():
            return _quotient(*parts)
        case ex.Apply():
            return _applied(node.function, parts)


def _quotient(top: Tangent, bottom: Tangent) -> Tangent:
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.float64(top.value) / bottom.value
        return Tangent(float(value), (top.slopes - value * bottom.slopes) / bottom.value)


def _applied(name: str, parts: list[Tangent]) -> Tangent:
    function = FUNCTIONS[name]
    low, high = function.smooth
    at = [min(max(part.value, low), high) for part in parts]
    value, total = function.value(*at), np.zeros_like(parts[0].slopes)
    for slope, part, point in zip(function.slopes(*at), parts, at, strict=True):
        value += slope * (part.value - point)
        total = total + slope * part.slopes
    return Tangent(value, total)
