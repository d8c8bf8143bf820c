"""Values of expressions as functions of the rates, and their tangents, vectorized over points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.sample import Floats, Mask


@dataclass(frozen=True)
class Tangent:
    """A value and its (K,) slopes in the rates."""

    value: float
    slopes: Floats


@dataclass(frozen=True)
class Tangents:
    """Values (T,) and slopes (K, T) at T points."""

    value: Floats
    slopes: Floats

    def __add__(self, other: Tangents) -> Tangents:
        return Tangents(self.value + other.value, self.slopes + other.slopes)

    def __mul__(self, factor: Floats) -> Tangents:
        return Tangents(factor * self.value, factor * self.slopes)


def values(node: Expression, rates: Floats, index: Mapping[Leaf, int]) -> Floats:
    """Return (T,) values of an expression at rates (K, T), NaN where it is undefined."""
    match node:
        case ex.Constant(value=value):
            return np.full(rates.shape[1], value)
        case Leaf():
            return np.asarray(rates[index[node]])
        case ex.RankingMeasure() | ex.Disclosure() | ex.AlgorithmMetric():
            raise ValueError(f"{ex.to_text(node)} is no function of the rates")
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
                unknown = np.isnan(parts).any(axis=0)
                return np.where(unknown, np.nan, np.asarray(each, dtype=float))


def any_undefined(ratios: Iterable[Expression], rates: Floats, index: Mapping[Leaf, int]) -> Mask:
    """Return (T,) whether any of the ratios is undefined at rates (K, T)."""
    found = np.zeros(rates.shape[1], dtype=bool)
    for ratio in ratios:
        found |= np.isnan(values(ratio, rates, index))
    return found


def tangent(node: Expression, rates: Floats, index: Mapping[Leaf, int]) -> Tangent:
    """Return the tangent of an expression at rates (K,); see `tangents`."""
    found = tangents(node, rates[:, None], index)
    return Tangent(float(found.value[0]), found.slopes[:, 0])


def tangents(node: Expression, rates: Floats, index: Mapping[Leaf, int]) -> Tangents:
    """Return the tangents of an expression at T points, given as rates (K, T).

    If the expression is convex by the rules of `analysis.curvature`, each tangent is a lower bound
    everywhere. It touches the expression at its point unless a function has no finite slope there
    (a rate of 0 in `kl`): then the slope at a nearby point is used, and the tangent is slightly
    lower.
    """
    match node:
        case ex.Constant(value=value):
            return Tangents(np.full(rates.shape[1], value), np.zeros(rates.shape))
        case Leaf():
            own = np.zeros(rates.shape)
            own[index[node]] = 1.0
            return Tangents(np.asarray(rates[index[node]], dtype=float), own)
        case ex.RankingMeasure() | ex.Disclosure() | ex.AlgorithmMetric():
            raise ValueError(f"{ex.to_text(node)} is no function of the rates")
    parts = [tangents(child, rates, index) for child in ex.children(node)]
    match node:
        case ex.Sum():
            return sum(parts[1:], parts[0])
        case ex.Product():
            left, right = parts
            line = left * right.value + right * left.value
            return Tangents(left.value * right.value, line.slopes)
        case ex.Quotient():
            return _quotient(*parts)
        case ex.Apply():
            return _applied(node.function, parts)


def _quotient(top: Tangents, bottom: Tangents) -> Tangents:
    with np.errstate(divide="ignore", invalid="ignore"):
        value = top.value / bottom.value
        return Tangents(value, (top.slopes - value * bottom.slopes) / bottom.value)


def _applied(name: str, parts: list[Tangents]) -> Tangents:
    operation = FUNCTIONS[name].operation
    points = [
        operation.near(*point) for point in np.stack([p.value for p in parts], axis=1).tolist()
    ]
    value = np.array([operation.value(*point) for point in points])
    own = np.array([operation.slopes(*point) for point in points])
    total = np.zeros_like(parts[0].slopes)
    for slope, part, point in zip(own.T, parts, np.transpose(points), strict=True):
        value += slope * (part.value - point)
        total = total + slope * part.slopes
    return Tangents(value, total)
