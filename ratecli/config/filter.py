"""The `filter:` section: training rows are balanced before any algorithm sees them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator

from ratecli.config.base import (
    IDENTIFIER_PATTERN,
    ColumnName,
    ColumnNames,
    NameText,
    NumberRange,
    RuleText,
    Spec,
    any_of,
    as_tuple,
    matching,
    not_null,
)
from ratecli.config.validation import type_error, unknown_key
from ratecli.errors import Diagnostic, InvalidValueError

FILTER = "filter"
"""Label of the filter's own trials in results."""
TAKE_CHOICES = ("weights", "sample")
DISCLOSIVITY_RANGE = NumberRange(0, 1)
DEFAULT_FILTER = "balanced_tree"
LABEL_WORDS = ("name", "label")
"""Keys that are mistaken for `as`."""
LABEL_HINT = "the key for the name of an algorithm's results is `as`"
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
        hint = "write `name` or `name: {option: value}`"
        raise type_error("an algorithm's name, or a name with its options", raw, hint)
    (name, options), *others = raw.items()
    if others or name in entry_keys:
        message = f"an entry has one algorithm, but this one has {len(raw)} keys"
        if not others:
            message = f"an entry begins with its algorithm, not with '{name}'"
        hint, place = _own_entry_hint(raw, entry_keys), others[0][0] if others else name
        raise InvalidValueError(Diagnostic("E103", message, hint, loc=(place,), key=True))
    if options is not None and not isinstance(options, dict):
        hint = f"write `{name}: {{option: value}}`"
        raise type_error("a mapping of options to values", options, hint, loc=(name,))
    if entry_keys and "name" in (options or {}):
        raise InvalidValueError(replace(unknown_key((name, "name"), ()), help=LABEL_HINT))
    return str(name), options or {}


def _own_entry_hint(raw: Mapping[str, Any], entry_keys: Collection[str]) -> str:
    """Return how to write an entry whose keys are beside its name, or are of two algorithms."""
    stated = [key for key in ("name", "algorithm") if isinstance(raw.get(key), str)]
    named = [
        key
        for key, value in raw.items()
        if key not in entry_keys and (value is None or isinstance(value, dict))
    ]
    if len(named) > 1 or not (named or stated):
        return "start each algorithm with `- `" if entry_keys and named else "write `NAME: {...}`"
    name, place = (named[0], named[0]) if named else (raw[stated[0]], stated[0])
    own = dict.fromkeys(raw[place] or () if named else ())
    own |= {"as" if key in LABEL_WORDS else key: None for key in raw if key != place}
    inside = ", ".join(f"{key}: ..." for key in own)
    return f"write its keys under its name: `{name}: {{{inside}}}`" if own else f"write `{name}`"


FilterColumns = Annotated[
    ColumnNames, BeforeValidator(as_tuple, json_schema_input_type=ColumnName | ColumnNames)
]
FilterAlgorithm = Annotated[
    dict[str, dict[str, Any]],
    PlainValidator(
        lambda raw: dict([parse_named_options(raw)]),
        json_schema_input_type=ColumnName | dict[str, dict[str, Any] | None],
    ),
]
TakeField = Annotated[NameText, any_of({"enum": list(TAKE_CHOICES)}, matching(IDENTIFIER_PATTERN))]
"""One of `TAKE_CHOICES`, or a name of the sweep, which is checked once its values are known."""


Disclosivity = Annotated[float | str, DISCLOSIVITY_RANGE]


class FilterSpec(Spec):
    """A filter that balances groups before training.

    It keeps rows so that groups have the desired shares, without using the columns that define the
    groups. Validation, test and safety rows are not filtered.
    """

    balance: FilterColumns | None = None
    """One or several columns whose values get equal shares among the kept rows."""
    objective: RuleText | None = None
    """Instead of 'balance', the distance of shares from other targets, to be minimized:
    rms(share[women] - 0.4, share[men] - 0.6).
    """
    disclosivity: Annotated[Disclosivity | None, not_null(Disclosivity)] = None
    """alpha: the most by which the filter's proxy may change the probability of any value of these
    columns; balanced_tree guarantees it. Default: no bound.
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


OptionalFilter = Annotated[FilterSpec | None, not_null(FilterSpec)]
