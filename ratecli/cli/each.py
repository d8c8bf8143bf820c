"""One thing done to several files, whose faults come together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from ratecli.faults import Fault, FaultError

T = TypeVar("T")


def each(files: Iterable[Path], act: Callable[[Path], T]) -> list[T]:
    """What `act` gives for every file; FaultError with the faults of all of them."""
    found: list[T] = []
    faults: list[Fault] = []
    for file in files:
        try:
            found.append(act(file))
        except FaultError as error:
            faults += error.faults
    if faults:
        raise FaultError(faults)
    return found
