"""What ratecli knows of a named data set, and what its preparation is given.

Nothing here imports numpy or pandas, so that listings stay quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RemoteFile:
    """One file of a source, whose bytes are known.

    `members` leads from the archive at `url` to the file, through an inner archive if need be; a
    mirror holds the bare file.
    """

    name: str
    url: str
    sha256: str
    size: int
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """A whole number that a generated source takes, and its bounds."""

    default: int
    least: int
    most: int


@dataclass(frozen=True)
class Frontier:
    """The exact optimum of one trade-off, for plots.

    `function` ("module:function") maps values of the metric `x` to the least possible `y` of any
    rule whose `x` is at least that; `x` and `y` are metrics in the rate language. It holds for rows
    of the `preparations` named: others select rows, and so change what is possible.
    """

    function: str
    x: str
    y: str
    preparations: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A named data set.

    `preparations` maps a name to its "module:function", the default first. `version` is counted up
    whenever a preparation gives other numbers: it is part of every digest.
    """

    name: str
    summary: str
    preparations: Mapping[str, str]
    rows: int
    label: str
    sensitive: tuple[str, ...]
    licence: str
    notes: str
    citation: str = ""
    files: tuple[RemoteFile, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    frontier: Frontier | None = None
    version: int = 1


@dataclass(frozen=True)
class Raw:
    """What a preparation is given: verified files by name, options, and what identifies both."""

    paths: Mapping[str, Path]
    options: Mapping[str, Any]
    digest: str
    files: tuple[tuple[str, str], ...]
