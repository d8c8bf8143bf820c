"""`test-plugin`."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratecli.cli.arguments import Json, Offline
from ratecli.cli.console import counted, print_json, table
from ratecli.plain_text import plain

if TYPE_CHECKING:
    from ratecli.conformance.outcome import Gap, Report

BROKEN = 3
"""A check does not hold."""


def add_to(app: typer.Typer) -> None:
    app.command(name="test-plugin")(conform)


def conform(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME|PACKAGE|MODULE:OBJECT",
            help="An algorithm, data set or metric, a package with some, or an object not installed yet.",
        ),
    ],
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Check that a plugin keeps what ratecli takes for granted, on tiny problems with known optima."""
    from ratecli.conformance.targets import targets  # noqa: PLC0415

    reports = [each.report(offline=offline) for each in targets(target)]
    if as_json:
        print_json([_plain(report) for report in reports])
    else:
        typer.echo(plain("\n\n".join("\n".join(_lines(report)) for report in reports)))
    raise typer.Exit(0 if all(report.holds for report in reports) else BROKEN)


def _plain(report: Report) -> dict[str, Any]:
    """As JSON, which has no NaN and no infinity."""
    gaps = [
        {key: None if _odd(value) else value for key, value in asdict(gap).items()}
        for gap in report.gaps
    ]
    return asdict(report) | {"holds": report.holds, "gaps": gaps}


def _odd(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _lines(report: Report) -> list[str]:
    lines = [f"{report.kind} '{report.name}' ({report.origin})", ""]
    for check in report.checks:
        lines.append(f"  {check.state:8} {check.name}")
        lines += [f"           {text}" for text in (check.reason, _mended(check.mend)) if text]
    if report.gaps:
        lines += ["", *(f"  {line}".rstrip() for line in _gaps(report.gaps).splitlines())]
    failed = len(report.failed)
    ending = "all checks hold" if report.holds else f"{counted(failed, 'check')} failed"
    return [*lines, "", ending]


def _mended(text: str) -> str:
    return f"= help: {text}" if text else ""


def _gaps(gaps: tuple[Gap, ...]) -> str:
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
    return table(heads, rows, heads[2:])


def _number(value: float) -> str:
    return f"{value + 0.0:.4f}" if math.isfinite(value) else "-"
