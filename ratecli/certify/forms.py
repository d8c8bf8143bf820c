"""Affine combinations of rates as sums of independent samples whose means are bounded jointly.

Rows are sampled independently. Given how many of them fall into each of several disjoint groups,
the measurements within a group are independent, and independent of those in other groups, so they
can share one bound on `sum of coefficient * mean`. Rates over the same rows are combined into one
measurement per row, so that common terms cancel row by row. Rates of groups that overlap in any
other way have no joint bound here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.certify.base import BoundedSample
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates.affine import Affine
from ratecli.rates.expression import Leaf, Slice
from ratecli.rates.functions import Interval
from ratecli.rates.matrix import Measurements, RateMatrix
from ratecli.rates.sample import Mask, Sample
from ratecli.rates.table import OTHER, Measurement, return_key

ROUNDING = 1e-9
"""Tolerance for measurements outside their range by rounding, relative to the range's width."""
AVAILABILITY_MASKS = frozenset({"all", "labelled", "deployed", "logged"})
"""Masks of the rows that have a label, a deployed decision or a logged decision."""


@dataclass(frozen=True)
class MeasuredRows:
    """n rows, with the outputs of a classifier on them.

    Attributes
    ----------
    rates
        Every rate of some goals on these rows only.
    measurements
        The classifier's outputs.
    label_range
        Minimum and maximum label; infinite if unknown.
    """

    rates: RateMatrix
    measurements: Measurements
    label_range: Interval


@dataclass(frozen=True)
class FormRows:
    """`coefficient` times the mean of `slope * m + offset` over the rows of one group.

    Attributes
    ----------
    rows
        (n_g,) indices of the group's rows among those of the rate matrix, ascending.
    slope, offset
        (n_g,) map m to the measurement of each row: 1 or -1, and 1 or 0, if the group has one rate.
    of
        Which measurement m is.
    range
        Minimum and maximum of `slope * m + offset` over all rows that could occur.
    """

    coefficient: float
    rows: NDArray[np.intp]
    slope: Array
    offset: Array
    of: Measurement
    range: Interval

    def one_sided(self, signs: Collection[int]) -> FormRows:
        """Return the part measured such that the end that bounds of these signs need is known.

        The returns of episodes have no largest value, as importance weights have none. For a lower
        bound, the return above the smallest one is measured, which is never negative; for an upper
        bound, the return below the largest one (`models.policy.EpisodeReturns`).
        """
        name, _, outcome = self.of.partition("(")
        if name not in {"return", "return_ordinary"}:
            return self
        low, high = self.range
        if name == "return_ordinary" or len(signs) != 1:
            return replace(self, range=(-math.inf, math.inf))
        upper = next(iter(signs)) * self.coefficient > 0
        key = return_key("return_below" if upper else "return_above", outcome[:-1])
        known = math.isfinite(high if upper else low)
        if not known:
            return replace(self, range=(-math.inf, math.inf))
        return replace(self, of=key, range=(-math.inf, high) if upper else (low, math.inf))

    def values(self, measurements: Measurements) -> Array:
        """Return (n_g,) the measurement of each row."""
        return np.asarray(self.slope * measurements[self.of][self.rows] + self.offset, dtype=float)

    def measured(self, measurements: Measurements) -> BoundedSample:
        """Return the sample to bound.

        If a row was measured outside the assumed range, as with estimates that are not clipped to
        the range of the labels, the range becomes infinite on that side.
        """
        values = self.values(measurements)
        low, high = self.range
        known = np.nan_to_num(values)
        width = high - low
        slack = ROUNDING * (width if math.isfinite(width) else 1 + np.abs(known).max(initial=0))
        if not (known >= low - slack).all():
            low = -math.inf
        if not (known <= high + slack).all():
            high = math.inf
        return BoundedSample(np.clip(values, low, high), (low, high), self.coefficient)


def independent_parts(
    form: Affine, rates: RateMatrix, label_range: Interval
) -> tuple[FormRows, ...]:
    """Return a form without its constant as a sum of independent parts.

    The form must have `disjoint_groups` on these rows. Rates share a sample if, judging by their
    definitions, they measure the same thing on the same rows. Slices that differ by definition are
    distinct even if no given row tells them apart, because rare rows may. Whether rows have a label
    or a deployed decision, and whether slices are disjoint, is judged by the given rows;
    `trees.plan_goal_test` documents which rows these are.

    Raises
    ------
    FaultError
        E411 if the rows of a rate have different weights.
    """
    groups = disjoint_groups(form, rates)
    assert groups is not None
    return tuple(_form_rows(form, leaves, rates, label_range) for leaves in groups)


def disjoint_groups(form: Affine, rates: RateMatrix) -> list[list[Leaf]] | None:
    """Return the rates of a form, grouped by their rows; None if groups overlap.

    Raises the same errors as `independent_parts`.
    """
    taken = np.zeros(rates.members.shape[1], dtype=bool)
    groups = list[tuple[Mask, list[Leaf]]]()
    for leaf in form.coefficients:
        own = _row_weights(leaf, rates) != 0
        for rows, leaves in groups:
            if _same_measurement(leaves[0], leaf) and np.array_equal(rows, own):
                leaves.append(leaf)
                break
        else:
            if (taken & own).any():
                return None
            taken |= own
            groups.append((own, [leaf]))
    return [leaves for _, leaves in groups]


def _same_measurement(one: Leaf, other: Leaf) -> bool:
    """Whether two rates measure the same rows, apart from rows without a label or decision."""
    if (one.rate.of, one.over) != (other.rate.of, other.over):
        return False
    words = {*one.rate.among.split("&"), *other.rate.among.split("&")}
    return one.rate.among == other.rate.among or words <= AVAILABILITY_MASKS


def _row_weights(leaf: Leaf, rates: RateMatrix) -> Array:
    """Return (n,) the weights of the rows that a rate averages over, which must be equal, or 0."""
    weights = _matrix_row(rates.members, leaf, rates)
    if len(np.unique(weights[weights != 0])) > 1:
        message = (
            f"the rows of '{leaf}' have different weights, and a safety test counts rows alike"
        )
        help_ = "leave 'weight' out of the data set, or turn the test off: 'safety: false'"
        raise FaultError(Diagnostic("E411", message, help_))
    return weights


def _matrix_row(matrix: sparse.csr_array, leaf: Leaf, rates: RateMatrix) -> Array:
    return np.asarray(matrix[[rates.index()[leaf]]].toarray()[0], dtype=float)


def _form_rows(
    form: Affine, leaves: Sequence[Leaf], rates: RateMatrix, label_range: Interval
) -> FormRows:
    weights = _row_weights(leaves[0], rates)
    rows = np.flatnonzero(weights)
    outer = form.coefficients[leaves[0]] if len(leaves) == 1 else 1.0
    inner = [form.coefficients[leaf] / outer for leaf in leaves]
    slope, offset = np.zeros((2, len(rows)))
    for leaf, coefficient in zip(leaves, inner, strict=True):
        slope += coefficient * _matrix_row(rates.sums, leaf, rates)[rows] / weights[rows]
        offset += coefficient * _matrix_row(rates.against, leaf, rates)[rows] / weights[rows]
    range_ = _measured_range(leaves, inner, label_range)
    return FormRows(outer, rows, slope, offset, leaves[0].rate.of, range_)


def _measured_range(
    leaves: Sequence[Leaf], coefficients: Sequence[float], label_range: Interval
) -> Interval:
    """Return the extremes of a row's measurement, over all kinds of rows and both ends of m.

    For rates that are shares of all rows, a row may be in any combination of their slices.
    """
    if not all(leaf.rate.counts_rows and not leaf.rate.outcome for leaf in leaves):
        return _range_of_outcomes(leaves, coefficients)
    # one row of every kind that masks of the rate table can distinguish
    pairs = np.array(list(itertools.product((1.0, 0.0, math.nan), repeat=2)))
    names = np.full(len(pairs), "")
    kinds = Sample({}, pairs[:, 0], names, names, np.ones(len(pairs)), pairs[:, 1])
    counted = np.all([kinds.mask(leaf.rate.among) for leaf in leaves], axis=0)
    if not counted.any():  # two rates of no rows, which are equal only for that reason
        return -math.inf, math.inf
    rest = np.zeros(2)  # another algorithm may decide in any way
    totals: dict[Slice, Array] = {}
    for leaf, coefficient in zip(leaves, coefficients, strict=True):
        if leaf.rate.yes == OTHER:
            rest += np.sort(coefficient * np.array(measurement_range(leaf, label_range)))
            continue
        yes, no = kinds.mask(leaf.rate.yes)[counted], kinds.mask(leaf.rate.no)[counted]
        total = totals.setdefault(leaf.where, np.zeros((2, len(yes))))
        total += coefficient * (yes.astype(float) - no), coefficient * no
    always = totals.pop(leaves[0].over, np.zeros((2, int(counted.sum()))))
    ends = list[float]()
    for m in measurement_range(leaves[0], label_range):
        sure, maybe = _values_at(always, m), [_values_at(total, m) for total in totals.values()]
        ends.append((sure + sum(np.minimum(each, 0) for each in maybe)).min())
        ends.append((sure + sum(np.maximum(each, 0) for each in maybe)).max())
    return float(min(ends) + rest[0]), float(max(ends) + rest[1])


def _range_of_outcomes(leaves: Sequence[Leaf], coefficients: Sequence[float]) -> Interval:
    """Return the extremes of a row's measurement if rates count logged outcomes.

    The extremes of the rates are added, which may give a wider range than necessary.
    """
    low = high = 0.0
    for leaf, coefficient in zip(leaves, coefficients, strict=True):
        own = leaf.rate.range if leaf.rate.of == "decision" else leaf.rate.ends
        ends = [coefficient * end if end else 0.0 for end in own]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _values_at(total: Array, m: float) -> Array:
    """Return `slope * m + offset` for each kind of row, with 0 * infinity = 0."""
    slope, offset = total
    scaled = np.multiply(slope, m, out=np.zeros_like(slope), where=slope != 0)
    return np.asarray(scaled + offset)


def measurement_range(leaf: Leaf, label_range: Interval) -> Interval:
    """Return the minimum and maximum m of a row, for estimates within the range of the labels."""
    width = label_range[1] - label_range[0]
    known = {"error": (-width, width), "squared_error": (0.0, width**2)}
    return known.get(leaf.rate.of, leaf.rate.range)
