"""A page on several experiments: their states, and measured values next to papers' figures."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ratecli.errors import Diagnostic, FaultError
from ratecli.files import LEDGER_FILE, atomic_write, report_write_errors
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.report.expectations import (
    NOTE,
    ExpectationComparison,
    ExpectationVerdict,
    compare_expectations,
    comparison_cells,
    count_verdicts,
)
from ratecli.report.groups import seed_groups
from ratecli.report.html import render_template
from ratecli.report.sheet import (
    SheetCell,
    SheetRow,
    count_by_status,
    format_point,
    make_sheet,
    satisfied_cell,
    status_cell,
)

REPORT = "report.html"
UNREADABLE = "cannot be read"
"""Shown for an experiment whose ledger is invalid or of another version."""
EXPERIMENTS_NOTE = (
    "Satisfied on test: in how many trials and variants of algorithms all constraints are "
    "satisfied on the test set, of those measured there. Each name links to the experiment's own "
    "report."
)


@dataclass(frozen=True)
class JoinedExperiment:
    """An experiment on the page. If `ledger` is None, it was not run or `errors` explains why."""

    folder: Path
    ledger: Ledger | None
    errors: Sequence[Diagnostic] = ()

    @classmethod
    def read(cls, folder: Path) -> JoinedExperiment:
        path = folder / LEDGER_FILE
        try:
            return cls(folder, Ledger.read(path) if path.is_file() else None)
        except FaultError as error:
            return cls(folder, None, error.faults)

    @property
    def name(self) -> str:
        named = self.ledger.experiment.get("name") if self.ledger else None
        return str(named or self.folder.name)

    @property
    def statuses(self) -> Counter[str]:
        return Counter(map(self.ledger.status, self.ledger.plan) if self.ledger else ())

    @property
    def comparisons(self) -> list[ExpectationComparison]:
        return compare_expectations(self.ledger) if self.ledger else []

    def name_cell(self, page: Path) -> SheetCell:
        """Return the name, with a link relative to `page` if there is a report."""
        report, link = self.folder / REPORT, ""
        if report.is_file():
            relative = os.path.relpath(report.resolve(), page.parent.resolve())
            link = quote(Path(relative).as_posix())
        return SheetCell(self.name, link=link)


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
    experiments = [JoinedExperiment.read(folder) for folder in dict.fromkeys(folders)]
    rows = sorted(
        ((each, result) for each in experiments for result in each.comparisons),
        key=lambda row: list(ExpectationVerdict).index(row[1].verdict),
    )
    papers = [row for row in rows if row[1].entry.kind == "paper"]
    others = [row for row in rows if row[1].entry.kind != "paper"]
    sections = (("Paper figures and measured values", papers), ("Other expectations", others))
    tables = [
        make_sheet(title, [_figure_row(*row, place) for row in section_rows], NOTE)
        for title, section_rows in sections
        if section_rows
    ]
    return render_template(
        "joined.html.j2",
        experiments=make_sheet(
            "Experiments", [_experiment_row(each, place) for each in experiments], EXPERIMENTS_NOTE
        ),
        missing=[each.name for each in experiments if each.ledger is None and not each.errors],
        unreadable=[(each.name, error) for each in experiments for error in each.errors],
        trials=count_by_status(sum((each.statuses for each in experiments), Counter())),
        verdicts=count_verdicts(result for _, result in papers),
        sheets=tables,
    )


def _experiment_row(joined: JoinedExperiment, place: Path) -> SheetRow:
    ledger, verdicts = joined.ledger, count_verdicts(joined.comparisons)
    ended, satisfied = SheetCell(NOT_RUN, tone="part"), SheetCell("")
    if ledger is not None:
        ended = status_cell(joined.statuses)
        if ledger.constraints:
            satisfied = satisfied_cell(seed_groups(ledger.algorithms), "test")
    elif joined.errors:
        ended = SheetCell(UNREADABLE, tone="bad")
    counted = ", ".join(f"{word} {count}" for word, count, _ in verdicts)
    tone = "bad" if any(tone == "bad" for *_, tone in verdicts) else ""
    description = ledger.experiment.get("description") if ledger else ""
    return [
        ("experiment", joined.name_cell(place)),
        ("question", _first_sentence(str(description or ""))),
        ("trials", joined.statuses.total() if ledger else None),
        ("ended", ended),
        ("satisfied on test", satisfied),
        ("expected numbers", SheetCell(counted, tone=tone)),
    ]


def _figure_row(joined: JoinedExperiment, result: ExpectationComparison, place: Path) -> SheetRow:
    """Return the row of an expected figure."""
    group, metric = result.group, result.entry.metric
    name = f"{group.label} ({group.variant})" if group.variant else group.label
    about = [f"{metric} of {name}", format_point(group.point), result.entry.split]
    figure = ", ".join(filter(None, about))
    return [("experiment", joined.name_cell(place)), ("figure", figure), *comparison_cells(result)]


def _first_sentence(text: str) -> str:
    """Return the first sentence of a description, shortened to fit a table."""
    flat = " ".join(text.split())
    end = min((at for sign in (". ", "? ") if (at := flat.find(sign)) >= 0), default=len(flat))
    return textwrap.shorten(flat[: end + 1], 200, placeholder="...")
