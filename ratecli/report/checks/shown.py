"""Checks as a person reads them, and as a program does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ratecli.report.checks.findings import BAD, Check, Finding, Verdict, signed, within
from ratecli.report.sheet import Cell, Column, Sheet, number, scalar

TOLD = (*BAD[1:], Verdict.IMPROVED, Verdict.BETTER)
"""Verdicts whose numbers are shown."""


def summary(check: Check) -> str:
    """`quickstart: 126 comparisons with REFERENCE and `expect`: 2 regressed, 124 same`."""
    counts = ", ".join(
        f"{len(found)} {verdict}" for verdict in Verdict if (found := check.of(verdict))
    )
    sides = [str(check.reference)] if check.reference else []
    if any(each.against == "expect" for each in check.findings):
        sides.append("`expect`")
    against = f" with {' and '.join(sides)}" if sides else ""
    count = len(check.findings)
    return f"{check.name}: {count} comparison{'s' * (count != 1)}{against}: {counts or 'none'}"


def table(check: Check) -> Sheet:
    """All that moved, what fails first."""
    found = check.of(*TOLD)
    names = list(dict.fromkeys(name for each in found for name in each.point))
    heads = ("verdict", "algorithm", "variant", *names, "split", "metric", "was", "now",
             "difference", "told")  # fmt: skip
    numeric = {"was", "now", "difference"}
    columns = tuple(Column(name, numeric=name in numeric) for name in heads)
    return Sheet("What moved", columns, tuple(_row(each, names) for each in found))


def _row(each: Finding, names: Sequence[str]) -> tuple[Cell, ...]:
    moved = "" if each.difference is None else f"{signed(each.difference)}{within(each.interval)}"
    texts = [
        str(each.verdict),
        each.algorithm,
        each.variant,
        *(scalar(each.point.get(name)) for name in names),
        each.split,
        each.metric,
        *("" if value is None else number(value) for value in (each.was, each.now)),
        moved,
        each.told,
    ]
    return tuple(map(Cell, texts))


def versions(check: Check) -> str:
    """Why numbers may differ though nobody touched the code; empty where nothing fails."""
    if check.holds or not check.versions:
        return ""
    listed = ", ".join(f"{name} {was} (here {now})" for name, (was, now) in check.versions.items())
    return f"pinned with {listed}"


def document(checks: Sequence[Check]) -> dict[str, Any]:
    """All of it for JSON; numbers that JSON has no way to write are null."""
    return {
        "holds": all(each.holds for each in checks),
        "files": [
            {
                "file": str(each.path),
                "name": each.name,
                "holds": each.holds,
                "reference": str(each.reference) if each.reference else None,
                "versions": {name: list(pair) for name, pair in each.versions.items()},
                "counts": {str(v): len(each.of(v)) for v in Verdict if each.of(v)},
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
        "told": each.told,
        "way_out": each.way_out or None,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
