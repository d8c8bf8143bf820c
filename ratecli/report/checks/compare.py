"""An experiment's results against the reference that is pinned.

A metric *regressed* if its mean over seeds got worse by more than the tolerance, and the interval of
the difference does not reach back to 0. Where nothing but noise moves numbers, no metric of a file does so
with a probability of 95 % (Bonferroni over those that moved by more than the tolerance at some seed: no
other can). With fewer than `PLENTY` seeds nothing can be told from noise, and any difference beyond the
tolerance counts. A metric of which nobody says which way is better *changed* if that is so either way.

Violations count from 0 up: room that is left is nobody's loss. That trials found a solution is
compared as the metric `solution_rate`. A seed at which a number is undefined is left out, and told. A
comparison cannot be made, and fails, where no seeds are left, where more of them are undefined than noise
explains (an exact test, one more of those that share the 5 %), and where some became undefined though
nothing moved at the others, or though there are fewer than `PLENTY`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ratecli.rates.direction import Direction
from ratecli.report.checks.differences import BySeed, Difference, differences
from ratecli.report.checks.findings import Finding, Verdict
from ratecli.report.checks.reference import (
    OBJECTIVE,
    Pinned,
    Place,
    Reference,
    digests,
    pinned,
    points,
)
from ratecli.report.checks.standing import ENDED
from ratecli.report.checks.undefined import Undefined, undefined
from ratecli.report.ledger import Ledger
from ratecli.report.outcomes import ANSWERED
from ratecli.runner.records import VIOLATION
from ratecli.spec.document import Loc
from ratecli.spec.names import SOLUTION_RATE

LEVEL = 0.95
TOLERANCE = 0.001
"""A tenth of a point. Other processors round otherwise, and what they turn is less: measured with the
kernels of five processors, rates of `experiments/adult-check.yaml` move by 0.0003 at most.
"""
PIN_AGAIN = "if that is meant, pin again: `ratecli pin {file}`"
"""With a place for the file's path, which only the caller knows."""


@dataclass(frozen=True)
class Terms:
    """What counts as a difference.

    `tolerance` is a number, of numbers beyond 1 a share; `better` says of metrics which way is.
    """

    tolerance: float
    better: Mapping[str, Direction]

    def of(self, metric: str) -> Direction:
        if metric.startswith(VIOLATION):
            return Direction.LOW
        return self.better.get(metric, Direction.EITHER)


@dataclass(frozen=True)
class _Series:
    """One comparison before it is made: numbers of all seeds, NaN where there is no finite one."""

    finding: Finding
    was: BySeed
    now: BySeed
    undefined: Undefined

    @property
    def family(self) -> tuple[str, ...]:
        found = self.finding
        return found.algorithm, found.variant, found.split, found.metric


def compare(ledger: Ledger, reference: Reference, terms: Terms) -> list[Finding]:
    """Every number against the pinned one, in the order of the plan."""
    other = list(_other_data(ledger, reference))
    now = (pinned(ledger, point) for point in points(ledger))
    return other or compared(now, reference.trials, terms)


def compared(now: Iterable[Pinned], was: Iterable[Pinned], terms: Terms) -> list[Finding]:
    """Results of the same data, in the order of `now`; what there is no more of comes last."""
    known = {each.key: each for each in was}
    found: list[Finding | _Series] = []
    for each in now:
        found += _of_point(each, known.pop(each.key, None))
    gone = "it is pinned and no longer in the file"
    return _judged([*found, *(_not_compared(each, gone) for each in known.values())], terms)


def _other_data(ledger: Ledger, reference: Reference) -> Iterator[Finding]:
    """Where rows are others, numbers may differ for that alone."""
    now, was = digests(ledger), reference.data
    for name in sorted(now.keys() | was.keys()):
        if name not in was:
            told = "is not pinned"
        elif name not in now:
            told = "is pinned and no longer in the file"
        elif now[name] != was[name]:
            told = "is not what was pinned: its file or its options are others"
        else:
            continue
        told = f"data set '{name}' {told}"
        loc: Loc = ("datasets", name)
        yield Finding(Verdict.NOT_COMPARED, "reference", told=told, way_out=PIN_AGAIN, loc=loc)


def _of_point(now: Pinned, was: Pinned | None) -> Iterator[Finding | _Series]:
    """All comparisons of an algorithm at a sweep point."""
    if was is None:
        yield _not_compared(now, "it is not pinned")
        return
    if not ENDED.issuperset(now.statuses):
        return  # `standing.unanswered` tells of it
    silent = [seed for seed, status in now.status.items() if status not in ANSWERED]
    if new := [seed for seed in silent if was.status.get(seed) != now.status[seed]]:
        listed = ", ".join(f"{now.status[seed]} at seed {seed}" for seed in new)
        yield _not_compared(now, f"it is {listed}, which is not pinned")
        return
    yield _solutions(now, was)
    before, after = was.numbers, now.numbers
    for place in [*before, *(place for place in after if place not in before)]:
        found = _at(now, place)
        if place not in after and after:
            yield replace(found, told="it is pinned and no longer measured")
        elif place not in before and before:
            yield replace(found, told="it is not pinned")
        elif place in after and place in before:
            yield _series(found, (was.seeds, before[place]), (now.seeds, after[place]))


def _series(found: Finding, *sides: tuple[Sequence[int], BySeed]) -> Finding | _Series:
    """Of the seeds of either side and the numbers of those with a classifier."""
    floor = 0.0 if found.metric.startswith(VIOLATION) else -math.inf
    was, now = (
        {s: max(own[s], floor) if math.isfinite(own.get(s, math.nan)) else math.nan for s in seeds}
        for seeds, own in sides
    )
    (_, before), (_, after) = sides
    lacking = undefined(was, now, (before, after))
    if not lacking.plenty:
        for seed in before.keys() & after.keys():
            if not _alike(before[seed], after[seed]):
                told = f"it is {after[seed]:g} at seed {seed}, and {before[seed]:g} is pinned"
                return replace(found, told=told)
    if not any(map(math.isfinite, [*before.values(), *after.values()])):
        return replace(found, verdict=Verdict.SAME, told="undefined, as it is pinned")
    return _Series(found, was, now, lacking)


def _alike(before: float, after: float) -> bool:
    """Whether both are finite, or neither is and they are the same."""
    if math.isfinite(before) or math.isfinite(after):
        return math.isfinite(before) and math.isfinite(after)
    return before == after or (math.isnan(before) and math.isnan(after))


def _solutions(now: Pinned, was: Pinned) -> _Series:
    """1 for each trial that gave a classifier, 0 for one that did not."""
    sides = []
    for each in (was, now):
        solved = {seed for numbers in each.numbers.values() for seed in numbers}
        sides.append({seed: float(seed in solved) for seed in each.seeds})
    found = _at(now, ("", "", SOLUTION_RATE))
    return _Series(found, *sides, undefined(*sides, (sides[0], sides[1])))


def _judged(found: Sequence[Finding | _Series], terms: Terms) -> list[Finding]:
    """With a verdict for each series."""
    families: dict[tuple[str, ...], list[_Series]] = {}
    for each in found:
        if isinstance(each, _Series):
            families.setdefault(each.family, []).append(each)
    moved: dict[int, _Moved] = {}
    for own in families.values():
        made = differences([each.was for each in own], [each.now for each in own])
        still = all(each is None or each.largest <= _tolerance(each, terms) for each in made)
        moved |= {id(e): _Moved(e, found, still) for e, found in zip(own, made, strict=True)}
    tests = sum(each.tests(terms) for each in moved.values())
    tail = (1 - LEVEL) / max(1, tests)
    return [
        _verdict(moved[id(each)], tail, terms) if isinstance(each, _Series) else each
        for each in found
    ]


@dataclass(frozen=True)
class _Moved:
    """How far a series moved, None where no seeds are left; `still` where none of its family did."""

    series: _Series
    difference: Difference | None
    still: bool

    def tests(self, terms: Terms) -> int:
        """How many of the two tests could fail: of the difference, and of seeds without a number."""
        found = self.difference
        if found is None:
            return 0
        reachable = self.series.undefined.least <= 1 - LEVEL
        return reachable + (found.error is not None and found.largest > _tolerance(found, terms))


def _tolerance(found: Difference, terms: Terms) -> float:
    return terms.tolerance * max(1.0, abs(found.was))


def _verdict(moved: _Moved, tail: float, terms: Terms) -> Finding:
    finding, found, lacking = moved.series.finding, moved.difference, moved.series.undefined
    seeds = f"; it is {lacking.told}" if lacking.moved else ""
    if found is None:
        told = "no seed gave a number both times, and there are too few for two samples"
        way_out = PIN_AGAIN if lacking.moved else "give the file the seeds that are pinned"
        return replace(finding, told=told + seeds, way_out=way_out)
    if lacking.chance <= tail:
        return replace(finding, told=f"it is {lacking.told}, more than noise explains")
    if lacking.lost and found.paired and moved.still:
        return replace(finding, told=f"it is {lacking.told}, and nothing moves at the others")
    better = terms.of(finding.metric)
    directed = better in {Direction.LOW, Direction.HIGH}
    low, high = found.interval(tail if directed else tail / 2) or (found.value, found.value)
    enough = abs(found.value) > _tolerance(found, terms) and (low > 0 or high < 0)
    verdict = Verdict.SAME
    if enough and directed:
        worse = found.value > 0 if better is Direction.LOW else found.value < 0
        verdict = Verdict.REGRESSED if worse else Verdict.IMPROVED
    elif enough:
        verdict = Verdict.CHANGED
    return replace(
        finding,
        verdict=verdict,
        was=found.was,
        now=found.now,
        interval=None if found.error is None else (low, high),
        seeds=found.seeds,
        told=f"{_how(found)}{seeds}",
        way_out="" if verdict.good else PIN_AGAIN,
    )


def _how(found: Difference) -> str:
    seeds = f"{found.seeds} seed{'s' * (found.seeds > 1)}"
    if not found.paired:
        return f"two samples of {seeds} or more"
    return f"paired over {seeds}" if found.error is not None else f"{seeds}: no interval"


def _at(now: Pinned, place: Place) -> Finding:
    """A comparison that is not made yet."""
    variant, split, metric = place
    return replace(
        _not_compared(now, ""),
        variant=variant,
        split=split,
        metric=metric,
        loc=_loc(metric),
    )


def _loc(metric: str) -> Loc:
    if metric.startswith(VIOLATION):
        return "constraints", metric.removeprefix(VIOLATION)
    if metric == SOLUTION_RATE:
        return ("algorithms",)
    return (metric,) if metric == OBJECTIVE else ("metrics", metric)


def _not_compared(each: Pinned, told: str) -> Finding:
    return Finding(
        Verdict.NOT_COMPARED,
        "reference",
        algorithm=each.algorithm,
        point=each.point,
        told=told,
        way_out=PIN_AGAIN,
        loc=("algorithms",),
    )
