"""Compare results with the expectations of the experiment file. All verdicts are made here.

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

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import groupby

from ratecli.config.report import CONFIDENCE_INTERVAL, Expectation
from ratecli.config.sweep import has_values
from ratecli.errors import Diagnostic
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.estimates import IntervalEstimate
from ratecli.report.groups import SeedGroup, is_failure, seed_groups, select_variant
from ratecli.report.sheet import (
    Sheet,
    SheetCell,
    SheetColumn,
    format_number,
    format_scalar,
    identity_column,
    identity_columns,
    key_cell,
    status_cell,
    value_cell,
)

NOT_JUDGED = "not judged"
"""Shown in place of a verdict for a paper's figure without a tolerance."""
ROUNDING = 1e-9
"""Floating-point tolerance of comparisons, relative to the figure if it is above 1."""
SIGNS = {"paper": "paper ", "value": "= ", "at_most": "≤ ", "at_least": "≥ "}
MEANING = (
    "holds: within the tolerance that the file states, or on the right side of the bound (ci: our "
    "interval reaches there); not contradicted: our interval (ci) contains the figure, and a wide "
    "one contains much; better: below the paper's objective, violation or rate of failure by more "
    "than the tolerance"
)
"""Explanation of the verdicts for readers of the table."""
NOTE = (
    "Ours is the mean over seeds with its 95 % interval, of shares of trials the exact one. "
    f"{MEANING}; without a tolerance the paper's figure is only shown."
)


class ExpectationVerdict(StrEnum):
    """The result of a comparison; `SHOWN` is a paper's figure displayed without a verdict."""

    DIFFERS = "differs"
    NOT_MEASURED = "not measured"
    HOLDS = "holds"
    NOT_CONTRADICTED = "not contradicted"
    BETTER = "better"
    SHOWN = ""

    @property
    def good(self) -> bool:
        """Whether the verdict lets a check pass."""
        return self not in {ExpectationVerdict.DIFFERS, ExpectationVerdict.NOT_MEASURED}


@dataclass(frozen=True)
class ExpectationComparison:
    """One expectation compared with one group of trials that it applies to."""

    entry: Expectation
    group: SeedGroup

    @property
    def figure(self) -> float:
        return float(getattr(self.entry, self.entry.kind))

    @cached_property
    def ours(self) -> IntervalEstimate:
        return self.group.estimate(self.entry.split, self.entry.metric)

    @property
    def verdict(self) -> ExpectationVerdict:
        if self.ours.mean is None:
            return ExpectationVerdict.NOT_MEASURED
        if self.entry.kind == "paper" and self.entry.within is None:
            return ExpectationVerdict.SHOWN
        ends = _accepted_range(self.entry.within, self.figure, self.ours)
        return (
            ExpectationVerdict.NOT_MEASURED if ends is None else self._judged(self.ours.mean, *ends)
        )

    @property
    def reason(self) -> str:
        """Return why nothing was measured, or ""."""
        if self.verdict is not ExpectationVerdict.NOT_MEASURED:
            return ""
        if self.ours.mean is not None:
            return "there is no interval"
        if self.ours.nan:
            return "nan"
        answered = self.group.statuses.keys() <= MEASURED_STATUSES
        return "no such number" if answered else status_cell(self.group.statuses).text

    def _judged(self, mean: float, low: float, high: float) -> ExpectationVerdict:
        """Judge the measured mean, given the range `low` to `high` that includes the tolerance."""
        reached = low <= self.figure, self.figure <= high
        asked = {"at_most": reached[:1], "at_least": reached[1:]}.get(self.entry.kind, reached)
        if all(asked):
            bare = self.entry.within == CONFIDENCE_INTERVAL and self.entry.kind in {
                "paper",
                "value",
            }
            return ExpectationVerdict.NOT_CONTRADICTED if bare else ExpectationVerdict.HOLDS
        metric = self.entry.metric
        less_is_better = (
            metric == "objective" or metric.startswith(VIOLATION_PREFIX) or is_failure(metric)
        )
        paper = self.entry.kind == "paper"
        return (
            ExpectationVerdict.BETTER
            if paper and less_is_better and mean < self.figure
            else ExpectationVerdict.DIFFERS
        )


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
    papers = any(each.entry.kind == "paper" for each in found)
    heads = [identity_column(ledger, name) for name in identity_columns(ledger)]
    numeric = [
        SheetColumn(name, numeric=True)
        for name in ("expected", "ours", "95 % interval", "n", "difference")
    ]
    columns = (
        *heads,
        SheetColumn("split"),
        SheetColumn("metric"),
        *numeric,
        *map(SheetColumn, ("verdict", "within", "source")),
    )
    rows = [_row(ledger, each) for each in failures_first(found)]
    title = "Against the paper" if papers else "Against what was expected"
    return Sheet(title, columns, tuple(rows), NOTE)


def failures_first(found: Iterable[ExpectationComparison]) -> list[ExpectationComparison]:
    """Sort failed comparisons first, otherwise keeping the order."""
    return sorted(found, key=lambda each: each.verdict.good)


def verdict_text(each: ExpectationComparison) -> str:
    """Return the verdict as text, "not judged" for a figure that is only shown."""
    return str(each.verdict) or NOT_JUDGED


def count_verdicts(found: Iterable[ExpectationComparison]) -> list[tuple[str, int, str]]:
    """Return each verdict with its count and tone, failed ones first."""
    known = {str(each) or NOT_JUDGED: each for each in ExpectationVerdict}
    count = Counter(map(verdict_text, found))
    return [
        (
            word,
            count[word],
            "" if each is ExpectationVerdict.SHOWN else "good" if each.good else "bad",
        )
        for word, each in known.items()
        if count[word]
    ]


def verdict_filters(found: Sequence[ExpectationComparison]) -> list[tuple[str, int]]:
    """Return the table's filter options: all rows, then each verdict. Empty with only one."""
    several = [(word, count) for word, count, _ in count_verdicts(found)]
    return [("", len(found)), *several] if len(several) > 1 else []


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
    at: dict[str, list[SeedGroup]] = {}
    for group in there:
        at.setdefault(repr(group.point), []).append(group)
    for several in at.values():
        group = select_variant(several, entry.variant)
        yield group if entry.variant in known or not known else replace(group, outcomes=())


def _accepted_range(
    within: float | str | None, figure: float, ours: IntervalEstimate
) -> tuple[float, float] | None:
    """Return the range that must contain the figure, or None without an interval.

    This is the measured interval for `ci`, else the mean plus and minus the tolerance.
    """
    rounding = ROUNDING * max(1.0, abs(figure))
    if within == CONFIDENCE_INTERVAL:
        low, high = ours.interval or (None, None)
    elif isinstance(within, str):
        low, high = _range_around(ours, float(within.rstrip("% ")) / 100 * abs(figure))
    else:
        low, high = _range_around(ours, within or 0.0)
    return None if low is None or high is None else (low - rounding, high + rounding)


def _range_around(ours: IntervalEstimate, tolerance: float) -> tuple[float | None, float | None]:
    return replace(ours, half=tolerance, exact=None).interval or (None, None)


def measured_cell(ours: IntervalEstimate) -> SheetCell:
    """Return the measured value; "nan" if it is undefined."""
    if ours.mean is None:
        return SheetCell("nan" if ours.nan else "")
    return SheetCell(format_number(ours.mean), ours.mean)


def interval_cell(ours: IntervalEstimate) -> SheetCell:
    """Return the interval's ends, or an empty cell if there is no interval."""
    if ours.interval is None:
        return SheetCell("")
    return SheetCell(" to ".join(map(format_number, ours.interval)), ours.interval[0])


def difference_cell(each: ExpectationComparison) -> SheetCell:
    """Return the measured value minus the expected one."""
    if each.ours.mean is None:
        return SheetCell("")
    difference = each.ours.mean - each.figure
    return SheetCell(f"{'+' * (difference >= 0)}{format_number(difference)}", difference)


def verdict_cell(each: ExpectationComparison) -> SheetCell:
    """Return the verdict, with the reason if nothing was measured."""
    reason = f": {each.reason}" if each.reason else ""
    shown = each.verdict is ExpectationVerdict.SHOWN
    return SheetCell(
        f"{each.verdict}{reason}", tone="" if shown else "good" if each.verdict.good else "bad"
    )


def _row(ledger: Ledger, each: ExpectationComparison) -> tuple[SheetCell, ...]:
    entry, ours = each.entry, each.ours
    return (
        *(key_cell(each.group, name) for name in identity_columns(ledger)),
        SheetCell(entry.split),
        SheetCell(entry.metric),
        SheetCell(f"{SIGNS[entry.kind]}{each.figure:g}", each.figure),
        measured_cell(ours),
        interval_cell(ours),
        value_cell(ours.n),
        difference_cell(each),
        verdict_cell(each),
        value_cell(entry.within),
        SheetCell(entry.source or ""),
    )


EXPECTED_WORDING = {
    "paper": "the paper has",
    "value": "expected is",
    "at_most": "expected is at most",
    "at_least": "expected is at least",
}


def warn_unmet_expectations(ledger: Ledger) -> list[Diagnostic]:
    """Return a W501 for each expectation from which some group differs."""
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
    """Describe the measured value, where it was measured, and the expected value."""
    entry, group = each.entry, each.group
    point = [f"{name} = {format_scalar(value)}" for name, value in group.point.items()]
    about = ", ".join([*filter(None, [group.variant]), *point, entry.split])
    ours = format_number(each.ours.mean if each.ours.mean is not None else float("nan"))
    within = f" within {format_scalar(entry.within)}" if entry.within is not None else ""
    wanted = f"{EXPECTED_WORDING[entry.kind]} {each.figure:g}{within}"
    return f"'{entry.metric}' of '{entry.algorithm}' is {ours} ({about}), {wanted}"
