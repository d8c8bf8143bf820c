"""Predict the outcome of a safety test from moments of similar rows, and explain failed tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ratecli.certify.bound import Bound, BoundedSample, Measurements, SampleMoments
from ratecli.certify.bounds import choose_bound
from ratecli.certify.forms import FormRows
from ratecli.certify.trees import GoalTestPlan, OneSidedBound
from ratecli.models.base import Array
from ratecli.rates import expression as ex
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
    """The predicted outcome of a safety test: confidence limits, and the upper end of each tree.

    Attributes
    ----------
    moments, bounds
        Moments of the parts of every quantity, and its confidence bound.
    """

    plan: GoalTestPlan
    moments: tuple[tuple[SampleMoments, ...], ...]
    bounds: tuple[Bound, ...]

    @classmethod
    def of(
        cls,
        plan: GoalTestPlan,
        rows: Sequence[Sequence[FormRows]],
        measurements: Measurements,
        bound: str,
    ) -> ExpectedOutcome:
        """Return the outcome to expect on as many rows as these, the parts of every quantity."""
        moments = tuple(tuple(part.moments(measurements) for part in parts) for parts in rows)
        return cls(plan, moments, tuple(choose_bound(bound, parts) for parts in moments))

    def limit(self, bound: OneSidedBound) -> float:
        """Return one confidence limit, upper or lower."""
        parts = [
            replace(part, coefficient=bound.sign * part.coefficient)
            for part in self.moments[bound.quantity]
        ]
        return bound.sign * self.bounds[bound.quantity].predicted(parts, bound.delta).value

    def upper(self) -> Array:
        """Return (P,) the upper end of each tree."""
        return self.plan.upper(np.array([self.limit(each) for each in self.plan.bounds]))[0]

    def scaled(self, factor: float) -> ExpectedOutcome:
        """Return the outcome to expect with `factor` times as many rows."""
        moments = tuple(
            tuple(replace(part, rows=round(factor * part.rows)) for part in parts)
            for parts in self.moments
        )
        return replace(self, moments=moments)


MAX_ROWS_NEEDED = 10**9
"""Numbers of rows beyond this are reported as "more than"."""
ROWS_HALVINGS = 10
"""Halvings of a factor of at most 4: a relative precision of 0.0014."""
MIN_GROUP_ROWS = 2
"""Groups with fewer rows certify nothing: their deviation cannot be estimated."""


def is_unusable(sample: BoundedSample) -> bool:
    """Whether a sample certifies nothing: too few rows, or measurements that are not finite."""
    return sample.rows < MIN_GROUP_ROWS or not bool(np.isfinite(sample.values).all())


def explain_failure(
    expected: ExpectedOutcome,
    samples: Sequence[Sequence[BoundedSample]],
    ends: Array,
    estimates: Array,
    rows: int,
) -> str:
    """Explain in one or two sentences why a test was not passed.

    Parameters
    ----------
    expected
        Prediction from the moments of the tested rows themselves.
    samples
        The samples of every quantity.
    ends, estimates
        (P,) the upper end of each tree, and its value on the tested rows.
    rows
        The number of tested rows.
    """
    plan, worst = expected.plan, float(estimates.max())
    reached = f"'{plan.goal.name}': the upper bound reached {ends.max():.4g}, it must be at most 0"
    for form, parts in zip(plan.quantities, samples, strict=True):
        for sample in filter(is_unusable, parts):
            return f"{reached}; {_explain_unusable(ex.to_text(form.expression()), sample)}"
    if math.isnan(worst):
        return f"{reached}; on the safety rows its value is not defined"
    estimate = f"{reached}. Its estimate on the safety rows is {worst:.4g}"
    if worst >= 0:
        return f"{estimate} itself: no number of rows would be enough for this candidate"
    needed = rows_needed(expected, ends, estimates, rows)
    enough = f"more than {MAX_ROWS_NEEDED:,}" if needed is None else f"about {round_up(needed):,}"
    return (
        f"{estimate}: for this candidate to pass it would take {enough} safety rows "
        f"instead of {rows:,}"
    )


def _explain_unusable(name: str, sample: BoundedSample) -> str:
    if sample.rows < MIN_GROUP_ROWS:
        few = "1 safety row" if sample.rows == 1 else f"{sample.rows} safety rows"
        return f"{few} for '{name}': too few for any bound"
    not_finite = int((~np.isfinite(sample.values)).sum())
    return f"of {sample.rows:,} measurements for '{name}', {not_finite:,} are not finite numbers"


def rows_needed(
    expected: ExpectedOutcome, ends: Array, estimates: Array, rows: int
) -> float | None:
    """Return roughly how many safety rows it takes until all trees are expected to pass.

    Return None if it takes more than `MAX_ROWS_NEEDED`. The shares of the groups and the moments of
    the measurements are assumed to stay the same. The prediction for `rows` rows differs a little
    from what was measured, because bounds use more than moments, so the predicted distance of each
    end from its estimate is rescaled.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (ends - estimates) / (expected.upper() - estimates)
    scale = np.where(np.isfinite(ratios) & (ratios > 0), ratios, 1.0)

    def passes(factor: float) -> bool:
        widths = expected.scaled(factor).upper() - estimates
        return bool((estimates + scale * widths <= 0).all())

    factor = smallest_factor(passes, MAX_ROWS_NEEDED / rows, ROWS_HALVINGS)
    return None if factor is None else factor * rows


def smallest_factor(passes: Callable[[float], bool], most: float, halvings: int) -> float | None:
    """Return the smallest factor above 1 that passes; None if that is above `most`."""
    low, high = 1.0, 2.0
    while not passes(high):
        low, high = high, 4 * high
        if high > most:
            return None
    for _ in range(halvings):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def round_up(count: float, digits: int = 3) -> int:
    """Round up to `digits` significant digits."""
    unit: int = 10 ** max(math.floor(math.log10(max(count, 1))) + 1 - digits, 0)
    return math.ceil(count / unit) * unit
