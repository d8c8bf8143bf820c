"""Tables for people (`Sheet`), formatting of their cells, and rendering as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.estimates import IntervalEstimate
from ratecli.report.groups import CONCLUSIVE, SeedGroup


@dataclass(frozen=True)
class SheetCell:
    """A cell: its text, its sort key, and its tone ("good", "part", "bad", "none" or "").

    On HTML pages, `more` is text in a collapsible section below, and `link` is the target of the
    cell.
    """

    text: str
    key: float | None = None
    tone: str = ""
    more: str = ""
    link: str = ""


@dataclass(frozen=True)
class SheetColumn:
    title: str
    numeric: bool = False


@dataclass(frozen=True)
class Sheet:
    title: str
    columns: tuple[SheetColumn, ...]
    rows: tuple[tuple[SheetCell, ...], ...]
    note: str = ""

    def without_empty(self, *titles: str) -> Sheet:
        """Remove the named columns that are empty in all rows."""
        kept = [
            k
            for k, column in enumerate(self.columns)
            if column.title not in titles or any(row[k].text for row in self.rows)
        ]
        rows = tuple(tuple(row[k] for k in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[k] for k in kept), rows=rows)


def format_number(value: float) -> str:
    """Format with four decimals, or three significant digits for tiny or huge numbers."""
    if not math.isfinite(value):
        return str(value)
    plain = value == 0 or 5e-5 <= abs(value) < 1e5
    return f"{value:.4f}" if plain else f"{value:.3g}"


def format_scalar(value: Any) -> str:
    """Format a sweep value or another value of the experiment file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def value_cell(value: Any) -> SheetCell:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return SheetCell(format_scalar(value), value if numeric else None)


def estimate_cell(found: IntervalEstimate, trials: int) -> SheetCell:
    """Format `mean ± half`, or `mean [low, high]` for a share.

    The count is added if it differs from the row's.
    """
    if found.mean is None:
        return SheetCell("nan" if found.nan else "", None)
    text = format_number(found.mean) + (
        "" if found.half is None else f" ± {format_number(found.half)}"
    )
    if found.exact is not None:
        text += f" [{', '.join(map(format_number, found.exact))}]"
    return SheetCell(text + (f" (n={found.n})" if found.n != trials else ""), found.mean)


def to_markdown(sheet: Sheet) -> str:
    """Render as a pipe table with aligned columns."""
    texts = [[_escape(cell.text) for cell in row] for row in sheet.rows]
    heads = [_escape(column.title) for column in sheet.columns]
    widths = [max(3, *map(len, column)) for column in zip(heads, *texts, strict=True)]
    numeric = [column.numeric for column in sheet.columns]
    rule = ["-" * (w - right) + ":" * right for w, right in zip(widths, numeric, strict=True)]
    table = "\n".join(_line(row, widths, numeric) for row in [heads, rule, *texts])
    note = f"{_escape(sheet.note)}\n\n" if sheet.note else ""
    return f"## {_escape(sheet.title)}\n\n{note}{table}\n"


def _line(texts: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    cells = (
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(texts, widths, numeric, strict=True)
    )
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    flat = " ".join(text.split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


UNKNOWN = "-"
"""Shown for the variant of an algorithm without values."""
TONES = ("", "part", "bad")
"""Tones of statuses, from good to bad."""


def identity_columns(ledger: Ledger) -> list[str]:
    """Return the columns that identify a group."""
    return ["algorithm", "variant", *ledger.sweep]


def identity_column(ledger: Ledger, name: str) -> SheetColumn:
    if name == "seed":
        return SheetColumn(name, numeric=True)
    values = [trial.point[name] for trial in ledger.plan if name in trial.point]
    return SheetColumn(
        name, numeric=bool(values) and all(value_cell(each).key is not None for each in values)
    )


def key_cell(group: SeedGroup, name: str) -> SheetCell:
    if name == "algorithm":
        return SheetCell(group.label)
    if name == "variant":
        return SheetCell(group.variant or UNKNOWN)
    return value_cell(group.seed if name == "seed" else group.point.get(name))


def sort_groups(found: Sequence[SeedGroup], names: Sequence[str]) -> list[SeedGroup]:
    """Sort by the first name, then by the next, each in plan order."""
    ranks: list[dict[str, int]] = [{} for _ in names]

    def rank(group: SeedGroup) -> list[int]:
        texts = (key_cell(group, name).text for name in names)
        return [seen.setdefault(text, len(seen)) for seen, text in zip(ranks, texts, strict=True)]

    return sorted(found, key=rank)


def count_by_status(counts: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Return status, count and tone, best statuses first."""
    names = sorted(counts, key=lambda status: (status != "ok", TONES.index(_tone(status)), status))
    return [(name, counts[name], _tone(name)) for name in names]


def status_cell(counts: Mapping[str, int]) -> SheetCell:
    """Return the counts as in `ok 4, error 1`."""
    found = count_by_status(counts)
    text = ", ".join(f"{name} {count}" for name, count, _ in found)
    return SheetCell(text, tone=max((tone for _, _, tone in found), key=TONES.index, default=""))


def _tone(status: str) -> str:
    """Return a status' tone; finding that there is no solution is not a failure."""
    return "" if status in MEASURED_STATUSES else "part" if status in CONCLUSIVE else "bad"
