"""Affine combinations of rates as sums of independent samples, whose means are bounded together.

Rows are drawn independently of each other. Given how many of them fall in each of some groups without
common rows, the measurements of one group are independent draws, and independent of those of another
group: a bound on `sum of coefficient * mean` may use that. Rates of the same rows are one measurement of
each row, so that what they have in common cancels row by row. Rates of groups that overlap otherwise are
neither, and have no joint bound here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.certify.bound import (
    BoundedSample,
    Measurements,
    SampleMoments,
    WeightedSample,
    power_of_2,
)
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates.affine import Affine
from ratecli.rates.expression import Leaf, Slice
from ratecli.rates.interval import Interval
from ratecli.rates.matrix import RateMatrix
from ratecli.rates.sample import Sample
from ratecli.rates.table import Measurement

ROUNDING = 1e-9
"""How far, in widths of its range, a measurement may lie outside by rounding."""
AVAILABILITY_MASKS = frozenset({"all", "labelled", "deployed"})
"""Masks of rows that tell what is known of a row, and nothing else."""


@dataclass(frozen=True)
class FormRows:
    """`coefficient` times the mean of `slope * m + offset` over the rows of one group.

    Attributes
    ----------
    rows
        (n_g,) places of the group's rows among those of the rate matrix, in ascending order.
    slope, offset
        (n_g,) of what is measured of each row: 1 or -1, 1 or 0 where the group has a single rate.
    of
        Which measurement m is.
    range
        Least and largest `slope * m + offset` that a row could have, whatever the rows at hand are.
    """

    coefficient: float
    rows: NDArray[np.intp]
    slope: Array
    offset: Array
    of: Measurement
    range: Interval

    def values(self, measurements: Measurements) -> Array:
        """(n_g,) what is measured of each row."""
        return np.asarray(self.slope * measurements[self.of][self.rows] + self.offset, dtype=float)

    def measured(self, measurements: Measurements) -> WeightedSample:
        """The sample that a bound is made of.

        Its range is infinite where a row was measured outside of the one that was thought to be known,
        as with estimates that are not clipped to the range of the labels.
        """
        values = self.values(measurements)
        low, high = self.range
        slack = ROUNDING * (high - low)
        if not (np.nan_to_num(values) >= low - slack).all():
            low = -math.inf
        if not (np.nan_to_num(values) <= high + slack).all():
            high = math.inf
        return WeightedSample(
            self.coefficient, BoundedSample(np.clip(values, low, high), (low, high))
        )

    def moments(self, measurements: Measurements) -> SampleMoments:
        """What these rows say of a sample that is as large.

        The deviation is NaN with fewer than 2 rows here, so is the mean without any, and both are where
        a measurement is not finite.
        """
        part = self.measured(measurements)
        values, size = part.sample.values, len(self.rows)
        finite = bool(np.isfinite(values).all())
        mean = float(values.mean()) if finite and size else math.nan
        deviation = float(values.std(ddof=1)) if finite and size > 1 else math.nan
        return SampleMoments(self.coefficient, mean, deviation, size, part.sample.range)


def independent_parts(
    form: Affine, rates: RateMatrix, label_range: Interval
) -> tuple[FormRows, ...] | None:
    """A form, less its constant, as a sum of independent parts; None where it is not known to be one.

    Rates are of one sample where they measure the same of the same rows by what is written: slices
    that are told apart by no row at hand differ all the same, by rows that are rare. Whether rows have
    a label or a deployed decision is seen on those at hand, and so is whether slices are disjoint:
    see `tested.tested` for whose rows these are.

    Raises
    ------
    FaultError
        E411 where the rows of a rate have different weights.
    """
    groups = _groups(form, rates)
    if groups is None:
        return None
    return tuple(_form_rows(form, leaves, rates, label_range) for leaves in groups)


def has_joint_bound(form: Affine, rates: RateMatrix) -> bool:
    """Whether `independent_parts` finds parts; raises what it raises."""
    return _groups(form, rates) is not None


def _groups(form: Affine, rates: RateMatrix) -> tuple[tuple[Leaf, ...], ...] | None:
    """The rates of a form, those of the same rows together; None if groups overlap."""
    taken = np.zeros(rates.members.shape[1], dtype=bool)
    found: list[tuple[NDArray[np.intp], list[Leaf]]] = []
    for leaf in form.coefficients:
        own, _ = _members(leaf, rates)
        same = [
            leaves
            for rows, leaves in found
            if _same_measurement(leaves[0], leaf) and np.array_equal(rows, own)
        ]
        if same:
            same[0].append(leaf)
        elif taken[own].any():
            return None
        else:
            taken[own] = True
            found.append((own, [leaf]))
    return tuple(tuple(leaves) for _, leaves in found)


def _same_measurement(one: Leaf, other: Leaf) -> bool:
    """Whether two rates measure the same of the same rows, but for labels and decisions that lack."""
    if (one.rate.of, one.over) != (other.rate.of, other.over):
        return False
    words = {*one.rate.among.split("&"), *other.rate.among.split("&")}
    return one.rate.among == other.rate.among or words <= AVAILABILITY_MASKS


def _members(leaf: Leaf, rates: RateMatrix) -> tuple[NDArray[np.intp], float]:
    """The rows that a rate is a mean over, ascending, and the weight that all of them have."""
    rows, weights = _entries(rates.members, rates.index()[leaf])
    weight = float(weights[0]) if len(weights) else 1.0
    if not (weights == weight).all():
        message = (
            f"the rows of '{leaf}' have different weights, and a safety test counts rows alike"
        )
        help_ = "leave 'weight' out of the data set, or turn the test off: 'safety: false'"
        raise FaultError(Diagnostic("E411", message, help_))
    return np.sort(rows), weight


def _entries(matrix: sparse.csr_array, k: int) -> tuple[NDArray[np.intp], Array]:
    start, end = matrix.indptr[k : k + 2]
    places, values = matrix.indices[start:end], matrix.data[start:end]
    return np.asarray(places, dtype=np.intp), np.asarray(values, dtype=float)


def _form_rows(
    form: Affine, leaves: Sequence[Leaf], rates: RateMatrix, label_range: Interval
) -> FormRows:
    first = leaves[0]
    rows, weight = _members(first, rates)
    coefficients = [form.coefficients[leaf] for leaf in leaves]
    outer = coefficients[0] if len(leaves) == 1 else power_of_2(coefficients)
    inner = [each / outer for each in coefficients]
    slope, offset = np.zeros(len(rows)), np.zeros(len(rows))
    for leaf, coefficient in zip(leaves, inner, strict=True):
        k = rates.index()[leaf]
        for matrix, total in ((rates.sums, slope), (rates.against, offset)):
            places, values = _entries(matrix, k)
            total[np.searchsorted(rows, places)] += coefficient * values / weight
    range_ = _measured_range(leaves, inner, label_range)
    return FormRows(outer, rows, slope, offset, first.rate.of, range_)


def _measured_range(
    leaves: Sequence[Leaf], coefficients: Sequence[float], label_range: Interval
) -> Interval:
    """The extremes of what is measured of a row: over all kinds of row, at the ends of m.

    A row may be in any of the slices of rates that are shares of all rows, whatever others it is in.
    """
    kinds = _all_row_kinds()
    counted = np.all([kinds.mask(leaf.rate.among) for leaf in leaves], axis=0)
    if not counted.any():  # two rates of no rows, which are the same for that reason alone
        return -math.inf, math.inf
    totals: dict[Slice, Array] = {}
    for leaf, coefficient in zip(leaves, coefficients, strict=True):
        yes, no = kinds.mask(leaf.rate.yes)[counted], kinds.mask(leaf.rate.no)[counted]
        total = totals.setdefault(leaf.where, np.zeros((2, len(yes))))
        total += coefficient * (yes.astype(float) - no), coefficient * no
    always = totals.pop(leaves[0].over, np.zeros((2, int(counted.sum()))))
    ends = list[float]()
    for m in measurement_range(leaves[0], label_range):
        sure, maybe = _values_at(always, m), [_values_at(total, m) for total in totals.values()]
        ends.append((sure + sum(np.minimum(each, 0) for each in maybe)).min())
        ends.append((sure + sum(np.maximum(each, 0) for each in maybe)).max())
    return float(min(ends)), float(max(ends))


def _values_at(total: Array, m: float) -> Array:
    """`slope * m + offset` of each kind of row, with 0 times infinity 0."""
    slope, offset = total
    scaled = np.multiply(slope, m, out=np.zeros_like(slope), where=slope != 0)
    return np.asarray(scaled + offset)


def measurement_range(leaf: Leaf, label_range: Interval) -> Interval:
    """Least and largest m of a row, where estimates lie in the range of the labels."""
    width = label_range[1] - label_range[0]
    known = {"error": (-width, width), "squared_error": (0.0, width**2)}
    return known.get(leaf.rate.of, leaf.rate.range)


def _all_row_kinds() -> Sample:
    """A row of every kind that a mask of the rate table can tell."""
    pairs = np.array(list(itertools.product((1.0, 0.0, math.nan), repeat=2)))
    names = np.full(len(pairs), "")
    return Sample({}, pairs[:, 0], names, names, np.ones(len(pairs)), pairs[:, 1])
