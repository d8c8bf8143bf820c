"""What the file expects, as findings; the verdicts are those of `report.expectations`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratecli.config.expect import Expectation
from ratecli.ledger.view import Ledger
from ratecli.report import expectations
from ratecli.report.regression.findings import Finding, Verdict
from ratecli.report.sheet import scalar

VERDICTS = {
    expectations.Verdict.DIFFERS: Verdict.DIFFERS,
    expectations.Verdict.NOT_MEASURED: Verdict.NOT_COMPARED,
    expectations.Verdict.HOLDS: Verdict.HOLDS,
    expectations.Verdict.NOT_CONTRADICTED: Verdict.NOT_CONTRADICTED,
    expectations.Verdict.BETTER: Verdict.BETTER,
}
"""A figure that is only shown is no comparison."""
WAYS = {
    Verdict.DIFFERS: "find out what moved it, or correct what the file expects",
    Verdict.NOT_COMPARED: "see trials.csv for how the trials ended",
}


def expected(ledger: Ledger, entries: Sequence[Expectation]) -> Iterator[Finding]:
    """By entry, then by row that it is about."""
    for each in expectations.comparisons(ledger):
        if each.verdict in VERDICTS:
            verdict, entry = VERDICTS[each.verdict], each.entry
            yield Finding(
                verdict,
                "expect",
                algorithm=each.group.label,
                variant=each.group.variant,
                point=each.group.point,
                split=entry.split,
                metric=entry.metric,
                was=each.figure,
                now=each.ours.mean,
                seeds=each.ours.n,
                told=_told(each),
                way_out=WAYS.get(verdict, ""),
                loc=("expect", entries.index(entry)),
            )


def _told(each: expectations.Comparison) -> str:
    if each.reason:
        return f"not measured, {each.reason}"
    entry = each.entry
    wanted = f"expected {expectations.SIGNS[entry.kind]}{each.figure:g}"
    within = "" if entry.within is None else f" within {scalar(entry.within)}"
    return f"{wanted}{within}" + (f" ({entry.source})" if entry.source else "")
