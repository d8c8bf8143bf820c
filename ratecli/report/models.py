"""Write classifiers, encoders and certificates of planned trials to one folder per trial."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ratecli.apply.stored import encoder_json
from ratecli.files import ENCODER_FILE, atomic_write, report_write_errors, unique_file_name
from ratecli.ledger.records import VIOLATION_PREFIX, PlannedTrial
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.certificates import collect_certificates
from ratecli.report.sheet import format_scalar

CERTIFICATES = "certificates.json"


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
    with report_write_errors(place):
        folders = [path for path in (place.iterdir() if place.is_dir() else ()) if path.is_dir()]
    for folder in folders:
        if folder.name not in trials and not folder.is_symlink():
            _update_folder(folder, {})
    return sum(
        _update_folder(place / name, _files(ledger, trial, store)) for name, trial in trials.items()
    )


def trial_folders(trials: Iterable[PlannedTrial]) -> dict[str, PlannedTrial]:
    """Return trials by folder name, such as `majorize-target=1.25-seed=0`.

    Names are unique even on case-insensitive file systems. They contain no commas, which would have
    to be quoted in YAML.
    """
    names = [(_name(trial), trial) for trial in trials]
    keys: dict[str, set[str]] = {}
    for name, trial in names:
        keys.setdefault(name.casefold(), set()).add(trial.key)
    found = {}
    for name, trial in names:
        if len(keys[name.casefold()]) > 1 or len(name) > MAX_FOLDER_NAME:
            unique = f"{name[:MAX_FOLDER_NAME]}-{trial.key[:MAX_NAME_PART]}"
            found[unique_file_name(unique)] = trial
        else:
            found[name] = trial
    return found


def _name(trial: PlannedTrial) -> str:
    point = [f"{name}={format_scalar(value)}" for name, value in trial.point.items()]
    return unique_file_name("-".join([trial.label, *point, f"seed={trial.seed}"]))


def _files(ledger: Ledger, trial: PlannedTrial, store: LedgerStore) -> dict[str, bytes]:
    """Return the contents of a trial's files by name."""
    models = store.models(trial.key) if ledger.status(trial) in MEASURED_STATUSES else {}
    names: dict[str, str] = {}
    for variant in models:
        stems = {name.removesuffix(MODEL_SUFFIX) for name in names.values()}
        names[variant] = unique_file_name(variant, stems) + MODEL_SUFFIX
    files = {names[variant]: data for variant, data in models.items()}
    if models:
        files |= encoder_json(trial, store.encoding(trial.key), names, models)
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
    return {CERTIFICATES: f"{text}\n".encode()}


def _update_folder(folder: Path, files: Mapping[str, bytes]) -> int:
    """Write a trial's files and return their number.

    Other files of ratecli are removed, including remains of a killed run, and an empty folder.
    """
    with report_write_errors(folder):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            partial = path.suffix == ".tmp" and path.name.startswith(".")
            own = path.suffix == MODEL_SUFFIX or path.name in {CERTIFICATES, ENCODER_FILE}
            if (partial or own) and path.name not in files and not path.is_dir():
                path.unlink()
        if files:
            folder.mkdir(parents=True, exist_ok=True)
        elif folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    for name, data in files.items():
        path = folder / name
        with report_write_errors(path):
            changed = not path.is_file() or path.read_bytes() != data
        if changed:
            atomic_write(path, data, lasting=False)
    return len(files)
