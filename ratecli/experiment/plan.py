"""Plans the trials of an experiment: each case with each seed, identified by a key.

The key is a hash of everything that affects the trial's numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from ratecli.config.document import Document
from ratecli.config.experiment import DeployedSpec, Experiment
from ratecli.config.sweep import DATASET_AXIS
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import Case, case_key_content, relevant_goals, uses_deployed_model
from ratecli.experiment.filter_stage import filter_stage_cases
from ratecli.experiment.limits import UNLIMITED, TrialLimits
from ratecli.experiment.options import all_options
from ratecli.ledger.keys import trial_key
from ratecli.ledger.provenance import code_versions
from ratecli.ledger.records import CACHED_STATUSES, PlannedTrial
from ratecli.ledger.store import LedgerStore
from ratecli.rates import expression as ex
from ratecli.sampling.filtered import RowFilter, TrainingRowsSpec
from ratecli.sampling.rows import ExperimentData
from ratecli.streaming.table import entry_digest


@dataclass(frozen=True)
class Task:
    """A trial to run: its key, the keys of the trials that it needs, its function's argument.

    `limits` do not affect results, so they are not part of the key.
    """

    key: str
    needs: tuple[str, ...]
    payload: Any
    limits: TrialLimits = UNLIMITED


@dataclass(frozen=True)
class TrialSpec:
    """The argument of the function that runs a trial.

    Attributes
    ----------
    l2
        The experiment's L2 regularization.
    of
        Maps each label in `of(...)` to the key of the trial that it refers to.
    deployed
        Key of the trial whose classifier is the deployed model, if any.
    is_deployed
        Whether the trial's own classifier is the deployed model.
    deployed_column
        Column with the decisions of the deployed model, if any.
    deployed_model
        The deployed model as a stored classifier, if any.
    sieve
        The filter that the training rows pass through, if any.
    elsewhere
        The training rows of each needed trial whose training rows differ from this one's, by key.
    """

    key: str
    seed: int
    case: Case
    data: ExperimentData
    l2: float | str
    of: Mapping[str, str]
    deployed: str | None
    is_deployed: bool
    deployed_column: str | None
    deployed_model: bytes | None
    sieve: RowFilter | None
    elsewhere: Mapping[str, TrainingRowsSpec]

    @property
    def seen(self) -> TrainingRowsSpec:
        return TrainingRowsSpec(self.case.drawing, self.sieve)


@dataclass(frozen=True)
class Plan:
    """The trials to report and the tasks that compute them; trials with equal keys share a task."""

    planned: tuple[PlannedTrial, ...]
    tasks: tuple[Task, ...]

    @property
    def left_out(self) -> int:
        """Number of reported trials that are not to be run."""
        return len({trial.key for trial in self.planned} - {task.key for task in self.tasks})

    def first_of_each(self) -> Plan:
        """Return a plan of each algorithm's first trial on each data set, with those it needs."""
        firsts = {
            (trial.label, trial.point.get(DATASET_AXIS)): trial.key
            for trial in reversed(self.planned)
        }
        tasks, wanted, found = {each.key: each for each in self.tasks}, [*firsts.values()], set()
        while wanted:
            key = wanted.pop()
            found.add(key)
            wanted += tasks[key].needs
        return replace(self, tasks=tuple(each for each in self.tasks if each.key in found))


def make_plan(
    experiment: Experiment,
    document: Document,
    cases: Sequence[Case],
    data: ExperimentData,
    deployed_model: bytes | None,
) -> Plan:
    """Plan every trial of an experiment; `deployed_model` is its stored classifier, if any.

    Raises
    ------
    FaultError
        E310 if trials need one another in a cycle, or if a reference does not match exactly one
        trial.
    """
    return _Planner(experiment, document, cases, data, deployed_model).plan()


class _Planner:
    def __init__(
        self,
        experiment: Experiment,
        document: Document,
        cases: Sequence[Case],
        data: ExperimentData,
        deployed_model: bytes | None,
    ) -> None:
        self.experiment = experiment
        self.document = document
        self.cases = cases
        self.data = data
        self.deployed_model = deployed_model
        self.jobs: dict[tuple[int, int], TrialSpec] = {}
        self.contents: dict[int, dict[str, Any]] = {}
        self.open: list[tuple[int, int]] = []
        base: dict[str, Any] = {"versions": code_versions(), "l2": experiment.regularization.l2}
        digests = {
            name: {"digest": entry_digest(entry, data.folder), "split": entry.split.stated()}
            | ({"levels": entry.levels} if entry.levels > 1 else {})
            for name, entry in data.entries.items()
        }
        self.stages = filter_stage_cases(cases)
        self.of_stage: dict[tuple[str, int], TrialSpec] = {}
        self.base, self.digests = base, digests
        self.of_model: dict[str, Any] = {}
        if deployed_model is not None:
            self.of_model = {"deployed_model": hashlib.sha256(deployed_model).hexdigest()}

    def plan(self) -> Plan:
        planned, tasks = [], {}
        limits = TrialLimits(self.experiment.limits.time, self.experiment.limits.memory)
        for index, case in enumerate(self.cases):
            of_case = _planned_trial(case)
            for seed in self.experiment.seeds:
                job = self.job(index, seed)
                planned.append(replace(of_case, key=job.key, seed=seed))
                tasks[job.key] = Task(job.key, _needed_keys(job), job, limits)
        for key, case in self.stages.items():
            for seed in self.experiment.seeds:
                job = self.stage(key, seed)
                planned.append(replace(_planned_trial(case), key=job.key, seed=seed))
                tasks[job.key] = Task(job.key, (), job, limits)
        # workers cache the rows of few seeds only: keep tasks that share rows together
        ordered = sorted(tasks.values(), key=_row_order)
        return Plan(tuple(planned), tuple(ordered))

    def job(self, index: int, seed: int) -> TrialSpec:
        """Return the trial of a case and seed; the trials that it needs are made first."""
        at = (index, seed)
        if at in self.open:
            circle = " -> ".join(self.cases[i].label for i, _ in [*self.open, at])
            message = f"algorithms need one another in a circle: {circle}"
            raise self._refused(self.cases[self.open[-1][0]], self.cases[index].label, message)
        if at not in self.jobs:
            self.open.append(at)
            self.jobs[at] = self._make(index, seed)
            self.open.pop()
        return self.jobs[at]

    def _make(self, index: int, seed: int) -> TrialSpec:
        case = self.cases[index]
        of, elsewhere = {}, {}
        for label, other in self._others(index).items():
            of[label] = self.job(other, seed).key
            if not self.cases[other].drawing.same_rows(case.drawing):
                self._check_independent(case, label)
            elsewhere[of[label]] = self.jobs[other, seed].seen
        deployed = self.experiment.deployed or DeployedSpec.model_construct()
        key = None
        itself = deployed.algorithm == case.label
        if itself:
            self._check_own_decisions(case)
        elif deployed.algorithm is not None:
            meant = self._meant(deployed.algorithm, case)
            key = self.job(meant, seed).key
            self._check_deployed(case, self.cases[meant])
            elsewhere[key] = self.jobs[meant, seed].seen
        l2 = self.experiment.regularization.l2
        needs = {"of": of, "deployed": key, "itself": itself, "column": deployed.column}
        sieve = self._sieve(index, seed)
        if sieve is not None:
            needs["filter"] = {"key": sieve.key, "take": sieve.take}
        known = self.base | self.of_model | self._rows(case) | self._content(index) | needs
        trial = trial_key(known | {"seed": seed})
        data = self.data.only(case.datasets)
        own = TrainingRowsSpec(case.drawing, sieve)
        return TrialSpec(
            trial,
            seed,
            case,
            data,
            l2,
            of,
            key,
            itself,
            deployed.column,
            self.deployed_model,
            sieve,
            {each: seen for each, seen in elsewhere.items() if seen != own},
        )

    def stage(self, key: str, seed: int) -> TrialSpec:
        """Return the trial of a filter (see `filter_stage_cases`), which depends on rows only."""
        if (key, seed) in self.of_stage:
            return self.of_stage[key, seed]
        case, l2 = self.stages[key], self.experiment.regularization.l2
        trial = trial_key(self.base | self._rows(case) | case_key_content(case) | {"seed": seed})
        data = self.data.only(case.datasets)
        job = TrialSpec(trial, seed, case, data, l2, {}, None, False, None, None, None, {})
        self.of_stage[key, seed] = job
        return job

    def _sieve(self, index: int, seed: int) -> RowFilter | None:
        """Return the filter that the training rows of a case pass through."""
        filtering = self.cases[index].filtering
        if filtering is None:
            return None
        job = self.stage(filtering.key, seed)
        return RowFilter(job.key, job.case.drawing, filtering.take)

    def _rows(self, case: Case) -> dict[str, Any]:
        """Return the part of a trial's key that identifies the data."""
        return {"datasets": {name: self.digests[name] for name in case.datasets}}

    def _content(self, index: int) -> dict[str, Any]:
        """Return the part of a trial's key that identifies the case, for any seed."""
        if index not in self.contents:
            self.contents[index] = case_key_content(self.cases[index])
        return self.contents[index]

    def _check_own_decisions(self, case: Case) -> None:
        """Raise E310 if the goals of the deployed algorithm refer to the deployed model."""
        if case.solver.needs_deployed:
            message = f"'{case.label}' is the deployed model and takes the deployed model"
        elif case.solver.role != "ignores" and any(map(uses_deployed_model, case.goals())):
            message = f"'{case.label}' is the deployed model and is held to its own decisions"
        else:
            return
        place = self.document.place(("deployed", "algorithm"))
        raise FaultError(Diagnostic("E310", message, "deploy another algorithm", place=place))

    def _check_independent(self, case: Case, label: str) -> None:
        """Raise E310 if a goal of a safety-tested case depends on test rows.

        This happens if `of(...)` refers to an algorithm that was trained on them, because its own
        safety test holds out other rows or none.
        """
        asked = (
            part
            for goal in relevant_goals(case)
            for part in ex.walk(goal.expression)
            if isinstance(part, ex.AlgorithmMetric) and part.algorithm == label
        )
        if case.safety is not None and any(asked):
            message = f"the safety test of '{case.label}' needs rows that '{label}' has not seen"
            raise self._refused(case, label, message, self._same_test(label))

    def _same_test(self, label: str) -> str:
        return (
            f"give '{label}' the same fraction, stratify and order of `safety`, "
            "and `test: false` if it is not to be tested itself"
        )

    def _check_deployed(self, case: Case, deployed: Case) -> None:
        """Raise E310 like `_check_independent` if the deployed algorithm was trained on other rows.

        An algorithm that audits the deployed model must have exactly the same rows.
        """
        alike, label = case.drawing.same_rows(deployed.drawing), deployed.label
        hint = self._same_test(label)
        audited = case.solver.needs_deployed
        if audited and not (alike and _same_filter(case, deployed)):
            message = f"'{case.label}' must have the training rows of '{label}', which is deployed"
            hint = f"say filter: false of both or of neither; {hint}" if alike else hint
        elif (
            not alike
            and case.safety is not None
            and any(uses_deployed_model(goal) for goal in relevant_goals(case))
        ):
            message = (
                f"the safety test of '{case.label}' needs rows that '{label}', "
                "which is deployed, has not seen"
            )
        else:
            return
        place = self.document.place(("deployed", "algorithm"))
        raise FaultError(Diagnostic("E310", message, hint, place=place))

    def _others(self, index: int) -> dict[str, int]:
        """Return the cases that `of(...)` refers to, by label, without the case itself.

        Only metrics may refer to the case's own result.
        """
        case = self.cases[index]
        meant = {label: self._meant(label, case) for label in case.of()}
        own = [label for label, other in meant.items() if other == index]
        if own and case.solver.role != "ignores" and set(own) & set(case.of(goals_only=True)):
            message = f"'{case.label}' is held to its own result by of({own[0]}, ...)"
            raise self._refused(case, own[0], message, "name another algorithm")
        return {label: other for label, other in meant.items() if other != index}

    def _meant(self, label: str, case: Case) -> int:
        """Return the only case of another algorithm that agrees with this case's sweep point."""
        found = [
            index
            for index, other in enumerate(self.cases)
            if other.label == label
            and all(
                case.point[name] == other.point[name] for name in case.point.keys() & other.point
            )
        ]
        if len(found) == 1:
            return found[0]
        message = (
            f"'{case.label}' needs a result of '{label}', which has {len(found)} to choose from"
        )
        hint = "both must share the sweep names that tell the results apart"
        raise self._refused(case, label, message, hint)

    def _refused(self, case: Case, label: str, message: str, hint: str | None = None) -> FaultError:
        """Return an E310 at the text where `case` refers to a result of `label`."""
        found = (
            self.document.place(loc, part.span)
            for loc, tree in case.texts()
            for part in ex.walk(tree)
            if isinstance(part, ex.AlgorithmMetric) and part.algorithm == label
        )
        place = next(found, None) or self.document.place(("deployed", "algorithm"))
        return FaultError(Diagnostic("E310", message, hint, place=place))


def _row_order(task: Task) -> tuple[tuple[str, ...], int, str]:
    job: TrialSpec = task.payload
    return job.case.datasets, job.seed, repr(job.seen)


def _needed_keys(job: TrialSpec) -> tuple[str, ...]:
    seen = (job.seen, *job.elsewhere.values())
    filters = [each.sieve.key for each in seen if each.sieve is not None]
    keys = [*filters, *job.of.values(), *([job.deployed] if job.deployed else [])]
    return tuple(dict.fromkeys(keys))


def _same_filter(case: Case, other: Case) -> bool:
    """Return whether the training rows of both cases pass through the same filter, or none."""
    found = [each.filtering for each in (case, other)]
    said = [each and (each.key, each.take) for each in found]
    return said[0] == said[1]


def _planned_trial(case: Case) -> PlannedTrial:
    """Return the planned trial of a case, without key and seed."""
    return PlannedTrial(
        key="",
        label=case.label,
        algorithm=case.algorithm,
        options=all_options(case.solver),
        point=dict(case.point),
        seed=0,
        metrics={name: ex.to_text(metric) for name, metric in case.metrics.items()},
    )


@dataclass(frozen=True)
class RunForecast:
    """Forecast for the trials of one algorithm or experiment.

    `seconds` is the expected time of the trials to run, None if stored trials do not indicate it.
    """

    label: str
    trials: int
    stored: int
    seconds: float | None

    @property
    def to_run(self) -> int:
        return self.trials - self.stored


def forecast_run(plan: Plan, ledger: Path) -> list[RunForecast]:
    """Return a forecast for each label, in the file's order; `ledger` may be missing."""
    stored = _read_stored_trials(plan, ledger)
    labels: dict[str, list[PlannedTrial]] = {}
    for trial in stored.trials.values():
        labels.setdefault(trial.label, []).append(trial)
    return [_make_forecast(label, [(stored, own)], stored.kept) for label, own in labels.items()]


def forecast_runs(several: Sequence[tuple[str, Plan, Path]]) -> list[RunForecast]:
    """Return a forecast for each experiment, given as (name, plan, ledger), and one for all.

    The latter counts shared trials once. A trial that one ledger stores counts as stored for all,
    since a run of all copies it. The time of an algorithm without stored trials is taken from the
    other experiments.
    """
    found = [_read_stored_trials(plan, ledger) for _, plan, ledger in several]
    times = {name: time for each in reversed(found) for name, time in each.seconds.items()}
    found = [replace(each, seconds={**times, **each.seconds}) for each in found]
    shared = {key for each in found for key in each.kept if key in each.trials}
    forecasts = [
        _make_forecast(name, [(each, each.trials.values())], each.kept | shared)
        for (name, _, _), each in zip(several, found, strict=True)
    ]
    seen: set[str] = set()
    parts = []
    for each in found:
        parts.append((each, [trial for key, trial in each.trials.items() if key not in seen]))
        seen |= each.trials.keys()
    return [*forecasts, _make_forecast("all", parts, shared)]


@dataclass(frozen=True)
class _StoredTrials:
    """The planned trials, the keys stored in the ledger, and mean seconds per algorithm."""

    trials: Mapping[str, PlannedTrial]
    kept: frozenset[str]
    seconds: Mapping[str, float]


def _read_stored_trials(plan: Plan, ledger: Path) -> _StoredTrials:
    trials = {trial.key: trial for trial in plan.planned}
    if not ledger.is_file():
        return _StoredTrials(trials, frozenset(), {})
    with LedgerStore(ledger, readonly=True) as store:
        before, results, _ = store.read()
    algorithm_of = {trial.key: trial.algorithm for trial in [*before, *trials.values()]}
    kept = {key: result for key, result in results.items() if result.status in CACHED_STATUSES}
    times: dict[str, list[float]] = {}
    for key, result in kept.items():
        if key in algorithm_of:
            times.setdefault(algorithm_of[key], []).append(result.seconds)
    return _StoredTrials(trials, frozenset(kept), {name: mean(own) for name, own in times.items()})


def _make_forecast(
    label: str,
    parts: Iterable[tuple[_StoredTrials, Collection[PlannedTrial]]],
    kept: Collection[str],
) -> RunForecast:
    """Combine trials of several experiments into one forecast; trials in `kept` need not run."""
    count = lacking = 0
    times: list[float | None] = []
    for stored, own in parts:
        to_run = [trial for trial in own if trial.key not in kept]
        count += len(own)
        lacking += len(to_run)
        times += [stored.seconds.get(trial.algorithm) for trial in to_run]
    known = [time for time in times if time is not None]
    seconds = sum(known) if len(known) == len(times) else None
    return RunForecast(label, count, count - lacking, seconds)
