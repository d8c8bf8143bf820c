"""The `report:` part: which tables and plots to make."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from ratecli.spec.complaint import no_choice, raised, wrong_type
from ratecli.spec.strict import Column, Flag, Name, Part, Slug, Text

SplitName = Literal["train", "validation", "test", "safety"]
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
    by: Column | None = Field(
        None, description="A name of the sweep, of whose values each gets a panel of its own."
    )


class TradeoffPlot(Drawing):
    """A metric against another, one series an algorithm and variant."""

    kind: Literal["tradeoff"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: Column = Field(
        description="What is along: a metric or else a name of the sweep, if its values are numbers."
    )
    y: Column = Field(description="The metric upwards.")
    split: SplitName = Field("test", description="The rows that are measured.")
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


class ConvergencePlot(Drawing):
    """Objective and worst violation on training rows, as each algorithm counts them on its way."""

    kind: Literal["convergence"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: Literal["iteration", "seconds"] = Field(
        "iteration", description="What is along: the algorithm's iterations or its seconds."
    )


class GuaranteePlot(Drawing):
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


KINDS: dict[str, type[TradeoffPlot | ConvergencePlot | GuaranteePlot]] = {
    "tradeoff": TradeoffPlot,
    "convergence": ConvergencePlot,
    "guarantee": GuaranteePlot,
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


Plot = Annotated[TradeoffPlot | ConvergencePlot | GuaranteePlot, BeforeValidator(_of_its_kind)]


class Report(Part):
    """Tables and plots; every metric is stored whether it is shown or not."""

    tables: tuple[Table, ...] = Field((), description="Tables of the report, in this order.")
    plots: tuple[Plot, ...] = Field((), description="Plots of the report, in this order.")
