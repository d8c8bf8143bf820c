"""The commands `ls`, `show` and `test-plugin`."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument

from ratecli.cli import arguments as args
from ratecli.cli.console import echo, pluralize, print_diagnostics, print_json
from ratecli.render import plain_value, text_table

if TYPE_CHECKING:
    from ratecli.conformance.checks import OptimalityGap, PluginReport

MAX_INLINE_WIDTH = 60
"""Values longer than this start on a new line in `show`."""
EXIT_PLUGIN_FAILED = 3
"""Exit code if a check failed."""


ListingKind = StrEnum(
    "ListingKind",
    "datasets metrics functions algorithms plots codes keys options models goals statuses "
    "variants experiments plugins",
)


def ls(
    kind: Annotated[
        ListingKind, Argument(metavar="KIND", help=f"What to list: {', '.join(ListingKind)}.")
    ],
    as_json: args.JsonOption = False,
) -> None:
    """List everything of a kind."""
    from ratecli.experiment.registry import KINDS, listing_warnings  # noqa: PLC0415
    from ratecli.plugins import OWN_PACKAGE  # noqa: PLC0415

    rows = KINDS[kind].rows()
    print_diagnostics(listing_warnings(kind))
    if as_json:
        print_json(rows)
    elif not rows:
        echo(f"no {kind} found")
    else:
        heads = list(dict.fromkeys(key for row in rows for key in row if key != "is"))
        if all(row.get("from") == OWN_PACKAGE for row in rows):
            heads.remove("from")
        cells = [[_cell(row.get(head)) for head in heads] for row in rows]
        numbers = [head for head in heads if isinstance(rows[0].get(head), int)]
        echo(text_table(heads, cells, numbers))


def show(
    name: Annotated[
        str,
        Argument(
            metavar="NAME",
            help="A data set, metric, function, algorithm, option, model, plot, key of a file "
            "(split, safety.delta), message code, status of a trial or goal of init.",
            autocompletion=args.complete_names,
        ),
    ],
    as_json: args.JsonOption = False,
) -> None:
    """Show everything about a name."""
    from ratecli.experiment.registry import describe, suggest_names  # noqa: PLC0415

    row = describe(name)
    if row is None:
        message = f"the name '{name}' is unknown; {suggest_names(name)}"
        raise typer.BadParameter(message, param_hint="NAME")
    if as_json:
        print_json(row)
    else:
        echo("\n".join(line for key in row for line in _fact_lines(key, row[key])))


def _fact_lines(key: str, value: Any) -> list[str]:
    """Return one fact as a line, a paragraph or a table."""
    if value in ("", [], {}, None):
        return []
    if isinstance(value, list) and isinstance(value[0], dict):
        heads = list(value[0])
        value = text_table(heads, [[_cell(row[head]) for head in heads] for row in value])
    elif not (isinstance(value, str) and ("\n" in value or len(value) > MAX_INLINE_WIDTH)):
        return [f"{key + ':':14} {_cell(value)}"]
    return ["", f"{key}:", *(f"  {line}".rstrip() for line in value.splitlines())]


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else plain_value(value)


def check_plugin(
    target: Annotated[
        str,
        Argument(
            metavar="NAME|PACKAGE|MODULE:OBJECT",
            help="A plugin (algorithm, data set or metric), a package of plugins, or an object "
            "that need not be installed.",
        ),
    ],
    offline: args.OfflineOption = False,
    as_json: args.JsonOption = False,
) -> None:
    """Check that a plugin meets ratecli's requirements, on tiny problems with known optima."""
    from ratecli.conformance import check_target  # noqa: PLC0415

    reports = check_target(target, offline=offline)
    if as_json:
        print_json([_plain(report) for report in reports])
    else:
        echo("\n\n".join(_plugin_summary(report) for report in reports))
    raise typer.Exit(0 if all(report.holds for report in reports) else EXIT_PLUGIN_FAILED)


def _plain(report: PluginReport) -> dict[str, Any]:
    """Return a report for JSON, with null in place of NaN and infinity."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415

    plain: dict[str, Any] = to_jsonable_python(report, inf_nan_mode="null")
    return plain | {"holds": report.holds}


def _plugin_summary(report: PluginReport) -> str:
    lines = [f"{report.kind} '{report.name}' ({report.origin})", ""]
    for check in report.checks:
        lines.append(f"  {check.state:8} {check.name}")
        help_text = f"= help: {check.mend}" if check.mend else ""
        lines += [f"           {text}" for text in (check.reason, help_text) if text]
    if report.gaps:
        lines += ["", *(f"  {line}".rstrip() for line in _gap_table(report.gaps).splitlines())]
    failed = pluralize(len(report.failed), "check")
    return "\n".join([*lines, "", "all checks passed" if report.holds else f"{failed} failed"])


def _gap_table(gaps: tuple[OptimalityGap, ...]) -> str:
    heads = ["problem", "status", "objective", "best possible", "violation", "seconds"]
    rows = []
    for gap in gaps:
        numbers = map(_number, (gap.objective, gap.best, gap.violation))
        rows.append([gap.problem, gap.status, *numbers, f"{gap.seconds:.2f}"])
    return text_table(heads, rows, heads[2:])


def _number(value: float) -> str:
    return f"{value + 0.0:.4f}" if math.isfinite(value) else "-"
