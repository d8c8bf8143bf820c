"""The `datasets:` section: registered sources, tables from files, their splits, and resampling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
    RULE_SCHEMA,
    ColumnName,
    ColumnNames,
    NotNull,
    NumberRange,
    ScalarValue,
    SeedNumber,
    Spec,
    StrictFlag,
    any_of,
    check_one_key,
    exact_number,
    require_value,
    validate_rule,
)
from ratecli.config.validation import type_error, unknown_key, value_error
from ratecli.datasets.entry import DatasetEntry
from ratecli.errors import Diagnostic, FaultError, InvalidValueError
from ratecli.rates.syntax import SPLITS

MAX_LEVELS = 30
"""Maximum number of levels; templates such as `mean(precision, by=level)` have the same limit."""
DATASET_PARTS = SPLITS[:3]
SHARED_KEYS = ("split", "levels")
SOURCE_KEYS = ("source", "preparation", "rows", "seed", "vectors", *SHARED_KEYS)
EXCLUSIVE_SPLIT_KEYS = {
    "by": ("official", "stratify", *DATASET_PARTS),
    "official": ("train", "test"),
}
"""Keys that cannot be combined with each way of splitting."""
DATASET_KINDS = {"source": "a registered source", "path": "your own table"}
FRACTION_RANGE = NumberRange(0, 1, names=False)
RESAMPLE_RANGE = NumberRange(0, 1000, above=True)
"""Ratio of sampled to available rows; more is assumed to be a typo."""


def _validate_range(value: object) -> object:
    hint = "write the smallest and largest possible label, as in [0, 4] or [0, null]"
    ends = value if isinstance(value, list | tuple) else ()
    wrong = any(isinstance(end, bool) or not isinstance(end, int | float | None) for end in ends)
    if len(ends) != 2 or wrong:
        raise type_error("two numbers, or null for none", value, hint)
    low, high = ends
    if low is not None and high is not None and not low < high:
        raise value_error("two increasing numbers", f"{low} and {high}", hint)
    return value


def _validate_group(value: object) -> object:
    """Return a condition, or a mapping of data sets to conditions."""
    if not isinstance(value, dict):
        return validate_rule(value)
    found: list[Diagnostic] = []
    for name, text in value.items():
        try:
            validate_rule(text)
        except FaultError as error:
            found += [fault.under(name) for fault in error.faults]
    if found:
        raise InvalidValueError(found)
    return value


GroupCondition = Annotated[
    str | dict[str, str],
    PlainValidator(_validate_group),
    any_of(RULE_SCHEMA, {"type": "object", "additionalProperties": RULE_SCHEMA}),
]
FractionField = Annotated[
    float | str, BeforeValidator(FRACTION_RANGE.validate), WithJsonSchema(FRACTION_RANGE.schema)
]
ResampleShare = Annotated[
    float | str, PlainValidator(RESAMPLE_RANGE.validate), WithJsonSchema(RESAMPLE_RANGE.schema)
]
OptionalResample = Annotated[
    ResampleShare | None,
    NotNull(),
    require_value("a number, or a name of the sweep", "to use the rows of the split, remove it"),
]
"""None if the key is absent; an empty value is an E103."""
RangeEnd = Annotated[float, Strict()] | None
LabelRange = Annotated[tuple[RangeEnd, RangeEnd], BeforeValidator(_validate_range)]
Character = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1)]
Sha256Text = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-fA-F]{64}$")]


class SplitSpec(Spec):
    """How rows are divided into train, validation and test."""

    official: StrictFlag | None = Field(
        None, description="Use the source's own split (default if it has one)."
    )
    train: FractionField | None = Field(None, description="Fraction of rows to train on.")
    validation: FractionField | None = Field(
        None,
        description="Fraction of rows to tune on; with an official split, of its training rows.",
    )
    test: FractionField | None = Field(None, description="Fraction of rows to test on.")
    stratify: ColumnNames | None = Field(
        None, description="Columns whose values have the same shares in every part."
    )
    by: ColumnName | None = Field(
        None, description="A column that contains train, validation or test for each row."
    )
    seed: SeedNumber | None = Field(
        None, description="Seed of one split for all seeds of the experiment."
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
        chosen = "by" if raw.get("by") is not None else "official"
        for key in EXCLUSIVE_SPLIT_KEYS[chosen] if raw.get(chosen) else ():
            if raw.get(key):
                yield _conflict(key, chosen, f"keep '{key}' or '{chosen}'")
        given = [raw[key] for key in DATASET_PARTS if raw.get(key) is not None]
        shares = [exact_number(value) for value in given if value in FRACTION_RANGE]
        if len(shares) < len(given):
            return
        total = sum(share for share in shares if share is not None)
        rest = raw.get("train") is None
        if len(given) == len(DATASET_PARTS) and total != 1:
            message = f"train, validation and test must add up to 1, not {float(total):g}"
            yield Diagnostic("E104", message, key=True)
        elif total > 1:
            message = f"the parts of the split add up to {float(total):g}, more than 1"
            yield Diagnostic("E104", message, key=True)
        elif total == 1 if rest else exact_number(raw["train"]) == 0:
            yield Diagnostic("E104", "the split leaves no rows to train on", key=True)


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
    rows: Annotated[int, Strict(), Field(ge=1)] | None = Field(
        None, description="How many rows to generate (generated sources)."
    )
    seed: SeedNumber | None = Field(
        None, description="Seed of the generated rows (generated sources)."
    )
    vectors: ColumnName | None = Field(
        None,
        description="A file of word vectors, relative to the folder of this file (text sources).",
    )
    format: Literal["csv", "parquet"] | None = Field(
        None, description="The table's format; by default taken from the path's ending."
    )
    separator: Character | None = Field(
        None, description="The character between the columns of a CSV file."
    )
    stream: StrictFlag | None = Field(
        None,
        description="Read a table larger than memory piece by piece: a file, or a folder of files. "
        "`unconstrained` and `three_player` train on it.",
    )
    sha256: Sha256Text | None = Field(None, description="The file must have this SHA-256.")
    label: ColumnName | None = Field(
        None, description="The label's column; without it, all rows count as unlabelled."
    )
    positive: ScalarValue | None = Field(
        None, description="The label's value that counts as positive."
    )
    target: Literal["classes", "number"] | None = Field(
        None,
        description="Whether the label is one of two classes (default) or a number, for mse and "
        "mean_error.",
    )
    label_range: LabelRange | None = Field(
        None,
        description="Smallest and largest possible label (null if unknown), for safety tests of "
        "target: number.",
    )
    features: ColumnNames | None = Field(
        None, description="Columns the classifier sees; by default all but label, weight and drop."
    )
    drop: ColumnNames | None = Field(
        None, description="Columns that are not features; slices can use them."
    )
    weight: ColumnName | None = Field(None, description="The column of row weights.")
    categorical: ColumnNames | None = Field(
        None, description="Number columns to read as categories."
    )
    missing: Literal["error", "mean"] | None = Field(
        None,
        description="How to treat missing numbers of features: as an error (default), or as the "
        "mean of the training rows, with a feature `COLUMN=(missing)` that marks them.",
    )
    split: SplitSpec | None = Field(
        None,
        description="How rows are divided; by default the official split, else 2/3 train and "
        "1/3 test.",
    )
    levels: Annotated[int, Strict(), Field(ge=2, le=MAX_LEVELS)] | None = Field(
        None,
        description="The number of thresholds: each row is repeated for every level, in one part "
        "of the split, with a numeric column `level` from 0 for slices and a bias of its own.",
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Diagnostic]:
        hint = "write source: NAME (`ratecli ls datasets`) or path: FILE.csv"
        unknown = [key for key in raw if key not in cls.model_fields]
        hints = (unknown_key((key,), DATASET_KINDS).help or "" for key in unknown)
        misspelt = any("did you mean" in text for text in hints)
        if found := check_one_key(raw, tuple(DATASET_KINDS), hint, misspelt=misspelt):
            return found
        chosen = next((key for key in DATASET_KINDS if raw.get(key) is not None), None)
        return [] if chosen is None else _kind_errors(raw, chosen)

    def entry(self) -> DatasetEntry:
        return DatasetEntry.of(self.options())

    def options(self) -> dict[str, Any]:
        """Return the options given in the file as plain data."""
        return self.model_dump(mode="json", exclude_none=True)


def _kind_errors(raw: Mapping[str, Any], chosen: str) -> Iterator[Diagnostic]:
    """Yield errors of keys that do not apply to a source or table, or to each other."""
    own = [key for key in DatasetSpec.model_fields if key not in SOURCE_KEYS]
    allowed = SOURCE_KEYS if chosen == "source" else (*own, *SHARED_KEYS)
    for key in raw:
        if key in DatasetSpec.model_fields and key not in allowed:
            message = f"'{key}' is not a key of {DATASET_KINDS[chosen]}"
            hint = f"allowed keys: {', '.join(allowed)}"
            yield Diagnostic("E101", message, hint, loc=(key,), key=True)
    has = {key for key in raw if raw[key] is not None}
    numeric = raw.get("target") == "number"
    if chosen == "path" and numeric and "label" not in has:
        message, hint = "'target: number' needs a label", "name its column: label: COLUMN"
        yield Diagnostic("E102", message, hint, loc=("target",), key=True)
    if chosen == "path" and numeric and "positive" in has:
        yield _conflict("positive", "target: number", "remove one of them")
    if chosen == "path" and not numeric and "label_range" in has:
        yield _conflict("label_range", "target: classes", "write 'target: number'")
    in_memory = "remove it, or read the table into memory: stream: false"
    if raw.get("stream") is True and "levels" in has:
        yield _conflict("levels", "stream", in_memory)
    if raw.get("stream") is True and numeric:
        yield _conflict("target: number", "stream", in_memory)


def _conflict(key: str, other: str, hint: str) -> Diagnostic:
    message = f"'{key}' cannot be combined with '{other}'"
    return Diagnostic("E104", message, hint, loc=(key.partition(":")[0],), key=True)
