"""`check` and `pin`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ratecli.cli.arguments import RESULTS, Files, Output, refuse_shared
from ratecli.cli.collect import each
from ratecli.cli.console import counted, print_json, show, table
from ratecli.cli.files import Format
from ratecli.errors import Fault

if TYPE_CHECKING:
    from ratecli.experiment.prepare import Prepared
    from ratecli.report.regression.findings import Check

FAILED = 3
SHOWN_FAULTS = 10
REFERENCE = RESULTS / "reference"

References: TypeAlias = Annotated[
    Path,
    typer.Option("--reference", metavar="FOLDER", file_okay=False, help="Where references are."),
]


def add_to(app: typer.Typer) -> None:
    for command in (check, pin):
        app.command()(command)


def check(
    files: Files,
    output: Output = RESULTS,
    reference: References = REFERENCE,
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
        Format, typer.Option("--format", help="How findings are written.")
    ] = Format.TEXT,
) -> None:
    """Compare what is stored with `expect` and with the pinned reference; exit 3 if that fails."""
    if not math.isfinite(tolerance):
        raise typer.BadParameter(f"{tolerance} is no number", param_hint="--tolerance")
    from ratecli.experiment.prepare import examine  # noqa: PLC0415
    from ratecli.report.regression.check import check as checked  # noqa: PLC0415

    ready = each(files, examine)
    names = [made.experiment.name for made in ready]
    refuse_shared((made.path, output / name) for made, name in zip(ready, names, strict=True))
    checks = [
        checked(made, output / name, _place(made, reference), tolerance)
        for made, name in zip(ready, names, strict=True)
    ]
    if junit is not None:
        _write_junit(checks, junit)
    if form is Format.JSON:
        from ratecli.report.regression.render import document  # noqa: PLC0415

        print_json(document(checks))
    else:
        for made, found in zip(ready, checks, strict=True):
            _told(made, found, github=form is Format.GITHUB)
    raise typer.Exit(0 if all(found.holds for found in checks) else FAILED)


def pin(files: Files, output: Output = RESULTS, reference: References = REFERENCE) -> None:
    """Write what is stored as the reference that `check` compares with."""
    from ratecli.experiment.prepare import examine  # noqa: PLC0415
    from ratecli.report.regression.check import pin as pinned  # noqa: PLC0415

    def one(made: Prepared) -> str:
        name = made.experiment.name
        found = pinned(made, output / name, place := _place(made, reference))
        trials = sum(len(point.seeds) for point in found.trials)
        return f"pinned {counted(trials, 'trial')} in {place}; commit it with the file"

    ready = each(files, examine)
    refuse_shared((made.path, _place(made, reference)) for made in ready)
    typer.echo("\n".join(each(ready, one)))


def _place(made: Prepared, reference: Path) -> Path:
    return reference / f"{made.experiment.name}.json"


def _write_junit(checks: list[Check], place: Path) -> None:
    from ratecli.files import atomic_write, writing  # noqa: PLC0415
    from ratecli.report.regression.junit import junit  # noqa: PLC0415

    with writing(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, junit(checks))


def _told(made: Prepared, found: Check, *, github: bool) -> None:
    from ratecli.render import clean, to_github  # noqa: PLC0415
    from ratecli.report.regression.findings import BAD, Verdict  # noqa: PLC0415
    from ratecli.report.regression.render import folded, summary, versions  # noqa: PLC0415
    from ratecli.report.regression.render import table as moved  # noqa: PLC0415

    notes = [note.fault(made.document) for note in found.notes]
    if github:
        faults = [bad.fault(made.document) for bad in found.of(*BAD)] + notes
        typer.echo(to_github(faults), nl=bool(faults))
    else:
        _show([bad.fault(made.document) for bad in found.of(Verdict.NOT_COMPARED)], notes)
    typer.echo(summary(found))
    sheet = moved(found)
    if sheet.rows and not github:
        rows = [[clean(cell.text) for cell in row] for row in sheet.rows]
        heads = [clean(column.title) for column in sheet.columns]
        numbers = [column.title for column in sheet.columns if column.numeric]
        typer.echo(table(heads, rows, numbers))
    for line in ("" if github else folded(found), versions(found)):
        if line:
            typer.echo(line)


def _show(faults: list[Fault], notes: list[Fault]) -> None:
    show([*faults[:SHOWN_FAULTS], *notes])
    if more := len(faults[SHOWN_FAULTS:]):
        typer.echo(f"... {more} more not compared: --format json has all", err=True)
