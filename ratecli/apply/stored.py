"""Stored classifiers, with the encoding that turns table columns into their features."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratecli.datasets.encode import ReadyMadeError
from ratecli.datasets.paths import missing_file_error, unreadable_file_error
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.files import ENCODER_FILE, MODELS_FOLDER
from ratecli.ledger.records import PlannedTrial
from ratecli.models.base import Classifier
from ratecli.sampling.deployed import load_classifier, read_model_file
from ratecli.sampling.encoding import Encoding


def encoder_json(
    trial: PlannedTrial, encoding: str, names: Mapping[str, str], models: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the encoder file's content by file name.

    `names` are the file names of the variants and `models` their contents. The result is empty if
    the trial was run by an old version of ratecli, which did not store encodings.
    """
    if not encoding:
        return {}
    content = {
        "key": trial.key,
        "algorithm": trial.label,
        "point": dict(trial.point),
        "seed": trial.seed,
        "models": [
            {"variant": variant, "file": names[variant], "sha256": hashlib.sha256(data).hexdigest()}
            for variant, data in models.items()
        ],
        **json.loads(encoding),
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return {ENCODER_FILE: f"{text}\n".encode()}


READY_MADE_FEATURES = {"matrix": "came ready-made", "counts": "are counts of terms in texts"}


@dataclass(frozen=True)
class StoredModel:
    """A stored classifier together with the encoding of its features.

    Attributes
    ----------
    name
        Its file, or the trial and the variant, such as `majorize kappa=0.8 seed=0, stochastic`.
    classifier
        The classifier, which takes features (n, d).
    encoding
        How features are made from the columns of a table.
    """

    name: str
    classifier: Classifier
    encoding: Encoding


def load_applicable_model(path: Path, variant: str | None = None) -> StoredModel:
    """Load the model from the file `path`, or a variant from the trial's folder `path`.

    By default this is the main variant.

    Raises
    ------
    FaultError
        E405 for a missing file, E404 for a file that is invalid or does not belong to the other,
        E104 for a variant that cannot be selected, E411 if features are not encoded from columns or
        rows have several levels.
    """
    record = None
    with _read_errors(path):
        folder = path.is_dir()
    if folder:
        _check_trial(path)
        record = _read_record(path)
        path = path / _choose_variant(record, path, variant)
    elif variant is not None:
        message = f"'--variant' needs the folder of a trial, and '{path}' is none"
        raise FaultError(Diagnostic("E104", message, "leave out '--variant', or name the folder"))
    blob = _read(path)
    classifier = load_classifier(str(path), blob)
    record = record or _read_record(path.parent)
    hint = "copy both from the folder of one trial"
    sha256 = hashlib.sha256(blob).hexdigest()
    if all(entry["sha256"] != sha256 for entry in record["models"]):
        message = f"the '{ENCODER_FILE}' beside '{path}' describes other models"
        raise FaultError(Diagnostic("E404", message, hint))
    try:
        encoding = encoding_for_tables(record, str(path))
    except ValueError as error:
        raise _broken_file(path.parent / ENCODER_FILE, str(error)) from None
    width = len(encoding.encoder.names)
    if classifier.width != width:
        message = f"'{path}' takes {classifier.width} features, and '{ENCODER_FILE}' makes {width}"
        raise FaultError(Diagnostic("E404", message, hint))
    return StoredModel(str(path), classifier, encoding)


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Convert errors of reading a file, such as a name that is too long, to E405."""
    try:
        yield
    except FileNotFoundError as error:
        hint = f"a run leaves models in results/NAME/{MODELS_FOLDER}/TRIAL"
        raise missing_file_error(str(path), "does not exist", hint) from error
    except OSError as error:
        raise unreadable_file_error(str(path), path, error) from error


def _read(path: Path) -> bytes:
    with _read_errors(path):
        if path.exists() and not path.is_file():
            hint = "name a model, or the folder of a trial"
            raise missing_file_error(str(path), "is not a file", hint)
        return read_model_file(str(path), path)


def _read_record(folder: Path) -> Mapping[str, Any]:
    """Read the trial's encoder.json, checking only its list of models."""
    path = folder / ENCODER_FILE
    if not path.is_file():
        way = (
            "it describes the features: copy it along with a model; where an older "
            "ratecli ran the trials, run them again with --fresh"
        )
        raise missing_file_error(str(path), "does not exist", way)
    try:
        content = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise _broken_file(path, "it is no JSON") from error
    match content:
        case {"models": [_, *_] as models} if all(map(_is_model, models)):
            return dict(content)
        case _:
            raise _broken_file(path, "it does not say which models it is of")


def _is_model(entry: object) -> bool:
    match entry:
        case {"variant": str(), "file": str(file), "sha256": str()}:
            return Path(file).name == file and file.isprintable()  # must not leave the folder
        case _:
            return False


def _check_trial(folder: Path) -> None:
    """Raise E405 if the folder holds several trials rather than one."""
    trials = [*folder.glob(f"*/{ENCODER_FILE}"), *folder.glob(f"{MODELS_FOLDER}/*/{ENCODER_FILE}")]
    if trials and not (folder / ENCODER_FILE).exists():
        way = f"name the folder of one of its trials, such as {min(trials).parent}"
        raise missing_file_error(str(folder), "is not the folder of a trial", way)


def _broken_file(path: Path, reason: str) -> FaultError:
    message = f"'{path}' does not describe the features: {reason}"
    return FaultError(Diagnostic("E404", message, "`ratecli report FILE` writes it again"))


def _choose_variant(record: Mapping[str, Any], folder: Path, variant: str | None) -> str:
    """Return the file of a variant; None selects the main variant, which is listed first."""
    files = {entry["variant"]: entry["file"] for entry in reversed(record["models"])}
    chosen = record["models"][0]["variant"] if variant is None else variant
    if chosen not in files:
        hint = did_you_mean(chosen, files, "variants")
        raise FaultError(Diagnostic("E104", f"'{folder}' has no variant '{chosen}'", hint))
    return str(files[chosen])


def encoding_for_tables(record: object, name: str) -> Encoding:
    """Return the encoding in JSON data if the model called `name` can be applied to table rows.

    Raises
    ------
    FaultError
        E411 if features are not encoded from columns or rows have several levels.
    ValueError
        For data that is not an encoding.
    """
    try:
        encoding = Encoding.from_json(record)
    except ReadyMadeError as error:
        message = (
            f"the features of '{name}' {READY_MADE_FEATURES[str(error)]}: "
            "they are not made of columns"
        )
        hint = "only models whose features are columns of numbers or text can be applied"
        raise FaultError(Diagnostic("E411", message, hint)) from None
    if encoding.levels > 1:
        message = (
            f"'{name}' decides each row at {encoding.levels} levels, and a table has each row once"
        )
        hint = "only models of data sets without 'levels' can be applied"
        raise FaultError(Diagnostic("E411", message, hint))
    return encoding
