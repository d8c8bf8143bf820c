"""Values of expressions as functions of the rates, and their tangents, vectorized over points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.rates import expression as ex
from ratecli.rates.analysis import affine_maxima
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


class Parts(NamedTuple):
    """P linear parts of a piece at some rates: the piece is at most 0 if all of them are.

    Attributes
    ----------
    values, slopes
        (P,) and (P, K).
    terms
        (P,) the term that each belongs to. The largest values of all terms add up to the piece.
    """

    values: Floats
    slopes: Floats
    terms: NDArray[np.intp]


def parts_of(piece: Expression, rates: Floats, index: Mapping[Leaf, int]) -> Parts:
    """Return the parts of a piece at rates (K,).

    A sum of maxima of affine forms has a term for each maximum. Its parts are the forms minus their
    present maximum, plus an equal share of the piece. The only part of another piece is its
    tangent.
    """
    found, maxima = tangent(piece, rates, index), affine_maxima(piece)
    if maxima is None or len(maxima) < 2:
        return Parts(found.value[None], found.slopes[None], np.zeros(1, dtype=np.intp))
    values, slopes = list[Floats](), list[Floats]()
    for forms in maxima[1:]:
        table = np.zeros((len(forms), len(rates)))
        for row, form in zip(table, forms, strict=True):
            row[[index[leaf] for leaf in form.coefficients]] = list(form.coefficients.values())
        own = table @ rates + np.array([form.constant for form in forms])
        values.append(own - own.max() + found.value / (len(maxima) - 1))
        slopes.append(table)
    terms = np.repeat(np.arange(len(values)), [len(own) for own in values])
    return Parts(np.concatenate(values), np.vstack(slopes), terms)


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
        case ex.Apply("max" | "min" as name, arguments):
            return _of_extremes(name, arguments, rates, index)
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


def _of_extremes(
    name: str, arguments: Sequence[Expression], rates: Floats, index: Mapping[Leaf, int]
) -> Tangents:
    """Return the tangents of the argument that is largest, or smallest, at each point."""
    parts = np.stack([values(part, rates, index) for part in arguments])
    chosen = parts.argmax(axis=0) if name == "max" else parts.argmin(axis=0)  # NaN if there is one
    line, slopes = np.empty(rates.shape[1]), np.empty(rates.shape)
    for number in np.unique(chosen):
        here = chosen == number
        own = tangents(arguments[number], rates[:, here], index)
        line[here], slopes[:, here] = own.value, own.slopes
    return Tangents(line, slopes)


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
