"""What a run leaves to be read, made again from its ledger alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ratecli.errors import Fault, FaultError
from ratecli.files import (
    LEDGER,
    MODELS,
    UNFINISHED,
    atomic_write,
    cannot_write,
    refuse_links,
    writing,
)
from ratecli.ledger.lock import REPORT_LOCK, reporting
from ratecli.ledger.store import Store
from ratecli.ledger.view import Ledger
from ratecli.report.constraint_tables import kept, promises
from ratecli.report.expectations import against
from ratecli.report.file_names import file_name
from ratecli.report.html import page
from ratecli.report.models import write_models
from ratecli.report.plots.draw import pictures
from ratecli.report.plots.tree import trees
from ratecli.report.sheet import markdown
from ratecli.report.sheets import asked_sheets, how, unshown
from ratecli.report.tables import csv_text, summary, tidy, trials
from ratecli.staging import remove_stale

MANIFEST = "manifest.json"
PAGES = ("metrics.csv", "trials.csv", "summary.csv", "summary.md", "report.html")
FOLDERS = ("tables", "figures", MODELS)


def check_place(folder: Path) -> None:
    """Before trials run: FaultError with an E505 for all that would be in a report's way."""
    refuse_links(folder, LEDGER, REPORT_LOCK, *FOLDERS)
    found = list(_obstacles(folder))
    if found:
        raise FaultError(found)


def _obstacles(folder: Path) -> Iterator[Fault]:
    for path in (folder / name for name in PAGES):
        if path.is_dir():
            yield cannot_write(path, "it is a folder")
    for path in (folder, *(folder / name for name in FOLDERS)):
        if path.exists() and not path.is_dir():
            yield cannot_write(path, "it is no folder")
        elif path.exists() and not os.access(path, os.W_OK):
            yield cannot_write(path, "nothing may be written there")


def write_report(folder: Path) -> list[Path]:
    """Write tables, plots, page, classifiers and certificates beside the ledger in `folder`.

    Gives the files, and for all of single trials the folder that they are in. The same ledger gives the
    same bytes, and all files are of the ledger as it was at one moment, even while a run goes on.
    """
    return report_of(folder)[1]


def report_of(folder: Path) -> tuple[Ledger, list[Path]]:
    """As `write_report`; gives also what the report is of."""
    refuse_links(folder, LEDGER, *FOLDERS)
    if not (folder / LEDGER).is_file():
        Ledger.read(folder / LEDGER)  # an E503, before a lock is left there
    with reporting(folder), Store(folder / LEDGER, readonly=True) as store:
        for name in FOLDERS:
            remove_stale(folder / name, UNFINISHED)
        read = Ledger(*store.read())
        ledger = with_manifest(read, folder)
        written = []
        for name, content in _files(ledger):
            path = folder / name
            with writing(path.parent):
                path.parent.mkdir(exist_ok=True)
            atomic_write(path, content)
            written.append(path)
        kept = write_models(folder / MODELS, ledger, store)
    return read, [*written, folder / MODELS] if kept else written


def with_manifest(ledger: Ledger, folder: Path) -> Ledger:
    """With the record of the last run, where it lies beside the ledger and can be read."""
    with suppress(OSError, ValueError):
        found = json.loads((folder / MANIFEST).read_text("utf-8"))
        if isinstance(found, dict):
            return replace(ledger, meta={**ledger.meta, "manifest": found})
    return ledger


def summary_markdown(ledger: Ledger) -> str:
    sheets = asked_sheets(ledger)
    if (expected := against(ledger)).rows:
        sheets.append(expected)
    if ledger.constraints:
        sheets.append(kept(ledger))
    if unshown(ledger):
        sheets.append(promises(ledger))
    name = ledger.experiment.get("name", "")
    heads = [f"# {name}\n", *(f"{text}\n" for text in ledger.stand_ins), f"{how(ledger)}\n"]
    return "\n".join([*heads, *map(markdown, sheets)])


def _files(ledger: Ledger) -> Iterator[tuple[str, str | bytes]]:
    yield "metrics.csv", csv_text(tidy(ledger))
    yield "trials.csv", csv_text(trials(ledger))
    yield "summary.csv", csv_text(summary(ledger), nan="")
    yield "summary.md", summary_markdown(ledger)
    for table, sheet in zip(ledger.asked("tables"), asked_sheets(ledger), strict=False):
        if table.get("file"):
            notes = "\n\n".join([*ledger.stand_ins, how(ledger)])
            yield f"tables/{file_name(table['file'])}.md", f"{markdown(sheet)}\n{notes}\n"
    drawn = pictures(ledger)
    for picture in drawn:
        yield f"figures/{picture.name}.svg", picture.svg
        yield f"figures/{picture.name}.png", picture.png
    certified = trees(ledger)
    yield from ((f"figures/{picture.name}.svg", picture.svg) for picture, _ in certified)
    yield "report.html", page(ledger, drawn, certified)
