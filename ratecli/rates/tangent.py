"""Values of expressions as functions of the rates, and their tangents, vectorized over points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.functions import OPERATIONS
from ratecli.rates.sample import Floats, Mask

VECTORIZED: Mapping[str, Callable[..., Floats]] = {
    "sum": lambda *terms: np.sum(terms, axis=0),
    "product": np.multiply,
    "quotient": np.divide,
    "max": lambda *arguments: np.max(arguments, axis=0),
    "min": lambda *arguments: np.min(arguments, axis=0),
}
"""Vectorized functions; `np.frompyfunc`, for all others, allows at most 64 arguments."""


@dataclass(frozen=True)
class Tangents:
    """Values (T,) and slopes (K, T) at T points; at a single point, () and (K,)."""

    value: Floats
    slopes: Floats


def values(node: Expression, rates: Floats, index: Mapping[Leaf, int]) -> Floats:
    """Return (T,) values of an expression at rates (K, T), NaN where it is undefined."""
    match node:
        case ex.Constant(value):
            return np.full(rates.shape[1], value)
        case Leaf():
            return np.asarray(rates[index[node]])
        case ex.Apply(name, arguments):
            parts = [values(part, rates, index) for part in arguments]
            function = VECTORIZED.get(name)
            if function is None:
                function = np.frompyfunc(OPERATIONS[name].value, len(parts), 1)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                found = function(*parts)
            return np.where(np.isnan(parts).any(axis=0), np.nan, np.asarray(found, np.float64))
        case _:
            raise ValueError(f"{ex.to_text(node)} is not a function of the rates")


def any_undefined(ratios: Iterable[Expression], rates: Floats, index: Mapping[Leaf, int]) -> Mask:
    """Return (T,) whether any of the ratios is undefined at rates (K, T)."""
    found = np.zeros(rates.shape[1], dtype=bool)
    for ratio in ratios:
        found |= np.isnan(values(ratio, rates, index))
    return found


def tangent(node: Expression, rates: Floats, index: Mapping[Leaf, int]) -> Tangents:
    """Return the tangent of an expression at rates (K,); see `tangents`."""
    found = tangents(node, rates[:, None], index)
    return Tangents(found.value[0], found.slopes[:, 0])


def tangents(node: Expression, rates: Floats, index: Mapping[Leaf, int]) -> Tangents:
    """Return the tangents of an expression at T points, given as rates (K, T).

    If the expression is convex by the rules of `analysis.curvature`, each tangent is a lower bound
    everywhere. It touches the expression at its point unless a function has no finite slope there
    (a rate of 0 in `kl`): then the slope at a nearby point is used, and the tangent is slightly
    lower.
    """
    match node:
        case ex.Constant(value):
            return Tangents(np.full(rates.shape[1], value), np.zeros(rates.shape))
        case Leaf():
            own = np.zeros(rates.shape)
            own[index[node]] = 1.0
            return Tangents(np.asarray(rates[index[node]], dtype=float), own)
        case ex.Apply(name, arguments):
            parts = [tangents(part, rates, index) for part in arguments]
            if name == "quotient":
                return _quotient(*parts)
            line, partial = _linearize(name, [part.value for part in parts])
            with np.errstate(invalid="ignore"):  # an infinite slope times 0
                terms = [d * part.slopes for d, part in zip(partial, parts, strict=True)]
            return Tangents(line, np.sum(terms, axis=0))
        case _:
            raise ValueError(f"{ex.to_text(node)} is not a function of the rates")


def _quotient(top: Tangents, bottom: Tangents) -> Tangents:
    with np.errstate(divide="ignore", invalid="ignore"):
        value = top.value / bottom.value
        return Tangents(value, (top.slopes - value * bottom.slopes) / bottom.value)


def _linearize(name: str, arguments: list[Floats]) -> tuple[Floats, list[Floats]]:
    """Return (T,) tangent values of a function at T points, and its (T,) partial derivatives."""
    match name, arguments:
        case "sum", _:
            return np.sum(arguments, axis=0), [np.ones_like(term) for term in arguments]
        case "product", (x, y):
            return x * y, [y, x]
    function = OPERATIONS[name]
    points = [function.near(*point) for point in np.transpose(arguments).tolist()]
    value = np.array([function.value(*point) for point in points])
    slopes = list(np.transpose([function.slopes(*point) for point in points]))
    with np.errstate(invalid="ignore"):  # undefined arguments
        for slope, argument, near in zip(slopes, arguments, np.transpose(points), strict=True):
            value += slope * (argument - near)
    return value, slopes
