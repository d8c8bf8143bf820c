"""Write the report of a run, based on its ledger alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ratecli.errors import Diagnostic, FaultError
from ratecli.files import (
    LEDGER_FILE,
    MODELS_FOLDER,
    UNFINISHED_PREFIX,
    atomic_write,
    check_no_links,
    remove_stale,
    report_write_errors,
    unique_file_name,
    write_failed_error,
)
from ratecli.ledger.lock import REPORT_LOCK_FILE, lock_report
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.report.expectations import expectation_sheet
from ratecli.report.html import render_report
from ratecli.report.models import write_models
from ratecli.report.plots import draw_plots
from ratecli.report.plots.tree import draw_trees
from ratecli.report.sheet import to_markdown
from ratecli.report.sheets import (
    cell_legend,
    constraint_sheet,
    requested_sheets,
    satisfaction_sheet,
    unlisted_constraints,
)
from ratecli.report.tables import csv_text, metrics_table, summary_table, trials_table

MANIFEST = "manifest.json"
REPORT_FILES = ("metrics.csv", "trials.csv", "summary.csv", "summary.md", "report.html")
REPORT_FOLDERS = ("tables", "figures", MODELS_FOLDER)


def check_report_folder(folder: Path) -> None:
    """Raise FaultError (E505) before trials run if anything would prevent writing the report."""
    check_no_links(folder, LEDGER_FILE, REPORT_LOCK_FILE, *REPORT_FOLDERS)
    found = list(_obstacles(folder))
    if found:
        raise FaultError(found)


def _obstacles(folder: Path) -> Iterator[Diagnostic]:
    for path in (folder / name for name in REPORT_FILES):
        if path.is_dir():
            yield write_failed_error(path, "it is a folder")
    for path in (folder, *(folder / name for name in REPORT_FOLDERS)):
        if path.exists() and not path.is_dir():
            yield write_failed_error(path, "it is no folder")
        elif path.exists() and not os.access(path, os.W_OK):
            yield write_failed_error(path, "nothing may be written there")


def write_report(folder: Path) -> list[Path]:
    """Write tables, plots, page, classifiers and certificates next to the ledger in `folder`.

    Return the files, with one folder for all files of single trials. The same ledger gives the same
    bytes. All files are based on the same state of the ledger, even while a run is in progress.
    """
    return write_and_load_report(folder)[1]


def write_and_load_report(folder: Path) -> tuple[Ledger, list[Path]]:
    """Like `write_report`, but also return the ledger that was reported."""
    check_no_links(folder, LEDGER_FILE, *REPORT_FOLDERS)
    if not (folder / LEDGER_FILE).is_file():
        Ledger.read(folder / LEDGER_FILE)  # raises E503 before a lock file is created
    with lock_report(folder), LedgerStore(folder / LEDGER_FILE, readonly=True) as store:
        for name in REPORT_FOLDERS:
            remove_stale(folder / name, UNFINISHED_PREFIX)
        read = Ledger(*store.read())
        ledger = with_manifest(read, folder)
        written = []
        for name, content in _files(ledger):
            path = folder / name
            with report_write_errors(path.parent):
                path.parent.mkdir(exist_ok=True)
            atomic_write(path, content)
            written.append(path)
        kept = write_models(folder / MODELS_FOLDER, ledger, store)
    return read, [*written, folder / MODELS_FOLDER] if kept else written


def with_manifest(ledger: Ledger, folder: Path) -> Ledger:
    """Add the record of the last run, if it can be read."""
    with suppress(OSError, ValueError):
        found = json.loads((folder / MANIFEST).read_text("utf-8"))
        if isinstance(found, dict):
            return replace(ledger, meta={**ledger.meta, "manifest": found})
    return ledger


def summary_markdown(ledger: Ledger) -> str:
    sheets = requested_sheets(ledger)
    if (expected := expectation_sheet(ledger)).rows:
        sheets.append(expected)
    if ledger.constraints:
        sheets.append(satisfaction_sheet(ledger))
    if unlisted_constraints(ledger):
        sheets.append(constraint_sheet(ledger))
    name = ledger.experiment.get("name", "")
    heads = [f"# {name}\n", *(f"{text}\n" for text in ledger.stand_ins), f"{cell_legend(ledger)}\n"]
    return "\n".join([*heads, *map(to_markdown, sheets)])


def _files(ledger: Ledger) -> Iterator[tuple[str, str | bytes]]:
    yield "metrics.csv", csv_text(metrics_table(ledger))
    yield "trials.csv", csv_text(trials_table(ledger))
    yield "summary.csv", csv_text(summary_table(ledger), nan="")
    yield "summary.md", summary_markdown(ledger)
    for table, sheet in zip(ledger.asked("tables"), requested_sheets(ledger), strict=False):
        if table.get("file"):
            notes = "\n\n".join([*ledger.stand_ins, cell_legend(ledger)])
            yield f"tables/{unique_file_name(table['file'])}.md", f"{to_markdown(sheet)}\n{notes}\n"
    drawn = draw_plots(ledger)
    for picture in drawn:
        yield f"figures/{picture.name}.svg", picture.svg
        yield f"figures/{picture.name}.png", picture.png
    certified = draw_trees(ledger)
    yield from ((f"figures/{picture.name}.svg", picture.svg) for picture, _ in certified)
    yield "report.html", render_report(ledger, drawn, certified)
