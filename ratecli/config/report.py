"""The `report:` and `expect:` sections: tables, plots, and numbers to compare results with."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema, model_validator

from ratecli.config.base import (
    ColumnName,
    NameText,
    SeedNumber,
    SlugText,
    Spec,
    StrictFlag,
    StrictScalar,
    StrictText,
)
from ratecli.config.document import LOCATION_MARK
from ratecli.config.sweep import SweepValue
from ratecli.config.validation import describe_type, invalid_choice, unknown_key, wrong_type
from ratecli.errors import Diagnostic, InvalidValueError

SplitName = Literal["train", "validation", "test", "safety"]


SPLITS = get_args(SplitName)


def _as_list(value: object) -> object:
    """Return one split or several as a tuple; raise FaultError for invalid ones."""
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    found = [
        invalid_choice((k,) if isinstance(value, list | tuple) else (), each, SPLITS)
        for k, each in enumerate(several)
        if each not in SPLITS
    ]
    found += [
        Diagnostic("E104", f"'{each}' is named twice", "remove one", loc=(k,))
        for k, each in enumerate(several)
        if each in several[:k] and each in SPLITS
    ]
    if found:
        raise InvalidValueError(found)
    return several


SPLIT_SCHEMA = {"type": "string", "enum": list(SPLITS)}
SplitNames = Annotated[
    tuple[SplitName, ...],
    Field(min_length=1),
    BeforeValidator(_as_list),
    WithJsonSchema(
        {"anyOf": [SPLIT_SCHEMA, {"type": "array", "items": SPLIT_SCHEMA, "minItems": 1}]}
    ),
]
"""One split, or a list of splits that get separate panels."""
ColumnNameList = Annotated[tuple[ColumnName, ...], Field(min_length=1)]
VariantNames = Annotated[
    ColumnNameList | None,
    Field(
        description="Which variants to draw of the algorithms that have several; without it all."
    ),
]
LabelNames = Annotated[tuple[NameText, ...], Field(min_length=1)]


class TableSpec(Spec):
    """A table of means."""

    rows: ColumnNameList = Field(
        description="What makes a row: algorithm, variant, seed or names of the sweep."
    )
    columns: ColumnNameList = Field(
        description="What is shown: metrics, objective, violation.CONSTRAINT, solution_rate, "
        "failure_rate (of any constraint), failure_rate.CONSTRAINT."
    )
    split: SplitName = Field("test", description="The rows that are measured.")
    file: SlugText | None = Field(None, description="The file's name, without an ending.")


class BasePlot(Spec):
    """Options of all plots."""

    file: SlugText | None = Field(None, description="The file's name, without an ending.")
    title: StrictText | None = Field(None, description="The plot's title.")
    algorithms: LabelNames | None = Field(
        None, description="The labels of the algorithms to draw; without it all."
    )


class BasePaneledPlot(BasePlot):
    """Options of plots that show the whole sweep."""

    by: ColumnName | None = Field(
        None, description="A name of the sweep, of whose values each gets a panel of its own."
    )


class TradeoffPlot(BasePaneledPlot):
    """One metric against another, with a series for each algorithm and variant."""

    kind: Literal["tradeoff"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: ColumnName = Field(
        description="What is along: a metric or else a name of the sweep, if its values are "
        "numbers."
    )
    y: ColumnName = Field(description="The metric upwards.")
    split: SplitNames = Field(
        ("test",),
        description="The rows that are measured; of several each gets a panel of its own.",
    )
    variants: VariantNames = None
    lines: tuple[NameText, ...] = Field(
        (), description="Labels of algorithms to draw as a horizontal line at their y."
    )
    diagonal: StrictFlag = Field(
        default=False, description="Draw the line on which y is x: a target that is met exactly."
    )
    optimum: StrictFlag = Field(
        default=False, description="Draw the best possible trade-off, where the data set knows it."
    )


class ConvergencePlot(BasePaneledPlot):
    """Objective and largest violation on training rows, as tracked by each algorithm over time."""

    kind: Literal["convergence"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: Literal["iteration", "seconds"] = Field(
        "iteration", description="What is along: the algorithm's iterations or its seconds."
    )


class GuaranteePlot(BasePaneledPlot):
    """The cost of a safety test: performance, solution rate and failure rate."""

    kind: Literal["guarantee"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: ColumnName = Field(
        description="What is along: a name of the sweep whose values are numbers, such as an "
        "amount of data."
    )
    y: ColumnName = Field(
        description="The metric of the first panel, over the trials that gave a classifier."
    )
    truth: SplitName = Field(
        "test", description="The rows that stand for the truth, on which a classifier fails or not."
    )
    constraint: NameText | None = Field(
        None, description="The constraint whose failures are counted; without it those of any."
    )
    variants: VariantNames = None


class BaseFilterPlot(BasePlot):
    """Options of plots of filters, which have a panel for each sweep point of each algorithm."""

    variant: ColumnName | None = Field(
        None, description="Which of an algorithm's variants; without it the main one."
    )
    column: ColumnName | None = Field(
        None,
        description="The column whose groups are shown; needed where the goals tell groups by "
        "several.",
    )
    at: dict[ColumnName, Annotated[tuple[StrictScalar, ...], Field(min_length=1)]] = Field(
        {},
        description="Which sweep points: names of the sweep with lists of their values; without "
        "it all.",
    )


class PosteriorsPlot(BaseFilterPlot):
    """A heat map of the shares of groups at each value of a filter's proxy."""

    kind: Literal["posteriors"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    split: SplitName = Field("train", description="The rows that are counted.")
    seed: SeedNumber | None = Field(
        None, description="The seed whose filter is shown; without it the first."
    )


class GroupSharesPlot(BaseFilterPlot):
    """The effect of a filter: shares of groups among all rows and among those it keeps."""

    kind: Literal["group_shares"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    split: SplitNames = Field(
        ("train", "test"),
        description="The rows that are counted; of several each gets panels of its own.",
    )


AnyFilterPlot = PosteriorsPlot | GroupSharesPlot
AnyPlot = TradeoffPlot | ConvergencePlot | GuaranteePlot | AnyFilterPlot
PLOT_TYPES: dict[str, type[AnyPlot]] = {
    "tradeoff": TradeoffPlot,
    "convergence": ConvergencePlot,
    "guarantee": GuaranteePlot,
    "posteriors": PosteriorsPlot,
    "group_shares": GroupSharesPlot,
}


def _validate_plot(raw: object) -> object:
    if isinstance(raw, Spec):
        return raw
    if not isinstance(raw, dict):
        raise InvalidValueError(wrong_type((), "a mapping of keys to values", raw))
    kind = raw.get("kind")
    if "kind" in raw and str(kind) not in PLOT_TYPES:
        raise InvalidValueError(invalid_choice(("kind",), kind, PLOT_TYPES))
    return PLOT_TYPES.get(str(kind), TradeoffPlot).model_validate(raw)


Plot = Annotated[AnyPlot, BeforeValidator(_validate_plot)]


class ReportSpec(Spec):
    """Tables and plots of the report; all metrics are stored in any case."""

    tables: tuple[TableSpec, ...] = Field((), description="Tables of the report, in this order.")
    plots: tuple[Plot, ...] = Field((), description="Plots of the report, in this order.")


EXPECTATION_KINDS = ("paper", "value", "at_most", "at_least")
"""Keys of which every entry has exactly one."""
CONFIDENCE_INTERVAL = "ci"
PERCENT_PATTERN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")
WITHIN_HELP = "write a number as 0.01, a share as 2%, or ci for our 95 % interval"


def _validate_tolerance(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        message = f"{LOCATION_MARK} must be a number or a text, not {describe_type(value)}"
        raise InvalidValueError(Diagnostic("E103", message, WITHIN_HELP))
    words = isinstance(value, str)
    good = (
        value == CONFIDENCE_INTERVAL or PERCENT_PATTERN.fullmatch(str(value))
        if words
        else 0 <= float(value) < INFINITY
    )
    if not good:
        message = f"{LOCATION_MARK} must be a number from 0, a share or ci, not '{value}'"
        raise InvalidValueError(Diagnostic("E104", message, WITHIN_HELP))
    return value


INFINITY = float("inf")
StrictNumber = Annotated[float, Strict()]
Tolerance = Annotated[
    float | str,
    BeforeValidator(_validate_tolerance),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {
                    "type": "string",
                    "pattern": rf"^({CONFIDENCE_INTERVAL}|{PERCENT_PATTERN.pattern})$",
                },
            ]
        }
    ),
]


class Expectation(Spec):
    """A number to compare results with; additional keys are swept names."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, StrictScalar] = Field(init=False)

    algorithm: NameText = Field(description="The label of the algorithm.")
    variant: ColumnName | None = Field(None, description="Which of its variants; without it all.")
    split: SplitName = Field("test", description="The rows that are measured.")
    metric: ColumnName = Field(
        description="What is compared: a metric, objective, violation.CONSTRAINT, solution_rate, "
        "failure_rate (of any constraint), failure_rate.CONSTRAINT."
    )
    paper: StrictNumber | None = Field(
        None,
        description="The paper's figure, to stand beside ours; judged where `within` is given.",
    )
    value: StrictNumber | None = Field(
        None, description="What our mean must be, as exactly as `within` says."
    )
    at_most: StrictNumber | None = Field(None, description="What our mean must not exceed.")
    at_least: StrictNumber | None = Field(None, description="What our mean must reach.")
    within: Tolerance | None = Field(
        None,
        description="How far our mean may lie from the figure or beyond the bound: a number, a "
        "share of it (2%), or `ci`, our 95 % interval.",
    )
    source: StrictText | None = Field(None, description="Where the figure stands, such as Table 3.")

    @property
    def point(self) -> dict[str, SweepValue]:
        """The values of swept names that the entry specifies; others may have any value."""
        return dict(self.model_extra or {})

    @property
    def kind(self) -> str:
        return next(name for name in EXPECTATION_KINDS if getattr(self, name) is not None)

    def as_file(self) -> dict[str, Any]:
        """Return the entry as plain data, as written in a file."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Diagnostic]:
        given = [name for name in EXPECTATION_KINDS if raw.get(name) is not None]
        listed = ", ".join(f"'{name}'" for name in EXPECTATION_KINDS)
        if not given and not _misspelt_keys(raw):
            yield Diagnostic("E102", f"{LOCATION_MARK} needs one of {listed}", key=True)
        if len(given) > 1:
            hint = "write an entry for each"
            message = f"one entry has one of {listed}"
            yield Diagnostic("E104", message, hint, loc=(given[1],), key=True)
        if given == ["value"] and raw.get("within") is None:
            message = "'value' needs 'within': how exactly our mean must be that"
            yield Diagnostic("E102", message, WITHIN_HELP, loc=("value",), key=True)

    @model_validator(mode="before")
    @classmethod
    def _no_misspelt_key(cls, raw: Any) -> Any:
        near = _misspelt_keys(raw) if isinstance(raw, dict) else []
        if near:
            raise InvalidValueError([unknown_key((key,), cls.model_fields) for key in near])
        return raw


def _misspelt_keys(raw: Mapping[str, Any]) -> list[str]:
    """Return unknown keys that resemble a required key that is missing."""
    needed = {"algorithm", "metric", *EXPECTATION_KINDS} - raw.keys()
    if raw.keys() & set(EXPECTATION_KINDS):
        needed -= set(EXPECTATION_KINDS)
    return [
        key
        for key in raw
        if key not in Expectation.model_fields and difflib.get_close_matches(key, needed, n=1)
    ]
