"""`validate`, `explain`, `init` and `schema`: what only looks at files."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ratecli.cli.arguments import File, Files, Settings
from ratecli.cli.collect import each
from ratecli.cli.console import by_place, counted, print_json, show
from ratecli.cli.starters import init
from ratecli.errors import Fault, FaultError
from ratecli.plain_text import plain


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def add_to(app: typer.Typer) -> None:
    for command in (validate, explain, init, schema):
        app.command()(command)


def validate(
    files: Files,
    settings: Settings = None,
    form: Annotated[Format, typer.Option("--format", help="How faults are written.")] = Format.TEXT,
) -> None:
    """Check files, with their data where it is there already. Runs and fetches nothing."""
    from ratecli.render import to_github, to_json  # noqa: PLC0415

    good: list[str] = []
    faults: list[Fault] = []
    code = 0
    try:
        each(files, lambda file: good.append(_checked(file, settings or (), faults)))
    except FaultError as error:
        faults += error.faults
        code = error.exit_code
    if form is Format.TEXT:
        show(faults)
        typer.echo("\n".join(good), nl=bool(good))
    else:
        typer.echo({Format.JSON: to_json, Format.GITHUB: to_github}[form](by_place(faults)))
    raise typer.Exit(code)


def _checked(file: Path, settings: Sequence[str], warnings: list[Fault]) -> str:
    """One line on a file without errors."""
    from ratecli.cli.fetching import writing  # noqa: PLC0415
    from ratecli.experiment.prepare import absent_files, examine  # noqa: PLC0415

    with writing() as written:
        prepared = examine(file, settings, written=written)
    warnings += prepared.warnings
    if absent := absent_files(prepared):
        return f"{file}: no errors; not checked with its data ({', '.join(absent)} not here)"
    return f"{file}: no errors, {counted(len(prepared.plan.planned), 'trial')}"


def explain(file: File, settings: Settings = None) -> None:
    """Show the problem as understood: goals, their classes and normal forms, who takes them."""
    from ratecli.cli.fetching import writing  # noqa: PLC0415
    from ratecli.experiment.explain import explain as explained  # noqa: PLC0415
    from ratecli.experiment.prepare import examine  # noqa: PLC0415

    with writing() as written:
        prepared = examine(file, settings or (), refuse=False, written=written)
    typer.echo(plain("\n".join(explained(prepared))))
    show(prepared.warnings)
    errors = [fault for fault in prepared.warnings if fault.is_error]
    raise typer.Exit(FaultError(errors).exit_code if errors else 0)


def schema() -> None:
    """Print the JSON schema of the file, for editors."""
    from ratecli.experiment.file_schema import file_schema  # noqa: PLC0415

    print_json(file_schema())
