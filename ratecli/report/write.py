"""Write the report and the models of a run, based on its ledger alone."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ratecli import files as fs
from ratecli.apply.predict import encoder_json
from ratecli.datasets.registry import find_source
from ratecli.errors import FaultError
from ratecli.ledger.locks import REPORT_LOCK_FILE, lock_report
from ratecli.ledger.records import EXPECTED_KEY, VIOLATION_PREFIX, PlannedTrial, is_violated
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.render import terminal_safe
from ratecli.report.answer_text import answer_lines, answers_to_json, best_sheet, incomplete_notes
from ratecli.report.certificates import collect_certificates
from ratecli.report.check.expectations import expectation_sheet
from ratecli.report.groups import group_by, trial_datasets, trial_values
from ratecli.report.html import render_report
from ratecli.report.plots import draw_answer_curves, draw_plots
from ratecli.report.sheet import format_scalar, to_latex, to_markdown
from ratecli.report.sheets import constraint_sheet, group_rate_sheet, requested_sheets, tuning_sheet
from ratecli.report.tables import csv_text, metrics_table, summary_table, trials_table
from ratecli.report.templates import note

MANIFEST = "manifest.json"
MAX_FOLDER_NAME = 100
"""Longer trial names are cut to this many characters, followed by a part of the key."""
MAX_NAME_PART = 12
"""Number of characters of the key that distinguish trials with equal names."""
MODEL_SUFFIX = ".npz"
SUMMARY_FILE = "summary.md"
REPORT_FILES = (
    "metrics.csv",
    "trials.csv",
    "summary.csv",
    SUMMARY_FILE,
    "answers.json",
    fs.REPORT_FILE,
)
REPORT_FOLDERS = ("tables", "figures", fs.MODELS_FOLDER)


def check_report_folder(folder: Path) -> None:
    """Raise FaultError (E505) before trials run if anything would prevent writing the report."""
    fs.check_no_links(folder, fs.LEDGER_FILE, REPORT_LOCK_FILE, *REPORT_FOLDERS)
    files = (folder / name for name in REPORT_FILES)
    found = [fs.write_failed_error(path, "it is a folder") for path in files if path.is_dir()]
    for path in (folder, *(folder / name for name in REPORT_FOLDERS)):
        if path.exists() and not path.is_dir():
            found.append(fs.write_failed_error(path, "it is not a folder"))
        elif path.exists() and not os.access(path, os.W_OK):
            found.append(fs.write_failed_error(path, "no write permission"))
    if found:
        raise FaultError(found)


def write_report(folder: Path) -> tuple[Ledger, list[Path]]:
    """Write tables, plots, page, classifiers and certificates next to the ledger in `folder`.

    Return the ledger and the files, with one folder for all files of single trials. The same ledger
    gives the same bytes. All files are based on the same state of the ledger, even while a run is
    in progress.
    """
    fs.check_no_links(folder, fs.LEDGER_FILE, *REPORT_FOLDERS)
    if not (folder / fs.LEDGER_FILE).is_file():
        Ledger.read(folder / fs.LEDGER_FILE)  # raises E503 before a lock file is created
    with lock_report(folder), LedgerStore(folder / fs.LEDGER_FILE, readonly=True) as store:
        for name in REPORT_FOLDERS:
            fs.remove_stale(folder / name, fs.UNFINISHED_PREFIX)
        read = Ledger(*store.read())
        ledger = with_manifest(read, folder)
        written = []
        for name, content in _files(ledger):
            path = folder / name
            fs.atomic_write(path, content, parents=True)
            written.append(path)
        kept = write_models(folder / fs.MODELS_FOLDER, ledger, store)
    return read, [*written, folder / fs.MODELS_FOLDER] if kept else written


class _Manifest(BaseModel):
    """The record of a run, as far as reports and cards use it."""

    model_config = ConfigDict(strict=True, extra="allow")
    command: list[str] = []
    started: str = ""
    versions: dict[str, str | None] = {}


def with_manifest(ledger: Ledger, folder: Path) -> Ledger:
    """Add the record of the last run, if it can be read."""
    with suppress(OSError, ValueError):
        found = _Manifest.model_validate(json.loads((folder / MANIFEST).read_text("utf-8")))
        manifest = found.model_dump(exclude_unset=True)
        return replace(ledger, meta={**ledger.meta, "manifest": manifest})
    return ledger


def summary_markdown(ledger: Ledger) -> str:
    others = expectation_sheet(ledger), tuning_sheet(ledger), group_rate_sheet(ledger)
    sheets = requested_sheets(ledger) + [sheet for sheet in others if sheet.rows]
    if ledger.constraints:
        sheets += [constraint_sheet(ledger), constraint_sheet(ledger, by_point=True)]
    name = ledger.experiment.get("name", "")
    notes = [*incomplete_notes(ledger), *ledger.stand_ins, *ledger.row_notes]
    answer = [f"{text}\n" for text in [f"# {name}", *notes, *answer_lines(ledger)]]
    best = best_sheet(ledger)
    answer += [to_markdown(best)] if ledger.constraints and best.rows else []
    return "\n".join([*answer, f"{note('cells')}\n", *map(to_markdown, sheets)])


def _files(ledger: Ledger) -> Iterator[tuple[str, str | bytes]]:
    yield "metrics.csv", csv_text(metrics_table(ledger))
    yield "trials.csv", csv_text(trials_table(ledger))
    yield "summary.csv", csv_text(summary_table(ledger), nan="")
    answer = json.dumps(answers_to_json(ledger), indent=1, ensure_ascii=False)
    yield "answers.json", f"{answer}\n"
    yield SUMMARY_FILE, terminal_safe(summary_markdown(ledger))
    for table, sheet in zip(
        ledger.report_entries("tables"), requested_sheets(ledger), strict=False
    ):
        if table.get("file"):
            notes = "\n\n".join([*ledger.stand_ins, note("cells")])
            name = f"tables/{fs.unique_file_name(table['file'])}"
            yield f"{name}.md", terminal_safe(f"{to_markdown(sheet)}\n{notes}\n")
            yield f"{name}.tex", terminal_safe(to_latex(sheet, ledger.stand_ins))
    drawn = draw_plots(ledger)
    curves = draw_answer_curves(ledger, drawn)
    for picture in [*drawn, *curves]:
        yield from ((f"figures/{name}", image) for name, image in picture.files().items())
    yield fs.REPORT_FILE, render_report(ledger, drawn, curves)


def write_models(place: Path, ledger: Ledger, store: LedgerStore) -> int:
    """Write the models and certificates of planned trials and return the number of files.

    Each trial with results gets `place`/<trial>/<variant>.npz and encoder.json, and each tested
    trial certificates.json, whether it passed or not. Files of trials that are no longer planned
    are removed; other files are kept. Files with the right content are not rewritten.

    Raises
    ------
    FaultError
        E505 if the system denies access.
    """
    trials = trials_with_files(ledger)
    with fs.report_write_errors(place):
        folders = [path for path in (place.iterdir() if place.is_dir() else ()) if path.is_dir()]
    for folder in folders:
        if folder.name not in trials and not folder.is_symlink():
            _update_folder(folder, {})
    return sum(
        _update_folder(place / name, trial_files(ledger, trial, store))
        for name, trial in trials.items()
    )


def trials_with_files(ledger: Ledger) -> dict[str, PlannedTrial]:
    """Return the trials that have models or certificates by the name of their folder."""
    tested = {each.trial.key for each in collect_certificates(ledger)}
    return trial_folders(
        trial for trial in ledger.plan if ledger.is_measured(trial) or trial.key in tested
    )


def trial_folders(trials: Iterable[PlannedTrial]) -> dict[str, PlannedTrial]:
    """Return trials by folder name, such as `majorize-target=1.25-seed=0`.

    Names are unique even on case-insensitive file systems. They contain no commas, which would have
    to be quoted in YAML.
    """
    names = [(_name(trial), trial) for trial in trials]
    alike = group_by(names, lambda pair: pair[0].casefold())
    found = {}
    for name, trial in names:
        if len({each.key for _, each in alike[name.casefold()]}) > 1 or len(name) > MAX_FOLDER_NAME:
            unique = f"{name[:MAX_FOLDER_NAME]}-{trial.key[:MAX_NAME_PART]}"
            found[fs.unique_file_name(unique)] = trial
        else:
            found[name] = trial
    return found


def _name(trial: PlannedTrial) -> str:
    point = [f"{name}={format_scalar(value)}" for name, value in trial.point.items()]
    return fs.unique_file_name("-".join([trial.label, *point, f"seed={trial.seed}"]))


def _label(entry: Mapping[str, Any]) -> str:
    """Return the label of an entry of `datasets` with its positive value; "" if it is unknown."""
    if entry.get("source") is not None:
        with suppress(FaultError):  # the plugin may have been removed since
            return find_source(entry["source"]).label
    value = entry.get("positive")
    return " = ".join(str(part) for part in (entry.get("label"), value) if part is not None)


def trial_files(ledger: Ledger, trial: PlannedTrial, store: LedgerStore) -> dict[str, bytes]:
    """Return the contents of a trial's files by name."""
    measured = store.result(trial.key) if ledger.is_measured(trial) else None
    models = measured.models if measured else {}
    stems: dict[str, str] = {}
    for variant in models:
        stems[variant] = fs.unique_file_name(variant, stems.values())
    names = {variant: stem + MODEL_SUFFIX for variant, stem in stems.items()}
    files = {names[variant]: data for variant, data in models.items()}
    if measured and models:
        expected = ledger.meta.get(EXPECTED_KEY) or {"violations": {}}
        violations: dict[str, dict[str, float | None]] = {
            variant: dict(expected["violations"]) for variant in models
        }
        for variant, split, metric, value in trial_values(ledger, trial):
            name = metric.removeprefix(VIOLATION_PREFIX)
            if split == "test" and name != metric and is_violated(value):
                amount = None if math.isnan(value) else value
                violations.setdefault(variant, {})[name] = amount
        labels = dict.fromkeys(map(_label, trial_datasets(ledger, trial).values()))
        predicts, encoding = "; ".join(filter(None, labels)), measured.encoding
        files |= encoder_json(
            trial, encoding, names, models, violations=violations, predicts=predicts
        )
    return files | _certificate_file(ledger, trial, names)


def _certificate_file(
    ledger: Ledger, trial: PlannedTrial, names: Mapping[str, str]
) -> dict[str, bytes]:
    """Return the certificate file of a tested trial by its name, or nothing for an untested one.

    `names` are the model files of the trial's variants. The file is self-contained: records have
    the text of the constraint and its violation at this sweep point.
    """
    result = ledger.results.get(trial.key)
    records = result.info.get("certificates") if result else None
    if not result or not records:
        return {}
    content = {
        "key": trial.key,
        "algorithm": trial.label,
        "point": dict(trial.point),
        "status": result.status,
        "reason": result.reason,
        "certificates": [
            {
                "constraint": record["constraint"],
                "rule": ledger.constraints.get(record["constraint"], ""),
                "violation": trial.metrics.get(VIOLATION_PREFIX + record["constraint"], ""),
                "variant": record.get("variant", ""),
                "model": names.get(record.get("variant", "")),
                **record,
                "seed": trial.seed,
                "safety_rows": (result.info.get("rows") or {}).get("safety"),
            }
            for record in records
        ],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    return {fs.CERTIFICATES_FILE: f"{text}\n".encode()}


def _update_folder(folder: Path, files: Mapping[str, bytes]) -> int:
    """Write a trial's files and return their number.

    Other files of ratecli are removed, including remains of a killed run, and an empty folder.
    """
    with fs.report_write_errors(folder):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            partial = path.suffix == ".tmp" and path.name.startswith(".")
            named = path.name in {fs.CERTIFICATES_FILE, fs.ENCODER_FILE}
            own = named or path.suffix == MODEL_SUFFIX
            if (partial or own) and path.name not in files and not path.is_dir():
                path.unlink()
        if files:
            folder.mkdir(parents=True, exist_ok=True)
        elif folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    for name, data in files.items():
        path = folder / name
        with fs.report_write_errors(path):
            changed = not path.is_file() or path.read_bytes() != data
        if changed:
            fs.atomic_write(path, data, lasting=False)
    return len(files)
