"""Expressions as functions of rates, compiled once: values, tangents and intervals.

A compiled expression is a list of steps. The first ones are affine in the inputs, which are the
rates of a matrix, or the confidence limits of a safety test. Each further step applies a function
of `rates.functions` to earlier steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.rates import expression as ex
from ratecli.rates.affine import ratio_sum
from ratecli.rates.analysis import affine_maxima
from ratecli.rates.expression import Expression
from ratecli.rates.functions import KL_FLOOR, OPERATIONS, PRODUCT, SUM, Endpoint, Interval
from ratecli.rates.sample import Floats

Row = dict[int, float]
"""An affine function: the factor of each input, and the constant as that of the input -1."""
CONSTANT = -1


def _choose(parts: Floats, chosen: NDArray[np.intp]) -> Floats:
    """Return the slopes (n, T) of a function that equals one of its n arguments at each point."""
    return np.equal.outer(np.arange(len(parts)), chosen).astype(float)


def _or_undefined(x: Floats) -> Floats:
    """Return arguments with NaN in place of negative ones."""
    return np.where(x < 0, np.nan, x)


def _clipped(low: float, high: float = math.inf) -> Callable[[Floats], Floats]:
    return lambda x: np.minimum(np.maximum(x, low), high)


def _harmonic_mean(x: Floats) -> Floats:
    return np.asarray(2 * x[0] * x[1] / np.maximum(_or_undefined(x).sum(axis=0), TINY))


def _root_mean_square(x: Floats) -> Floats:
    return np.asarray(np.sqrt((x**2).sum(axis=0) / len(x)))


def _root_mean_square_slopes(x: Floats) -> Floats:
    size = len(x) * _root_mean_square(x)
    return np.asarray(x / np.where(size > 0, size, np.inf))


@np.errstate(divide="ignore", invalid="ignore")
def _divergence(x: Floats) -> Floats:
    p, q = x[0], np.clip(x[1], KL_FLOOR, 1 - KL_FLOOR)
    # not scipy's rel_entr: mixtures depend on the last digits
    first, second = (np.where(a == 0, 0.0, a * np.log(a / b)) for a, b in ((p, q), (1 - p, 1 - q)))
    return np.asarray(first + second)


def _divergence_slopes(x: Floats) -> Floats:
    p, q = x
    return np.stack([np.log(p / q) - np.log((1 - p) / (1 - q)), (q - p) / (q * (1 - q))])


def _power_slopes(x: Floats) -> Floats:
    base, exponent = x
    return np.stack([exponent * np.power(base, exponent - 1), np.zeros_like(base)])


def _nearest_base(x: Floats) -> Floats:
    """Return a base and an exponent with the nearest base at which a power has a finite slope."""
    base, exponent = x
    steep = np.where(exponent < 0, SLOPE_MARGIN, SLOPE_MARGIN**2 * (exponent < 1))
    return np.stack([np.where(np.abs(base) < steep, np.copysign(steep, base), base), exponent])


class ArrayFunction(NamedTuple):
    """A function of n arguments, vectorized over points.

    `value` maps the arguments (n, ...) at any number of points to values (...), NaN outside the
    function's domain. `slopes` maps them to partial derivatives (n, ...), a subgradient at a kink;
    they are finite at the points that `near` returns, the nearest ones with finite slopes. Only
    slopes of a quotient may overflow, next to a denominator of 0.
    """

    value: Callable[[Floats], Floats]
    slopes: Callable[[Floats], Floats]
    near: Callable[[Floats], Floats] = lambda x: x


SLOPE_MARGIN = 1e-6
"""Slopes that are unbounded at an end of a domain are evaluated at this distance from it."""
TINY = 1e-300
_POSITIVE = _clipped(SLOPE_MARGIN)
ARRAY_FUNCTIONS: Mapping[str, ArrayFunction] = {
    "sum": ArrayFunction(lambda x: x.sum(axis=0), np.ones_like),
    "product": ArrayFunction(lambda x: x[0] * x[1], lambda x: x[::-1]),
    "quotient": ArrayFunction(
        lambda x: x[0] / x[1], lambda x: np.stack([1 / x[1], -x[0] * (1 / x[1]) ** 2])
    ),
    "power": ArrayFunction(lambda x: np.power(*x), _power_slopes, _nearest_base),
    "abs": ArrayFunction(lambda x: np.abs(x[0]), np.sign),
    "max": ArrayFunction(lambda x: x.max(axis=0), lambda x: _choose(x, x.argmax(axis=0))),
    "min": ArrayFunction(lambda x: x.min(axis=0), lambda x: _choose(x, x.argmin(axis=0))),
    "sqrt": ArrayFunction(
        lambda x: np.sqrt(x[0]), lambda x: 0.5 / np.sqrt(x), _clipped(SLOPE_MARGIN**2)
    ),
    "log": ArrayFunction(lambda x: np.log(x[0]), lambda x: 1 / x, _POSITIVE),
    "exp": ArrayFunction(lambda x: np.exp(x[0]), np.exp),
    "kl": ArrayFunction(_divergence, _divergence_slopes, _clipped(SLOPE_MARGIN, 1 - SLOPE_MARGIN)),
    "geo_mean": ArrayFunction(
        lambda x: np.sqrt(np.prod(_or_undefined(x), axis=0)),
        lambda x: 0.5 * np.sqrt(x[::-1] / x),
        _POSITIVE,
    ),
    "harmonic_mean": ArrayFunction(
        _harmonic_mean, lambda x: 2 * (x[::-1] / (x[0] + x[1])) ** 2, _POSITIVE
    ),
    "rms": ArrayFunction(_root_mean_square, _root_mean_square_slopes),
}
"""All functions that an expression applies, by name."""


class _Step(NamedTuple):
    """A function of earlier steps, given by their numbers."""

    name: str
    inside: list[int]


class Tangents(NamedTuple):
    """Values (J,) and slopes (J, N) of J expressions at a point; (J, T) and (J, N, T) at T."""

    value: Floats
    slopes: Floats


@dataclass(frozen=True)
class RateFunction:
    """J expressions as functions of N inputs.

    Attributes
    ----------
    rows
        The affine steps.
    steps
        The other steps, numbered from the number of rows on.
    roots
        (J,) the step that is the value of each expression.
    inputs
        N.
    """

    rows: tuple[Row, ...]
    steps: tuple[_Step, ...]
    roots: NDArray[np.intp]
    inputs: int

    @classmethod
    def of(
        cls,
        expressions: Iterable[Expression],
        index: Mapping[Any, int | Row],
        inputs: int | None = None,
    ) -> RateFunction:
        """Compile expressions.

        `index` has the number of each node that is an input, 0 to N - 1, or the row of a node that
        is affine in the inputs. By default, N is the size of the index. Raises ValueError for any
        other node that is measured.
        """
        compiler = _Compiler(index)
        found = [compiler.number(compiler.part(node)) for node in expressions]
        rows = tuple(map(dict, compiler.rows))

        def place(number: int) -> int:
            return ~number if number < 0 else number + len(rows)

        steps = tuple(_Step(name, list(map(place, inside))) for name, inside in compiler.steps)
        roots = np.array(list(map(place, found)), dtype=np.intp)
        return cls(rows, steps, roots, len(index) if inputs is None else inputs)

    @classmethod
    def affine(cls, lines: Iterable[Floats]) -> RateFunction:
        """Return affine functions, given by their slopes and constants (J, N + 1)."""
        table = np.array([*lines])
        rows = tuple(dict(zip([*range(len(row) - 1), CONSTANT], row, strict=True)) for row in table)
        return cls(rows, (), np.arange(len(rows)), table.shape[1] - 1)

    def values(self, inputs: Floats) -> Floats:
        """Return (J,) values at inputs (N,), or (J, T) at (N, T); NaN where undefined."""
        columns = inputs.reshape(len(inputs), math.prod(inputs.shape[1:]))
        found = np.empty((len(self.rows) + len(self.steps), columns.shape[1]))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            self._fill_rows(found, columns)
            exact = columns.shape[1] == 1  # sums at a single point are rounded once
            for number, row in self._long_rows if exact else ():
                terms = (c * (columns[k, 0] if k >= 0 else 1.0) for k, c in row.items())
                found[number] = SUM.value(*terms)
            for k, (name, inside) in enumerate(self.steps, len(self.rows)):
                if exact and name == "sum":
                    found[k] = SUM.value(*found[inside, 0].tolist())
                else:
                    found[k] = ARRAY_FUNCTIONS[name].value(found[inside])
        return found[self.roots].reshape(len(self.roots), *inputs.shape[1:])

    def tangents(self, inputs: Floats) -> Tangents:
        """Return the tangents at inputs (N,) or (N, T).

        If an expression is convex by the rules of `analysis.curvature`, each tangent is a lower
        bound everywhere. It touches the expression at its point unless a function has no finite
        slope there (a rate of 0 in `kl`): then the slope at a nearby point is used, and the tangent
        is slightly lower.
        """
        points, count = inputs.reshape(len(inputs), math.prod(inputs.shape[1:])), len(self.rows)
        value = np.empty((count + len(self.steps), points.shape[1]))
        slopes = np.empty((len(value), self.inputs, points.shape[1]))
        slopes[:count] = self.table[:, :-1, None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            self._fill_rows(value, points)
            for k, (name, inside) in enumerate(self.steps, count):
                value[k], partial = _linearize(name, value[inside])
                if name == "quotient":  # with fewer rounding errors
                    (top, bottom), below = slopes[inside], value[inside[1]]
                    slopes[k] = (top - value[k] * bottom) / below
                    continue
                # a slope of 0 times an infinite one is 0
                terms = np.multiply(partial[:, None], slopes[inside])
                slopes[k] = np.where(partial[:, None] == 0, 0.0, terms).sum(axis=0)
        shape = inputs.shape[1:]
        return Tangents(
            value[self.roots].reshape(len(self.roots), *shape),
            slopes[self.roots].reshape(len(self.roots), self.inputs, *shape),
        )

    @cached_property
    def table(self) -> Floats:
        """(L, N + 1) slopes and constants of the affine steps."""
        return np.asarray(self._matrix.toarray())

    @cached_property
    def _matrix(self) -> sparse.csr_array:
        """The table, sparse: an undefined input affects no row without it."""
        columns = [k % (self.inputs + 1) for row in self.rows for k in row]
        factors = np.array([factor for row in self.rows for factor in row.values()], dtype=float)
        starts = np.cumsum([0, *map(len, self.rows)])
        return sparse.csr_array((factors, columns, starts), (len(self.rows), self.inputs + 1))

    @cached_property
    def _long_rows(self) -> list[tuple[int, Row]]:
        """The affine steps with more than two terms, with their numbers."""
        return [(number, row) for number, row in enumerate(self.rows) if len(row) > 2]

    @cached_property
    def _entries(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
        """Row, column and value of each entry of the table."""
        entries = self._matrix.tocoo()
        return entries.coords[0], entries.coords[1], entries.data

    def _fill_rows(self, found: Floats, points: Floats) -> None:
        """Compute the affine steps at points (N, T)."""
        count = len(self.rows)
        padded = np.concatenate((points, np.ones((1, points.shape[1]))))
        if points.shape[1] == 1:  # faster than a sparse product, and equal to the last bit
            rows, columns, factors = self._entries
            found[:count, 0] = np.bincount(rows, factors * padded[columns, 0], count)
        else:
            found[:count] = self._matrix @ padded

    # intervals, as inclusion functions (Moore 1966)

    def ends(self, inputs: Sequence[Interval]) -> list[tuple[Endpoint, Endpoint]]:
        """Return the lower and upper end of each step, given the intervals of the inputs.

        Steps that may be undefined get the whole real line.
        """
        found = list[tuple[Endpoint, Endpoint]]()
        for row in self.rows:
            terms = [(c, c) if k < 0 else PRODUCT((c, c), inputs[k]) for k, c in row.items()]
            low, high = SUM(*terms)
            found.append((Endpoint(low), Endpoint(high)))
        for name, inside in self.steps:
            arguments = [(found[i][0].value, found[i][1].value) for i in inside]
            found.append(OPERATIONS[name].certain(arguments))
        return found

    def interval(self, inputs: Sequence[Interval]) -> Interval:
        """Return the interval of the only expression."""
        (root,) = self.roots
        low, high = self.ends(inputs)[root]
        return low.value, high.value

    def upper(self, inputs: Sequence[Interval]) -> tuple[float, Floats]:
        """Return the upper end of the only expression, and its (N, 2) slopes in the inputs' ends.

        Slopes are 0 if the end is infinite, and one-sided at a kink, such as a maximum of equal
        numbers. The chain rule is applied from the root down, at the points where the ends are
        attained.
        """
        ends, total = self.ends(inputs), np.zeros((self.inputs, 2))
        (root,) = self.roots.tolist()
        waiting = [(root, 1, 1.0)]
        while waiting:
            number, side, weight = waiting.pop()
            end = ends[number][(side + 1) // 2]
            if not math.isfinite(end.value):
                continue
            if number < len(self.rows):
                for k, factor in self.rows[number].items():
                    if k >= 0:
                        total[k, int(side * factor > 0)] += weight * factor
            elif end.point:
                name, inside = self.steps[number - len(self.rows)]
                array, point = ARRAY_FUNCTIONS[name], np.array([x for x, _ in end.point])
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    slopes = array.slopes(array.near(point)).tolist()
                waiting += [
                    (part, other, weight * slope)
                    for slope, (_, other), part in zip(slopes, end.point, inside, strict=True)
                    # slopes are not finite at infinite arguments
                    if other and slope and math.isfinite(slope)
                ]
        return ends[root][1].value, total

    def needed_ends(self, loosest: Sequence[Interval]) -> set[tuple[int, int]]:
        """Return the ends of inputs, -1 or 1, that the upper end of the only expression may need.

        An increasing step needs the same end of its operand, a decreasing one the opposite end, and
        any other step, or one that may be undefined, needs both. `loosest` are intervals that
        contain all that will be used.
        """
        ends, needed = self.ends(loosest), set[tuple[int, int]]()
        sides = [set[int]() for _ in ends]
        sides[int(self.roots[0])] = {1}
        for number in reversed(range(len(ends))):
            own = sides[number]
            if number < len(self.rows):
                row = self.rows[number].items()
                needed |= {(k, s if c > 0 else -s) for k, c in row if k >= 0 for s in own}
                continue
            name, inside = self.steps[number - len(self.rows)]
            function = OPERATIONS[name]
            arguments = [(ends[i][0].value, ends[i][1].value) for i in inside]
            known = function.defined(arguments)
            directions = function.directions(arguments) if known else [0] * len(inside)
            for part, way in zip(inside, directions, strict=True):
                sides[part] |= {way * side for side in own} if way else {-1, 1}
        return needed


def _linearize(name: str, parts: Floats) -> tuple[Floats, Floats]:
    """Return the tangent's values (T,) of a function at T points (n, T), and its slopes (n, T)."""
    array = ARRAY_FUNCTIONS[name]
    near = array.near(parts)
    slopes = array.slopes(near)
    moved = np.where((slopes == 0) | (parts == near), 0.0, slopes * (parts - near))
    return array.value(near) + moved.sum(axis=0), slopes


class _Compiler:
    """Collects rows and steps, each distinct one once; ~k is the number of row k."""

    def __init__(self, index: Mapping[Any, int | Row]) -> None:
        self.index, self.whole = index, any(isinstance(node, ex.Apply) for node in index)
        self.rows, self.steps = dict[Any, int](), dict[tuple[str, tuple[int, ...]], int]()

    def number(self, part: Row | int) -> int:
        """Return the number of a step, given as its row if it is affine."""
        if isinstance(part, int):
            return part
        key = tuple(part.items()) or ((CONSTANT, 0.0),)
        return ~self.rows.setdefault(key, len(self.rows))

    def part(self, node: Expression) -> Row | int:
        """Return the row of an affine node, and the number of any other one."""
        # hashing a large tree is slow
        known = self.index.get(node) if self.whole or not isinstance(node, ex.Apply) else None
        if known is not None:
            return {known: 1.0} if isinstance(known, int) else known
        match node:
            case ex.Constant(value):
                return {CONSTANT: value}
            case ex.Apply(name, arguments):
                return self.applied(name, list(map(self.part, arguments)))
        raise ValueError(f"{ex.to_text(node)} is not a function of the rates")

    def applied(self, name: str, parts: list[Row | int]) -> Row | int:
        if name == "sum":
            total, others = dict[int, float](), list[int]()
            for part in parts:
                if isinstance(part, int):
                    others.append(part)
                    continue
                for k, factor in part.items():
                    total[k] = total.get(k, 0.0) + factor
            if not others:
                return total
            parts = [*others, total] if total else [*others]
        left, right = parts[0], parts[-1]
        constant = isinstance(left, dict) and left.keys() == {CONSTANT} and left[CONSTANT]
        if name == "product" and constant and isinstance(right, dict):
            return {k: constant * factor for k, factor in right.items()}
        return self.steps.setdefault((name, tuple(map(self.number, parts))), len(self.steps))


def evaluate(expressions: Sequence[Expression], known: Mapping[Any, float]) -> list[float]:
    """Return the values of expressions, NaN where undefined (a rate of no rows, 0 / 0).

    `known` are the values of the rates, and of any other nodes that the expressions measure.
    """
    index = {node: k for k, node in enumerate(known)}
    inputs = np.array([*known.values()], dtype=float)
    return [float(value) for value in RateFunction.of(expressions, index).values(inputs)]


class PieceParts:
    """The linear parts of J pieces at some rates: a piece is at most 0 if all of its parts are.

    A sum of maxima of affine forms has a term for each maximum. Its parts are the forms minus their
    present maximum, plus an equal share of the piece. The only part of another piece is its
    tangent.

    Attributes
    ----------
    piece, term
        (P,) which piece and which of all terms each part belongs to.
    """

    def __init__(self, pieces: Sequence[Expression], index: Mapping[Any, int]) -> None:
        parts, terms, piece_of_term = list[Expression](), list[int](), list[int]()
        for j, piece in enumerate(pieces):
            maxima = affine_maxima(piece) or ()
            own = [[form.expression() for form in forms] for forms in maxima[1:]] or [[piece]]
            terms += [len(piece_of_term) + t for t, each in enumerate(own) for _ in each]
            piece_of_term += [j] * len(own)
            parts += itertools.chain(*own)
        self.term = np.array(terms, dtype=np.intp)
        owners = np.array(piece_of_term, dtype=np.intp)
        self.piece = owners[self.term]
        self._counts = np.bincount(owners, minlength=len(pieces))
        self._terms, self._pieces = (
            np.flatnonzero(np.diff(each, prepend=-1)) for each in (self.term, owners)
        )
        self._function = RateFunction.of([*parts, *pieces], index)

    def at(self, rates: Floats, pieces: Floats | None = None) -> Tangents:
        """Return values (P,) and slopes (P, K) at rates (K,).

        With `pieces` (J,), these are shared among the parts instead of the values of the pieces.
        """
        found = self._function.tangents(rates)
        own, whole = np.split(found.value, [len(self.term)])
        largest = self.largest(own)[self.term]
        apart = np.where(own == largest, 0.0, own - largest)
        shares = ((whole if pieces is None else pieces) / self._counts)[self.piece]
        return Tangents(apart + shares, found.slopes[: len(own)])

    def largest(self, values: Floats) -> Floats:
        """Return the largest of values (P,) of each term."""
        return np.asarray(np.maximum.reduceat(values, self._terms)) if len(values) else values

    def total(self, values: Floats) -> Floats:
        """Return for each piece (J,) the sum of the largest values of its terms."""
        return (
            np.asarray(np.add.reduceat(self.largest(values), self._pieces))
            if len(values)
            else values
        )


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
        top, bottom, bounded = RateFunction.of([*pair, bound], index).values(rates)
        if not np.isfinite([top, bottom, bounded]).all() or np.ptp(top / bottom) <= 1e-12:
            continue
        table = np.column_stack([top, bottom])
        (b, a), *_ = np.linalg.lstsq(table, bounded)
        if np.allclose(table @ [b, a], bounded, atol=1e-9) and abs(b) > 1e-12:
            return float(-a / b)
    return None
