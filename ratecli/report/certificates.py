"""What safety tests certified: a table of all tests, and those whose trees are drawn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.ledger.records import Planned
from ratecli.ledger.view import Ledger
from ratecli.report.file_names import file_name, plot_name
from ratecli.report.identity import column
from ratecli.report.sheet import Cell, Column, Sheet, number, plain, scalar

MOST_DRAWN = 12
"""Trees in a report."""
About = tuple[str, str, str]
"""Algorithm, variant and constraint."""
NOTE = (
    "A test passes if its upper end is at most 0. With a probability of at most delta, over the draw of "
    "the safety rows, a classifier passes that breaks the constraint: at most so where the bound is "
    "exact, nearly so with many rows where it is approximate. What passed holds for the classifier that "
    "is named: deterministic decisions, or randomized ones that are drawn anew, never a threshold on them."
)


@dataclass(frozen=True)
class Certificate:
    """One test of one constraint, of one variant of one trial; `record` as the runner stored it."""

    trial: Planned
    record: Mapping[str, Any]

    @property
    def about(self) -> About:
        return self.trial.label, self.record.get("variant", ""), self.record["constraint"]

    @property
    def passed(self) -> bool:
        return bool(self.record["passed"])

    @property
    def upper(self) -> float:
        """What is no number is as bad as can be."""
        found = float(self.record["upper"])
        return math.inf if math.isnan(found) else found


def certificates(ledger: Ledger) -> list[Certificate]:
    """All tests that were made, in the order of the plan."""
    return [
        Certificate(trial, record)
        for trial in ledger.plan
        if (result := ledger.results.get(trial.key)) is not None
        for record in result.info.get("certificates") or ()
    ]


def certificate_sheet(ledger: Ledger) -> Sheet:
    """One row for each algorithm, variant, sweep point and constraint: how many seeds passed."""
    rows: dict[tuple[str, ...], list[Certificate]] = {}
    for each in certificates(ledger):
        rows.setdefault((*each.about, repr(each.trial.point)), []).append(each)
    heads = (Column("algorithm"), Column("variant"), *(column(ledger, n) for n in ledger.sweep))
    columns = (
        *heads, Column("constraint"), Column("delta", numeric=True),
        *map(Column, ("bound", "which is", "for")),
        Column("passed", numeric=True), Column("median upper end", numeric=True),
    )  # fmt: skip
    return Sheet("Certificates", columns, tuple(_row(ledger, own) for own in rows.values()), NOTE)


def drawn(ledger: Ledger) -> list[tuple[str, Certificate]]:
    """The tests whose trees are drawn, each with the name of its files: for each algorithm, variant and
    constraint the first trial at the last point of the sweep that was tested.

    Main variants come first, so that no algorithm is left out for the others of another.
    """
    chosen: dict[About, Certificate] = {}
    for each in certificates(ledger):
        known = chosen.get(each.about)
        if known is None or repr(known.trial.point) != repr(each.trial.point):
            chosen[each.about] = each
    plots = ledger.asked("plots")
    taken = {plot_name(plots, position) for position in range(len(plots))}
    named: dict[str, Certificate] = {}
    for about in _mains_first(chosen)[:MOST_DRAWN]:
        named[file_name("-".join(["certificate", *filter(None, about)]), taken | named.keys())] = (
            chosen[about]
        )
    return list(named.items())


def _mains_first(every: Iterable[About]) -> list[About]:
    """All first variants before all second ones, otherwise in the same order."""
    ranks: dict[str, list[str]] = {}
    known = list(every)
    for label, variant, _ in known:
        if variant not in ranks.setdefault(label, []):
            ranks[label].append(variant)
    return sorted(known, key=lambda about: ranks[about[0]].index(about[1]))


def undrawn(ledger: Ledger) -> str:
    """A sentence on the trees that are left out, if any are."""
    every = {each.about for each in certificates(ledger)}
    if not every:
        return ""
    of = "of the first trial at the last point of the sweep that was tested"
    left = len(every) - len(drawn(ledger))
    return f"Trees {of}." if not left else f"Trees {of}; {left} more are not drawn."


def heading(ledger: Ledger, certificate: Certificate) -> str:
    """Of whom a tree is."""
    label, variant, constraint = certificate.about
    trial = certificate.trial
    several = len({each.about[1] for each in certificates(ledger) if each.about[0] == label}) > 1
    who = f"{label} ({variant})" if several else label
    point = [f"{name} = {scalar(value)}" for name, value in trial.point.items()]
    return f"{constraint}: {', '.join([who, *point, f'seed {trial.seed}'])}"


def _row(ledger: Ledger, own: Sequence[Certificate]) -> tuple[Cell, ...]:
    label, variant, constraint = own[0].about
    point = own[0].trial.point
    passed = sum(each.passed for each in own)
    upper = statistics.median(each.upper for each in own)
    tone = "good" if passed == len(own) else "part" if passed else "bad"
    return (
        Cell(label),
        Cell(variant),
        *(plain(point.get(name)) for name in ledger.sweep),
        Cell(constraint),
        plain(own[0].record["delta"]),
        _words(each.record["bound"] for each in own),
        _words("exact" if each.record["exact"] else "approximate" for each in own),
        _words(each.record["classifier"] for each in own),
        Cell(f"{passed} of {len(own)}", passed / len(own), tone),
        Cell(number(upper), upper),
    )


def _words(found: Any) -> Cell:
    return Cell(", ".join(dict.fromkeys(map(str, found))))
