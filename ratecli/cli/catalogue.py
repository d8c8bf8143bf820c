"""The commands `ls` and `show`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from ratecli.cli.arguments import JsonOption
from ratecli.cli.completion import complete_names
from ratecli.cli.console import format_table, print_json
from ratecli.cli.console import print_diagnostics as print_faults

MAX_INLINE_WIDTH = 60
"""Values longer than this start on a new line in `show`."""


class ListingKind(StrEnum):
    DATASETS = "datasets"
    METRICS = "metrics"
    FUNCTIONS = "functions"
    ALGORITHMS = "algorithms"
    PLOTS = "plots"
    CODES = "codes"
    EXPERIMENTS = "experiments"
    PLUGINS = "plugins"


def add_to(app: typer.Typer) -> None:
    app.command()(ls)
    app.command()(show)


def ls(
    kind: Annotated[
        ListingKind, typer.Argument(metavar="KIND", help=f"What to list: {', '.join(ListingKind)}.")
    ],
    as_json: JsonOption = False,
) -> None:
    """List what has a name."""
    from ratecli.experiment.catalogue import LISTINGS, listing_warnings  # noqa: PLC0415
    from ratecli.plugins import OWN_PACKAGE  # noqa: PLC0415

    rows = LISTINGS[kind]()
    print_faults(listing_warnings(kind))
    if as_json:
        print_json(rows)
    elif not rows:
        typer.echo(f"no {kind} here")
    else:
        heads = list(dict.fromkeys(key for row in rows for key in row if key != "is"))
        if all(row.get("from") == OWN_PACKAGE for row in rows):
            heads.remove("from")
        cells = [[_cell(row.get(head)) for head in heads] for row in rows]
        numbers = [head for head in heads if isinstance(rows[0].get(head), int)]
        typer.echo(format_table(heads, cells, numbers))


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A data set, metric, algorithm, function, plot or code.",
            autocompletion=complete_names,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show all there is to know about a name."""
    from ratecli.errors import did_you_mean  # noqa: PLC0415
    from ratecli.experiment.catalogue import describable_names, describe  # noqa: PLC0415

    row = describe(name)
    if row is None:
        hint = did_you_mean(name, describable_names())
        raise typer.BadParameter(f"nothing is called '{name}'; {hint}", param_hint="NAME")
    if as_json:
        print_json(row)
        return
    for key, value in row.items():
        for line in _lines(key, value):
            typer.echo(line)


def _lines(key: str, value: Any) -> list[str]:
    """Return one fact as a line, a paragraph or a table."""
    if value in ("", [], {}, None):
        return []
    if isinstance(value, list) and isinstance(value[0], dict):
        heads = list(value[0])
        cells = [[_cell(row[head]) for head in heads] for row in value]
        return ["", f"{key}:", *(f"  {line}" for line in format_table(heads, cells).splitlines())]
    if isinstance(value, str) and ("\n" in value or len(value) > MAX_INLINE_WIDTH):
        return ["", f"{key}:", *(f"  {line}".rstrip() for line in value.splitlines())]
    return [f"{key + ':':14} {_cell(value)}"]


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
