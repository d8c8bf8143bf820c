"""The command `test-plugin`."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratecli.cli.arguments import JsonOption, OfflineOption
from ratecli.cli.console import format_table, pluralize, print_json
from ratecli.render import terminal_safe

if TYPE_CHECKING:
    from ratecli.conformance.outcome import OptimalityGap, PluginReport

EXIT_PLUGIN_FAILED = 3
"""Exit code if a check failed."""


def add_to(app: typer.Typer) -> None:
    app.command(name="test-plugin")(check_plugin)


def check_plugin(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME|PACKAGE|MODULE:OBJECT",
            help="An algorithm, data set or metric, a package with some, or an object not "
            "installed yet.",
        ),
    ],
    offline: OfflineOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check that a plugin meets ratecli's requirements, on tiny problems with known optima."""
    from ratecli.conformance.targets import check_target  # noqa: PLC0415

    reports = check_target(target, offline=offline)
    if as_json:
        print_json([_plain(report) for report in reports])
    else:
        typer.echo(terminal_safe("\n\n".join("\n".join(_lines(report)) for report in reports)))
    raise typer.Exit(0 if all(report.holds for report in reports) else EXIT_PLUGIN_FAILED)


def _plain(report: PluginReport) -> dict[str, Any]:
    """Return a report for JSON, with null in place of NaN and infinity."""
    gaps = [
        {key: None if _is_not_finite(value) else value for key, value in asdict(gap).items()}
        for gap in report.gaps
    ]
    return asdict(report) | {"holds": report.holds, "gaps": gaps}


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _lines(report: PluginReport) -> list[str]:
    lines = [f"{report.kind} '{report.name}' ({report.origin})", ""]
    for check in report.checks:
        lines.append(f"  {check.state:8} {check.name}")
        lines += [f"           {text}" for text in (check.reason, _mended(check.mend)) if text]
    if report.gaps:
        lines += ["", *(f"  {line}".rstrip() for line in _gaps(report.gaps).splitlines())]
    failed = len(report.failed)
    ending = "all checks passed" if report.holds else f"{pluralize(failed, 'check')} failed"
    return [*lines, "", ending]


def _mended(text: str) -> str:
    return f"= help: {text}" if text else ""


def _gaps(gaps: tuple[OptimalityGap, ...]) -> str:
    heads = ["problem", "status", "objective", "best possible", "best line", "violation", "seconds"]
    rows = [
        [
            gap.problem,
            gap.status,
            *map(_number, (gap.objective, gap.best, gap.line, gap.violation)),
            f"{gap.seconds:.2f}",
        ]
        for gap in gaps
    ]
    return format_table(heads, rows, heads[2:])


def _number(value: float) -> str:
    return f"{value + 0.0:.4f}" if math.isfinite(value) else "-"
