"""The results of an experiment as DataFrames, read from its ledger only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.api.errors import convert_errors, issue_warnings
from ratecli.api.rows import to_arrow_table
from ratecli.apply.predict import predict_table
from ratecli.apply.stored import StoredModel, encoding_for_tables
from ratecli.config.experiment import load_experiment
from ratecli.datasets.paths import missing_file_error
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.files import LEDGER_FILE
from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.models.base import Array
from ratecli.models.storage import loads
from ratecli.report.tables import metrics_table, summary_table, trials_table
from ratecli.runner.run import trial_display_name


class ResultModel(StoredModel):
    """A model of a run, which can be applied to DataFrames."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns that input rows must have."""
        return list(self.encoding.encoder.kinds)

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
            found, faults = predict_table(self, Path("X"), to_arrow_table(frame, "X"), seed)
        issue_warnings(faults)
        return pd.DataFrame(dict(found.columns), index=frame.index)

    def predict(self, frame: pd.DataFrame, *, seed: int = 0) -> NDArray[Any]:
        """Return decisions (n,), 1 or 0, or estimates; for a filter, whether each row is kept."""
        found = self.answers(frame, seed=seed)
        return np.asarray(found[found.columns[-1]])

    def chances(self, frame: pd.DataFrame) -> Array:
        """Return the probability (n,) of a positive decision, or of a filter keeping the row."""
        return np.asarray(self.answers(frame)["chance"], dtype=np.float64)


YAML_ENDINGS = (".yaml", ".yml")


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
    """

    folder: Path
    experiment: Mapping[str, Any] = field(repr=False)
    metrics: pd.DataFrame = field(repr=False)
    summary: pd.DataFrame = field(repr=False)
    trials: pd.DataFrame = field(repr=False)

    def model(
        self,
        algorithm: str | None = None,
        variant: str | None = None,
        *,
        seed: int | None = None,
        **point: Any,
    ) -> ResultModel:
        """Return a classifier of the run that can be applied to a DataFrame.

        Parameters
        ----------
        algorithm : str, default=None
            Label of the algorithm; may be omitted if there is only one.
        variant : str, default=None
            A variant such as `stochastic`; None for the main one.
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
            models, encoding = store.models(trial.key), store.encoding(trial.key)
        name = trial_display_name(trial)
        with convert_errors():
            if not models:
                raise FaultError(Diagnostic("E404", f"the trial '{name}' left no model"))
            chosen = next(iter(models)) if variant is None else variant
            if chosen not in models:
                hint = did_you_mean(chosen, models, "variants")
                raise FaultError(Diagnostic("E104", f"'{name}' has no variant '{chosen}'", hint))
            name = f"{name}, {chosen}"
            described = encoding_for_tables(json.loads(encoding), name)
            return ResultModel(name, loads(models[chosen]), described)


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
        folder = _folder(Path(path), Path(output))
        ledger = Ledger.read(folder / LEDGER_FILE)
        return Results(
            folder,
            dict(ledger.experiment),
            metrics_table(ledger),
            summary_table(ledger),
            _trials(ledger),
        )


def _folder(path: Path, output: Path) -> Path:
    if path.name == LEDGER_FILE:
        path = path.parent
    elif path.suffix in YAML_ENDINGS:
        path = output / load_experiment(path)[0].name
    if not (path / LEDGER_FILE).is_file():
        raise missing_file_error(
            str(path), "holds no results", "`ratecli run` leaves them in results/NAME"
        )
    return path


def _trials(ledger: Ledger) -> pd.DataFrame:
    found = trials_table(ledger)
    ended = (ledger.results.get(trial.key) for trial in ledger.plan)
    found["seconds"] = [None if result is None else result.seconds for result in ended]
    return found.astype({"seconds": "float64"})


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
    listed = "; ".join(trial_display_name(trial) for trial in (found or plan)[:8])
    message = f"{len(found) or 'no'} trials fit"
    raise FaultError(Diagnostic("E104", message, f"say which algorithm, seed and values: {listed}"))
