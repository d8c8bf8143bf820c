"""`ls` and `show`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from ratecli.cli.arguments import Json
from ratecli.cli.completion import everything
from ratecli.cli.console import print_json, table
from ratecli.cli.console import show as print_faults

WIDE = 60
"""Longer values of `show` begin on a line of their own."""


class Kind(StrEnum):
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
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help=f"What to list: {', '.join(Kind)}.")],
    as_json: Json = False,
) -> None:
    """List what has a name."""
    from ratecli.experiment.catalogue import LISTINGS, doubtful  # noqa: PLC0415
    from ratecli.plugins import OWN  # noqa: PLC0415

    rows = LISTINGS[kind]()
    print_faults(doubtful(kind))
    if as_json:
        print_json(rows)
    elif not rows:
        typer.echo(f"no {kind} here")
    else:
        heads = list(dict.fromkeys(key for row in rows for key in row if key != "is"))
        if all(row.get("from") == OWN for row in rows):
            heads.remove("from")
        cells = [[_cell(row.get(head)) for head in heads] for row in rows]
        numbers = [head for head in heads if isinstance(rows[0].get(head), int)]
        typer.echo(table(heads, cells, numbers))


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A data set, metric, algorithm, function, plot or code.",
            autocompletion=everything,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Show all there is to know about a name."""
    from ratecli.errors import did_you_mean  # noqa: PLC0415
    from ratecli.experiment.catalogue import describe, names  # noqa: PLC0415

    row = describe(name)
    if row is None:
        hint = did_you_mean(name, names())
        raise typer.BadParameter(f"nothing is called '{name}'; {hint}", param_hint="NAME")
    if as_json:
        print_json(row)
        return
    for key, value in row.items():
        for line in _lines(key, value):
            typer.echo(line)


def _lines(key: str, value: Any) -> list[str]:
    """One fact: on a line, in a paragraph, or as a table."""
    if value in ("", [], {}, None):
        return []
    if isinstance(value, list) and isinstance(value[0], dict):
        heads = list(value[0])
        cells = [[_cell(row[head]) for head in heads] for row in value]
        return ["", f"{key}:", *(f"  {line}" for line in table(heads, cells).splitlines())]
    if isinstance(value, str) and ("\n" in value or len(value) > WIDE):
        return ["", f"{key}:", *(f"  {line}".rstrip() for line in value.splitlines())]
    return [f"{key + ':':14} {_cell(value)}"]


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
