"""Findings as JUnit XML, which GitHub, GitLab and Jenkins read: a suite a file, a case a comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from ratecli.report.regression.findings import CheckReport, CheckVerdict, Finding

INVALID_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


def to_junit(checks: Sequence[CheckReport]) -> bytes:
    """What was not compared is an `error`, what does not hold a `failure`."""
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
