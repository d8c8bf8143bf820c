"""Values of expressions as functions of the rates, and their tangents, vectorized over points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.rates import expression as ex
from ratecli.rates.affine import ratio_sum
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
"""Vectorized functions. A sum at a single point is rounded once instead."""


@dataclass(frozen=True)
class Tangents:
    """Values (T,) and slopes (K, T) at T points; at a single point, () and (K,)."""

    value: Floats
    slopes: Floats


def values(node: Expression, rates: Floats, index: Mapping[Any, int]) -> Floats:
    """Return (T,) values of an expression at T points, NaN where it is undefined.

    `rates` (K, T) are the values of the nodes in `index` by their numbers: rates, and any other
    nodes that the expression measures.
    """
    match node:
        case ex.Constant(value):
            return np.full(rates.shape[1], value)
        case ex.Apply(name, arguments):
            parts = [values(part, rates, index) for part in arguments]
            if name == "min":
                parts = _without_ratios_of_zeros(arguments, parts, rates, index)
            exact = name == "sum" and rates.shape[1] == 1
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                if name in VECTORIZED and not exact:
                    found = VECTORIZED[name](*parts)
                else:
                    points = np.transpose(parts).tolist()
                    found = np.array([OPERATIONS[name].value(*point) for point in points])
            return np.where(np.isnan(parts).any(axis=0), np.nan, found)
    if node not in index:
        raise ValueError(f"{ex.to_text(node)} is not a function of the rates")
    return np.asarray(rates[index[node]])


def _without_ratios_of_zeros(
    arguments: Sequence[Expression],
    parts: Sequence[Floats],
    rates: Floats,
    index: Mapping[Any, int],
) -> list[Floats]:
    """Return the parts of a minimum, infinite where they are 0 / 0 but other parts decide.

    These are ratios of two groups in `min_ratio`, which contains both a / b and b / a. The ratios
    to a third group decide then, as if the smallest rate were divided by the largest.
    """
    found = list(parts)
    for k, (node, part) in enumerate(zip(arguments, parts, strict=True)):
        match node:
            case ex.Apply("quotient", (a, b)) if (
                np.isnan(part).any() and ex.divide(b, a) in arguments
            ):
                zeros = [values(each, rates, index) == 0 for each in (a, b)]
                found[k] = np.where(zeros[0] & zeros[1], np.inf, part)
    alone = np.isposinf(found).all(axis=0) & np.isnan(parts).any(axis=0)
    return [np.where(alone, np.nan, part) for part in found]


def evaluate(node: Expression, known: Mapping[Any, float]) -> float:
    """Return the value of an expression, NaN where it is undefined (a rate of no rows, 0 / 0).

    `known` are the values of the rates, and of any other nodes that the expression measures.
    """
    column = np.array([*known.values()], dtype=float)[:, None]
    return float(values(node, column, {part: k for k, part in enumerate(known)})[0])


def any_undefined(ratios: Iterable[Expression], rates: Floats, index: Mapping[Any, int]) -> Mask:
    """Return (T,) whether any of the ratios is undefined at rates (K, T)."""
    found = np.zeros(rates.shape[1], dtype=bool)
    for ratio in ratios:
        found |= np.isnan(values(ratio, rates, index))
    return found


def tangent(node: Expression, rates: Floats, index: Mapping[Any, int]) -> Tangents:
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


def parts_of(piece: Expression, rates: Floats, index: Mapping[Any, int]) -> Parts:
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


def tangents(node: Expression, rates: Floats, index: Mapping[Any, int]) -> Tangents:
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


SAMPLED_RATES = 8
"""Number of points at which a metric is compared with what is bounded."""


def threshold(metric: Expression, bound: Expression) -> float | None:
    """Return the value t of `metric` at which `bound` is 0, None if it bounds anything else.

    It is one if `bound = a D + b N` for a metric N / D, or if `bound = a + b * metric`; then
    t = -a / b. The expressions are compared at random values of their rates.
    """
    form = ratio_sum(metric)
    fraction = form and form.fraction
    pairs = list[tuple[Expression, Expression]]([(metric, ex.Constant(1.0))])
    if fraction:
        pairs.append((fraction[0].expression(), fraction[1].expression()))
    nodes = dict.fromkeys(part for node in (metric, bound) for part in ex.measured_nodes(node))
    rates = np.random.default_rng(0).uniform(0.1, 0.9, (len(nodes), SAMPLED_RATES))
    index = {node: k for k, node in enumerate(nodes)}
    for pair in pairs:
        top, bottom, bounded = (values(node, rates, index) for node in (*pair, bound))
        if not np.isfinite([top, bottom, bounded]).all() or np.ptp(top / bottom) <= 1e-12:
            continue
        table = np.column_stack([top, bottom])
        (b, a), *_ = np.linalg.lstsq(table, bounded)
        if np.allclose(table @ [b, a], bounded, atol=1e-9) and abs(b) > 1e-12:
            return float(-a / b)
    return None
