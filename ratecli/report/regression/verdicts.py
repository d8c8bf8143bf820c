"""Decide whether changes of pinned values exceed noise.

A metric *regressed* if its mean over seeds got worse by more than the tolerance and the interval of
the difference excludes 0. If only noise changes the values, then with a probability of 95 % no
metric of a file regresses (Bonferroni correction over the metrics that changed by more than the
tolerance at some seed: no other metric can regress). With fewer than `MIN_SEEDS` seeds, noise
cannot be estimated, and any difference beyond the tolerance counts. A metric without a known
direction of improvement *changed* if this holds in either direction.

Seeds with undefined values are left out and reported. If noise does not explain an increase in
their number, the comparison fails; if this is possible for any metric, these tests use half of the
5 %. It also fails if some values became undefined while all others are unchanged at all sweep
points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ratecli.config.base import SOLUTION_RATE
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.rates.metrics import Direction
from ratecli.report.regression.differences import (
    BySeed,
    MeanDifference,
    UndefinedSeeds,
    mean_differences,
    undefined_chance,
)
from ratecli.report.regression.findings import CheckVerdict, Finding

LEVEL = 0.95
TOLERANCE = 0.001
"""Default tolerance, 0.1 percentage points, because results differ slightly between CPUs.

With the kernels of five CPUs, rates of `experiments/adult-check.yaml` differ by at most 0.0003.
"""
HALF_A_POINT = 0.005
"""Half a percentage point; relative for values above 1, like the tolerance."""
PIN_AGAIN = "if that is meant, pin again: `ratecli pin {file}`"
"""Suggestion with a placeholder for the file's path, which only the caller knows."""


@dataclass(frozen=True)
class ComparisonTerms:
    """The terms of a comparison.

    `tolerance` is absolute, or relative for values above 1. `better` is the direction in which each
    metric improves. `rows` is the number of rows of each split, in the order of splits.
    """

    tolerance: float
    better: Mapping[str, Direction]
    rows: Mapping[str, int] = field(default_factory=dict)

    def of(self, metric: str) -> Direction:
        if metric.startswith(VIOLATION_PREFIX):
            return Direction.LOW
        return self.better.get(metric, Direction.EITHER)

    def directed(self, metric: str) -> bool:
        return self.of(metric) in {Direction.LOW, Direction.HIGH}

    def at(self, was: float) -> float:
        """Return the tolerance for a value."""
        return self.tolerance * max(1.0, abs(was))


@dataclass(frozen=True)
class SeedSeries:
    """The values of one comparison for all seeds; NaN if not finite."""

    finding: Finding
    was: BySeed
    now: BySeed
    undefined: UndefinedSeeds

    @property
    def family(self) -> tuple[str, ...]:
        found = self.finding
        return found.algorithm, found.variant, found.split, found.metric


def judge_series(found: Sequence[Finding | SeedSeries], terms: ComparisonTerms) -> list[Finding]:
    """Replace each series by its finding, with a verdict."""
    families: dict[tuple[str, ...], list[SeedSeries]] = {}
    for each in found:
        if isinstance(each, SeedSeries):
            families.setdefault(each.family, []).append(each)
    moved = {
        id(one.series): one for own in families.values() for one in _family_changes(own, terms)
    }
    reachable = {one.group for one in moved.values() if one.least <= 1 - LEVEL}
    level = (1 - LEVEL) / (2 if reachable else 1)
    tests = sum(one.may_move for one in moved.values())
    tails = level / max(1, tests), level / max(1, len(reachable))
    return [
        _verdict(moved[id(each)], *tails, terms) if isinstance(each, SeedSeries) else each
        for each in found
    ]


@dataclass(frozen=True)
class _SeriesChange:
    """The change of a series; `difference` is None if no seeds are left.

    Attributes
    ----------
    may_move
        Whether it changed by more than the tolerance at some seed and has an interval.
    still
        Whether no series of its family changed by more than the tolerance.
    chance, least
        The probability that noise leaves at least so many more seeds of the family undefined, and
        the smallest probability that could have been reached.
    """

    series: SeedSeries
    difference: MeanDifference | None
    may_move: bool
    still: bool
    chance: float
    least: float

    @property
    def group(self) -> tuple[object, ...]:
        """Identifies the series whose undefined seeds are counted together."""
        return self.series.undefined.paired, *self.series.family


def _family_changes(own: Sequence[SeedSeries], terms: ComparisonTerms) -> Iterator[_SeriesChange]:
    made = mean_differences([each.was for each in own], [each.now for each in own])
    far = [each is not None and each.largest > terms.at(each.was) for each in made]
    ways = {each.undefined.paired for each in own}
    chances = {
        way: undefined_chance([s.undefined for s in own if s.undefined.paired is way])
        for way in ways
    }
    for series, found, moves in zip(own, made, far, strict=True):
        may_move = moves and found is not None and found.error is not None
        yield _SeriesChange(
            series, found, may_move, not any(far), *chances[series.undefined.paired]
        )


def _verdict(moved: _SeriesChange, tail: float, odd: float, terms: ComparisonTerms) -> Finding:
    """Judge a series; `tail` is the level of its interval, `odd` the level for undefined values."""
    finding, found, lacking = moved.series.finding, moved.difference, moved.series.undefined
    lost = lacking.now - lacking.was
    if found is None:
        told = "no seed gave a number both times, and there are too few for two samples"
        way_out = PIN_AGAIN if lacking.moved else "give the file the seeds that are pinned"
        return replace(finding, told=told + _missing_seeds(lacking), way_out=way_out)
    if lacking.more and moved.chance <= odd:
        return replace(finding, told=f"it is {lacking.told}, more than noise explains")
    if lost and found.paired and moved.still:
        return replace(finding, told=f"it is {lacking.told}, though nothing moves at the others")
    directed = terms.directed(finding.metric)
    tail = tail if directed else tail / 2
    verdict = _judge(found, tail, finding.metric, terms)
    return replace(
        finding,
        verdict=verdict,
        was=found.was,
        now=found.now,
        interval=found.interval(tail),
        seeds=found.seeds,
        left_out=len(lacking.was) + len(lacking.now - lacking.was),
        needed=0 if lacking.paired else _needed(found, tail, finding.metric, terms),
        told=f"{_describe_method(found)}{_missing_seeds(lacking)}",
        remark=lacking.told if lacking.moved else "",
        way_out="" if verdict.good else PIN_AGAIN,
    )


def _judge(found: MeanDifference, tail: float, metric: str, terms: ComparisonTerms) -> CheckVerdict:
    low, high = found.interval(tail) or (found.value, found.value)
    if abs(found.value) <= terms.at(found.was) or low <= 0 <= high:
        return CheckVerdict.SAME
    if not terms.directed(metric):
        return CheckVerdict.CHANGED
    worse = found.value > 0 if terms.of(metric) is Direction.LOW else found.value < 0
    return CheckVerdict.REGRESSED if worse else CheckVerdict.IMPROVED


def _needed(found: MeanDifference, tail: float, metric: str, terms: ComparisonTerms) -> int:
    """Return how many seeds are needed to detect a loss of half a point, or 0 if not applicable."""
    if metric.startswith(VIOLATION_PREFIX) or metric == SOLUTION_RATE or not terms.directed(metric):
        return 0
    return found.needed(HALF_A_POINT * max(1.0, abs(found.was)), tail)


def _describe_method(found: MeanDifference) -> str:
    seeds = f"{found.seeds} seed{'s' * (found.seeds > 1)}"
    if not found.paired:
        return f"two samples of {seeds} or more"
    return f"paired over {seeds}" if found.error is not None else f"{seeds}: no interval"


def _missing_seeds(seeds: UndefinedSeeds) -> str:
    return f"; {seeds.told}" if seeds.was or seeds.now else ""
