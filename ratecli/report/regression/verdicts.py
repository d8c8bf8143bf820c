"""Whether what moved since it was pinned is more than noise.

A metric *regressed* if its mean over seeds got worse by more than the tolerance, and the interval of
the difference does not reach back to 0. Where nothing but noise moves numbers, no metric of a file does so
with a probability of 95 % (Bonferroni over those that moved by more than the tolerance at some seed: no
other can). With fewer than `PLENTY` seeds nothing can be told from noise, and any difference beyond the
tolerance counts. A metric of which nobody says which way is better *changed* if that is so either way.

Seeds at which a number is undefined are left out, and told. Where noise does not explain that there are more
of them, the comparison cannot be made; where some metric might fail so, these tests have half of the 5 %.
Nor can it where some became undefined though nothing moves at the others, at no sweep point.
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
"""A tenth of a point. Other processors round otherwise, and what they turn is less: measured with the
kernels of five processors, rates of `experiments/adult-check.yaml` move by 0.0003 at most.
"""
HALF_A_POINT = 0.005
"""Of numbers beyond 1 a share, as the tolerance is."""
PIN_AGAIN = "if that is meant, pin again: `ratecli pin {file}`"
"""With a place for the file's path, which only the caller knows."""


@dataclass(frozen=True)
class ComparisonTerms:
    """What counts as a difference.

    `tolerance` is a number, of numbers beyond 1 a share; `better` says of metrics which way is; `rows` of
    splits, in their order, how many rows they have.
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
        """The tolerance of a number."""
        return self.tolerance * max(1.0, abs(was))


@dataclass(frozen=True)
class SeedSeries:
    """One comparison before it is made: numbers of all seeds, NaN where there is no finite one."""

    finding: Finding
    was: BySeed
    now: BySeed
    undefined: UndefinedSeeds

    @property
    def family(self) -> tuple[str, ...]:
        found = self.finding
        return found.algorithm, found.variant, found.split, found.metric


def judge_series(found: Sequence[Finding | SeedSeries], terms: ComparisonTerms) -> list[Finding]:
    """With a verdict for each series."""
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
    """How far a series moved, None where no seeds are left.

    Attributes
    ----------
    may_move
        Whether it moved by more than the tolerance at some seed, and has an interval.
    still
        Whether none of its family moved so.
    chance, least
        That noise leaves so many more seeds of its family undefined; and at the least.
    """

    series: SeedSeries
    difference: MeanDifference | None
    may_move: bool
    still: bool
    chance: float
    least: float

    @property
    def group(self) -> tuple[object, ...]:
        """Those whose seeds without a number are counted together."""
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
    """`odd` is the level of seeds without a number."""
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
    """With how many seeds half a point of a metric that gets better one way would show."""
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
