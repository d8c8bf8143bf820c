"""Write classifiers, encoders and certificates of planned trials to one folder per trial."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ratecli.apply.stored import encoder_json
from ratecli.files import ENCODER_FILE, atomic_write, report_write_errors, unique_file_name
from ratecli.ledger.records import VIOLATION_PREFIX, PlannedTrial
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.certificates import collect_certificates
from ratecli.report.sheet import format_scalar

CERTIFICATES = "certificates.json"


def certificate_file(
    ledger: Ledger, trial: PlannedTrial, models: Mapping[str, str]
) -> dict[str, bytes]:
    """Return the certificate file of a tested trial by its name, or nothing for an untested one.

    `models` are the file names of the trial's variants. The file is self-contained: it can be read
    without the ledger.
    """
    result = ledger.results.get(trial.key)
    records = result.info.get("certificates") if result else None
    if not result or not records:
        return {}
    rows = (result.info.get("rows") or {}).get("safety")
    about = {"seed": trial.seed, "safety_rows": rows}
    content = {
        "key": trial.key,
        "algorithm": trial.label,
        "point": dict(trial.point),
        "status": result.status,
        "reason": result.reason,
        "certificates": [_named(ledger, trial, each, models) | about for each in records],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    return {CERTIFICATES: f"{text}\n".encode()}


def _named(
    ledger: Ledger, trial: PlannedTrial, record: Mapping[str, Any], models: Mapping[str, str]
) -> dict[str, Any]:
    """Add the constraint's text and its violation at this sweep point to a test's record."""
    name, variant = record["constraint"], record.get("variant", "")
    return {
        "constraint": name,
        "rule": ledger.constraints.get(name, ""),
        "violation": trial.metrics.get(VIOLATION_PREFIX + name, ""),
        "variant": variant,
        "model": models.get(variant),
        **record,
    }


MAX_FOLDER_NAME = 100
"""Longer trial names are cut to this many characters, followed by a part of the key."""
MAX_NAME_PART = 12
"""Number of characters of the key that distinguish trials with equal names."""
MODEL_SUFFIX = ".npz"


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
    tested = {each.trial.key for each in collect_certificates(ledger)}
    trials = trial_folders(
        trial
        for trial in ledger.plan
        if ledger.status(trial) in MEASURED_STATUSES or trial.key in tested
    )
    _remove_others(place, trials)
    return sum(_write(place / name, _files(ledger, trial, store)) for name, trial in trials.items())


def trial_folders(trials: Iterable[PlannedTrial]) -> dict[str, PlannedTrial]:
    """Return trials by folder name, such as `majorize-target=1.25-seed=0`.

    Names are unique even on case-insensitive file systems. They contain no commas, which would have
    to be quoted in YAML.
    """
    names = [(_name(trial), trial) for trial in trials]
    found: dict[str, set[str]] = {}
    for name, trial in names:
        found.setdefault(name.casefold(), set()).add(trial.key)
    shared = {name for name, several in found.items() if len(several) > 1}
    return {_unique_name(name, trial.key, shared): trial for name, trial in names}


def _name(trial: PlannedTrial) -> str:
    point = [f"{name}={format_scalar(value)}" for name, value in trial.point.items()]
    return unique_file_name("-".join([trial.label, *point, f"seed={trial.seed}"]))


def _unique_name(name: str, key: str, shared: Collection[str]) -> str:
    if name.casefold() not in shared and len(name) <= MAX_FOLDER_NAME:
        return name
    return unique_file_name(f"{name[:MAX_FOLDER_NAME]}-{key[:MAX_NAME_PART]}")


def _files(ledger: Ledger, trial: PlannedTrial, store: LedgerStore) -> dict[str, bytes]:
    """Return the contents of a trial's files by name."""
    models = store.models(trial.key) if ledger.status(trial) in MEASURED_STATUSES else {}
    names: dict[str, str] = {}
    for variant in models:
        stems = {name.removesuffix(MODEL_SUFFIX) for name in names.values()}
        names[variant] = unique_file_name(variant, stems) + MODEL_SUFFIX
    kept = {names[variant]: data for variant, data in models.items()}
    encoder = encoder_json(trial, store.encoding(trial.key), names, models) if models else {}
    return kept | encoder | certificate_file(ledger, trial, names)


def _write(folder: Path, files: Mapping[str, bytes]) -> int:
    _remove(folder, files)
    with report_write_errors(folder):
        if files:
            folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        if not _has_content(folder / name, data):
            atomic_write(folder / name, data, lasting=False)
    return len(files)


def _has_content(path: Path, data: bytes) -> bool:
    with report_write_errors(path):
        return path.is_file() and path.read_bytes() == data


def _remove_others(place: Path, names: Collection[str]) -> None:
    with report_write_errors(place):
        for folder in list(place.iterdir()) if place.is_dir() else ():
            if folder.name not in names and folder.is_dir() and not folder.is_symlink():
                _remove(folder)


def _remove(folder: Path, but: Collection[str] = ()) -> None:
    """Remove ratecli's files, including remains of a killed run, then the folder if it is empty."""
    with report_write_errors(folder):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            half = path.suffix == ".tmp" and path.name.startswith(".")
            ours = half or path.suffix == MODEL_SUFFIX or path.name in {CERTIFICATES, ENCODER_FILE}
            if ours and path.name not in but and not path.is_dir():
                path.unlink()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
