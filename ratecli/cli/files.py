"""The commands `validate`, `explain`, `init` and `schema`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from typer import Argument, Option

from ratecli.cli import arguments as args
from ratecli.cli import console as out
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import atomic_write, shell_command
from ratecli.render import diagnostics_to_github, diagnostics_to_json, text_table


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


DEFAULT_FILE = Path("experiment.yaml")
GROUP_HELP = "A column with groups; if repeated, all combinations are compared."
GOAL_HELP = "What must hold, as in 'equalized-odds 0.05'; may be repeated; --list shows the names."
FormatOption: TypeAlias = Annotated[OutputFormat, Option("--format", help="Output format.")]


def validate(
    files: args.FilesArgument,
    settings: args.SettingsOption = None,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Check files, including their data if it is present. Runs and downloads nothing."""
    good: list[str] = []
    faults: list[Diagnostic] = []
    code = 0
    try:
        args.collect_errors(
            files, lambda file: good.append(_check_file(file, settings or (), faults))
        )
    except FaultError as error:
        faults += error.faults
        code = error.exit_code
    if form is OutputFormat.TEXT:
        out.print_diagnostics(faults)
        out.echo("\n".join(good), nl=bool(good))
    else:
        convert = diagnostics_to_json if form is OutputFormat.JSON else diagnostics_to_github
        out.echo(convert(out.sort_diagnostics(faults)))
    raise typer.Exit(code)


def _check_file(file: Path, settings: Sequence[str], warnings: list[Diagnostic]) -> str:
    """Return one line about a file without errors."""
    from ratecli.experiment.prepare import check_available, list_missing_files  # noqa: PLC0415

    with out.progress_meter() as meter:
        prepared = check_available(file, settings, write_progress=meter.record)
    warnings += prepared.warnings
    if missing := list_missing_files(prepared):
        return f"{file}: no errors; data not checked ({', '.join(missing)} not present)"
    return f"{file}: no errors, {out.pluralize(len(prepared.plan.planned), 'trial')}"


def explain(file: args.FileArgument, settings: args.SettingsOption = None) -> None:
    """Show how goals are understood: their classes and normal forms, and which algorithms apply."""
    from ratecli.experiment import explain as explanation  # noqa: PLC0415
    from ratecli.experiment.prepare import check_available  # noqa: PLC0415

    with out.progress_meter() as meter:
        prepared = check_available(file, settings or (), refuse=False, write_progress=meter.record)
    out.echo("\n".join(explanation.explain(prepared)))
    out.print_diagnostics(prepared.warnings)
    errors = [fault for fault in prepared.warnings if fault.is_error]
    raise typer.Exit(FaultError(errors).exit_code if errors else 0)


def schema() -> None:
    """Print the JSON schema of the file, for editors."""
    from ratecli.experiment.schema import file_schema  # noqa: PLC0415

    out.print_json(file_schema())


TemplateOption: TypeAlias = Annotated[
    str | None,
    Option(
        "--template",
        "-t",
        metavar="NAME",
        help="Which starter file; see --list.",
        autocompletion=args.complete_templates,
    ),
]
TargetOption: TypeAlias = Annotated[
    args.Text, args.column_option("Instead of --label: a column of numbers to predict.")
]
ScoreOption: TypeAlias = Annotated[
    args.Text, args.column_option("The score of an existing model, to set thresholds on it.")
]
ModelOption: TypeAlias = Annotated[
    args.Text, Option(metavar="NAME", help="The model to train, such as lightgbm. Default: linear.")
]
OrderOption: TypeAlias = Annotated[
    args.Text, args.column_option("Dates or numbers: test on the largest, train on the others.")
]
DeployedOption: TypeAlias = Annotated[
    args.Text, args.column_option("The decisions of the model in use, for the goal churn.")
]
DeployedPositiveOption: TypeAlias = Annotated[
    args.Text,
    Option(metavar="VALUE", help="Its positive value, if it has other words than the label."),
]
PositiveOption: TypeAlias = Annotated[
    args.Text, Option(metavar="VALUE", help="The label's positive value.")
]


def init(
    path: Annotated[
        Path, Argument(metavar="[PATH]", show_default=True, help="- is standard output.")
    ] = DEFAULT_FILE,
    *,
    template: TemplateOption = None,
    data: Annotated[Path | None, Option(metavar="CSV", help="Your own table.")] = None,
    label: Annotated[args.Text, args.column_option("The column to predict.")] = None,
    target: TargetOption = None,
    group: Annotated[list[str] | None, args.column_option(GROUP_HELP)] = None,
    goal: Annotated[list[str] | None, Option(metavar="'NAME LIMIT'", help=GOAL_HELP)] = None,
    model: ModelOption = None,
    score: ScoreOption = None,
    deployed: DeployedOption = None,
    deployed_positive: DeployedPositiveOption = None,
    positive: PositiveOption = None,
    order: OrderOption = None,
    separator: args.SeparatorOption = None,
    decimal: args.DecimalOption = None,
    thousands: args.ThousandsOption = None,
    encoding: args.EncodingOption = None,
    listed: Annotated[
        bool, Option("--list", help="List the starter files, and the goals.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented starter file, for a family of goals or for your own table."""
    from ratecli.experiment.starters.options import StarterOptions  # noqa: PLC0415

    if listed:
        out.echo(_list_starters())
        return
    options = StarterOptions(
        DEFAULT_FILE if path == args.STDOUT else path,
        template=template,
        data=data,
        label=label or "",
        target=target or "",
        group=tuple(dict.fromkeys(group or ())),
        goal=tuple(goal or ()),
        model=model or "",
        score=score or "",
        deployed=deployed or "",
        deployed_positive=deployed_positive,
        positive=positive,
        order=order or "",
        separator=separator,
        decimal=decimal,
        thousands=thousands,
        encoding=encoding,
    )
    if path != args.STDOUT and path.exists() and not force:
        raise typer.BadParameter(f"'{path}' already exists; --force replaces it")
    if data is None:
        made = options.template_starter()
    else:
        from ratecli.experiment.starters.own_table import own_table_starter  # noqa: PLC0415  slow

        made = own_table_starter(options)
    out.print_diagnostics(made.warnings)
    if path == args.STDOUT:
        sys.stdout.write(made.text)
        return
    atomic_write(path, made.text)
    out.echo("\n".join([*made.notes, f"wrote {path}; next: {shell_command('run', path)}"]))


def _list_starters() -> str:
    from ratecli.experiment.starters.options import (  # noqa: PLC0415
        OWN_DATA,
        OWN_DATA_USAGE,
        goal_meanings,
        template_summaries,
    )

    rows = [*template_summaries().items(), (OWN_DATA, f"Your own table: {OWN_DATA_USAGE}")]
    goals = list(goal_meanings().items())
    templates = text_table(["template", "question"], rows)
    return f"{templates}\n\n{text_table(['goal of an own table', 'what must hold'], goals)}"
