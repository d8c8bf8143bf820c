"""The results of an experiment as DataFrames, read from its ledger alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from ratecli.api.applied import Model
from ratecli.api.errors import readable
from ratecli.config.experiment import load_experiment
from ratecli.datasets.paths import no_file
from ratecli.errors import Fault, FaultError, did_you_mean
from ratecli.ledger.records import Planned
from ratecli.ledger.store import Store
from ratecli.ledger.view import Ledger
from ratecli.report.tables import summary, tidy, trials
from ratecli.runner.run import LEDGER, display_name

FILES = (".yaml", ".yml")


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
        As `summary.csv`.
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
    ) -> Model:
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
        with readable(), Store(self.folder / LEDGER, readonly=True) as store:
            trial = _meant(store.plan(), algorithm, seed, point)
            models, encoding = store.models(trial.key), store.encoding(trial.key)
        name = display_name(trial)
        with readable():
            if not models:
                raise FaultError(Fault("E404", f"the trial '{name}' left no model"))
            chosen = next(iter(models)) if variant is None else variant
            if chosen not in models:
                hint = did_you_mean(chosen, models, "variants")
                raise FaultError(Fault("E104", f"'{name}' has no variant '{chosen}'", hint))
        return Model.of(f"{name}, {chosen}", models[chosen], encoding)


def load_results(path: str | PathLike[str], *, output: str | PathLike[str] = "results") -> Results:
    """Read what a run left; needs neither the data nor the experiment's file.

    Parameters
    ----------
    path
        The folder of the results, its `trials.sqlite`, or the experiment's file.
    output
        Where the folder of an experiment's file is.

    Raises
    ------
    ValueError
        Where there are no results, or not of this program; `faults` has the parts.
    """
    with readable():
        folder = _folder(Path(path), Path(output))
        ledger = Ledger.read(folder / LEDGER)
        return Results(
            folder, dict(ledger.experiment), tidy(ledger), summary(ledger), _trials(ledger)
        )


def _folder(path: Path, output: Path) -> Path:
    if path.name == LEDGER:
        path = path.parent
    elif path.suffix in FILES:
        path = output / load_experiment(path)[0].name
    if not (path / LEDGER).is_file():
        raise no_file(str(path), "holds no results", "`ratecli run` leaves them in results/NAME")
    return path


def _trials(ledger: Ledger) -> pd.DataFrame:
    found = trials(ledger)
    ended = (ledger.results.get(trial.key) for trial in ledger.plan)
    found["seconds"] = [None if result is None else result.seconds for result in ended]
    return found.astype({"seconds": "float64"})


def _meant(
    plan: list[Planned], algorithm: str | None, seed: int | None, point: Mapping[str, Any]
) -> Planned:
    """The one trial that is meant; raises E104 where there is none or are several."""
    fitting = list(_fitting(plan, algorithm, point))
    first = seed if seed is not None or not fitting else fitting[0].seed
    found = [trial for trial in fitting if trial.seed == first]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(display_name(trial) for trial in (found or plan)[:8])
    message = f"{len(found) or 'no'} trials fit"
    raise FaultError(Fault("E104", message, f"say which algorithm, seed and values: {listed}"))


def _fitting(
    plan: list[Planned], algorithm: str | None, point: Mapping[str, Any]
) -> Iterator[Planned]:
    for trial in plan:
        named = algorithm in {None, trial.label}
        if named and all(
            name in trial.point and trial.point[name] == value for name, value in point.items()
        ):
            yield trial
