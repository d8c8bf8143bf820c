"""The commands `check` and `pin`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ratecli.cli.arguments import (
    RESULTS_FOLDER,
    FilesArgument,
    OutputOption,
    check_distinct_outputs,
    collect_errors,
)
from ratecli.cli.console import format_table, pluralize, print_diagnostics, print_json
from ratecli.cli.files import OutputFormat
from ratecli.errors import Diagnostic

if TYPE_CHECKING:
    from ratecli.experiment.prepare import PreparedExperiment
    from ratecli.report.regression.findings import CheckReport

EXIT_CHECK_FAILED = 3
MAX_SHOWN = 10
REFERENCE = RESULTS_FOLDER / "reference"

ReferenceOption: TypeAlias = Annotated[
    Path,
    typer.Option("--reference", metavar="FOLDER", file_okay=False, help="Where references are."),
]


def add_to(app: typer.Typer) -> None:
    for command in (check, pin):
        app.command()(command)


def check(
    files: FilesArgument,
    output: OutputOption = RESULTS_FOLDER,
    reference: ReferenceOption = REFERENCE,
    *,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0, help="Differences that never count; of numbers beyond 1 a share of them."
        ),
    ] = 0.001,
    junit: Annotated[
        Path | None, typer.Option(dir_okay=False, metavar="OUT", help="Write JUnit XML there.")
    ] = None,
    form: Annotated[
        OutputFormat, typer.Option("--format", help="How findings are written.")
    ] = OutputFormat.TEXT,
) -> None:
    """Compare what is stored with `expect` and with the pinned reference; exit 3 if that fails."""
    if not math.isfinite(tolerance):
        raise typer.BadParameter(f"{tolerance} is no number", param_hint="--tolerance")
    from ratecli.experiment.prepare import check_available  # noqa: PLC0415
    from ratecli.report.regression.check import check_results as checked  # noqa: PLC0415

    ready = collect_errors(files, check_available)
    names = [made.experiment.name for made in ready]
    check_distinct_outputs(
        (made.path, output / name) for made, name in zip(ready, names, strict=True)
    )
    checks = [
        checked(made, output / name, _reference_path(made, reference), tolerance)
        for made, name in zip(ready, names, strict=True)
    ]
    if junit is not None:
        _write_junit(checks, junit)
    if form is OutputFormat.JSON:
        from ratecli.report.regression.render import checks_to_json  # noqa: PLC0415

        print_json(checks_to_json(checks))
    else:
        for made, found in zip(ready, checks, strict=True):
            _print_result(made, found, github=form is OutputFormat.GITHUB)
    raise typer.Exit(0 if all(found.holds for found in checks) else EXIT_CHECK_FAILED)


def pin(
    files: FilesArgument,
    output: OutputOption = RESULTS_FOLDER,
    reference: ReferenceOption = REFERENCE,
) -> None:
    """Write what is stored as the reference that `check` compares with."""
    from ratecli.experiment.prepare import check_available  # noqa: PLC0415
    from ratecli.report.regression.check import pin_reference as pinned  # noqa: PLC0415

    def one(made: PreparedExperiment) -> str:
        name = made.experiment.name
        found = pinned(made, output / name, place := _reference_path(made, reference))
        trials = sum(len(point.seeds) for point in found.trials)
        return f"pinned {pluralize(trials, 'trial')} in {place}; commit it with the file"

    ready = collect_errors(files, check_available)
    check_distinct_outputs((made.path, _reference_path(made, reference)) for made in ready)
    typer.echo("\n".join(collect_errors(ready, one)))


def _reference_path(made: PreparedExperiment, reference: Path) -> Path:
    return reference / f"{made.experiment.name}.json"


def _write_junit(checks: list[CheckReport], place: Path) -> None:
    from ratecli.files import atomic_write, report_write_errors  # noqa: PLC0415
    from ratecli.report.regression.render import to_junit  # noqa: PLC0415

    with report_write_errors(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, to_junit(checks))


def _print_result(made: PreparedExperiment, found: CheckReport, *, github: bool) -> None:
    from ratecli.render import diagnostics_to_github, strip_control_characters  # noqa: PLC0415
    from ratecli.report.regression.findings import FAILING, CheckVerdict  # noqa: PLC0415
    from ratecli.report.regression.render import (  # noqa: PLC0415
        check_summary,
        omitted_note,
        versions_note,
    )
    from ratecli.report.regression.render import findings_sheet as moved  # noqa: PLC0415

    notes = [made.document.placed(note) for note in found.notes]
    shown = FAILING if github else (CheckVerdict.NOT_COMPARED,)
    faults = [made.document.placed(bad.diagnostic) for bad in found.of(*shown)]
    if github:
        typer.echo(diagnostics_to_github([*faults, *notes]), nl=bool(faults or notes))
    else:
        _show(faults, notes)
    typer.echo(check_summary(found))
    sheet = moved(found)
    if sheet.rows and not github:
        rows = [[strip_control_characters(cell.text) for cell in row] for row in sheet.rows]
        heads = [strip_control_characters(column.title) for column in sheet.columns]
        numbers = [column.title for column in sheet.columns if column.numeric]
        typer.echo(format_table(heads, rows, numbers))
    for line in ("" if github else omitted_note(found), versions_note(found)):
        if line:
            typer.echo(line)


def _show(faults: list[Diagnostic], notes: list[Diagnostic]) -> None:
    print_diagnostics([*faults[:MAX_SHOWN], *notes])
    if more := len(faults[MAX_SHOWN:]):
        typer.echo(f"... {more} more not compared: --format json has all", err=True)
