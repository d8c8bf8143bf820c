"""Compare results with the expectations of the experiment file.

The mean over seeds of the measured value is compared with the expected figure, given a tolerance t.
t is `within` (a percentage is relative to the figure; `ci` is half the width of the measured 95 %
interval). The measured value

- holds for `paper` and `value` if it lies within t of the figure;
- does not contradict them with `ci` if the interval contains the figure, which wide intervals do
  easily;
- holds for `at_most` if it is at most the bound + t, and for `at_least` if it is at least the
  bound - t: with `ci`, if the interval reaches the right side of the bound;
- is `better` than `paper` if it is lower by more than t and lower is better, which is known for the
  objective, violations and failure rates. For other metrics it `differs`.

The interval of `solution_rate` and `failure_rate` is the exact interval of a share of trials.
Without `within`, t is 0 for a bound, and a figure of a paper is shown without a verdict.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from ratecli.config.report import CONFIDENCE_INTERVAL, Expectation
from ratecli.config.sweep import has_values
from ratecli.errors import Diagnostic
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.frame import IntervalEstimate
from ratecli.report.groups import (
    SeedGroup,
    group_by,
    is_failure,
    same_points,
    seed_groups,
    select_variant,
)
from ratecli.report.sheet import (
    Sheet,
    SheetCell,
    SheetRow,
    format_number,
    format_point,
    format_scalar,
    format_signed,
    identity_cells,
    identity_columns,
    make_sheet,
    number_cell,
    status_cell,
)

NOT_JUDGED = "not judged"
"""Shown in place of a verdict for a paper's figure without a tolerance."""
ROUNDING = 1e-9
"""Floating-point tolerance of comparisons, relative to the figure if it is above 1."""
SIGNS = {"paper": "paper ", "value": "= ", "at_most": "≤ ", "at_least": "≥ "}
NOTE = (
    "Measured: the mean over seeds with its 95 % interval, which is exact for shares of trials. "
    "holds: within the tolerance that the file states, or on the right side of the bound (ci: the "
    "measured interval reaches that side); not contradicted: the measured interval (ci) contains "
    "the figure, which a wide interval does easily; better: below the paper's objective, violation "
    "or failure rate by more than the tolerance; not judged: the file states no tolerance."
)


class Verdict(StrEnum):
    """The result of a comparison with an expected or a pinned number, in display order.

    `SHOWN` is a paper's figure displayed without a verdict.
    """

    NOT_COMPARED = "not compared"
    DIFFERS = "differs"
    NOT_MEASURED = "not measured"
    REGRESSED = "regressed"
    CHANGED = "changed"
    IMPROVED = "improved"
    BETTER = "better"
    NOT_CONTRADICTED = "not contradicted"
    SAME = "same"
    HOLDS = "holds"
    SHOWN = ""

    @property
    def compared(self) -> bool:
        return self not in {Verdict.NOT_COMPARED, Verdict.NOT_MEASURED}

    @property
    def good(self) -> bool:
        """Whether the verdict lets a check pass."""
        failing = {Verdict.DIFFERS, Verdict.REGRESSED, Verdict.CHANGED}
        return self.compared and self not in failing

    @property
    def text(self) -> str:
        return str(self) or NOT_JUDGED

    @property
    def tone(self) -> str:
        """The tone of cells."""
        return ("good" if self.good else "bad") if self else "none"


@dataclass(frozen=True)
class ExpectationComparison:
    """One expectation compared with one group of trials that it applies to."""

    entry: Expectation
    group: SeedGroup

    @property
    def figure(self) -> float:
        return float(getattr(self.entry, self.entry.kind))

    @property
    def target(self) -> str:
        """The expected number with its tolerance, such as `≤ 0.22 within ci`."""
        within = "" if self.entry.within is None else f" within {format_scalar(self.entry.within)}"
        return f"{SIGNS[self.entry.kind]}{self.figure:g}{within}"

    @cached_property
    def measured(self) -> IntervalEstimate:
        return self.group.estimate(self.entry.split, self.entry.metric)

    @property
    def verdict(self) -> Verdict:
        kind, within = self.entry.kind, self.entry.within
        if self.measured.mean is not None and kind == "paper" and within is None:
            return Verdict.SHOWN
        accepted = self._accepted_range()
        if accepted is None:
            return Verdict.NOT_MEASURED
        not_above = kind == "at_least" or accepted[0] <= self.figure
        not_below = kind == "at_most" or self.figure <= accepted[1]
        if not_above and not_below:
            bound = within != CONFIDENCE_INTERVAL or kind in {"at_most", "at_least"}
            return Verdict.HOLDS if bound else Verdict.NOT_CONTRADICTED
        metric = self.entry.metric
        less_is_better = (
            metric == "objective" or metric.startswith(VIOLATION_PREFIX) or is_failure(metric)
        )
        better = kind == "paper" and less_is_better and (self.measured.mean or 0.0) < self.figure
        return Verdict.BETTER if better else Verdict.DIFFERS

    def _accepted_range(self) -> tuple[float, float] | None:
        """Return the range that must contain the figure, or None without an interval.

        This is the measured interval for `ci`, else the mean plus and minus the tolerance.
        """
        within, mean, ends = self.entry.within or 0.0, self.measured.mean, self.measured.interval
        if within != CONFIDENCE_INTERVAL and mean is not None:
            if isinstance(within, str):
                within = float(within.rstrip("% ")) / 100 * abs(self.figure)
            ends = mean - within, mean + within
        rounding = ROUNDING * max(1.0, abs(self.figure))
        return None if ends is None else (ends[0] - rounding, ends[1] + rounding)

    @property
    def reason(self) -> str:
        """Return why nothing was measured, or ""."""
        if self.verdict is not Verdict.NOT_MEASURED:
            return ""
        if self.measured.mean is not None:
            return "there is no interval"
        if self.measured.nan:
            return "nan"
        answered = self.group.statuses.keys() <= MEASURED_STATUSES
        return "no such number" if answered else status_cell(self.group.statuses).text


def compare_expectations(ledger: Ledger) -> list[ExpectationComparison]:
    """Compare each expectation, in file order, with each group it applies to, in plan order."""
    found = seed_groups(ledger)
    entries = map(Expectation.model_validate, ledger.experiment.get("expect") or ())
    return [
        ExpectationComparison(entry, group)
        for entry in entries
        for group in _matching_groups(found, entry)
    ]


def expectation_sheet(ledger: Ledger) -> Sheet:
    """Return the table of all comparisons, failed ones first."""
    found = compare_expectations(ledger)
    names = identity_columns(ledger)
    rows = [
        [
            *identity_cells(each.group, names),
            ("split", each.entry.split),
            ("metric", each.entry.metric),
            *comparison_cells(each),
        ]
        for each in sorted(found, key=lambda each: each.verdict.good)  # failed ones first
    ]
    return make_sheet("Expected and measured values", rows, NOTE)


def comparison_cells(each: ExpectationComparison) -> SheetRow:
    """Return the cells on the expected and the measured value, and on the verdict."""
    entry, found = each.entry, each.measured
    mean, interval = found.mean, found.interval
    value: Any = "nan" * bool(found.nan)
    difference: Any = ""
    if mean is not None:
        value = number_cell(mean)
        difference = SheetCell(format_signed(mean - each.figure), mean - each.figure)
    ends = SheetCell(" to ".join(map(format_number, interval)), interval[0]) if interval else ""
    verdict = ": ".join(filter(None, [each.verdict.text, each.reason]))
    return [
        ("expected", SheetCell(f"{SIGNS[entry.kind]}{each.figure:g}", each.figure)),
        ("measured", value),
        ("95 % interval", ends),
        ("n", found.n),
        ("difference", difference),
        ("verdict", SheetCell(verdict, tone=each.verdict.tone)),
        ("within", entry.within),
        ("source", entry.source),
    ]


def count_verdicts(found: Iterable[ExpectationComparison]) -> list[tuple[str, int, str]]:
    """Return each verdict with its count and tone, failed ones first."""
    count = Counter(each.verdict for each in found)
    return [(verdict.text, count[verdict], verdict.tone) for verdict in Verdict if count[verdict]]


def _matching_groups(found: Sequence[SeedGroup], entry: Expectation) -> Iterator[SeedGroup]:
    """Yield the groups that an entry applies to.

    At points where the entry's variant is missing, yield a group without values. It keeps the
    trials of the point, so that its solution rate is 0, unless the algorithm returned other
    variants but nowhere this one: then it has no trials.
    """
    own = [group for group in found if group.label == entry.algorithm]
    there = [group for group in own if has_values(group.point, entry.point)]
    if entry.variant is None:
        yield from there
        return
    known = {group.variant for group in own} - {""}
    for several in same_points(there):
        group = select_variant(several, entry.variant)
        yield group if entry.variant in known or not known else replace(group, trials=())


def warn_unmet_expectations(ledger: Ledger) -> list[Diagnostic]:
    """Return a W501 for each expectation from which some group differs."""
    found = []
    for every in group_by(compare_expectations(ledger), lambda each: id(each.entry)).values():
        apart = [each for each in every if each.verdict is Verdict.DIFFERS]
        if apart:
            first, entry, group = apart[0], apart[0].entry, apart[0].group
            about = ", ".join(filter(None, [group.variant, format_point(group.point), entry.split]))
            measured = format_number(
                math.nan if first.measured.mean is None else first.measured.mean
            )
            others = f", and {len(apart)} of {len(every)} rows differ" if len(every) > 1 else ""
            message = f"'{entry.metric}' of '{entry.algorithm}' is {measured} ({about}), expected: "
            found.append(Diagnostic("W501", f"{message}{first.target}{others}"))
    return found
