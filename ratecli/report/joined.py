"""Several experiments on one page: how each went, and the figures of papers beside ours."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ratecli.errors import Fault, FaultError
from ratecli.files import LEDGER, atomic_write, writing
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.report.expectations import (
    MEANING,
    NOT_JUDGED,
    SIGNS,
    Comparison,
    Verdict,
    choices,
    comparisons,
    difference_cell,
    interval_cell,
    kind,
    ours_cell,
    tally,
    verdict_cell,
)
from ratecli.report.groups import groups
from ratecli.report.identity import by_status, status_cell
from ratecli.report.markup import render
from ratecli.report.sheet import Cell, Column, Sheet, plain, scalar

REPORT = "report.html"
UNREADABLE = "cannot be read"
"""Shown for an experiment whose ledger is none, or of another version."""
ORDER = (
    Verdict.DIFFERS,
    Verdict.NOT_MEASURED,
    Verdict.BETTER,
    Verdict.NOT_CONTRADICTED,
    Verdict.HOLDS,
    Verdict.SHOWN,
)
"""Verdicts in the order in which a person wants to see them."""
NOTE = (
    f"Ours is the mean over seeds with its 95 % interval. {MEANING}; "
    "not judged: the file states no tolerance."
)


@dataclass(frozen=True)
class Experiment:
    """One of those that are joined; without a ledger it was not run, or `faults` say why there is none."""

    folder: Path
    ledger: Ledger | None
    faults: tuple[Fault, ...] = ()

    @property
    def name(self) -> str:
        named = self.ledger.experiment.get("name") if self.ledger else None
        return str(named or self.folder.name)

    @property
    def compared(self) -> list[Comparison]:
        return comparisons(self.ledger) if self.ledger else []


Row = tuple[Experiment, Comparison]


def write_joined(folders: Sequence[Path], place: Path) -> Path:
    """Write `place` over the experiments whose results are in `folders`, in that order; gives `place`.

    Each row leads to the experiment's own report, by a path from `place`. A folder without a ledger is
    shown as not run, and one whose ledger cannot be read with its fault.

    Raises
    ------
    FaultError
        E505 where `place` cannot be written.
    """
    text = joined(folders, place)
    with writing(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, text)
    return place


def joined(folders: Sequence[Path], place: Path) -> str:
    """The page's text; `place` is where it will lie."""
    found = [_read(folder) for folder in dict.fromkeys(folders)]
    rows = sorted(
        ((each, one) for each in found for one in each.compared),
        key=lambda row: ORDER.index(row[1].verdict),
    )
    papers = [row for row in rows if row[1].entry.kind == "paper"]
    others = [row for row in rows if row[1].entry.kind != "paper"]
    return render(
        "joined.html.j2",
        experiments=_experiments(found, place),
        missing=[each.name for each in found if each.ledger is None and not each.faults],
        unreadable=[(each.name, fault) for each in found for fault in each.faults],
        trials=by_status(sum((_statuses(each) for each in found), Counter())),
        verdicts=tally(one for _, one in papers),
        sheets=[
            (sheet, choices([one for _, one in several]), [kind(one) for _, one in several])
            for sheet, several in (
                (_figures("Paper figures beside ours", "paper", papers, place), papers),
                (_figures("Other expectations", "expected", others, place), others),
            )
            if several
        ],
    )


def _read(folder: Path) -> Experiment:
    path = folder / LEDGER
    try:
        return Experiment(folder, Ledger.read(path) if path.is_file() else None)
    except FaultError as error:
        return Experiment(folder, None, tuple(error.faults))


def _statuses(each: Experiment) -> Counter[str]:
    return Counter(map(each.ledger.status, each.ledger.plan) if each.ledger else ())


def _experiments(found: Sequence[Experiment], place: Path) -> Sheet:
    """One row an experiment."""
    columns = (
        Column("experiment"), Column("what it asks"), Column("trials", numeric=True),
        Column("ended"), Column("kept on test", numeric=True), Column("expected numbers"),
    )  # fmt: skip
    note = (
        "Kept on test: trials and variants of algorithms of which no constraint is broken on test rows, of "
        "all that were measured there. Each name leads to the experiment's own report."
    )
    return Sheet("Experiments", columns, tuple(_row(each, place) for each in found), note)


def _row(each: Experiment, place: Path) -> tuple[Cell, ...]:
    if each.ledger is None:
        ended = Cell(UNREADABLE, tone="bad") if each.faults else Cell(NOT_RUN, tone="part")
        return (Cell(each.name), *[Cell("")] * 2, ended, *[Cell("")] * 2)
    counts = _statuses(each)
    judged = tally(each.compared)
    bad = any(tone == "bad" for *_, tone in judged)
    return (
        Cell(each.name, link=_link(each.folder, place)),
        Cell(_first_sentence(str(each.ledger.experiment.get("description") or ""))),
        plain(counts.total()),
        status_cell(counts),
        _kept(each.ledger),
        Cell(", ".join(f"{word} {count}" for word, count, _ in judged), tone="bad" if bad else ""),
    )


def _kept(ledger: Ledger) -> Cell:
    """Of the classifiers that were measured on test rows how many break no constraint there."""
    told = [
        outcome.broken("test") for group in groups(ledger.algorithms) for outcome in group.outcomes
    ]
    known = [broken for broken in told if broken is not None]
    if not ledger.constraints or not known:
        return Cell("")
    kept = known.count(False)
    return Cell(f"{kept:,} of {len(known):,}", kept / len(known))


def _figures(title: str, what: str, several: Sequence[Row], place: Path) -> Sheet:
    """One row a figure."""
    columns = (
        Column("experiment"), Column("figure"), Column("source"),
        *(Column(name, numeric=True) for name in (what, "ours", "95 % interval")),
        Column("verdict"), *(Column(name, numeric=True) for name in ("difference", "n")), Column("within"),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(each.name, link=_link(each.folder, place)),
            Cell(_told(one)),
            Cell(one.entry.source or ""),
            Cell(f"{SIGNS[one.entry.kind].replace('paper ', '')}{one.figure:g}", one.figure),
            ours_cell(one.ours),
            interval_cell(one.ours),
            verdict_cell(one) if str(one.verdict) else Cell(NOT_JUDGED, tone="none"),
            difference_cell(one),
            plain(one.ours.n),
            plain(one.entry.within),
        )
        for each, one in several
    )
    sheet = Sheet(title, columns, rows, NOTE if what == "paper" else "")
    return sheet.without_empty("source", "within")


def _told(one: Comparison) -> str:
    """Which number: the metric, of whom, where."""
    group = one.group
    point = [f"{name} = {scalar(value)}" for name, value in group.point.items()]
    who = f"{group.label} ({group.variant})" if group.variant else group.label
    return ", ".join([f"{one.entry.metric} of {who}", *point, one.entry.split])


def _link(folder: Path, place: Path) -> str:
    """The way from the page to the experiment's own; nothing where there is none."""
    if not (folder / REPORT).is_file():
        return ""
    way = os.path.relpath((folder / REPORT).resolve(), place.parent.resolve())
    return quote(Path(way).as_posix())


def _first_sentence(text: str) -> str:
    """Of a description, as far as a table has room."""
    flat = " ".join(text.split())
    end = min((at for sign in (". ", "? ") if (at := flat.find(sign)) >= 0), default=len(flat))
    said = flat[: end + 1]
    return said if len(said) <= 200 else f"{said[:197].rstrip()}..."
