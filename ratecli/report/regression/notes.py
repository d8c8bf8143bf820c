"""What a check leaves out or cannot show, though it holds: told, and no failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratecli.config.document import Loc
from ratecli.ledger.view import Ledger
from ratecli.report.regression.differences import is_paired
from ratecli.report.regression.findings import CheckNote, Finding
from ratecli.report.regression.reference import Reference

MAX_NAMED_SEEDS = 6
"""Seeds that are listed; of more the first and the last."""
SEEDS_LOCATION: Loc = ("seeds",)
SEEDS_SUGGESTION = "give the file the seeds that are pinned, or pin again"


def check_notes(
    ledger: Ledger, known: Reference, findings: Sequence[Finding]
) -> Iterator[CheckNote]:
    """Of seeds, of numbers that are undefined at some, and of losses that are too small to show."""
    planned = {trial.seed for trial in ledger.plan}
    yield from seed_notes({seed for each in known.trials for seed in each.seeds}, planned)
    good = [each for each in findings if each.verdict.good and each.against == "reference"]
    if odd := [each for each in good if each.remark]:
        more = f", and {len(odd) - 1} more" if len(odd) > 1 else ""
        told = f"seeds are left out where a number is undefined: {odd[0].what} is {odd[0].remark}"
        yield CheckNote(
            told + more, "--format json says how many seeds each comparison left out", odd[0].loc
        )
    if wide := [each for each in _most_certain(good) if each.needed > each.seeds]:
        worst = max(wide, key=lambda each: each.needed)
        told = (
            f"half a point of {worst.what} takes about {worst.needed} seeds to show as two samples"
        )
        yield CheckNote(
            f"{told}, and there are {worst.seeds}",
            f"{SEEDS_SUGGESTION}: pairs show more",
            SEEDS_LOCATION,
        )


def _most_certain(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Of a metric of an answer that of the split where a loss shows first."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for each in findings:
        key = each.algorithm, each.variant, each.metric, repr(each.point)
        found.setdefault(key, []).append(each)
    return (min(own, key=lambda each: each.needed) for own in found.values())


def seed_notes(was: set[int], now: set[int]) -> Iterator[CheckNote]:
    """Where the file has not the seeds that are pinned."""
    both, gone, new = sorted(was & now), sorted(was - now), sorted(now - was)
    if not gone and not new:
        return
    if is_paired(*(dict.fromkeys(seeds, 0.0) for seeds in (was, now))):
        told = f"{len(both)} of {len(was)} seeds that are pinned are compared"
        told += f"; no longer in the file: {_listed(gone)}" if gone else ""
        told += f"; not pinned: {_listed(new)}" if new else ""
        yield CheckNote(told, SEEDS_SUGGESTION, SEEDS_LOCATION)
        return
    told = f"{len(both) or 'none'} of {len(now)} seeds are pinned: {len(was)} and {len(now)} are compared as two samples"
    yield CheckNote(told, SEEDS_SUGGESTION, SEEDS_LOCATION)


def _listed(seeds: Sequence[int]) -> str:
    if len(seeds) <= MAX_NAMED_SEEDS:
        return ", ".join(map(str, seeds))
    return f"{seeds[0]}, {seeds[1]}, ..., {seeds[-1]} ({len(seeds)})"
