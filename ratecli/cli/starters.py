"""`init`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ratecli.cli.arguments import Separator
from ratecli.cli.completion import columns, tables
from ratecli.cli.completion import templates as known_templates
from ratecli.cli.console import show, table
from ratecli.plain_text import plain

if TYPE_CHECKING:
    from ratecli.experiment.starter import Asked

OWN = "own-data"
STDOUT = Path("-")
NEEDED = "--data needs --label COLUMN and --group COLUMN"


Target: TypeAlias = Annotated[
    Path, typer.Argument(metavar="[PATH]", show_default=True, help="- is standard output.")
]
Template: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-t",
        metavar="NAME",
        help="Which starter file; see --list.",
        autocompletion=known_templates,
    ),
]
Data: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="CSV", help="Your own table, with --label and --group.", autocompletion=tables
    ),
]
Label: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The column to predict, of two values.", autocompletion=columns
    ),
]
Group: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The column that tells groups.", autocompletion=columns),
]
Positive: TypeAlias = Annotated[
    str | None, typer.Option(metavar="VALUE", help="The label's value that counts as yes.")
]


def init(
    path: Target = Path("experiment.yaml"),
    *,
    template: Template = None,
    data: Data = None,
    label: Label = None,
    group: Group = None,
    positive: Positive = None,
    separator: Separator = None,
    listed: Annotated[bool, typer.Option("--list", help="List the starter files.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented starter file, of a family of goals or for your own table."""
    if listed:
        typer.echo(_listing())
        return
    given = {"--label": label, "--group": group, "--positive": positive, "--separator": separator}
    if data is None:
        _refuse(given, template)
        text, notes = _template(template), list[str]()
    else:
        if template not in {None, OWN}:
            raise typer.BadParameter(f"--data writes '{OWN}', not '{template}'")
        if label is None or group is None:
            raise typer.BadParameter(f"{NEEDED}; {_columns(data, separator)}")
        from ratecli.experiment.starter import Asked  # noqa: PLC0415

        target = Path("experiment.yaml") if path == STDOUT else path
        text, notes = _own(Asked(data, label, group, target, positive, separator))
    if path == STDOUT:
        sys.stdout.write(text)
        return
    _write(path, text, force=force)
    typer.echo(plain("\n".join([*notes, f"wrote {path}; next: ratecli run {path}"])))


def _refuse(given: dict[str, str | None], template: str | None) -> None:
    if template == OWN:
        raise typer.BadParameter(f"'{OWN}' is of a table: --data CSV --label COLUMN --group COLUMN")
    alone = [option for option, value in given.items() if value is not None]
    if alone:
        raise typer.BadParameter(f"{alone[0]} is about a table: name it with --data")


def _listing() -> str:
    from ratecli.config.starter import templates  # noqa: PLC0415

    rows = [*templates().items(), (OWN, "Your own table: --data CSV --label COLUMN --group COLUMN")]
    return table(["template", "what it asks"], [list(row) for row in rows])


def _template(name: str | None) -> str:
    from ratecli.config.starter import FIRST, starter, templates  # noqa: PLC0415
    from ratecli.errors import did_you_mean  # noqa: PLC0415

    known = templates()
    if name is not None and name not in known:
        hint = did_you_mean(name, [*known, OWN], "templates")
        raise typer.BadParameter(f"no template is called '{name}'; {hint}", param_hint="--template")
    return starter(name or FIRST)


def _own(asked: Asked) -> tuple[str, list[str]]:
    from ratecli.experiment.starter import own_starter  # noqa: PLC0415

    made = own_starter(asked)
    show(made.warnings)
    return made.text, [*made.notes]


def _columns(data: Path, separator: str | None) -> str:
    from ratecli.datasets.table_files import SEPARATED, table_of  # noqa: PLC0415
    from ratecli.datasets.tables import other_separator, separator_of  # noqa: PLC0415

    names = table_of(data, separator or separator_of(data)).column_names
    if mark := other_separator(names):
        return SEPARATED.format(mark=repr(mark))
    return f"columns: {', '.join(names[:20])}"


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        message = f"'{path}' is there already and stays as it is; --force replaces it"
        raise typer.BadParameter(message) from None
    except OSError as error:
        raise typer.BadParameter(f"'{path}' cannot be written: {error.strerror}") from None
