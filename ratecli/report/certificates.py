"""Results of safety tests, and a table of them."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report import sheet as st
from ratecli.report.groups import SeedGroup, group_by
from ratecli.report.templates import note


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
    def where(self) -> str:
        """The trial in words, such as `seldonian (main), amount = 100, seed 0`."""
        label, variant, _ = self.about
        name = f"{label} ({variant})" if variant else label
        point = st.format_point(self.trial.point)
        return ", ".join(filter(None, [name, point, f"seed {self.trial.seed}"]))

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


MAX_TREES = 12
"""Maximum number of trees of bounds in a report."""


def certificates_to_show(ledger: Ledger) -> list[TrialCertificate]:
    """Return the tests whose trees of bounds a report shows.

    These are, for each algorithm, variant and constraint, the first tested trial at the last
    tested sweep point.
    """
    found = []
    for own in group_by(collect_certificates(ledger), lambda each: each.about).values():
        *_, last = group_by(own, lambda each: repr(each.trial.point)).values()
        found.append(last[0])
    return found[:MAX_TREES]


def _certificates_by_group(ledger: Ledger) -> dict[tuple[str, str, str], list[TrialCertificate]]:
    """Return all safety tests by label, variant and sweep point, which is text."""
    return ledger.cached(
        "certificates by group",
        lambda: group_by(
            collect_certificates(ledger), lambda each: (*each.about[:2], repr(each.trial.point))
        ),
    )


def is_tested(ledger: Ledger, group: SeedGroup) -> bool | None:
    """Return whether a group was put to a safety test; None if no group was."""
    found = _certificates_by_group(ledger)
    return (group.label, group.variant, repr(group.point)) in found if found else None


def confidence_of_tests(ledger: Ledger, group: SeedGroup) -> dict[str, float]:
    """Return the smallest confidence of the group's safety tests, by constraint."""
    key = group.label, group.variant, repr(group.point)
    tests = group_by(_certificates_by_group(ledger).get(key, ()), lambda each: each.constraint)
    return {
        name: 1 - max(float(each.record["delta"]) for each in own) for name, own in tests.items()
    }


def certificate_sheet(ledger: Ledger) -> st.Sheet:
    """Return a row with the number of passes for each algorithm, variant, point and constraint."""
    certificates = collect_certificates(ledger)
    groups = group_by(certificates, lambda each: (*each.about, repr(each.trial.point)))
    rows = [_row(ledger, own) for own in groups.values()]
    path = any("candidates" in each.record for each in certificates)
    if not path:
        rows = [[cell for cell in row if cell[0] != "candidate"] for row in rows]
    several = _most_models(ledger, certificates)
    return st.make_sheet("Certificates", rows, note("certificates", several=several, path=path))


def _most_models(ledger: Ledger, certificates: Sequence[TrialCertificate]) -> int:
    """Return the largest number of models with a guarantee of their own and the same task and rows.

    Points of an algorithm's own sweep are one task.
    """
    names = set(ledger.experiment.get("sweep") or ())
    models = {
        (each.trial.key, each.about[1]): (
            each.trial.seed,
            repr([each.trial.point.get(name) for name in sorted(names)]),
        )
        for each in certificates
        if "models" not in each.record
    }
    return max(Counter(models.values()).values(), default=0)


def _row(ledger: Ledger, own: Sequence[TrialCertificate]) -> list[tuple[str, Any]]:
    label, variant, constraint = own[0].about
    passed = sum(each.passed for each in own)
    records = [each.record for each in own]
    models = records[0].get("models", 1)
    places = [each.get("candidate", 1) for each in records if each["passed"]]
    delta = f"{records[0]['delta'] * models:g} / {models}" if models > 1 else records[0]["delta"]
    of = statistics.median(each.get("candidates", 1) for each in records)
    return [
        ("algorithm", label),
        ("variant", variant),
        *((name, own[0].trial.point.get(name)) for name in ledger.sweep),
        ("constraint", constraint),
        ("delta", delta),
        ("bound", _distinct(each["bound"] for each in records)),
        ("confidence", _distinct("exact" if each["exact"] else "approximate" for each in records)),
        ("for", _distinct(each["classifier"] for each in records)),
        ("candidate", f"{statistics.median(places):g} of {of:g}" if places else "-"),
        ("passed", st.share_cell(passed, len(own), st.share_tone(passed, len(own)))),
        ("median upper bound", st.number_cell(statistics.median(each.upper for each in own))),
    ]


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))
