"""Seeds at which a metric has no finite number: more of them than before, or only others?

A ratio has none where its denominator is 0, as that of a classifier that selects nobody. Solvers that
draw anew end there at other seeds each time, and that is noise. Without a change either side has such
seeds as often. Of a metric at all sweep points, a seed counts once: of those that are undefined at more
points than before, or at fewer, each went either way with a chance of 1/2 (McNemar's test); where seeds
are others, those that are undefined anywhere are dealt to the sides at random (Fisher's).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ratecli.report.regression.differences import BySeed, enough_seeds, is_paired


@dataclass(frozen=True)
class UndefinedSeeds:
    """Of a metric at one sweep point, and of the trials that gave a classifier.

    Attributes
    ----------
    was, now
        The seeds without a finite number.
    before, after
        All of them.
    paired
        Whether the same seeds are compared.
    plenty
        Whether there are seeds enough to tell a loss from noise.
    """

    was: frozenset[int]
    now: frozenset[int]
    before: frozenset[int]
    after: frozenset[int]
    paired: bool
    plenty: bool

    @property
    def moved(self) -> bool:
        """Whether other seeds are undefined than before; of other seeds any may be."""
        return self.was != self.now if self.paired else bool(self.was or self.now)

    @property
    def more(self) -> bool:
        """Whether a greater share of seeds is undefined than before."""
        return len(self.now) * len(self.before) > len(self.was) * len(self.after)

    @property
    def told(self) -> str:
        before, after = len(self.before), len(self.after)
        return f"undefined at {len(self.now)} of {after} seeds, {len(self.was)} of {before} pinned"


def compare_undefined(was: BySeed, now: BySeed, answered: tuple[BySeed, BySeed]) -> UndefinedSeeds:
    """`was` and `now` are of all seeds; `answered` has the numbers of those with a classifier."""
    pairs = is_paired(was, now)
    common = answered[0].keys() & answered[1].keys()
    seeds = [frozenset(common if pairs else each) for each in answered]
    lacking = [
        frozenset(seed for seed in own if not math.isfinite(numbers[seed]))
        for own, numbers in zip(seeds, answered, strict=True)
    ]
    return UndefinedSeeds(
        was=lacking[0],
        now=lacking[1],
        before=seeds[0],
        after=seeds[1],
        paired=pairs,
        plenty=enough_seeds(was, now),
    )


def undefined_chance(points: Sequence[UndefinedSeeds]) -> tuple[float, float]:
    """That noise leaves so many more seeds undefined, or yet more; and the least that this could be.

    `points` are all paired or none is.
    """
    if points[0].paired:
        steps: Counter[int] = Counter()
        for each in points:
            steps.update(each.now)
            steps.subtract(each.was)
        more = sum(step > 0 for step in steps.values())
        moved = more + sum(step < 0 for step in steps.values())
        return _binomial_tail(more, moved), _binomial_tail(moved, moved)
    was, now, before, after = (
        len(frozenset().union(*sets))
        for sets in zip(*((p.was, p.now, p.before, p.after) for p in points), strict=True)
    )
    sizes = was + now, before + after, after
    return _hypergeometric_tail(now, *sizes), _hypergeometric_tail(min(was + now, after), *sizes)


def _binomial_tail(heads: int, thrown: int) -> float:
    """The chance of so many heads or more."""
    ways = sum(math.comb(thrown, k) for k in range(heads, thrown + 1))
    return float(ways / 2**thrown)


def _hypergeometric_tail(marked: int, all_marked: int, cards: int, hand: int) -> float:
    """The chance of so many marked cards or more in a hand."""
    ways = (
        math.comb(all_marked, k) * math.comb(cards - all_marked, hand - k)
        for k in range(marked, min(all_marked, hand) + 1)
    )
    return sum(ways) / math.comb(cards, hand)
