"""The `report:` part: which tables and plots to make."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema

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
from ratecli.config.complaint import Complaint, as_validation_error, invalid_choice, wrong_type

SplitName = Literal["train", "validation", "test", "safety"]


SPLITS = get_args(SplitName)


def _as_list(value: object) -> object:
    """One split is a list of one; raises what pydantic passes on for what is none."""
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    found = [
        invalid_choice((k,) if isinstance(value, list | tuple) else (), each, SPLITS)
        for k, each in enumerate(several)
        if each not in SPLITS
    ]
    found += [
        Complaint((k,), "E104", f"'{each}' is named twice", "remove one")
        for k, each in enumerate(several)
        if each in several[:k] and each in SPLITS
    ]
    if found:
        raise as_validation_error(found, "split")
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
"""One, or a list of which each gets panels of its own."""
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
        description="What is shown: metrics, objective, violation.CONSTRAINT, solution_rate, failure_rate "
        "(of any constraint), failure_rate.CONSTRAINT."
    )
    split: SplitName = Field("test", description="The rows that are measured.")
    file: SlugText | None = Field(None, description="The file's name, without an ending.")


class BasePlot(Spec):
    """What all plots have."""

    file: SlugText | None = Field(None, description="The file's name, without an ending.")
    title: StrictText | None = Field(None, description="The plot's title.")
    algorithms: LabelNames | None = Field(
        None, description="The labels of the algorithms to draw; without it all."
    )


class BasePaneledPlot(BasePlot):
    """What plots have that draw all of the sweep."""

    by: ColumnName | None = Field(
        None, description="A name of the sweep, of whose values each gets a panel of its own."
    )


class TradeoffPlot(BasePaneledPlot):
    """A metric against another, one series an algorithm and variant."""

    kind: Literal["tradeoff"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: ColumnName = Field(
        description="What is along: a metric or else a name of the sweep, if its values are numbers."
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
    """Objective and worst violation on training rows, as each algorithm counts them on its way."""

    kind: Literal["convergence"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: Literal["iteration", "seconds"] = Field(
        "iteration", description="What is along: the algorithm's iterations or its seconds."
    )


class GuaranteePlot(BasePaneledPlot):
    """What safety costs: performance, how often there was a solution and how often one failed."""

    kind: Literal["guarantee"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: ColumnName = Field(
        description="What is along: a name of the sweep whose values are numbers, such as an amount of "
        "data."
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
    """What plots of filters have: a panel for each sweep point of each algorithm."""

    variant: ColumnName | None = Field(
        None, description="Which of an algorithm's variants; without it the main one."
    )
    column: ColumnName | None = Field(
        None,
        description="The column whose groups are shown; needed where the goals tell groups by several.",
    )
    at: dict[ColumnName, Annotated[tuple[StrictScalar, ...], Field(min_length=1)]] = Field(
        {},
        description="Which sweep points: names of the sweep with lists of their values; without it all.",
    )


class PosteriorsPlot(BaseFilterPlot):
    """Who the values of a filter's proxy are: a heat map of the shares of groups in each."""

    kind: Literal["posteriors"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    split: SplitName = Field("train", description="The rows that are counted.")
    seed: SeedNumber | None = Field(
        None, description="The seed whose filter is shown; without it the first."
    )


class GroupSharesPlot(BaseFilterPlot):
    """What a filter does: shares of groups among all rows and among those that it keeps."""

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
        raise as_validation_error([wrong_type((), "a mapping of keys to values", raw)], "plot")
    kind = raw.get("kind")
    if "kind" in raw and str(kind) not in PLOT_TYPES:
        raise as_validation_error([invalid_choice(("kind",), kind, PLOT_TYPES)], "plot")
    return PLOT_TYPES.get(str(kind), TradeoffPlot).model_validate(raw)


Plot = Annotated[AnyPlot, BeforeValidator(_validate_plot)]


class ReportSpec(Spec):
    """Tables and plots; every metric is stored whether it is shown or not."""

    tables: tuple[TableSpec, ...] = Field((), description="Tables of the report, in this order.")
    plots: tuple[Plot, ...] = Field((), description="Plots of the report, in this order.")
