"""The measured numbers of a run as one data frame, and means and shares with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv, stdtrit

from ratecli.ledger.records import VIOLATION_PREFIX, is_violated
from ratecli.ledger.view import Ledger

LEVEL = 0.95
"""Confidence of intervals."""
SATISFIED, UNKNOWN, VIOLATED = range(3)
"""Values of the column `violated`, in the order in which several constraints are combined."""


@dataclass(frozen=True)
class IntervalEstimate:
    """A mean with its confidence interval; `n` counts the values used, `nan` the ones left out.

    A mean has a Student-t interval of half-width `half`, which requires at least two values, all
    finite. Without values there is no mean. A share of trials has an exact interval, which is
    asymmetric: it has no `half`.
    """

    mean: float | None
    n: int
    nan: int = 0
    low: float | None = None
    high: float | None = None
    half: float | None = None

    @property
    def finite(self) -> bool:
        return self.mean is not None and math.isfinite(self.mean)

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    def negated(self) -> IntervalEstimate:
        mean, low, high = (None if x is None else -x for x in (self.mean, self.high, self.low))
        return replace(self, mean=mean, low=low, high=high)


NO_ESTIMATE = IntervalEstimate(None, 0)


def results_frame(ledger: Ledger) -> pd.DataFrame:
    """Return a row for each measured number, sorted by plan, variant and split.

    Columns: `trial` (the position in the plan), `variant`, `split`, `metric`, `value`, and
    `violated` for violations of constraints, which is NaN for other metrics. An undefined violation
    is unknown, except on the training set, where the constraint was enforced.
    """
    return ledger.cached("frame", lambda: _results_frame(ledger))


def _results_frame(ledger: Ledger) -> pd.DataFrame:
    rows = [
        (at, variant, split, metric, value)
        for at, trial in enumerate(ledger.plan)
        for variant, numbers in ledger.numbers(trial).items()
        for (split, metric), value in numbers.items()
    ]
    frame = pd.DataFrame(rows, columns=["trial", "variant", "split", "metric", "value"])
    frame = frame.astype({"value": float})
    known = np.where(frame["value"].map(is_violated), VIOLATED, SATISFIED).astype(float)
    known[frame["value"].isna() & (frame["split"] != "train")] = UNKNOWN
    return frame.assign(violated=np.where(_is_violation(frame["metric"]), known, np.nan))


def _is_violation(metric: pd.Series) -> pd.Series:
    return metric.str.startswith(VIOLATION_PREFIX).astype(bool)


def count_violations(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return how often constraints are `SATISFIED` and `VIOLATED` (columns), in each group.

    The index has the names `by`, `split` and `constraint`, which is empty for all constraints
    together: one that is violated counts before one that is unknown.
    """
    found = frame[frame["violated"].notna()]
    own = found.assign(constraint=found["metric"].str.removeprefix(VIOLATION_PREFIX))
    every = own.groupby([*by, "trial", "split"], as_index=False)["violated"].max()
    both = pd.concat([own, every.assign(constraint="")])
    kinds = pd.get_dummies(both["violated"]).reindex(columns=[SATISFIED, VIOLATED], fill_value=0)
    keys = [both[name] for name in (*by, "split", "constraint")]
    count: pd.DataFrame = kinds.astype(int).groupby(keys).sum()
    return count


def mean_estimates(values: Any) -> pd.DataFrame:
    """Return the means of grouped values, with the fields of `IntervalEstimate` as columns.

    They are NaN where `IntervalEstimate` has None.
    """
    with np.errstate(invalid="ignore"):  # infinite values have no spread
        found = values.agg(["mean", "std", "count", "size", "min", "max"])
    found.columns = pd.Index(["mean", "spread", "n", "size", "least", "most"])
    equal = found["least"] == found["most"]  # their mean and spread may have rounding errors
    mean = found["mean"].mask(equal, found["least"])
    quantile = stdtrit(np.maximum(found["n"] - 1, 1), (1 + LEVEL) / 2)
    half = quantile * found["spread"].mask(equal, 0.0) / np.sqrt(found["n"])
    half = half.where((found["n"] > 1) & np.isfinite(mean))
    low, high, nan = mean - half, mean + half, found["size"] - found["n"]
    return pd.DataFrame(
        {"mean": mean, "n": found["n"], "nan": nan, "low": low, "high": high, "half": half}
    )


def as_estimates(frame: pd.DataFrame) -> list[IntervalEstimate]:
    """Return the rows of `mean_estimates`."""
    return [
        IntervalEstimate(
            mean if n else None,
            int(n),
            int(nan),
            *(None if math.isnan(x) else x for x in interval),
        )
        for mean, n, nan, *interval in frame.itertuples(index=False)
    ]


def estimate_mean(values: Iterable[float]) -> IntervalEstimate:
    """Return the estimate of a mean from values of which NaN is left out."""
    column = pd.Series(list(values), dtype=float)
    found = as_estimates(mean_estimates(column.groupby(np.zeros(len(column)))))
    return found[0] if found else NO_ESTIMATE


def estimate_share(count: float, n: float, unknown: int = 0) -> IntervalEstimate:
    """Estimate a share, `count` of `n`, with the interval of Clopper and Pearson (1934).

    `unknown` is the number of trials left out of both.
    """
    if not n:
        return IntervalEstimate(None, 0, unknown)
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return IntervalEstimate(count / n, round(n), unknown, low, high)
