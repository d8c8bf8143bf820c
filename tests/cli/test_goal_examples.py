"""Every goal of Goh et al. 2016, section 1, on small data, in its example file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small import read_rows

from ratecli.datasets.sources.loans import INCOME_FLOOR
from ratecli.experiment.options import solver_class
from ratecli.experiment.prepare import prepare
from ratecli.files import LEDGER_FILE
from ratecli.ledger.records import PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.models.storage import loads
from ratecli.sampling.rows import TrialData, load_trial_data

FOLDER = Path(__file__).parents[2] / "experiments" / "goh2016" / "goals"
FILES = sorted(FOLDER.glob("*.yaml"))
ROUNDING = 1e-6
"""Largest violation that counts as none."""


@dataclass(frozen=True)
class Trial:
    """One variant of one trial with the training rows.

    `rows` has the columns of the data sets and: dataset, label (NaN where there is none), score,
    yes (chance of a yes in [0, 1]) and, in an experiment that has a deployed model, its yes or no.
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
    frame = pd.DataFrame(dict(known.sample.columns))
    frame = frame.assign(dataset=known.sample.dataset, label=known.sample.label)
    with LedgerStore(results / prepared.experiment.name / LEDGER_FILE, readonly=True) as store:
        plan = store.plan()
        if prepared.experiment.deployed:
            frame["deployed"] = _deployed(prepared.experiment.deployed, plan, store, known)
        for planned in plan:
            result = store.result(planned.key)
            for variant, data in result.models.items():
                model = loads(data)
                decided = frame.assign(score=model.score(known.X), yes=model.decide(known.X))
                yield Trial(planned, result, variant, decided[train])


def _deployed(stated, plan: list[PlannedTrial], store: LedgerStore, known: TrialData) -> np.ndarray:
    if stated.column:
        return known.sample.columns[stated.column]
    # one at each sweep point, and all of them the same classifier
    key = next(planned.key for planned in plan if planned.label == stated.algorithm)
    return loads(store.result(key).models["deterministic"]).decide(known.X)


def coverage(rows):
    return {"coverage": rows.yes[rows.dataset == "applicants"].mean()}


def churn(rows):
    traffic, loans = rows[rows.dataset == "traffic"], rows[rows.dataset == "loans"]
    assert traffic.label.isna().all()
    return {"churn": changed(traffic)} | wins_and_losses(loans)


def stability(rows):
    held_out = rows[rows.dataset == "held_out"]
    assert held_out.label.isna().all()
    return {
        "churn": changed(held_out),
        "churn_women": changed(held_out[held_out.sex == "Female"]),
    } | wins_and_losses(rows[rows.dataset == "batch"])


def changed(rows):
    return np.where(rows.deployed == 1, 1 - rows.yes, rows.yes).mean()


def wins_and_losses(rows):
    """A chance p of a yes is p right where the label is 1; the deployed model is right or not."""
    right = np.where(rows.label == 1, rows.yes, 1 - rows.yes)
    before = (rows.deployed == rows.label).to_numpy()
    return {
        "wins": right[~before].sum() / len(rows),
        "losses": (1 - right[before]).sum() / len(rows),
    }


def parity(rows):
    return {"ratio": women(rows).yes.mean() / men(rows).yes.mean()}


def opportunity(rows):
    repaid = rows[rows.label == 1]
    return {"tpr_women": women(repaid).yes.mean(), "tpr_men": men(repaid).yes.mean()}


def odds(rows):
    gaps = [abs(women(part).yes.mean() - men(part).yes.mean())
            for part in (rows[rows.label == 1], rows[rows.label == 0])]  # fmt: skip
    return {"tpr_gap": gaps[0], "fpr_gap": gaps[1]}


def women(rows):
    return rows[rows.sex == "Female"]


def men(rows):
    return rows[rows.sex == "Male"]


def found(rows):
    """Recall and precision of expected counts."""
    hits, alarms = rows.yes[rows.label == 1].sum(), rows.yes[rows.label == 0].sum()
    return {"recall": hits / (rows.label == 1).sum(), "precision": hits / (hits + alarms)}


def alarms_and_misses(rows):
    return {"fpr": rows.yes[rows.label == 0].mean(), "fnr": 1 - rows.yes[rows.label == 1].mean()}


def egregious(rows):
    loans, complaints = rows[rows.dataset == "loans"], rows[rows.dataset == "complaints"]
    refused, accepted = complaints[complaints.label == 1], complaints[complaints.label == 0]
    assert (refused.income < INCOME_FLOOR).all()
    assert (accepted.income >= INCOME_FLOOR).all()
    return {
        "right_refused": refused.yes.mean(),
        "right_accepted": 1 - accepted.yes.mean(),
        "error": abs(loans.yes - loans.label).mean(),
    }


GOALS = {
    "coverage": (
        coverage,
        lambda m, budget: abs(m["coverage"] - (budget - 0.01)) <= 0.01 + ROUNDING,
    ),
    "churn": (churn, lambda m, limit: m["churn"] <= limit + ROUNDING),
    "stability": (
        stability,
        lambda m, change: (
            max(m["churn"], m["churn_women"]) <= change + ROUNDING
            and m["wins"] >= m["losses"] - ROUNDING
        ),
    ),
    "demographic-parity": (
        parity,
        lambda m, kappa: kappa - ROUNDING <= m["ratio"] <= 1 / (kappa - ROUNDING),
    ),
    "equal-opportunity": (
        opportunity,
        lambda m, gap: abs(m["tpr_women"] - m["tpr_men"]) <= gap + ROUNDING,
    ),
    "equalized-odds": (odds, lambda m, gap: max(m.values()) <= gap + ROUNDING),
    "recall-floor": (found, lambda m, floor: m["recall"] >= floor - ROUNDING),
    "precision-floor": (found, lambda m, floor: m["precision"] >= floor - ROUNDING),
    "neyman-pearson": (alarms_and_misses, lambda m, limit: m["fpr"] <= limit + ROUNDING),
    "egregious": (
        egregious,
        lambda m, kappa: min(m["right_refused"], m["right_accepted"]) >= kappa - ROUNDING,
    ),
}
"""For each file, metrics counted from training rows without the rate language, and whether they
meet the goal at a sweep value."""
assert GOALS.keys() <= {path.stem for path in FILES}
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
    if path.stem in GOALS:
        counted_by_hand(GOALS[path.stem], everything, measured)
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


def counted_by_hand(goal, everything: list[Trial], measured: list[dict[str, str]]) -> None:
    """The file's numbers are those that its rows give, and the goal holds where it was promised."""
    count, holds = goal
    for trial in everything:
        counted, said = count(trial.rows), reported(trial, measured)
        assert counted == pytest.approx({name: said[name] for name in counted}, abs=1e-12)
        if trial.is_promise:
            assert holds(counted, trial.limit), (trial.planned.point, counted)
    free = [trial for trial in everything if trial.is_free]
    assert not all(holds(count(trial.rows), trial.limit) for trial in free)


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
