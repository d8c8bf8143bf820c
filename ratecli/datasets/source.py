"""Descriptions of named data sets, and the input of their preparations.

Nothing here imports NumPy or pandas before a table is made, so that listings stay fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratecli.config.dataset import LoggedSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ratecli.datasets.table import Table


@dataclass(frozen=True)
class RemoteFile:
    """One file of a source.

    `members` leads from the archive at `url` to the file, through an inner archive if necessary; a
    mirror has the bare file. If the published bytes are unknown to ratecli, `sha256` is empty and
    `size` 0: the user must vouch for the download (ratecli/datasets/files.py).
    """

    name: str
    url: str
    sha256: str
    size: int
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """An integer option of a generated source, with its bounds."""

    default: int
    least: int
    most: int


SEED = Option(default=0, least=0, most=2**63 - 1)


@dataclass(frozen=True)
class Frontier:
    """The exact optimum of one trade-off, for plots.

    `function` ("module:function") maps values of the metric `x` to the least possible `y` of any
    rule whose `x` is at least that; `x` and `y` are metrics in the rate language. It is valid for
    the rows of the `preparations` listed; other preparations select rows, which changes the
    optimum.
    """

    function: str
    x: str
    y: str
    preparations: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A named data set.

    `preparations` maps a name to its "module:function", the default first. `file_options` are
    options whose value is the path of a user's file. `version` is increased whenever a preparation
    gives other numbers: it is part of every digest. `numbers` has the preparations whose label is a
    number, with its smallest and largest possible value. `logged` has those with logged decisions.
    `true_returns` ("module:function") maps a policy to its expected return of each outcome.

    `stand_in` describes what the data replace and what that means; it is shown above every result.
    `folder` is where the files are stored, if not under the source's name. `columns` are those of
    files without a header.
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
    logged: Mapping[str, LoggedSpec] = field(default_factory=dict)
    true_returns: str = ""
    version: int = 1
    stand_in: str = ""
    folder: str = ""
    columns: tuple[str, ...] = ()

    def file_path(self, file: RemoteFile) -> str:
        """Return the path of a file in the data folder and in a mirror: <folder>/<file>."""
        return f"{self.folder or self.name}/{file.name}"


@dataclass(frozen=True)
class Raw:
    """The input of a preparation: verified files by name, options, and the digest of both.

    `paths` also has the files that options name, under the option's name. `columns` are those of
    the source. `logged` describes logged decisions, if the preparation has any.
    """

    paths: Mapping[str, Path]
    options: Mapping[str, Any]
    digest: str
    files: tuple[tuple[str, str], ...]
    columns: tuple[str, ...] = ()
    logged: LoggedSpec | None = None

    def table(self, frame: pd.DataFrame, label: NDArray[np.float64], **others: Any) -> Table:
        """Return a table made from this input, by default without features.

        The words in `frame` become strings, missing ones None.
        """
        from ratecli.datasets.columns import with_text  # noqa: PLC0415  NumPy, pandas
        from ratecli.datasets.table import Table  # noqa: PLC0415

        contents: dict[str, Any] = {"frame": with_text(frame), "features": (), "label": label}
        return Table(**contents | others, digest=self.digest, files=self.files)

    def episodes(self, frame: pd.DataFrame, features: Sequence[str]) -> Table:
        """Return a table of logged episodes, whose steps are the rows of `frame`."""
        from ratecli.datasets.logged import episode_table  # noqa: PLC0415  NumPy, pandas

        assert self.logged is not None
        return episode_table(frame, features, self.logged, digest=self.digest, files=self.files)
