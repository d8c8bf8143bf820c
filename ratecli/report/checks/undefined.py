"""Seeds at which a metric has no finite number: more of them than before, or only others?

A ratio has none where its denominator is 0, as that of a classifier that selects nobody. Solvers that
draw anew end there at other seeds each time, and that is noise. Without a change either side has such
seeds as often: of the seeds that changed sides, each went either way with a chance of 1/2 (McNemar's test),
and of other seeds those without a number are dealt to the sides at random (Fisher's).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ratecli.report.checks.differences import BySeed, matched, plenty


@dataclass(frozen=True)
class Undefined:
    """Of the trials that gave a classifier.

    Attributes
    ----------
    was, now
        How many seeds have no finite number.
    of_was, of_now
        Of how many.
    lost, gained
        How many had a number before and have none now, and the other way round.
    paired
        Whether the same seeds are compared.
    plenty
        Whether there are seeds enough to tell a loss from noise.
    """

    was: int
    of_was: int
    now: int
    of_now: int
    lost: int
    gained: int
    paired: bool
    plenty: bool

    @property
    def moved(self) -> bool:
        """Whether other seeds are undefined than before; of other seeds any may be."""
        return bool(self.lost or self.gained if self.paired else self.was or self.now)

    @property
    def chance(self) -> float:
        """That noise leaves so many more seeds undefined, or yet more."""
        return self._chance(self.lost if self.paired else self.now)

    @property
    def least(self) -> float:
        """The smallest chance that there could be with as many seeds that changed, or are undefined."""
        if self.paired:
            return self._chance(self.lost + self.gained)
        return self._chance(min(self.of_now, self.was + self.now))

    @property
    def told(self) -> str:
        return f"undefined at {self.now} of {self.of_now} seeds, {self.was} of {self.of_was} pinned"

    def _chance(self, count: int) -> float:
        if self.paired:
            changed = self.lost + self.gained
            return sum(math.comb(changed, k) for k in range(count, changed + 1)) / 2**changed
        without, total = self.was + self.now, self.of_was + self.of_now
        ways = (
            math.comb(without, k) * math.comb(total - without, self.of_now - k)
            for k in range(count, min(without, self.of_now) + 1)
        )
        return sum(ways) / math.comb(total, self.of_now)


def undefined(was: BySeed, now: BySeed, answered: tuple[BySeed, BySeed]) -> Undefined:
    """`was` and `now` are of all seeds; `answered` has the numbers of those with a classifier."""
    pairs = matched(was, now)
    common = answered[0].keys() & answered[1].keys()
    before, after = (common if pairs else each.keys() for each in answered)
    lacked = {seed for seed in before if not math.isfinite(answered[0][seed])}
    lacks = {seed for seed in after if not math.isfinite(answered[1][seed])}
    return Undefined(
        was=len(lacked),
        of_was=len(before),
        now=len(lacks),
        of_now=len(after),
        lost=len(lacks - lacked),
        gained=len(lacked - lacks),
        paired=pairs,
        plenty=plenty(was, now),
    )
