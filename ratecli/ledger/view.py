"""A read-only view of an experiment's plan and results, for reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ratecli.ledger import records as rc
from ratecli.ledger.store import LedgerStore
from ratecli.rates.syntax import SPLITS

MEASURED_STATUSES = frozenset({"ok", "not_met", "iteration_limit"})
"""Statuses with measured numbers; other trials are reported by their status only."""

NOT_RUN = "not_run"
"""Status of a planned trial without a result, because the run was interrupted."""

SAME_TEST_SET = (
    "All seeds have the same test set: ± shows how much training varies, and leaves out the "
    "sampling error of the test set."
)

T = TypeVar("T")


@dataclass(frozen=True)
class Ledger:
    """The plan in order, results by key (trials may share one), and the metadata of the run."""

    plan: Sequence[rc.PlannedTrial]
    results: Mapping[str, rc.TrialResult]
    meta: Mapping[str, Any]
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def read(cls, path: Path) -> Ledger:
        with LedgerStore(path, readonly=True) as store:
            return cls(*store.read())

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return `make()`, cached under `key`, since tables, plots and pages share data."""
        if key not in self._made:
            self._made[key] = make()
        value: T = self._made[key]
        return value

    @property
    def experiment(self) -> Mapping[str, Any]:
        return _mapping(self.meta.get("experiment"))

    @property
    def constraints(self) -> Mapping[str, str]:
        return _mapping(self.experiment.get("constraints"))

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """A sentence for each data set that stands in for another, shown above every result."""
        data = _mapping(self.meta.get("datasets"))
        return tuple(
            f"The data set {name} is {entry['stand_in']}."
            for name, entry in data.items()
            if "stand_in" in entry
        )

    @property
    def row_notes(self) -> tuple[str, ...]:
        """Sentences on values of logged decisions that are not exact, and on equal test sets."""
        data = _mapping(self.meta.get("datasets"))
        notes = [
            f"In the data set {name}, {entry['logged']}."
            for name, entry in data.items()
            if "logged" in entry
        ]
        tests = defaultdict[Hashable, list[object]](list)
        for trial in self.plan:
            result = self.results.get(trial.key)
            if result and (new := result.info.get(rc.NEW_DATA_KEY)) and new["test"][1]:
                tests[trial.label, repr(trial.point)].append(new["test"][0])
        repeated = [each for each in tests.values() if len(each) > 1]
        if repeated and all(len(set(each)) == 1 for each in repeated):
            notes.append(SAME_TEST_SET)
        return tuple(notes)

    @property
    def classes(self) -> dict[str, str]:
        """The class of each goal by its name."""
        return {goal["name"]: goal["class"] for goal in self.meta.get("goals") or ()}

    def swept(self, name: str) -> list[Any]:
        """Return the values of a swept name, one for each trial that has one."""
        return [trial.point[name] for trial in self.plan if name in trial.point]

    @cached_property
    def sweep(self) -> tuple[str, ...]:
        """Swept names, in order of first occurrence in the plan."""
        return tuple(dict.fromkeys(name for trial in self.plan for name in trial.point))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Metrics in the file's order, violations last; a trial need not have all of them."""
        violations = (rc.VIOLATION_PREFIX + name for name in self.constraints)
        order = ["objective", *_mapping(self.experiment.get("metrics")), *violations]
        found = dict.fromkeys(name for trial in self.plan for name in trial.metrics)
        return tuple(dict.fromkeys([*(name for name in order if name in found), *found]))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """Splits with measured numbers, train first."""
        measured = (self.results[trial.key] for trial in self.plan if self.is_measured(trial))
        found = {value.split for result in measured for value in result.values}
        return tuple(sorted(found, key=split_rank))

    @cached_property
    def algorithms(self) -> Ledger:
        """The ledger without trials of the filter before training, which have their own metrics."""
        others = [trial for trial in self.plan if not is_filter_stage(trial)]
        return replace(self, plan=others) if len(others) < len(self.plan) else self

    @cached_property
    def filter_stage(self) -> Ledger:
        """The ledger with the trials of the filter before training only."""
        return replace(self, plan=[trial for trial in self.plan if is_filter_stage(trial)])

    def for_metrics(self, metrics: Iterable[str]) -> Ledger:
        """Return the ledger of the trials that these metrics are about.

        `filter_stage` if all are the filter's, `algorithms` if none is, else `self`.
        """
        theirs = [name.startswith(rc.FILTER_STAGE_PREFIX) for name in metrics]
        if theirs and all(theirs):
            return self.filter_stage
        return self if any(theirs) else self.algorithms

    def status(self, trial: rc.PlannedTrial) -> str:
        result = self.results.get(trial.key)
        return result.status if result else NOT_RUN

    def is_measured(self, trial: rc.PlannedTrial) -> bool:
        """Return whether a trial has measured numbers."""
        return self.status(trial) in MEASURED_STATUSES

    def reason(self, trial: rc.PlannedTrial) -> str:
        result = self.results.get(trial.key)
        return result.reason if result else ""

    def report_entries(self, what: str) -> list[Mapping[str, Any]]:
        """Return the entries of `report: tables` or `report: plots`."""
        return list(_mapping(self.experiment.get("report")).get(what) or [])


def is_filter_stage(trial: rc.PlannedTrial) -> bool:
    """Return whether a trial computes the filter of the training rows."""
    return any(name.startswith(rc.FILTER_STAGE_PREFIX) for name in trial.metrics)


def split_rank(split: str) -> tuple[int, str]:
    return (SPLITS.index(split) if split in SPLITS else len(SPLITS), split)


def _mapping(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return value or {}
