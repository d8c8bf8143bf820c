"""Predict the outcome of a safety test from moments of similar rows, and explain failed tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ratecli.certify.bound import Measurements, SampleMoments, WeightedSample
from ratecli.certify.bounds import Bound, choose_bound
from ratecli.certify.forms import FormRows, independent_parts
from ratecli.certify.trees import GoalTestPlan, OneSidedBound
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.interval import Interval
from ratecli.rates.matrix import RateMatrix


@dataclass(frozen=True)
class CandidateRows:
    """The rows that a candidate was chosen on, and its outputs on them.

    Attributes
    ----------
    rates
        Every rate of the goals on these n rows only. Each group is assumed to have the same share
        among the rows of the safety test.
    """

    rates: RateMatrix
    measurements: Measurements


@dataclass(frozen=True)
class ExpectedOutcome:
    """Confidence limits and upper ends to expect.

    Attributes
    ----------
    moments
        Moments of the parts of every quantity.
    bound
        The name of the confidence bound, or `auto`.
    """

    tested: GoalTestPlan
    moments: tuple[tuple[SampleMoments, ...], ...]
    bound: str

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """The confidence bound of each quantity."""
        return tuple(choose_bound(self.bound, parts) for parts in self.moments)

    def limit(self, asked: OneSidedBound) -> float:
        """Return one confidence limit, upper or lower."""
        parts = self.moments[asked.quantity]
        turned = [replace(part, coefficient=asked.sign * part.coefficient) for part in parts]
        return asked.sign * self.bounds[asked.quantity].predicted(turned, asked.delta).value

    def upper(self) -> Array:
        """Return (P,) the upper end of each tree."""
        limits = np.array([self.limit(each) for each in self.tested.asked])
        return self.tested.upper(limits)[0]

    def scaled(self, share: float) -> ExpectedOutcome:
        """Return the outcome to expect with `share` times as many rows."""
        moments = tuple(
            tuple(replace(part, rows=round(share * part.rows)) for part in parts)
            for parts in self.moments
        )
        return replace(self, moments=moments)


def quantity_rows(
    tested: GoalTestPlan, rates: RateMatrix, label_range: Interval
) -> list[tuple[FormRows, ...]] | None:
    """Return the independent parts of every quantity on given rows; None if one has none there.

    Raises the same errors as `forms.independent_parts`.
    """
    found = [independent_parts(form, rates, label_range) for form in tested.quantities]
    known = [parts for parts in found if parts is not None]
    return known if len(known) == len(found) else None


def predict_outcome(
    tested: GoalTestPlan, rows: Sequence[Sequence[FormRows]], measurements: Measurements, bound: str
) -> ExpectedOutcome:
    """Return the outcome to expect on as many rows as these, given the parts of every quantity."""
    moments = (tuple(part.moments(measurements) for part in parts) for parts in rows)
    return ExpectedOutcome(tested, tuple(moments), bound)


MAX_ROWS_NEEDED = 10**9
"""Numbers of rows beyond this are reported as "more than"."""
ROWS_PRECISION = 2e-3
"""Relative precision of the number of rows needed."""
MIN_GROUP_ROWS = 2
"""Groups with fewer rows certify nothing: their deviation cannot be estimated."""


def is_unusable(part: WeightedSample) -> bool:
    """Whether a sample certifies nothing: too few rows, or measurements that are not finite."""
    values = part.sample.values
    return len(values) < MIN_GROUP_ROWS or not bool(np.isfinite(values).all())


def explain_failure(
    expected: ExpectedOutcome,
    parts: Sequence[Sequence[WeightedSample]],
    ends: Array,
    estimates: Array,
    rows: int,
) -> str:
    """Explain in one or two sentences why a test was not passed.

    Parameters
    ----------
    expected
        Prediction from the moments of the tested rows themselves.
    parts
        The samples of every quantity.
    ends, estimates
        (P,) the upper end of each tree, and its value on the tested rows.
    rows
        The number of tested rows.
    """
    name = expected.tested.goal.name
    reached = f"'{name}': the upper bound reached {_format_value(ends.max())}, it must be at most 0"
    for form, samples in zip(expected.tested.quantities, parts, strict=True):
        for part in filter(is_unusable, samples):
            return f"{reached}; {_explain_unusable(ex.to_text(form.expression()), part)}"
    worst = float(estimates.max())
    if math.isnan(worst):
        return f"{reached}; on the safety rows its value is not defined"
    if worst >= 0:
        return (
            f"{reached}. Its estimate on the safety rows is {_format_value(worst)} itself: "
            "no number of rows would be enough for this candidate"
        )
    needed = rows_needed(expected, ends, estimates, rows)
    enough = f"more than {MAX_ROWS_NEEDED:,}" if needed is None else f"about {_round_up(needed):,}"
    return (
        f"{reached}. Its estimate on the safety rows is {_format_value(worst)}: "
        f"for this candidate to pass it would take {enough} safety rows instead of {rows:,}"
    )


def _explain_unusable(what: str, part: WeightedSample) -> str:
    size = len(part.sample.values)
    if size < MIN_GROUP_ROWS:
        found = f"{size} safety row{'' if size == 1 else 's'}"
        return f"{found} for '{what}' {'is' if size == 1 else 'are'} too few for any bound"
    broken = int((~np.isfinite(part.sample.values)).sum())
    return f"of {size:,} measurements for '{what}', {broken:,} are not finite numbers"


def rows_needed(expected: ExpectedOutcome, ends: Array, estimates: Array, rows: int) -> int | None:
    """Return roughly how many safety rows it takes until all trees are expected to pass.

    None beyond `MAX_ROWS_NEEDED`. Groups keep their shares of the rows, and measurements their
    moments. The prediction for `rows` rows differs a little from what was found, because bounds use
    more than moments, so the predicted distance of each end from its estimate is rescaled to match.
    """
    if rows < 1 or not (estimates < 0).all():
        return None

    def width(count: int) -> Array:
        return np.asarray(expected.scaled(count / rows).upper() - estimates)

    with np.errstate(divide="ignore", invalid="ignore"):
        found = (ends - estimates) / width(rows)
    unit = np.where(np.isfinite(found) & (found > 0), found, 1.0)

    def passes(count: int) -> bool:
        return bool((estimates + unit * width(count) <= 0).all())

    low, high = rows, 2 * rows
    while not passes(high):
        low, high = high, 2 * high
        if low > MAX_ROWS_NEEDED:
            return None
    while high - low > max(high * ROWS_PRECISION, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def _round_up(count: int) -> int:
    """Round up to three digits."""
    unit = int(10 ** max(len(str(count)) - 3, 0))
    return -(-count // unit) * unit


def _format_value(value: float) -> str:
    return f"{value:.4g}"
