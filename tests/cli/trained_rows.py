"""The training rows of a trial with its decisions, for counting by hand what the run measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ratecli.experiment.options import solver_class
from ratecli.experiment.prepare import prepare
from ratecli.files import LEDGER_FILE
from ratecli.ledger.records import PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.models.storage import loads
from ratecli.sampling.rows import TrialData, load_trial_data


@dataclass(frozen=True)
class Trial:
    """One variant of one trial.

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
