"""`validate`, `explain`, `init` and `schema`: what only looks at files."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ratecli.cli.arguments import FileArgument, FilesArgument, SettingsOption
from ratecli.cli.collect import collect_errors
from ratecli.cli.console import pluralize, print_diagnostics, print_json, sort_diagnostics
from ratecli.cli.starters import init
from ratecli.errors import Diagnostic, FaultError
from ratecli.plain_text import terminal_safe


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
    """One line on a file without errors."""
    from ratecli.cli.fetching import record_progress  # noqa: PLC0415
    from ratecli.experiment.prepare import check_available, list_missing_files  # noqa: PLC0415

    with record_progress() as written:
        prepared = check_available(file, settings, written=written)
    warnings += prepared.warnings
    if absent := list_missing_files(prepared):
        return f"{file}: no errors; not checked with its data ({', '.join(absent)} not here)"
    return f"{file}: no errors, {pluralize(len(prepared.plan.planned), 'trial')}"


def explain(file: FileArgument, settings: SettingsOption = None) -> None:
    """Show the problem as understood: goals, their classes and normal forms, who takes them."""
    from ratecli.cli.fetching import record_progress  # noqa: PLC0415
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
