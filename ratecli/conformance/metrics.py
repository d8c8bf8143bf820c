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

from ratecli.conformance.outcome import Caution, CheckList, PluginReport, run_checks, skip
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, positive_combination
from ratecli.rates.analysis import Curvature, curvature, interval, monotonicity
from ratecli.rates.expression import Expression, Leaf, Slice
from ratecli.rates.matrix import Predictions, RateMatrix, build_rate_matrix, measure
from ratecli.rates.metrics import find_rate, metric_error
from ratecli.rates.parser import parse_conditions, parse_expression
from ratecli.rates.resolve import Scope, resolve
from ratecli.rates.sample import Mask, Sample
from ratecli.rates.table import Composite, Rate
from ratecli.rates.tangent import values

RANDOM_SAMPLES = 12
METRIC_TOLERANCE = 1e-9
ARGUMENT_VALUE = 2.0
"""Value of all arguments of metrics with parameters."""
REPORT_THIS = "this is an error of ratecli: please report it"


@dataclass(frozen=True)
class NaiveSample:
    """Random rows with predictions; `inside` (n,) is the slice `g = a`."""

    sample: Sample
    predictions: Predictions
    inside: Mask

    def mask(self, text: str) -> Mask:
        """Return the rows of a mask such as `+&deployed`."""
        label, deployed = self.sample.label, self.sample.deployed
        assert deployed is not None
        every = np.ones(len(label), dtype=bool)
        parts = {
            "all": every,
            "none": ~every,
            "labelled": label == label,  # noqa: PLR0124  not NaN
            "+": label == 1,
            "-": label == 0,
            "deployed": deployed == deployed,  # noqa: PLR0124  not NaN
            "deployed_yes": deployed == 1,
            "deployed_no": deployed == 0,
        }
        return np.asarray(np.all([parts[part] for part in text.split("&")], axis=0))

    def rate(self, row: Rate, inside: Mask) -> float:
        """Return the rate of a slice; NaN if there are no rows."""
        label, estimate = self.sample.label, self.predictions.estimates
        measured = {
            "decision": self.predictions.decisions,
            "error": estimate - label,
            "squared_error": (estimate - label) ** 2,
            "log_loss": -np.log(np.where(label == 1, estimate, 1 - estimate)),
        }[row.of]
        among = self.mask(row.among) if row.whole else self.mask(row.among) & inside
        positive = np.where(self.mask(row.yes) & inside, measured, 0.0)
        negative = np.where(self.mask(row.no) & inside, 1.0 - measured, 0.0)
        weight = np.where(among, self.sample.weight, 0.0)
        total = float(weight @ np.where(among, positive + negative, 0.0))
        return total / float(weight.sum()) if weight.any() else math.nan

    def value(self, node: Expression) -> float:
        """Return the value of a metric by arithmetic on its rates."""

        def value_of(part: Expression) -> float:
            if not isinstance(part, Leaf):
                skip(f"'{ex.to_text(part)}' is not a mean over rows")
            return self.rate(
                part.rate, self.inside if part.where.conditions else self.inside | True
            )

        return ex.evaluate(node, value_of)


def naive_sample(seed: int, n: int = 80) -> NaiveSample:
    """Return a sample in which some labels and deployed decisions are missing.

    Some decisions are exactly 0 or 1, others probabilities; weights are 0.5, 1 or 3.
    """
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], size=n)
    label, deployed = rng.choice([0.0, 1.0, np.nan], size=(2, n), p=[0.4, 0.4, 0.2])
    chance = np.clip(rng.uniform(-0.3, 1.3, size=n), 0.0, 1.0)
    weight = rng.choice([0.5, 1.0, 3.0], size=n)
    columns, names, part = {"g": group.astype(object)}, np.full(n, "tiny"), np.full(n, "train")
    predictions = Predictions(chance, chance, rng.uniform(0.01, 0.99, size=n))
    sample = Sample(columns, label, names, part, weight, deployed)
    return NaiveSample(sample, predictions, np.asarray(group == "a"))


@dataclass(frozen=True)
class MetricSubject:
    """A metric and its name."""

    name: str
    row: Rate | Composite

    @cached_property
    def samples(self) -> list[NaiveSample]:
        return [naive_sample(seed) for seed in range(RANDOM_SAMPLES)]

    @cached_property
    def expression(self) -> Expression:
        """The parsed metric on all rows."""
        if isinstance(self.row, Rate):
            return Leaf(self.row)
        arguments = dict.fromkeys(self.row.parameters, ARGUMENT_VALUE)
        top = resolve(parse_expression(self.row.text), Scope(parameters=arguments))
        return ex.divide(top, Leaf(find_rate(self.row.over))) if self.row.over else top

    @property
    def inside(self) -> Expression:
        """The metric on the slice `g = a`; a denominator over all rows (`over`) stays unchanged."""
        where = Slice.of(set(), parse_conditions("g = a"))

        def narrowed(part: Expression) -> Expression | None:
            if isinstance(part, Leaf | ex.RankingMeasure):
                return replace(part, where=where)
            return None

        if isinstance(self.row, Composite) and self.row.over:
            assert isinstance(self.expression, ex.Quotient)
            top = ex.transform(self.expression.numerator, narrowed)
            return ex.divide(top, self.expression.denominator)
        return ex.transform(self.expression, narrowed)

    def measured(self, of: NaiveSample, decisions: Array | None = None) -> float:
        """Return the value that a report would show."""
        predictions = of.predictions
        if decisions is not None:
            predictions = replace(predictions, decisions=decisions, scores=decisions)
        return measure([self.expression], of.sample, "train", predictions)[0]

    def matrices(self) -> Iterator[tuple[NaiveSample, RateMatrix]]:
        """Yield the rates of each sample; skip the check for other metrics than of decisions."""
        for part in ex.measured_nodes(self.expression):
            if not isinstance(part, Leaf) or part.rate.of != "decision":
                skip(f"'{ex.to_text(part)}' is not a rate of decisions")
        for of in self.samples:
            yield of, build_rate_matrix(ex.leaves(self.expression), of.sample, "train")

    def at(self, matrix: RateMatrix, decisions: Array) -> float:
        """Return its value for (n,) decisions p, computed from the rates `A p + c`."""
        rates = matrix.A @ decisions + matrix.c
        return float(values(self.expression, rates[:, None], matrix.index())[0])


METRIC_CHECKS = CheckList[MetricSubject]()
metric_check = METRIC_CHECKS.check


def check_metric(metric: Rate | Composite, *, name: str = "", origin: str = "") -> PluginReport:
    """Check a rate or a composite metric; pass a `name` for a `Composite`, which has none."""
    name = name or (metric.name if isinstance(metric, Rate) else "metric")
    checks = run_checks(METRIC_CHECKS, MetricSubject(name, metric))
    return PluginReport("metric", name, origin or "not installed", checks)


@metric_check("is declared", "see Rate and Composite of ratecli.rates.table")
def _declared(metric: MetricSubject) -> Iterator[str]:
    if error := metric_error(metric.name, metric.row):
        yield error
    if not metric.row.means.strip():
        yield "'means' is empty"


@metric_check("can be parsed from its text", "write it in the language of rules")
def _parsed(metric: MetricSubject) -> Iterator[str]:
    if isinstance(metric.row, Rate):
        skip("a rate is its own name")
    text = ex.to_text(metric.expression)
    if resolve(parse_expression(text), Scope()) != metric.expression:
        yield f"'{text}' is parsed as another expression"


@metric_check("equals a naive computation", REPORT_THIS)
def _counted(metric: MetricSubject) -> Iterator[str]:
    for of in metric.samples:
        for node, where in ((metric.expression, ""), (metric.inside, "[g = a]")):
            (value,) = measure([node], of.sample, "train", of.predictions)
            expected = of.value(node)
            if not _equal(value, expected):
                yield f"{metric.name}{where} is {value:.9g}, and {expected:.9g} row by row"


@metric_check("is A p + c", REPORT_THIS)
def _linear(metric: MetricSubject) -> Iterator[str]:
    for of, matrix in metric.matrices():
        value, linear = metric.measured(of), metric.at(matrix, of.predictions.decisions)
        if not _equal(value, linear):
            yield f"it is measured as {value:.9g}, and A p + c gives {linear:.9g}"


@metric_check("has values", "masks or arguments leave no rows: see `ratecli show tpr`")
def _has_values(metric: MetricSubject) -> Iterator[str]:
    if not any(math.isfinite(value) for value in _values(metric)):
        yield "it has no value on any rows, for any decisions"
    if all(leaf.rate.yes == leaf.rate.no for leaf in ex.leaves(metric.expression)):
        yield Caution("it does not depend on decisions")


@metric_check("is within its interval", REPORT_THIS)
def _within(metric: MetricSubject) -> Iterator[str]:
    low, high = interval(metric.expression)
    for value in _values(metric):
        if value < low - METRIC_TOLERANCE or value > high + METRIC_TOLERANCE:
            yield f"its interval is [{low:g}, {high:g}], and it is {value:.9g}"


@metric_check("has its curvature", REPORT_THIS)
def _curved(metric: MetricSubject) -> Iterator[str]:
    curved = curvature(metric.expression)
    for of, matrix in metric.matrices():
        if curved is Curvature.UNKNOWN:
            skip("its curvature is not known")
        for one, other in pairwise(_decisions(of)):
            chord = 0.5 * (metric.at(matrix, one) + metric.at(matrix, other))
            above = metric.at(matrix, 0.5 * (one + other)) - chord
            high = curved is not Curvature.CONCAVE and above > METRIC_TOLERANCE
            low = curved is not Curvature.CONVEX and above < -METRIC_TOLERANCE
            if math.isfinite(above) and (high or low):
                yield f"its curvature is {curved}, and its midpoint is {above:.3g} above a chord"


@metric_check("has its directions", REPORT_THIS)
def _monotone(metric: MetricSubject) -> Iterator[str]:
    next(metric.matrices())
    signs = {leaf: sign for leaf, sign in monotonicity(metric.expression).items() if sign}
    if not signs:
        skip("it is not known to increase or decrease in any rate")
    index = {leaf: k for k, leaf in enumerate(ex.leaves(metric.expression))}
    rates = np.random.default_rng(1).random((len(index), 400))
    before = values(metric.expression, rates, index)
    for leaf, sign in signs.items():
        higher = rates.copy()
        higher[index[leaf]] = 0.5 * (higher[index[leaf]] + 1)
        step = sign * (values(metric.expression, higher, index) - before)
        if (step[np.isfinite(step)] < -METRIC_TOLERANCE).any():
            yield f"it should {'increase' if sign > 0 else 'decrease'} in {leaf.rate.name}"


@metric_check(
    "adds up with its complement",
    "name the rate with yes and no exchanged, or none",
)
def _complement(metric: MetricSubject) -> Iterator[str]:
    if isinstance(metric.row, Composite) or not metric.row.complement:
        skip("it names no complement")
    leaf = Leaf(metric.row)
    both = [positive_combination(Affine({leaf: -1.0})).expression(), ex.negate(leaf)]
    for of in metric.samples:
        here, there = measure(both, of.sample, "train", of.predictions)
        if not _equal(here, there):
            yield f"its sum with '{metric.row.complement}' is {here - there:+.3g} too large"


def _decisions(of: NaiveSample) -> Iterator[Array]:
    """Yield (n,) decisions of different kinds: all 0, all 1, random 0 or 1, and probabilities."""
    n, rng = len(of.sample), np.random.default_rng(2)
    yield from (np.zeros(n), np.ones(n), of.predictions.decisions)
    for chance in (0.1, 0.5, 0.9):
        yield (rng.random(n) < chance).astype(float)
        yield rng.random(n)


def _values(metric: MetricSubject) -> Iterator[float]:
    for of in metric.samples:
        yield from (metric.measured(of, decisions) for decisions in _decisions(of))


def _equal(one: float, other: float) -> bool:
    return bool(np.isclose(one, other, rtol=1e-9, atol=METRIC_TOLERANCE, equal_nan=True))
