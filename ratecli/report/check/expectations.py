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
from dataclasses import dataclass, field, replace

from ratecli.config.report import CONFIDENCE_INTERVAL, Expectation
from ratecli.config.sweep import has_values
from ratecli.errors import Diagnostic
from ratecli.ledger.records import OBJECTIVE, VIOLATION_PREFIX
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report import groups as gr
from ratecli.report import sheet as st
from ratecli.report.check.findings import Finding, Verdict
from ratecli.report.templates import note

ROUNDING = 1e-9
"""Floating-point tolerance of comparisons, relative to the figure if it is above 1."""
SIGNS = {"paper": "paper ", "value": "= ", "at_most": "≤ ", "at_least": "≥ "}


@dataclass(frozen=True)
class ExpectedFinding(Finding):
    """An expectation (`was`) compared with a group of trials that it applies to (`now`)."""

    entry: Expectation = field(kw_only=True)
    group: gr.SeedGroup = field(kw_only=True, repr=False)

    @property
    def measured(self) -> gr.IntervalEstimate:
        return self.group.estimate(self.split, self.metric)

    @property
    def figure(self) -> float:
        return _figure(self.entry)


def _figure(entry: Expectation) -> float:
    return float(getattr(entry, entry.kind))


def _target(entry: Expectation) -> str:
    """Return the expected number with its tolerance, such as `≤ 0.22 within ci`."""
    within = "" if entry.within is None else f" within {st.format_scalar(entry.within)}"
    return f"{SIGNS[entry.kind]}{_figure(entry):g}{within}"


def compare_expectations(ledger: Ledger) -> list[ExpectedFinding]:
    """Compare each expectation, in file order, with each group it applies to, in plan order."""
    found = gr.seed_groups(ledger)
    entries = map(Expectation.model_validate, ledger.experiment.get("expect") or ())
    return [
        _compare(entry, group, at)
        for at, entry in enumerate(entries)
        for group in _matching_groups(found, entry)
    ]


def _compare(entry: Expectation, group: gr.SeedGroup, at: int) -> ExpectedFinding:
    measured = group.estimate(entry.split, entry.metric)
    verdict = _verdict(entry, measured)
    if verdict is Verdict.NOT_MEASURED:
        detail, help_ = _reason(group, measured), "see trials.csv for how the trials ended"
    else:
        detail = f"expected {_target(entry)}" + (f" ({entry.source})" if entry.source else "")
        help_ = "find out why it changed, or correct the expectation in the file"
    return ExpectedFinding(
        verdict,
        "expect",
        *(group.label, group.variant, group.point, entry.split, entry.metric),
        was=_figure(entry),
        now=measured.mean,
        seeds=measured.n,
        detail=detail,
        help="" if verdict.good else help_,
        loc=("expect", at),
        entry=entry,
        group=group,
    )


def _verdict(entry: Expectation, measured: gr.IntervalEstimate) -> Verdict:
    kind, within, figure = entry.kind, entry.within, _figure(entry)
    if measured.mean is not None and kind == "paper" and within is None:
        return Verdict.SHOWN
    accepted = _accepted_range(entry, measured)
    if accepted is None:
        return Verdict.NOT_MEASURED
    not_above = kind == "at_least" or accepted[0] <= figure
    not_below = kind == "at_most" or figure <= accepted[1]
    if not_above and not_below:
        bound = within != CONFIDENCE_INTERVAL or kind in {"at_most", "at_least"}
        return Verdict.HOLDS if bound else Verdict.NOT_CONTRADICTED
    less_is_better = entry.metric == OBJECTIVE or gr.is_failure(entry.metric)
    less_is_better |= entry.metric.startswith(VIOLATION_PREFIX)
    better = kind == "paper" and less_is_better and (measured.mean or 0.0) < figure
    return Verdict.BETTER if better else Verdict.DIFFERS


def _accepted_range(
    entry: Expectation, measured: gr.IntervalEstimate
) -> tuple[float, float] | None:
    """Return the range that must contain the figure, or None without an interval.

    This is the measured interval for `ci`, else the mean plus and minus the tolerance.
    """
    within, mean, ends = entry.within or 0.0, measured.mean, measured.interval
    figure = abs(_figure(entry))
    if within != CONFIDENCE_INTERVAL and mean is not None:
        if isinstance(within, str):
            within = float(within.rstrip("% ")) / 100 * figure
        ends = mean - within, mean + within
    rounding = ROUNDING * max(1.0, figure)
    return None if ends is None else (ends[0] - rounding, ends[1] + rounding)


def _reason(group: gr.SeedGroup, measured: gr.IntervalEstimate) -> str:
    """Return why nothing was measured."""
    if measured.mean is not None:
        return "there is no interval"
    if measured.nan:
        return "nan"
    answered = group.statuses.keys() <= MEASURED_STATUSES
    return "no such number" if answered else st.status_cell(group.statuses).text


def expectation_sheet(ledger: Ledger) -> st.Sheet:
    """Return the table of all comparisons, failed ones first."""
    names = st.identity_columns(ledger)
    found = sorted(compare_expectations(ledger), key=lambda each: each.verdict.good)
    rows = [_row(each, names) for each in found]
    return st.make_sheet("Expected and measured values", rows, note("expectations"))


def _row(each: ExpectedFinding, names: Sequence[str]) -> st.SheetRow:
    entry, found, difference = each.entry, each.measured, each.difference
    ends, verdict = found.interval, each.verdict.text
    if each.verdict is Verdict.NOT_MEASURED:
        verdict += f": {each.detail}"
    cells = {
        "split": entry.split,
        "metric": entry.metric,
        "expected": st.SheetCell(f"{SIGNS[entry.kind]}{each.figure:g}", each.figure),
        "measured": "nan" * bool(found.nan) if found.mean is None else st.number_cell(found.mean),
        "95 % interval": st.SheetCell(" to ".join(map(st.format_number, ends)), ends[0])
        if ends
        else "",
        "n": found.n,
        "difference": ""
        if difference is None
        else st.SheetCell(st.format_signed(difference), difference),
        "verdict": st.SheetCell(verdict, tone=each.verdict.tone),
        "within": entry.within,
        "source": entry.source,
    }
    return [*st.identity_cells(each.group, names), *cells.items()]  # a swept name may be `n`


def count_verdicts(found: Iterable[Finding]) -> list[tuple[str, int, str]]:
    """Return each verdict with its count and tone, failed ones first."""
    count = Counter(each.verdict for each in found)
    return [(verdict.text, count[verdict], verdict.tone) for verdict in Verdict if count[verdict]]


def _matching_groups(found: Sequence[gr.SeedGroup], entry: Expectation) -> Iterator[gr.SeedGroup]:
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
    for several in gr.same_points(there):
        group = gr.select_variant(several, entry.variant)
        yield group if entry.variant in known or not known else replace(group, trials=())


def warn_unmet_expectations(ledger: Ledger) -> list[Diagnostic]:
    """Return a W501 for each expectation from which some group differs."""
    found = []
    for every in gr.group_by(compare_expectations(ledger), lambda each: each.loc).values():
        apart = [each for each in every if each.verdict is Verdict.DIFFERS]
        if apart:
            first = apart[0]
            measured = st.format_number(math.nan if first.now is None else first.now)
            others = f", and {len(apart)} of {len(every)} rows differ" if len(every) > 1 else ""
            message = f"{first.what} is {measured}, expected: {_target(first.entry)}{others}"
            found.append(Diagnostic("W501", message))
    return found
