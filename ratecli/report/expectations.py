"""What the file expects of its numbers, beside what they are: all verdicts are made here.

Compared is our mean over seeds. With a tolerance t, which is `within` (a share is one of the figure,
`ci` is half the width of our 95 % interval), it

- holds `paper` and `value` if it lies within t of the figure: with `ci`, if our interval has it;
- holds `at_most` if it is at most the bound + t, `at_least` if it is at least the bound - t: with `ci`,
  if our interval reaches to the good side;
- is `better` than `paper` if it lies below by more than t where less is better: of the objective and of
  violations. Of other metrics nobody said which way is better, so that there it `differs`.

Without `within` the t of a bound is 0, and a paper's figure is shown without a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ratecli.report.groups import Estimate, Group, groups
from ratecli.report.identity import column, identity, key_cell, status_cell
from ratecli.report.ledger import MEASURED, Ledger
from ratecli.report.sheet import Cell, Column, Sheet, number, plain, with_interval
from ratecli.runner.records import VIOLATION
from ratecli.spec.expect import CI, Expectation
from ratecli.spec.sweep import holds

ROUNDING = 1e-9
"""Of the figure, or of 1 where that is more: what floating point may leave of equality."""
SIGNS = {"paper": "paper ", "value": "= ", "at_most": "≤ ", "at_least": "≥ "}
NOTE = (
    "Ours is the mean ± half the 95 % interval. holds: within the tolerance of the figure (ci: half our "
    "interval), or on the right side of the bound; better: below the paper's objective or violation by "
    "more than that; without a tolerance the paper's figure is only shown."
)


class Verdict(StrEnum):
    """What came of an expectation; `SHOWN` is a paper's figure that nothing is judged by."""

    DIFFERS = "differs"
    NOT_MEASURED = "not measured"
    HOLDS = "holds"
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

    @property
    def ours(self) -> Estimate:
        return self.group.estimate(self.entry.split, self.entry.metric)

    @property
    def verdict(self) -> Verdict:
        if self.ours.mean is None:
            return Verdict.NOT_MEASURED
        if self.entry.kind == "paper" and self.entry.within is None:
            return Verdict.SHOWN
        within = _tolerance(self.entry.within, self.figure, self.ours)
        return Verdict.NOT_MEASURED if within is None else self._judged(self.ours.mean, within)

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

    def _judged(self, mean: float, within: float) -> Verdict:
        above = mean - self.figure
        if self.entry.kind == "at_most":
            return Verdict.HOLDS if above <= within else Verdict.DIFFERS
        if self.entry.kind == "at_least":
            return Verdict.HOLDS if above >= -within else Verdict.DIFFERS
        if abs(above) <= within:
            return Verdict.HOLDS
        less_is_better = self.entry.metric == "objective" or self.entry.metric.startswith(VIOLATION)
        paper = self.entry.kind == "paper"
        return Verdict.BETTER if paper and less_is_better and above < 0 else Verdict.DIFFERS


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
    numeric = [Column(name, numeric=True) for name in ("ours", "n", "expected", "difference")]
    columns = (
        *heads, Column("split"), Column("metric"), *numeric,
        *map(Column, ("verdict", "within", "source")),
    )  # fmt: skip
    rows = [_row(ledger, each) for each in sorted(found, key=lambda each: each.verdict.good)]
    title = "Against the paper" if papers else "Against what was expected"
    return Sheet(title, columns, tuple(rows), NOTE)


def _chosen(found: Sequence[Group], entry: Expectation) -> Iterator[Group]:
    """The groups that an entry is about; where its variant is not among them, one without numbers."""
    there = [g for g in found if g.label == entry.algorithm and holds(g.point, entry.point)]
    if entry.variant is None:
        yield from there
        return
    at: dict[str, list[Group]] = {}
    for group in there:
        at.setdefault(repr(group.point), []).append(group)
    for several in at.values():
        nothing = replace(several[0], variant=entry.variant, values={})
        yield next((group for group in several if group.variant == entry.variant), nothing)


def _tolerance(within: float | str | None, figure: float, ours: Estimate) -> float | None:
    """In units of the metric; nothing where it is our interval and there is none."""
    rounding = ROUNDING * max(1.0, abs(figure))
    if within == CI:
        return None if ours.half is None else ours.half + rounding
    if isinstance(within, str):
        return float(within.rstrip("% ")) / 100 * abs(figure) + rounding
    return (within or 0.0) + rounding


def _row(ledger: Ledger, each: Comparison) -> tuple[Cell, ...]:
    entry, ours, verdict = each.entry, each.ours, each.verdict
    difference = None if ours.mean is None else ours.mean - each.figure
    reason = f": {each.reason}" if each.reason else ""
    tone = "" if verdict is Verdict.SHOWN else "good" if verdict.good else "bad"
    return (
        *(key_cell(each.group, name) for name in identity(ledger)),
        Cell(entry.split),
        Cell(entry.metric),
        with_interval(ours, ours.n),
        plain(ours.n),
        Cell(f"{SIGNS[entry.kind]}{each.figure:g}", each.figure),
        Cell("")
        if difference is None
        else Cell(f"{'+' * (difference >= 0)}{number(difference)}", difference),
        Cell(f"{verdict}{reason}", tone=tone),
        plain(entry.within),
        Cell(entry.source or ""),
    )
