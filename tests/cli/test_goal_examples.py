"""Every goal of Goh et al. 2016, section 1, on small data, in its example file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small import read_rows

from ratecli.experiment.entries import solver_class
from ratecli.experiment.prepare import prepare
from ratecli.files import LEDGER_FILE
from ratecli.ledger.records import PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.models.storage import loads
from ratecli.sampling.rows import load_trial_data

FOLDER = Path(__file__).parents[2] / "experiments" / "goh2016" / "goals"
FILES = sorted(FOLDER.glob("*.yaml"))
ROUNDING = 1e-6
"""Largest violation that counts as none."""


@dataclass(frozen=True)
class Trial:
    """One variant of one trial with the training rows.

    `rows` has label (NaN where there is none), score and yes (chance of a yes in [0, 1]).
    """

    planned: PlannedTrial
    result: TrialResult
    variant: str
    rows: pd.DataFrame

    @property
    def is_free(self) -> bool:
        """Whether the algorithm looks at no constraint."""
        return solver_class(self.planned.algorithm).role == "ignores"

    @property
    def is_promise(self) -> bool:
        """Whether this is the variant for which an algorithm promises the constraints."""
        enforces = solver_class(self.planned.algorithm).role == "enforces"
        return enforces and self.variant == next(iter(self.result.models))

    @property
    def limit(self) -> float:
        """The value of the only name that is swept."""
        (value,) = self.planned.point.values()
        return float(value)


def trials(path: Path, results: Path) -> Iterator[Trial]:
    """Every variant of every trial of a run of one seed that lies in `results`."""
    prepared = prepare(path, offline=True)
    (seed,) = prepared.experiment.seeds
    known = load_trial_data(prepared.data, seed)
    train = known.sample.part == "train"
    frame = pd.DataFrame({"label": known.sample.label})
    with LedgerStore(results / prepared.experiment.name / LEDGER_FILE, readonly=True) as store:
        plan = store.plan()
        for planned in plan:
            result = store.result(planned.key)
            for variant, data in result.models.items():
                model = loads(data)
                decided = frame.assign(score=model.score(known.X), yes=model.decide(known.X))
                yield Trial(planned, result, variant, decided[train])


def alarms_and_misses(rows):
    return {"fpr": rows.yes[rows.label == 0].mean(), "fnr": 1 - rows.yes[rows.label == 1].mean()}


LONG = {"churn", "coverage", "equalized-odds", "neyman-pearson", "recall-floor", "stability"}
"""Files that take more than two seconds."""


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] * (path.stem in LONG)) for path in FILES],
    ids=[path.stem for path in FILES],
)
def test_the_goal_is_met_and_is_violated_without_constraints(cli, folder, path):
    answer = cli("run", path, "--offline", "--executor", "serial")
    assert answer.code == 0, answer.err
    assert "warning" not in cli("validate", path).err
    (results,) = (folder / "results").iterdir()
    assert (results / "report.html").stat().st_size
    assert list((results / "figures").glob("*.svg"))
    everything = list(trials(path, results.parent))
    statuses = read_rows(results / "trials.csv")
    assert [row for row in statuses if row["status"] != "ok"] == []
    measured = read_rows(results / "metrics.csv")
    kept_and_free(everything, measured)
    assert any(max(trial.result.multipliers.values(), default=0) > 0 for trial in everything)
    if path.stem == "neyman-pearson":
        no_worse_than_a_threshold(everything)


def reported(trial: Trial, measured: list[dict[str, str]]) -> dict[str, float]:
    """What metrics.csv says of a variant of a trial on training rows."""
    (name,) = trial.planned.point
    wanted = (trial.planned.label, trial.variant, "train", trial.limit)
    return {
        row["metric"]: float(row["value"])
        for row in measured
        if (row["algorithm"], row["variant"], row["split"], float(row[name])) == wanted
    }


def kept_and_free(everything: list[Trial], measured: list[dict[str, str]]) -> None:
    """Who promises the constraints keeps them all in training; who is free breaks one somewhere."""
    worst = {
        (trial.planned.key, trial.variant): max(
            value for name, value in reported(trial, measured).items() if "violation." in name
        )
        for trial in everything
    }
    promised = [trial for trial in everything if trial.is_promise]
    assert {trial.variant for trial in promised} == {"stochastic"}
    assert all(worst[trial.planned.key, trial.variant] <= ROUNDING for trial in promised)
    free = [trial for trial in everything if trial.is_free]
    assert any(worst[trial.planned.key, trial.variant] > ROUNDING for trial in free)


def no_worse_than_a_threshold(everything: list[Trial]) -> None:
    """Check that shifting the threshold of the plain classifier misses at least as many."""
    plain = next(trial for trial in everything if trial.is_free).rows
    promised = [trial for trial in everything if trial.is_promise]
    assert len(promised) == 3
    for trial in promised:
        misses = alarms_and_misses(trial.rows)["fnr"]
        assert misses <= least_misses(plain, trial.limit)


def least_misses(rows: pd.DataFrame, limit: float) -> float:
    """Least share of positives at or below a threshold that at most `limit` of negatives exceed."""
    cuts = np.sort(rows.score)[:, None]
    alarms = (rows.score[rows.label == 0].to_numpy() > cuts).mean(axis=1)
    misses = (rows.score[rows.label == 1].to_numpy() <= cuts).mean(axis=1)
    return float(misses[alarms <= limit].min())
