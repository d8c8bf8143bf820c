"""The classifiers of every planned trial with what they need, in folders that say which trial it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ratecli.apply.encoder_files import encoder_file
from ratecli.files import ENCODER, atomic_write, writing
from ratecli.ledger.records import Planned
from ratecli.ledger.store import Store
from ratecli.ledger.view import MEASURED, Ledger
from ratecli.report.certificate_files import CERTIFICATES, certificate_file
from ratecli.report.certificates import certificates
from ratecli.report.file_names import file_name
from ratecli.report.sheet import scalar

LONGEST = 100
"""Characters of a trial's name after which a piece of its key stands for the rest."""
PIECE = 12
"""Characters of a key that tell trials of one name apart."""
ENDING = ".npz"


def write_models(place: Path, ledger: Ledger, store: Store) -> int:
    """Write `place`/<trial>/<variant>.npz and encoder.json for each trial with numbers, and
    certificates.json for each that was tested, whether it passed or not; gives how many files there are.

    Those of trials that are not planned any more are removed, and nothing else that lies there. A file
    that holds what it should is left alone.

    Raises
    ------
    FaultError
        E505 where the system refuses.
    """
    tested = {each.trial.key for each in certificates(ledger)}
    trials = folders(
        trial for trial in ledger.plan if ledger.status(trial) in MEASURED or trial.key in tested
    )
    _remove_others(place, trials)
    return sum(_write(place / name, _files(ledger, trial, store)) for name, trial in trials.items())


def folders(trials: Iterable[Planned]) -> dict[str, Planned]:
    """The name of each trial's folder, such as `majorize-target=1.25-seed=0`, and the trial.

    No two keys share a name, not even where file systems take `A` for `a`. There is no comma in a
    name, which would have to be quoted in YAML.
    """
    names = [(_name(trial), trial) for trial in trials]
    found: dict[str, set[str]] = {}
    for name, trial in names:
        found.setdefault(name.casefold(), set()).add(trial.key)
    shared = {name for name, several in found.items() if len(several) > 1}
    return {_told_apart(name, trial.key, shared): trial for name, trial in names}


def _name(trial: Planned) -> str:
    point = [f"{name}={scalar(value)}" for name, value in trial.point.items()]
    return file_name("-".join([trial.label, *point, f"seed={trial.seed}"]))


def _told_apart(name: str, key: str, shared: Collection[str]) -> str:
    if name.casefold() not in shared and len(name) <= LONGEST:
        return name
    return file_name(f"{name[:LONGEST]}-{key[:PIECE]}")


def _files(ledger: Ledger, trial: Planned, store: Store) -> dict[str, bytes]:
    """What is kept of a trial, by the names of the files."""
    models = store.models(trial.key) if ledger.status(trial) in MEASURED else {}
    names: dict[str, str] = {}
    for variant in models:
        stems = {name.removesuffix(ENDING) for name in names.values()}
        names[variant] = file_name(variant, stems) + ENDING
    kept = {names[variant]: data for variant, data in models.items()}
    encoder = encoder_file(trial, store.encoding(trial.key), names, models) if models else {}
    return kept | encoder | certificate_file(ledger, trial, names)


def _write(folder: Path, files: Mapping[str, bytes]) -> int:
    _remove(folder, files)
    with writing(folder):
        if files:
            folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        if not _holds(folder / name, data):
            atomic_write(folder / name, data, lasting=False)
    return len(files)


def _holds(path: Path, data: bytes) -> bool:
    with writing(path):
        return path.is_file() and path.read_bytes() == data


def _remove_others(place: Path, names: Collection[str]) -> None:
    with writing(place):
        for folder in list(place.iterdir()) if place.is_dir() else ():
            if folder.name not in names and folder.is_dir() and not folder.is_symlink():
                _remove(folder)


def _remove(folder: Path, but: Collection[str] = ()) -> None:
    """Remove our files, and what a killed run left of one; then the folder if it is empty."""
    with writing(folder):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            half = path.suffix == ".tmp" and path.name.startswith(".")
            ours = half or path.suffix == ENDING or path.name in {CERTIFICATES, ENCODER}
            if ours and path.name not in but and not path.is_dir():
                path.unlink()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
