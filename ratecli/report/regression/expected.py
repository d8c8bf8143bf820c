"""What the file expects, as findings; the verdicts are those of `report.expectations`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratecli.config.expect import Expectation
from ratecli.ledger.view import Ledger
from ratecli.report import expectations
from ratecli.report.regression.findings import CheckVerdict, Finding
from ratecli.report.sheet import format_scalar

CHECK_VERDICTS = {
    expectations.ExpectationVerdict.DIFFERS: CheckVerdict.DIFFERS,
    expectations.ExpectationVerdict.NOT_MEASURED: CheckVerdict.NOT_COMPARED,
    expectations.ExpectationVerdict.HOLDS: CheckVerdict.HOLDS,
    expectations.ExpectationVerdict.NOT_CONTRADICTED: CheckVerdict.NOT_CONTRADICTED,
    expectations.ExpectationVerdict.BETTER: CheckVerdict.BETTER,
}
"""A figure that is only shown is no comparison."""
SUGGESTIONS = {
    CheckVerdict.DIFFERS: "find out what moved it, or correct what the file expects",
    CheckVerdict.NOT_COMPARED: "see trials.csv for how the trials ended",
}


def expectation_findings(ledger: Ledger, entries: Sequence[Expectation]) -> Iterator[Finding]:
    """By entry, then by row that it is about."""
    for each in expectations.compare_expectations(ledger):
        if each.verdict in CHECK_VERDICTS:
            verdict, entry = CHECK_VERDICTS[each.verdict], each.entry
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
                told=_finding_text(each),
                way_out=SUGGESTIONS.get(verdict, ""),
                loc=("expect", entries.index(entry)),
            )


def _finding_text(each: expectations.ExpectationComparison) -> str:
    if each.reason:
        return f"not measured, {each.reason}"
    entry = each.entry
    wanted = f"expected {expectations.SIGNS[entry.kind]}{each.figure:g}"
    within = "" if entry.within is None else f" within {format_scalar(entry.within)}"
    return f"{wanted}{within}" + (f" ({entry.source})" if entry.source else "")
