"""The `datasets:` section: registered sources, tables from files, their splits, and resampling."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    Strict,
    StringConstraints,
    WithJsonSchema,
)

from ratecli.config.base import (
    IDENTIFIER_PATTERN,
    ColumnName,
    NotNull,
    PositiveCount,
    SeedNumber,
    Spec,
    StrictFlag,
    check_name,
    require_value,
)
from ratecli.config.document import LOCATION_MARK
from ratecli.config.validation import quote_value, unknown_key, wrong_type
from ratecli.datasets.entry import DatasetEntry
from ratecli.errors import Diagnostic, InvalidValueError

FRACTION_PATTERN = re.compile(r"(\d{1,6})/(0*[1-9]\d{0,5})")
MAX_LEVELS = 30
"""Maximum number of levels; templates such as `mean(precision, by=level)` have the same limit."""
DATASET_PARTS = ("train", "validation", "test")
SHARED_KEYS = ("split", "levels")
SOURCE_KEYS = ("source", "preparation", "rows", "seed", "vectors", *SHARED_KEYS)
EXCLUSIVE_SPLIT_KEYS = {
    "by": ("official", "stratify", *DATASET_PARTS),
    "official": ("train", "test"),
}
"""Keys that cannot be combined with each way of splitting."""

DATASET_KINDS = {"source": "a registered source", "path": "your own table"}


def as_fraction(value: float | str) -> Fraction:
    """Return a number, or text like '1/3', as an exact fraction."""
    return Fraction(value)


def _fraction(value: object) -> object:
    complaint = _fraction_complaint(value)
    if complaint:
        raise InvalidValueError(complaint)
    return value


def _fraction_complaint(value: object) -> Diagnostic | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return wrong_type((), "a number from 0 to 1, or a text like '1/3'", value)
    found = FRACTION_PATTERN.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, str) and found is None:
        return Diagnostic("E104", f"{quote_value(value)} is no fraction", "write 0.25 or 1/4")
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - NaN
        return Diagnostic("E104", f"{LOCATION_MARK} must be a number from 0 to 1, not nan")
    if not (isinstance(value, str) or 0 <= value <= 1) or (found and as_fraction(value) > 1):
        return Diagnostic("E104", f"{LOCATION_MARK} must be from 0 to 1, not {value}")
    return None


def _scalar(value: object) -> object:
    if isinstance(value, str | int | float):
        return value
    raise InvalidValueError(wrong_type((), "a single value: a number, text, true or false", value))


def _range(value: object) -> object:
    hint = "write the least and the largest that a label can be, as in [0, 4], or [0, null]"
    ends = value if isinstance(value, list | tuple) else ()
    wrong_kind = any(
        isinstance(end, bool) or not isinstance(end, int | float | None) for end in ends
    )
    if len(ends) != 2 or wrong_kind:
        raise InvalidValueError(wrong_type((), "two numbers, or null for none", value, hint))
    low, high = (end for end in ends)
    if not (low is None or high is None or low < high):
        message = f"{LOCATION_MARK} must begin with the smaller number, not {low} and {high}"
        raise InvalidValueError(Diagnostic("E104", message, hint))
    return value


FractionValue = Annotated[
    float | str,
    BeforeValidator(_fraction),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": f"^{FRACTION_PATTERN.pattern}$"},
            ]
        }
    ),
]
ScalarValue = Annotated[
    bool | int | float | str,
    BeforeValidator(_scalar),
    WithJsonSchema({"type": ["boolean", "number", "string"]}),
]
ColumnNames = Annotated[tuple[ColumnName, ...], Field(min_length=1)]
RangeEnd = Annotated[float, Strict()] | None
LabelRange = Annotated[tuple[RangeEnd, RangeEnd], BeforeValidator(_range)]
LevelCount = Annotated[int, Strict(), Field(ge=2, le=MAX_LEVELS)]
Sha256Text = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-fA-F]{64}$")]


class SplitSpec(Spec):
    """How rows are divided into train, validation and test."""

    official: StrictFlag | None = Field(
        None, description="Keep the split that the source comes with (default where it has one)."
    )
    train: FractionValue | None = Field(None, description="Fraction of rows to train on.")
    validation: FractionValue | None = Field(
        None,
        description="Fraction of rows to tune on; with an official split, a fraction of its "
        "training rows.",
    )
    test: FractionValue | None = Field(None, description="Fraction of rows to test on.")
    stratify: ColumnNames | None = Field(
        None, description="Columns whose values get the same shares in every part."
    )
    by: ColumnName | None = Field(
        None, description="A column that says of each row: train, validation or test."
    )
    seed: SeedNumber | None = Field(
        None, description="Fixes the split for all seeds of the experiment."
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
        chosen = "by" if raw.get("by") is not None else "official"
        for key in EXCLUSIVE_SPLIT_KEYS[chosen] if raw.get(chosen) else ():
            if raw.get(key):
                message = f"'{key}' does not go with '{chosen}'"
                yield Diagnostic(
                    "E104", message, f"keep '{key}' or '{chosen}'", loc=(key,), key=True
                )
        values = {key: raw[key] for key in DATASET_PARTS if raw.get(key) is not None}
        if any(_fraction_complaint(value) for value in values.values()):
            return
        total = sum((as_fraction(str(value)) for value in values.values()), Fraction(0))
        wrong = _wrong_total(values, total)
        if wrong:
            yield Diagnostic("E104", wrong, key=True)


def _wrong_total(values: Mapping[str, Any], total: Fraction) -> str | None:
    if len(values) == len(DATASET_PARTS) and total != 1:
        return f"train, validation and test must add up to 1, not {float(total):g}"
    if total > 1:
        return f"the parts of the split add up to {float(total):g}, more than 1"
    nothing = as_fraction(str(values["train"])) == 0 if "train" in values else total >= 1
    return "the split leaves no rows to train on" if nothing else None


class DatasetSpec(Spec):
    """A data set: a registered source by its name, or a table by its path."""

    source: ColumnName | None = Field(
        None, description="A registered source; `ratecli ls datasets` lists them."
    )
    path: ColumnName | None = Field(
        None, description="Your own table, relative to the folder of this file."
    )
    preparation: ColumnName | None = Field(
        None, description="Which of the source's preparations to use."
    )
    rows: PositiveCount | None = Field(
        None, description="How many rows to generate (generated sources)."
    )
    seed: SeedNumber | None = Field(
        None, description="Seed of the generated rows (generated sources)."
    )
    vectors: ColumnName | None = Field(
        None,
        description="A file of word vectors, relative to the folder of this file (sources of "
        "texts).",
    )
    format: Literal["csv", "parquet"] | None = Field(
        None, description="The table's format; by default taken from the path's ending."
    )
    separator: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1)] | None = (
        Field(None, description="The character between the columns of a CSV file.")
    )
    stream: StrictFlag | None = Field(
        None,
        description="Read the table piece by piece, for one larger than memory: a file, or a "
        "folder of files of one table. `unconstrained` and `three_player` train on it.",
    )
    sha256: Sha256Text | None = Field(None, description="The file must have this SHA-256.")
    label: ColumnName | None = Field(
        None, description="The label's column; without it, all rows count as unlabelled."
    )
    positive: ScalarValue | None = Field(
        None, description="The label's value, or condition, that counts as positive."
    )
    target: Literal["classes", "number"] | None = Field(
        None,
        description="Whether the label is one of two classes (default) or a number, of which goals "
        "speak by mse and mean_error.",
    )
    label_range: LabelRange | None = Field(
        None,
        description="Least and largest number that the label can be, null where there is none: "
        "what a safety test may count on. For target: number.",
    )
    features: ColumnNames | None = Field(
        None, description="Columns the classifier sees; by default all but label, weight and drop."
    )
    drop: ColumnNames | None = Field(
        None, description="Columns that are no features; slices still see them."
    )
    weight: ColumnName | None = Field(None, description="The column of row weights.")
    categorical: ColumnNames | None = Field(
        None, description="Number columns that are to be read as categories."
    )
    missing: Literal["error", "mean"] | None = Field(
        None,
        description="What a missing number of a feature is: an error (default), or the mean of the "
        "training rows that have one. A feature `COLUMN=(missing)` then says where it is missing.",
    )
    split: SplitSpec | None = Field(
        None,
        description="How rows are divided; by default the official split, else 2/3 train and "
        "1/3 test.",
    )
    levels: LevelCount | None = Field(
        None,
        description="At how many thresholds rows are decided: each stands once for every level, "
        "in one part of the split, with a numeric column `level` from 0 for slices and, for the "
        "classifier, a bias of its own.",
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Diagnostic]:
        chosen = [key for key in DATASET_KINDS if raw.get(key) is not None]
        if len(chosen) == 2:
            hint = "keep 'source' for a registered source or 'path' for your own table"
            return [
                Diagnostic("E104", "give either 'source' or 'path'", hint, loc=("path",), key=True)
            ]
        if not chosen:
            return cls._without_kind(raw)
        foreign = [
            key for key in raw if key in cls.model_fields and key not in _allowed_keys(chosen[0])
        ]
        return [
            *(_foreign_key(key, chosen[0]) for key in foreign),
            *_target_conflicts(raw),
            *_stream_conflicts(raw),
        ]

    @classmethod
    def _without_kind(cls, raw: Mapping[str, Any]) -> list[Diagnostic]:
        near = [
            unknown_key((key,), DATASET_KINDS).help or ""
            for key in raw
            if key not in cls.model_fields
        ]
        if any("did you mean" in hint for hint in near):
            return []  # the misspelt key is reported already
        hint = "write source: NAME (`ratecli ls datasets`) or path: FILE.csv"
        return [Diagnostic("E102", f"{LOCATION_MARK} needs a 'source' or a 'path'", hint, key=True)]

    def entry(self) -> DatasetEntry:
        return DatasetEntry.of(self.options())

    def options(self) -> dict[str, Any]:
        """Return the options given in the file as plain data."""
        return self.model_dump(mode="json", exclude_none=True)


def _target_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Report options that conflict with the kind of label of a table."""
    if "path" not in raw:
        return
    if raw.get("target") != "number":
        if raw.get("label_range") is not None:
            message = "'label_range' is for a label that is a number"
            yield Diagnostic(
                "E104", message, "say 'target: number'", loc=("label_range",), key=True
            )
        return
    if raw.get("label") is None:
        message = "'target: number' says of what kind the label is, and no label is named"
        yield Diagnostic(
            "E102", message, "name its column: label: COLUMN", loc=("target",), key=True
        )
    if raw.get("positive") is not None:
        message = "'positive' does not go with 'target: number': a number is not one of two classes"
        yield Diagnostic("E104", message, "leave one of them out", loc=("positive",), key=True)


def _stream_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Report options that conflict with reading rows in pieces."""
    if raw.get("stream") is not True:
        return
    hint = "leave it out, or read the table into memory: stream: false"
    if raw.get("levels") is not None:
        message = "'levels' does not go with 'stream': streamed rows are decided at one threshold"
        yield Diagnostic("E104", message, hint, loc=("levels",), key=True)
    if raw.get("target") == "number":
        message = (
            "'target: number' does not go with 'stream': labels of streamed rows are two classes"
        )
        yield Diagnostic("E104", message, hint, loc=("target",), key=True)


def _allowed_keys(chosen: str) -> tuple[str, ...]:
    if chosen == "source":
        return SOURCE_KEYS
    keys = (key for key in DatasetSpec.model_fields if key not in SOURCE_KEYS)
    return (*keys, *SHARED_KEYS)


def _foreign_key(key: str, chosen: str) -> Diagnostic:
    message = f"'{key}' does not go with '{chosen}': this is {DATASET_KINDS[chosen]}"
    hint = f"allowed keys: {', '.join(_allowed_keys(chosen))}"
    return Diagnostic("E101", message, hint, loc=(key,), key=True)


MAX_RESAMPLE_SHARE = 1000
"""Limit on the ratio of sampled to available rows; more is assumed to be a typo."""
RESAMPLE_WANTED = "a number greater than 0, or a name of the sweep"


def _validate_resample(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidValueError(wrong_type((), RESAMPLE_WANTED, value))
    if isinstance(value, str) and not FRACTION_PATTERN.fullmatch(value):
        wrong = check_name((), value, key=False)
    else:
        wrong = (
            []
            if _is_valid_share(value)
            else [Diagnostic("E104", f"{RESAMPLE_MESSAGE}, not {value}")]
        )
    if wrong:
        raise InvalidValueError(wrong)
    return value


RESAMPLE_MESSAGE = f"{LOCATION_MARK} must be greater than 0 and at most {MAX_RESAMPLE_SHARE}"


def _is_valid_share(value: float | str) -> bool:
    if isinstance(value, str):
        return 0 < as_fraction(value) <= MAX_RESAMPLE_SHARE
    return 0 < value <= MAX_RESAMPLE_SHARE


ResampleShare = Annotated[
    float | str,
    PlainValidator(_validate_resample),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_RESAMPLE_SHARE},
                {"type": "string", "pattern": f"^{FRACTION_PATTERN.pattern}$"},
                {"type": "string", "pattern": f"^{IDENTIFIER_PATTERN.pattern}$"},
            ]
        }
    ),
]
OptionalResample = Annotated[
    ResampleShare | None,
    NotNull(),
    require_value(
        RESAMPLE_WANTED, "write a number, or remove the key to train on the rows of the split"
    ),
]
"""None if the key is absent; an empty value is an E103."""
