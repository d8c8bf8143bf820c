"""Pinned trials made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratecli.rates.metrics import Direction
from ratecli.report.regression.compare import TOLERANCE, ComparisonTerms, compare_points
from ratecli.report.regression.findings import Finding
from ratecli.report.regression.reference import PinnedTrials

BETTER = {"error": Direction.LOW, "accuracy": Direction.HIGH, "solution_rate": Direction.HIGH}


def point(
    numbers: Sequence[Any], metric: str = "error", first: int = 0, status: str = "ok", **at: Any
) -> PinnedTrials:
    """One metric of one variant on test rows, with a number a seed; None for a trial without any."""
    values = (
        {} if all(each is None for each in numbers) else {"v": {"test": {metric: list(numbers)}}}
    )
    return PinnedTrials(
        algorithm="fit",
        point=at,
        seeds=list(range(first, first + len(numbers))),
        statuses=["no_solution_found" if each is None else status for each in numbers],
        values=values,
    )


def findings(now: Any, was: Any, tolerance: float = TOLERANCE) -> list[Finding]:
    """Of one point or several, without those on solutions that are the same."""
    sides = [[each] if isinstance(each, PinnedTrials) else each for each in (now, was)]
    found = compare_points(*sides, ComparisonTerms(tolerance, BETTER))
    return [each for each in found if each.metric != "solution_rate" or each.verdict != "same"]
