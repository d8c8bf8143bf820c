"""Mistakes and doubts as Python has them: exceptions that can be read, and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ratecli.cli.render import render
from ratecli.faults import Fault, FaultError

WIDTH = 100


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


def warn(*doubts: Fault | str, level: int = 3) -> None:
    """One warning each, said of the caller's caller."""
    for text in dict.fromkeys(map(_text, doubts)):
        warnings.warn(text, RatecliWarning, stacklevel=level)


def warn_of(faults: Iterable[Fault]) -> None:
    """The warnings among faults, said of the caller's caller."""
    warn(*(fault for fault in faults if not fault.is_error), level=4)


def _text(doubt: Fault | str) -> str:
    return doubt if isinstance(doubt, str) else f"{doubt.code}: {doubt.message}"
