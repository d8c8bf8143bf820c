"""`fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ratecli.cli.arguments import Offline
from ratecli.cli.collect import each
from ratecli.cli.completion import KINDS, data_sets
from ratecli.cli.fetching import Told, progress


def add_to(app: typer.Typer) -> None:
    app.command()(fetch)


def fetch(
    wanted: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|FILE",
            help="Data sets (`ratecli ls datasets`) or experiments.",
            autocompletion=data_sets,
        ),
    ],
    offline: Offline = False,
) -> None:
    """Download and verify data sets, or all that experiments need."""
    with progress() as told:
        found = each(map(Path, wanted), lambda one: _fetched(one, offline=offline, told=told))
    typer.echo("\n".join(line for lines in found for line in lines))


def _fetched(wanted: Path, *, offline: bool, told: Told | None) -> list[str]:
    """A line for every file; only what has a slash or an ending of YAML is a file itself."""
    if wanted.suffix in KINDS or len(wanted.parts) > 1:
        from ratecli.experiment.prepare import absent_files, understand  # noqa: PLC0415
        from ratecli.experiment.prepare import fetch as fetch_all  # noqa: PLC0415

        known = understand(wanted)
        absent_files(known)
        paths = fetch_all(known, offline=offline, progress=told)
    else:
        from ratecli.datasets import registry  # noqa: PLC0415
        from ratecli.datasets.download import ensure  # noqa: PLC0415

        paths = list(ensure(registry.find(str(wanted)), offline=offline, progress=told).values())
    return [f"{path}  verified" for path in paths] or [f"{wanted}: nothing to download"]
