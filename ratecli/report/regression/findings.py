"""Findings of a check: the results of comparisons, and reasons why something was not compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from ratecli.errors import Diagnostic, Loc
from ratecli.report.sheet import format_number, format_scalar


class CheckVerdict(StrEnum):
    """The result of a comparison; the ones that fail a check come first."""

    NOT_COMPARED = "not compared"
    DIFFERS = "differs"
    REGRESSED = "regressed"
    CHANGED = "changed"
    IMPROVED = "improved"
    BETTER = "better"
    SAME = "same"
    HOLDS = "holds"
    NOT_CONTRADICTED = "not contradicted"

    @property
    def good(self) -> bool:
        return self not in FAILING


FAILING = (
    CheckVerdict.NOT_COMPARED,
    CheckVerdict.DIFFERS,
    CheckVerdict.REGRESSED,
    CheckVerdict.CHANGED,
)
FindingSource = Literal["reference", "expect", "run"]


@dataclass(frozen=True)
class Finding:
    """One comparison.

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
        For two samples, the number of seeds per side needed to detect a loss of half a percentage
        point; 0 if not applicable.
    told
        How the values were compared, or why they were not.
    remark
        A remark to show even if the comparison passes.
    way_out
        What to do about the finding.
    loc
        Location in the experiment file.
    code
        The error code, if it is not E508 (or E509 if nothing was compared).
    """

    verdict: CheckVerdict
    against: FindingSource
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
    told: str = ""
    remark: str = ""
    way_out: str = ""
    loc: Loc = ("name",)
    code: str = ""

    @property
    def difference(self) -> float | None:
        return None if self.was is None or self.now is None else self.now - self.was

    @property
    def who(self) -> str:
        """Model and split: `majorize (stochastic, kappa = 0.8, test)`; "" for a whole file."""
        point = [f"{name} = {format_scalar(value)}" for name, value in self.point.items()]
        about = ", ".join(filter(None, [self.variant, *point, self.split]))
        return f"{self.algorithm} ({about})" if about else self.algorithm

    @property
    def what(self) -> str:
        """The compared value, such as `'error' of majorize (stochastic, kappa = 0.8, test)`."""
        return f"'{self.metric}' of {self.who}" if self.metric else self.who

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key: change relative to half its interval (infinite without one), and change."""
        moved = abs(self.difference or 0.0)
        low, high = self.interval or (0.0, 0.0)
        return (2 * moved / (high - low) if high > low else math.inf), moved

    @property
    def sentence(self) -> str:
        """The finding as text, without the suggestion."""
        what = self.what
        if self.verdict is CheckVerdict.NOT_COMPARED:
            return f"{what}: {self.told}" if what else self.told
        return f"{what} {self.verdict}: {self.numbers}"

    @property
    def numbers(self) -> str:
        """Values and change.

        Such as `0.2069 -> 0.2119, by +0.0050 [+0.0031, +0.0069], paired over 5 seeds`.
        """
        if self.was is None or self.now is None or self.difference is None:
            return self.told
        moved = (
            f"{format_number(self.was)} -> {format_number(self.now)}, "
            f"by {format_signed(self.difference)}"
        )
        return f"{moved}{format_interval(self.interval)}, {self.told}".removesuffix(", ")

    @property
    def diagnostic(self) -> Diagnostic:
        code = self.code or ("E509" if self.verdict is CheckVerdict.NOT_COMPARED else "E508")
        return Diagnostic(code, self.sentence, self.way_out or None, loc=self.loc, key=True)


@dataclass(frozen=True)
class CheckReport:
    """All findings of one experiment file.

    `versions` has the pinned and current version of each package that affects results and differs,
    `notes` warnings (W502) that do not fail the check.
    """

    path: Path
    name: str
    reference: Path | None
    findings: Sequence[Finding]
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: Sequence[Diagnostic] = ()

    @property
    def holds(self) -> bool:
        return all(each.verdict.good for each in self.findings)

    def of(self, *verdicts: CheckVerdict) -> list[Finding]:
        """Return findings with these verdicts, in the order of verdicts, largest changes first."""
        return [
            each
            for verdict in verdicts
            for each in sorted(self.findings, key=lambda one: one.rank, reverse=True)
            if each.verdict is verdict
        ]


def format_signed(value: float) -> str:
    return f"{'+' * (value >= 0)}{format_number(value)}"


def format_interval(interval: tuple[float, float] | None) -> str:
    return f" [{format_signed(interval[0])}, {format_signed(interval[1])}]" if interval else ""
