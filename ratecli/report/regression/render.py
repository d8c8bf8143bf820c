"""Render checks as tables and text, JSON, or JUnit XML."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from ratecli.report.regression.findings import (
    FAILING,
    CheckReport,
    CheckVerdict,
    Finding,
    format_interval,
    format_signed,
)
from ratecli.report.sheet import Sheet, SheetCell, SheetColumn, format_number, format_scalar

INVALID_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that are invalid in XML 1.0."""


def to_junit(checks: Sequence[CheckReport]) -> bytes:
    """Render checks as JUnit XML.

    Values that were not compared are an `error`, other failed comparisons a `failure`.
    """
    root = ET.Element("testsuites", _counts([each for one in checks for each in one.findings]))
    for one in checks:
        attributes = {"name": _clean(one.name), "file": _clean(str(one.path))}
        suite = ET.SubElement(root, "testsuite", attributes | _counts(one.findings))
        for each in one.findings:
            _case(suite, one, each)
    ET.indent(root)
    text: bytes = ET.tostring(root, "utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: ET.Element, one: CheckReport, each: Finding) -> None:
    about = f"{each.metric} of {each.who}" if each.metric else each.who or "results"
    name = f"{about} against {'the reference' if each.against != 'expect' else 'what is expected'}"
    classname = ".".join(filter(None, [one.name, each.algorithm]))
    attributes = {"name": name, "classname": classname, "file": str(one.path), "time": "0"}
    case = ET.SubElement(suite, "testcase", {key: _clean(v) for key, v in attributes.items()})
    if not each.verdict.good:
        tag = "error" if each.verdict is CheckVerdict.NOT_COMPARED else "failure"
        told = {"type": str(each.verdict), "message": _clean(each.sentence)}
        ET.SubElement(case, tag, told).text = _clean(f"{each.sentence}\n{each.way_out}")


def _counts(findings: Sequence[Finding]) -> dict[str, str]:
    errors = sum(each.verdict is CheckVerdict.NOT_COMPARED for each in findings)
    failures = sum(not each.verdict.good for each in findings) - errors
    counts = {"tests": len(findings), "failures": failures, "errors": errors, "skipped": 0}
    return {name: str(count) for name, count in counts.items()} | {"time": "0"}


def _clean(text: str) -> str:
    return INVALID_XML.sub("\ufffd", text)


FAILED_VERDICTS = FAILING[1:]
IMPROVED_VERDICTS = (CheckVerdict.IMPROVED, CheckVerdict.BETTER)
"""Verdicts listed in the table, failing and passing ones."""
MAX_FAILED = 40
MAX_IMPROVED = 10


def check_summary(check: CheckReport) -> str:
    """Summary: `quickstart: 126 comparisons with REFERENCE and `expect`: 2 regressed, 124 same`."""
    counts = ", ".join(
        f"{len(found)} {verdict}" for verdict in CheckVerdict if (found := check.of(verdict))
    )
    sides = [str(check.reference)] if check.reference else []
    if any(each.against == "expect" for each in check.findings):
        sides.append("`expect`")
    against = f" with {' and '.join(sides)}" if sides else ""
    count = len(check.findings)
    return f"{check.name}: {count} comparison{'s' * (count != 1)}{against}: {counts or 'none'}"


def findings_sheet(check: CheckReport) -> Sheet:
    """Return a table of changes: failed ones first, then the largest ones.

    `omitted_note` reports the changes beyond its length.
    """
    found = [*check.of(*FAILED_VERDICTS)[:MAX_FAILED], *check.of(*IMPROVED_VERDICTS)[:MAX_IMPROVED]]
    names = list(dict.fromkeys(name for each in found for name in each.point))
    heads = (
        "verdict",
        "algorithm",
        "variant",
        *names,
        "split",
        "metric",
        "was",
        "now",
        "difference",
        "told",
    )
    numeric = {"was", "now", "difference"}
    columns = tuple(SheetColumn(name, numeric=name in numeric) for name in heads)
    return Sheet("What moved", columns, tuple(_row(each, names) for each in found))


def omitted_note(check: CheckReport) -> str:
    """Return `... and 12 more: --format json has all`, or "" if the table has all changes."""
    failed, fine = (
        max(0, len(check.of(*verdicts)) - most)
        for verdicts, most in ((FAILED_VERDICTS, MAX_FAILED), (IMPROVED_VERDICTS, MAX_IMPROVED))
    )
    if not failed + fine:
        return ""
    failing = f", {failed} of them failures" if failed else ""
    return f"... and {failed + fine} more{failing}: --format json has all"


def _row(each: Finding, names: Sequence[str]) -> tuple[SheetCell, ...]:
    moved = (
        ""
        if each.difference is None
        else f"{format_signed(each.difference)}{format_interval(each.interval)}"
    )
    texts = [
        str(each.verdict),
        each.algorithm,
        each.variant,
        *(format_scalar(each.point.get(name)) for name in names),
        each.split,
        each.metric,
        *("" if value is None else format_number(value) for value in (each.was, each.now)),
        moved,
        each.told,
    ]
    return tuple(map(SheetCell, texts))


def versions_note(check: CheckReport) -> str:
    """Return a note on changed package versions, or "" if nothing fails or nothing changed."""
    if check.holds or not check.versions:
        return ""
    listed = ", ".join(f"{name} {was} (here {now})" for name, (was, now) in check.versions.items())
    return f"pinned with {listed}"


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
                "notes": [{"told": one.told, "way_out": one.way_out} for one in each.notes],
                "counts": {str(v): len(each.of(v)) for v in CheckVerdict if each.of(v)},
                "comparisons": [_record(one) for one in each.findings],
            }
            for each in checks
        ],
    }


def _record(each: Finding) -> dict[str, Any]:
    low, high = each.interval or (None, None)
    return {
        "verdict": str(each.verdict),
        "good": each.verdict.good,
        "against": each.against,
        "algorithm": each.algorithm or None,
        "variant": each.variant or None,
        "point": dict(each.point),
        "split": each.split or None,
        "metric": each.metric or None,
        "was": _number(each.was),
        "now": _number(each.now),
        "difference": _number(each.difference),
        "low": _number(low),
        "high": _number(high),
        "seeds": each.seeds,
        "left_out": each.left_out,
        "needed": each.needed or None,
        "told": each.told,
        "way_out": each.way_out or None,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
