"""The command `filter`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ratecli.cli.arguments import SeparatorOption
from ratecli.cli.completion import complete_columns, complete_tables
from ratecli.cli.console import format_table as aligned
from ratecli.cli.console import pluralize, print_diagnostics
from ratecli.cli.predictions import STDOUT

if TYPE_CHECKING:
    from ratecli.apply.table_filter import FilterRequest, FilterResult

TableArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="CSV",
        help="A CSV or Parquet file, one person or thing a row.",
        autocompletion=complete_tables,
    ),
]
GroupColumnOption: TypeAlias = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN",
        help="The column whose values are to have equal shares; may be repeated. The filter never "
        "looks at it.",
        autocompletion=complete_columns,
    ),
]
FilteredOutputOption: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where the rows go that are kept; - is standard output.",
    ),
]
FilterFolderOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--filter",
        metavar="FOLDER",
        help="Where the filter goes, for `ratecli predict FOLDER NEW.csv`. Default: nowhere.",
    ),
]
AlphaOption: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="ALPHA",
        help="By how much what the filter says of a row may shift the chance of its group, from 0 "
        "to 1.",
    ),
]
FilterAlgorithmOption: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="balanced_tree | qp_proxy | naive_proxy.")
]
ShareOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Keep at least this share of the rows. Default: 0.1; naive_proxy takes none.",
    ),
]
DropOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN", help="A column that the filter is not to look at; may be repeated."
    ),
]
TargetColumnOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The column that is to be predicted later: not looked at either."
    ),
]
MissingOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="What a missing number is: error | mean. mean is that of the rows that the filter is "
        "learned on.",
    ),
]
HoldoutOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="FRACTION",
        help="Learn without this share of the rows, and tell what the filter does there.",
    ),
]
SeedOption: TypeAlias = Annotated[
    int, typer.Option(help="Decides which rows are held out and which are kept.")
]


def add_to(app: typer.Typer) -> None:
    app.command(name="filter")(filter_table)


def filter_table(
    table: TableArgument,
    by: GroupColumnOption,
    output: FilteredOutputOption = STDOUT,
    *,
    folder: FilterFolderOption = None,
    disclosivity: AlphaOption = 0.1,
    algorithm: FilterAlgorithmOption = "balanced_tree",
    kept: ShareOption = None,
    drop: DropOption = None,
    label: TargetColumnOption = None,
    missing: MissingOption = "error",
    test: HoldoutOption = "0",
    seed: SeedOption = 0,
    separator: SeparatorOption = None,
) -> None:
    """Keep rows of a table so that groups balance, by a filter that tells little of anybody's
    group.
    """
    from ratecli.apply.table_filter import FilterRequest, learn_table_filter  # noqa: PLC0415

    place = None if output == STDOUT else output
    unseen = [*(drop or ()), *([] if label is None else [label])]
    wanted = FilterRequest(
        table=table,
        by=tuple(by),
        disclosivity=disclosivity,
        algorithm=algorithm,
        kept=kept,
        drop=tuple(unseen),
        missing=missing,
        test=test,
        seed=seed,
        separator=separator,
        output=place,
        folder=folder,
    )
    found = learn_table_filter(wanted)
    print_diagnostics(found.warnings)
    if found.content is not None:
        typer.echo(found.content, nl=False)
    typer.echo(_summary(found, wanted), err=place is None)


def _summary(found: FilterResult, wanted: FilterRequest) -> str:
    """Return what was kept and the effect of the filter."""
    from ratecli.apply.table_filter import report_table  # noqa: PLC0415

    heads, *rows = report_table(found.report)
    kept = f"{found.report['sample']['rows']} of {pluralize(found.rows, 'row')} kept"
    lines = [
        f"{wanted.output or wanted.table}: {kept}, sampled with --seed {wanted.seed}",
        aligned(heads, rows, right=heads[1:]),
        f"inputs of {wanted.algorithm}: {', '.join(found.report['features'])}",
    ]
    if wanted.folder is not None:
        lines.append(f"the filter is in {wanted.folder}: ratecli predict {wanted.folder} NEW.csv")
    return "\n".join(lines)
