"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

File: TypeAlias = Annotated[Path, typer.Argument(metavar="FILE", help="An experiment (YAML).")]
Files: TypeAlias = Annotated[list[Path], typer.Argument(metavar="FILE", help="Experiments (YAML).")]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a value of the file, as in --set seeds=1; may be repeated.",
    ),
]
Output: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        file_okay=False,
        help="Results go to a folder of the experiment's name in this one.",
    ),
]
Offline: TypeAlias = Annotated[
    bool, typer.Option("--offline", help="Use no network; data must be there or on a local mirror.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RESULTS = Path("results")
