"""What is wrong, where, and what would be right: the one way in which ratecli reports a mistake.

A room that finds a mistake knows what it looked at: `rates` an offset in the text of a rule, `spec`
a line of a file, `datasets` a column of a table. Each says so in a `Diagnostic`; whoever knows more adds
the place. The command line prints faults and takes the exit code from their first digit.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace

CHECK_FAILURE_CODES = frozenset({"E506", "E508", "E509"})
"""A check does not hold, or cannot be made."""


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` (exclusive) of a rule's text."""

    start: int
    end: int


@dataclass(frozen=True)
class SourceLocation:
    """A stretch of one line of a file; line and column count from 1."""

    file: str
    line: int
    column: int
    width: int
    excerpt: str


@dataclass(frozen=True)
class Diagnostic:
    """One mistake. Codes start with E (nothing runs) or W (a warning)."""

    code: str
    message: str
    help: str | None = None
    span: Span | None = None
    place: SourceLocation | None = None

    @property
    def is_error(self) -> bool:
        return self.code.startswith("E")

    def at(self, place: SourceLocation) -> Diagnostic:
        return replace(self, place=place)


class FaultError(Exception):
    """All the mistakes of one phase, to be shown together."""

    def __init__(self, faults: Diagnostic | Iterable[Diagnostic]) -> None:
        self.faults = (faults,) if isinstance(faults, Diagnostic) else tuple(faults)
        super().__init__("\n".join(f"{fault.code}: {fault.message}" for fault in self.faults))

    def __reduce__(self) -> tuple[type[FaultError], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.faults,)

    @property
    def exit_code(self) -> int:
        """4 if data is the trouble, 1 for trials that failed or were not reached, 3 for checks, else 2."""
        codes = {fault.code for fault in self.faults if fault.is_error}
        if codes and codes <= CHECK_FAILURE_CODES:
            return 3
        codes -= {"E501", "E513"}
        if not codes:
            return 1
        return 4 if all(code.startswith("E4") for code in codes) else 2


def did_you_mean(word: str, known: Iterable[str], what: str = "known") -> str:
    """Help for a name that does not exist: the nearest known one, and the list if it is short."""
    names = sorted(known)
    folded = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    hint = f"did you mean '{folded[near[0]]}'? " if near else ""
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"{hint}{what}: {listed}" if names else f"{hint}there are none here"
