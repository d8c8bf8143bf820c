"""The commands `report`, `check` and `pin`."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from typer import Option

from ratecli.cli import arguments as args
from ratecli.cli.console import echo, pluralize, print_diagnostics, print_json
from ratecli.cli.files import FormatOption, OutputFormat
from ratecli.files import REPORT_FILE, RESULTS_FOLDER

if TYPE_CHECKING:
    from ratecli.experiment.prepare import PreparedExperiment
    from ratecli.report.check.findings import CheckReport

EXIT_CHECK_FAILED = 3
REFERENCE = RESULTS_FOLDER / "reference"

ReferenceOption: TypeAlias = Annotated[
    Path, Option("--reference", metavar="FOLDER", file_okay=False, help="Folder of references.")
]


def report(files: args.FilesArgument, output: args.OutputOption = RESULTS_FOLDER) -> None:
    """Write tables, plots and the report again from stored trials.

    Several experiments also get a joint page, report.html in the results folder. During a run, the
    report shows what is stored so far.
    """
    from ratecli.config.experiment import load_experiment  # noqa: PLC0415
    from ratecli.files import LEDGER_FILE, shell_command  # noqa: PLC0415
    from ratecli.report.html import write_joined  # noqa: PLC0415
    from ratecli.report.write import write_report  # noqa: PLC0415

    loaded = args.collect_errors(files, lambda file: (output / load_experiment(file)[0].name, file))
    folders = list(dict.fromkeys(folder for folder, _ in loaded))
    stored = [folder for folder in folders if (folder / LEDGER_FILE).is_file()]
    missing = [
        f"nothing is stored in '{folder}' yet: "
        f"run `{shell_command('run', file, output=output)}` first"
        for folder, file in loaded
        if folder not in stored
    ]
    if not stored:
        raise typer.BadParameter("; ".join(missing))
    for text in missing:
        echo(f"not run: {text}", err=True)

    def report_one(folder: Path) -> None:
        _, written = write_report(folder)
        echo("\n".join(map(str, written)))

    try:  # an unreadable ledger must not prevent the other reports or the joint page
        args.collect_errors(stored, report_one)
    finally:
        if len(folders) > 1:
            echo(write_joined(folders, output / REPORT_FILE))


def check(
    files: args.FilesArgument,
    settings: args.SettingsOption = None,
    output: args.OutputOption = RESULTS_FOLDER,
    reference: ReferenceOption = REFERENCE,
    *,
    tolerance: Annotated[
        float,
        Option(min=0.0, help="Ignore differences up to this value (relative for values above 1)."),
    ] = 0.001,
    junit: Annotated[
        Path | None, Option(dir_okay=False, metavar="OUT", help="Write JUnit XML to this file.")
    ] = None,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Compare results with `expect` and with the pinned reference; exit 3 if that fails.

    Results of `ratecli run --set` are checked with the same `--set`.
    """
    if not math.isfinite(tolerance):
        raise typer.BadParameter(f"{tolerance} is not finite", param_hint="--tolerance")
    from ratecli.experiment.prepare import check_available  # noqa: PLC0415
    from ratecli.files import atomic_write  # noqa: PLC0415
    from ratecli.report.check.findings import checks_to_json, to_junit  # noqa: PLC0415
    from ratecli.report.check.results import check_results  # noqa: PLC0415

    ready = args.collect_errors(files, partial(check_available, overrides=settings or ()))
    pairs = [(prepared, output / prepared.experiment.name) for prepared in ready]
    args.check_distinct_outputs((prepared.path, folder) for prepared, folder in pairs)
    checks = [
        check_results(prepared, folder, _reference_path(prepared, reference), tolerance)
        for prepared, folder in pairs
    ]
    if junit is not None:
        atomic_write(junit, to_junit(checks), parents=True)
    if form is OutputFormat.JSON:
        print_json(checks_to_json(checks))
    else:
        for prepared, outcome in zip(ready, checks, strict=True):
            _print_result(prepared, outcome, github=form is OutputFormat.GITHUB)
    raise typer.Exit(0 if all(outcome.holds for outcome in checks) else EXIT_CHECK_FAILED)


def pin(
    files: args.FilesArgument,
    settings: args.SettingsOption = None,
    output: args.OutputOption = RESULTS_FOLDER,
    reference: ReferenceOption = REFERENCE,
) -> None:
    """Write the results as the reference that `check` compares with.

    Results of `ratecli run --set` are pinned with the same `--set`.
    """
    from ratecli.experiment.prepare import check_available  # noqa: PLC0415
    from ratecli.report.check.results import pin_reference  # noqa: PLC0415

    def pin_one(prepared: PreparedExperiment) -> str:
        path = _reference_path(prepared, reference)
        pinned = pin_reference(prepared, output / prepared.experiment.name, path)
        trials = sum(len(point.seeds) for point in pinned.trials)
        return f"pinned {pluralize(trials, 'trial')} in {path}; commit it with the file"

    ready = args.collect_errors(files, partial(check_available, overrides=settings or ()))
    args.check_distinct_outputs((each.path, _reference_path(each, reference)) for each in ready)
    echo("\n".join(args.collect_errors(ready, pin_one)))


def _reference_path(prepared: PreparedExperiment, reference: Path) -> Path:
    return reference / f"{prepared.experiment.name}.json"


def _print_result(prepared: PreparedExperiment, outcome: CheckReport, *, github: bool) -> None:
    from ratecli.render import diagnostics_to_github  # noqa: PLC0415
    from ratecli.report.check import findings as fd  # noqa: PLC0415

    placed = prepared.document.placed
    faults = list(map(placed, fd.failures(outcome, compared=github)))
    notes = list(map(placed, outcome.notes if github else fd.notes_after(outcome)))
    if github:
        echo(diagnostics_to_github([*faults, *notes]), nl=bool(faults or notes))
    for fault in [] if github else faults:  # in this order
        print_diagnostics([fault])
    text = fd.check_text(outcome, table=not github)
    echo(text, nl=bool(text))
    print_diagnostics([] if github else notes)
