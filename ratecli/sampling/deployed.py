"""The decisions of other models: of a deployed one, and of other algorithms in `of(...)`.

The deployed model is a stored classifier, another trial or a column. The rates of other algorithms
become rates that no decision of the classifier changes: those of two algorithms on the same rows
vary together, and as one measurement per row, their difference has the standard error, and the
confidence bound, of paired samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.datasets.files import check_is_file, find_user_file, read_errors
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import MODEL_FOLDER, MODELS_FOLDER
from ratecli.models.base import Classifier
from ratecli.models.composed import GroupThreshold
from ratecli.models.linear import Threshold
from ratecli.models.storage import loads
from ratecli.rates import expression as ex
from ratecli.rates.expression import AlgorithmMetric, Expression, Leaf
from ratecli.rates.matrix import Predictions
from ratecli.rates.parser import parse_conditions
from ratecli.rates.sample import Sample
from ratecli.rates.syntax import Condition, value_text
from ratecli.rates.table import DECISION_MEASUREMENTS, DEPLOYED, OTHER, Rate
from ratecli.sampling.rows import TrialData


def load_deployed_model(experiment: Experiment, document: Document, folder: Path) -> bytes | None:
    """Return the bytes of the model file named by `deployed`, if any.

    `folder` is the experiment's.

    Raises
    ------
    FaultError
        E405 if the file does not exist, E404 if it is not a classifier; with places.
    """
    given = experiment.deployed.model if experiment.deployed else None
    if given is None:
        return None
    with document.placing("deployed", "model"):
        path = find_user_file(given, folder)
        blob = read_model_file(given, path)
        load_classifier(given, blob)
    return blob


def read_model_file(given: str, path: Path) -> bytes:
    """Return the bytes of a model file or of the file that describes its features.

    Raises
    ------
    FaultError
        E405 if it is not a file or cannot be read.
    """
    with read_errors(given):
        check_is_file(given, path, f"a run leaves models in results/NAME/{MODELS_FOLDER}/TRIAL")
        return path.read_bytes()


def load_classifier(given: str, blob: bytes) -> Classifier:
    """Return the classifier stored in the file `given`; E404 if it is not a classifier."""
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
    """Raise an error if a run of this command would overwrite or remove the deployed model's file.

    The results would then depend on earlier runs. `results` maps the result folder of each run to
    the file that it runs; `folder` is the experiment's.

    Raises
    ------
    FaultError
        E310 at the model's path.
    """
    given = experiment.deployed.model if experiment.deployed else None
    if given is None:
        return
    path = find_user_file(given, folder).resolve()
    for place, file in results.items():
        folders = (place / name for name in (MODELS_FOLDER, MODEL_FOLDER))
        models = next((each for each in folders if path.is_relative_to(each.resolve())), None)
        if models is not None:
            message = f"'{file}' replaces the models in '{models}'"
            hint = "copy the model to another folder and use the copy, or run the files one by one"
            with document.placing("deployed", "model"):
                raise FaultError(Diagnostic("E310", message, hint))


def with_stored_decisions(rows: TrialData, blob: bytes) -> TrialData:
    """Return the rows with the decisions of a stored classifier as the deployed model's.

    Raises
    ------
    FaultError
        E411 if the classifier needs another number of features, or columns that the rows do not
        have; E404 if its scores are not finite.
    """
    classifier = loads(blob)
    width = rows.X.shape[1]
    if classifier.width != width:
        message = f"the deployed model needs {classifier.width} features, but the rows have {width}"
        hint = "it must have been trained on these columns, encoded as they are here"
        raise FaultError(Diagnostic("E411", message, hint))
    if not np.isfinite(rows.predictions(classifier).scores).all():
        raise FaultError(Diagnostic("E404", "the deployed model's scores are not all finite"))
    return with_classifier_decisions(rows, classifier)


def with_classifier_decisions(
    rows: TrialData, classifier: Classifier, seen: TrialData | None = None
) -> TrialData:
    """Return the rows with a classifier's more likely decisions as the deployed model's.

    `seen` are the same rows with features as in the classifier's training, if its training rows
    differ.
    """
    decisions = (seen or rows).predictions(classifier).decisions
    return replace(rows, sample=rows.sample.with_deployed(np.where(decisions > 0.5, 1.0, 0.0)))


def column_classifier(rows: TrialData, name: str) -> Classifier:
    """Return a classifier that reproduces the deployed model's decisions in a column.

    It decides by a slice of that column and uses no features.
    """
    assert rows.sample.deployed is not None
    column = rows.sample.columns[name]
    yes = column[rows.sample.deployed == 1]
    values = sorted(set(map(value_text, yes.tolist())))
    condition = Condition(name, "=", tuple(values) or ("1",))
    groups, thresholds = np.array([[True], [False]]), np.array([-1.0, 0.0])
    scorer = Threshold(np.zeros(rows.X.shape[1]))
    return GroupThreshold(scorer, (str(condition),), groups, thresholds)


def deployed_predictions(sample: Sample) -> Predictions:
    """Return predictions of the deployed model; decisions are NaN where unknown.

    Scores and estimates are placeholders: `rates.resolve` rejects rates that need them.
    """
    assert sample.deployed is not None
    return Predictions(sample.deployed, sample.deployed, sample.deployed)


def rates_of_other(node: Expression) -> Expression | None:
    """Return the metric of an `of(...)` with its rates as those of the other algorithm.

    For use with `ex.transform`. None for other nodes, and for a metric that is not a function of
    rates which count rows.
    """
    if not isinstance(node, AlgorithmMetric):
        return None
    for part in ex.measured_nodes(node.metric):
        if not (isinstance(part, Leaf) and _counts_rows(part.rate)):
            return None

    def moved(part: Expression) -> Expression | None:
        return replace(part, rate=_other_rate(node, part)) if isinstance(part, Leaf) else None

    return ex.transform(node.metric, moved)


def _counts_rows(rate: Rate) -> bool:
    return rate.of in DECISION_MEASUREMENTS and not (rate.outcome or rate.weight_power)


def _other_rate(node: AlgorithmMetric, leaf: Leaf) -> Rate:
    name = f"of({node.algorithm}, {leaf.rate.name})"
    return replace(leaf.rate, name=name, yes=OTHER, no=OTHER)


def with_others(
    sample: Sample, trees: Iterable[Expression], predictions: Mapping[str, Predictions]
) -> Sample:
    """Return the sample with what each row adds to the rates of other algorithms in some trees.

    `predictions` are those of the algorithms on all rows, by label; others are left out.
    """
    if sample.deployed is not None:
        predictions = {**predictions, DEPLOYED: deployed_predictions(sample)}
    found, rows = dict(sample.others), np.arange(len(sample))
    for node in (part for tree in trees for part in ex.walk(tree)):
        if isinstance(node, AlgorithmMetric) and node.algorithm in predictions:
            for leaf in filter(lambda each: _counts_rows(each.rate), ex.leaves(node.metric)):
                yes, no = sample.counts(leaf.rate, rows)
                m = predictions[node.algorithm].measure(leaf.rate.of, sample.label)
                found[_other_rate(node, leaf).name] = m * (yes - no) + no
    return replace(sample, others=found)
