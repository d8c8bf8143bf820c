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
    """One file of a source.

    `members` leads from the archive at `url` to the file, through an inner archive if need be; a
    mirror holds the bare file. Where nobody here has seen the published bytes, `sha256` is empty and
    `size` 0: the user must vouch for what is fetched (ratecli/datasets/download.py).
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

    `preparations` maps a name to its "module:function", the default first. `file_options` are options
    that take the path of a file of the user's. `version` is counted up whenever a preparation gives
    other numbers: it is part of every digest. `numbers` has the preparations whose label is a number,
    with the least and the largest that it can be.

    `stand_in` says of data that replace others what they replace and what that means: it stands at
    the head of every result. `folder` is where the files lie, if not under the source's name.
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
    file_options: tuple[str, ...] = ()
    frontier: Frontier | None = None
    numbers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    version: int = 1
    stand_in: str = ""
    folder: str = ""

    def file_path(self, file: RemoteFile) -> str:
        """Where a file lies in the data folder and in a mirror: <folder>/<file>."""
        return f"{self.folder or self.name}/{file.name}"


@dataclass(frozen=True)
class Raw:
    """What a preparation is given: verified files by name, options, and what identifies both.

    Files that options name are among `paths`, under the option's name.
    """

    paths: Mapping[str, Path]
    options: Mapping[str, Any]
    digest: str
    files: tuple[tuple[str, str], ...]
