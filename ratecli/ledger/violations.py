"""Whether constraints hold on new data, judged by the violations on the test sets of trials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from ratecli.ledger.records import CONSTRAINT_TOLERANCE, NEW_DATA_KEY, TrialResult

CONTRADICTION_LEVEL = 0.95
"""Confidence with which test sets must show that a constraint holds less often than stated."""


@dataclass(frozen=True)
class ViolationSample:
    """Violations of one constraint on the test sets of trials.

    Attributes
    ----------
    violations
        (n,) violations, at most 0 where the constraint is satisfied; NaN counts as violated.
    errors
        (n,) standard errors of the violations, because test sets are samples; NaN where unknown.
    level
        The probability with which the constraint should hold in the population, None if not stated.
    seeds
        Number of distinct seeds; trials with the same seed have the same rows.
    """

    violations: Sequence[float]
    errors: Sequence[float]
    level: float | None
    seeds: int

    @classmethod
    def of(cls, trials: Iterable[tuple[float, float, float | None, int]]) -> ViolationSample:
        """Return the sample of trials, each with violation, error, level and seed."""
        violations, errors, levels, seeds = zip(*trials, strict=True)
        stated = [level for level in levels if level is not None]
        level = min(stated) if len(stated) == len(levels) else None
        return cls(violations, errors, level, len(set(seeds)))

    @cached_property
    def share(self) -> float:
        """The estimated share of seeds for which the constraint holds in the population.

        Violations in the population are taken to be normal, with the variance on test sets less
        that of their sampling errors, and with an uncertain mean. If errors are unknown, it is the
        share on test sets.
        """
        if self._moments is None:
            return self._satisfied
        mean, spread, error = self._moments
        width = math.hypot(spread, error)
        return float(ndtr((CONSTRAINT_TOLERANCE - mean) / width)) if width else self._satisfied

    @property
    def keeps_level(self) -> bool:
        """Whether a level was stated, and test sets do not contradict it.

        They do if the mean violation, given how violations spread, is too large to be chance.
        """
        if self.level is None or self._moments is None:
            return self.level is not None and self._satisfied >= self.level
        mean, spread, error = self._moments
        excess = mean + float(ndtri(self.level)) * spread - CONSTRAINT_TOLERANCE
        return excess <= float(stdtrit(self.seeds - 1, CONTRADICTION_LEVEL)) * error

    @property
    def _satisfied(self) -> float:
        """The share of test sets on which the constraint is satisfied."""
        held = [each <= CONSTRAINT_TOLERANCE for each in self.violations]
        return sum(held) / len(held)

    @cached_property
    def _moments(self) -> tuple[float, float, float] | None:
        """Mean, standard deviation without the noise of test sets, standard error of the mean."""
        found, noise = np.array(self.violations), np.array(self.errors)
        if self.seeds < 2 or not (np.isfinite(found).all() and np.isfinite(noise).all()):
            return None
        variance = float(found.var(ddof=1))
        spread = math.sqrt(max(variance - float((noise**2).mean()), 0.0))
        return float(found.mean()), spread, math.sqrt(variance / self.seeds)


def violation_errors(result: TrialResult, variant: str) -> tuple[float | None, Mapping[str, float]]:
    """Return the level of a variant, if any was stated, and the errors of its violations.

    See `NEW_DATA_KEY`; the errors are by metric.
    """
    found = result.info.get(NEW_DATA_KEY) or {"levels": {}, "errors": {}}
    return found["levels"].get(variant), found["errors"].get(variant, {})
