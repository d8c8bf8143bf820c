"""Commands about data sets, tables and models: `fetch`, `predict`, `export` and `filter`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from typer import Argument, Option

from ratecli.cli import arguments as args
from ratecli.cli.console import echo, print_diagnostics, progress_meter
from ratecli.files import YAML_SUFFIXES

if TYPE_CHECKING:
    from ratecli.apply.predict import PredictResult
    from ratecli.datasets.files import DownloadProgress

ModelArgument: TypeAlias = Annotated[
    Path,
    Argument(
        metavar="MODEL",
        help="results/NAME/models/TRIAL (or a VARIANT.npz in it), or a stored filter's folder.",
    ),
]
VariantOption: TypeAlias = Annotated[
    str | None, Option(metavar="NAME", help="Variant of the trial. Default: its model.")
]
TableArgument: TypeAlias = Annotated[Path, Argument(metavar="CSV", help="A CSV or Parquet file.")]
TableOutputOption: TypeAlias = Annotated[
    Path, Option("--output", "-o", metavar="FILE", help="Output file; - is standard output.")
]


def fetch(
    wanted: Annotated[
        list[str],
        Argument(
            metavar="NAME|FILE",
            help="Data sets (`ratecli ls datasets`) or experiments.",
            autocompletion=args.complete_datasets,
        ),
    ],
    offline: args.OfflineOption = False,
) -> None:
    """Download and verify data sets, or all that experiments need."""
    with progress_meter() as meter:
        found = args.collect_errors(
            map(Path, wanted), lambda each: _fetch(each, offline=offline, progress=meter.download)
        )
    echo("\n".join(line for lines in found for line in lines))


def _fetch(wanted: Path, *, offline: bool, progress: DownloadProgress) -> list[str]:
    """Return a line for each downloaded file.

    `wanted` is an experiment file if it contains a slash or has a YAML ending, otherwise a data
    set.
    """
    if wanted.suffix in YAML_SUFFIXES or len(wanted.parts) > 1:
        from ratecli.experiment import prepare  # noqa: PLC0415

        known = prepare.check_file(wanted)
        prepare.list_missing_files(known)  # E403 or E405 before any download
        paths = prepare.fetch_sources(known, offline=offline, progress=progress)
    else:
        from ratecli.datasets.files import fetch_files  # noqa: PLC0415
        from ratecli.datasets.registry import find_source  # noqa: PLC0415

        files = fetch_files(find_source(str(wanted)), offline=offline, progress=progress)
        paths = list(files.values())
    return [f"{path}  verified" for path in paths] or [f"{wanted}: nothing to download"]


def predict(
    model: ModelArgument,
    table: TableArgument,
    output: TableOutputOption = args.STDOUT,
    *,
    variant: VariantOption = None,
    seed: Annotated[int, Option(help="Seed for randomized decisions.")] = 0,
    prefix: Annotated[str, Option(help="Prefix of the names of added columns.")] = "",
    separator: args.SeparatorOption = None,
    decimal: args.DecimalOption = None,
    thousands: args.ThousandsOption = None,
    encoding: args.EncodingOption = None,
) -> None:
    """Apply a stored classifier to a table: add columns with its score, probability and decision.

    For a filter: the probability that a row is kept, the sampled value, and whether it is kept.
    """
    from ratecli.apply.predict import predict_file  # noqa: PLC0415

    place = None if output == args.STDOUT else output
    form = _format_keys(separator, decimal, thousands, encoding)
    found = predict_file(model, table, place, variant=variant, form=form, prefix=prefix, seed=seed)
    _print_table(found)


class ExportFormat(StrEnum):
    """What `ratecli export` writes."""

    SKLEARN = "sklearn"
    ONNX = "onnx"
    JSON = "json"
    CARD = "card"


def _format_keys(*values: str | None) -> dict[str, str | None]:
    """Return the options that say how a table is written, by their keys in a file."""
    from ratecli.datasets.text_format import FORMAT_KEYS  # noqa: PLC0415

    return dict(zip(FORMAT_KEYS, values, strict=True))


def export(
    model: ModelArgument,
    form: Annotated[
        ExportFormat,
        Option(
            "--format",
            help="sklearn (stored by skops), onnx, json, or card: a description of the model.",
        ),
    ],
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", help="Default: named after MODEL's folder."),
    ] = None,
    *,
    variant: VariantOption = None,
) -> None:
    """Write a stored classifier in a format that other programs use, or its model card.

    A card is Markdown, or HTML if FILE ends in .html.
    """
    if form is ExportFormat.CARD:
        from ratecli.report.card import write_card  # noqa: PLC0415

        echo("\n".join(map(str, write_card(model, output, variant))))
        return
    from ratecli.apply.export import export_model  # noqa: PLC0415

    echo(export_model(model, form, output, variant))


def filter_table(
    table: TableArgument,
    by: Annotated[
        list[str],
        args.column_option(
            "Column with the groups to balance; not used as an input; may be repeated."
        ),
    ],
    output: TableOutputOption = args.STDOUT,
    *,
    folder: Annotated[
        Path | None,
        Option("--filter", metavar="FOLDER", help="Store the filter here, for `ratecli predict`."),
    ] = None,
    disclosivity: Annotated[
        float, Option(metavar="ALPHA", help="Maximum change in a group's probability, from 0 to 1.")
    ] = 0.1,
    algorithm: Annotated[
        str, Option(metavar="NAME", help="balanced_tree | qp_proxy | naive_proxy.")
    ] = "balanced_tree",
    kept: Annotated[
        float | None,
        Option(
            metavar="SHARE",
            help="Minimum share to keep of rows with a group. Default: 0.1; not for naive_proxy.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        args.column_option("Column that is not used as an input; may be repeated."),
    ] = None,
    label: Annotated[
        args.Text, args.column_option("Label column, which is not used as an input.")
    ] = None,
    missing: Annotated[
        str, Option(metavar="HOW", help="Missing numbers: error | mean (of the training rows).")
    ] = "error",
    test: Annotated[
        str, Option(metavar="FRACTION", help="Share of rows to hold out for evaluation.")
    ] = "0",
    seed: Annotated[int, Option(min=0, help="Seed for sampling the held-out and kept rows.")] = 0,
    separator: args.SeparatorOption = None,
    decimal: args.DecimalOption = None,
    thousands: args.ThousandsOption = None,
    encoding: args.EncodingOption = None,
) -> None:
    """Subsample a table so that groups are balanced, with a filter that reveals little about
    group membership.
    """
    from ratecli.apply.table_filter import FilterRequest, learn_table_filter  # noqa: PLC0415
    from ratecli.datasets.text_format import PLAIN  # noqa: PLC0415

    form = _format_keys(separator, decimal, thousands, encoding)
    request = FilterRequest(
        table=table,
        by=tuple(by),
        disclosivity=disclosivity,
        algorithm=algorithm,
        kept=kept,
        drop=(*(drop or ()), *([] if label is None else [label])),
        missing=missing,
        test=test,
        seed=seed,
        form=PLAIN.updated(form),
        output=None if output == args.STDOUT else output,
        folder=folder,
    )
    _print_table(learn_table_filter(request))


def _print_table(found: PredictResult) -> None:
    """Print a table, unless it was written to a file, and a summary, which is not part of it."""
    print_diagnostics(found.warnings)
    if found.content is not None:
        typer.echo(found.content, nl=False)
    echo(found.line, err=found.content is not None)
