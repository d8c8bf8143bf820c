"""The `report:` part: which tables and plots to make."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema

from ratecli.config.base import Column, Flag, Name, Part, Scalar, Seed, Slug, Text
from ratecli.config.complaint import Complaint, no_choice, raised, wrong_type

SplitName = Literal["train", "validation", "test", "safety"]


SPLITS = get_args(SplitName)


def _listed(value: object) -> object:
    """One split is a list of one; raises what pydantic passes on for what is none."""
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    found = [
        no_choice((k,) if isinstance(value, list | tuple) else (), each, SPLITS)
        for k, each in enumerate(several)
        if each not in SPLITS
    ]
    found += [
        Complaint((k,), "E104", f"'{each}' is named twice", "remove one")
        for k, each in enumerate(several)
        if each in several[:k] and each in SPLITS
    ]
    if found:
        raise raised(found, "split")
    return several


SPLIT = {"type": "string", "enum": list(SPLITS)}
Splits = Annotated[
    tuple[SplitName, ...],
    Field(min_length=1),
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [SPLIT, {"type": "array", "items": SPLIT, "minItems": 1}]}),
]
"""One, or a list of which each gets panels of its own."""
Names = Annotated[tuple[Column, ...], Field(min_length=1)]
Variants = Annotated[
    Names | None,
    Field(
        description="Which variants to draw of the algorithms that have several; without it all."
    ),
]
Labels = Annotated[tuple[Name, ...], Field(min_length=1)]


class Table(Part):
    """A table of means."""

    rows: Names = Field(
        description="What makes a row: algorithm, variant, seed or names of the sweep."
    )
    columns: Names = Field(
        description="What is shown: metrics, objective, violation.CONSTRAINT, solution_rate, failure_rate "
        "(of any constraint), failure_rate.CONSTRAINT."
    )
    split: SplitName = Field("test", description="The rows that are measured.")
    file: Slug | None = Field(None, description="The file's name, without an ending.")


class Drawing(Part):
    """What all plots have."""

    file: Slug | None = Field(None, description="The file's name, without an ending.")
    title: Text | None = Field(None, description="The plot's title.")
    algorithms: Labels | None = Field(
        None, description="The labels of the algorithms to draw; without it all."
    )


class Paneled(Drawing):
    """What plots have that draw all of the sweep."""

    by: Column | None = Field(
        None, description="A name of the sweep, of whose values each gets a panel of its own."
    )


class TradeoffPlot(Paneled):
    """A metric against another, one series an algorithm and variant."""

    kind: Literal["tradeoff"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: Column = Field(
        description="What is along: a metric or else a name of the sweep, if its values are numbers."
    )
    y: Column = Field(description="The metric upwards.")
    split: Splits = Field(
        ("test",),
        description="The rows that are measured; of several each gets a panel of its own.",
    )
    variants: Variants = None
    lines: tuple[Name, ...] = Field(
        (), description="Labels of algorithms to draw as a horizontal line at their y."
    )
    diagonal: Flag = Field(
        default=False, description="Draw the line on which y is x: a target that is met exactly."
    )
    optimum: Flag = Field(
        default=False, description="Draw the best possible trade-off, where the data set knows it."
    )


class ConvergencePlot(Paneled):
    """Objective and worst violation on training rows, as each algorithm counts them on its way."""

    kind: Literal["convergence"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: Literal["iteration", "seconds"] = Field(
        "iteration", description="What is along: the algorithm's iterations or its seconds."
    )


class GuaranteePlot(Paneled):
    """What safety costs: performance, how often there was a solution and how often one failed."""

    kind: Literal["guarantee"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: Column = Field(
        description="What is along: a name of the sweep whose values are numbers, such as an amount of "
        "data."
    )
    y: Column = Field(
        description="The metric of the first panel, over the trials that gave a classifier."
    )
    truth: SplitName = Field(
        "test", description="The rows that stand for the truth, on which a classifier fails or not."
    )
    constraint: Name | None = Field(
        None, description="The constraint whose failures are counted; without it those of any."
    )
    variants: Variants = None


class FilterDrawing(Drawing):
    """What plots of filters have: a panel for each sweep point of each algorithm."""

    variant: Column | None = Field(
        None, description="Which of an algorithm's variants; without it the main one."
    )
    column: Column | None = Field(
        None,
        description="The column whose groups are shown; needed where the goals tell groups by several.",
    )
    at: dict[Column, Annotated[tuple[Scalar, ...], Field(min_length=1)]] = Field(
        {},
        description="Which sweep points: names of the sweep with lists of their values; without it all.",
    )


class PosteriorsPlot(FilterDrawing):
    """Who the values of a filter's proxy are: a heat map of the shares of groups in each."""

    kind: Literal["posteriors"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    split: SplitName = Field("train", description="The rows that are counted.")
    seed: Seed | None = Field(
        None, description="The seed whose filter is shown; without it the first."
    )


class GroupSharesPlot(FilterDrawing):
    """What a filter does: shares of groups among all rows and among those that it keeps."""

    kind: Literal["group_shares"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    split: Splits = Field(
        ("train", "test"),
        description="The rows that are counted; of several each gets panels of its own.",
    )


FilterPlot = PosteriorsPlot | GroupSharesPlot
AnyPlot = TradeoffPlot | ConvergencePlot | GuaranteePlot | FilterPlot
KINDS: dict[str, type[AnyPlot]] = {
    "tradeoff": TradeoffPlot,
    "convergence": ConvergencePlot,
    "guarantee": GuaranteePlot,
    "posteriors": PosteriorsPlot,
    "group_shares": GroupSharesPlot,
}


def _of_its_kind(raw: object) -> object:
    if isinstance(raw, Part):
        return raw
    if not isinstance(raw, dict):
        raise raised([wrong_type((), "a mapping of keys to values", raw)], "plot")
    kind = raw.get("kind")
    if "kind" in raw and str(kind) not in KINDS:
        raise raised([no_choice(("kind",), kind, KINDS)], "plot")
    return KINDS.get(str(kind), TradeoffPlot).model_validate(raw)


Plot = Annotated[AnyPlot, BeforeValidator(_of_its_kind)]


class Report(Part):
    """Tables and plots; every metric is stored whether it is shown or not."""

    tables: tuple[Table, ...] = Field((), description="Tables of the report, in this order.")
    plots: tuple[Plot, ...] = Field((), description="Plots of the report, in this order.")
