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

from ratecli.config.expect import CI, Expectation
from ratecli.config.sweep import holds
from ratecli.ledger.records import VIOLATION
from ratecli.ledger.view import MEASURED, Ledger
from ratecli.report.estimates import Estimate
from ratecli.report.groups import Group, groups, is_failure, of_variant
from ratecli.report.identity import column, identity, key_cell, status_cell
from ratecli.report.sheet import Cell, Column, Sheet, number, plain

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


class Verdict(StrEnum):
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
        return self not in {Verdict.DIFFERS, Verdict.NOT_MEASURED}


@dataclass(frozen=True)
class Comparison:
    """One expectation and one row of results that it is about."""

    entry: Expectation
    group: Group

    @property
    def figure(self) -> float:
        return float(getattr(self.entry, self.entry.kind))

    @cached_property
    def ours(self) -> Estimate:
        return self.group.estimate(self.entry.split, self.entry.metric)

    @property
    def verdict(self) -> Verdict:
        if self.ours.mean is None:
            return Verdict.NOT_MEASURED
        if self.entry.kind == "paper" and self.entry.within is None:
            return Verdict.SHOWN
        ends = _ends(self.entry.within, self.figure, self.ours)
        return Verdict.NOT_MEASURED if ends is None else self._judged(self.ours.mean, *ends)

    @property
    def reason(self) -> str:
        """Why nothing is measured."""
        if self.verdict is not Verdict.NOT_MEASURED:
            return ""
        if self.ours.mean is not None:
            return "there is no interval"
        if self.ours.nan:
            return "nan"
        answered = self.group.statuses.keys() <= MEASURED
        return "no such number" if answered else status_cell(self.group.statuses).text

    def _judged(self, mean: float, low: float, high: float) -> Verdict:
        """`low` and `high` are the ends of what ours may be taken for."""
        reached = low <= self.figure, self.figure <= high
        asked = {"at_most": reached[:1], "at_least": reached[1:]}.get(self.entry.kind, reached)
        if all(asked):
            bare = self.entry.within == CI and self.entry.kind in {"paper", "value"}
            return Verdict.NOT_CONTRADICTED if bare else Verdict.HOLDS
        metric = self.entry.metric
        less_is_better = metric == "objective" or metric.startswith(VIOLATION) or is_failure(metric)
        paper = self.entry.kind == "paper"
        return (
            Verdict.BETTER if paper and less_is_better and mean < self.figure else Verdict.DIFFERS
        )


def comparisons(ledger: Ledger) -> list[Comparison]:
    """Every expectation in the file's order, with each row that it is about in that of the plan."""
    found = groups(ledger)
    entries = map(Expectation.model_validate, ledger.experiment.get("expect") or ())
    return [Comparison(entry, group) for entry in entries for group in _chosen(found, entry)]


def against(ledger: Ledger) -> Sheet:
    """All comparisons, those that fail first."""
    found = comparisons(ledger)
    papers = any(each.entry.kind == "paper" for each in found)
    heads = [column(ledger, name) for name in identity(ledger)]
    numeric = [
        Column(name, numeric=True)
        for name in ("expected", "ours", "95 % interval", "n", "difference")
    ]
    columns = (
        *heads, Column("split"), Column("metric"), *numeric,
        *map(Column, ("verdict", "within", "source")),
    )  # fmt: skip
    rows = [_row(ledger, each) for each in in_order(found)]
    title = "Against the paper" if papers else "Against what was expected"
    return Sheet(title, columns, tuple(rows), NOTE)


def in_order(found: Iterable[Comparison]) -> list[Comparison]:
    """What fails first, otherwise as it was."""
    return sorted(found, key=lambda each: each.verdict.good)


def kind(each: Comparison) -> str:
    """The verdict in a word, also of what is only shown."""
    return str(each.verdict) or NOT_JUDGED


def tally(found: Iterable[Comparison]) -> list[tuple[str, int, str]]:
    """How many of each verdict there are, what fails first, and its tone."""
    known = {str(each) or NOT_JUDGED: each for each in Verdict}
    count = Counter(map(kind, found))
    return [
        (word, count[word], "" if each is Verdict.SHOWN else "good" if each.good else "bad")
        for word, each in known.items()
        if count[word]
    ]


def choices(found: Sequence[Comparison]) -> list[tuple[str, int]]:
    """Verdicts to choose rows by, first all of them; none where there is one only."""
    several = [(word, count) for word, count, _ in tally(found)]
    return [("", len(found)), *several] if len(several) > 1 else []


def _chosen(found: Sequence[Group], entry: Expectation) -> Iterator[Group]:
    """The groups that an entry is about; where its variant is not among them, one without numbers.

    Such a group has the trials of its point, for their share of solutions is 0, unless nobody at any
    point gave that variant while others were given: then it has none.
    """
    own = [group for group in found if group.label == entry.algorithm]
    there = [group for group in own if holds(group.point, entry.point)]
    if entry.variant is None:
        yield from there
        return
    known = {group.variant for group in own} - {""}
    at: dict[str, list[Group]] = {}
    for group in there:
        at.setdefault(repr(group.point), []).append(group)
    for several in at.values():
        group = of_variant(several, entry.variant)
        yield group if entry.variant in known or not known else replace(group, outcomes=())


def _ends(within: float | str | None, figure: float, ours: Estimate) -> tuple[float, float] | None:
    """Between which numbers ours may lie: our interval, if it is that and there is one, or the
    tolerance to either side of our mean.
    """
    rounding = ROUNDING * max(1.0, abs(figure))
    if within == CI:
        low, high = ours.interval or (None, None)
    elif isinstance(within, str):
        low, high = _around(ours, float(within.rstrip("% ")) / 100 * abs(figure))
    else:
        low, high = _around(ours, within or 0.0)
    return None if low is None or high is None else (low - rounding, high + rounding)


def _around(ours: Estimate, tolerance: float) -> tuple[float | None, float | None]:
    return replace(ours, half=tolerance, exact=None).interval or (None, None)


def ours_cell(ours: Estimate) -> Cell:
    """Our number; nan where that is what was measured."""
    if ours.mean is None:
        return Cell("nan" if ours.nan else "")
    return Cell(number(ours.mean), ours.mean)


def interval_cell(ours: Estimate) -> Cell:
    """Its ends, nothing without two seeds."""
    if ours.interval is None:
        return Cell("")
    return Cell(" to ".join(map(number, ours.interval)), ours.interval[0])


def difference_cell(each: Comparison) -> Cell:
    """Ours less what is expected."""
    if each.ours.mean is None:
        return Cell("")
    difference = each.ours.mean - each.figure
    return Cell(f"{'+' * (difference >= 0)}{number(difference)}", difference)


def verdict_cell(each: Comparison) -> Cell:
    """With the reason where nothing was measured; of what is only shown there is none."""
    reason = f": {each.reason}" if each.reason else ""
    shown = each.verdict is Verdict.SHOWN
    return Cell(
        f"{each.verdict}{reason}", tone="" if shown else "good" if each.verdict.good else "bad"
    )


def _row(ledger: Ledger, each: Comparison) -> tuple[Cell, ...]:
    entry, ours = each.entry, each.ours
    return (
        *(key_cell(each.group, name) for name in identity(ledger)),
        Cell(entry.split),
        Cell(entry.metric),
        Cell(f"{SIGNS[entry.kind]}{each.figure:g}", each.figure),
        ours_cell(ours),
        interval_cell(ours),
        plain(ours.n),
        difference_cell(each),
        verdict_cell(each),
        plain(entry.within),
        Cell(entry.source or ""),
    )
