"""The confidence bounds there are, by name, and which of them suits which samples."""

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
    """Return the bound of a name; `auto` is the best exact one where ranges are known.

    `clopper_pearson` where all measurements are 0/1 (or at the ends of another range), `betting` for
    other finite ranges, and `student_t`, which is approximate, where a range is not known.

    A choice must not depend on the rows it is tested on. Ranges do not; whether measurements are 0/1
    is known of a deterministic classifier. Of a randomized one all probabilities could be 0 or 1 by
    chance: to be strict, choose by other rows' measurements or by moments.

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
    """Tell whether measurements are at the ends of their range; of moments, by the variance.

    No variance is larger at that mean; with n - 1 in its denominator it is a little more.
    """
    if isinstance(part, WeightedSample):
        return part.sample.binary
    low, high = part.range
    largest = (part.mean - low) * (high - part.mean)
    return part.deviation**2 >= largest - VARIANCE_TOLERANCE * (high - low) ** 2
