"""The commands `validate`, `explain`, `init` and `schema`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ratecli.cli.arguments import (
    FileArgument,
    FilesArgument,
    SeparatorOption,
    SettingsOption,
    collect_errors,
)
from ratecli.cli.completion import complete_columns, complete_tables
from ratecli.cli.completion import complete_templates as known_templates
from ratecli.cli.console import (
    format_table,
    pluralize,
    print_diagnostics,
    print_json,
    sort_diagnostics,
)
from ratecli.errors import Diagnostic, FaultError
from ratecli.render import terminal_safe

if TYPE_CHECKING:
    from ratecli.experiment.starter import StarterOptions

OWN_DATA = "own-data"
STDOUT = Path("-")
OWN_DATA_USAGE = "--data needs --label COLUMN and --group COLUMN"


TargetArgument: TypeAlias = Annotated[
    Path, typer.Argument(metavar="[PATH]", show_default=True, help="- is standard output.")
]
TemplateOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-t",
        metavar="NAME",
        help="Which starter file; see --list.",
        autocompletion=known_templates,
    ),
]
DataOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="CSV",
        help="Your own table, with --label and --group.",
        autocompletion=complete_tables,
    ),
]
LabelOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The column to predict, of two values.",
        autocompletion=complete_columns,
    ),
]
GroupOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The column that tells groups.", autocompletion=complete_columns
    ),
]
PositiveOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="VALUE", help="The label's value that counts as yes.")
]


def init(
    path: TargetArgument = Path("experiment.yaml"),
    *,
    template: TemplateOption = None,
    data: DataOption = None,
    label: LabelOption = None,
    group: GroupOption = None,
    positive: PositiveOption = None,
    separator: SeparatorOption = None,
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
        if template not in {None, OWN_DATA}:
            raise typer.BadParameter(f"--data writes '{OWN_DATA}', not '{template}'")
        if label is None or group is None:
            raise typer.BadParameter(f"{OWN_DATA_USAGE}; {_columns(data, separator)}")
        from ratecli.experiment.starter import StarterOptions  # noqa: PLC0415

        target = Path("experiment.yaml") if path == STDOUT else path
        text, notes = _own_data_starter(
            StarterOptions(data, label, group, target, positive, separator)
        )
    if path == STDOUT:
        sys.stdout.write(text)
        return
    _write(path, text, force=force)
    typer.echo(terminal_safe("\n".join([*notes, f"wrote {path}; next: ratecli run {path}"])))


def _refuse(given: dict[str, str | None], template: str | None) -> None:
    if template == OWN_DATA:
        raise typer.BadParameter(
            f"'{OWN_DATA}' is of a table: --data CSV --label COLUMN --group COLUMN"
        )
    alone = [option for option, value in given.items() if value is not None]
    if alone:
        raise typer.BadParameter(f"{alone[0]} is about a table: name it with --data")


def _listing() -> str:
    from ratecli.config.starter import template_summaries  # noqa: PLC0415

    rows = [
        *template_summaries().items(),
        (OWN_DATA, "Your own table: --data CSV --label COLUMN --group COLUMN"),
    ]
    return format_table(["template", "what it asks"], [list(row) for row in rows])


def _template(name: str | None) -> str:
    from ratecli.config.starter import (  # noqa: PLC0415
        DEFAULT_TEMPLATE,
        template_summaries,
        template_text,
    )
    from ratecli.errors import did_you_mean  # noqa: PLC0415

    known = template_summaries()
    if name is not None and name not in known:
        hint = did_you_mean(name, [*known, OWN_DATA], "templates")
        raise typer.BadParameter(f"no template is called '{name}'; {hint}", param_hint="--template")
    return template_text(name or DEFAULT_TEMPLATE)


def _own_data_starter(asked: StarterOptions) -> tuple[str, list[str]]:
    from ratecli.experiment.starter import make_starter  # noqa: PLC0415

    made = make_starter(asked)
    print_diagnostics(made.warnings)
    return made.text, [*made.notes]


def _columns(data: Path, separator: str | None) -> str:
    from ratecli.datasets.tables import (  # noqa: PLC0415
        SEPARATOR_HELP,
        guess_separator,
        read_table_file,
        separator_of,
    )

    names = read_table_file(data, separator or separator_of(data)).column_names
    if mark := guess_separator(names):
        return SEPARATOR_HELP.format(mark=repr(mark))
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


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def add_to(app: typer.Typer) -> None:
    for command in (validate, explain, init, schema):
        app.command()(command)


def validate(
    files: FilesArgument,
    settings: SettingsOption = None,
    form: Annotated[
        OutputFormat, typer.Option("--format", help="How faults are written.")
    ] = OutputFormat.TEXT,
) -> None:
    """Check files, with their data where it is there already. Runs and fetches nothing."""
    from ratecli.render import diagnostics_to_github, diagnostics_to_json  # noqa: PLC0415

    good: list[str] = []
    faults: list[Diagnostic] = []
    code = 0
    try:
        collect_errors(files, lambda file: good.append(_check_file(file, settings or (), faults)))
    except FaultError as error:
        faults += error.faults
        code = error.exit_code
    if form is OutputFormat.TEXT:
        print_diagnostics(faults)
        typer.echo("\n".join(good), nl=bool(good))
    else:
        typer.echo(
            {OutputFormat.JSON: diagnostics_to_json, OutputFormat.GITHUB: diagnostics_to_github}[
                form
            ](sort_diagnostics(faults))
        )
    raise typer.Exit(code)


def _check_file(file: Path, settings: Sequence[str], warnings: list[Diagnostic]) -> str:
    """Return one line about a file without errors."""
    from ratecli.cli.console import record_progress  # noqa: PLC0415
    from ratecli.experiment.prepare import check_available, list_missing_files  # noqa: PLC0415

    with record_progress() as written:
        prepared = check_available(file, settings, written=written)
    warnings += prepared.warnings
    if absent := list_missing_files(prepared):
        return f"{file}: no errors; not checked with its data ({', '.join(absent)} not here)"
    return f"{file}: no errors, {pluralize(len(prepared.plan.planned), 'trial')}"


def explain(file: FileArgument, settings: SettingsOption = None) -> None:
    """Show the problem as understood: goals, their classes and normal forms, who takes them."""
    from ratecli.cli.console import record_progress  # noqa: PLC0415
    from ratecli.experiment.explain import explain as explained  # noqa: PLC0415
    from ratecli.experiment.prepare import check_available  # noqa: PLC0415

    with record_progress() as written:
        prepared = check_available(file, settings or (), refuse=False, written=written)
    typer.echo(terminal_safe("\n".join(explained(prepared))))
    print_diagnostics(prepared.warnings)
    errors = [fault for fault in prepared.warnings if fault.is_error]
    raise typer.Exit(FaultError(errors).exit_code if errors else 0)


def schema() -> None:
    """Print the JSON schema of the file, for editors."""
    from ratecli.experiment.file_schema import file_schema  # noqa: PLC0415

    print_json(file_schema())
