"""Tables for people (`Sheet`), formatting of their cells, rendering as Markdown and LaTeX."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.render import aligned, text_table
from ratecli.report import groups as gr

UNKNOWN = "-"
"""Shown for the variant of an algorithm without values, and for what was not measured."""
MAX_LISTED = 12
"""Longer lists of values are shortened."""
ROUNDING = 1e-7
"""Smaller numbers are rounding errors and shown as 0."""
LAST_DIGIT = 5e-5
"""Smaller numbers are 0 to four decimals."""
TONES = ("", "part", "bad")
"""Tones of statuses, from good to bad."""


@dataclass(frozen=True)
class SheetCell:
    """A cell: its text, its sort key, and its tone ("good", "part", "bad", "none" or "").

    On HTML pages, `more` is text in a collapsible section below, and `link` is the target of the
    cell. The `best` values are bold in LaTeX.
    """

    text: str
    key: float | None = None
    tone: str = ""
    more: str = ""
    link: str = ""
    best: bool = False


SheetRow: TypeAlias = Iterable[tuple[str, Any]] | Mapping[str, Any]
"""Titles and cells of a row. A cell that is no `SheetCell` is a value to format."""


@dataclass(frozen=True)
class Sheet:
    """A table with the titles of its columns; a column with sort keys is numeric."""

    title: str
    titles: tuple[str, ...]
    rows: tuple[tuple[SheetCell, ...], ...]
    note: str = ""

    @cached_property
    def numeric(self) -> list[bool]:
        return [any(row[k].key is not None for row in self.rows) for k in range(len(self.titles))]


def make_sheet(title: str, rows: Iterable[SheetRow], note: str = "") -> Sheet:
    """Return a sheet of rows with the same titles."""
    named = [list(row.items() if isinstance(row, Mapping) else row) for row in rows]
    cells = [
        tuple(cell if isinstance(cell, SheetCell) else value_cell(cell) for _, cell in row)
        for row in named
    ]
    titles = tuple(name for name, _ in named[0]) if named else ()
    return Sheet(title, titles, tuple(cells), note)


HUGE = 1e9
"""Numbers of at least this size are written with an exponent."""


def format_number(value: float) -> str:
    """Format with at most four decimals, or three significant digits if tiny or huge."""
    if not math.isfinite(value):
        return str(value)
    value = 0.0 if abs(value) < ROUNDING else value
    if value and not LAST_DIGIT <= abs(value) < HUGE:
        return f"{value:.3g}"
    decimals = 4 - 2 * sum(abs(value) >= limit for limit in (1e3, 1e5))
    return f"{value:.{decimals}f}"


def format_signed(value: float) -> str:
    return f"{'+' * (value >= 0)}{format_number(value)}"


def format_scalar(value: Any) -> str:
    """Format a sweep value or another value of the experiment file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.10g}"  # as written; computed numbers have six digits
    return text if float(text) == value else f"{value:.6g}"


def format_list(values: Iterable[Any]) -> str:
    """Join distinct values; shorten long lists to the first, the last and their number."""
    texts = list(dict.fromkeys(map(format_scalar, values)))
    if len(texts) <= MAX_LISTED:
        return ", ".join(texts)
    return f"{texts[0]} to {texts[-1]} ({len(texts)} values)"


def format_setting(setting: Mapping[str, Any]) -> str:
    """Format tuned values as in a file: `max_depth: 3, scores: {folds: 5}`."""
    text = ", ".join(f"{key}: {json.dumps(value)}" for key, value in setting.items())
    return text.replace('"', "")


def format_point(point: Mapping[str, Any]) -> str:
    """Format a sweep point as `name = value, ...`."""
    return ", ".join(
        f"{name} = {format_scalar(value)}" for name, value in point.items() if value is not None
    )


def value_cell(value: Any) -> SheetCell:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return SheetCell(format_scalar(value), value if numeric else None)


def number_cell(value: float, tone: str = "") -> SheetCell:
    return SheetCell(format_number(value), value, tone)


def estimate_cell(found: gr.IntervalEstimate, trials: int | None = None) -> SheetCell:
    """Format `mean ± half`, or `mean [low, high]` for a share.

    There is no half width if all values are equal: trials on one split may be the same trial. The
    count is added if it differs from that of the row, `trials`.
    """
    if found.mean is None:
        return SheetCell("nan" if found.nan else "")
    negligible = abs(found.mean) < LAST_DIGIT <= (found.half or 0.0)
    text = format_number(0.0 if negligible else found.mean)
    if found.half:
        text += f" ± {format_number(found.half)}"
    elif found.half is None and found.interval is not None:
        text += f" [{', '.join(map(format_number, found.interval))}]"
    if trials not in {None, found.n}:
        text += f" (n={found.n})"
    return SheetCell(text, found.mean)


def share_cell(count: int, total: int, tone: str = "") -> SheetCell:
    """Return `count of total`."""
    return SheetCell(f"{count:,} of {total:,}", count / total, tone)


def satisfied_cell(groups: Iterable[gr.SeedGroup], split: str, constraint: str = "") -> SheetCell:
    """Return in how many of the measured trials the constraint (default: all) is satisfied."""
    satisfied, measured = gr.count_satisfied(groups, split, constraint)
    if not measured:
        return SheetCell(UNKNOWN)
    found = share_cell(satisfied, measured, share_tone(satisfied, measured))
    return replace(found, text=f"{check_mark(satisfied, measured)} {found.text}")


def check_mark(satisfied: int, measured: int) -> str:
    return "✓" if satisfied == measured else "✗"


def share_tone(passed: int, total: int) -> str:
    return "good" if passed == total else "part" if passed else "bad"


def to_markdown(sheet: Sheet) -> str:
    """Render as a pipe table with a title and a note."""
    note = f"{escape(sheet.note)}\n\n" if sheet.note else ""
    return f"## {escape(sheet.title)}\n\n{note}{markdown_table(sheet)}\n"


def markdown_table(sheet: Sheet) -> str:
    """Render as a pipe table with aligned columns."""
    titles = list(zip(map(escape, sheet.titles), sheet.numeric, strict=True))
    heads = [title.rjust(3) if numeric else title.ljust(3) for title, numeric in titles]
    rows = [[escape(cell.text) for cell in row] for row in sheet.rows]
    right = [head for head, numeric in zip(heads, sheet.numeric, strict=True) if numeric]
    first, *more = aligned(heads, rows, right)
    rule = [
        "-" * (len(text) - numeric) + ":" * numeric
        for text, numeric in zip(first, sheet.numeric, strict=True)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (first, rule, *more))


LATEX_NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?(?: ± \d+(?:\.\d+)?)?)( [^±]*)?")
"""A number that siunitx can parse, perhaps with its uncertainty, and the text after it."""
LATEX_SETUP = (
    "mode=text, reset-text-series=false, uncertainty-mode=separate, retain-explicit-plus, "
    "table-alignment-mode=none, table-alignment=right"
)
LATEX_CHARACTERS = str.maketrans(
    {each: rf"\{each}" for each in "&%$#_{}"}
    | {each: f"{{{each}}}" for each in "[*"}  # after the end of a row, LaTeX reads them as options
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"±": r"$\pm$", "✓": r"$\surd$", "✗": r"$\times$"}
)


def to_latex(sheet: Sheet, notes: Iterable[str] = ()) -> str:
    """Render as a `tabular` of booktabs and siunitx, after comments with its title and notes.

    Numeric columns are `S` columns. What siunitx cannot parse is text in braces there.
    """
    forms = ["S" if numeric else "l" for numeric in sheet.numeric]
    head, *rows = (
        " & ".join(_latex_cell(cell, form) for cell, form in zip(row, forms, strict=True)) + r" \\"
        for row in (map(SheetCell, sheet.titles), *sheet.rows)
    )
    notes = sheet.title, r"Needs \usepackage{booktabs, siunitx} (v3)", sheet.note, *notes
    setup = rf"\begingroup\sisetup{{{LATEX_SETUP}}}"
    start = setup, rf"\begin{{tabular}}{{{''.join(forms)}}}", r"\toprule", head, r"\midrule"
    lines = *start, *rows, r"\bottomrule", r"\end{tabular}\endgroup"
    return "\n".join([*(f"% {' '.join(text.split())}" for text in notes if text), *lines, ""])


def _latex_cell(cell: SheetCell, form: str) -> str:
    bold, found = r"\bfseries " * cell.best, LATEX_NUMBER.fullmatch(cell.text)
    if form == "l" or not found:
        text = f"{bold}{_latex_text(cell.text)}"
        return text if form == "l" else f"{{{text}}}"
    number, end = found.groups("")
    return bold + number.replace("±", r"\pm") + f" {{~{_latex_text(end)}}}" * bool(end)


def _latex_text(text: str) -> str:
    return " ".join(text.split()).translate(LATEX_CHARACTERS)


def to_text(sheet: Sheet, most: int | None = None) -> str:
    """Render as text for a terminal, at most the first `most` rows."""
    rows = [[cell.text for cell in row] for row in sheet.rows[:most]]
    right = [title for title, numeric in zip(sheet.titles, sheet.numeric, strict=True) if numeric]
    return text_table(sheet.titles, rows, right)


def narrowed(sheet: Sheet, width: int, kept: Sequence[str] = ()) -> Sheet:
    """Return a sheet of at most `width` characters, with fewer columns if necessary.

    The last of the columns that repeat one value goes first. The first column stays, and those in
    `kept` stay as long as there are others.
    """

    def without(k: int) -> Sheet:
        rows = tuple(row[:k] + row[k + 1 :] for row in sheet.rows)
        return replace(sheet, titles=sheet.titles[:k] + sheet.titles[k + 1 :], rows=rows)

    while len(sheet.titles) > 1 and max(map(len, to_text(sheet).splitlines())) > width:
        columns = zip(*sheet.rows, strict=True)
        repeated = [len(sheet.rows) > 1 and len({each.text for each in own}) < 2 for own in columns]
        ranks = [
            (title not in kept, each) for title, each in zip(sheet.titles, repeated, strict=True)
        ]
        sheet = without(max(range(1, len(ranks)), key=lambda k: (ranks[k], k)))
    return sheet


def escape(text: str) -> str:
    """Return text as one line of Markdown without HTML."""
    flat = " ".join(text.split())
    flat = flat.replace("\\", "\\\\").replace("|", "\\|")
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", flat)  # what could begin an HTML tag


def identity_columns(ledger: Ledger) -> list[str]:
    """Return the columns that identify a group."""
    several = not all(group.sole for group in gr.seed_groups(ledger))
    return ["algorithm", *["variant"] * several, *ledger.sweep]


def identity_cells(group: gr.SeedGroup, names: Iterable[str]) -> list[tuple[str, Any]]:
    """Return titles and values of the columns that identify a group."""
    known = {"algorithm": group.label, "variant": group.variant or UNKNOWN, "seed": group.seed}
    return [(name, known.get(name, group.point.get(name))) for name in names]


def sort_groups(found: Sequence[gr.SeedGroup], names: Sequence[str]) -> list[gr.SeedGroup]:
    """Sort by the first name, then by the next, each in plan order."""
    ranks: list[dict[str, int]] = [{} for _ in names]

    def rank(group: gr.SeedGroup) -> list[int]:
        texts = [format_scalar(value) for _, value in identity_cells(group, names)]
        return [seen.setdefault(text, len(seen)) for seen, text in zip(ranks, texts, strict=True)]

    return sorted(found, key=rank)


def count_by_status(counts: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Return status, count and tone, best statuses first."""
    names = sorted(counts, key=lambda status: (status != "ok", TONES.index(_tone(status)), status))
    return [(name, counts[name], _tone(name)) for name in names]


def status_cell(counts: Mapping[str, int], constants: int = 0) -> SheetCell:
    """Return the counts as in `ok 4, error 1; 2 no better than a constant`."""
    found = count_by_status(counts)
    tones = [tone for _, _, tone in found] + ["part"] * bool(constants)
    text = ", ".join(f"{name} {count}" for name, count, _ in found)
    text += f"; {constants} no better than a constant" if constants else ""
    return SheetCell(text, tone=max(tones, key=TONES.index, default=""))


def _tone(status: str) -> str:
    """Return a status' tone; finding that there is no solution is not a failure."""
    return "" if status in MEASURED_STATUSES else "part" if status in gr.CONCLUSIVE else "bad"
