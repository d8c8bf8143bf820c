"""Mistakes and doubts as Python has them: exceptions that can be read, and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ratecli.errors import Fault
from ratecli.errors import FaultError as FaultError  # noqa: PLC0414  public name
from ratecli.render import render

WIDTH = 100
OURS = str(Path(__file__).parents[1])
"""Where the files of ratecli are."""


class MistakeError(FaultError, ValueError):
    """What is wrong with what was given, as the command line would show it; `faults` has the parts."""

    def __str__(self) -> str:
        return render(self.faults, color=False, width=WIDTH)


class NoSolutionFoundError(ValueError):
    """There is no model that may be used: none was found, or none that passed its safety test."""


class RatecliWarning(UserWarning):
    """What was done though there is reason for doubt."""


@contextmanager
def readable() -> Iterator[None]:
    """Faults raised inside say where in a rule they are."""
    try:
        yield
    except MistakeError:
        raise
    except FaultError as error:
        raise MistakeError(error.faults) from None


def warn(*doubts: Fault | str) -> None:
    """One warning each, said of the line outside of ratecli from which it was called."""
    for text in dict.fromkeys(map(_text, doubts)):
        warnings.warn(text, RatecliWarning, stacklevel=_outside())


def warn_of(faults: Iterable[Fault]) -> None:
    """The warnings among faults."""
    warn(*(fault for fault in faults if not fault.is_error))


def _outside() -> int:
    """How many calls up from the caller the first one is that is none of ours."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  warnings count from there
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame, level = frame.f_back, level + 1
    return level


def _text(doubt: Fault | str) -> str:
    return doubt if isinstance(doubt, str) else f"{doubt.code}: {doubt.message}"
