"""How models are trained and tested: algorithms, the filter of rows, safety tests, and limits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PlainValidator,
    Strict,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ratecli.config import base
from ratecli.config.sweep import Sweep
from ratecli.errors import Diagnostic, InvalidValueError

NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,2})?"
AMOUNT_PATTERN = re.compile(rf"({NUMBER}) ?([A-Za-z]+)")
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
        raise base.value_error("more than 0 and at most 30 days", f"'{value}'", hint)
    return seconds


def _validate_bytes(value: object) -> object:
    hint = "write a text like 512 MiB or 4 GiB"
    count = _parse_amount(value, BYTES_PER_UNIT, hint)
    if not MIN_MEMORY <= count <= MAX_MEMORY:
        wanted = "from 64 MiB, which Python itself needs, to 1 PiB"
        raise base.value_error(wanted, f"'{value}'", hint)
    return int(count)


def _parse_amount(value: object, units: dict[str, float], hint: str) -> float:
    """Return a number unchanged, or the number in a text times its unit."""
    if not base.is_scalar(value):
        raise base.type_error("a number or a text", value, hint)
    if isinstance(value, int | float):
        return float(value)
    found = AMOUNT_PATTERN.fullmatch(str(value))
    if found is None or found[2] not in units:
        raise base.value_error(
            f"a number with one of the units {', '.join(units)}", f"'{value}'", hint
        )
    return float(found[1]) * units[found[2]]


def _amount(units: Collection[str]) -> Any:
    return base.above_zero_or(re.compile(rf"{NUMBER} ?({'|'.join(units)})"))


DurationField = Annotated[
    float, BeforeValidator(_validate_seconds, json_schema_input_type=_amount(SECONDS_PER_UNIT))
]
MemoryField = Annotated[
    int, BeforeValidator(_validate_bytes, json_schema_input_type=_amount(BYTES_PER_UNIT))
]


class LimitsSpec(base.Spec):
    """Time and memory limits of a trial. They do not affect results, so they are not in its key."""

    time: DurationField | None = None
    """A trial that runs longer ends as timeout: seconds, or a text like 10 min."""
    memory: MemoryField | None = None
    """A trial whose process needs more ends as error, and streamed data sets are read in smaller
    pieces: a text like 2 GiB.
    """


Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
TrialSeconds = Annotated[
    Positive | dict[str, Positive],
    base.OneOf("a number of seconds or a mapping of data sets to numbers"),
]
"""Seconds of a trial: a number, or one for each data set."""


DEFAULT_DELTA = 0.05
"""Delta of constraints that a mapping `delta` does not name."""
DEFAULT_FRACTION = 0.5
"""Fraction of the training rows that are held out for the safety test."""
PROBABILITY_RANGE = base.NumberRange(0, 1, above=True, below=True)
AIM_RANGE = base.NumberRange(0.5, 1, below=True)
"""Valid `aim`: 0.5 tightens nothing; 1 would require an infinite margin."""


Probability = Annotated[float | str, PROBABILITY_RANGE]
DeltaField = Annotated[
    Probability | dict[str, Probability],
    base.OneOf("a number such as 0.5 or 1/2, or a name of the sweep"),
]


class SafetySpec(base.Spec):
    """A test of every constraint on held-out rows; a model that fails it is not returned."""

    delta: DeltaField = DEFAULT_DELTA
    """The highest probability that a model passes although it violates a constraint. A number, a
    fraction such as 1/20 or a name of the sweep, or one of these for each constraint by its name
    (0.05 for those not listed).
    """
    bound: Literal[
        "auto",
        "student_t",
        "hoeffding",
        "clopper_pearson",
        "empirical_bernstein",
        "anderson",
        "betting",
        "bootstrap",
    ] = "auto"
    """The confidence bound; `auto` selects one that suits the rates. `student_t` and `bootstrap`
    are approximate.
    """
    fraction: Probability = DEFAULT_FRACTION
    """Fraction of the training rows to hold out for the test, or a name of the sweep."""
    method: Literal["leaves", "forms", "pieces"] = "pieces"
    """What is bounded: every rate (leaves), affine combinations of rates (forms), or affine
    combinations for each part of a maximum, each part at the whole delta (pieces).
    """
    stratify: base.ColumnNames | None = None
    """Columns (or label) with equal shares in the test and in training."""
    order: Literal["shuffled", "positional"] = "shuffled"
    """Which rows to hold out: random ones by the seed (shuffled), or the last ones of the file
    (positional; W403 reports if they are not like the others).
    """
    test: base.StrictFlag = True
    """false holds the rows out without a test. Use it for an algorithm that constraints refer to by
    of(...): it must not see the rows of their tests.
    """
    aim: Annotated[float | str, AIM_RANGE] | None = None
    """The probability with which a model should pass: a number, or a name of the sweep. Constraints
    are tightened in training until a model passes with this probability. Without it, a model that
    just satisfies the constraints usually fails.
    """
    guarantee: Literal["each", "joint"] = "each"
    """What delta bounds, for the whole file. `each`: the probability that a model passes although
    it violates a constraint, for each algorithm and variant by itself. `joint`: the probability
    that any of them does; delta is divided among them. Use `joint` to choose among models that
    passed.
    """


OptionalSafety = Annotated[SafetySpec | None, base.not_null(SafetySpec)]


def _validate_own_safety(value: object) -> object:
    return value if value is False else SafetySpec.model_validate(value)


AlgorithmSafety = Annotated[
    SafetySpec | Literal[False] | None,
    BeforeValidator(_validate_own_safety),
    base.not_null(SafetySpec | Literal[False]),
]
"""The `safety` of an algorithm's entry: keys that override those of the file's test, or no test.

None if the key is absent: the file's test applies. An empty value could mean either.
"""


FILTER = "filter"
"""Label of the filter's own trials in results."""
TAKE_CHOICES = ("weights", "sample")
DISCLOSIVITY_RANGE = base.NumberRange(0, 1)
DEFAULT_FILTER = "balanced_tree"
LABEL_WORDS = ("name", "label")
"""Keys that are mistaken for `as`."""
LABEL_HINT = "the key for the name of an algorithm's results is `as`"
NAMED_HINT = "write `NAME` or `NAME: {OPTION: VALUE}`"
ENTRY_HINT = (
    "start each algorithm with `- `, and write its keys under its name: `- NAME: {as: LABEL, ...}`"
)
GOAL_HINT = "write balance: COLUMN for equal shares of its values, or objective: RULE for others"


def parse_named_options(
    raw: object, entry_keys: Collection[str] = ()
) -> tuple[str, dict[str, Any]]:
    """Return name and options of an algorithm, written as `name` or `{name: {option: value}}`.

    `entry_keys` are keys of an entry that cannot be names of algorithms. Raises InvalidValueError
    with E103.
    """
    if isinstance(raw, str):
        return raw, {}
    if not isinstance(raw, dict) or not raw:
        raise base.type_error("an algorithm's name, or a name with its options", raw, NAMED_HINT)
    (name, options), *others = raw.items()
    if others or name in entry_keys:
        message = f"an entry has one algorithm, but this one has {len(raw)} keys"
        if not others:
            message = f"an entry begins with its algorithm, not with '{name}'"
        hint, place = ENTRY_HINT if entry_keys else NAMED_HINT, others[0][0] if others else name
        raise InvalidValueError(Diagnostic("E103", message, hint, loc=(place,), key=True))
    if options is not None and not isinstance(options, dict):
        hint = f"write `{name}: {{option: value}}`"
        raise base.type_error("a mapping of options to values", options, hint, loc=(name,))
    if entry_keys and "name" in (options or {}):
        raise InvalidValueError(replace(base.unknown_key((name, "name"), ()), help=LABEL_HINT))
    return str(name), options or {}


FilterColumns = Annotated[
    base.ColumnNames,
    BeforeValidator(base.as_tuple, json_schema_input_type=base.ColumnName | base.ColumnNames),
]
FilterAlgorithm = Annotated[
    dict[str, dict[str, Any]],
    PlainValidator(
        lambda raw: dict([parse_named_options(raw)]),
        json_schema_input_type=base.ColumnName | dict[str, dict[str, Any] | None],
    ),
]
TakeField = Annotated[
    base.NameText,
    WithJsonSchema(
        {"anyOf": [{"enum": list(TAKE_CHOICES)}, base.matching(base.IDENTIFIER_PATTERN)]}
    ),
]
"""One of `TAKE_CHOICES`, or a name of the sweep, which is checked once its values are known."""


Disclosivity = Annotated[float | str, DISCLOSIVITY_RANGE]


class FilterSpec(base.Spec):
    """A filter that balances groups before training.

    It keeps rows so that groups have the desired shares, without using the columns that define the
    groups. Validation, test and safety rows are not filtered.
    """

    balance: FilterColumns | None = None
    """One or several columns whose values get equal shares among the kept rows."""
    objective: base.RuleText | None = None
    """Used instead of 'balance' for other shares: their distance from the targets, which is
    minimized, as in rms(share[women] - 0.4, share[men] - 0.6).
    """
    disclosivity: Annotated[Disclosivity | None, base.not_null(Disclosivity)] = None
    """alpha: the largest change in the probability of any value of these columns that the filter's
    answer may cause. Only balanced_tree guarantees it. Default: no bound.
    """
    algorithm: FilterAlgorithm = Field(default_factory=lambda: {DEFAULT_FILTER: dict[str, Any]()})
    """The filter (`ratecli ls algorithms`): a name, or {name: {option: value}}."""
    take: TakeField = "weights"
    """weights: each training row is weighted by the probability that it is kept. sample: each is
    kept or not, at random by the seed. Rows without weight are not used.
    """

    def conflicts(self) -> Iterable[Diagnostic]:
        return self.check_one_key(("balance", "objective"), GOAL_HINT)

    @property
    def name(self) -> str:
        """Name of the filter algorithm."""
        return next(iter(self.algorithm))


OptionalFilter = Annotated[FilterSpec | None, base.not_null(FilterSpec)]


Holds = Literal["train", "validation", "new_rows"]
Level = Annotated[float, Strict(), Field(gt=0.5, lt=1)]
TunedValues = Annotated[
    dict[base.NameText, Annotated[tuple[Any, ...], Field(min_length=1)]], Field(min_length=1)
]


class AlgorithmSpec(base.Spec):
    """An algorithm with the label of its results and its own sweep; other keys are its options."""

    model_config = ConfigDict(extra="allow")

    name: base.NameText
    """The algorithm; `ratecli ls algorithms` lists them."""
    label: base.NameText = Field(alias="as")
    """The name of its results; default: the algorithm's."""
    holds: Holds | None = None
    """The rows on which constraints must hold; default: as in the file."""
    level: Level | None = None
    """The probability with which they must hold; default: as in the file."""
    safety: AlgorithmSafety = None
    """Keys that override the file's safety test, a test for this algorithm alone if the file has
    none, or false for no test.
    """
    filter: base.StrictFlag = True
    """false: this algorithm is trained on unfiltered rows."""
    tune: TunedValues | None = None
    """Names with lists of values to try: options, the penalty `l2` of a linear model, or parameters
    of other models. Of all combinations, the one with the smallest objective that satisfies the
    constraints is chosen. Both are measured on validation rows, or without such rows, in 5 folds of
    the training rows.
    """
    sweep: Sweep | None = None
    """What varies for this algorithm only, in addition to the experiment's sweep. A name that is
    one of its options sets it.
    """

    @property
    def options(self) -> dict[str, Any]:
        """The algorithm's hyper-parameters; `ratecli show NAME` lists them."""
        return dict(self.model_extra or {})

    @model_validator(mode="wrap")
    @classmethod
    def _from_entry(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(raw, cls):
            return raw
        keys = {*LABEL_WORDS, *(field.alias or key for key, field in cls.model_fields.items())}
        name, options = parse_named_options(raw, keys)
        outer = (name,) if isinstance(raw, dict) else ()
        try:
            return handler({"as": name, **options, "name": name})
        except ValidationError as error:
            faults = [
                replace(each, loc=outer, key=bool(outer))
                if each.loc == ("name",) or not outer
                else each.under(*outer)
                for each in base.diagnostics_of(error)
            ]
            raise InvalidValueError(faults) from None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(core, handler))
        keys = schema.pop("properties")
        for key in ("required", "additionalProperties", "type"):
            schema.pop(key, None)
        name = keys.pop("name")
        options = {"type": ["object", "null"], "description": "Its options.", "properties": keys}
        entry = {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": options,
        }
        return schema | {"anyOf": [name, entry]}

    @model_serializer
    def _as_file(self) -> dict[str, Any]:
        """Return the entry as written in a file: its options, its label, and other keys if set."""
        fields = {key: field for key, field in type(self).model_fields.items() if key != "name"}
        own = {
            field.alias or key: getattr(self, key)
            for key, field in fields.items()
            if getattr(self, key) != field.default
        }
        if isinstance(self.safety, SafetySpec):  # only these keys override the file's test
            own["safety"] = self.safety.model_dump(exclude_unset=True)
        return {self.name: self.options | own}
