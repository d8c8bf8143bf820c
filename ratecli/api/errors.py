"""Diagnostics as Python exceptions and warnings."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ratecli.errors import Diagnostic
from ratecli.errors import FaultError as FaultError  # noqa: PLC0414  public name
from ratecli.render import render_diagnostics, terminal_safe

MESSAGE_WIDTH = 100
PACKAGE_FOLDER = f"{Path(__file__).parents[1]}{os.sep}"
"""Folder of the package `ratecli`, with a separator at its end."""


class InvalidInputError(FaultError, ValueError):
    """Invalid input; `str` is the message of the command line, `faults` has its parts."""

    def __str__(self) -> str:
        return render_diagnostics(self.faults, color=False, width=MESSAGE_WIDTH)


class NoSolutionFoundError(ValueError):
    """No usable model: none was found, or none passed its safety test."""


class RatecliWarning(UserWarning):
    """A result that may not be what the user expects."""


@contextmanager
def convert_errors() -> Iterator[None]:
    """Convert a FaultError to an InvalidInputError, which is a ValueError."""
    try:
        yield
    except FaultError as error:
        raise InvalidInputError(error.faults) from None


def issue_warnings(notices: Iterable[Diagnostic | str]) -> None:
    """Issue a warning for each text or diagnostic, attributed to the caller outside of ratecli."""
    texts = (each if isinstance(each, str) else f"{each.code}: {each.message}" for each in notices)
    for text in dict.fromkeys(texts):
        warnings.warn(terminal_safe(text), RatecliWarning, stacklevel=_caller_level())


def _caller_level() -> int:
    """Return the stack level of the first caller outside of ratecli."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  warnings count from there
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frame, level = frame.f_back, level + 1
    return level
