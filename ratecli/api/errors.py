"""Mistakes and doubts as Python has them: exceptions that can be read, and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ratecli.errors import Diagnostic
from ratecli.errors import FaultError as FaultError  # noqa: PLC0414  public name
from ratecli.render import render_diagnostics

MESSAGE_WIDTH = 100
PACKAGE_FOLDER = str(Path(__file__).parents[1])
"""Where the files of ratecli are."""


class InvalidInputError(FaultError, ValueError):
    """What is wrong with what was given, as the command line would show it; `faults` has the parts."""

    def __str__(self) -> str:
        return render_diagnostics(self.faults, color=False, width=MESSAGE_WIDTH)


class NoSolutionFoundError(ValueError):
    """There is no model that may be used: none was found, or none that passed its safety test."""


class RatecliWarning(UserWarning):
    """What was done though there is reason for doubt."""


@contextmanager
def convert_errors() -> Iterator[None]:
    """Faults raised inside say where in a rule they are."""
    try:
        yield
    except InvalidInputError:
        raise
    except FaultError as error:
        raise InvalidInputError(error.faults) from None


def issue_warning(*doubts: Diagnostic | str) -> None:
    """One warning each, said of the line outside of ratecli from which it was called."""
    for text in dict.fromkeys(map(_text, doubts)):
        warnings.warn(text, RatecliWarning, stacklevel=_caller_level())


def issue_warnings(faults: Iterable[Diagnostic]) -> None:
    """The warnings among faults."""
    issue_warning(*(fault for fault in faults if not fault.is_error))


def _caller_level() -> int:
    """How many calls up from the caller the first one is that is none of ours."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  warnings count from there
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frame, level = frame.f_back, level + 1
    return level


def _text(doubt: Diagnostic | str) -> str:
    return doubt if isinstance(doubt, str) else f"{doubt.code}: {doubt.message}"
