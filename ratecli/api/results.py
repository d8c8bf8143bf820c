"""The results of an experiment as DataFrames, read from its ledger alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.models.base import Array, Classifier
from ratecli.models.storage import loads
from ratecli.report.tables import metrics_table, summary_table, trials_table
from ratecli.runner.run import LEDGER_FILE, trial_display_name
from ratecli.sampling.encoding import Encoding


@dataclass(frozen=True)
class ResultModel:
    """A stored classifier with what makes its features of columns.

    Attributes
    ----------
    name
        Of the trial and the variant, such as `majorize kappa=0.8 seed=0, stochastic`.
    classifier
        What decides of features (n, d).
    encoding
        How these are made of the columns of a table.
    """

    name: str
    classifier: Classifier
    encoding: Encoding

    @classmethod
    def of(cls, name: str, blob: bytes, encoding: str) -> ResultModel:
        """Raises ValueError where features are not made of columns, or rows stand at several levels."""
        with convert_errors():
            return cls(name, loads(blob), encoding_for_tables(json.loads(encoding), name))

    @property
    def columns(self) -> list[str]:
        """The columns that rows must have."""
        return list(self.encoding.encoder.kinds)

    def answers(self, frame: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
        """What `ratecli predict` adds to a table.

        Parameters
        ----------
        frame : DataFrame of n rows
            With the columns of the training rows, in any order among others.
        seed : int, default=0
            Decides what a randomized classifier leaves to chance.

        Returns
        -------
        DataFrame
            n rows with the index of `frame`: `score`, the `chance` of a yes and a `decision`, 1 or 0; or an
            `estimate`; or of a filter `chance`, `value` and `kept`.

        Raises
        ------
        ValueError
            Where the rows do not fit the model; `faults` has the parts.
        """
        with convert_errors():
            found, doubts = predict_table(
                StoredModel(Path("X"), self.classifier, self.encoding),
                Path("X"),
                to_arrow_table(frame, "X"),
                seed,
            )
        issue_warnings(doubts)
        return pd.DataFrame(dict(found.columns), index=frame.index)

    def predict(self, frame: pd.DataFrame, *, seed: int = 0) -> NDArray[Any]:
        """(n,) decisions, 1 or 0, or estimates; of a filter which rows are kept."""
        found = self.answers(frame, seed=seed)
        return np.asarray(found[found.columns[-1]])

    def chances(self, frame: pd.DataFrame) -> Array:
        """(n,) that the decision is yes, or that a filter keeps the row."""
        return np.asarray(self.answers(frame)["chance"], dtype=np.float64)


YAML_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class Results:
    """What a run left.

    Attributes
    ----------
    folder : Path
        Where it is.
    experiment : dict
        The experiment with every default filled in (`resolved.yaml`).
    metrics : DataFrame
        A row for each number: `algorithm`, `variant`, a column for each name that varies, `seed`, `split`,
        `metric`, `value`. As `metrics.csv`.
    summary : DataFrame
        The mean over seeds with its 95 % interval, `low` to `high`, of `n` seeds; `nan` of them gave none.
        As `summary_table.csv`.
    trials : DataFrame
        A row for each trial that was planned: its `status`, `reason` and `seconds`.
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
        """A classifier that was found, ready for the rows of a DataFrame.

        Parameters
        ----------
        algorithm : str, default=None
            Its label; may be left out where there is only one.
        variant : str, default=None
            Such as `stochastic`; None for the main one.
        seed : int, default=None
            Of the trial; None for the first.
        **point
            The values of names that vary, such as `kappa=0.8`, as far as they tell trials apart.

        Raises
        ------
        ValueError
            Where no trial or several are meant, the trial left no model, or its features are not made of
            columns.
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
        return ResultModel.of(f"{name}, {chosen}", models[chosen], encoding)


def load_results(path: str | PathLike[str], *, output: str | PathLike[str] = "results") -> Results:
    """Read what a run left; needs neither the data nor the experiment's file.

    Parameters
    ----------
    path
        The folder of the results, its `trials_table.sqlite`, or the experiment's file.
    output
        Where the folder of an experiment's file is.

    Raises
    ------
    ValueError
        Where there are no results, or not of this program; `faults` has the parts.
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
    """The one trial that is meant; raises E104 where there is none or are several."""
    fitting = list(_matching_trials(plan, algorithm, point))
    first = seed if seed is not None or not fitting else fitting[0].seed
    found = [trial for trial in fitting if trial.seed == first]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(trial_display_name(trial) for trial in (found or plan)[:8])
    message = f"{len(found) or 'no'} trials fit"
    raise FaultError(Diagnostic("E104", message, f"say which algorithm, seed and values: {listed}"))


def _matching_trials(
    plan: list[PlannedTrial], algorithm: str | None, point: Mapping[str, Any]
) -> Iterator[PlannedTrial]:
    for trial in plan:
        named = algorithm in {None, trial.label}
        if named and all(
            name in trial.point and trial.point[name] == value for name, value in point.items()
        ):
            yield trial
