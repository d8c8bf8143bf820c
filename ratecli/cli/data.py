"""The command `fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ratecli.cli.arguments import OfflineOption, collect_errors
from ratecli.cli.completion import YAML_SUFFIXES, complete_datasets
from ratecli.cli.console import DownloadCallback, download_progress


def add_to(app: typer.Typer) -> None:
    app.command()(fetch)


def fetch(
    wanted: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|FILE",
            help="Data sets (`ratecli ls datasets`) or experiments.",
            autocompletion=complete_datasets,
        ),
    ],
    offline: OfflineOption = False,
) -> None:
    """Download and verify data sets, or all that experiments need."""
    with download_progress() as told:
        found = collect_errors(
            map(Path, wanted), lambda one: _fetched(one, offline=offline, told=told)
        )
    typer.echo("\n".join(line for lines in found for line in lines))


def _fetched(wanted: Path, *, offline: bool, told: DownloadCallback | None) -> list[str]:
    """Return a line for each downloaded file.

    `wanted` is an experiment file if it contains a slash or has a YAML ending, otherwise a data
    set.
    """
    if wanted.suffix in YAML_SUFFIXES or len(wanted.parts) > 1:
        from ratecli.experiment.prepare import check_file, list_missing_files  # noqa: PLC0415
        from ratecli.experiment.prepare import fetch_sources as fetch_all  # noqa: PLC0415

        known = check_file(wanted)
        list_missing_files(known)
        paths = fetch_all(known, offline=offline, progress=told)
    else:
        from ratecli.datasets import registry  # noqa: PLC0415
        from ratecli.datasets.download import fetch_files  # noqa: PLC0415

        paths = list(
            fetch_files(registry.find_source(str(wanted)), offline=offline, progress=told).values()
        )
    return [f"{path}  verified" for path in paths] or [f"{wanted}: nothing to download"]
