"""Load a stored classifier with the encoding of its features, and apply it to a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_types import MinLen
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict

from ratecli.datasets import tables as own
from ratecli.datasets.encode import ReadyMadeError
from ratecli.datasets.files import check_is_file, read_errors
from ratecli.datasets.tables import TableFile, read_table_file, table_bytes
from ratecli.datasets.text_format import how_to_set
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.files import ENCODER_FILE, LEDGER_FILE, atomic_write
from ratecli.ledger.records import PlannedTrial, random_stream
from ratecli.models.base import Classifier, Features
from ratecli.models.policy import SoftmaxPolicy
from ratecli.models.proxies import ProxyFilter, SampledFilter
from ratecli.sampling.deployed import load_classifier, read_model_file
from ratecli.sampling.encoding import Encoding

NAME_A_TRIAL = (
    "name a trial's folder, results/NAME/models/TRIAL. A trial that ended without a model, or "
    "whose models failed their safety test, has none: trials.csv says why"
)
"""What to do about a missing model."""


def encoder_json(
    trial: PlannedTrial,
    encoding: str,
    names: Mapping[str, str],
    models: Mapping[str, bytes],
    *,
    violations: Mapping[str, Mapping[str, float | None]] = {},
    predicts: str = "",
) -> dict[str, bytes]:
    """Return the encoder file's content by file name.

    `names` are the file names of the variants, `models` their contents, and `violations` by how
    much each violates constraints on the test set, None where one is undefined. `predicts` is the
    label and its positive value. The result is empty without an encoding.
    """
    if not encoding:
        return {}
    content = {
        "key": trial.key,
        "algorithm": trial.label,
        "point": dict(trial.point),
        "seed": trial.seed,
        "predicts": predicts,
        "models": [
            {
                "variant": variant,
                "file": names[variant],
                "sha256": hashlib.sha256(data).hexdigest(),
                "violations": violations.get(variant, {}),
            }
            for variant, data in models.items()
        ],
        **json.loads(encoding),
    }
    content["sha256"] = _content_sha256(content)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return {ENCODER_FILE: f"{text}\n".encode()}


def _content_sha256(content: Mapping[str, Any]) -> str:
    """Return the checksum of an encoder file's content except for the checksum itself."""
    others = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


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
    variant
        The variant of its trial, "" if unknown.
    sha256
        The checksum of its file.
    violations
        By how much it violates constraints on the test set of its trial.
    predicts
        The label and its positive value, such as `repaid = yes`; "" if they are unknown.
    """

    name: str
    classifier: Classifier = field(repr=False)
    encoding: Encoding = field(repr=False)
    variant: str = ""
    sha256: str = ""
    violations: Mapping[str, float | None] = field(default_factory=dict)
    predicts: str = ""

    @property
    def folder(self) -> str:
        """Return the name of the folder of its file."""
        return Path(self.name).absolute().parent.name

    @property
    def title(self) -> str:
        return f"{self.folder}, variant {self.variant}"

    @property
    def which(self) -> str:
        """Return the variant in words."""
        missed = " and ".join(
            f"'{name}' (undefined)" if by is None else f"'{name}' by {by:.3g}"
            for name, by in self.violations.items()
        )
        missed = f", which violates {missed} on the test set" if missed else ""
        return f"variant {self.variant}{missed}"


def load_applicable_model(path: Path, variant: str | None = None) -> StoredModel:
    """Load the model from the file `path`, or a variant from the trial's folder `path`.

    Without a `variant` it is the main one.

    Raises
    ------
    FaultError
        E405 for a missing file, E404 for an invalid one, or a model and an encoder of two trials,
        E104 for a variant that cannot be selected, E411 if features are not encoded from columns or
        rows have several levels.
    """
    with read_errors(str(path)):
        is_folder = path.is_dir()
        if not path.exists() and (path.absolute().parent.parent / LEDGER_FILE).is_file():
            check_is_file(str(path), path, NAME_A_TRIAL)
    if variant is not None and not is_folder:
        message = f"'--variant' needs the folder of a trial, and '{path}' is not one"
        raise FaultError(Diagnostic("E104", message, "leave out '--variant', or give the folder"))
    folder = path if is_folder else path.parent
    if is_folder:
        path = folder / _choose_variant(_read_record(folder), folder, variant)
    blob = read_model_file(str(path), path)
    classifier = load_classifier(str(path), blob)
    if isinstance(classifier, SoftmaxPolicy):
        message = f"'{path}' is a policy for episodes and cannot be applied to the rows of a table"
        way = "in Python: ratecli.load_results(FOLDER).model(ALGORITHM).chances(states)"
        raise FaultError(Diagnostic("E411", message, way))
    record, sha256 = _read_record(folder), hashlib.sha256(blob).hexdigest()
    same = [entry for entry in record.models if entry.sha256 == sha256]
    if not same:
        message = f"the '{ENCODER_FILE}' beside '{path}' describes other models"
        hint = "copy both from the folder of one trial"
        raise FaultError(Diagnostic("E404", message, hint))
    try:
        encoding = encoding_for_tables(record.model_extra, str(path))
        if classifier.width != (width := len(encoding.encoder.names)):
            raise ValueError(f"it makes {width} of {classifier.width} features")  # noqa: TRY301
    except ValueError as error:
        raise _broken_file(folder / ENCODER_FILE, str(error)) from None
    named = next((entry for entry in same if entry.file == path.name), same[0])
    return StoredModel(
        str(path), classifier, encoding, named.variant, sha256, named.violations, record.predicts
    )


def _in_folder(file: str) -> str:
    if Path(file).name != file or not file.isprintable():
        raise ValueError("it leaves the folder")
    return file


class _ModelEntry(BaseModel):
    """A model of a trial."""

    model_config = ConfigDict(strict=True)
    variant: str
    file: Annotated[str, AfterValidator(_in_folder)]
    sha256: str
    violations: dict[str, float | None] = {}


class _TrialRecord(BaseModel):
    """The content of encoder.json; further keys describe the features."""

    model_config = ConfigDict(strict=True, extra="allow")
    models: Annotated[list[_ModelEntry], MinLen(1)]
    predicts: str = ""
    sha256: str = ""


def _read_record(folder: Path) -> _TrialRecord:
    """Read the trial's encoder.json, without checking its description of the features."""
    path = folder / ENCODER_FILE
    check_is_file(str(path), path, f"it describes the features: {NAME_A_TRIAL}")
    try:
        content = json.loads(read_model_file(str(path), path))
        record = _TrialRecord.model_validate(content)
    except (ValueError, RecursionError):
        raise _broken_file(path, "its list of models is not valid") from None
    if record.sha256 != _content_sha256(content):
        raise _broken_file(path, "it was changed: its checksum differs")
    return record


def _broken_file(path: Path, reason: str) -> FaultError:
    message = f"'{path}' does not describe the features: {reason}"
    return FaultError(Diagnostic("E404", message, "`ratecli report FILE` writes it again"))


def _choose_variant(record: _TrialRecord, folder: Path, variant: str | None) -> str:
    """Return the file of a variant; None selects the main one."""
    files = {entry.variant: entry.file for entry in reversed(record.models)}
    chosen = record.models[0].variant if variant is None else variant
    if chosen not in files:
        hint = did_you_mean(chosen, files, "variants")
        raise FaultError(Diagnostic("E104", f"'{folder}' has no variant '{chosen}'", hint))
    return files[chosen]


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
    except ReadyMadeError:
        message = f"the features of '{name}' are ready-made, not computed from columns"
        hint = "only models whose features are columns of numbers or text can be applied"
        raise FaultError(Diagnostic("E411", message, hint)) from None
    if encoding.levels > 1:
        message = (
            f"'{name}' makes a decision for each row and level ({encoding.levels} levels), and a "
            "table has no levels"
        )
        hint = "only models of data sets without 'levels' can be applied"
        raise FaultError(Diagnostic("E411", message, hint))
    return encoding


@dataclass(frozen=True)
class PredictedColumns:
    """Predicted columns (n,) by name, and a short summary."""

    columns: Mapping[str, NDArray[np.generic]]
    summary: str


def prediction_columns(classifier: Classifier, X: Features, seed: int) -> PredictedColumns:
    """Return the predictions of a classifier as columns.

    A classifier yields `score`, the `chance` of a positive decision and the `decision` (1 or 0); a
    regressor yields an `estimate`. A filter yields the `chance` that a row is kept, the `value` of
    its proxy (sampled, counted from 0), and whether the row is `kept`, according to that value's
    chance. A filter that keeps rows by a hash has no `value`.

    Randomized decisions are sampled: with the same seed, the row at the same position gets the same
    random number, whatever the chances are and however many rows follow.

    Raises
    ------
    FaultError
        E404 if scores are not finite.
    """
    scores = classifier.score(X)
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0]) + 1
        message = f"the model gives row {row} a score that is not finite"
        raise FaultError(Diagnostic("E404", message, "check the numbers of that row"))
    if isinstance(classifier, ProxyFilter):
        return _filter_columns(classifier, X, seed)
    chances = classifier.decide(X)
    if np.isnan(chances).any():
        estimates = classifier.estimate(X)
        summary = f"estimates from {estimates.min():g} to {estimates.max():g}"
        return PredictedColumns({"estimate": estimates}, summary)
    yes = random_stream(seed, "predict").random(len(chances)) < chances
    drawn = int(((chances > 0) & (chances < 1)).sum())
    summary = f"{yes.sum()} positive, {(~yes).sum()} negative"
    if drawn:
        summary += f"; {drawn} of them random, sampled with --seed {seed}"
    return PredictedColumns(
        {"score": scores, "chance": chances, "decision": yes.astype(np.int8)}, summary
    )


def _filter_columns(found: ProxyFilter, X: Features, seed: int) -> PredictedColumns:
    columns: dict[str, NDArray[np.generic]] = {"chance": found.keep_probability(X)}
    how = "by a hash of each"
    if isinstance(found, SampledFilter):
        kept = found.decide(X) > 0.5
    else:
        columns["value"], kept = found.sample_rows(X, random_stream(seed, "predict"))
        how = f"sampled with --seed {seed}"
    columns["kept"] = kept.astype(np.int8)
    return PredictedColumns(columns, f"{kept.sum()} of them kept, {how}")


@dataclass(frozen=True)
class PredictResult:
    """A summary line, warnings, and the bytes of the table if it was not written to a file."""

    line: str
    warnings: tuple[Diagnostic, ...]
    content: bytes | None


def predict_file(
    model: Path,
    path: Path,
    output: Path | None = None,
    *,
    variant: str | None = None,
    form: Mapping[str, str | None] = {},
    prefix: str = "",
    seed: int = 0,
) -> PredictResult:
    """Predict for every row of a table, and add the predictions to it as columns.

    Parameters
    ----------
    model, variant
        A stored classifier's file, or a trial's folder and a variant (None: the main one).
    path, form
        A CSV or Parquet file, and the keys of its `TextFormat` that differ from those of the tables
        that the model was trained on.
    output
        File for the table with predictions; None writes none.
    prefix
        Prefix of the names of added columns.
    seed
        Seed for the decisions of a randomized classifier.

    Raises
    ------
    FaultError
        As `load_applicable_model`; E404, E405 for a table that cannot be read, E205, E407, E411 if
        it does not fit the model or already has a column to be added, E104 for an invalid output,
        E505 if the output cannot be written.
    """
    stored = load_applicable_model(model, variant)
    encoding = replace(stored.encoding, form=stored.encoding.form.updated(form))
    stored = replace(stored, encoding=encoding)
    file, table = read_table_file(path, encoding.form)
    found, warnings = predict_table(stored, file, table, seed)
    content = table_bytes(_append_columns(table, found.columns, prefix), file, output)
    if output is not None:
        atomic_write(output, content)
    rows = table.num_rows
    predicts = f"predicts {stored.predicts}; " if stored.predicts else ""
    summary = f"{rows} row{'s' * (rows != 1)}, {found.summary}"
    line = f"{output or path}: {summary}; {predicts}{stored.which}"
    return PredictResult(line, warnings, content if output is None else None)


def predict_table(
    model: StoredModel, file: TableFile, table: pa.Table, seed: int
) -> tuple[PredictedColumns, tuple[Diagnostic, ...]]:
    """Return a model's predictions for the raw table of a file, and warnings.

    Raises
    ------
    FaultError
        E205, E404, E407, E411 if the table does not fit the model.
    """
    kinds = model.encoding.columns_for(model.classifier)
    there = [name for name in table.column_names if name in kinds]
    if kinds and not there and (mark := own.guess_separator(table.column_names)):
        message = f"'{file.path}' has no column that the model needs"
        raise FaultError(Diagnostic("E205", message, how_to_set({"separator": mark})))
    as_text = [name for name in there if kinds[name] == "text"]
    frame = own.typed_columns(file, table.select(there), there, as_text)
    # `prediction_columns` reports scores that are not finite
    with np.errstate(over="ignore", invalid="ignore"):
        X, warnings = model.encoding.inputs_for(model.classifier, frame, table.column_names)
        return prediction_columns(model.classifier, X, seed), tuple(warnings)


def _append_columns(table: pa.Table, columns: Mapping[str, Any], prefix: str) -> pa.Table:
    """Append columns to a table. Raise E411 if it already has one of their names."""
    taken = [prefix + name for name in columns if prefix + name in table.column_names]
    if taken:
        message = f"the table already has a column '{taken[0]}', which would be added"
        hint = "rename it, or add a prefix to the new names with --prefix"
        raise FaultError(Diagnostic("E411", message, hint))
    for name, values in columns.items():
        table = table.append_column(prefix + name, pa.array(values))
    return table
