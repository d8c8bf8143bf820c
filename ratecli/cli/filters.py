"""`filter`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ratecli.cli.console import counted, show
from ratecli.cli.console import table as aligned
from ratecli.cli.predictions import STDOUT

ALGORITHMS = "balanced_tree | qp_proxy | naive_proxy"


def add_to(app: typer.Typer) -> None:
    app.command(name="filter")(filter_table)


def filter_table(
    table: Annotated[
        Path,
        typer.Argument(metavar="CSV", help="A CSV or Parquet file, one person or thing a row."),
    ],
    by: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN",
            help="The column whose values are to have equal shares; may be repeated. The filter never "
            "looks at it.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the rows go that are kept; - is standard output.",
        ),
    ] = STDOUT,
    *,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--filter",
            metavar="FOLDER",
            help="Where the filter goes, for `ratecli predict FOLDER NEW.csv`. Default: nowhere.",
        ),
    ] = None,
    disclosivity: Annotated[
        float,
        typer.Option(
            metavar="ALPHA",
            help="By how much what the filter says of a row may shift the chance of its group, from 0 to 1.",
        ),
    ] = 0.1,
    algorithm: Annotated[
        str, typer.Option(metavar="NAME", help=f"{ALGORITHMS}.")
    ] = "balanced_tree",
    kept: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Keep at least this share of the rows. Default: 0.1; naive_proxy takes none.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="A column that the filter is not to look at; may be repeated."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column that is to be predicted later: not looked at either."
        ),
    ] = None,
    test: Annotated[
        str,
        typer.Option(
            metavar="FRACTION",
            help="Learn without this share of the rows, and tell what the filter does there.",
        ),
    ] = "0",
    seed: Annotated[
        int, typer.Option(help="Decides which rows are held out and which are kept.")
    ] = 0,
    separator: Annotated[
        str | None,
        typer.Option(help="Separates the columns of a CSV. Default: a comma; a tab in a .tsv."),
    ] = None,
) -> None:
    """Keep rows of a table so that groups balance, by a filter that tells little of anybody's group."""
    from ratecli.runner.table_filter import Wanted, filtered  # noqa: PLC0415

    place = None if output == STDOUT else output
    unseen = [*(drop or ()), *([] if label is None else [label])]
    wanted = Wanted(
        table=table,
        by=tuple(by),
        disclosivity=disclosivity,
        algorithm=algorithm,
        kept=kept,
        drop=tuple(unseen),
        test=test,
        seed=seed,
        separator=separator,
        output=place,
        folder=folder,
    )
    found = filtered(wanted)
    show(found.warnings)
    if found.content is not None:
        typer.echo(found.content, nl=False)
    heads, *rows = found.told.table()
    how_many = f"{found.told.kept} of {counted(found.told.rows, 'row')} kept"
    lines = [
        f"{place or table}: {how_many}, drawn with --seed {seed}",
        aligned(heads, rows, right=heads[1:]),
        f"{algorithm} looks at {', '.join(found.told.features)}",
    ]
    if folder is not None:
        lines.append(f"the filter is in {folder}: ratecli predict {folder} NEW.csv")
    typer.echo("\n".join(lines), err=place is None)
