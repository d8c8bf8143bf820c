"""Plan the trials of an experiment: each case with each seed, identified by a key.

The key is a hash of everything that affects the trial's numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ratecli.config.document import Document
from ratecli.config.experiment import DeployedSpec, Experiment
from ratecli.config.sweep import DATASET_AXIS, has_values
from ratecli.config.trials import LimitsSpec
from ratecli.datasets.load import find_files
from ratecli.errors import Diagnostic, FaultError, Loc
from ratecli.experiment.cases import (
    Case,
    case_key_content,
    references,
    relevant_goals,
    uses_deployed_model,
)
from ratecli.experiment.filters import filter_stage_cases
from ratecli.ledger.provenance import code_versions
from ratecli.ledger.records import PlannedTrial, json_text, json_texts, key_of_texts
from ratecli.rates import expression as ex
from ratecli.sampling.resampling import RowFilter, SamplingSpec
from ratecli.sampling.rows import ExperimentData
from ratecli.solvers.margin import MarginSpec

UNLIMITED = LimitsSpec()
GOAL_KEYS = frozenset({"objective", "constraints", "metrics"})
"""The entries of a trial's key that its goals determine."""


@dataclass(frozen=True)
class Task:
    """A trial to run: its key, the keys of the trials that it needs, its function's argument.

    `limits` do not affect results, so they are not part of the key.
    """

    key: str
    needs: tuple[str, ...]
    payload: Any
    limits: LimitsSpec = UNLIMITED


@dataclass(frozen=True)
class TrialSpec:
    """The argument of the function that runs a trial.

    Attributes
    ----------
    l2
        The experiment's L2 regularization.
    training_rows
        How the training rows are chosen and filtered.
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
    other_rows
        The training rows of each needed trial whose training rows differ from this one's, by key.
    family
        A hash like the key, with the rates of the goals in place of goals and metrics; "" if the
        trial is solved alone.
    together
        The cases of the trials that are solved together, this one and others of its family, by key;
        empty if it is solved alone. Its numbers do not depend on it.
    """

    key: str
    seed: int
    case: Case
    data: ExperimentData
    l2: float | str
    training_rows: SamplingSpec
    of: Mapping[str, str] = field(default_factory=dict)
    deployed: str | None = None
    is_deployed: bool = False
    deployed_column: str | None = None
    deployed_model: bytes | None = None
    other_rows: Mapping[str, SamplingSpec] = field(default_factory=dict)
    family: str = ""
    together: Mapping[str, Case] = field(default_factory=dict)

    def required_keys(self) -> tuple[str, ...]:
        """Return the keys of the trials that must have run: filters first."""
        rows = (self.training_rows, *self.other_rows.values())
        filters = [each.row_filter.key for each in rows if each.row_filter is not None]
        deployed = [] if self.deployed is None else [self.deployed]
        return tuple(dict.fromkeys([*filters, *self.of.values(), *deployed]))


@dataclass(frozen=True)
class Plan:
    """The trials to report and the tasks that compute them; trials with equal keys share a task.

    `seconds` has the expected seconds of trials by key, where the file states them.
    """

    planned: tuple[PlannedTrial, ...]
    tasks: tuple[Task, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """Number of reported trials that are not to be run."""
        return len({trial.key for trial in self.planned} - {task.key for task in self.tasks})

    def first_of_each(self, goal: Mapping[str, Any]) -> Plan:
        """Return a plan of each algorithm's first trial on each data set, with those it needs.

        It is the first at the goal of the file, if there is one.
        """
        at_goal = [trial for trial in self.planned if goal and has_values(trial.point, goal)]
        keys = _first_keys([*at_goal, *self.planned])
        return replace(self, tasks=self._with_needed(keys))

    def only(self, key: str) -> Plan:
        """Return a plan of one trial, with those it needs."""
        tasks = self._with_needed([key])
        needed = {task.key for task in tasks}
        planned = tuple(trial for trial in self.planned if trial.key in needed)
        return replace(self, planned=planned, tasks=tasks)

    def _with_needed(self, keys: Iterable[str]) -> tuple[Task, ...]:
        tasks = {task.key: task for task in self.tasks}
        pending, required = [*keys], set[str]()
        while pending:
            key = pending.pop()
            required.add(key)
            pending += tasks[key].needs
        return tuple(each for each in self.tasks if each.key in required)


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
    planner = _Planner(experiment, cases, data, deployed_model)
    planned: list[PlannedTrial] = []
    trials: dict[str, TrialSpec] = {}
    with document.placing():
        for specs in planner.specs_by_case():
            case = specs[0].case
            metrics = {name: ex.to_text(metric) for name, metric in case.metrics.items()}
            shared = (case.label, case.algorithm, case.options(), dict(case.point))
            for spec in specs:
                planned.append(PlannedTrial(spec.key, *shared, spec.seed, metrics))
                trials[spec.key] = spec
    tasks = [
        Task(spec.key, spec.required_keys(), spec, experiment.limits)
        for spec in _solved_together(trials)
    ]
    seconds = {trial.key: _stated_seconds(experiment, trial) for trial in planned}
    known = {key: each for key, each in seconds.items() if each is not None}
    first = set(_first_keys(planned))

    rows_text = cache(repr)

    def order(task: Task) -> tuple[bool, tuple[str, ...], int, str]:
        # first one trial of each algorithm, which shows early what fails and how long it takes;
        # workers cache the rows of few seeds only: keep tasks that share rows together
        spec: TrialSpec = task.payload
        return task.key not in first, spec.case.datasets, spec.seed, rows_text(spec.training_rows)

    return Plan(tuple(planned), tuple(sorted(tasks, key=order)), known)


def _family(case: Case, content: Mapping[str, str]) -> str:
    """Return `TrialSpec.family` of a trial, whose key is that of `content` as JSON."""
    alone = case.guard != MarginSpec() or case.settings or case.solver.most_together == 1
    if alone:
        return ""
    rates = [ex.to_text(leaf) for leaf in ex.leaves(*(goal.expression for goal in case.goals()))]
    rest = {name: each for name, each in content.items() if name not in GOAL_KEYS}
    return key_of_texts(rest | {"rates": json_text(rates)})


def _solved_together(trials: Mapping[str, TrialSpec]) -> Iterator[TrialSpec]:
    """Yield each trial with its block: neighbours in its family, which are solved together."""
    families: dict[str, list[str]] = {}
    for key, spec in trials.items():
        families.setdefault(spec.family, []).append(key)
    yield from (trials[key] for key in families.pop("", []))
    for keys in families.values():
        size = trials[keys[0]].case.solver.most_together
        for first in range(0, len(keys), size):
            block = keys[first : first + size]
            together = {key: trials[key].case for key in block} if len(block) > 1 else {}
            yield from (replace(trials[key], together=together) for key in block)


def algorithm_and_dataset(trial: PlannedTrial) -> tuple[str, object]:
    """Return the label of a trial's algorithm, and its data set if data sets are swept."""
    return trial.label, trial.point.get(DATASET_AXIS)


def _first_keys(trials: Sequence[PlannedTrial]) -> Iterable[str]:
    """Return the key of the first trial of each algorithm and swept data set."""
    return {algorithm_and_dataset(trial): trial.key for trial in reversed(trials)}.values()


def _stated_seconds(experiment: Experiment, trial: PlannedTrial) -> float | None:
    label, dataset = algorithm_and_dataset(trial)
    stated = experiment.trial_seconds.get(label)
    return stated.get(str(dataset)) if isinstance(stated, dict) else stated


class _Planner:
    """Makes the trials of cases; raises E310 for references that cannot be satisfied."""

    def __init__(
        self,
        experiment: Experiment,
        cases: Sequence[Case],
        data: ExperimentData,
        deployed_model: bytes | None,
    ) -> None:
        self.experiment, self.cases, self.data = experiment, cases, data
        self.deployed = experiment.deployed or DeployedSpec.model_construct()
        self.deployed_model = deployed_model
        self.data_of = cache(data.only)
        self.common = {"versions": code_versions(), "l2": experiment.regularization.l2}
        self.datasets = {
            name: {
                "digest": find_files(entry, data.folder, data.deployed).digest,
                "split": entry.division.stated(),
                "levels": entry.levels or 1,
            }
            for name, entry in data.entries.items()
        }
        self.filters = filter_stage_cases(cases)
        self.filter_specs = {
            (key, seed): self._spec(case, seed, self._content(case), case.sampling)
            for key, case in self.filters.items()
            for seed in experiment.seeds
        }
        own: dict[str, Any] = {"column": self.deployed.column, "of": {}, "deployed": None}
        if deployed_model is not None:
            own["deployed_model"] = hashlib.sha256(deployed_model).hexdigest()
        itself = self.deployed.algorithm
        self.contents = [
            self._content(case) | json_texts(own | {"itself": itself == case.label})
            for case in cases
        ]

    def specs_by_case(self) -> Iterator[list[TrialSpec]]:
        """Yield the trials of each case, and of each filter, in the order of seeds."""
        references = [self._references(case) for case in self.cases]
        graph = {k: set(needed.values()) - {k} for k, needed in enumerate(references)}
        try:
            order = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            cycle = [self.cases[k] for k in reversed(error.args[1])]  # each needs the next one
            labels = " -> ".join(case.label for case in cycle)
            message = f"algorithms depend on each other in a circle: {labels}"
            raise _reference_error(cycle[0], cycle[1].label, message) from None
        made: dict[int, list[TrialSpec]] = {}
        for index in order:
            needed = {label: k for label, k in references[index].items() if k != index}
            named = needed.keys() & self.cases[index].referenced_labels()
            made[index] = [
                self._make(index, seed, {label: made[k][s] for label, k in needed.items()}, named)
                for s, seed in enumerate(self.experiment.seeds)
            ]
        yield from (made[index] for index in range(len(self.cases)))
        for key in self.filters:
            yield [self.filter_specs[key, seed] for seed in self.experiment.seeds]

    def _content(self, case: Case) -> dict[str, str]:
        """Return the part of a trial's key that depends on its case alone, as JSON by name."""
        datasets = {name: self.datasets[name] for name in case.datasets}
        return json_texts(self.common | {"datasets": datasets} | case_key_content(case))

    def _spec(
        self,
        case: Case,
        seed: int,
        content: Mapping[str, str],
        training_rows: SamplingSpec,
        **references: Any,
    ) -> TrialSpec:
        content = {**content, "seed": json_text(seed)}
        key, l2 = key_of_texts(content), self.experiment.regularization.l2
        data, family = self.data_of(case.datasets), _family(case, content)
        return TrialSpec(key, seed, case, data, l2, training_rows, family=family, **references)

    def _make(
        self, index: int, seed: int, needed: Mapping[str, TrialSpec], labels: Collection[str]
    ) -> TrialSpec:
        """Return the trial of a case and seed; `needed` are the trials it refers to, by label.

        Those with one of the `labels` are named in `of(...)`.
        """
        case, of, deployed = self.cases[index], {}, None
        sampling = case.sampling
        rows = {spec.key: spec.training_rows for spec in needed.values()}
        for label in sorted(labels):
            _check_rows_of_other(case, needed[label].case, is_deployed=False)
            of[label] = needed[label].key
        itself = self.deployed.algorithm == case.label
        if itself:
            _check_own_decisions(case)
        elif self.deployed.algorithm is not None:
            other = needed[self.deployed.algorithm]
            _check_rows_of_other(case, other.case, is_deployed=True)
            deployed = other.key
            if case.solver.needs_deployed:  # its classifier may have a score as only feature
                sampling = replace(sampling, score=other.case.sampling.score)
        content = {**self.contents[index]}
        if needed:
            content |= json_texts({"of": of, "deployed": deployed})
        if case.filtering is not None:
            stage = self.filter_specs[case.filtering.key, seed]
            row_filter = RowFilter(stage.key, stage.case.sampling, case.filtering.take)
            content |= json_texts({"filter": {"key": row_filter.key, "take": row_filter.take}})
            sampling = replace(sampling, row_filter=row_filter)
        return self._spec(
            case,
            seed,
            content,
            sampling,
            of=of,
            deployed=deployed,
            is_deployed=itself,
            deployed_column=self.deployed.column,
            deployed_model=self.deployed_model,
            other_rows={key: each for key, each in rows.items() if each != sampling},
        )

    def _references(self, case: Case) -> dict[str, int]:
        """Return the cases that a case refers to, possibly itself, and the deployed one, by label.

        Raises E310 if a goal refers to the case's own result; metrics may.
        """
        deployed = self.deployed.algorithm
        labels = set(case.referenced_labels())
        if deployed is not None and deployed != case.label:
            labels.add(deployed)
        cases = {label: self._matching_case(label, case) for label in sorted(labels)}
        own = [label for label, k in cases.items() if self.cases[k] is case]
        in_goals = set(own).intersection(case.referenced_labels(goals_only=True))
        if in_goals and case.solver.role != "ignores":
            message = f"a goal of '{case.label}' depends on its own result by of({own[0]}, ...)"
            raise _reference_error(case, own[0], message, "name another algorithm")
        return cases

    def _matching_case(self, label: str, case: Case) -> int:
        """Return the only case of another algorithm that agrees with this case's sweep point."""
        hits = [
            index
            for index, other in enumerate(self.cases)
            if other.label == label
            and all(other.point[key] == case.point[key] for key in case.point.keys() & other.point)
        ]
        if len(hits) == 1:
            return hits[0]
        message = (
            f"'{case.label}' needs a single result of '{label}', but {len(hits)} match its point"
        )
        hint = "both must share the sweep names that distinguish the results"
        raise _reference_error(case, label, message, hint)


DEPLOYED_LOC: Loc = ("deployed", "algorithm")


def _reference_error(case: Case, label: str, message: str, hint: str | None = None) -> FaultError:
    """Return an E310 at the text where `case` refers to a result of `label`."""
    mentions = [
        (loc, part.span) for loc, tree in case.expressions() for part in references(tree, label)
    ]
    loc, span = mentions[0] if mentions else (DEPLOYED_LOC, None)
    return FaultError(Diagnostic("E310", message, hint, span, loc=loc))


def _check_own_decisions(case: Case) -> None:
    """Raise E310 if the deployed algorithm itself, or a goal of it, needs the deployed model."""
    uses_model = case.solver.role != "ignores" and any(map(uses_deployed_model, case.goals()))
    if case.solver.needs_deployed or uses_model:
        message = f"'{case.label}' is the deployed model, but needs a deployed model itself"
        hint = "deploy another algorithm"
        raise FaultError(Diagnostic("E310", message, hint, loc=DEPLOYED_LOC))


def _check_rows_of_other(case: Case, other: Case, *, is_deployed: bool) -> None:
    """Raise E310 if a goal of a safety-tested case depends on test rows.

    This happens if another algorithm, in `of(...)` or deployed, was trained on them, because its
    own safety test holds out other rows or none. An algorithm that audits the deployed model must
    have exactly the same rows.
    """
    same_rows, label = case.sampling.same_rows(other.sampling), other.label
    audits = is_deployed and case.solver.needs_deployed
    filters = {each and (each.key, each.take) for each in (case.filtering, other.filtering)}
    used = any(
        uses_deployed_model(goal) if is_deployed else references(goal.expression, label)
        for goal in relevant_goals(case)
    )
    if audits and (not same_rows or len(filters) > 1):
        message = f"'{case.label}' must use the same training rows as the deployed '{label}'"
    elif case.safety is not None and used and not same_rows:
        message = f"the safety test of '{case.label}' needs rows that '{label}' was not trained on"
    else:
        return
    hint = (
        f"give '{label}' the same filter, and the same fraction, stratify and order of `safety`, "
        "with `test: false` if it should not be tested itself"
    )
    if is_deployed:
        raise FaultError(Diagnostic("E310", message, hint, loc=DEPLOYED_LOC))
    raise _reference_error(case, label, message, hint)
