"""The kit for metrics: numbers counted a second time, and what analysis says of them, tried at random."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from ratecli.conformance.naive import Drawn, Rows, drawn, line_of, rate_of
from ratecli.conformance.outcome import DoubtError, FailsError, Report, SkipsError, Trial, looked
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, positive_combination
from ratecli.rates.analysis import Curvature, curvature, interval, monotone
from ratecli.rates.expression import Expression, Leaf, Where
from ratecli.rates.matrix import Predictions, RateMatrix, measure, rate_matrix
from ratecli.rates.metrics import rate, wrong
from ratecli.rates.parser import parse_conditions, parse_value
from ratecli.rates.resolve import Scope, resolve
from ratecli.rates.table import Composite, Rate
from ratecli.rates.tangent import values

DRAWS = 12
ROUNDING = 1e-9
ARGUMENT = 2.0
"""What arguments are tried with."""


@dataclass(frozen=True)
class Metric:
    """A metric under its name."""

    name: str
    row: Rate | Composite

    @cached_property
    def expression(self) -> Expression:
        """As the language understands it, on all rows."""
        if isinstance(self.row, Rate):
            return Leaf(self.row)
        top = resolve(parse_value(self.row.text), Scope(parameters=self.arguments))
        return ex.divide(top, Leaf(rate(self.row.over))) if self.row.over else top

    @property
    def inside(self) -> Expression:
        """The same of the slice `g = a`; what is divided by all rows still is."""
        where = Where.of(set(), parse_conditions("g = a"))

        def narrowed(part: Expression) -> Expression | None:
            return replace(part, where=where) if isinstance(part, Leaf | ex.Ranking) else None

        if isinstance(self.row, Composite) and self.row.over:
            assert isinstance(self.expression, ex.Quotient)
            top = ex.transform(self.expression.numerator, narrowed)
            return ex.divide(top, self.expression.denominator)
        return ex.transform(self.expression, narrowed)

    @property
    def arguments(self) -> dict[str, float]:
        names = self.row.parameters if isinstance(self.row, Composite) else ()
        return dict.fromkeys(names, ARGUMENT)

    def naive(self, of: Drawn, inside: Rows) -> float:
        if isinstance(self.row, Rate):
            return rate_of(self.row, of, inside)
        return line_of(self.row, self.arguments, of, inside)

    def of_decisions(self) -> None:
        """Raises SkipsError where it is no function of rates of decisions."""
        odd = (
            part
            for part in ex.measured(self.expression)
            if not isinstance(part, Leaf) or part.rate.of != "decision"
        )
        if (found := next(odd, None)) is not None:
            raise SkipsError(f"'{ex.text(found)}' is no rate of decisions")

    def at(self, matrix: RateMatrix, decisions: Array) -> float:
        """By `A p + c`."""
        rates = matrix.A @ decisions + matrix.c
        return float(values(self.expression, rates[:, None], matrix.index())[0])


def check_metric(metric: Rate | Composite, *, name: str = "", origin: str = "") -> Report:
    """Look at a rate, or at a line of the language; a `Composite` has no name of its own to go by."""
    given = name or (metric.name if isinstance(metric, Rate) else "metric")
    checks = looked(TRIALS, Metric(given, metric))
    return Report("metric", given, origin or "not installed", checks)


def _declared(metric: Metric) -> None:
    why = wrong(metric.name, metric.row)
    if why:
        raise FailsError(why)
    if not metric.row.means.strip():
        raise FailsError("'means' is empty")


def _written(metric: Metric) -> None:
    if isinstance(metric.row, Rate):
        raise SkipsError("a rate is its own name")
    back = resolve(parse_value(ex.text(metric.expression)), Scope())
    if back != metric.expression:
        raise FailsError(f"'{ex.text(metric.expression)}' is read as something else")


def _counted(metric: Metric) -> None:
    for of in _draws():
        everyone = np.ones(len(of.sample), dtype=bool)
        pairs = ((metric.expression, everyone, ""), (metric.inside, of.inside, "[g = a]"))
        for expression, inside, shown in pairs:
            (found,) = measure([expression], of.sample, "train", of.predictions)
            counted = metric.naive(of, inside)
            if not _equal(found, counted):
                raise FailsError(
                    f"{metric.name}{shown} is {found:.9g}, counted row by row {counted:.9g}"
                )


def _linear(metric: Metric) -> None:
    metric.of_decisions()
    for of in _draws():
        matrix = rate_matrix(ex.leaves(metric.expression), of.sample, "train")
        (found,) = measure([metric.expression], of.sample, "train", of.predictions)
        here = metric.at(matrix, of.predictions.decisions)
        if not _equal(found, here):
            raise FailsError(f"it is measured as {found:.9g}, and A p + c gives {here:.9g}")


def _speaks(metric: Metric) -> None:
    found = []
    for of in _draws():
        for decisions in _ways(of):
            answers = replace(of.predictions, decisions=decisions, scores=decisions)
            found += measure([metric.expression], of.sample, "train", answers)
    known = [value for value in found if math.isfinite(value)]
    if not known:
        raise FailsError("it has no value on any rows, whatever is decided")
    moving = metric.expression
    if all(leaf.rate.yes == leaf.rate.no for leaf in ex.leaves(moving)):
        raise DoubtError("no decision changes it")


def _within(metric: Metric) -> None:
    low, high = interval(metric.expression)
    for value in _values(metric):
        if not low - ROUNDING <= value <= high + ROUNDING:
            raise FailsError(f"it is said to lie in [{low:g}, {high:g}], and is {value:.9g}")


def _bends(metric: Metric) -> None:
    metric.of_decisions()
    bend = curvature(metric.expression)
    if bend is Curvature.UNKNOWN:
        raise SkipsError("its curvature is not known")
    for of in _draws():
        matrix = rate_matrix(ex.leaves(metric.expression), of.sample, "train")
        ways = list(_ways(of))
        for one, other in pairwise(ways):
            ends = 0.5 * (metric.at(matrix, one) + metric.at(matrix, other))
            above = metric.at(matrix, 0.5 * (one + other)) - ends
            if not math.isfinite(above):
                continue
            if (bend is not Curvature.CONCAVE and above > ROUNDING) or (
                bend is not Curvature.CONVEX and above < -ROUNDING
            ):
                raise FailsError(
                    f"it is said to be {bend}, and half way it is {above:.3g} above its chord"
                )


def _grows(metric: Metric) -> None:
    metric.of_decisions()
    signs = {leaf: sign for leaf, sign in monotone(metric.expression).items() if sign}
    if not signs:
        raise SkipsError("it is not said to grow or fall in any rate")
    leaves = ex.leaves(metric.expression)
    index = {leaf: k for k, leaf in enumerate(leaves)}
    rng = np.random.default_rng(1)
    rates = rng.random((len(leaves), 400))
    before = values(metric.expression, rates, index)
    for leaf, sign in signs.items():
        moved = rates.copy()
        moved[index[leaf]] = 0.5 * (moved[index[leaf]] + 1)
        step = sign * (values(metric.expression, moved, index) - before)
        if (step[np.isfinite(step)] < -ROUNDING).any():
            word = "grow" if sign > 0 else "fall"
            raise FailsError(f"it is said to {word} in {leaf.rate.name}, and does not")


def _complement(metric: Metric) -> None:
    if isinstance(metric.row, Composite) or not metric.row.complement:
        raise SkipsError("it names no complement")
    leaf = Leaf(metric.row)
    form = positive_combination(Affine({leaf: -1.0}))
    for of in _draws():
        both = [form.expression(), ex.negate(leaf)]
        here, there = measure(both, of.sample, "train", of.predictions)
        if not _equal(here, there):
            raise FailsError(
                f"with '{metric.row.complement}' it adds up to {here - there:+.3g} too much"
            )


def _draws() -> Iterator[Drawn]:
    return (drawn(seed) for seed in range(DRAWS))


def _ways(of: Drawn) -> Iterator[Array]:
    """Decisions of all kinds: none, all, drawn, and chances."""
    n, rng = len(of.sample), np.random.default_rng(2)
    yield from (np.zeros(n), np.ones(n), of.predictions.decisions)
    for chance in (0.1, 0.5, 0.9):
        yield (rng.random(n) < chance).astype(float)
        yield rng.random(n)


def _values(metric: Metric) -> Iterator[float]:
    for of in _draws():
        for decisions in _ways(of):
            answers = Predictions(decisions, decisions, of.predictions.estimates)
            yield from (
                value
                for value in measure([metric.expression], of.sample, "train", answers)
                if not math.isnan(value)
            )


def _equal(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=ROUNDING)


TRIALS: tuple[Trial[Metric], ...] = (
    Trial("is declared", "a Rate or Composite of ratecli.rates.table: see its docstring", _declared),
    Trial("is read as written", "write it in the language of rules", _written),
    Trial("is counted", "this is ratecli's: please report it", _counted),
    Trial("is A p + c", "this is ratecli's: please report it", _linear),
    Trial("says something", "masks or arguments leave no rows: see `ratecli show tpr`", _speaks),
    Trial("lies in its interval", "this is ratecli's: please report it", _within),
    Trial("bends as is said", "this is ratecli's: please report it", _bends),
    Trial("grows as is said", "this is ratecli's: please report it", _grows),
    Trial("adds up with its complement", "leave 'complement' out, or name the rate with yes and no exchanged", _complement),
)  # fmt: skip
