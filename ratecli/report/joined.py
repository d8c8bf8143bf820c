"""A page on several experiments: their states, and measured values next to papers' figures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ratecli.errors import Diagnostic, FaultError
from ratecli.files import LEDGER_FILE, atomic_write, report_write_errors
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.report.expectations import (
    MEANING,
    NOT_JUDGED,
    SIGNS,
    ExpectationComparison,
    ExpectationVerdict,
    compare_expectations,
    count_verdicts,
    difference_cell,
    interval_cell,
    measured_cell,
    verdict_cell,
    verdict_filters,
    verdict_text,
)
from ratecli.report.groups import seed_groups
from ratecli.report.markup import render_template
from ratecli.report.sheet import (
    Sheet,
    SheetCell,
    SheetColumn,
    count_by_status,
    format_scalar,
    status_cell,
    value_cell,
)

REPORT = "report.html"
UNREADABLE = "cannot be read"
"""Shown for an experiment whose ledger is invalid or of another version."""
ORDER = (
    ExpectationVerdict.DIFFERS,
    ExpectationVerdict.NOT_MEASURED,
    ExpectationVerdict.BETTER,
    ExpectationVerdict.NOT_CONTRADICTED,
    ExpectationVerdict.HOLDS,
    ExpectationVerdict.SHOWN,
)
"""Verdicts in display order."""
NOTE = (
    f"Ours is the mean over seeds with its 95 % interval. {MEANING}; "
    "not judged: the file states no tolerance."
)


@dataclass(frozen=True)
class JoinedExperiment:
    """One of the joined experiments. Without a ledger it was not run, or `faults` says why."""

    folder: Path
    ledger: Ledger | None
    faults: tuple[Diagnostic, ...] = ()

    @property
    def name(self) -> str:
        named = self.ledger.experiment.get("name") if self.ledger else None
        return str(named or self.folder.name)

    @property
    def compared(self) -> list[ExpectationComparison]:
        return compare_expectations(self.ledger) if self.ledger else []


FigureRow = tuple[JoinedExperiment, ExpectationComparison]


def write_joined(folders: Sequence[Path], place: Path) -> Path:
    """Write a page on the experiments with results in `folders`, in that order; return `place`.

    Each row links to the experiment's own report, relative to `place`. A folder without a ledger is
    shown as not run, and an unreadable ledger with its error.

    Raises
    ------
    FaultError
        E505 if `place` cannot be written.
    """
    text = render_joined(folders, place)
    with report_write_errors(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, text)
    return place


def render_joined(folders: Sequence[Path], place: Path) -> str:
    """Render the page; `place` is the path it will have."""
    found = [_read(folder) for folder in dict.fromkeys(folders)]
    rows = sorted(
        ((each, one) for each in found for one in each.compared),
        key=lambda row: ORDER.index(row[1].verdict),
    )
    papers = [row for row in rows if row[1].entry.kind == "paper"]
    others = [row for row in rows if row[1].entry.kind != "paper"]
    return render_template(
        "joined.html.j2",
        experiments=_experiments(found, place),
        missing=[each.name for each in found if each.ledger is None and not each.faults],
        unreadable=[(each.name, fault) for each in found for fault in each.faults],
        trials=count_by_status(sum((_statuses(each) for each in found), Counter())),
        verdicts=count_verdicts(one for _, one in papers),
        sheets=[
            (
                sheet,
                verdict_filters([one for _, one in several]),
                [verdict_text(one) for _, one in several],
            )
            for sheet, several in (
                (_figures("Paper figures beside ours", "paper", papers, place), papers),
                (_figures("Other expectations", "expected", others, place), others),
            )
            if several
        ],
    )


def _read(folder: Path) -> JoinedExperiment:
    path = folder / LEDGER_FILE
    try:
        return JoinedExperiment(folder, Ledger.read(path) if path.is_file() else None)
    except FaultError as error:
        return JoinedExperiment(folder, None, tuple(error.faults))


def _statuses(each: JoinedExperiment) -> Counter[str]:
    return Counter(map(each.ledger.status, each.ledger.plan) if each.ledger else ())


def _experiments(found: Sequence[JoinedExperiment], place: Path) -> Sheet:
    """Return a row for each experiment."""
    columns = (
        SheetColumn("experiment"),
        SheetColumn("what it asks"),
        SheetColumn("trials", numeric=True),
        SheetColumn("ended"),
        SheetColumn("kept on test", numeric=True),
        SheetColumn("expected numbers"),
    )
    note = (
        "Kept on test: trials and variants of algorithms of which no constraint is broken on test "
        "rows, of all that were measured there. Each name leads to the experiment's own report."
    )
    return Sheet("Experiments", columns, tuple(_row(each, place) for each in found), note)


def _row(each: JoinedExperiment, place: Path) -> tuple[SheetCell, ...]:
    if each.ledger is None:
        ended = (
            SheetCell(UNREADABLE, tone="bad") if each.faults else SheetCell(NOT_RUN, tone="part")
        )
        return (SheetCell(each.name), *[SheetCell("")] * 2, ended, *[SheetCell("")] * 2)
    counts = _statuses(each)
    judged = count_verdicts(each.compared)
    bad = any(tone == "bad" for *_, tone in judged)
    return (
        SheetCell(each.name, link=_link(each.folder, place)),
        SheetCell(_first_sentence(str(each.ledger.experiment.get("description") or ""))),
        value_cell(counts.total()),
        status_cell(counts),
        _kept(each.ledger),
        SheetCell(
            ", ".join(f"{word} {count}" for word, count, _ in judged), tone="bad" if bad else ""
        ),
    )


def _kept(ledger: Ledger) -> SheetCell:
    """Return how many of the classifiers measured on the test set satisfy all constraints there."""
    told = [
        outcome.broken("test")
        for group in seed_groups(ledger.algorithms)
        for outcome in group.outcomes
    ]
    known = [broken for broken in told if broken is not None]
    if not ledger.constraints or not known:
        return SheetCell("")
    kept = known.count(False)
    return SheetCell(f"{kept:,} of {len(known):,}", kept / len(known))


def _figures(title: str, what: str, several: Sequence[FigureRow], place: Path) -> Sheet:
    """Return a row for each expected figure."""
    columns = (
        SheetColumn("experiment"),
        SheetColumn("figure"),
        SheetColumn("source"),
        *(SheetColumn(name, numeric=True) for name in (what, "ours", "95 % interval")),
        SheetColumn("verdict"),
        *(SheetColumn(name, numeric=True) for name in ("difference", "n")),
        SheetColumn("within"),
    )
    rows = tuple(
        (
            SheetCell(each.name, link=_link(each.folder, place)),
            SheetCell(_figure_text(one)),
            SheetCell(one.entry.source or ""),
            SheetCell(f"{SIGNS[one.entry.kind].replace('paper ', '')}{one.figure:g}", one.figure),
            measured_cell(one.ours),
            interval_cell(one.ours),
            verdict_cell(one) if str(one.verdict) else SheetCell(NOT_JUDGED, tone="none"),
            difference_cell(one),
            value_cell(one.ours.n),
            value_cell(one.entry.within),
        )
        for each, one in several
    )
    sheet = Sheet(title, columns, rows, NOTE if what == "paper" else "")
    return sheet.without_empty("source", "within")


def _figure_text(one: ExpectationComparison) -> str:
    """Describe a figure: metric, algorithm, sweep point and split."""
    group = one.group
    point = [f"{name} = {format_scalar(value)}" for name, value in group.point.items()]
    who = f"{group.label} ({group.variant})" if group.variant else group.label
    return ", ".join([f"{one.entry.metric} of {who}", *point, one.entry.split])


def _link(folder: Path, place: Path) -> str:
    """Return the relative link to the experiment's report, or "" if there is none."""
    if not (folder / REPORT).is_file():
        return ""
    way = os.path.relpath((folder / REPORT).resolve(), place.parent.resolve())
    return quote(Path(way).as_posix())


def _first_sentence(text: str) -> str:
    """Return the first sentence of a description, shortened to fit a table."""
    flat = " ".join(text.split())
    end = min((at for sign in (". ", "? ") if (at := flat.find(sign)) >= 0), default=len(flat))
    said = flat[: end + 1]
    return said if len(said) <= 200 else f"{said[:197].rstrip()}..."
