"""Diagnostics: all errors and warnings that ratecli reports; `diagnostic_codes` explains each code.

The code that finds an error sets the location that it knows: `rates` the characters of a rule's
text, `config`, `datasets` and `solvers` the path of keys to a value. `config.document` adds file
and line. The command line prints diagnostics and derives its exit code from theirs.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

Loc = tuple[str | int, ...]
"""The path to a value in a file: keys, and indices of lists."""

CHECK_FAILURE_CODES = frozenset({"E506", "E508", "E509"})
"""Codes for a check that failed or could not be made."""


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` (exclusive) of a rule's text."""

    start: int
    end: int


@dataclass(frozen=True)
class SourceLocation:
    """A range within one line of a file; line and column count from 1."""

    file: str
    line: int
    column: int
    width: int
    excerpt: str


@dataclass(frozen=True)
class Diagnostic:
    """An error (code E..., nothing runs) or a warning (code W...).

    `loc` is the path to the value that it concerns, relative to the part of the file that was
    checked; `key` is true if it concerns the key there, not the value. `span` are characters of a
    rule. `Document.placed` turns them into `place`.
    """

    code: str
    message: str
    help: str | None = None
    span: Span | None = None
    place: SourceLocation | None = None
    loc: Loc = ()
    key: bool = False

    @property
    def is_error(self) -> bool:
        return self.code.startswith("E")

    def under(self, *outer: str | int, key: bool = False) -> Diagnostic:
        """Return the diagnostic with its location inside an outer part of the file.

        If it has no location of its own, `key` is true if it concerns the key of that part.
        """
        return replace(self, loc=(*outer, *self.loc), key=self.key or (key and not self.loc))


class FaultError(Exception):
    """All errors of one phase, to be reported together."""

    def __init__(self, faults: Diagnostic | Iterable[Diagnostic]) -> None:
        self.faults = (faults,) if isinstance(faults, Diagnostic) else tuple(faults)
        super().__init__("\n".join(f"{fault.code}: {fault.message}" for fault in self.faults))

    def __reduce__(self) -> tuple[type[FaultError], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.faults,)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends with these errors.

        4 if all concern data, 1 for trials that failed or did not run, 3 for failed checks,
        otherwise 2.
        """
        codes = {fault.code for fault in self.faults if fault.is_error}
        if codes and codes <= CHECK_FAILURE_CODES:
            return 3
        codes -= {"E501", "E510", "E513"}
        if not codes:
            return 1
        return 4 if all(code.startswith("E4") for code in codes) else 2


class InvalidValueError(FaultError, ValueError):
    """Errors in a value, raised by a validator: pydantic adds the location of its field."""


@contextmanager
def errors_at(*loc: str | int) -> Iterator[None]:
    """Set the location of errors raised in the block, unless they have one."""
    try:
        yield
    except FaultError as error:
        located = [each if each.loc else replace(each, loc=loc) for each in error.faults]
        raise type(error)(located) from error.__cause__


@contextmanager
def errors_under(*outer: str | int) -> Iterator[None]:
    """Move the locations of errors raised in the block inside an outer part of the file."""
    try:
        yield
    except FaultError as error:
        raise type(error)([each.under(*outer) for each in error.faults]) from error.__cause__


def exception_line(error: BaseException) -> str:
    """Return an exception as one line of text."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, FaultError):
        text = "; ".join(f"{fault.code}: {fault.message}" for fault in error.faults)
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())


MAX_LISTED = 30
"""Maximum number of known names that a message lists."""


def did_you_mean(word: str, known: Iterable[str], what: str = "known") -> str:
    """Return help for an unknown name: the closest known name, and the first ones in order."""
    names = sorted(known)
    folded = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    hint = f"did you mean '{folded[near[0]]}'? " if near else ""
    listed = ", ".join(names[:MAX_LISTED]) + (", ..." if len(names) > MAX_LISTED else "")
    return f"{hint}{what}: {listed}" if names else f"{hint}there are none here"


def unknown_name(
    code: str, what: str, name: object, known: Iterable[str], *loc: str | int, key: bool = False
) -> Diagnostic:
    """Return an error about a name that nothing of a kind has, with the closest known names."""
    hint = did_you_mean(str(name), known, f"{what}s")
    return Diagnostic(code, f"no {what} is called '{str(name)[:40]}'", hint, loc=loc, key=key)


def drop_library_warnings() -> None:
    """Show no Python warning from now on: what a user must know is a diagnostic.

    Filters that turn warnings into exceptions, as in tests, still do so.
    """

    def drop(*_: object, **__: object) -> None:
        pass

    warnings.showwarning = drop
