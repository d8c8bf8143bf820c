"""What the file expects of its numbers, beside what they are: all verdicts are made here.

Compared is our mean over seeds. With a tolerance t, which is `within` (a share is one of the figure,
`ci` is half the width of our 95 % interval), it

- holds `paper` and `value` if it lies within t of the figure;
- does not contradict them with `ci` if our interval contains the figure, which a wide one does easily;
- holds `at_most` if it is at most the bound + t, `at_least` if it is at least the bound - t: with `ci`,
  if our interval reaches to the good side;
- is `better` than `paper` if it lies below by more than t where less is better: of the objective, of
  violations and of rates of failure. Of other metrics nobody said which way is better, so that there it
  `differs`.

The interval of `solution_rate` and `failure_rate` is the exact one of a share of trials.

Without `within` the t of a bound is 0, and a paper's figure is shown without a verdict.
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
"""What is said of a paper's figure that is only shown."""
ROUNDING = 1e-9
"""Of the figure, or of 1 where that is more: what floating point may leave of equality."""
SIGNS = {"paper": "paper ", "value": "= ", "at_most": "≤ ", "at_least": "≥ "}
MEANING = (
    "holds: within the tolerance that the file states, or on the right side of the bound (ci: our interval "
    "reaches there); not contradicted: our interval (ci) contains the figure, and a wide one contains "
    "much; better: below the paper's objective, violation or rate of failure by more than the tolerance"
)
"""What the verdicts mean, for people who read a table of them."""
NOTE = (
    "Ours is the mean over seeds with its 95 % interval, of shares of trials the exact one. "
    f"{MEANING}; without a tolerance the paper's figure is only shown."
)


class ExpectationVerdict(StrEnum):
    """What came of an expectation; `SHOWN` is a paper's figure that nothing is judged by."""

    DIFFERS = "differs"
    NOT_MEASURED = "not measured"
    HOLDS = "holds"
    NOT_CONTRADICTED = "not contradicted"
    BETTER = "better"
    SHOWN = ""

    @property
    def good(self) -> bool:
        """Whether a check may pass."""
        return self not in {ExpectationVerdict.DIFFERS, ExpectationVerdict.NOT_MEASURED}


@dataclass(frozen=True)
class ExpectationComparison:
    """One expectation and one row of results that it is about."""

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
        """Why nothing is measured."""
        if self.verdict is not ExpectationVerdict.NOT_MEASURED:
            return ""
        if self.ours.mean is not None:
            return "there is no interval"
        if self.ours.nan:
            return "nan"
        answered = self.group.statuses.keys() <= MEASURED_STATUSES
        return "no such number" if answered else status_cell(self.group.statuses).text

    def _judged(self, mean: float, low: float, high: float) -> ExpectationVerdict:
        """`low` and `high` are the ends of what ours may be taken for."""
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
    """Every expectation in the file's order, with each row that it is about in that of the plan."""
    found = seed_groups(ledger)
    entries = map(Expectation.model_validate, ledger.experiment.get("expect") or ())
    return [
        ExpectationComparison(entry, group)
        for entry in entries
        for group in _matching_groups(found, entry)
    ]


def expectation_sheet(ledger: Ledger) -> Sheet:
    """All comparisons, those that fail first."""
    found = compare_expectations(ledger)
    papers = any(each.entry.kind == "paper" for each in found)
    heads = [identity_column(ledger, name) for name in identity_columns(ledger)]
    numeric = [
        SheetColumn(name, numeric=True)
        for name in ("expected", "ours", "95 % interval", "n", "difference")
    ]
    columns = (
        *heads, SheetColumn("split"), SheetColumn("metric"), *numeric,
        *map(SheetColumn, ("verdict", "within", "source")),
    )  # fmt: skip
    rows = [_row(ledger, each) for each in failures_first(found)]
    title = "Against the paper" if papers else "Against what was expected"
    return Sheet(title, columns, tuple(rows), NOTE)


def failures_first(found: Iterable[ExpectationComparison]) -> list[ExpectationComparison]:
    """What fails first, otherwise as it was."""
    return sorted(found, key=lambda each: each.verdict.good)


def verdict_text(each: ExpectationComparison) -> str:
    """The verdict in a word, also of what is only shown."""
    return str(each.verdict) or NOT_JUDGED


def count_verdicts(found: Iterable[ExpectationComparison]) -> list[tuple[str, int, str]]:
    """How many of each verdict there are, what fails first, and its tone."""
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
    """Verdicts to choose rows by, first all of them; none where there is one only."""
    several = [(word, count) for word, count, _ in count_verdicts(found)]
    return [("", len(found)), *several] if len(several) > 1 else []


def _matching_groups(found: Sequence[SeedGroup], entry: Expectation) -> Iterator[SeedGroup]:
    """The groups that an entry is about; where its variant is not among them, one without numbers.

    Such a group has the trials of its point, for their share of solutions is 0, unless nobody at any
    point gave that variant while others were given: then it has none.
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
    """Between which numbers ours may lie: our interval, if it is that and there is one, or the
    tolerance to either side of our mean.
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
    """Our number; nan where that is what was measured."""
    if ours.mean is None:
        return SheetCell("nan" if ours.nan else "")
    return SheetCell(format_number(ours.mean), ours.mean)


def interval_cell(ours: IntervalEstimate) -> SheetCell:
    """Its ends, nothing without two seeds."""
    if ours.interval is None:
        return SheetCell("")
    return SheetCell(" to ".join(map(format_number, ours.interval)), ours.interval[0])


def difference_cell(each: ExpectationComparison) -> SheetCell:
    """Ours less what is expected."""
    if each.ours.mean is None:
        return SheetCell("")
    difference = each.ours.mean - each.figure
    return SheetCell(f"{'+' * (difference >= 0)}{format_number(difference)}", difference)


def verdict_cell(each: ExpectationComparison) -> SheetCell:
    """With the reason where nothing was measured; of what is only shown there is none."""
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
