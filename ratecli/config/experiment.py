"""The experiment: the validated content of a file, with all defaults filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from ratecli.config.algorithm import AlgorithmSpec, SweepField
from ratecli.config.base import ColumnName, NameText, RuleText, SlugText, Spec, StrictText
from ratecli.config.conflicts import MAX_SEEDS, find_conflicts
from ratecli.config.dataset import DatasetSpec, OptionalResample
from ratecli.config.dataset_sweep import DATASET_AXIS, GroupCondition
from ratecli.config.document import LOCATION_MARK, Document
from ratecli.config.filter import OptionalFilter
from ratecli.config.override import apply_overrides
from ratecli.config.report import Expectation, ReportSpec
from ratecli.config.safety import OptionalSafety
from ratecli.config.sweep import Sweep, SweepPoint
from ratecli.config.validation import describe_type, diagnostics_of, sort_by_place
from ratecli.errors import Diagnostic, FaultError, InvalidValueError

AMOUNT_PATTERN = re.compile(r"((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,2})?) ?([A-Za-z]+)")
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
        message = f"{LOCATION_MARK} must be more than nothing and at most 30 days, not '{value}'"
        raise _limit_error("E104", message, hint)
    return seconds


def _validate_bytes(value: object) -> object:
    hint = "write a text like 512 MiB or 4 GiB"
    found = _parse_amount(value, BYTES_PER_UNIT, hint)
    if not MIN_MEMORY <= found <= MAX_MEMORY:
        message = (
            f"{LOCATION_MARK} must be from 64 MiB, which Python alone takes, to 1 PiB, not "
            f"'{value}'"
        )
        raise _limit_error("E104", message, hint)
    return int(found)


def _parse_amount(value: object, units: dict[str, float], hint: str) -> float:
    """Return a number unchanged, or the number in a text times its unit."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _limit_error(
            "E103", f"{LOCATION_MARK} must be a number or a text, not {describe_type(value)}", hint
        )
    if not isinstance(value, str):
        return float(value)
    found = AMOUNT_PATTERN.fullmatch(value)
    if found is None or found[2] not in units:
        message = f"'{value}' is no amount with one of the units {', '.join(units)}"
        raise _limit_error("E104", message, hint)
    return float(found[1]) * units[found[2]]


def _limit_error(code: str, message: str, hint: str) -> InvalidValueError:
    return InvalidValueError(Diagnostic(code, message, hint))


def _amount_schema(units: dict[str, float]) -> WithJsonSchema:
    pattern = rf"^[0-9.]+(?:[eE][-+]?[0-9]+)? ?({'|'.join(units)})$"
    number = {"type": "number", "exclusiveMinimum": 0}
    return WithJsonSchema({"anyOf": [number, {"type": "string", "pattern": pattern}]})


DurationField = Annotated[
    float, BeforeValidator(_validate_seconds), _amount_schema(SECONDS_PER_UNIT)
]
MemoryField = Annotated[int, BeforeValidator(_validate_bytes), _amount_schema(BYTES_PER_UNIT)]


class LimitsSpec(Spec):
    """Time and memory limits of a trial. They do not affect results, so they are not in its key."""

    time: DurationField | None = Field(
        None,
        description="A trial that runs longer is ended as timeout: seconds, or a text like 10 min.",
    )
    memory: MemoryField | None = Field(
        None,
        description="A trial whose process holds more is ended as error, and streamed data sets "
        "are read in pieces that stay within it: a text like 2 GiB.",
    )


PER_ROW_PATTERN = re.compile(r"(?=[\d.]*[1-9])(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,2})?/n")


def _validate_seeds(value: object) -> object:
    if isinstance(value, tuple):
        return value
    if isinstance(value, list) and all(_is_whole(each) for each in value):
        return _listed_seeds(value)
    if not (isinstance(value, int) and _is_whole(value)):
        wrong = "a list of other things" if isinstance(value, list) else describe_type(value)
        message = f"{LOCATION_MARK} must be a whole number or a list of whole numbers, not {wrong}"
        raise _experiment_error("E103", message, "write 5 or [0, 1, 2]")
    if not 1 <= value <= MAX_SEEDS:
        raise _experiment_error(
            "E104", f"{LOCATION_MARK} must be from 1 to {MAX_SEEDS}, not {value}", None
        )
    return tuple(range(value))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _listed_seeds(seeds: list[int]) -> tuple[int, ...]:
    if not 1 <= len(seeds) <= MAX_SEEDS:
        message = f"{LOCATION_MARK} must list from 1 to {MAX_SEEDS} numbers, not {len(seeds)}"
        raise _experiment_error("E104", message, None)
    if min(seeds) < 0:
        raise _experiment_error("E104", f"a seed must be at least 0, not {min(seeds)}", None)
    if len(set(seeds)) < len(seeds):
        twice = next(seed for k, seed in enumerate(seeds) if seed in seeds[:k])
        raise _experiment_error(
            "E104", f"the seed {twice} stands twice", "every seed makes its own trials"
        )
    return tuple(seeds)


def _validate_penalty(value: object) -> object:
    hint = "write a number, or 1/n for one over the number of training rows"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        message = f"{LOCATION_MARK} must be a number or a text like 1/n, not {describe_type(value)}"
        raise _experiment_error("E103", message, hint)
    good = PER_ROW_PATTERN.fullmatch(value) if isinstance(value, str) else 0 < value < float("inf")
    if not good:
        # without a penalty, an SVM on separable rows has no minimizer
        raise _experiment_error(
            "E104", f"{LOCATION_MARK} must be greater than 0 and finite, not '{value}'", hint
        )
    return value


def _experiment_error(code: str, message: str, hint: str | None) -> InvalidValueError:
    return InvalidValueError(Diagnostic(code, message, hint))


Seeds = Annotated[
    tuple[int, ...],
    BeforeValidator(_validate_seeds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_SEEDS},
                {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
            ]
        }
    ),
]
Penalty = Annotated[
    float | str,
    BeforeValidator(_validate_penalty),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": f"^{PER_ROW_PATTERN.pattern}$"},
            ]
        }
    ),
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
        given = [key for key in raw if key in cls.model_fields and raw[key] is not None]
        if len(given) == 1 or set(raw) - set(cls.model_fields):
            return []
        hint = "write {column: NAME}, {algorithm: LABEL} or {model: FILE.npz}"
        if given:
            message = "give one of 'column', 'algorithm' and 'model'"
            return [Diagnostic("E104", message, hint, loc=(given[1],), key=True)]
        message = f"{LOCATION_MARK} needs a 'column', an 'algorithm' or a 'model'"
        return [Diagnostic("E102", message, hint, key=True)]


class Experiment(Spec):
    """An experiment of ratecli: data, goals, algorithms, and what to report."""

    name: SlugText = Field(description="Names the folder of results: small letters, digits, . _ -")
    description: StrictText = Field("", description="What the experiment asks, for the report.")
    datasets: Annotated[dict[NameText, DatasetSpec], Field(min_length=1)] = Field(
        description="Data sets by a name of your choice; rules use it, as in recall[NAME]. Their "
        "rows are one table, unless `sweep: {dataset: [...]}` takes them one by one."
    )
    groups: dict[NameText, GroupCondition] = Field(
        default_factory=dict,
        description="Named row conditions, as in women: sex = Female; where data sets are swept, "
        "one for each may be given by its name.",
    )
    objective: RuleText = Field("error", description="What to minimize: rates and arithmetic.")
    constraints: dict[NameText, RuleText] = Field(
        default_factory=dict, description="Named rules: two rates compared by <=, >= or a chain."
    )
    regularization: Regularization = Field(
        default_factory=lambda: Regularization.model_validate({}),
        description="What is added to the objective to keep models small.",
    )
    deployed: DeployedSpec | None = Field(
        None,
        description="The model in use, which churn, wins, losses and of(deployed, ...) compare "
        "with.",
    )
    resample: OptionalResample = Field(
        None,
        description="Training rows of each seed are drawn with replacement from all rows of each "
        "data set, this share as many as there are (it may exceed 1), and all rows are test rows: "
        "what a model does is known exactly. A number, or a name of the sweep.",
    )
    safety: OptionalSafety = Field(
        None,
        description="A test of every constraint on rows that no algorithm sees: a model that "
        "fails it is not given, and the trial ends as no_solution_found.",
    )
    filter: OptionalFilter = Field(
        None,
        description="A balanced filter that training rows go through before any algorithm sees "
        "them; its own trials are called filter.",
    )
    sweep: SweepField = Field(
        default_factory=Sweep,
        description="What varies: names with their values; rules and options use the names.",
    )
    algorithms: Annotated[tuple[AlgorithmSpec, ...], Field(min_length=1)] = Field(
        description="The algorithms to compare: names, or names with options."
    )
    seeds: Seeds = Field((0,), description="How many seeds (5 means 0 to 4), or a list of them.")
    limits: LimitsSpec = Field(
        default_factory=lambda: LimitsSpec.model_validate({}),
        description="What a trial may take before it is ended.",
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
        (), description="Numbers that must come out, and a paper's figures to stand beside ours."
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Diagnostic]:
        return find_conflicts(raw)

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
            "filter": self.filter and self.filter.given(),
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
