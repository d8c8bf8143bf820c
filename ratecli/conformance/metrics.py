"""Checks of metrics on random samples.

Values are compared with a naive computation, and the results of the analysis are tested.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from ratecli.conformance.naive import NaiveSample, RowMask, naive_rate, naive_sample, naive_value
from ratecli.conformance.outcome import (
    CheckFailedError,
    CheckSkippedError,
    CheckWarningError,
    PluginCheck,
    PluginReport,
    run_checks,
)
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, positive_combination
from ratecli.rates.analysis import Curvature, curvature, interval, monotonicity
from ratecli.rates.expression import Expression, Leaf, Slice
from ratecli.rates.matrix import Predictions, RateMatrix, build_rate_matrix, measure
from ratecli.rates.metrics import find_rate, metric_error
from ratecli.rates.parser import parse_conditions, parse_expression
from ratecli.rates.resolve import Scope, resolve
from ratecli.rates.table import Composite, Rate
from ratecli.rates.tangent import values

RANDOM_DRAWS = 12
METRIC_TOLERANCE = 1e-9
ARGUMENT_VALUE = 2.0
"""Value of all arguments of metrics with parameters."""


@dataclass(frozen=True)
class MetricSubject:
    """A metric and its name."""

    name: str
    row: Rate | Composite

    @cached_property
    def expression(self) -> Expression:
        """The parsed metric on all rows."""
        if isinstance(self.row, Rate):
            return Leaf(self.row)
        top = resolve(parse_expression(self.row.text), Scope(parameters=self.arguments))
        return ex.divide(top, Leaf(find_rate(self.row.over))) if self.row.over else top

    @property
    def inside(self) -> Expression:
        """The metric on the slice `g = a`; a denominator over all rows (`over`) stays unchanged."""
        where = Slice.of(set(), parse_conditions("g = a"))

        def narrowed(part: Expression) -> Expression | None:
            return (
                replace(part, where=where) if isinstance(part, Leaf | ex.RankingMeasure) else None
            )

        if isinstance(self.row, Composite) and self.row.over:
            assert isinstance(self.expression, ex.Quotient)
            top = ex.transform(self.expression.numerator, narrowed)
            return ex.divide(top, self.expression.denominator)
        return ex.transform(self.expression, narrowed)

    @property
    def arguments(self) -> dict[str, float]:
        names = self.row.parameters if isinstance(self.row, Composite) else ()
        return dict.fromkeys(names, ARGUMENT_VALUE)

    def naive(self, of: NaiveSample, inside: RowMask) -> float:
        if isinstance(self.row, Rate):
            return naive_rate(self.row, of, inside)
        return naive_value(self.row, self.arguments, of, inside)

    def of_decisions(self) -> None:
        """Raise CheckSkippedError if it is not a function of rates of decisions."""
        odd = (
            part
            for part in ex.measured_nodes(self.expression)
            if not isinstance(part, Leaf) or part.rate.of != "decision"
        )
        if (found := next(odd, None)) is not None:
            raise CheckSkippedError(f"'{ex.to_text(found)}' is no rate of decisions")

    def at(self, matrix: RateMatrix, decisions: Array) -> float:
        """Return its value for (n,) decisions p, computed from the rates `A p + c`."""
        rates = matrix.A @ decisions + matrix.c
        return float(values(self.expression, rates[:, None], matrix.index())[0])


def check_metric(metric: Rate | Composite, *, name: str = "", origin: str = "") -> PluginReport:
    """Check a rate or a composite metric; pass a `name` for a `Composite`, which has none."""
    given = name or (metric.name if isinstance(metric, Rate) else "metric")
    checks = run_checks(METRIC_CHECKS, MetricSubject(given, metric))
    return PluginReport("metric", given, origin or "not installed", checks)


def _declared(metric: MetricSubject) -> None:
    why = metric_error(metric.name, metric.row)
    if why:
        raise CheckFailedError(why)
    if not metric.row.means.strip():
        raise CheckFailedError("'means' is empty")


def _written(metric: MetricSubject) -> None:
    if isinstance(metric.row, Rate):
        raise CheckSkippedError("a rate is its own name")
    back = resolve(parse_expression(ex.to_text(metric.expression)), Scope())
    if back != metric.expression:
        raise CheckFailedError(f"'{ex.to_text(metric.expression)}' is read as something else")


def _counted(metric: MetricSubject) -> None:
    for of in _draws():
        everyone = np.ones(len(of.sample), dtype=bool)
        pairs = ((metric.expression, everyone, ""), (metric.inside, of.inside, "[g = a]"))
        for expression, inside, shown in pairs:
            (found,) = measure([expression], of.sample, "train", of.predictions)
            counted = metric.naive(of, inside)
            if not _equal(found, counted):
                raise CheckFailedError(
                    f"{metric.name}{shown} is {found:.9g}, counted row by row {counted:.9g}"
                )


def _linear(metric: MetricSubject) -> None:
    metric.of_decisions()
    for of in _draws():
        matrix = build_rate_matrix(ex.leaves(metric.expression), of.sample, "train")
        (found,) = measure([metric.expression], of.sample, "train", of.predictions)
        here = metric.at(matrix, of.predictions.decisions)
        if not _equal(found, here):
            raise CheckFailedError(f"it is measured as {found:.9g}, and A p + c gives {here:.9g}")


def _speaks(metric: MetricSubject) -> None:
    found = []
    for of in _draws():
        for decisions in _ways(of):
            answers = replace(of.predictions, decisions=decisions, scores=decisions)
            found += measure([metric.expression], of.sample, "train", answers)
    known = [value for value in found if math.isfinite(value)]
    if not known:
        raise CheckFailedError("it has no value on any rows, whatever is decided")
    moving = metric.expression
    if all(leaf.rate.yes == leaf.rate.no for leaf in ex.leaves(moving)):
        raise CheckWarningError("no decision changes it")


def _within(metric: MetricSubject) -> None:
    low, high = interval(metric.expression)
    for value in _values(metric):
        if not low - METRIC_TOLERANCE <= value <= high + METRIC_TOLERANCE:
            raise CheckFailedError(f"it is said to lie in [{low:g}, {high:g}], and is {value:.9g}")


def _bends(metric: MetricSubject) -> None:
    metric.of_decisions()
    bend = curvature(metric.expression)
    if bend is Curvature.UNKNOWN:
        raise CheckSkippedError("its curvature is not known")
    for of in _draws():
        matrix = build_rate_matrix(ex.leaves(metric.expression), of.sample, "train")
        ways = list(_ways(of))
        for one, other in pairwise(ways):
            ends = 0.5 * (metric.at(matrix, one) + metric.at(matrix, other))
            above = metric.at(matrix, 0.5 * (one + other)) - ends
            if not math.isfinite(above):
                continue
            if (bend is not Curvature.CONCAVE and above > METRIC_TOLERANCE) or (
                bend is not Curvature.CONVEX and above < -METRIC_TOLERANCE
            ):
                raise CheckFailedError(
                    f"it is said to be {bend}, and half way it is {above:.3g} above its chord"
                )


def _grows(metric: MetricSubject) -> None:
    metric.of_decisions()
    signs = {leaf: sign for leaf, sign in monotonicity(metric.expression).items() if sign}
    if not signs:
        raise CheckSkippedError("it is not said to grow or fall in any rate")
    leaves = ex.leaves(metric.expression)
    index = {leaf: k for k, leaf in enumerate(leaves)}
    rng = np.random.default_rng(1)
    rates = rng.random((len(leaves), 400))
    before = values(metric.expression, rates, index)
    for leaf, sign in signs.items():
        moved = rates.copy()
        moved[index[leaf]] = 0.5 * (moved[index[leaf]] + 1)
        step = sign * (values(metric.expression, moved, index) - before)
        if (step[np.isfinite(step)] < -METRIC_TOLERANCE).any():
            word = "grow" if sign > 0 else "fall"
            raise CheckFailedError(f"it is said to {word} in {leaf.rate.name}, and does not")


def _complement(metric: MetricSubject) -> None:
    if isinstance(metric.row, Composite) or not metric.row.complement:
        raise CheckSkippedError("it names no complement")
    leaf = Leaf(metric.row)
    form = positive_combination(Affine({leaf: -1.0}))
    for of in _draws():
        both = [form.expression(), ex.negate(leaf)]
        here, there = measure(both, of.sample, "train", of.predictions)
        if not _equal(here, there):
            raise CheckFailedError(
                f"with '{metric.row.complement}' it adds up to {here - there:+.3g} too much"
            )


def _draws() -> Iterator[NaiveSample]:
    return (naive_sample(seed) for seed in range(RANDOM_DRAWS))


def _ways(of: NaiveSample) -> Iterator[Array]:
    """Yield (n,) decisions of different kinds: all 0, all 1, random 0 or 1, and probabilities."""
    n, rng = len(of.sample), np.random.default_rng(2)
    yield from (np.zeros(n), np.ones(n), of.predictions.decisions)
    for chance in (0.1, 0.5, 0.9):
        yield (rng.random(n) < chance).astype(float)
        yield rng.random(n)


def _values(metric: MetricSubject) -> Iterator[float]:
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
    return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=METRIC_TOLERANCE)


METRIC_CHECKS: tuple[PluginCheck[MetricSubject], ...] = (
    PluginCheck(
        "is declared", "a Rate or Composite of ratecli.rates.table: see its docstring", _declared
    ),
    PluginCheck("is read as written", "write it in the language of rules", _written),
    PluginCheck("is counted", "this is ratecli's: please report it", _counted),
    PluginCheck("is A p + c", "this is ratecli's: please report it", _linear),
    PluginCheck(
        "says something", "masks or arguments leave no rows: see `ratecli show tpr`", _speaks
    ),
    PluginCheck("lies in its interval", "this is ratecli's: please report it", _within),
    PluginCheck("bends as is said", "this is ratecli's: please report it", _bends),
    PluginCheck("grows as is said", "this is ratecli's: please report it", _grows),
    PluginCheck(
        "adds up with its complement",
        "leave 'complement' out, or name the rate with yes and no exchanged",
        _complement,
    ),
)
