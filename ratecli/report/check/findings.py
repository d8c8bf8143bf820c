"""Findings of a check, and their rendering as tables and text, JSON, or JUnit XML.

A finding is the result of a comparison, or the reason why something was not compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

from ratecli.errors import Diagnostic, Loc
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.report import sheet as st
from ratecli.report.check.reference import PinnedModel
from ratecli.report.groups import group_by

NOT_JUDGED = "not judged"
"""Shown in place of a verdict for a paper's figure without a tolerance."""
FindingSource = Literal["reference", "expect", "run"]


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
class Finding:
    """One comparison, or the reason why something was not compared.

    Attributes
    ----------
    against
        `reference`: the pinned values; `expect`: the file's expectations; `run`: nothing, because
        there are no results.
    was, now, interval
        The reference value, the current value, and the interval of the difference (now minus was).
    seeds
        Number of seeds.
    left_out
        Number of seeds left out because a value is undefined.
    needed
        For two samples, about how many seeds on each side are needed to detect a loss of half a
        percentage point; 0 if not applicable.
    detail
        How the values were compared, or why they were not.
    help
        What to do about the finding.
    loc
        Location in the experiment file.
    code
        The error code, if it is not E508 (or E509 if nothing was compared).
    """

    verdict: Verdict = Verdict.NOT_COMPARED
    against: FindingSource = "reference"
    algorithm: str = ""
    variant: str = ""
    point: Mapping[str, Any] = field(default_factory=dict)
    split: str = ""
    metric: str = ""
    was: float | None = None
    now: float | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 0
    left_out: int = 0
    needed: int = 0
    detail: str = ""
    help: str = ""
    loc: Loc = ()
    code: str = ""

    @property
    def difference(self) -> float | None:
        return None if self.was is None or self.now is None else self.now - self.was

    @property
    def who(self) -> str:
        """Model and split: `majorize (stochastic, kappa = 0.8, test)`; "" for a whole file."""
        about = ", ".join(filter(None, [self.variant, st.format_point(self.point), self.split]))
        return f"{self.algorithm} ({about})" if about else self.algorithm

    @property
    def what(self) -> str:
        """The compared value, such as `'error' of majorize (stochastic, kappa = 0.8, test)`."""
        return f"'{self.metric}' of {self.who}" if self.metric else self.who

    @property
    def sentence(self) -> str:
        """The finding as text, without the help."""
        start = self.what
        if self.verdict.compared:
            start += f" {self.verdict}"
        if self.was is None or self.now is None:
            return f"{start}: {self.detail}" if start else self.detail
        values = f"{st.format_number(self.was)} -> {st.format_number(self.now)}"
        return f"{start}: {values}, by {self.change}, {self.detail}"

    @property
    def change(self) -> str:
        """The difference with its interval, such as `+0.0050 [+0.0031, +0.0069]`; "" if unknown."""
        if self.difference is None:
            return ""
        interval = ", ".join(map(st.format_signed, self.interval or ()))
        return st.format_signed(self.difference) + (f" [{interval}]" if interval else "")

    @property
    def diagnostic(self) -> Diagnostic:
        code = self.code or ("E508" if self.verdict.compared else "E509")
        return Diagnostic(code, self.sentence, self.help or None, loc=self.loc, key=True)


Alike = list[Finding]
"""Findings that are printed as one: the first of them, and what the others concern."""


@dataclass(frozen=True)
class CheckReport:
    """All findings of one experiment file.

    `versions` has the pinned and current version of each package that affects results and differs,
    `notes` warnings (W502, W503) that do not fail the check. `models` are the pinned models that
    answer the goal, or else the current ones, `baselines` the algorithms that ignore constraints
    and do not answer it. `answer` is the current answer, if it is another model or none.
    """

    path: Path
    name: str
    reference: Path | None
    findings: Sequence[Finding]
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: Sequence[Diagnostic] = ()
    models: Sequence[PinnedModel] = ()
    baselines: Collection[str] = ()
    answer: str = ""

    @property
    def holds(self) -> bool:
        return all(each.verdict.good for each in self.findings)

    def is_of_answer(self, found: Finding) -> bool:
        """Return whether a finding concerns a model that answers the goal."""
        return any(
            each.algorithm == found.algorithm
            and found.variant in {"", each.variant}
            and found.point in ({}, each.point)
            for each in self.models
        )

    @property
    def counts(self) -> dict[Verdict, int]:
        """The number of findings of each verdict, in the order of verdicts."""
        return Counter(sorted((each.verdict for each in self.findings), key=list(Verdict).index))

    def of(self, verdicts: Collection[Verdict]) -> list[Finding]:
        """Return findings with these verdicts: of the answers, then of others, then of baselines.

        Of these, failures come first, then test sets, then violations, then the largest changes.
        """
        order = list(Verdict)

        def place(each: Finding) -> tuple[float, ...]:
            who = not self.is_of_answer(each), each.algorithm in self.baselines
            what = each.split != "test", not each.metric.startswith(VIOLATION_PREFIX)
            return *who, order.index(each.verdict), *what, -abs(each.difference or 0.0)

        return sorted((each for each in self.findings if each.verdict in verdicts), key=place)

    @cached_property
    def alike(self) -> list[Alike]:
        """The findings to print, alike ones together: what fails, then what else changed.

        If the check fails, other changes are only those of the answers. Changes of baselines since
        the pin are left out, unless nothing else changed.
        """
        changed = self.of(TABLE_VERDICTS)
        if not self.holds:
            changed = [each for each in changed if not each.verdict.good or self.is_of_answer(each)]
        kept = [
            each
            for each in changed
            if each.against == "expect" or each.algorithm not in self.baselines
        ]
        found = self.of([each for each in Verdict if not each.compared]) + (kept or changed)
        return list(group_by(found, _likeness).values())


def _likeness(each: Finding) -> tuple[object, ...]:
    """Return a key; findings with equal keys are printed as one row."""
    who = (each.algorithm, each.loc) if each.verdict.compared else (each.detail, each.help)
    return each.verdict, each.metric, *who


def to_junit(checks: Sequence[CheckReport]) -> bytes:
    """Render checks as JUnit XML.

    Values that were not compared are an `error`, other failed comparisons a `failure`.
    """
    root = ET.Element("testsuites")
    for one in checks:
        file = str(one.path)
        suite = ET.SubElement(root, "testsuite", name=one.name, file=file)
        for each in one.findings:
            about = f"{each.metric} of {each.who}" if each.metric else each.who or "results"
            other = "what is expected" if each.against == "expect" else "the reference"
            name, classname = f"{about} against {other}", f"{one.name}.{each.algorithm}".rstrip(".")
            case = ET.SubElement(suite, "testcase", name=name, classname=classname, file=file)
            if not each.verdict.good:
                tag = "failure" if each.verdict.compared else "error"
                detail = ET.SubElement(case, tag, type=each.verdict, message=each.sentence)
                detail.text = f"{each.sentence}\n{each.help}"
    for each_suite in (root, *root):
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            each_suite.set(name, str(len(list(each_suite.iter(tag)))))
    for element in root.iter():
        element.attrib = {key: _clean(text) for key, text in element.attrib.items()}
        element.text = _clean(element.text or "")
    ET.indent(root)
    text: bytes = ET.tostring(root, "utf-8", xml_declaration=True)
    return text + b"\n"


def _clean(text: str) -> str:
    """Replace characters that are invalid in XML 1.0, and others that cannot be printed."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


TABLE_VERDICTS = (
    *(Verdict.DIFFERS, Verdict.REGRESSED, Verdict.CHANGED),
    *(Verdict.IMPROVED, Verdict.BETTER),
)
"""Verdicts listed in the table, failing ones first."""


def check_summary(check: CheckReport) -> str:
    """Summary: `quickstart: 126 comparisons with REFERENCE and `expect`: 2 regressed, 124 same`."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in check.counts.items())
    sides = [str(check.reference)] if check.reference else []
    if any(each.against == "expect" for each in check.findings):
        sides.append("`expect`")
    against = f" with {' and '.join(sides)}" if sides else ""
    count = len(check.findings)
    return f"{check.name}: {count} comparison{'s' * (count != 1)}{against}: {counts or 'none'}"


def findings_sheet(check: CheckReport) -> st.Sheet:
    """Return a table of changes, one row for those that are alike (`CheckReport.alike`)."""
    found = [alike for alike in check.alike if alike[0].verdict.compared]
    names = list(dict.fromkeys(name for each, *_ in found for name in each.point))
    several = len({each.variant for alike in found for each in alike if each.variant}) > 1
    titles = ["variant"] * several + names
    details = len({each.detail for each, *_ in found}) > 1
    rows = ([*_row(each, titles), *[("comparison", each[0].detail)] * details] for each in found)
    return st.make_sheet("Changes", rows)


def _row(alike: Alike, names: Sequence[str]) -> list[tuple[str, Any]]:
    each = alike[0]
    optional = {"variant": each.variant, **each.point}
    return [
        ("verdict", str(each.verdict)),
        ("algorithm", each.algorithm),
        *((name, optional.get(name)) for name in names),
        ("split", each.split),
        ("metric", each.metric),
        ("was", "" if each.was is None else st.number_cell(each.was)),
        ("now", "" if each.now is None else st.number_cell(each.now)),
        ("difference", st.SheetCell(each.change, each.difference)),
        ("also", _also(alike)),
    ]


def _also(alike: Alike) -> str:
    """Return what findings concern beside the first one: `train, 4 more points`."""
    first = alike[0]
    names = dict.fromkeys(name for each in alike for name in (each.variant, each.split) if name)
    points = len({repr(each.point) for each in alike}) - 1
    more = [f"{points} more point{'s' * (points > 1)}"] * (points > 0)
    return ", ".join([name for name in names if name not in {first.variant, first.split}] + more)


def failures(check: CheckReport, *, compared: bool) -> list[Diagnostic]:
    """Return what failed, those that are alike as the first one with the number of others.

    Values that differ are included if `compared`; otherwise only what could not be compared.
    """
    found = list[Diagnostic]()
    for first, *more in check.alike:
        if not first.verdict.good and (compared or not first.verdict.compared):
            text = f" ({len(more)} more like it)" if more else ""
            found.append(replace(first.diagnostic, message=first.diagnostic.message + text))
    return found


def check_text(check: CheckReport, *, table: bool) -> str:
    """Return the summary with notes, and the table of changes; "" if nothing was compared."""
    if not (check.holds or any(each.verdict.compared for each in check.findings)):
        return ""
    lines, sheet = [check_summary(check), *notes_above(check)], findings_sheet(check)
    if table and sheet.rows:
        lines += [st.to_text(sheet), *notes_below(check)]
    return "\n".join(lines)


def notes_after(check: CheckReport) -> list[Diagnostic]:
    """Return notes on settings; a failed check says before them what to do."""
    return list(check.notes) if check.holds else [replace(each, help=None) for each in check.notes]


def notes_above(check: CheckReport) -> list[str]:
    """Return lines about the best model and changed versions if the check fails."""
    lines: list[str] = []
    if check.holds or check.reference is None:
        return lines
    if len(check.models) == 1:
        failed = sum(check.is_of_answer(each) and not each.verdict.good for each in check.findings)
        count = f"{failed or 'no'} comparison{'s' * (failed > 1)}"
        start = "best model when pinned" if check.answer else "still the best model"
        lines.append(f"{start}: {check.models[0].name}; {count} failed")
        lines += [f"best model now: {check.answer}"] * bool(check.answer)
    if check.versions:
        pairs = check.versions.items()
        listed = ", ".join(f"{name} {was} (now {now})" for name, (was, now) in pairs)
        lines.append(f"pinned with {listed}")
    return lines


def notes_below(check: CheckReport) -> list[str]:
    """Return lines about the table: how values are compared, what is left out, and what to do."""
    found = [alike[0] for alike in check.alike if alike[0].verdict.compared]
    details = {each.detail for each in found}
    lines = [f"({text})" for text in details if len(details) == 1]
    if any(each.verdict is Verdict.CHANGED for each in found):
        lines.append("a changed metric fails because neither direction is known to be better")
    if any(each.metric.startswith(VIOLATION_PREFIX) for each in found):
        lines.append("the violation of a satisfied constraint counts as 0")
    left = Counter(each.algorithm for each in check.of(TABLE_VERDICTS))
    left -= Counter(each.algorithm for alike in check.alike for each in alike)
    if left:
        counts = ", ".join(f"{count} of {algorithm}" for algorithm, count in left.items())
        lines.append(f"changes that are not listed: {counts}")
    helps = [each.help for each in found if not each.verdict.good and each.help]
    return lines + [f"help: {text}" for text in helps[:1]]


def checks_to_json(checks: Sequence[CheckReport]) -> dict[str, Any]:
    """Return all checks as JSON data; non-finite numbers are null."""
    return {
        "holds": all(each.holds for each in checks),
        "files": [
            {
                "file": str(each.path),
                "name": each.name,
                "holds": each.holds,
                "reference": str(each.reference) if each.reference else None,
                "versions": {name: list(pair) for name, pair in each.versions.items()},
                "notes": [{"told": one.message, "way_out": one.help} for one in each.notes],
                "counts": {str(verdict): count for verdict, count in each.counts.items()},
                "comparisons": [_record(one) for one in each.findings],
            }
            for each in checks
        ],
    }


JSON_KEYS = (
    *("verdict", "good", "against", "algorithm", "variant", "point", "split", "metric"),
    *("was", "now", "difference", "low", "high", "seeds", "left_out", "needed", "told", "way_out"),
)
"""Keys of a comparison."""


def _record(each: Finding) -> dict[str, Any]:
    low, high = each.interval or (None, None)
    found = vars(each) | {"good": each.verdict.good, "point": dict(each.point)}
    found |= {"difference": each.difference, "low": low, "high": high}
    found |= {"needed": each.needed or None, "told": each.detail, "way_out": each.help}
    return {key: _plain(found[key]) for key in JSON_KEYS}


def _plain(value: Any) -> Any:
    infinite = isinstance(value, float) and not math.isfinite(value)
    return None if infinite or value == "" else value
