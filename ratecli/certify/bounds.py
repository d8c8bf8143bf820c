"""Registry of confidence bounds by name, and the choice of a bound for given samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ratecli.certify.bernstein import EmpiricalBernstein
from ratecli.certify.betting import Betting
from ratecli.certify.binomial import ClopperPearson
from ratecli.certify.bootstrap import Bootstrap
from ratecli.certify.bound import Bound, SampleMoments, WeightedSample
from ratecli.certify.hoeffding import Hoeffding
from ratecli.certify.student import StudentT

__all__ = ["AUTO", "BOUNDS", "Bound", "choose_bound"]

AUTO: Final = "auto"
VARIANCE_TOLERANCE = 1e-9
_EXACT: Final = (ClopperPearson(), Betting(), EmpiricalBernstein(), Hoeffding())
_APPROXIMATE: Final = (StudentT(), Bootstrap())
BOUNDS: dict[str, Bound] = {bound.name: bound for bound in (*_EXACT, *_APPROXIMATE)}


def choose_bound(name: str, parts: Sequence[WeightedSample] | Sequence[SampleMoments]) -> Bound:
    """Return the bound of a name; `auto` chooses the best exact one if ranges are known.

    That is `clopper_pearson` if all measurements are 0/1 (or at the ends of another range) and
    `betting` for other finite ranges. For unknown ranges, `auto` is `student_t`, which is
    approximate.

    The choice must not depend on the tested rows. Ranges do not, and a deterministic classifier is
    known to have 0/1 measurements. The probabilities of a randomized one could all be 0 or 1 by
    chance: to be strict, choose by measurements of other rows or by moments.

    Raises
    ------
    KeyError
        If there is no bound of that name.
    """
    if name != AUTO:
        return BOUNDS[name]
    needed = [part for part in parts if part.coefficient != 0]
    if not all(math.isfinite(end) for part in needed for end in _range(part)):
        return BOUNDS["student_t"]
    return BOUNDS["clopper_pearson" if all(map(_binary, needed)) else "betting"]


def _range(part: WeightedSample | SampleMoments) -> tuple[float, float]:
    return part.range if isinstance(part, SampleMoments) else part.sample.range


def _binary(part: WeightedSample | SampleMoments) -> bool:
    """Whether all measurements are at the ends of their range; for moments, judged by the variance.

    Such measurements have the largest possible variance for their mean (slightly more with n - 1 in
    the denominator).
    """
    if isinstance(part, WeightedSample):
        return part.sample.binary
    low, high = part.range
    largest = (part.mean - low) * (high - part.mean)
    return part.deviation**2 >= largest - VARIANCE_TOLERANCE * (high - low) ** 2
