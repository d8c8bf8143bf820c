"""Run experiments, read their results as DataFrames, and load registered data sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.api.errors import check_types, convert_errors, issue_warnings
from ratecli.api.final_model import fit_model
from ratecli.api.inputs import to_arrow_table
from ratecli.apply.predict import (
    StoredModel,
    encoding_for_tables,
    load_applicable_model,
    predict_table,
)
from ratecli.config.dataset import DatasetSpec
from ratecli.config.document import Document
from ratecli.config.experiment import load_experiment, read_spec
from ratecli.datasets.load import load_entry_table
from ratecli.datasets.registry import find_source
from ratecli.datasets.tables import TableFile
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.experiment.prepare import check_document, prepare_data
from ratecli.files import LEDGER_FILE, YAML_SUFFIXES
from ratecli.ledger.locks import lock_results
from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.models.base import Array
from ratecli.models.policy import SoftmaxPolicy
from ratecli.models.storage import loads
from ratecli.report.answer_text import answers_to_json
from ratecli.report.check.expectations import warn_unmet_expectations
from ratecli.report.tables import metrics_table, summary_table, trials_table
from ratecli.report.write import check_report_folder, write_report
from ratecli.runner.executors import Executor, parse_executor
from ratecli.runner.run import RunOutcome, RunRequest, run_experiments
from ratecli.sampling.deployed import check_model_preserved

DEFAULT_PATH = Path("experiment")
"""Path of an experiment that is not in a file: relative paths start from the working directory."""


def run(
    source: str | PathLike[str] | Mapping[str, Any],
    *,
    settings: Sequence[str] | Mapping[str, Any] = (),
    output: str | PathLike[str] = "results",
    jobs: int = 1,
    executor: str | Executor | None = None,
    offline: bool = False,
    fresh: bool = False,
) -> Results:
    """Run the trials of an experiment that are not stored yet, as `ratecli run` does, and write its
    report.

    Parameters
    ----------
    source
        The experiment file, or its content as a mapping. Paths in a mapping are relative to the
        working directory.
    settings
        Values to override: `["seeds=3"]` or `{"seeds": 3, "sweep.kappa": [0.8, 0.9]}`.
    output
        The folder in which to create the results folder NAME.
    jobs
        Number of trials to run in parallel, each in its own process if there is more than one. A
        script that calls this must then be importable: put its code under `if __name__ ==
        "__main__":`.
    executor
        Where trials run: `serial`, `processes`, `dask`, the address of a cluster as in
        `dask://host:port`, or an executor object. Default: `serial` for one job, otherwise
        `processes`.
    offline
        Whether downloads are forbidden.
    fresh
        Whether to delete stored trials first.

    Returns
    -------
    Results
        A failed trial is a row of `trials` with the status `error`; a warning reports it.

    Raises
    ------
    ValueError
        If the experiment cannot be run; the attribute `faults` lists the errors with their
        locations.
    """
    with convert_errors():
        check_types(source=source, settings=settings, output=output, jobs=jobs)
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {jobs}")
        if executor is not None:
            check_types(executor=executor)
        if executor is None or isinstance(executor, str):
            executor = parse_executor(executor, jobs)
        document = _document(source, settings)
        prepared = prepare_data(check_document(document), offline=offline)
        folder = Path(output) / prepared.experiment.name
        issue_warnings(prepared.warnings)
        check_model_preserved(
            prepared.experiment, prepared.document, prepared.data.folder, {folder: prepared.path}
        )
        with lock_results(folder):
            check_report_folder(folder)
            outcomes, request = list[RunOutcome](), RunRequest(prepared, folder)
            run_experiments([request], executor, outcomes.append, fresh=fresh, quiet=True)
            ledger, _ = write_report(folder)
        failed = [f"a trial failed: {name}: {result.reason}" for name, result in outcomes[0].failed]
        issue_warnings([*outcomes[0].warnings, *warn_unmet_expectations(ledger), *failed])
    return load_results(folder)


def fit(
    source: str | PathLike[str] | Mapping[str, Any],
    *,
    at: Mapping[str, Any] | None = None,
    algorithm: str | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (),
    output: str | PathLike[str] = "results",
    offline: bool = False,
) -> ResultModel | SoftmaxPolicy:
    """Train the model that a run chose on all rows, as `ratecli fit` does, and return it.

    Its folder is `output`/NAME/model.

    Parameters
    ----------
    source, settings, output, offline
        As in `run`, which must have run.
    at
        Values of swept names, as in `{"limit": 0.8}`; None for the goal of the file.
    algorithm
        Label of the algorithm; None for the best of the run.

    Raises
    ------
    ValueError
        If there are no results, or no model is expected to satisfy the constraints; the attribute
        `faults` lists the errors.
    """
    with convert_errors():
        check_types(source=source, settings=settings, output=output)
        check_types(at={} if at is None else at, algorithm=algorithm or "")
        document = _document(source, settings)
        made = fit_model(document, Path(output), at, algorithm, offline=offline)
        if not made.applies:
            return load_results(made.folder).model()
        return ResultModel(**vars(load_applicable_model(made.folder)))


def _document(
    source: str | PathLike[str] | Mapping[str, Any], settings: Sequence[str] | Mapping[str, Any]
) -> Document:
    """Return the document of a file or mapping, with settings."""
    if isinstance(source, Mapping):
        document = Document.of_data(source, DEFAULT_PATH)
    else:
        document = Document.read(Path(source))
    return document.with_overrides(_overrides(settings))


def _overrides(settings: Sequence[str] | Mapping[str, Any]) -> list[str]:
    if not isinstance(settings, Mapping):
        return [settings] if isinstance(settings, str) else list(settings)
    to_json = partial(json.dumps, default=_plain_value, ensure_ascii=False)
    return [f"{path}={to_json(value)}" for path, value in settings.items()]


def _plain_value(value: Any) -> Any:
    """Convert a NumPy value or a path for JSON."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise ValueError(
        f"a setting is a {type(value).__name__}: give numbers, texts, lists or mappings"
    )


class Dataset(NamedTuple):
    """Rows X (n, d) and labels y (n,): 1, 0 or NaN (unlabelled), or numbers."""

    X: pd.DataFrame
    y: pd.Series


def load_dataset(name: str, *, split: str | None = None, **options: Any) -> Dataset:
    """Load a registered data set (`ratecli ls datasets`), downloading and verifying it if
    necessary.

    Parameters
    ----------
    name : str
        Name of the data set, such as `adult`, or `loans`, which is generated.
    split : str, default=None
        `train`, `validation` or `test`, if the data set has an official split; None for all rows.
    **options
        Options of the data set, as in an experiment file: `rows=2000`,
        `preparation="narasimhan2019"`.

    Returns
    -------
    Dataset
        A pair `X, y`. X has the features, followed by the sensitive columns that are not features;
        pass these to an estimator as `drop`.

    Raises
    ------
    ValueError
        If the data set does not exist or cannot be downloaded, or its features are not columns
        (texts).

    Examples
    --------
    >>> import ratecli
    >>> X, y = ratecli.load_dataset("loans", rows=500)
    >>> X.shape
    (500, 8)
    """
    with convert_errors():
        check_types(name=name)
        source = find_source(name)
        document = Document.of_data({"source": name, **options}, names={(): "options"})
        table = load_entry_table(read_spec(DatasetSpec, document), Path())
    if table.matrix is not None:
        raise ValueError(f"the features of '{name}' are ready-made, not columns of a table")
    rows: Any = np.ones(len(table), dtype=bool)
    if split is not None:
        known = () if table.part is None else np.unique(table.part).tolist()
        if split not in known:
            listed = ", ".join(known) or "all"
            raise ValueError(f"'{name}' has no rows called '{split}', only: {listed}")
        rows = table.part == split
    columns = dict.fromkeys([*table.features, *source.sensitive])
    X = table.frame.loc[rows, [each for each in columns if each in table.frame]]
    label = table.label[rows]
    whole = table.label_range is None and not np.isnan(label).any()
    y = pd.Series(label.astype(np.int64) if whole else label, name=source.label)
    return Dataset(X.reset_index(drop=True), y)


class ResultModel(StoredModel):
    """A model of a run, which can be applied to DataFrames."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns that input DataFrames must have."""
        return list(self.encoding.columns_for(self.classifier))

    def answers(self, frame: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
        """Return the columns that `ratecli predict` adds to a table.

        Parameters
        ----------
        frame : DataFrame of n rows
            Must contain the columns of the training rows, in any order.
        seed : int, default=0
            Seed of a randomized classifier's decisions.

        Returns
        -------
        DataFrame
            n rows with the index of `frame`. For a classifier, `score`, `chance` (the probability
            of a positive decision) and `decision` (1 or 0); for a model of numbers, `estimate`; for
            a filter, `chance`, `value` and `kept`.

        Raises
        ------
        ValueError
            If the rows do not fit the model; the attribute `faults` lists the errors.
        """
        with convert_errors():
            rows = TableFile(Path("X"), "parquet", self.encoding.form)
            found, faults = predict_table(self, rows, to_arrow_table(frame, "X"), seed)
        issue_warnings(faults)
        return pd.DataFrame(dict(found.columns), index=frame.index)

    def predict(self, frame: pd.DataFrame, *, seed: int = 0) -> NDArray[Any]:
        """Return decisions (n,), 1 or 0, or estimates; for a filter, whether each row is kept."""
        found = self.answers(frame, seed=seed)
        return np.asarray(found[found.columns[-1]])

    def chances(self, frame: pd.DataFrame) -> Array:
        """Return the probability (n,) of a positive decision, or of a filter keeping the row."""
        return np.asarray(self.answers(frame)["chance"], dtype=np.float64)


@dataclass(frozen=True)
class Results:
    """The results of a run.

    Attributes
    ----------
    folder : Path
        Folder of the results.
    experiment : dict
        The experiment with all defaults filled in (`resolved.yaml`).
    metrics : DataFrame
        One row per measured number, as in `metrics.csv`: `algorithm`, `variant`, a column for each
        swept name, `seed`, `split`, `metric`, `value`.
    summary : DataFrame
        Means over seeds, as in `summary.csv`, with 95 % confidence intervals from `low` to
        `high`; `n` is the number of seeds, `nan` the number of seeds without a value.
    trials : DataFrame
        One row per planned trial with its `status`, `reason` and `seconds`.
    answers : list of dict
        The best model of each sweep point, as in `answers.json`.
    """

    folder: Path
    experiment: Mapping[str, Any] = field(repr=False)
    metrics: pd.DataFrame = field(repr=False)
    summary: pd.DataFrame = field(repr=False)
    trials: pd.DataFrame = field(repr=False)
    answers: Sequence[Mapping[str, Any]] = field(repr=False)

    def model(
        self,
        algorithm: str | None = None,
        variant: str | None = None,
        *,
        seed: int | None = None,
        **point: Any,
    ) -> ResultModel | SoftmaxPolicy:
        """Return a classifier of the run that can be applied to a DataFrame.

        A policy of episodes has `chances` of its actions in states instead.

        Parameters
        ----------
        algorithm : str, default=None
            Label of the algorithm; may be omitted if there is only one.
        variant : str, default=None
            A variant that the option `variants` of the algorithm names; None for the main one.
        seed : int, default=None
            Seed of the trial; None for the first.
        **point
            Values of swept names, such as `kappa=0.8`, as needed to identify the trial.

        Raises
        ------
        ValueError
            If no trial or more than one matches, the trial has no model, or its features are not
            made from columns.
        """
        with convert_errors(), LedgerStore(self.folder / LEDGER_FILE, readonly=True) as store:
            trial = _find_trial(store.plan(), algorithm, seed, point)
            models = store.models(trial.key)
            if not models:
                message = f"the trial '{trial.name}' has no model"
                raise FaultError(Diagnostic("E404", message))
            encoding = store.result(trial.key).encoding
        name = trial.name
        with convert_errors():
            chosen = next(iter(models)) if variant is None else variant
            if chosen not in models:
                hint = did_you_mean(chosen, models, "variants")
                raise FaultError(Diagnostic("E104", f"'{name}' has no variant '{chosen}'", hint))
            name, classifier = f"{name}, {chosen}", loads(models[chosen])
            if isinstance(classifier, SoftmaxPolicy):
                return classifier
            described = encoding_for_tables(json.loads(encoding), name)
            return ResultModel(name, classifier, described)


def load_results(path: str | PathLike[str], *, output: str | PathLike[str] = "results") -> Results:
    """Read the results of a run; requires neither the data nor the experiment file.

    Parameters
    ----------
    path
        The results folder, its ledger `trials.sqlite`, or the experiment file.
    output
        The folder that contains the results folder, if `path` is an experiment file.

    Raises
    ------
    ValueError
        If there are no results, or the ledger is not of this version; the attribute `faults` lists
        the errors.
    """
    with convert_errors():
        check_types(path=path, output=output)
        folder = Path(path)
        if folder.name == LEDGER_FILE:
            folder = folder.parent
        elif folder.suffix in YAML_SUFFIXES and not folder.is_dir():
            folder = Path(output) / load_experiment(folder)[0].name
        ledger = Ledger.read(folder / LEDGER_FILE)
        trials = trials_table(ledger)
        ended = (ledger.results.get(trial.key) for trial in ledger.plan)
        trials["seconds"] = [float("nan") if each is None else each.seconds for each in ended]
        experiment = dict(ledger.experiment)
        tables = metrics_table(ledger), summary_table(ledger), trials
        return Results(folder, experiment, *tables, answers_to_json(ledger))


def _find_trial(
    plan: list[PlannedTrial], algorithm: str | None, seed: int | None, point: Mapping[str, Any]
) -> PlannedTrial:
    """Return the one trial that matches; raise E104 if there is none or more than one."""
    fitting = [
        trial
        for trial in plan
        if algorithm in {None, trial.label} and point.items() <= dict(trial.point).items()
    ]
    first = seed if seed is not None or not fitting else fitting[0].seed
    found = [trial for trial in fitting if trial.seed == first]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(trial.name for trial in (found or plan)[:8])
    message = f"{len(found) or 'no'} trials match"
    raise FaultError(Diagnostic("E104", message, f"specify algorithm, seed and values: {listed}"))
