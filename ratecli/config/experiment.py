"""The experiment: the validated content of a file, with all defaults filled in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from ratecli.config.algorithm import AlgorithmSpec
from ratecli.config.base import (
    ColumnName,
    NameText,
    RuleText,
    SlugText,
    Spec,
    StrictText,
    any_of,
    check_one_key,
    is_scalar,
    matching,
)
from ratecli.config.conflicts import MAX_SEEDS, find_conflicts
from ratecli.config.dataset import DatasetSpec, GroupCondition, OptionalResample
from ratecli.config.document import Document
from ratecli.config.filter import OptionalFilter
from ratecli.config.override import apply_overrides
from ratecli.config.report import Expectation, ReportSpec
from ratecli.config.safety import OptionalSafety
from ratecli.config.sweep import DATASET_AXIS, Sweep, SweepField, SweepPoint
from ratecli.config.validation import diagnostics_of, sort_by_place, type_error, value_error
from ratecli.errors import Diagnostic, FaultError, InvalidValueError, Loc

NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,2})?"
AMOUNT_PATTERN = re.compile(rf"({NUMBER}) ?([A-Za-z]+)")
PER_ROW_PATTERN = re.compile(rf"(?=[\d.]*[1-9]){NUMBER}/n")
SECONDS_PER_UNIT = {"s": 1.0, "min": 60.0, "h": 3600.0}
BYTES_PER_UNIT = {
    **{unit: 1000.0**k for k, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{unit: 1024.0**k for k, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
}
MAX_SECONDS = 30 * 86400.0
MIN_MEMORY = 64 * 2**20
MAX_MEMORY = 2**50


def _validate_seconds(value: object) -> object:
    hint = "write seconds, or a text like 90 s, 10 min or 2 h"
    seconds = _parse_amount(value, SECONDS_PER_UNIT, hint)
    if not 0 < seconds <= MAX_SECONDS:
        raise value_error("more than 0 and at most 30 days", f"'{value}'", hint)
    return seconds


def _validate_bytes(value: object) -> object:
    hint = "write a text like 512 MiB or 4 GiB"
    count = _parse_amount(value, BYTES_PER_UNIT, hint)
    if not MIN_MEMORY <= count <= MAX_MEMORY:
        wanted = "from 64 MiB, which Python itself needs, to 1 PiB"
        raise value_error(wanted, f"'{value}'", hint)
    return int(count)


def _parse_amount(value: object, units: dict[str, float], hint: str) -> float:
    """Return a number unchanged, or the number in a text times its unit."""
    if not is_scalar(value):
        raise type_error("a number or a text", value, hint)
    if isinstance(value, int | float):
        return float(value)
    found = AMOUNT_PATTERN.fullmatch(str(value))
    if found is None or found[2] not in units:
        raise value_error(f"a number with one of the units {', '.join(units)}", f"'{value}'", hint)
    return float(found[1]) * units[found[2]]


def _amount_schema(units: dict[str, float]) -> WithJsonSchema:
    pattern = rf"^[0-9.]+(?:[eE][-+]?[0-9]+)? ?({'|'.join(units)})$"
    number = {"type": "number", "exclusiveMinimum": 0}
    return any_of(number, {"type": "string", "pattern": pattern})


DurationField = Annotated[
    float, BeforeValidator(_validate_seconds), _amount_schema(SECONDS_PER_UNIT)
]
MemoryField = Annotated[int, BeforeValidator(_validate_bytes), _amount_schema(BYTES_PER_UNIT)]


class LimitsSpec(Spec):
    """Time and memory limits of a trial. They do not affect results, so they are not in its key."""

    time: DurationField | None = Field(
        None,
        description="A trial that runs longer ends as timeout: seconds, or a text like 10 min.",
    )
    memory: MemoryField | None = Field(
        None,
        description="A trial whose process needs more ends as error, and streamed data sets are "
        "read in smaller pieces: a text like 2 GiB.",
    )


def _validate_seeds(value: object) -> object:
    """Return the seeds as a tuple: those of a list, or 0 to n - 1 for a number n."""
    listed: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in listed):
        wanted = "a whole number or a list of whole numbers"
        raise type_error(wanted, value, "write 5 or [0, 1, 2]")
    if isinstance(value, int):
        if not 1 <= value <= MAX_SEEDS:
            raise value_error(f"from 1 to {MAX_SEEDS}", value)
        return tuple(range(value))
    if not 1 <= len(listed) <= MAX_SEEDS:
        raise value_error(f"a list of 1 to {MAX_SEEDS} numbers", f"of {len(listed)}")
    if min(listed) < 0:
        message = f"a seed must be at least 0, not {min(listed)}"
        raise InvalidValueError(Diagnostic("E104", message))
    if len(set(listed)) < len(listed):
        raise value_error("a list of different numbers", value)
    return tuple(listed)


def _validate_penalty(value: object) -> object:
    hint = "write a number, or 1/n for one over the number of training rows"
    if not is_scalar(value):
        raise type_error("a number or a text like 1/n", value, hint)
    if isinstance(value, int | float):
        good = 0 < value < math.inf
    else:
        good = bool(PER_ROW_PATTERN.fullmatch(str(value)))
    if not good:
        # without a penalty, an SVM on separable rows has no minimizer
        raise value_error("greater than 0 and finite", f"'{value}'", hint)
    return value


Seeds = Annotated[
    tuple[int, ...],
    BeforeValidator(_validate_seeds),
    any_of(
        {"type": "integer", "minimum": 1, "maximum": MAX_SEEDS},
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
    ),
]
Penalty = Annotated[
    float | str,
    BeforeValidator(_validate_penalty),
    any_of({"type": "number", "exclusiveMinimum": 0}, matching(PER_ROW_PATTERN)),
]


class Regularization(Spec):
    """The penalty on the size of a model's weights."""

    l2: Penalty = Field(
        "1/n", description="lambda of lambda/2 |w|^2: a number, or a/n with n training rows."
    )


class DeployedSpec(Spec):
    """The source of the deployed model's decisions."""

    column: ColumnName | None = Field(
        None, description="The column that holds the deployed model's decisions."
    )
    algorithm: NameText | None = Field(
        None, description="The label of the algorithm whose classifier counts as deployed."
    )
    model: ColumnName | None = Field(
        None,
        description="A stored classifier (.npz) of the same features, relative to the folder of "
        "this file.",
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Diagnostic]:
        hint = "write {column: NAME}, {algorithm: LABEL} or {model: FILE.npz}"
        misspelt = bool(set(raw) - set(cls.model_fields))
        return check_one_key(raw, tuple(cls.model_fields), hint, misspelt=misspelt)


class Experiment(Spec):
    """An experiment of ratecli: data, goals, algorithms, and what to report."""

    name: SlugText = Field(description="Names the folder of results: small letters, digits, . _ -")
    description: StrictText = Field("", description="What the experiment shows, for the report.")
    datasets: Annotated[dict[NameText, DatasetSpec], Field(min_length=1)] = Field(
        description="Data sets by a name of your choice, for rules such as recall[NAME]. They form "
        "one table, unless `sweep: {dataset: [...]}` selects them one by one."
    )
    groups: dict[NameText, GroupCondition] = Field(
        default_factory=dict,
        description="Named row conditions, as in women: sex = Female; if data sets are swept, "
        "optionally one for each of them by name.",
    )
    objective: RuleText = Field("error", description="What to minimize: rates and arithmetic.")
    constraints: dict[NameText, RuleText] = Field(
        default_factory=dict, description="Named rules: comparisons by <= or >=, also chained."
    )
    regularization: Regularization = Field(
        default_factory=lambda: Regularization.model_validate({}),
        description="Penalty on the size of model weights.",
    )
    deployed: DeployedSpec | None = Field(
        None, description="The current model, for churn, wins, losses and of(deployed, ...)."
    )
    resample: OptionalResample = Field(
        None,
        description="Draw the training rows of each seed with replacement from all rows of each "
        "data set, and test on all rows, which are then the whole population. The ratio of drawn "
        "to available rows (it may exceed 1), or a name of the sweep.",
    )
    safety: OptionalSafety = Field(
        None,
        description="A test of every constraint on held-out rows: a model that fails it is not "
        "returned, and the trial ends as no_solution_found.",
    )
    filter: OptionalFilter = Field(
        None,
        description="A balanced filter of the training rows; its own trials are called filter.",
    )
    sweep: SweepField = Field(
        default_factory=Sweep, description="What varies: names with values, for rules and options."
    )
    algorithms: Annotated[tuple[AlgorithmSpec, ...], Field(min_length=1)] = Field(
        description="The algorithms to compare: names, or names with options."
    )
    seeds: Seeds = Field((0,), description="How many seeds (5 means 0 to 4), or a list of them.")
    limits: LimitsSpec = Field(
        default_factory=lambda: LimitsSpec.model_validate({}),
        description="Time and memory limits of a trial.",
    )
    metrics: dict[NameText, RuleText] = Field(
        default_factory=lambda: {"error": "error"},
        description="Named expressions to measure on every split.",
    )
    report: ReportSpec = Field(
        default_factory=lambda: ReportSpec.model_validate({}),
        description="Tables and plots to make.",
    )
    expect: tuple[Expectation, ...] = Field(
        (), description="Numbers to compare results with, such as a paper's figures."
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Diagnostic]:
        return find_conflicts(raw)

    def entry_loc(self, label: str, *inside: str | int) -> Loc:
        """Return the location of an algorithm's entry, or of something inside its options."""
        labels = [entry.label for entry in self.algorithms]
        index = labels.index(label)
        return ("algorithms", index, self.algorithms[index].name, *inside)

    def pool(self, point: SweepPoint) -> tuple[str, ...]:
        """Return the data sets whose rows are pooled at a sweep point, in alphabetical order."""
        one = point.get(DATASET_AXIS)
        return tuple(sorted(self.datasets)) if one is None else (str(one),)

    def resolved(self) -> dict[str, Any]:
        """Return the experiment with all defaults as plain data that is again a valid file."""
        data = self.model_dump(mode="json", exclude={"algorithms", "datasets", "expect", "seeds"})
        special: dict[str, Any] = {
            "datasets": {name: entry.options() for name, entry in self.datasets.items()},
            "algorithms": [entry.as_file() for entry in self.algorithms],
            "seeds": list(self.seeds),
            "filter": self.filter and self.filter.as_file(),
            "expect": [entry.as_file() for entry in self.expect],
        }
        absent = {
            key for key in ("resample", "safety", "filter") if data[key] is None
        }  # null would not be valid in a file
        keys = [key for key in type(self).model_fields if key not in absent]
        return {key: special.get(key, data.get(key)) for key in keys}


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> tuple[Experiment, Document]:
    """Read an experiment file; raise FaultError with all errors in it."""
    document = apply_overrides(Document.read(path), overrides)
    return read_experiment(document), document


def read_experiment(document: Document) -> Experiment:
    """Validate a document; raise FaultError with the locations of all E1xx and E302 errors."""
    try:
        return Experiment.model_validate(document.data)
    except ValidationError as error:
        faults = [document.placed(each) for each in diagnostics_of(error)]
        raise FaultError(sort_by_place(faults)) from None


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of files, including defaults and short forms."""
    schema = Experiment.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
