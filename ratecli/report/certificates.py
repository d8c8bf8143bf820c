"""Results of safety tests: a table of all tests, and the choice of the trees to draw."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.file_names import plot_file_name, unique_file_name
from ratecli.report.sheet import (
    Sheet,
    SheetCell,
    SheetColumn,
    format_number,
    format_scalar,
    identity_column,
    value_cell,
)

MAX_DRAWN = 12
"""Maximum number of trees in a report."""
CertificateKey = tuple[str, str, str]
"""Algorithm, variant and constraint."""
NOTE = (
    "A test passes if its upper end is at most 0. With a probability of at most delta, over the "
    "draw of the safety rows, a classifier passes that breaks the constraint: at most so where the "
    "bound is exact, nearly so with many rows where it is approximate. What passed holds for the "
    "classifier that is named: deterministic decisions, or randomized ones that are drawn anew, "
    "never a threshold on them."
)


@dataclass(frozen=True)
class TrialCertificate:
    """The test of one constraint for one variant of a trial; `record` as stored by the runner."""

    trial: PlannedTrial
    record: Mapping[str, Any]

    @property
    def about(self) -> CertificateKey:
        return self.trial.label, self.record.get("variant", ""), self.record["constraint"]

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
    rows: dict[tuple[str, ...], list[TrialCertificate]] = {}
    for each in collect_certificates(ledger):
        rows.setdefault((*each.about, repr(each.trial.point)), []).append(each)
    heads = (
        SheetColumn("algorithm"),
        SheetColumn("variant"),
        *(identity_column(ledger, n) for n in ledger.sweep),
    )
    columns = (
        *heads,
        SheetColumn("constraint"),
        SheetColumn("delta", numeric=True),
        *map(SheetColumn, ("bound", "which is", "for")),
        SheetColumn("passed", numeric=True),
        SheetColumn("median upper end", numeric=True),
    )
    return Sheet("Certificates", columns, tuple(_row(ledger, own) for own in rows.values()), NOTE)


def certificates_to_draw(ledger: Ledger) -> list[tuple[str, TrialCertificate]]:
    """Return the tests whose trees are drawn, by file name.

    These are, for each algorithm, variant and constraint, the first tested trial at the last
    tested sweep point. Main variants come first, so that further variants of one algorithm do not
    displace the main variant of another.
    """
    chosen: dict[CertificateKey, TrialCertificate] = {}
    for each in collect_certificates(ledger):
        known = chosen.get(each.about)
        if known is None or repr(known.trial.point) != repr(each.trial.point):
            chosen[each.about] = each
    plots = ledger.asked("plots")
    taken = {plot_file_name(plots, position) for position in range(len(plots))}
    named: dict[str, TrialCertificate] = {}
    for about in _mains_first(chosen)[:MAX_DRAWN]:
        named[
            unique_file_name("-".join(["certificate", *filter(None, about)]), taken | named.keys())
        ] = chosen[about]
    return list(named.items())


def _mains_first(every: Iterable[CertificateKey]) -> list[CertificateKey]:
    """Sort by variant rank, so that all main variants come first; otherwise keep the order."""
    ranks: dict[str, list[str]] = {}
    known = list(every)
    for label, variant, _ in known:
        if variant not in ranks.setdefault(label, []):
            ranks[label].append(variant)
    return sorted(known, key=lambda about: ranks[about[0]].index(about[1]))


def omitted_trees_note(ledger: Ledger) -> str:
    """Return a sentence on which trees are drawn and how many are omitted, or "" without tests."""
    every = {each.about for each in collect_certificates(ledger)}
    if not every:
        return ""
    of = "of the first trial at the last point of the sweep that was tested"
    left = len(every) - len(certificates_to_draw(ledger))
    return f"Trees {of}." if not left else f"Trees {of}; {left} more are not drawn."


def certificate_title(ledger: Ledger, certificate: TrialCertificate) -> str:
    """Return the title of a tree: constraint, algorithm, sweep point and seed."""
    label, variant, constraint = certificate.about
    trial = certificate.trial
    several = (
        len({each.about[1] for each in collect_certificates(ledger) if each.about[0] == label}) > 1
    )
    who = f"{label} ({variant})" if several else label
    point = [f"{name} = {format_scalar(value)}" for name, value in trial.point.items()]
    return f"{constraint}: {', '.join([who, *point, f'seed {trial.seed}'])}"


def _row(ledger: Ledger, own: Sequence[TrialCertificate]) -> tuple[SheetCell, ...]:
    label, variant, constraint = own[0].about
    point = own[0].trial.point
    passed = sum(each.passed for each in own)
    upper = statistics.median(each.upper for each in own)
    tone = "good" if passed == len(own) else "part" if passed else "bad"
    return (
        SheetCell(label),
        SheetCell(variant),
        *(value_cell(point.get(name)) for name in ledger.sweep),
        SheetCell(constraint),
        value_cell(own[0].record["delta"]),
        _distinct_values_cell(each.record["bound"] for each in own),
        _distinct_values_cell("exact" if each.record["exact"] else "approximate" for each in own),
        _distinct_values_cell(each.record["classifier"] for each in own),
        SheetCell(f"{passed} of {len(own)}", passed / len(own), tone),
        SheetCell(format_number(upper), upper),
    )


def _distinct_values_cell(found: Any) -> SheetCell:
    return SheetCell(", ".join(dict.fromkeys(map(str, found))))
