"""What a safety test is expected to find, from moments of rows that are like those it will see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ratecli.certify.bounds import Bound, choose_bound
from ratecli.certify.forms import FormRows, independent_parts
from ratecli.certify.samples import Measurements, SampleMoments
from ratecli.certify.trees import GoalTestPlan, OneSidedBound
from ratecli.models.base import Array
from ratecli.rates.interval import Interval
from ratecli.rates.matrix import RateMatrix


@dataclass(frozen=True)
class CandidateRows:
    """The rows that a candidate was chosen on, and what it says of them.

    Attributes
    ----------
    rates
        Every rate of the goals on n rows, no others: the safety test sees as large a share of each
        group among its own rows.
    """

    rates: RateMatrix
    measurements: Measurements


@dataclass(frozen=True)
class ExpectedOutcome:
    """Limits and upper ends to be expected.

    Attributes
    ----------
    moments
        Of the parts of every quantity.
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
        """One confidence limit, upper or lower."""
        parts = self.moments[asked.quantity]
        turned = [replace(part, coefficient=asked.sign * part.coefficient) for part in parts]
        return asked.sign * self.bounds[asked.quantity].predicted(turned, asked.delta).value

    def upper(self) -> Array:
        """(P,) the upper end of each tree."""
        limits = np.array([self.limit(each) for each in self.tested.asked])
        return self.tested.upper(limits)[0]

    def scaled(self, share: float) -> ExpectedOutcome:
        """With so many times the rows."""
        moments = tuple(
            tuple(replace(part, rows=round(share * part.rows)) for part in parts)
            for parts in self.moments
        )
        return replace(self, moments=moments)


def quantity_rows(
    tested: GoalTestPlan, rates: RateMatrix, label_range: Interval
) -> list[tuple[FormRows, ...]] | None:
    """The independent parts of every quantity on given rows; None where one has none there.

    Raises what `forms.parts_of` raises.
    """
    found = [independent_parts(form, rates, label_range) for form in tested.quantities]
    known = [parts for parts in found if parts is not None]
    return known if len(known) == len(found) else None


def predict_outcome(
    tested: GoalTestPlan, rows: Sequence[Sequence[FormRows]], measurements: Measurements, bound: str
) -> ExpectedOutcome:
    """Of as many rows as these, given the parts of every quantity."""
    moments = (tuple(part.moments(measurements) for part in parts) for parts in rows)
    return ExpectedOutcome(tested, tuple(moments), bound)
