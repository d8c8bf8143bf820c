"""The command `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ratecli.cli.arguments import SeparatorOption
from ratecli.cli.completion import complete_models, complete_tables
from ratecli.cli.console import print_diagnostics

STDOUT = Path("-")


def add_to(app: typer.Typer) -> None:
    app.command()(predict)


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="results/NAME/models/TRIAL/VARIANT.npz, or the folder TRIAL for the main "
            "variant; the folder that `ratecli filter` left.",
            autocompletion=complete_models,
        ),
    ],
    table: Annotated[
        Path,
        typer.Argument(
            metavar="CSV",
            help="A CSV or Parquet file with the columns that the model needs.",
            autocompletion=complete_tables,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where the table goes; - is standard output."
        ),
    ] = STDOUT,
    *,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another variant of the trial in MODEL.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Decides what a randomized classifier leaves to chance.")
    ] = 0,
    prefix: Annotated[
        str, typer.Option(help="Stands before the names of the columns that are added.")
    ] = "",
    separator: SeparatorOption = None,
) -> None:
    """Apply a stored classifier to a table: its columns, and behind them score, chance and
    decision.

    Of a filter the columns are the chance that a row is kept, the value drawn, and whether it is
    kept.
    """
    from ratecli.apply.predict import PredictRequest  # noqa: PLC0415
    from ratecli.apply.predict import predict_file as predicted  # noqa: PLC0415

    place = None if output == STDOUT else output
    found = predicted(PredictRequest(model, table, place, variant, separator, prefix, seed))
    print_diagnostics(found.warnings)
    if found.content is not None:
        typer.echo(found.content, nl=False)
    typer.echo(found.line, err=place is None)
