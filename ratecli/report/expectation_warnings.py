"""Expectations that do not hold, as warnings of a run."""

from __future__ import annotations

from itertools import groupby

from ratecli.errors import Fault
from ratecli.ledger.view import Ledger
from ratecli.report.expectations import Comparison, Verdict, comparisons
from ratecli.report.sheet import number, scalar

WANTED = {"paper": "the paper has", "value": "expected is", "at_most": "expected is at most",
          "at_least": "expected is at least"}  # fmt: skip


def differing(ledger: Ledger) -> list[Fault]:
    """A W501 for each expectation that some row differs from; what is not measured tells of itself."""
    found = []
    for _, rows in groupby(comparisons(ledger), key=lambda each: id(each.entry)):
        every = list(rows)
        apart = [each for each in every if each.verdict is Verdict.DIFFERS]
        if apart:
            verb = "differs" if len(apart) == 1 else "differ"
            others = f", and {len(apart)} of {len(every)} rows {verb}" if len(every) > 1 else ""
            found.append(Fault("W501", f"{_told(apart[0])}{others}"))
    return found


def _told(each: Comparison) -> str:
    """What ours is, of whom, and what it was to be."""
    entry, group = each.entry, each.group
    point = [f"{name} = {scalar(value)}" for name, value in group.point.items()]
    about = ", ".join([*filter(None, [group.variant]), *point, entry.split])
    ours = number(each.ours.mean if each.ours.mean is not None else float("nan"))
    within = f" within {scalar(entry.within)}" if entry.within is not None else ""
    wanted = f"{WANTED[entry.kind]} {each.figure:g}{within}"
    return f"'{entry.metric}' of '{entry.algorithm}' is {ours} ({about}), {wanted}"
