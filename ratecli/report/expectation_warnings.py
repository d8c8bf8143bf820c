"""Expectations that do not hold, as warnings of a run."""

from __future__ import annotations

from itertools import groupby

from ratecli.errors import Diagnostic
from ratecli.ledger.view import Ledger
from ratecli.report.expectations import (
    ExpectationComparison,
    ExpectationVerdict,
    compare_expectations,
)
from ratecli.report.sheet import format_number, format_scalar

EXPECTED_WORDING = {"paper": "the paper has", "value": "expected is", "at_most": "expected is at most",
          "at_least": "expected is at least"}  # fmt: skip


def warn_unmet_expectations(ledger: Ledger) -> list[Diagnostic]:
    """A W501 for each expectation that some row differs from; what is not measured tells of itself."""
    found = []
    for _, rows in groupby(compare_expectations(ledger), key=lambda each: id(each.entry)):
        every = list(rows)
        apart = [each for each in every if each.verdict is ExpectationVerdict.DIFFERS]
        if apart:
            verb = "differs" if len(apart) == 1 else "differ"
            others = f", and {len(apart)} of {len(every)} rows {verb}" if len(every) > 1 else ""
            found.append(Diagnostic("W501", f"{_warning_text(apart[0])}{others}"))
    return found


def _warning_text(each: ExpectationComparison) -> str:
    """What ours is, of whom, and what it was to be."""
    entry, group = each.entry, each.group
    point = [f"{name} = {format_scalar(value)}" for name, value in group.point.items()]
    about = ", ".join([*filter(None, [group.variant]), *point, entry.split])
    ours = format_number(each.ours.mean if each.ours.mean is not None else float("nan"))
    within = f" within {format_scalar(entry.within)}" if entry.within is not None else ""
    wanted = f"{EXPECTED_WORDING[entry.kind]} {each.figure:g}{within}"
    return f"'{entry.metric}' of '{entry.algorithm}' is {ours} ({about}), {wanted}"
