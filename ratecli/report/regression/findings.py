"""What a check says of one thing that it compared, or could not compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from ratecli.config.document import Document, Loc
from ratecli.errors import Diagnostic
from ratecli.report.sheet import format_number, format_scalar


class CheckVerdict(StrEnum):
    """What came of a comparison; those that fail a check come first."""

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
        `reference`: what is pinned; `expect`: what the file expects; `run`: nothing, since what there is
        to compare is not there.
    was, now, interval
        What it is compared with, what it is, and the ends of the difference (now less was).
    seeds
        How many seeds it rests on.
    left_out
        At how many of them a number is undefined, so that they are left out.
    needed
        Of two samples, with how many seeds on either side half a point would show; 0 where nobody asks.
    told
        How it was compared, or why it was not.
    remark
        What is worth telling though it holds.
    way_out
        What to do about it.
    loc
        Where in the file it stands what is compared.
    code
        That of its fault, if it is another than E508, or E509 where nothing was compared.
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
        """`majorize (stochastic, kappa = 0.8, test)`; empty for all of a file."""
        point = [f"{name} = {format_scalar(value)}" for name, value in self.point.items()]
        about = ", ".join(filter(None, [self.variant, *point, self.split]))
        return f"{self.algorithm} ({about})" if about else self.algorithm

    @property
    def what(self) -> str:
        """`'error' of majorize (stochastic, kappa = 0.8, test)`."""
        return f"'{self.metric}' of {self.who}" if self.metric else self.who

    @property
    def rank(self) -> tuple[float, float]:
        """How far it moved, in halves of its interval, and as it is; infinite without one."""
        moved = abs(self.difference or 0.0)
        low, high = self.interval or (0.0, 0.0)
        return (2 * moved / (high - low) if high > low else math.inf), moved

    @property
    def sentence(self) -> str:
        """All of it but the way out."""
        what = self.what
        if self.verdict is CheckVerdict.NOT_COMPARED:
            return f"{what}: {self.told}" if what else self.told
        return f"{what} {self.verdict}: {self.numbers}"

    @property
    def numbers(self) -> str:
        """`0.2069 -> 0.2119, by +0.0050 [+0.0031, +0.0069], paired over 5 seeds`."""
        if self.was is None or self.now is None or self.difference is None:
            return self.told
        moved = f"{format_number(self.was)} -> {format_number(self.now)}, by {format_signed(self.difference)}"
        return f"{moved}{format_interval(self.interval)}, {self.told}".removesuffix(", ")

    def fault(self, document: Document) -> Diagnostic:
        """At its place in the file."""
        code = self.code or ("E509" if self.verdict is CheckVerdict.NOT_COMPARED else "E508")
        place = document.place(self.loc, key=True)
        return Diagnostic(code, self.sentence, self.way_out or None, place=place)


@dataclass(frozen=True)
class CheckNote:
    """What is told and does not fail; `loc` is where in the file it stands."""

    told: str
    way_out: str
    loc: Loc

    def fault(self, document: Document) -> Diagnostic:
        """A warning at its place in the file."""
        place = document.place(self.loc, key=True)
        return Diagnostic("W502", self.told, self.way_out, place=place)


@dataclass(frozen=True)
class CheckReport:
    """All that was found of one file.

    `versions` are of what the numbers hang on, pinned and here, where they differ.
    """

    path: Path
    name: str
    reference: Path | None
    findings: Sequence[Finding]
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: Sequence[CheckNote] = ()

    @property
    def holds(self) -> bool:
        return all(each.verdict.good for each in self.findings)

    def of(self, *verdicts: CheckVerdict) -> list[Finding]:
        """Those with a verdict, in the order of verdicts, what moved furthest first."""
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
