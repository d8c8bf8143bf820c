"""Whether constraints hold on new data, judged by the violations on the test sets of trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from scipy.special import chdtri, ndtr, ndtri, stdtrit

from ratecli.ledger.records import CONSTRAINT_TOLERANCE, NEW_DATA_KEY, TrialResult, is_violated
from ratecli.models.base import Array

SMALLEST_WIDTH = 1e-12
"""Smallest standard deviation of a piece."""
DRAWS = 2000
"""Number of draws that estimate a share: its standard error is at most .0112."""
CONTRADICTION_LEVEL = 0.95
"""Confidence with which test sets must show that a constraint holds less often than stated."""


Pieces = Sequence[tuple[float, float]]
"""Parts of a violation, which is their maximum: values and standard errors on a test set."""


@dataclass(frozen=True)
class MeasuredViolation:
    """The violation of a constraint on the test set of a trial.

    Attributes
    ----------
    value
        At most 0 where the constraint is satisfied; NaN counts as violated.
    pieces
        The violation's parts, whose signs count; empty if they are unknown.
    level
        The probability with which the constraint should hold in the population, None if not stated.
    seed
        Trials with the same seed have the same rows.
    test
        An identifier of the test rows, and their share of all rows. Test sets of different seeds
        have that share of their rows in common, or all rows.
    """

    value: float
    pieces: Pieces
    level: float | None
    seed: int
    test: tuple[int, float] = (0, 0.0)


class ViolationSample:
    """The violations of one constraint in some trials, at least one.

    `confidence` is that of a safety test that all models passed, and the stated probability then.
    `fold_overlap` are the test rows of a fold as a multiple of its training rows, by which the
    variance of a mean is larger, see `report.groups.fold_overlap`; 0 without folds.
    """

    def __init__(
        self,
        trials: Iterable[MeasuredViolation],
        confidence: float | None = None,
        fold_overlap: float = 0.0,
    ) -> None:
        self.trials, self.confidence, self.fold_overlap = tuple(trials), confidence, fold_overlap
        self.seeds = len({each.seed for each in self.trials})
        sets, shares = zip(*(each.test for each in self.trials), strict=True)
        same = self.seeds > 1 and any(shares) and len(set(sets)) == 1
        self.overlap = 1.0 if same else float(np.mean(shares))

    @property
    def level(self) -> float | None:
        """The smallest stated probability; None unless all trials state one."""
        if self.confidence is not None:
            return self.confidence
        stated = [each.level for each in self.trials if each.level is not None]
        return min(stated) if len(stated) == len(self.trials) else None

    @cached_property
    def share(self) -> float:
        """The estimated share of seeds for which the constraint holds in the population.

        Pieces in the population are taken to be normal, with the variance on test sets less that of
        their sampling errors, and with an uncertain mean. Their correlations are those on test
        sets, as if one more seed had independent pieces: those of one small group are violated
        together. With one seed, it is the probability that its own model satisfies the constraint.
        If pieces are unknown, it is the share on test sets.
        """
        if self._moments is None:
            return self._satisfied
        mean, spread, error, _ = self._moments
        width = np.maximum(np.hypot(spread, error), SMALLEST_WIDTH)
        limits = (CONSTRAINT_TOLERANCE - mean) / width
        if len(limits) == 1:
            return float(ndtr(limits[0]))
        found = np.array([each.pieces for each in self.trials])[..., 0]
        apart = found - mean
        unit = apart / np.maximum(np.linalg.norm(apart, axis=0), SMALLEST_WIDTH)
        joint, own = _draws(len(found), len(limits))
        common = (1 - 1 / self.seeds) * (unit**2).sum(axis=0)  # 0 if all seeds have one value
        drawn = np.sqrt(1 - 1 / self.seeds) * (joint @ unit) + np.sqrt(1 - common) * own
        return float((drawn <= limits).all(axis=1).mean())

    @property
    def keeps_level(self) -> bool:
        """Whether a level was stated, and test sets do not contradict it."""
        return self.level is not None and self.may_hold(self.level)

    def may_hold(self, level: float) -> bool:
        """Whether test sets do not contradict that the constraint holds with a probability.

        They do if the mean of a piece is too large for the level by more than chance explains, even
        at the smallest spread that its values allow.
        """
        if self._moments is None:
            return self._satisfied >= level
        mean, _, error, spread = self._moments
        excess = mean + float(ndtri(level)) * spread - CONSTRAINT_TOLERANCE
        quantile = ndtri if self.seeds == 1 else partial(stdtrit, self.seeds - 1)
        return bool((excess <= float(quantile(CONTRADICTION_LEVEL)) * error).all())

    @property
    def _satisfied(self) -> float:
        """The share of test sets on which the constraint is satisfied."""
        held = [not is_violated(each.value) for each in self.trials]
        return sum(held) / len(held)

    @cached_property
    def _moments(self) -> tuple[Array, Array, Array, Array] | None:
        """Means (J,), standard deviations without the noise of test sets, errors of the means.

        The last are the smallest standard deviations that the values allow. Noise that all test
        sets share does not make values differ, but their mean uncertain. How much models differ
        between seeds is unknown with one seed, and taken to be 0.
        """
        counts = {len(each.pieces) for each in self.trials}
        if len(counts) > 1 or counts == {0}:
            return None
        found, noise = np.moveaxis(np.array([each.pieces for each in self.trials]), -1, 0)
        if not (np.isfinite(found).all() and np.isfinite(noise).all()):
            return None
        sampling = (noise**2).mean(axis=0)
        if self.seeds == 1:
            zero = np.zeros_like(sampling)
            return found.mean(axis=0), zero, np.sqrt(sampling), zero
        variance = found.var(axis=0, ddof=1)
        own, freedom = (1 - self.overlap) * sampling, self.seeds - 1
        smallest = variance * freedom / chdtri(freedom, 1 - CONTRADICTION_LEVEL)
        spread, least = (np.sqrt(np.maximum(each - own, 0.0)) for each in (variance, smallest))
        weight = 1 / self.seeds + self.fold_overlap
        error = np.sqrt(weight * variance + self.overlap * sampling)
        return found.mean(axis=0), spread, error, least


@lru_cache(maxsize=8)
def _draws(trials: int, pieces: int) -> tuple[Array, Array]:
    """Return standard normal draws from a fixed seed, (DRAWS, trials) and (DRAWS, pieces)."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(DRAWS, trials)), rng.normal(size=(DRAWS, pieces))


def measured_violation(
    result: TrialResult, variant: str, metric: str, value: float, seed: int
) -> MeasuredViolation:
    """Return the violation of a trial's variant, with what `NEW_DATA_KEY` has of it."""
    found = result.info.get(NEW_DATA_KEY) or {"levels": {}, "pieces": {}, "test": (0, 0.0)}
    pieces = found["pieces"].get(variant, {}).get(metric, ())
    identifier, share = found["test"]
    return MeasuredViolation(value, pieces, found["levels"].get(variant), seed, (identifier, share))
