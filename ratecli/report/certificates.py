"""Results of safety tests, and a table of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.groups import group_by
from ratecli.report.sheet import Sheet, SheetRow, make_sheet, number_cell, share_cell, share_tone

NOTE = (
    "A test passes if the upper bound of its interval is at most 0. A classifier that violates the "
    "constraint passes with a probability of at most delta over the sampling of the safety rows. "
    "For an approximate bound, this holds approximately, if there are many rows. A passed test "
    "holds for the named kind of classifier: deterministic decisions, or randomized ones that are "
    "sampled anew each time, but not for a threshold on them."
)


@dataclass(frozen=True)
class TrialCertificate:
    """The test of one constraint for one variant of a trial; `record` as stored by the runner."""

    trial: PlannedTrial
    record: Mapping[str, Any]

    @property
    def constraint(self) -> str:
        return str(self.record["constraint"])

    @property
    def about(self) -> tuple[str, str, str]:
        """Algorithm, variant and constraint."""
        return self.trial.label, self.record.get("variant", ""), self.constraint

    @property
    def passed(self) -> bool:
        return bool(self.record["passed"])

    @property
    def upper(self) -> float:
        """The upper end of the interval; infinite if it is NaN."""
        found = float(self.record["upper"])
        return math.inf if math.isnan(found) else found


def collect_certificates(ledger: Ledger) -> list[TrialCertificate]:
    """Return all safety tests in the order of the plan."""
    return [
        TrialCertificate(trial, record)
        for trial in ledger.plan
        if (result := ledger.results.get(trial.key)) is not None
        for record in result.info.get("certificates") or ()
    ]


def certificate_sheet(ledger: Ledger) -> Sheet:
    """Return a row with the number of passes for each algorithm, variant, point and constraint."""
    certificates = collect_certificates(ledger)
    rows = group_by(certificates, lambda each: (*each.about, repr(each.trial.point)))
    return make_sheet("Certificates", [_row(ledger, own) for own in rows.values()], NOTE)


def _row(ledger: Ledger, own: Sequence[TrialCertificate]) -> SheetRow:
    label, variant, constraint = own[0].about
    passed = sum(each.passed for each in own)
    records = [each.record for each in own]
    return [
        ("algorithm", label),
        ("variant", variant),
        *((name, own[0].trial.point.get(name)) for name in ledger.sweep),
        ("constraint", constraint),
        ("delta", records[0]["delta"]),
        ("bound", _distinct(each["bound"] for each in records)),
        ("confidence", _distinct("exact" if each["exact"] else "approximate" for each in records)),
        ("for", _distinct(each["classifier"] for each in records)),
        ("passed", share_cell(passed, len(own), share_tone(passed, len(own)))),
        ("median upper bound", number_cell(statistics.median(each.upper for each in own))),
    ]


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))
