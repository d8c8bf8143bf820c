"""The deployed model's decisions: those of a stored classifier, or of another trial's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.datasets.paths import find_user_file, unreadable_file_error
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import MODELS_FOLDER
from ratecli.models.base import Classifier
from ratecli.models.grouped import GroupThreshold
from ratecli.models.linear import Threshold
from ratecli.models.storage import loads
from ratecli.rates.matrix import Predictions
from ratecli.rates.parser import parse_conditions
from ratecli.rates.sample import Sample
from ratecli.rates.syntax import Condition
from ratecli.sampling.rows import TrialData

MAX_MODEL_BYTES = 2**30
"""Bytes that a file may have of which we read all."""


def load_deployed_model(experiment: Experiment, document: Document, folder: Path) -> bytes | None:
    """The bytes of the file that `deployed` names, if it names one; `folder` is the experiment's.

    Raises
    ------
    FaultError
        E405 where there is no such file, E404 where it holds no classifier; with their places.
    """
    given = experiment.deployed.model if experiment.deployed else None
    if given is None:
        return None
    try:
        return _read_model(given, folder)
    except FaultError as error:
        place = document.place(("deployed", "model"))
        raise FaultError(fault.at(place) for fault in error.faults) from None


def _read_model(given: str, folder: Path) -> bytes:
    path = find_user_file(given, folder)
    try:
        blob = read_model_file(given, path)
    except OSError as error:
        raise unreadable_file_error(given, path, error) from error
    load_classifier(given, blob)
    return blob


def read_model_file(given: str, path: Path) -> bytes:
    """The bytes of a file that may be a classifier's; E404 for more than any has."""
    if path.stat().st_size > MAX_MODEL_BYTES:
        message = (
            f"'{given}' holds no stored classifier: it is larger than {MAX_MODEL_BYTES:,} bytes"
        )
        raise FaultError(Diagnostic("E404", message, "it must be an .npz that a run left"))
    return path.read_bytes()


def load_classifier(given: str, blob: bytes) -> Classifier:
    """The classifier that the file `given` holds; E404 where it holds none."""
    try:
        classifier = loads(blob)
        for text in classifier.slices:
            parse_conditions(text)
    except (ValueError, FaultError) as error:
        reason = str(error).removeprefix("no stored classifier: ")
        hint = "it must be an .npz that a run left, results/NAME/models/TRIAL/VARIANT.npz"
        message = f"'{given}' holds no stored classifier: {reason}"
        raise FaultError(Diagnostic("E404", message, hint)) from None
    return classifier


def check_model_preserved(
    experiment: Experiment, document: Document, folder: Path, results: Mapping[Path, Path]
) -> None:
    """Refuse a stored model that a run of the same command would write anew, or remove.

    The numbers of such a run would depend on what was run before. `results` are the folders of the
    results of all runs, each with the file that it runs; `folder` is the experiment's.

    Raises
    ------
    FaultError
        E310 at the model's path.
    """
    given = experiment.deployed.model if experiment.deployed else None
    if given is None:
        return
    path = find_user_file(given, folder)
    # by the name that is given and by where it leads: links are replaced, too
    within = {*path.parents, *path.resolve().parents}
    for place, file in results.items():
        models = place / MODELS_FOLDER
        if models.is_dir() and any(parent.samefile(models) for parent in within):
            where = document.place(("deployed", "model"))
            raise FaultError(
                _overwritten_model(models, None if file == document.path else file).at(where)
            )


def _overwritten_model(models: Path, other: Path | None) -> Diagnostic:
    """The fault of a model among those that this run writes, or that of another file."""
    copy = "copy the model out of there and name the copy"
    if other is None:
        return Diagnostic("E310", f"this run itself writes the models in '{models}'", copy)
    message = f"the run of '{other}' writes the models in '{models}'"
    return Diagnostic("E310", message, f"run '{other}' first, by itself, or {copy}")


def with_stored_decisions(rows: TrialData, blob: bytes) -> TrialData:
    """The same rows with the decisions of a stored classifier.

    Raises
    ------
    FaultError
        E411 where the rows have another number of features than it takes, or not the columns that it
        looks at; E404 where its scores are not finite.
    """
    classifier = loads(blob)
    width = rows.X.shape[1]
    if classifier.width != width:
        message = f"the deployed model takes {classifier.width} features, the rows have {width}"
        hint = "it must have been trained on these columns, encoded as they are here"
        raise FaultError(Diagnostic("E411", message, hint))
    if not np.isfinite(rows.predictions(classifier).scores).all():
        raise FaultError(Diagnostic("E404", "the deployed model gives scores that are not finite"))
    return with_classifier_decisions(rows, classifier)


def with_classifier_decisions(
    rows: TrialData, classifier: Classifier, seen: TrialData | None = None
) -> TrialData:
    """The same rows with a classifier's likelier decisions as those of the deployed model.

    `seen` are the same rows as it was trained on them, if it was with other training rows.
    """
    decisions = (seen or rows).predictions(classifier).decisions
    return replace(rows, sample=rows.sample.with_deployed(np.where(decisions > 0.5, 1.0, 0.0)))


def column_classifier(rows: TrialData, name: str) -> Classifier:
    """The deployed model whose decisions a column holds: yes for rows with a yes there.

    It looks at a slice of that column and at no feature.
    """
    assert rows.sample.deployed is not None
    column = rows.sample.columns[name]
    yes = column[rows.sample.deployed == 1]
    values = sorted(
        {each if isinstance(each, str) else float(each) for each in yes.tolist()}, key=str
    )
    condition = Condition(name, "=", tuple(values) or (1.0,))
    return GroupThreshold(
        Threshold(np.zeros(rows.X.shape[1])), (str(condition),), np.ones((1, 1), bool), -np.ones(1)
    )


def deployed_predictions(sample: Sample) -> Predictions:
    """The deployed model as a classifier of which only the decisions are known, NaN where not.

    The language sees to it that nobody asks for more (`rates.resolve`).
    """
    assert sample.deployed is not None
    return Predictions(sample.deployed, sample.deployed, sample.deployed)
