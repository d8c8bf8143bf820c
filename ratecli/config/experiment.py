"""The experiment: the validated content of a file, with all defaults filled in."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import MaxLen, MinLen
from pydantic import BeforeValidator, Field, ValidationError

from ratecli.config import base, trials
from ratecli.config.dataset import DatasetSpec, GroupCondition, OptionalResample
from ratecli.config.document import Document
from ratecli.config.report import Expectation, ReportSpec
from ratecli.config.sweep import CONSTRAINT_AXIS, DATASET_AXIS, Sweep, has_values, sweep_points
from ratecli.errors import Diagnostic, FaultError, Loc, unknown_name
from ratecli.files import COMPARISON_FOLDER, REPORT_FILE
from ratecli.rates.metrics import BUILTIN_NAMES
from ratecli.rates.table import DEPLOYED

PER_ROW_PATTERN = re.compile(rf"(?=[\d.]*[1-9]){trials.NUMBER}/n")
MAX_SEEDS = 10_000
MAX_BINS = 29
"""Limit on the values at which a column is cut: one less than the groups that `by=` takes."""
MAX_TRIALS = 100_000
"""Limit on the number of trials; all of them are planned before the first one runs."""
ALWAYS_MEASURED = dict.fromkeys(
    ("objective", base.SOLUTION_RATE, base.FAILURE_RATE), "measured in every experiment"
)
RESULT_COLUMNS = dict.fromkeys(
    ("algorithm", "variant", "seed", "split", "metric", "value"), "a column of the results"
)
RESERVED_RESULT_FILES = {
    "reference": "the folder of pinned numbers",
    REPORT_FILE: "the page over several experiments",
    COMPARISON_FOLDER: "the folder of a comparison of methods",
}
"""Other contents of the results folder; no experiment may have one of these names."""


def _validate_seeds(value: object) -> object:
    """Return the seeds as a tuple: those of a list, or 0 to n - 1 for a number n."""
    listed: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in listed):
        wanted = "a whole number or a list of whole numbers"
        raise base.type_error(wanted, value, "write 5 or [0, 1, 2]")
    seeds = range(min(value, MAX_SEEDS + 1)) if isinstance(value, int) else listed
    if not 1 <= len(seeds) <= MAX_SEEDS or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        wanted = f"a number from 1 to {MAX_SEEDS}, or a list of different whole numbers"
        raise base.value_error(wanted, base.quote_value(value))
    return tuple(seeds)


def validate_penalty(value: Any) -> Any:
    """Return the value of `l2`; raise E103 or E104 unless it is a positive number or like 1/n."""
    hint = "write a number, or 1/n for one over the number of training rows"
    if not base.is_scalar(value):
        raise base.type_error("a number or a text like 1/n", value, hint)
    if isinstance(value, int | float):
        good = 0 < value < math.inf
    else:
        good = bool(PER_ROW_PATTERN.fullmatch(str(value)))
    if not good:
        # without a penalty, an SVM on separable rows has no minimizer
        raise base.value_error("greater than 0 and finite", f"'{value}'", hint)
    return value


SeedsInput = (
    Annotated[int, Field(ge=1, le=MAX_SEEDS)]
    | Annotated[list[base.SeedNumber], Field(min_length=1)]
)
Seeds = Annotated[
    tuple[int, ...], BeforeValidator(_validate_seeds, json_schema_input_type=SeedsInput)
]


def _validate_bins(value: object) -> object:
    hint = "write increasing numbers, as in [30, 45, 60]"
    listed: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in listed):
        raise base.type_error("a list of numbers", value, hint)
    rising = all(low < high for low, high in itertools.pairwise(listed))
    if not listed or not rising or not all(map(math.isfinite, listed)):
        raise base.value_error("a list of increasing numbers", base.quote_value(value), hint)
    return tuple(map(float, listed))


Bins = Annotated[
    tuple[float, ...],
    BeforeValidator(_validate_bins, json_schema_input_type=Annotated[list[float], MinLen(1)]),
    MaxLen(MAX_BINS),
]
PenaltyInput = base.above_zero_or(PER_ROW_PATTERN)
Penalty = Annotated[
    float | str, BeforeValidator(validate_penalty, json_schema_input_type=PenaltyInput)
]


class Regularization(base.Spec):
    """The penalty on the size of a model's weights."""

    l2: Penalty = "1/n"
    """lambda of lambda/2 |w|^2: a number, or a/n with n training rows."""


class DeployedSpec(base.Spec):
    """The source of the deployed model's decisions."""

    column: base.ColumnName | None = None
    """The column that holds the deployed model's decisions: 0 and 1, yes and no, the words of the
    label, or two words of which `positive` is one.
    """
    positive: base.StrictText | None = None
    """The word for a positive decision in `column`, if it does not have the words of the label."""
    algorithm: base.NameText | None = None
    """The label of the algorithm whose classifier counts as deployed."""
    model: base.ColumnName | None = None
    """A stored classifier (.npz) of the same features, relative to the folder of this file."""

    def conflicts(self) -> Iterable[Diagnostic]:
        hint = "write {column: NAME}, {algorithm: LABEL} or {model: FILE.npz}"
        yield from self.check_one_key(("column", "algorithm", "model"), hint)
        if self.positive is not None and self.column is None:
            message = "'positive' is a word in a column, but 'column' is missing"
            yield Diagnostic("E104", message, "leave it out", loc=("positive",), key=True)


class Data(base.Spec):
    """The name of an experiment, and its data sets."""

    name: base.SlugText
    """Name of the results folder: a-z, digits, . _ -"""
    description: base.StrictText = ""
    """What the experiment shows, for the report."""
    datasets: Annotated[dict[base.NameText, DatasetSpec], Field(min_length=1)]
    """Data sets by a name of your choice, for rules such as recall[NAME]. They form one table,
    unless `sweep: {dataset: [...]}` selects them one by one.
    """


class Goals(base.Spec):
    """What is minimized, required and measured, and the groups that these rules name.

    Files, estimators, scorers and filters state their goals in it.
    """

    groups: dict[base.NameText, GroupCondition] = Field(default_factory=dict)
    """Named conditions on columns, as in women: sex = Female. Commas mean and; and, or, not and in
    (A, B) can be used; if data sets are swept, optionally one for each by name.
    """
    bins: dict[base.ColumnName, Bins] = Field(default_factory=dict)
    """For columns of numbers, the increasing values at which `by=` cuts them, as in age: [30, 45,
    60], where 30 belongs to the second group.
    """
    objective: base.RuleText = "error"
    """What to minimize: rates and arithmetic."""
    constraints: dict[base.NameText, base.RuleText] = Field(default_factory=dict)
    """Named rules: comparisons by <= or >=, also chained. All of them must hold, unless `sweep:
    {constraint: [...]}` selects them one by one.
    """
    metrics: dict[base.NameText, base.RuleText] = Field(default_factory=lambda: {"error": "error"})
    """Named expressions to measure on every split."""


class Problem(Goals):
    """Goals, and the algorithms that are trained and tested under them, on whatever rows."""

    regularization: Regularization = Field(default_factory=Regularization)
    """Penalty on the size of model weights."""
    deployed: DeployedSpec | None = None
    """The current model, for churn, wins, losses and of(deployed, ...)."""
    resample: OptionalResample = None
    """Ratio of sampled to available rows (it may exceed 1), or a name of the sweep. The training
    rows of each seed are sampled with replacement from all rows of each data set. All rows form the
    test set, so test metrics are exact values, not estimates.
    """
    holds: trials.Holds = "train"
    """The rows on which constraints must hold: the training rows, the validation rows, or new rows
    from the population of the training rows. For validation and new rows, constraints are tightened
    in training. If no useful model satisfies them then, the trial ends as no_solution_found.
    """
    level: trials.Level | None = None
    """The probability with which all constraints must hold in the population of the training or
    validation rows. Default: 0.9 for new_rows; for validation, constraints must hold on these rows
    only.
    """
    safety: trials.OptionalSafety = None
    """A test of every constraint on held-out rows: a model that fails it is not returned, and the
    trial ends as no_solution_found.
    """
    filter: trials.OptionalFilter = None
    """A balanced filter of the training rows; its own trials are called filter."""
    sweep: Sweep = Field(default_factory=Sweep)
    """What varies: names with values, for rules and options."""
    algorithms: Annotated[tuple[trials.AlgorithmSpec, ...], Field(min_length=1)]
    """The algorithms to compare: names, or names with options."""

    def conflicts(self) -> Iterator[Diagnostic]:
        yield from _check_names(self)
        yield from _check_labels(self)
        yield from _check_axis(self, CONSTRAINT_AXIS, "constraint", self.constraints)
        yield from _check_levels(self)
        yield from _check_safety_tests(self)

    def sweeps(self) -> Iterator[tuple[Loc, Sweep]]:
        """Yield the experiment's sweep and each algorithm's own sweep, with their locations."""
        yield ("sweep",), self.sweep
        for k, entry in enumerate(self.algorithms):
            if entry.sweep is not None:
                yield ("algorithms", k, entry.name, "sweep"), entry.sweep

    def swept_names(self) -> list[str]:
        """Return the swept names, including those of the algorithms' own sweeps."""
        return list(dict.fromkeys(name for _, sweep in self.sweeps() for name in sweep.names))

    def safety_tests(self) -> dict[Loc, trials.SafetySpec]:
        """Return the safety test of the file and those of algorithms, by location."""
        tests: dict[Loc, object] = {("safety",): self.safety}
        for k, entry in enumerate(self.algorithms):
            tests["algorithms", k, entry.name, "safety"] = entry.safety
        return {loc: test for loc, test in tests.items() if isinstance(test, trials.SafetySpec)}

    def entry(self, label: str) -> trials.AlgorithmSpec:
        """Return the algorithm's entry with a label."""
        return next(entry for entry in self.algorithms if entry.label == label)

    def entry_loc(self, label: str, *inside: str | int) -> Loc:
        """Return the location of an algorithm's entry, or of something inside its options."""
        entry = self.entry(label)
        return ("algorithms", self.algorithms.index(entry), entry.name, *inside)

    def holds_loc(self, label: str) -> Loc:
        """Return the location of the `holds` that applies to an algorithm's entry."""
        if self.entry(label).holds is None:
            return ("holds",)
        return self.entry_loc(label, "holds")

    def swept_values(self) -> dict[str, list[Any]]:
        """Return all values of each swept name, also those that only an algorithm sweeps."""
        found: dict[str, list[Any]] = {}
        for _, sweep in self.sweeps():
            for name in sweep.names:
                found.setdefault(name, []).extend(value for _, value in sweep.value_locs(name))
        return found


class Experiment(Problem, Data):
    """An experiment of ratecli: data, goals, algorithms, and what to report."""

    seeds: Seeds = (0,)
    """How many seeds (5 means 0 to 4), or a list of them."""
    goal: dict[base.NameText, base.ScalarValue] = Field(default_factory=dict)
    """The sweep point that `run` answers first and `fit` trains, as in {limit: 0.8}. Other points
    show the trade-off.
    """
    limits: trials.LimitsSpec = Field(default_factory=trials.LimitsSpec)
    """Time and memory limits of a trial."""
    trial_seconds: dict[base.NameText, trials.TrialSeconds] = Field(default_factory=dict)
    """Mean seconds of a trial of each algorithm, as measured, from which `plan` and `run` estimate
    times; if data sets are swept, optionally one for each by name.
    """
    report: ReportSpec = Field(default_factory=ReportSpec)
    """Tables and plots to make."""
    expect: tuple[Expectation, ...] = ()
    """Numbers to compare results with, such as a paper's figures."""

    def conflicts(self) -> Iterator[Diagnostic]:
        yield from _check_names_of_data(self)
        yield from super().conflicts()
        yield from _check_datasets(self)
        yield from _check_folds(self)
        yield from _check_goal(self)
        yield from _check_groups(self)
        yield from _check_trial_seconds(self)
        yield from _check_trial_count(self)


def _check_names(problem: Problem) -> Iterator[Diagnostic]:
    """Yield an E106 for each name that has another meaning in rules or results."""
    groups = dict.fromkeys(problem.groups, "a group")
    metrics = dict.fromkeys(problem.metrics, "a metric")
    language = dict.fromkeys(BUILTIN_NAMES, "a metric or function of the language")
    yield from _check_free(ALWAYS_MEASURED, [("metrics", name) for name in metrics])
    swept = [(*loc, name) for loc, sweep in problem.sweeps() for name in sweep.names]
    yield from _check_free(language | RESULT_COLUMNS | ALWAYS_MEASURED | metrics | groups, swept)


def _check_free(taken: Mapping[str, str], locs: Iterable[Loc]) -> Iterator[Diagnostic]:
    """Yield an E106 for each name, the last part of a location, that is taken."""
    for loc in locs:
        if (name := str(loc[-1])) in taken:
            message = f"'{name}' is already {taken[name]}"
            yield Diagnostic("E106", message, "choose another name", loc=loc, key=True)


def _check_names_of_data(experiment: Experiment) -> Iterator[Diagnostic]:
    """Yield an E106 for each name of a data set or of a file of results that is taken."""
    datasets = dict.fromkeys(experiment.datasets, "a data set")
    named: list[Loc] = [("groups", name) for name in experiment.groups]
    named += [(*loc, name) for loc, sweep in experiment.sweeps() for name in sweep.names]
    yield from _check_free(datasets, named)
    if meaning := RESERVED_RESULT_FILES.get(experiment.name):
        message = f"'{experiment.name}' is already {meaning}"
        yield Diagnostic("E106", message, "choose another name", loc=("name",))
    for part in ("tables", "plots"):
        seen: set[str] = set()
        for k, entry in enumerate(getattr(experiment.report, part) or ()):
            if entry.file in seen:
                message = f"two {part} are written to the file {base.quote_value(entry.file)}"
                loc = ("report", part, k, "file")
                yield Diagnostic("E106", message, "name another file", loc=loc)
            seen |= {entry.file} - {None}


def _check_labels(problem: Problem) -> Iterator[Diagnostic]:
    taken = {DEPLOYED: f"the deployed model in rules: of({DEPLOYED}, ...)"}
    if problem.filter is not None:
        taken[trials.FILTER] = "the label of the results of `filter:`"
    for k, entry in enumerate(problem.algorithms):
        if entry.label in taken:
            message = f"'{entry.label}' is already {taken[entry.label]}"
            hint = f"give the algorithm another label: {entry.name}: {{as: NAME}}"
            yield Diagnostic("E106", message, hint, loc=("algorithms", k, entry.name, "as"))
        taken[entry.label] = "the label of another algorithm"
    labels = [entry.label for entry in problem.algorithms]
    deployed = problem.deployed.algorithm if problem.deployed else None
    if deployed is not None and deployed not in labels:
        yield unknown_name("E104", "algorithm", deployed, labels, "deployed", "algorithm")


def _check_axis(
    problem: Problem, axis: str, kind: str, known: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield an E104 for each value of the name `axis` that is not `known`, the names of a `kind`.

    Also if only an algorithm sweeps it.
    """
    for loc, sweep in problem.sweeps():
        for inside, value in sweep.value_locs(axis):
            if value not in known:
                yield unknown_name("E104", kind, str(value), known, *loc, *inside)
        if axis in sweep.axes and axis not in problem.sweep.axes:
            message = f"'{axis}' is swept for one algorithm only"
            hint = f"sweep it for all: an algorithm's own sweep may then select some {kind}s"
            yield Diagnostic("E104", message, hint, loc=(*loc, axis), key=True)


def _check_datasets(experiment: Experiment) -> Iterator[Diagnostic]:
    """Yield errors of swept data sets, and of keys that cannot be combined with other parts."""
    datasets, swept = experiment.datasets, DATASET_AXIS in experiment.sweep.axes
    yield from _check_axis(experiment, DATASET_AXIS, "data set", datasets)
    (first, *_), levels = datasets, {name: entry.levels for name, entry in datasets.items()}
    for name in datasets if not swept else ():
        if levels[name] != levels[first]:
            message = f"'{name}' and '{first}' form one table but have different levels"
            hint = "write equal levels for both, or sweep the data sets"
            yield Diagnostic("E104", message, hint, loc=("datasets", name, "levels"))
    conflicts = (
        (experiment.safety_tests(), "levels", "safety", "copies of a row are not independent"),
        (experiment.filter, "levels", "filter", "copies of a row are kept together"),
        (experiment.resample, "split", "resample", "training rows are sampled at random"),
    )
    for present, key, other, reason in conflicts:
        for name, entry in datasets.items() if present else ():
            if getattr(entry, key) is not None:
                message = f"'{key}' cannot be combined with '{other}': {reason}"
                loc = ("datasets", name, key)
                yield Diagnostic("E104", message, "remove one of them", loc=loc, key=True)


def _check_folds(experiment: Experiment) -> Iterator[Diagnostic]:
    """Yield an error unless the seeds make each row a test row equally often."""
    splits = [entry.division for entry in experiment.datasets.values()]
    for folds in {each.folds or 1 for each in splits if not each.has_no_test}:
        whole = Counter(seed // folds for seed in experiment.seeds)
        if set(whole.values()) != {folds}:
            message = f"{len(experiment.seeds)} seeds do not test each row of {folds} folds equally"
            hint = f"write seeds: {folds}, or a multiple"
            yield Diagnostic("E104", message, hint, loc=("seeds",))


def _check_goal(experiment: Experiment) -> Iterator[Diagnostic]:
    """Yield an error unless the goal is one point of the sweep."""
    goal, names = experiment.goal, experiment.sweep.names
    unknown = [name for name in goal if name not in names]
    for name in unknown:
        yield unknown_name("E104", "swept name", name, names, "goal", name, key=True)
    found = [point for point in sweep_points(experiment.sweep) if has_values(point, goal)]
    if goal and not unknown and len(found) != 1:
        message = f"the goal is not one point of the sweep, but {len(found)}"
        hint = f"name a value of the sweep for each of {', '.join(names)}"
        yield Diagnostic("E104", message, hint, loc=("goal",))


def _check_groups(experiment: Experiment) -> Iterator[Diagnostic]:
    """Yield errors of groups that have a condition for each data set."""
    for name, group in experiment.groups.items():
        loc = ("groups", name)
        if isinstance(group, str):
            continue
        if DATASET_AXIS not in experiment.sweep.axes:
            message = f"'{name}' has a condition for each data set, but they form one table"
            hint = "write one condition, or `sweep: {dataset: [...]}`"
            yield Diagnostic("E104", message, hint, loc=loc, key=True)
        unknown = [each for each in group if each not in experiment.datasets]
        for each in unknown:
            yield unknown_name("E104", "data set", each, experiment.datasets, *loc, each, key=True)
        missing = [each for each in experiment.datasets if each not in group]
        if missing and not unknown:
            message = f"the group '{name}' has no condition for '{missing[0]}'"
            yield Diagnostic("E102", message, f"add {missing[0]}: condition", loc=loc, key=True)


def _check_safety_tests(problem: Problem) -> Iterator[Diagnostic]:
    rules = problem.constraints
    for loc, test in problem.safety_tests().items():
        if not rules:
            message = "'safety' has nothing to test: there are no constraints"
            hint = "write `constraints`, or remove the test"
            yield Diagnostic("E104", message, hint, loc=loc, key=True)
        for name in test.delta if rules and isinstance(test.delta, dict) else ():
            if name not in rules:
                yield unknown_name("E203", "constraint", name, rules, *loc, "delta", name, key=True)


def _check_levels(problem: Problem) -> Iterator[Diagnostic]:
    """Yield an error for each level of constraints that have to hold on training rows only."""
    entries, common = problem.algorithms, problem.holds
    used = {common, *(entry.holds for entry in entries)}
    levels: list[tuple[Loc, float | None, set[trials.Holds | None]]] = [((), problem.level, used)]
    levels += [
        (problem.entry_loc(entry.label), entry.level, {entry.holds or common}) for entry in entries
    ]
    for loc, level, holds in levels:
        if level is not None and holds <= {"train", None}:
            message = "'level' has no effect: constraints hold on training rows"
            yield Diagnostic("E104", message, "add holds: new_rows", loc=(*loc, "level"), key=True)


def _check_trial_seconds(experiment: Experiment) -> Iterator[Diagnostic]:
    labels = [entry.label for entry in experiment.algorithms]
    labels += [trials.FILTER] if experiment.filter is not None else []
    for label, seconds in experiment.trial_seconds.items():
        loc = ("trial_seconds", label)
        if label not in labels:
            yield unknown_name("E104", "algorithm", label, labels, *loc, key=True)
        for name in seconds if isinstance(seconds, dict) else ():
            if name not in experiment.datasets:
                yield unknown_name(
                    "E104", "data set", name, experiment.datasets, *loc, name, key=True
                )


def _check_trial_count(experiment: Experiment) -> Iterator[Diagnostic]:
    points = len(sweep_points(experiment.sweep))
    own = [len(sweep_points(entry.sweep)) if entry.sweep else 1 for entry in experiment.algorithms]
    trials = points * sum(own) * len(experiment.seeds)
    if trials > MAX_TRIALS:
        message = f"this makes {trials} trials; at most {MAX_TRIALS} are allowed"
        hint = "use fewer seeds or points, or several files"
        yield Diagnostic("E105", message, hint, loc=("algorithms",), key=True)


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> tuple[Experiment, Document]:
    """Read an experiment file; raise FaultError with all errors in it."""
    document = Document.read(path).with_overrides(overrides)
    return read_experiment(document), document


S = TypeVar("S", bound=base.Spec)


def read_experiment(document: Document) -> Experiment:
    """Validate a document; raise FaultError with the locations of all E1xx and E302 errors."""
    return read_spec(Experiment, document)


def read_spec(kind: type[S], document: Document) -> S:
    """Validate a document that is a part of a file; raise FaultError as `read_experiment` does."""
    try:
        return kind.model_validate(document.data)
    except ValidationError as error:
        placed = map(document.placed, base.diagnostics_of(error))
        faults = {(each.place, each.code, each.message): each for each in placed}
        raise FaultError(sorted(faults.values(), key=_file_order)) from None


def _file_order(fault: Diagnostic) -> tuple[bool, int, int]:
    """Return a key that sorts errors by their places, those of overrides last."""
    assert fault.place is not None
    return fault.place.file == "--set", fault.place.line, fault.place.column


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of files, including defaults and short forms."""
    schema = Experiment.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
